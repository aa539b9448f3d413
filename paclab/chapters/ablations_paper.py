"""Chapter 14 beside PACZero's ablation tables: our rows under the paper's keys, and the published rows.

Knows the published tables and the chapter's results. No number of ours may be called a match: model and text differ.
"""

import math

import numpy as np
import pandas as pd

from paclab.chapters import ablations_results as read
from paclab.chapters import rows
from paclab.chapters.ablations import BASE_MI, PLATEAU, Plan, Variant, config
from paclab.chapters.ablations_results import Results
from paclab.notebook import tables

RECIPES = "Appendix hyper-parameters"
TABLES = (*PLATEAU.values(), "Appendix clip-ablation-67b", "Appendix rank-ablation", "Appendix zpl-lr-sweep",
          "Appendix ablation (mechanism decomposition)", "Appendix zpl-ft-ladder", "Appendix zpl-67b-ladder",
          "Appendix zpl-67b-ft-ladder", "Appendix zpl-67b-ft-multiseed", "Appendix k-ablation",
          "Appendix k-ablation-67b", RECIPES)
ELSEWHERE = {"67b": "needs OPT-6.7B and a GPU", "6.7B": "needs OPT-6.7B and a GPU", "SQuAD": "questions: chapter 15"}
RATES = "rates in units of the tuned one"
NOTES = {"rate": RATES, "clipped-rate": RATES, "clip": "FT, not LoRA 6.7B", "ladder": "T in units of the base T",
         "mechanism": "T in units of half the base T", "directions": "equal directions, not equal steps"}


def _reason(r: Results, v: Variant) -> str:
    steps = v.setting.get("steps", r.plan.steps)
    extra = f"; {NOTES[v.study]}" if v.study in NOTES else ""
    return f"0.9 M model, rotten tomatoes, {steps} steps: not OPT on SST-2{extra}"


def our_rows(r: Results) -> pd.DataFrame:
    """Our numbers under the paper's keys and in its units, each with the reason why it cannot be held against it."""
    lines: list[dict] = []

    def add(v: Variant, column: str, values: list[float], half: float = float("nan")) -> None:
        lines.append({"paper": "paczero", "table": v.key[0], "row": v.key[1], "column": column,
                      "value": float(np.mean(values)), "half_width": half, "seeds": len(values),
                      "reason": _reason(r, v)})

    for v in r.plan.variants():
        if v.key is None:
            continue
        cells = r.of(v)
        test = rows.interval(c.score for c in cells)
        add(v, "test", [100 * c.score.mean() for c in cells], 100 * test.shown)
        add(v, "dev", [100 * c.metrics[-1]["dev_score"] for c in cells])
        if v.study in ("plateau", "clip", "rank", "rate", "clipped-rate", "ladder"):
            add(v, "f", [100 * read.free_share(c) for c in cells])
        if v.study == "plateau":
            add(v, "actual MI", [c.infos[-1]["charged"] for c in cells])
    return pd.DataFrame([*lines, *_range(r), *recipes(r.plan)])


def recipes(plan: Plan) -> list[dict]:
    """The settings of our plateau rows beside those of the paper's headline and plateau runs; no clip is infinite."""
    lines = []
    for track, name in (("lora", "LoRA"), ("ft", "FT")):
        mine = [v for v in plan.variants() if (v.study, v.track) == ("plateau", track)]
        base, spending = ([v for v in mine if v.base], [v for v in mine if v.setting.get("mi") == BASE_MI])
        for kind, found in (("ZPL", base), ("MI", spending), ("plateau", spending)):
            if not found:
                continue
            c = config(plan, plan.seeds[0], found[0])
            values = {"learning rate": c.learning_rate(), "clip": math.inf if c.clip is None else c.clip, "T": c.steps,
                      "M": c.candidates}
            lines += [{"paper": "paczero", "table": RECIPES, "row": f"{name}, SST-2 1.3B, {kind}", "column": column,
                       "value": float(value), "half_width": math.nan, "seeds": len(plan.seeds_of("plateau")),
                       "reason": "the 0.9 M model's own recipe"} for column, value in values.items()]
    return lines


def _range(r: Results) -> list[dict]:
    """The published range over fifteen budgets, when all of them were run with full fine-tuning."""
    mine = [v for v in r.variants("plateau", "ft") if v.key]
    if len(mine) < 15:
        return []
    test = [100 * np.mean([c.score.mean() for c in r.of(v)]) for v in mine]
    f = [100 * np.mean([read.free_share(c) for c in r.of(v)]) for v in mine]
    keys = {"test, lowest": min(test), "test, highest": max(test), "f, lowest": min(f), "f, highest": max(f)}
    return [{"paper": "paczero", "table": PLATEAU["ft"], "row": "range over the 15 budgets", "column": column,
             "value": value, "half_width": float("nan"), "seeds": len(r.of(mine[0])), "reason": _reason(r, mine[0])}
            for column, value in keys.items()]


def beside_the_paper(ours: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Every row of the paper's ablation tables with ours and the status, failing rows first."""
    published = tables.load_published("paczero")
    return rows.beside(ours, published[published["table"].isin(TABLES)], profile, ELSEWHERE)


def summary(compared: pd.DataFrame) -> pd.DataFrame:
    """One line a table: rows, how many have a published number, how many we ran, and their statuses."""
    lines = []
    for name, part in compared.groupby("table", sort=False):
        known = pd.to_numeric(part["published"], errors="coerce").notna()
        lines.append({"table": name, "numbers": len(part), "published number known": int(known.sum()),
                      "run here": int(part["ours"].notna().sum()),
                      "statuses": "; ".join(sorted(set(part["status"].str.partition(" (")[0])))})
    return pd.DataFrame(lines)
