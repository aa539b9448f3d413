"""The table of contents: what `notebooks/book.toml` says about chapters, profiles and parameters.

Knows where the project stands on disk and which value a parameter takes. Does not know kernels, figures or
results.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paclab.errors import InputError, nearest

PROFILES = ("quick", "desk", "paper")
MARKER = Path("notebooks") / "book.toml"
JSON_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "list": list, "dict": dict}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a chapter: its value per profile, its range and its help text."""

    name: str
    values: Mapping[str, Any]
    help: str = ""
    min: float | None = None
    max: float | None = None
    choices: tuple = ()
    type: str = ""

    def value(self, profile: str) -> Any:
        """The profile's value; a profile without its own takes that of the next smaller one."""
        for name in reversed(PROFILES[: PROFILES.index(profile) + 1]):
            if name in self.values:
                return self.values[name]
        return None

    def kind(self) -> str:
        """Name of the JSON type that a given value must have; empty when nothing fixes it."""
        if self.type:
            return self.type
        known = [type(v).__name__ for v in self.values.values()]
        return "float" if "float" in known else (known[0] if known else "")


BUILT_IN = {
    "profile": Parameter("profile", {"quick": "quick"}, "size of the run", choices=PROFILES),
    "seed": Parameter("seed", {"quick": 0}, "seed of everything random and public", min=0, max=2**31 - 1),
    "out_dir": Parameter("out_dir", {}, "artefact folder; default runs/<profile>/<chapter>", type="str"),
}


@dataclass(frozen=True)
class Chapter:
    """One notebook: the question it answers, what it must produce, what it costs, what may be set."""

    id: str
    question: str
    artefacts: tuple[str, ...]
    minutes: Mapping[str, float]
    memory_gb: float = 1.0
    paper: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def known(self) -> dict[str, Parameter]:
        """Every parameter that may be given, the built-in ones included."""
        return {**BUILT_IN, **self.parameters}


@dataclass(frozen=True)
class Book:
    """The whole table of contents and the project root that it was read from."""

    root: Path
    chapters: Mapping[str, Chapter]

    def chapter(self, name: str) -> Chapter:
        """The chapter with this id, or the only one whose number or beginning is `name`."""
        if name in self.chapters:
            return self.chapters[name]
        found = [c for c in self.chapters if c.startswith(name)] if name else []
        if len(found) == 1:
            return self.chapters[found[0]]
        problem = f"{name!r} fits {', '.join(found)}" if found else f"no chapter {name!r} in {MARKER}"
        raise InputError("chapter", problem, nearest(name, self.chapters))

    def notebook(self, chapter: Chapter) -> Path:
        """Path of the chapter's source notebook."""
        return self.root / "notebooks" / f"{chapter.id}.ipynb"


def find_root(start: Path | None = None) -> Path:
    """Project root: PACLAB_ROOT, else the first folder with a book.toml above `start` or the package."""
    given = os.environ.get("PACLAB_ROOT")
    if given:
        root = Path(given).resolve()
        if (root / MARKER).is_file():
            return root
        raise InputError("PACLAB_ROOT", f"no {MARKER} under {given!r}", "point it at the project's folder")
    for place in ((start or Path.cwd()).resolve(), Path(__file__).resolve()):
        for folder in (place, *place.parents):
            if (folder / MARKER).is_file():
                return folder
    raise InputError("project", f"no {MARKER} above this folder", "run inside the project or set PACLAB_ROOT")


def load_book(root: Path | None = None) -> Book:
    """Read and check `notebooks/book.toml`; a wrong field is refused with the closest spelling."""
    root = Path(root) if root else find_root()
    try:
        raw = tomllib.loads((root / MARKER).read_text())
    except tomllib.TOMLDecodeError as error:
        raise InputError("book.toml", f"not valid TOML ({error})", "mend that line") from None
    chapters = {name: _chapter(name, entry) for name, entry in sorted(raw.get("chapter", {}).items())}
    return Book(root, chapters)


def _chapter(name: str, entry: dict) -> Chapter:
    fields = {"question", "artefacts", "minutes", "memory_gb", "paper", "after", "reads", "parameters"}
    for key in entry:
        if key not in fields:
            raise InputError(f"book.toml {name}", f"unknown field {key!r}", nearest(key, fields))
    for key in ("question", "artefacts", "minutes"):
        if key not in entry:
            raise InputError(f"book.toml {name}", f"field {key!r} is missing", "add it")
    parameters = {p: _parameter(name, p, spec) for p, spec in entry.get("parameters", {}).items()}
    return Chapter(
        name,
        entry["question"],
        tuple(entry["artefacts"]),
        entry["minutes"],
        float(entry.get("memory_gb", 1)),
        entry.get("paper", {}),
        tuple(entry.get("after", ())),
        tuple(entry.get("reads", ())),
        parameters,
    )


