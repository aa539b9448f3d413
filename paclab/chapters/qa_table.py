"""Rows, settings and arithmetic of chapter 15: the question-answering part of PACZero's Table 1, two objectives.

Knows finished study-mode cells of the tasks `qa` (minus F1 of the greedy answer, as PACZero trains) and `qa-ce`
(cross-entropy of the gold answer, as the baselines train), and scores every trained model by both. F1 is a share in
[0, 1] here and per cent in tables; cross-entropy is in nats a token.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from paclab import finetune, tasks
from paclab.chapters.qa_hardness import ANSWER_TOKENS
from paclab.chapters.rows import Interval, dp_config, equal_steps, interval
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.finetune import Config
from paclab.notebook.book import Chapter, resolve
from paclab.releases.dp import EXPECTED_BATCH
from paclab.zo import rules, transcript

HALF, RECORD, NOBODY = "which half", "whether one record takes part", "nobody"
# learning rates on answers, found by trying a few on the embedded model: (objective, real numbers or bits, track)
RATES = {("qa", "bits", "ft"): 3e-3, ("qa-ce", "bits", "ft"): 6e-3, ("qa", "bits", "lora"): 3e-2,
         ("qa-ce", "bits", "lora"): 3e-2, ("qa", "real", "ft"): 3e-3, ("qa-ce", "real", "ft"): 1e-3,
         ("qa", "real", "lora"): 3e-2, ("qa-ce", "real", "lora"): 1e-2}


class Row(NamedTuple):
    """One line of the table: objective, method and what it may spend."""

    key: str
    name: str
    task: str  # qa: F1 as published; qa-ce: cross-entropy of the answer
    method: str
    total: float | None = None  # nats in all
    epsilon: float | None = None
    k: int = 1
    on_disagreement: str = "coin"
    mu: float | None = None  # None: the plan's for the objective
    published: str = ""  # row of the paper's table 1, without its track

    @property
    def protects(self) -> str:
        """The protected unit."""
        return HALF if self.method.startswith("paczero") else RECORD if self.epsilon else NOBODY


def _rows() -> list[Row]:
    made = []
    for task, kind, name in (("qa", "f1", "F1"), ("qa-ce", "ce", "CE")):
        paper = task == "qa"
        made += [Row(f"{kind}-mezo", f"{name}: MeZO (pool mean)", task, "mezo",
                     published="" if paper else "non-private / MeZO"),
                 Row(f"{kind}-sign", f"{name}: sign of pool mean", task, "sign")]
        made += [Row(f"{kind}-mi-{total}", f"{name}: PACZero-MI, {total} nats", task, "paczero-mi", total,
                     published=f"MI {total} / PACZero-MI" if paper else "") for total in (0.33, 0.68)]
        made += [Row(f"{kind}-zpl-coin", f"{name}: PACZero-ZPL, coin", task, "paczero-zpl",
                     published="I=0 / PACZero-ZPL" if paper else ""),
                 Row(f"{kind}-zpl-skip", f"{name}: PACZero-ZPL, skip", task, "paczero-zpl", on_disagreement="skip")]
    made.append(Row("f1-zpl-published-mu", "F1: PACZero-ZPL, coin, µ as published", "qa", "paczero-zpl", mu=1e-3))
    for epsilon, nats in ((2.0, 0.33), (6.0, 0.68)):
        made += [Row(f"ce-dpzero-{epsilon:g}", f"CE: DPZero, ε = {epsilon:g}", "qa-ce", "dpzero", epsilon=epsilon,
                     published=f"eps {epsilon:g} (MI {nats}) / DPZero K=1"),
                 Row(f"ce-aggzo-{epsilon:g}", f"CE: DP-AggZO, K = 16, ε = {epsilon:g}", "qa-ce", "dp-aggzo",
                     epsilon=epsilon, k=16, published=f"eps {epsilon:g} (MI {nats}) / DP-AggZO K=16")]
    return made


ROWS = {row.key: row for row in _rows()}


class Plan(NamedTuple):
    """What a profile runs: row keys by track, seeds, sizes."""

    rows: dict[str, list[str]]
    seeds: list[int]
    few: int  # seeds of the LoRA track
    steps: int
    pool: int
    held_out: int
    mu_f1: float
    model: str

    def seeds_of(self, track: str) -> list[int]:
        """The seeds of a track's rows."""
        return self.seeds if track == "ft" else self.seeds[: self.few]

    def runs(self) -> list[tuple[int, str, str]]:
        """(seed, track, row key) of every training run, seeds outermost."""
        return [(s, t, key) for s in self.seeds for t, keys in self.rows.items() if s in self.seeds_of(t)
                for key in keys]

    def left_out(self, whole: "Plan") -> str:
        """What this plan leaves out of the whole table, in one sentence."""
        gone = [f"{ROWS[key].name} ({t})" for t, keys in whole.rows.items() for key in keys
                if key not in self.rows.get(t, [])]
        parts = [f"rows {'; '.join(gone)}"] * bool(gone)
        if len(self.seeds) < len(whole.seeds):
            parts.append(f"{len(whole.seeds) - len(self.seeds)} of {len(whole.seeds)} seeds")
        return f"Left out here, present in the desk profile: {'. Also '.join(parts)}." if parts else "Nothing left out."


