"""Chapter 13 beside PACZero's Table 1: our rows under the paper's keys, statuses, and relations between rows.

Knows the published table and the chapter's results. No number of ours may be called a match: model and text differ.
"""

import numpy as np
import pandas as pd

from paclab.chapters.rows import Interval, Relation, beside, interval
from paclab.chapters.sentiment_table import ROWS, Results
from paclab.notebook import tables

COLUMN = "SST-2 1.3B"
OTHER = "0.9 M model, rotten tomatoes, {steps} steps: not OPT-1.3B on SST-2"
ELSEWHERE = {"6.7B": "needs the hub and a GPU", "raw-mean": "one code comment, recipe unknown",
             "tuned per eps": "chapter 21"}


def our_rows(r: Results) -> pd.DataFrame:
    """Our numbers under the paper's keys and in its units, each with the reason why it cannot be held against it.

    A budget row stands for the paper's row of the same promise: the same nats in all, so far more per step.
    """
    lines: list[dict] = []

    def add(table: str, row: str, column: str, value: Interval | float) -> None:
        mean, half = (value.mean, value.shown) if isinstance(value, Interval) else (value, float("nan"))
        lines.append({"paper": "paczero", "table": table, "row": row, "column": column, "value": 100 * mean,
                      "half_width": 100 * half, "seeds": len(r.zero), "reason": OTHER.format(steps=r.plan.steps)})

    for track, key in r.cells:
        accuracy = interval(c.score for c in r.cells[track, key])
        if ROWS[key].published and not (track == "lora" and (key == "mezo" or ROWS[key].epsilon)):
            add("Table 1", f"{'FT' if track == 'ft' else 'LoRA'} / {ROWS[key].published}", COLUMN, accuracy)
        if ROWS[key].control and track == "ft":
            add("Controls", ROWS[key].control, COLUMN, accuracy)
        if (track, key) == ("ft", "mezo"):
            add("Controls", "MeZO on the public pool", COLUMN, accuracy)
    add("Controls", "zero-shot", COLUMN, interval(z.score for z in r.zero))
    add("Controls", "majority class", "SST-2", float(np.mean([z.majority for z in r.zero])))
    if {("ft", "mezo"), ("ft", "zpl-coin")} <= set(r.cells):
        add("Claims", "PACZero-ZPL FT behind MeZO", COLUMN, r.behind("ft", "zpl-coin", "mezo"))
    if ("ft", "zpl-coin") in r.cells:
        add("Claims", "unanimity f, SST-2", "1.3B and 6.7B", float(np.mean(r.free("ft", "zpl-coin"))))
    return pd.DataFrame(lines)


def beside_the_paper(ours: pd.DataFrame, profile: str) -> pd.DataFrame:
    """The paper's sentiment rows with ours and the status, failing rows first; the paper's value is `published`."""
    published = tables.load_published("paczero")
    here = published["table"].isin(["Table 1", "Controls", "Claims"])
    here &= ~(published["row"] + published["column"]).str.contains("SQuAD")
    return beside(ours, published[here], profile, ELSEWHERE)


def _published(track: str, row: str) -> float:
    frame = tables.load_published("paczero")
    name = row if row == "zero-shot" else f"{track} / {row}"
    hit = frame[(frame["column"] == COLUMN) & (frame["row"] == name)]["value"]
    return float(hit.iloc[0]) if len(hit) else float("nan")


def relations(r: Results, track: str) -> pd.DataFrame:
    """What the paper's numbers say about each other, and whether the same holds here: yes, no, or cannot tell."""
    name = {"ft": "FT", "lora": "LoRA"}[track]
    have = {key for t, key in r.cells if t == track}
    mezo, zpl = _published(name, "non-private / MeZO"), _published(name, "I=0 / PACZero-ZPL")
    found: list[Relation] = []
    for key, value in (("mezo", mezo), ("zpl-coin", zpl)):
        if key in have:
            found.append(Relation(f"{ROWS[key].name} is ahead of zero-shot", value - _published(name, "zero-shot"),
                                  r.gain(track, key)))
    if {"mezo", "zpl-coin"} <= have:
        found.append(Relation("ZPL is at most 3 points behind MeZO", mezo - zpl, r.behind(track, "zpl-coin", "mezo"),
                              3.0))
    for total in (0.33, 0.68):
        for key in (f"mi-{total}-rate", f"mi-{total}"):
            if {key, "zpl-coin"} <= have:
                paper = _published(name, f"MI {total} / PACZero-MI") - zpl
                found.append(Relation(f"{ROWS[key].name}: at most 1 point ahead of ZPL", paper,
                                      r.behind(track, "zpl-coin", key), 1.0))
    if {"zpl-skip", "zpl-coin"} <= have:
        found.append(Relation("ZPL coin is at most 0 points ahead of ZPL skip", float("nan"),
                              r.behind(track, "zpl-skip", "zpl-coin"), 0.0))
    for key in ("dpzero-2", "aggzo-2"):
        for other, name_of, theirs in (("zpl-coin", "ZPL coin", zpl), ("mezo", "MeZO on the pool", mezo)):
            if {key, other} <= have:
                found.append(Relation(f"{ROWS[key].name} is ahead of {name_of}",
                                      _published(name, ROWS[key].published) - theirs, r.behind(track, other, key)))
    return pd.DataFrame([{"track": track} | claim.line(len(r.zero)) for claim in found])