def _parameter(chapter: str, name: str, spec: Any) -> Parameter:
    spec = spec if isinstance(spec, dict) else {"quick": spec}
    fields = {*PROFILES, "help", "min", "max", "choices", "type"}
    for key in spec:
        if key not in fields:
            raise InputError(f"book.toml {chapter}.{name}", f"unknown field {key!r}", nearest(key, fields))
    values = {p: spec[p] for p in PROFILES if p in spec}
    if not values and spec.get("type") not in JSON_TYPES:
        raise InputError(f"book.toml {chapter}.{name}", "no value and no type", "add quick = … or type = …")
    parameter = Parameter(
        name,
        values,
        spec.get("help", ""),
        spec.get("min"),
        spec.get("max"),
        tuple(spec.get("choices", ())),
        spec.get("type", ""),
    )
    for value in values.values():
        check_value(parameter, value)
    return parameter


def resolve(chapter: Chapter, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Profile and the value of every parameter: what is given (not None) wins, the profile fills the rest.

    Raises InputError for an unknown name, a wrong type, a value out of range, a profile the chapter lacks.
    """
    known = chapter.known()
    for name, value in given.items():
        if name not in known:
            raise InputError(name, f"{chapter.id} has no such parameter", nearest(name, known))
        if value is not None:
            check_value(known[name], value)
    profile = given.get("profile") or "quick"
    if profile not in chapter.minutes:
        raise InputError(
            "profile",
            f"{chapter.id} has no {profile!r} profile",
            f"choose one of: {', '.join(chapter.minutes)}",
        )
    values = {name: known[name].value(profile) for name in known}
    values.update({name: value for name, value in given.items() if value is not None}, profile=profile)
    return profile, {name: _as_kind(known[name], value) for name, value in values.items()}


def differing(chapter: Chapter, values: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved values that are not the profile's own (`out_dir` aside): empty for a default run."""
    _, plain = resolve(chapter, {"profile": values["profile"]})
    return {name: v for name, v in values.items() if name != "out_dir" and v != plain[name]}


def check_value(parameter: Parameter, value: Any) -> None:
    """Raise InputError unless `value` has the parameter's type, lies in its range and among its choices."""
    kind, name = parameter.kind(), parameter.name
    if kind and not _is_kind(value, kind):
        raise InputError(
            name, f"must be {_article(kind)}, got {value!r}", _type_hint(value, kind)
        )
    if kind == "list":
        _check_items(parameter, value)
    for item in value if isinstance(value, list) else [value]:
        if parameter.choices and item not in parameter.choices:
            choices = ", ".join(map(str, parameter.choices))
            raise InputError(name, f"{item!r} is not a choice", f"choose from: {choices}")
        if isinstance(item, int | float) and not isinstance(item, bool):
            low, high = parameter.min, parameter.max
            if item != item or (low is not None and item < low) or (high is not None and item > high):
                raise InputError(name, f"{item!r} is out of range", f"choose {_range(low, high)}")


def _check_items(parameter: Parameter, value: list) -> None:
    samples = [v for values in parameter.values.values() for v in values]
    kinds = {type(v).__name__ for v in samples}
    if not value:
        raise InputError(parameter.name, "is an empty list", "give at least one value")
    if kinds <= {"int", "float"} and kinds:
        wanted = "float" if "float" in kinds else "int"
    elif len(kinds) == 1:
        wanted = kinds.pop()
    else:
        return
    for item in value:
        if not _is_kind(item, wanted):
            raise InputError(
                parameter.name,
                f"every item must be {_article(wanted)}, got {item!r}",
                _type_hint(item, wanted),
            )


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    return isinstance(value, int | float) if kind == "float" else isinstance(value, JSON_TYPES[kind])


def _as_kind(parameter: Parameter, value: Any) -> Any:
    return float(value) if parameter.kind() == "float" and value is not None else value


def _article(kind: str) -> str:
    return {
        "bool": "true or false",
        "int": "a whole number",
        "float": "a number",
        "str": "text",
        "list": "a list",
        "dict": "a table",
    }[kind]


def _type_hint(value: Any, kind: str) -> str:
    if isinstance(value, str) and kind != "str" and _reads_as_literal(value):
        return (
            "papermill's -p turns true, lists and 1e3-like words into text: use its -y option with YAML, "
            "or `paclab run --set`"
        )
    if isinstance(value, float) and kind == "int" and value == int(value):
        return f"write {int(value)}"
    return f"give {_article(kind)}"


def _reads_as_literal(text: str) -> bool:
    """Whether a text was meant as a number, a list or a truth value: 1e3, [1, 2], True."""
    try:
        tomllib.loads(f"value = {text.strip().lower()}")
    except tomllib.TOMLDecodeError:
        return False
    return True


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"at most {high}" if low is None else f"at least {low}"
    return f"between {low} and {high}"
