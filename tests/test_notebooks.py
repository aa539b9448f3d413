"""The real book: every notebook's source is clean, and every quick chapter runs green through the runner."""

import json
import os
import subprocess
import sys

import pytest

from paclab.notebook.book import load_book
from paclab.notebook.lint import lint_book, lint_chapter
from paclab.notebook.publish import read_manifest
from paclab.notebook.runner import run_book

BOOK = load_book()
QUICK = [c.id for c in BOOK.chapters.values() if "quick" in c.minutes]


@pytest.fixture(scope="session")
def outcomes():
    """One call of the runner for the whole quick book: what is up to date is not executed again."""
    return {o.label: o for o in run_book(BOOK, QUICK, profile="quick")}


@pytest.mark.parametrize("chapter", BOOK.chapters)
def test_source_is_clean(chapter):
    assert lint_chapter(BOOK, BOOK.chapters[chapter]) == []


def test_every_notebook_is_listed():
    assert [line for line in lint_book(BOOK) if "not listed" in line] == []


@pytest.mark.notebook
@pytest.mark.parametrize("chapter", QUICK)
def test_quick_chapter_is_green(outcomes, chapter):
    outcome = outcomes[chapter]
    assert outcome.status in ("OK", "up to date"), "\n".join(outcome.story)
    executed = BOOK.root / "runs" / "quick" / "executed" / f"{chapter}.ipynb"
    text = executed.read_text()
    assert str(BOOK.root) not in text, "executed copies name no machine's folders"
    assert len(text) < 3_000_000, "outputs are small enough for JupyterLab"
    images = sum(
        "image/png" in out.get("data", {}) for c in json.loads(text)["cells"] for out in c.get("outputs", [])
    )
    wanted = [a for a in BOOK.chapters[chapter].artefacts if a.endswith(".png")]
    assert images >= len(wanted), "every figure is seen in the page too"


@pytest.mark.notebook
@pytest.mark.parametrize("chapter", QUICK)
def test_published_artefacts_are_the_declared_ones(outcomes, chapter):
    entry = read_manifest(BOOK.root, "quick")[chapter]
    declared = {a for a in BOOK.chapters[chapter].artefacts if a.endswith((".png", ".csv"))}
    assert declared <= set(entry["artefacts"])
    assert all(a["bytes"] <= 300_000 for a in entry["artefacts"].values())


@pytest.mark.notebook
def test_bare_papermill_in_another_folder_gives_a_chapter_of_the_same_bytes(outcomes, tmp_path):
    """The second door: figures, tables and LaTeX of a real chapter, without the runner and from anywhere."""
    chapter = "40_identification"
    assert outcomes[chapter].status in ("OK", "up to date")
    environment = {name: value for name, value in os.environ.items() if name != "PACLAB_HEADLESS"}
    command = [sys.executable, "-m", "papermill", str(BOOK.notebook(BOOK.chapters[chapter])), "out.ipynb",
               "--no-progress-bar", "-p", "out_dir", "here"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = BOOK.root / "runs" / "quick" / chapter
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".png", ".csv", ".tex"))
    assert set(BOOK.chapters[chapter].artefacts) <= set(names)
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name
