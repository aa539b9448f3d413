"""What a chapter calls: `begin` resolves its parameters, `Run` keeps its figures, tables and checks.

Knows the notebook it runs in and the folder of its artefacts. Does not know how notebooks are executed.
"""

import ast
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paclab.errors import InputError
from paclab.files import sha256_file, sha256_json, write_atomic, write_json
from paclab.notebook import provenance
from paclab.notebook.book import BUILT_IN, Book, Chapter, differing, find_root, load_book, resolve
from paclab.notebook.widgets import clock, headless

STUDY = "study of a public pool: reproducible, not private"
RECORD = "run.json"


class ChapterFailed(RuntimeError):
    """A check failed or a declared artefact is missing: the chapter is red."""


@dataclass
class Run:
    """One execution of a chapter: resolved parameters, the artefact folder, what was written and checked."""

    book: Book
    chapter: Chapter
    values: dict[str, Any]
    out: Path
    key: str
    source: str
    started: float = field(default_factory=time.time)
    written: dict[str, str] = field(default_factory=dict)
    captions: dict[str, str] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    in_study: bool = False

    @property
    def root(self) -> Path:
        """The project's folder."""
        return self.book.root

    @property
    def profile(self) -> str:
        """quick, desk or paper."""
        return self.values["profile"]

    @property
    def seed(self) -> int:
        """The seed that was given, else the profile's."""
        return self.values["seed"]

    @property
    def params(self) -> SimpleNamespace:
        """The resolved parameters of the chapter as attributes."""
        return SimpleNamespace(**{n: v for n, v in self.values.items() if n not in ("profile", "out_dir")})

    def study(self, on: bool = True) -> None:
        """Study mode: later figures and tables say that they show a public pool with reproducible secrets."""
        self.in_study = on

    def note(self) -> str:
        """The small print of figures and tables."""
        text = f"{self.chapter.id} · {self.profile} profile"
        text += " (small run, not a reproduction)" if self.profile == "quick" else ""
        return f"{text} · {STUDY}" if self.in_study else text

    def figure(self, figure: Any, name: str, caption: str = "") -> None:
        """Save `name`.png with its provenance, show it once with its caption, close it."""
        import matplotlib.pyplot as plt

        from paclab.notebook import plots

        name = _plain_name(name, ".png")
        plots.watermark(figure, self.note())
        path = self.out / name
        plots.save_figure(figure, path, self._metadata(caption))
        _display(plots.png_image(figure, alt=caption or name))
        plt.close(figure)
        self._register(name, caption)

    def table(self, frame: Any, name: str, caption: str = "", digits: int | Mapping[str, int] = 4) -> None:
        """Save `name`.csv (full precision, with a `profile` column) and `name`.tex (booktabs), and show it.

        digits: significant digits of every number shown, or decimals by column name.
        """
        from paclab.notebook import formats

        name = _plain_name(name, ".csv")
        frame = formats.flat(frame)
        kept = frame.assign(profile=self.profile, **({"study": STUDY} if self.in_study else {}))
        write_atomic(self.out / name, formats.to_csv(kept))
        shown = formats.formatted(frame, digits)
        tex = Path(name).with_suffix(".tex").name
        write_atomic(self.out / tex, formats.to_latex(shown, caption, self.note()))
        _display(formats.html(shown))
        self._register(name, caption)
        self._register(tex, "", quiet=True)

    def path(self, name: str) -> Path:
        """A file of this chapter's own (an array, say) in the artefact folder; write it before `stamp`."""
        self.written[name] = ""
        return self.out / name

    def check(self, text: str, passed: Any, detail: str = "") -> None:
        """Record a check and print OK or FAIL; one that fails turns the chapter red at the stamp."""
        passed = bool(passed)
        self.checks.append({"text": text, "passed": passed, "detail": detail})
        print(f"{'OK  ' if passed else 'FAIL'} {text}{f' ({detail})' if detail else ''}")

    def stamp(self) -> None:
        """Last cell: write run.json, say where the numbers come from, refuse failed checks and gaps."""
        for name in self.written:
            path = self.out / name
            self.written[name] = sha256_file(path) if path.is_file() else ""
        missing = [name for name in self.chapter.artefacts if not self.written.get(name)]
        failed = [check["text"] for check in self.checks if not check["passed"]]
        record = self._record(missing, failed)
        write_json(self.out / RECORD, record)
        changed = differing(self.chapter, self.values)
        print(f"{self.note()} · seed {self.seed}" + (f" · changed: {_words(changed)}" if changed else ""))
        print(
            f"{len(self.checks) - len(failed)}/{len(self.checks)} checks OK · {clock(record['seconds'])}, "
            f"{record['peak_mb']:.0f} MB · notebook {self.source[:8]} · "
            + " ".join(f"{n} {provenance.versions()[n]}" for n in ("paclab", "torch", "numpy"))
        )
        if failed or missing:
            gaps = [f"check failed: {text}" for text in failed]
            gaps += [f"declared artefact {name} was not written by this run" for name in missing]
            raise ChapterFailed(f"{self.chapter.id} is red: " + "; ".join(gaps))

    def _register(self, name: str, caption: str, quiet: bool = False) -> None:
        self.written[name] = sha256_file(self.out / name)
        if caption:
            self.captions[name] = caption
        if not quiet:
            _display_caption(caption, name)

    def _metadata(self, caption: str) -> dict[str, str]:
        kept = {n: v for n, v in self.values.items() if n != "out_dir"}
        return {
            "Title": self.chapter.id,
            "Description": caption,
            "Comment": self.note(),
            "Source": json.dumps({"notebook": self.source, "parameters": kept}, sort_keys=True),
        }

    def _record(self, missing: list[str], failed: list[str]) -> dict[str, Any]:
        kept = {n: v for n, v in self.values.items() if n != "out_dir"}
        return {
            "chapter": self.chapter.id,
            "key": self.key,
            "notebook": self.source,
            "parameters": kept,
            "package": provenance.package_hash(),
            "changed": differing(self.chapter, self.values),
            "headless": headless(),
            "green": not (missing or failed),
            "artefacts": self.written,
            "captions": self.captions,
            "checks": self.checks,
            "missing": missing,
            "study": self.in_study,
            "started": self.started,
            "seconds": round(time.time() - self.started, 2),
            "peak_mb": provenance.peak_memory_mb(),
            "device": provenance.device_name(),
            "threads": provenance.thread_caps(),
            "versions": provenance.versions(),
            **provenance.commit(self.root),
        }


