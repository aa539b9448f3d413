"""Chapter 15 beside the SQuAD part of PACZero's Table 1 and of DP-AggZO's Table 2, from which its baselines are quoted.

Our rows under the papers' keys, statuses, and relations. Knows the published tables and the chapter's results. No
number of ours may be called a match: other model and questions.
"""

import numpy as np
import pandas as pd

from paclab.chapters import rows
from paclab.chapters.consensus_views import tau_for
from paclab.chapters.qa_table import ROWS, Results
from paclab.notebook import tables

MU_PUBLISHED = 1e-3

COLUMN = "SQuAD 1.3B"
ELSEWHERE = {"6.7B": "needs the hub and a GPU", "zpl-67b": "needs the hub and a GPU"}
TABLES = ("Table 1", "Controls", "Claims", "Appendix squad-nonpriv")
BAO = {"ce-mezo": "non-private / MeZO", "ce-dpzero-2": "eps 2 / DPZO", "ce-aggzo-2": "eps 2 / AggZO K=16",
       "ce-dpzero-6": "eps 6 / DPZO", "ce-aggzo-6": "eps 6 / AggZO K=16"}  # rows of Bao et al.'s Table 2 (full)
BAO_ELSEWHERE = {"6.7B": "needs the hub and a GPU", "AdamW": "backpropagation: another optimiser",
                 "K=64": "K = 1 and 16 here", "non-private / AggZO": "no such row here"}


def our_rows(r: Results) -> pd.DataFrame:
    """Our numbers under the paper's keys, in per cent of F1, each with the reason why it cannot be held against it."""
    reason = f"0.9 M model, templated passages, {r.plan.steps} steps: not OPT-1.3B on SQuAD"
    lines: list[dict] = []

    def add(table: str, row: str, column: str, values: list[np.ndarray], source: str = "paczero",
            radius: float | None = None) -> None:
        value = rows.interval(values)
        why = reason if radius in (None, MU_PUBLISHED) else f"{reason}; µ = {radius:g}, not {MU_PUBLISHED:g}"
        lines.append({"paper": source, "table": table, "row": row, "column": column, "value": 100 * value.mean,
                      "half_width": 100 * value.shown, "seeds": len(values), "reason": why})

    published = set(tables.load_published("paczero")["row"])
    for (track, key), found in r.scores.items():
        name = f"{'FT' if track == 'ft' else 'LoRA'} / {ROWS[key].published}"
        if ROWS[key].published and name in published:
            add("Table 1", name, COLUMN, [s.f1 for s in found], radius=r.cells[track, key][0].config.mu)
        if track == "ft" and key in BAO:
            add("Table 2", BAO[key], COLUMN, [s.f1 for s in found], "dp-aggzo")
    add("Table 2", "zero-shot / no training", COLUMN, [z.f1 for z in r.zero], "dp-aggzo")
    add("Controls", "zero-shot", COLUMN, [z.f1 for z in r.zero])
    if ("lora", "f1-mezo") in r.scores:
        add("Appendix squad-nonpriv", "LoRA 1.3B", "F1", [s.f1 for s in r.scores["lora", "f1-mezo"]])
    for track, name in (("ft", "FT"), ("lora", "LoRA")):
        if (track, "f1-zpl-coin") in r.cells:
            f = r.free(track, "f1-zpl-coin")
            lines.append({"paper": "paczero", "table": "Claims", "row": f"unanimity f, SQuAD {name}",
                          "column": "1.3B and 6.7B", "value": 100 * f.mean(), "half_width": float("nan"),
                          "seeds": len(f), "reason": f"{reason}; agreements made by ties included"})
    return pd.DataFrame(lines)


def beside_the_paper(ours: pd.DataFrame, profile: str) -> pd.DataFrame:
    """The papers' SQuAD rows with ours and the status, failing rows first."""
    shown = []
    for source, wanted, why in (("paczero", TABLES, ELSEWHERE), ("dp-aggzo", ("Table 2",), BAO_ELSEWHERE)):
        published = tables.load_published(source)
        here = published["table"].isin(wanted)
        here &= (published["table"] + published["row"] + published["column"]).str.contains("SQuAD|squad")
        found = rows.beside(ours[ours["paper"] == source], published[here], profile, why)
        found.insert(0, "paper", source)
        shown.append(found)
    return pd.concat(shown, ignore_index=True)


def published_tau() -> pd.DataFrame:
    """The paper's f by task with the tau that explains it at M = 128, and the signal per record that tau means."""
    frame, lines = tables.load_published("paczero"), []
    for row in frame[frame["row"].str.startswith("unanimity f")].to_dict("records"):
        low, mid, high = (tau_for((row["value"] + k * row["half_width"]) / 100, 128) for k in (-1, 0, 1))
        lines.append({"task": row["row"].removeprefix("unanimity f, "), "f, %": row["value"], "± f": row["half_width"],
                      "tau": mid, "tau low": low, "tau high": high, "signal per record": ((mid**2 - 1) / 1000) ** 0.5,
                      "status": "published f; tau by the law [our reading]"})
    return pd.DataFrame(lines)


def relations(r: Results) -> pd.DataFrame:
    """What the paper's SQuAD numbers say about each other, and whether the same holds here."""
    frame = tables.load_published("paczero")

    def published(row: str) -> float:
        hit = frame[(frame["column"] == COLUMN) & (frame["row"] == row)]["value"].dropna()
        return float(hit.iloc[0]) if len(hit) else float("nan")

    found, zero = [], published("zero-shot")
    claims = [("PACZero-ZPL on F1 is ahead of zero-shot", published("FT / I=0 / PACZero-ZPL") - zero, "f1-zpl-coin"),
              ("MeZO on cross-entropy is ahead of zero-shot", published("FT / non-private / MeZO") - zero, "ce-mezo"),
              ("PACZero-ZPL on cross-entropy is ahead of zero-shot", float("nan"), "ce-zpl-coin")]
    for claim, paper, key in claims:
        if ("ft", key) in r.scores:
            found.append(rows.Relation(claim, paper, r.gain("ft", key)).line(len(r.scores["ft", key])))
    pairs = [("MeZO on cross-entropy is ahead of PACZero-ZPL on F1",
              published("FT / non-private / MeZO") - published("FT / I=0 / PACZero-ZPL"), "f1-zpl-coin", "ce-mezo"),
             ("trained by ZPL, cross-entropy is ahead of F1", float("nan"), "f1-zpl-coin", "ce-zpl-coin")]
    for claim, paper, key, other in pairs:
        if {("ft", key), ("ft", other)} <= set(r.scores):
            found.append(rows.Relation(claim, paper, r.behind("ft", key, other)).line(len(r.scores["ft", key])))
    return pd.DataFrame(found)