def plan_of(*, rows: list[str], lora_rows: list[str], table_tracks: list[str], seed: int, seeds: int, few_seeds: int,
            steps: int, pool: int, held_out: int, mu_f1: float, model: str, **_: Any) -> Plan:
    """The plan that the chapter's parameters ask for; raises InputError when a row it compares with is missing."""
    for key in ("f1-zpl-coin", "ce-zpl-coin"):
        if key not in rows:
            raise InputError("rows", f"lack {key}, one of the two rows that this chapter compares", "add it")
    tracks = {"ft": rows} | ({"lora": lora_rows} if "lora" in table_tracks else {})
    return Plan(tracks, [seed + i for i in range(seeds)], min(few_seeds, seeds), steps, pool, held_out, mu_f1, model)


def desk_plan(chapter: Chapter) -> Plan:
    """The plan of the desk profile: every row."""
    return plan_of(**resolve(chapter, {"profile": "desk"})[1])


def config(plan: Plan, seed: int, track: str, key: str) -> Config:
    """Settings of one run."""
    row = ROWS[key]
    mu = row.mu or (plan.mu_f1 if row.task == "qa" else 1e-3)
    shared = {"task": row.task, "pool": plan.pool, "seed": seed, "model": plan.model, "dev": 50,
              "test": plan.held_out, "mu": mu, "max_new_tokens": ANSWER_TOKENS if row.task == "qa" else None}
    if row.epsilon:  # as many forward passes as a row that scores the whole pool at every step
        steps = equal_steps(plan.steps * plan.pool / EXPECTED_BATCH, row.k)
        return dp_config(row.method, row.epsilon, k=row.k, track=track, steps=steps, **shared)
    lr = RATES[row.task, "real" if row.method == "mezo" else "bits", track]
    return Config(method=row.method, track=track, steps=plan.steps, lr=lr, mi=row.total, study=True,
                  candidates=126 if row.method == "paczero-zpl" else 128, on_disagreement=row.on_disagreement, **shared)


# ---------------------------------------------------------------- scoring by both measures


class Scores(NamedTuple):
    """One model on one seed's held-out questions: F1 [n] in [0, 1] and cross-entropy of the gold answer [n], nats."""

    f1: np.ndarray
    ce: np.ndarray


def _score(model, records: list[dict]) -> Scores:
    answers = tasks.objective("qa", model, records, max_new_tokens=ANSWER_TOKENS)
    return Scores(answers.outcome().score, tasks.objective("qa-ce", model, records).outcome().loss)


def scores(cell: Cell) -> Scores:
    """Both measures of a trained model, rebuilt from its public transcript; kept beside the run."""
    kept = cell.folder / "both_scores.npy"
    if kept.exists():
        return Scores(*np.load(kept))
    base = finetune.base(cell.config, cell.run["keys"], "cpu")
    rule = rules.open_rule(cell.config, cell.run.get("release", {}))
    transcript.replay(base.weights, base.directions, finetune.transcript_lines(cell.folder), rule)
    if base.weights.digest() != cell.run["weights_sha256"]:
        raise InputError("cells", f"{cell.folder.name} does not rebuild its weights", "delete that folder")
    base.weights.restore()
    made = _score(base.model, _held_out(cell.config))
    np.save(kept, np.stack(made))
    return made