def begin(chapter: str, names: Mapping[str, Any]) -> Run:
    """Resolve the parameters that the cells above assigned, and open the chapter's artefact folder.

    Args:
        chapter: id in notebooks/book.toml, the notebook's file name.
        names: `globals()` of the notebook.
    Raises InputError for an unknown name (with the closest spelling), a wrong type, a value out of range.
    """
    book = load_book(find_root())
    entry = book.chapter(chapter)
    profile, values = resolve(entry, given_parameters(names))
    out = artefact_folder(book, entry, values)
    if not (headless() or values["out_dir"]):  # playing in a live notebook leaves headless results alone
        out = book.root / "runs" / "interactive" / out.name
    out.mkdir(parents=True, exist_ok=True)
    (out / RECORD).unlink(missing_ok=True)
    notebook = book.notebook(entry)
    run = Run(book, entry, values, out, run_key(book, entry, values), provenance.notebook_hash(notebook))
    _settle_look()
    changed = differing(entry, values)
    minutes = entry.minutes[profile]
    print(f"{entry.id} · {profile} profile · seed {run.seed} · about {minutes:g} min, {entry.memory_gb:g} GB")
    if changed:
        print(f"changed from the profile: {_words(changed)}")
    return run


def run_key(book: Book, chapter: Chapter, values: Mapping[str, Any]) -> str:
    """Key of a run: what `provenance.run_key` hashes, and the chapters and files that this one reads."""
    manifest = book.root / "figures" / values["profile"] / "MANIFEST.json"
    published = json.loads(manifest.read_text())["chapters"] if manifest.is_file() else {}
    inputs = [sha256_json(published.get(name, {}).get("artefacts", {})) for name in chapter.after]
    inputs += [sha256_file(book.root / name) for name in chapter.reads]
    inputs.append(sha256_json([chapter.artefacts, dict(chapter.paper)]))
    return provenance.run_key(book.notebook(chapter), dict(values), book.root, inputs)


def artefact_folder(book: Book, chapter: Chapter, values: Mapping[str, Any]) -> Path:
    """runs/<profile>/<id>, with a hash of the changed parameters if there are any; or `out_dir`."""
    if values.get("out_dir"):
        return Path(values["out_dir"]).expanduser().resolve()
    changed = differing(chapter, values)
    suffix = f"-{sha256_json(changed)[:8]}" if changed else ""
    return book.root / "runs" / values["profile"] / f"{chapter.id}{suffix}"


def given_parameters(names: Mapping[str, Any]) -> dict[str, Any]:
    """What the last parameters cell and the injected cell after it assigned, read from the cells' source.

    Outside a notebook (no `In`), every public name in `names` that is bound to a JSON-like literal.
    """
    cells = names.get("In")
    if not isinstance(cells, list):
        return {n: v for n, v in names.items() if not n.startswith("_") and _is_literal(v)}
    given: dict[str, Any] = {}
    for source in cells:
        assigned = assignments(source)
        if assigned is None:
            continue
        if set(BUILT_IN) <= set(assigned):
            given = assigned
        elif source.lstrip().startswith("# Parameters"):
            given = {**given, **assigned}
    if not given:
        raise InputError("parameters", "no parameters cell has run", "run the cell above first")
    return given


def assignments(source: str) -> dict[str, Any] | None:
    """Names and values of a cell that holds nothing but `name = literal` lines; None for any other cell.

    Raises InputError where a cell with the built-in names computes something.
    """
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return None
    pairs: dict[str, Any] = {}
    for node in body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Name):
            return None
        pairs[target.id] = node.value  # type: ignore[attr-defined]
    strict = set(BUILT_IN) <= set(pairs) or source.lstrip().startswith("# Parameters")
    found: dict[str, Any] = {}
    for name, node in pairs.items():
        try:
            found[name] = ast.literal_eval(node)
        except (ValueError, TypeError):
            if strict:
                fix = "write a plain number, text, list or None"
                raise InputError(name, "is not a literal", fix) from None
            return None
    return found or None


def _is_literal(value: Any) -> bool:
    if value is None or isinstance(value, bool | int | float | str):
        return True
    if isinstance(value, list):
        return all(_is_literal(v) for v in value)
    return isinstance(value, dict) and all(isinstance(k, str) and _is_literal(v) for k, v in value.items())


def _plain_name(name: str, suffix: str) -> str:
    stem = name.removesuffix(suffix)
    if not stem or not stem.replace("_", "").replace("-", "").isalnum():
        raise InputError("name", f"{name!r} is not a plain artefact name", "use letters, digits, _ and -")
    return stem + suffix


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())


def _settle_look() -> None:
    from paclab.notebook.plots import use_style

    use_style()


def _display(thing: Any) -> None:
    from IPython.display import display

    display(thing)


def _display_caption(caption: str, name: str) -> None:
    from IPython.display import Markdown

    _display(Markdown(f"*{caption}* (`{name}`)" if caption else f"`{name}`"))
