"""The report: every published number beside ours, from the artefacts alone.

Knows figures/<profile> and data/papers. Does not run or compute anything.
"""

import pandas as pd

from paclab.files import write_atomic
from paclab.notebook import formats, tables
from paclab.notebook.book import Book


def our_numbers(book: Book, profile: str) -> pd.DataFrame:
    """Rows of every published CSV artefact that has the columns paper, table, row, column and value."""
    frames = []
    for path in sorted((book.root / "figures" / profile).glob("[0-9]*/*.csv")):
        frame = pd.read_csv(path)
        if set(tables.KEYS) | {"value"} <= set(frame.columns):
            frames.append(frame.assign(chapter=path.parent.name, profile=profile))
    empty = pd.DataFrame(columns=[*tables.KEYS, "value", "profile"])
    return pd.concat(frames, ignore_index=True) if frames else empty


def build_report(book: Book, profile: str) -> pd.DataFrame:
    """Every published number of every paper with our number and its status, failing rows first."""
    published = pd.concat(
        [tables.load_published(p, book.root) for p in tables.papers(book.root)], ignore_index=True
    )
    return tables.compare(our_numbers(book, profile), published, profile)


def write_report(book: Book, profile: str) -> str:
    """Write paper_vs_ours.csv, .md and .tex under figures/<profile>/report; return the table as text."""
    compared = build_report(book, profile)
    shown = formats.formatted(compared[[*tables.KEYS, "value", "ours", "unit", "status"]])
    shown = shown.rename(columns={"value": "published"})
    title = f"Published and measured numbers, {profile} profile"
    folder = book.root / "figures" / profile / "report"
    write_atomic(folder / "paper_vs_ours.csv", formats.to_csv(compared))
    write_atomic(
        folder / "paper_vs_ours.md",
        f"# {title}\n\n{tables.summary(compared)}\n\n{formats.to_markdown(shown)}",
    )
    write_atomic(folder / "paper_vs_ours.tex", formats.to_latex(shown, title))
    return (
        f"{shown.to_string(index=False)}\n\n{tables.summary(compared)}\nwritten to figures/{profile}/report/"
    )
