"""Checks of the notebooks' sources that need no kernel: what keeps a chapter readable and re-runnable.

Knows notebook files and book.toml. Does not execute anything; a whole book takes milliseconds.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from paclab.errors import InputError
from paclab.notebook.book import BUILT_IN, MARKER, Book, Chapter
from paclab.notebook.cell import assignments

CELLS, CODE_LINES, FUNCTION_LINES = (15, 35), 12, 12
ABSOLUTE = re.compile(
    r"(?<![\w./<:~-])(/(?:home|root|tmp|work|Users|mnt|var|opt|data)/[\w.-]+|[A-Z]:\\\\?\w+)"
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHELL = re.compile(r"^\s*(!|%pip|%conda|%%bash|%%sh|%cd|%run)", re.M)


def lint_book(book: Book, names: Iterable[str] = ()) -> list[str]:
    """Findings of the named chapters (all by default), one line each; empty means clean."""
    chosen = [book.chapter(name) for name in names]
    found = [line for chapter in chosen or book.chapters.values() for line in lint_chapter(book, chapter)]
    if not chosen:
        files = {path.stem for path in (book.root / "notebooks").glob("*.ipynb")}
        found += [
            f"{name}.ipynb: not listed; add [chapter.{name}] to {MARKER}"
            for name in sorted(files)
            if name not in book.chapters
        ]
    return found


def lint_chapter(book: Book, chapter: Chapter) -> list[str]:
    """Findings of one chapter's notebook."""
    path = book.notebook(chapter)
    if not path.is_file():
        return [f"{path.name}: missing; write it or take [chapter.{chapter.id}] out of {MARKER}"]
    try:
        notebook = json.loads(path.read_text())
    except ValueError as error:
        return [f"{path.name}: not JSON ({error})"]
    checks = (_schema, _stored, _kernel, _shape, _parameters, _use, _artefacts, _code, _text)
    cells = [dict(cell, text="".join(cell["source"])) for cell in notebook["cells"]]
    return [f"{path.name}: {line}" for check in checks for line in check(notebook, cells, chapter, path)]


def _code_cells(cells: list[dict]) -> list[tuple[int, dict]]:
    return [(i, cell) for i, cell in enumerate(cells, 1) if cell["cell_type"] == "code"]


def _trees(cells: list[dict]) -> Iterator[tuple[int, ast.Module]]:
    for i, cell in _code_cells(cells):
        try:
            yield i, ast.parse(cell["text"])
        except SyntaxError:
            continue


def _calls(cells: list[dict], *names: str) -> Iterator[ast.Call]:
    for _, tree in _trees(cells):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                if name in names:
                    yield node


