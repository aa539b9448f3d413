"""`paclab report` and `paclab list` on a small book: counts, filters, files, and figures that were made elsewhere."""

import sys

import pandas as pd
import pytest

from paclab import cli
from paclab.files import sha256_file, write_json
from paclab.notebook import report, tables
from paclab.notebook.book import load_book
from paclab.notebook.provenance import notebook_hash
from paclab.notebook.runner import status

PUBLISHED = [  # paper, table, row, value, tolerance -> ours, status in the desk profile
    ("alpha", "Table 1", "a", 1.0, 0.1, 1.05, "match"), ("alpha", "Table 1", "b", 1.0, 0.1, 1.15, "close"),
    ("alpha", "Table 1", "c", 1.0, 0.1, 2.0, "differs"), ("alpha", "Table 2", "d", 1.0, 0.1, None, "not run"),
    ("beta", "Table 1", "e", None, 0.1, 3.0, "not comparable"), ("beta", "Figure 7", "f", 1.0, 0.1, None, "not run"),
    ("beta", "Figure 8", "g", 1.0, 0.1, None, "not run")]


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Two papers, one chapter with desk numbers of both, one without any."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "data" / "papers").mkdir(parents=True)
    for name in ("10_alpha", "20_other"):
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(
            '{"cells": [{"cell_type": "code", "source": ["x = 1"]}]}')
    (tmp_path / "notebooks" / "book.toml").write_text("".join(
        f'[chapter.{name}]\nquestion = "Why {name}?"\nartefacts = ["ours.csv"]\nminutes = {{quick = 1, desk = 9}}\n'
        for name in ("10_alpha", "20_other")))
    for paper in ("alpha", "beta"):
        rows = [{"paper": p, "table": t, "row": r, "column": "x", "value": v, "unit": "%", "half_width": None,
                 "tolerance": tol, "note": "", "source": "s"} for p, t, r, v, tol, *_ in PUBLISHED if p == paper]
        pd.DataFrame(rows, columns=tables.COLUMNS).to_csv(tmp_path / "data" / "papers" / f"{paper}.csv", index=False)
    place = tmp_path / "figures" / "desk" / "10_alpha"
    place.mkdir(parents=True)
    pd.DataFrame([{"paper": p, "table": t, "row": r, "column": "x", "value": ours, "half_width": 0.5}
                  for p, t, r, _, _, ours, _ in PUBLISHED if ours is not None]).to_csv(place / "ours.csv", index=False)
    monkeypatch.setenv("PACLAB_ROOT", str(tmp_path))
    return load_book(tmp_path)


def ask(monkeypatch, capsys, *words: str) -> str:
    """What a command prints; it must succeed."""
    monkeypatch.setattr(sys, "argv", ["paclab", *words])
    cli.main()
    return capsys.readouterr().out


def test_every_status_is_told_and_failing_rows_come_first(book):
    found = report.build_report(book, "desk")
    assert dict(zip(found["row"], report.kind(found["status"]), strict=True)) == {
        row: status for _, _, row, *_, status in PUBLISHED}
    assert list(found["row"][:2]) == ["c", "b"]
    assert dict(zip(found["row"], found["chapter"], strict=True))["c"] == "10_alpha"
    assert set(found.loc[found["status"] == "not run", "chapter"]) == {""}


def test_the_summary_counts_and_lists_failing_rows_only(book, monkeypatch, capsys):
    text = ask(monkeypatch, capsys, "report")
    assert text.startswith("desk profile: 1 differs, 1 close, 3 not run, 1 not comparable, 1 match of 7")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "alpha Table 1 1 1 1 0 0" in lines  # differs, close, match, not comparable, not run
    assert "beta Table 1 0 0 0 1 0" in lines and "beta: nothing run of 2 more tables with 2 numbers" in lines
    assert "alpha: nothing run of 1 more table with 1 number" in lines
    listed = [line for line in lines if line.startswith("10_alpha")]
    assert [line.split()[4] for line in listed] == ["c", "b"] and "2 ± 0.5" in listed[0]
    everything = ask(monkeypatch, capsys, "report", "--all")
    assert all(f" {row} " in everything for row in "abcdefg")


