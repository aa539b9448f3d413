"""Published artefacts: `figures/<profile>/<chapter>/` and its MANIFEST.json.

Knows which files of a green default run are kept in the project. Does not run anything. The manifest names no
machine, folder or time, and an entry whose artefacts did not change keeps its old words.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from paclab.files import sha256_file, write_atomic, write_json
from paclab.notebook.book import Book, Chapter
from paclab.notebook.provenance import notebook_hash
from paclab.notebook.worker import read_record

KEPT = (".png", ".csv", ".tex", ".md", ".json")
MAX_BYTES = 300_000


def manifest_path(root: Path, profile: str) -> Path:
    """Where the manifest of a profile's published artefacts lies."""
    return root / "figures" / profile / "MANIFEST.json"


def read_manifest(root: Path, profile: str) -> dict[str, Any]:
    """The manifest's entry per chapter; empty when nothing is published."""
    path = manifest_path(root, profile)
    return json.loads(path.read_text())["chapters"] if path.is_file() else {}


def oversized(folder: Path, record: dict[str, Any]) -> list[str]:
    """Files of a run that are too large to be published."""
    return [
        name
        for name in record["artefacts"]
        if Path(name).suffix in KEPT and (folder / name).stat().st_size > MAX_BYTES
    ]


def publish(book: Book, chapter: Chapter, profile: str, folder: Path) -> None:
    """Copy a green run's artefacts into figures/ and write its entry of the manifest."""
    record = read_record(folder)
    names = sorted(n for n in record["artefacts"] if Path(n).suffix in KEPT)
    target = book.root / "figures" / profile / chapter.id
    for old in target.glob("*"):
        if old.name not in names:
            old.unlink()
    for name in names:
        write_atomic(target / name, (folder / name).read_bytes())
    entry = {
        "notebook": record["notebook"],
        "package": record["package"],
        "parameters": record["parameters"],
        "versions": record["versions"],
        "device": record["device"],
        "study": record["study"],
        "checks": len(record["checks"]),
        "artefacts": {name: _artefact(target / name, record, chapter) for name in names},
    }
    entries = read_manifest(book.root, profile)
    if not _same(entries.get(chapter.id), entry):
        entries[chapter.id] = entry
    known = {name: value for name, value in entries.items() if name in book.chapters}
    write_json(manifest_path(book.root, profile), {"profile": profile, "chapters": known})
    for folder in manifest_path(book.root, profile).parent.iterdir():
        if folder.is_dir() and folder.name[:2].isdigit() and folder.name not in book.chapters:
            shutil.rmtree(folder)


def is_published(book: Book, chapter: Chapter, profile: str, folder: Path) -> bool:
    """Whether figures/ and the manifest hold exactly the artefacts of the run in `folder`."""
    entry = read_manifest(book.root, profile).get(chapter.id)
    record = read_record(folder)
    wanted = {n: digest for n, digest in record["artefacts"].items() if Path(n).suffix in KEPT}
    if entry is None or {n: a["sha256"] for n, a in entry["artefacts"].items()} != wanted:
        return False
    target = book.root / "figures" / profile / chapter.id
    return all((target / n).is_file() and sha256_file(target / n) == digest for n, digest in wanted.items())


def shipped(book: Book, chapter: Chapter, profile: str) -> str:
    """`shipped` when figures/ holds a chapter's artefacts as its manifest lists them, `shipped, older` when its
    notebook was edited since; empty when they are missing or altered."""
    entry = read_manifest(book.root, profile).get(chapter.id)
    target = book.root / "figures" / profile / chapter.id
    if entry is None or not all((target / name).is_file() and sha256_file(target / name) == artefact["sha256"]
                                for name, artefact in entry["artefacts"].items()):
        return ""
    return "shipped" if entry["notebook"] == notebook_hash(book.notebook(chapter)) else "shipped, older"


def _artefact(path: Path, record: dict[str, Any], chapter: Chapter) -> dict[str, Any]:
    entry = {"sha256": sha256_file(path), "bytes": path.stat().st_size}
    for name, value in (
        ("caption", record["captions"].get(path.name)),
        ("paper", chapter.paper.get(path.name)),
    ):
        if value:
            entry[name] = value
    return entry


def _same(old: dict[str, Any] | None, new: dict[str, Any]) -> bool:
    keys = ("artefacts", "parameters", "notebook", "study", "checks")
    return old is not None and all(old.get(k) == new[k] for k in keys)