def _schema(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    import nbformat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # missing ids are reported below
            nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        yield f"not a valid notebook ({str(error).splitlines()[0]})"
    ids = [cell.get("id") for cell in cells]
    if None in ids or len(set(ids)) < len(ids):
        yield "cells without an id, or two with the same; save it with nbformat 4.5 and unique ids"


def _stored(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    for i, cell in _code_cells(cells):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            yield f"cell {i} stores outputs or a count; clear all outputs before saving"
    for i, cell in enumerate(cells, 1):
        if "injected-parameters" in cell.get("metadata", {}).get("tags", []):
            yield f"cell {i} was injected by a run; restore the source notebook"
    for name in ("papermill", "widgets"):
        if name in notebook["metadata"] or any(name in cell.get("metadata", {}) for cell in cells):
            yield f"metadata of {name} is stored; this is an executed copy, not a source"


def _kernel(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    name = notebook["metadata"].get("kernelspec", {}).get("name")
    if name != "python3":
        yield f"kernel {name!r}; choose the kernel named python3"


def _shape(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    low, high = CELLS
    if not low <= len(cells) <= high:
        yield f"{len(cells)} cells; a chapter has {low} to {high}"
    first = cells[0]["text"].splitlines()[0] if cells and cells[0]["text"] else ""
    if not (
        cells
        and cells[0]["cell_type"] == "markdown"
        and first.startswith("# ")
        and first.rstrip().endswith("?")
    ):
        yield "cell 1 is not a title that asks a question; write `# ...?`"
    prose = "\n".join(cell["text"] for cell in cells if cell["cell_type"] == "markdown").lower()
    if not re.search(r"^#+ .*take-?aways?", prose, re.M):
        yield "no takeaways; add a Markdown heading `## Takeaways`"
    code = _code_cells(cells)
    if not code or "run.stamp()" not in code[-1][1]["text"]:
        yield "the last code cell does not call run.stamp()"
    begun = [
        c.args[0].value for c in _calls(cells, "begin") if c.args and isinstance(c.args[0], ast.Constant)
    ]
    if begun != [path.stem]:
        yield f"calls begin with {begun}; call begin({path.stem!r}, globals()) once"


def _parameters(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    code = _code_cells(cells)
    tagged = [i for i, cell in code if "parameters" in cell["metadata"].get("tags", [])]
    if len(tagged) != 1 or tagged[0] != code[0][0]:
        yield "the first code cell, and no other, carries the tag `parameters`"
        return
    above = cells[tagged[0] - 2] if tagged[0] > 1 else {"cell_type": "", "text": ""}
    if above["cell_type"] != "markdown" or "parameters" not in above["text"].lower():
        yield "no Markdown cell `Parameters` above the parameters cell"
    try:
        found = assignments(cells[tagged[0] - 1]["text"])
    except InputError as error:
        yield f"cell {tagged[0]}: {error}"
        return
    if found is None:
        yield f"cell {tagged[0]}: only lines `name = None  # meaning, unit` belong there"
        return
    for name in sorted(set(chapter.known()) - set(found)):
        yield f"cell {tagged[0]}: parameter {name} of {MARKER.name} is not there; add `{name} = None`"
    for name, value in found.items():
        if name not in chapter.known():
            yield f"cell {tagged[0]}: {name} is not in {MARKER.name}; add it there"
        if value is not None:
            yield f"cell {tagged[0]}: {name} = {value!r} hides the profiles; write None"


def _use(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    read = {
        node.attr for _, tree in _trees(cells) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    whole = any(
        isinstance(n, ast.Call) and "vars" in ast.dump(n.func) for _, t in _trees(cells) for n in ast.walk(t)
    )
    for name in chapter.parameters:
        if name not in read and not (whole and "params" in read) and name not in BUILT_IN:
            yield f"parameter {name} is never read; use run.params.{name}"


def _artefacts(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    written: set[str] = set()
    for call in _calls(cells, "figure", "table", "path"):
        kind = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        names = [
            *call.args[1 if kind != "path" else 0 :],
            *(k.value for k in call.keywords if k.arg == "name"),
        ]
        for name in names[:1]:
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                stem = name.value.removesuffix({"figure": ".png", "table": ".csv"}.get(kind, ""))
                written |= {
                    stem + s for s in {"figure": (".png",), "table": (".csv", ".tex")}.get(kind, ("",))
                }
    for name in chapter.artefacts:
        if name not in written:
            yield f"declared artefact {name} is named in no run.figure, run.table or run.path call"


def _code(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    for i, cell in _code_cells(cells):
        if SHELL.search(cell["text"]):
            yield f"cell {i} calls a shell or an installer; the environment is set up by `make`"
            continue
        lines = [ln for ln in cell["text"].splitlines() if ln.strip() and not ln.strip().startswith("#")]
        if len(lines) > CODE_LINES and "parameters" not in cell["metadata"].get("tags", []):
            yield f"cell {i} has {len(lines)} lines of code, {CODE_LINES} allowed; use the package"
    for i, tree in _trees(cells):
        for node in ast.walk(tree):
            long = (
                isinstance(node, ast.FunctionDef)
                and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
            )
            if long:
                yield f"cell {i}: function {node.name} has over {FUNCTION_LINES} lines; use the package"


def _text(notebook: dict, cells: list[dict], chapter: Chapter, path: Path) -> Iterator[str]:
    for i, cell in enumerate(cells, 1):
        hit = ABSOLUTE.search(cell["text"])
        if hit:
            yield f"cell {i} names the path {hit.group(1)}; use run.root"
        if cell["cell_type"] == "markdown":
            for target in LINK.findall(re.sub(r"`[^`]*`", "", cell["text"])):
                where = target.partition("#")[0]
                if where and not re.match(r"[a-z]+:", where) and not (path.parent / where).exists():
                    yield f"cell {i} links to {target}, which does not exist"