@pytest.mark.parametrize(("words", "rows"), [
    (["--paper", "beta"], "efg"), (["--paper", "alpha", "--paper", "beta", "--status", "not-run"], "dfg"),
    (["--table", "figure"], "fg"), (["--status", "match", "--status", "differs"], "ac"),
    (["--chapter", "10"], "abce"), (["--chapter", "10", "--paper", "beta"], "e"),
    (["--paper", "beta", "--status", "match"], "")])
def test_filters_and_files(words, rows, book, tmp_path, monkeypatch, capsys):
    files = [tmp_path / name for name in ("rows.csv", "rows.tex", "rows.md")]
    text = ask(monkeypatch, capsys, "report", *words, "--csv", str(files[0]), "--latex", str(files[1]),
               "--markdown", str(files[2]))
    written = pd.read_csv(files[0])
    assert sorted(written["row"]) == sorted(rows) and f"{len(rows)} rows written to {files[0]}" in text
    assert files[1].read_text().count(" & x & ") == files[2].read_text().count("| x |") == len(rows)
    assert not (tmp_path / "figures" / "desk" / "report").exists()  # nothing is written unasked


@pytest.mark.parametrize(("words", "message"), [
    (["--paper", "alfa"], "--paper: no published numbers for 'alfa'; did you mean 'alpha'?"),
    (["--status", "diffrs"], "--status: 'diffrs' is no status; did you mean 'differs'?"),
    (["--table", "zzzz"], "--table: no table has 'zzzz' in its name; give a part of a name"),
    (["--chapter", "20"], "--chapter: 20_other gives no number beside a paper's; chapters that do: 10_alpha"),
    (["--chapter", "99"], "--chapter: no chapter '99'"), (["--profile", "dsk"], "--profile: 'dsk' is not a profile")])
def test_a_wrong_filter_is_one_line(words, message, book, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["paclab", "report", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith(f"paclab: {message}") and error.count("\n") == 1


def test_quick_numbers_are_never_a_match(book):
    (book.root / "figures" / "quick").mkdir()
    (book.root / "figures" / "desk" / "10_alpha").rename(book.root / "figures" / "quick" / "10_alpha")
    assert set(report.kind(report.build_report(book, "quick")["status"])) == {"not comparable", "not run"}


def test_figures_that_came_with_the_project_are_called_shipped(book, monkeypatch, capsys):
    chapter, notebook = book.chapter("10"), book.root / "notebooks" / "10_alpha.ipynb"
    artefact = book.root / "figures" / "desk" / "10_alpha" / "ours.csv"
    assert status(book, chapter, "desk") == "never run"
    write_json(book.root / "figures" / "desk" / "MANIFEST.json", {"profile": "desk", "chapters": {"10_alpha": {
        "notebook": notebook_hash(notebook), "artefacts": {"ours.csv": {"sha256": sha256_file(artefact)}}}}})
    assert status(book, chapter, "desk") == "shipped" and status(book, chapter, "quick") == "never run"
    write_json(book.root / "runs" / "quick" / "ledger.json", {
        "10_alpha": {"status": "OK", "seconds": 90.0, "peak_mb": 321.0}})
    line = next(line for line in ask(monkeypatch, capsys, "list").splitlines() if line.startswith("10_alpha"))
    assert line.split() == ["10_alpha", "1", "1.5", "stale", "9", "-", "shipped", "321", "Why", "10_alpha?"]
    notebook.write_text(notebook.read_text().replace("x = 1", "x = 2"))
    assert status(book, chapter, "desk") == "shipped, older"
    artefact.write_text("edited\n")
    assert status(book, chapter, "desk") == "never run"
