"""The papers' numbers beside ours: reading `data/papers/*.csv`, joining, and calling each row by its status.

Knows keys (paper, table, row, column), tolerances and statuses. Does not know how our numbers were made.
"""

from pathlib import Path

import pandas as pd

from paclab.errors import InputError, nearest
from paclab.notebook.book import find_root

KEYS = ["paper", "table", "row", "column"]
COLUMNS = [*KEYS, "value", "unit", "half_width", "tolerance", "note", "source"]
UNAVAILABLE = "paper text unavailable"
PRINTED = "printed as"  # begins the note of a cell where the paper prints a word, no number
ORDER = ("differs", "close", "not run", "not comparable", "match")
TEXT = [*KEYS, "unit", "note", "source"]


def papers(root: Path | None = None) -> list[str]:
    """Names of the papers whose published numbers are on file."""
    return sorted(p.stem for p in ((root or find_root()) / "data" / "papers").glob("*.csv"))


def load_published(paper: str, root: Path | None = None) -> pd.DataFrame:
    """Published numbers of one paper, tidy: one row per (table, row, column).

    Columns: paper, table, row, column, value (empty: the note says why), unit, half_width (the paper's
    spread, if any), tolerance (what still counts as a match, in the same unit), note, source. A note that
    begins with "at most" marks an upper bound: any smaller number matches.
    """
    folder = (root or find_root()) / "data" / "papers"
    path = folder / f"{paper}.csv"
    if not path.is_file():
        raise InputError("paper", f"no published numbers for {paper!r}", nearest(paper, papers(root)))
    frame = pd.read_csv(
        path,
        dtype={name: str for name in TEXT},
        keep_default_na=False,
        na_values={name: [""] for name in ("value", "half_width", "tolerance")},
    )
    if list(frame.columns) != COLUMNS:
        raise InputError(f"data/papers/{paper}.csv", "wrong columns", f"write {', '.join(COLUMNS)}")
    return frame


def compare(ours: pd.DataFrame, published: pd.DataFrame, profile: str | None = None) -> pd.DataFrame:
    """Join our numbers to the published ones and name each row's status; failing rows come first.

    Args:
        ours: columns table, row, column, value and, if wanted, paper, half_width, seeds, profile, reason.
            A reason says why our number must not be held against the paper's ("other model", ...).
        published: as `load_published` returns it.
        profile: profile of every row of `ours` that has none of its own.
    Statuses: match (within the tolerance), close (within twice), differs, not run, not comparable (reason).
    A number of the quick profile is never called a match. Raises InputError for a key that the paper lacks.
    """
    ours = _completed(ours, published, profile)
    keys = [k for k in KEYS if k in ours]
    known = set(map(tuple, published[keys].itertuples(index=False)))
    orphans = [key for key in map(tuple, ours[keys].itertuples(index=False)) if key not in known]
    if orphans:
        hint = nearest(" / ".join(orphans[0]), [" / ".join(k) for k in known])
        raise InputError("row", f"the paper has no {' / '.join(orphans[0])!r}", hint)
    if ours.duplicated(keys).any():
        raise InputError("row", "the same row and column twice", "average over seeds first")
    joined = published.merge(
        ours.rename(columns={"value": "ours", "half_width": "ours_half_width"}), on=keys, how="left"
    )
    joined["status"] = [_status(row) for row in joined.to_dict("records")]
    rank = joined["status"].map(lambda s: ORDER.index(s.partition(" (")[0]))
    joined = joined.assign(rank=rank).sort_values("rank", kind="stable").drop(columns="rank")
    shown = [
        *KEYS,
        "value",
        "half_width",
        "ours",
        "ours_half_width",
        "seeds",
        "unit",
        "tolerance",
        "status",
        "profile",
        "note",
        "source",
    ]
    return joined[shown].reset_index(drop=True)


def _completed(ours: pd.DataFrame, published: pd.DataFrame, profile: str | None) -> pd.DataFrame:
    missing = [k for k in (*KEYS[1:], "value") if k not in ours]
    if missing:
        raise InputError("ours", f"column {missing[0]!r} is missing", "give table, row, column and value")
    plain = {"half_width": float("nan"), "seeds": float("nan"), "reason": "", "profile": profile or ""}
    ours = ours.assign(**{name: value for name, value in plain.items() if name not in ours})
    if "paper" not in ours and published["paper"].nunique() > 1:
        raise InputError("ours", "column 'paper' is missing", "name the paper of every row")
    kept = [k for k in KEYS if k in ours]
    return ours[[*kept, "value", "half_width", "seeds", "reason", "profile"]]


def _status(row: dict) -> str:
    value, ours = row["value"], row["ours"]
    reason = row["reason"] if isinstance(row["reason"], str) else ""
    if pd.isna(ours):
        return f"not run ({reason})" if reason else "not run"
    if pd.isna(value):
        return f"not comparable ({UNAVAILABLE}{'; ' * bool(reason)}{reason})"
    if reason:
        return f"not comparable ({reason})"
    if row["profile"] == "quick":
        return "not comparable (quick profile)"
    gap = ours - value if row["note"].startswith("at most") else abs(ours - value)
    tolerance = row["tolerance"]
    return "match" if gap <= tolerance else "close" if gap <= 2 * tolerance else "differs"


def summary(compared: pd.DataFrame) -> str:
    """Statuses counted, in one line: `3 differs, 2 match of 40`."""
    counts = compared["status"].str.partition(" (")[0].value_counts()
    return ", ".join(f"{counts[s]} {s}" for s in ORDER if s in counts) + f" of {len(compared)}"
