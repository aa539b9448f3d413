"""The report: every published number beside ours, from the artefacts alone.

Knows figures/<profile> and data/papers. Does not run or compute anything.
"""

from typing import NamedTuple

import pandas as pd

from paclab.errors import InputError, nearest
from paclab.notebook import formats, tables
from paclab.notebook.book import PROFILES, Book

SHOWN = ["chapter", *tables.KEYS, "value", "ours", "ours_half_width", "unit", "status"]
FAILING = ("differs", "close")
COUNTED = ("differs", "close", "match", "not comparable", "not run")
LISTED, WIDEST = 40, 56  # rows that are listed without being asked for; characters of a column


class Filters(NamedTuple):
    """What to keep of the report; empty keeps everything. `table` is a part of a table's name in any case."""

    paper: tuple[str, ...] = ()
    table: str = ""
    chapter: str = ""
    status: tuple[str, ...] = ()


def our_numbers(book: Book, profile: str) -> pd.DataFrame:
    """Rows of every published CSV artefact that has the columns paper, table, row, column and value."""
    frames = []
    for path in sorted((book.root / "figures" / profile).glob("[0-9]*/*.csv")):
        frame = pd.read_csv(path)
        if set(tables.KEYS) | {"value"} <= set(frame.columns):
            frames.append(frame.assign(chapter=path.parent.name, profile=profile))
    empty = pd.DataFrame(columns=[*tables.KEYS, "value", "chapter", "profile"])
    return pd.concat(frames, ignore_index=True) if frames else empty


def build_report(book: Book, profile: str) -> pd.DataFrame:
    """Every published number of every paper with our number, its chapter and its status, failing rows first."""
    published = pd.concat(
        [tables.load_published(p, book.root) for p in tables.papers(book.root)], ignore_index=True
    )
    ours = our_numbers(book, profile)
    compared = tables.compare(ours, published, profile)
    chapters = ours[[*tables.KEYS, "chapter"]].drop_duplicates(tables.KEYS)
    joined = compared.merge(chapters, on=tables.KEYS, how="left").fillna({"chapter": ""})
    return joined[["chapter", *compared.columns]]


def kind(status: pd.Series) -> pd.Series:
    """A status without its reason."""
    return status.str.partition(" (")[0]


def select(compared: pd.DataFrame, book: Book, filters: Filters) -> pd.DataFrame:
    """The rows that pass every filter; a chapter's rows are those of the papers' tables that it gives numbers to.

    Raises InputError with the closest spelling for a paper, status, chapter or table that is not there.
    """
    kept = compared
    known = tables.papers(book.root)
    for paper in filters.paper:
        if paper not in known:
            raise InputError("paper", f"no published numbers for {paper!r}", nearest(paper, known))
    for status in filters.status:
        if status not in tables.ORDER:
            raise InputError("status", f"{status!r} is no status", nearest(status, tables.ORDER))
    if filters.paper:
        kept = kept[kept["paper"].isin(filters.paper)]
    if filters.chapter:
        kept = kept[_of_chapter(kept, book, book.chapter(filters.chapter).id)]
    if filters.table:
        found = kept["table"].str.contains(filters.table, case=False, regex=False)
        if not found.any():
            close = nearest(filters.table, set(kept["table"]))
            raise InputError("table", f"no table has {filters.table!r} in its name",
                             close if "mean" in close else "give a part of a name that `paclab report --all` lists")
        kept = kept[found]
    if filters.status:
        kept = kept[kind(kept["status"]).isin(filters.status)]
    return kept.reset_index(drop=True)


def _of_chapter(frame: pd.DataFrame, book: Book, chapter: str) -> pd.Series:
    ours = pd.concat([our_numbers(book, profile) for profile in PROFILES], ignore_index=True)
    given = set(map(tuple, ours.loc[ours["chapter"] == chapter, ["paper", "table"]].itertuples(index=False)))
    if not given:
        known = ", ".join(sorted(set(ours["chapter"]))) or "none yet"
        raise InputError("chapter", f"{chapter} gives no number beside a paper's", f"chapters that do: {known}")
    return pd.Series([key in given for key in zip(frame["paper"], frame["table"], strict=True)], index=frame.index)


def overview(compared: pd.DataFrame) -> str:
    """Counts by paper, table and status, most failing rows first; tables that nobody ran are counted by paper."""
    counts = pd.crosstab([compared["paper"], compared["table"]], kind(compared["status"]))
    counts = counts.reindex(columns=[s for s in COUNTED if s in counts])
    waiting = counts.get("not run", 0) == counts.sum(axis=1)
    begun = counts[~waiting].sort_values(list(counts.columns), ascending=False, kind="stable")
    lines = [begun.reset_index().rename_axis(columns=None).to_string(index=False)] if len(begun) else []
    for paper, rest in counts[waiting].groupby(level="paper"):
        lines.append(f"{paper}: nothing run of {_several(len(rest), 'more table')} with "
                     f"{_several(rest.to_numpy().sum(), 'number')}")
    return "\n".join(lines)


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def as_shown(compared: pd.DataFrame) -> pd.DataFrame:
    """The columns one reads, as text, with our interval beside our number."""
    shown = formats.formatted(compared[SHOWN])
    shown["ours"] = [value if half == "n/a" else f"{value} ± {half}"
                     for value, half in zip(shown["ours"], shown["ours_half_width"], strict=True)]
    return shown.drop(columns="ours_half_width").rename(columns={"value": "published"})


def text(compared: pd.DataFrame, profile: str, everything: bool = False, narrowed: bool = False) -> str:
    """The report as text: counts first, then failing rows; all rows on request or when a filter left only a few."""
    if compared.empty:
        return f"{profile} profile: no row is left by these filters"
    failing = compared[kind(compared["status"]).isin(FAILING)]
    whole = everything or (narrowed and len(compared) <= LISTED)
    rows = as_shown(compared if whole else failing)
    parts = [f"{profile} profile: {tables.summary(compared)} published numbers", overview(compared)]
    if len(rows):
        parts.append(rows.to_string(index=False, max_colwidth=WIDEST))
    if not whole:
        parts.append(f"{len(rows)} failing rows listed; all {len(compared)}: --all, or choose by --paper, --table, "
                     "--chapter, --status; --csv, --latex and --markdown write files")
    return "\n\n".join(parts)