def zero_shot(config: Config) -> Scores:
    """Both measures of the untrained model on the questions on which the runs of this seed are scored."""
    from paclab import models

    return _score(models.load(config.model, "cpu"), _held_out(config))


def _held_out(config: Config) -> list[dict]:
    from paclab.sources import load_splits

    return load_splits("qa", config.source, seed=config.seed, pool=config.pool, dev=config.dev, test=config.test).test


# ---------------------------------------------------------------- the table


class Results(NamedTuple):
    """Everything the chapter's table shows: cells and scores by (track, row key) in seed order; zero-shot by seed."""

    plan: Plan
    cells: dict[tuple[str, str], list[Cell]]
    scores: dict[tuple[str, str], list[Scores]]
    zero: list[Scores]

    def gain(self, track: str, key: str, what: str = "f1") -> Interval:
        """F1 (a share) or cross-entropy (nats) over zero-shot, paired on the same questions."""
        mine = self.scores[track, key]
        return interval(getattr(s, what) - getattr(z, what) for s, z in zip(mine, self.zero[: len(mine)], strict=True))

    def behind(self, track: str, key: str, other: str) -> Interval:
        """F1 of row `other` minus that of row `key`, a share, paired."""
        return interval(b.f1 - a.f1 for a, b in zip(self.scores[track, key], self.scores[track, other], strict=True))

    def free(self, track: str, key: str) -> np.ndarray:
        """f of each seed (NaN where no halves vote)."""
        return np.array([np.mean([b["free"] for i in c.infos for b in i["bits"]]) if "bits" in c.infos[0] else np.nan
                         for c in self.cells[track, key]])


def results(plan: Plan, cells: list[Cell]) -> Results:
    """Group cells (in the order of `plan.runs()`) and score every model, trained and not, by both measures."""
    import torch

    grouped: dict[tuple[str, str], list[Cell]] = {}
    for (_, track, key), cell in zip(plan.runs(), cells, strict=True):
        grouped.setdefault((track, key), []).append(cell)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the runs: the same last digits on any machine
    try:
        both = {name: [scores(c) for c in some] for name, some in grouped.items()}
        zero = [zero_shot(config(plan, seed, "ft", "ce-zpl-coin")) for seed in plan.seeds]
    finally:
        torch.set_num_threads(threads)
    return Results(plan, grouped, both, zero)


def table(r: Results) -> pd.DataFrame:
    """Zero-shot, then one line per track and row: both measures with paired gains, f, promises and charges."""
    f1, ce = interval(z.f1 for z in r.zero), interval(z.ce for z in r.zero)
    lines = [{"track": "-", "row": "zero-shot", "trained on": "-", "seeds": len(r.zero), "F1, %": 100 * f1.mean,
              "± F1": 100 * f1.shown, "cross-entropy": ce.mean, "protects": "no private data used"}]
    for (track, key), cells in r.cells.items():
        row, found = ROWS[key], interval(s.f1 for s in r.scores[track, key])
        up, down = r.gain(track, key), r.gain(track, key, "ce")
        spends = row.total is not None
        lines.append({"track": track, "row": row.name, "trained on": "F1" if row.task == "qa" else "CE",
                      "seeds": len(cells), "F1, %": 100 * found.mean, "± F1": 100 * found.shown,
                      "F1 over zero-shot, points": 100 * up.mean, "gain ± ": 100 * up.shown,
                      "cross-entropy": np.mean([s.ce.mean() for s in r.scores[track, key]]), "CE change": down.mean,
                      "CE change ±": down.shown, "f": np.mean(r.free(track, key)),
                      "promised": f"{row.total:g} nats" if spends else f"ε = {row.epsilon:g}" if row.epsilon
                      else "0 nats" if row.protects == HALF else "nothing",
                      "charged, nats": np.mean([c.infos[-1]["charged"] for c in cells]) if row.protects == HALF
                      else np.nan, "protects": row.protects})
    return pd.DataFrame(lines)
