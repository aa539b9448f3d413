"""Rows, settings and arithmetic of chapter 13: the sentiment part of PACZero's Table 1, with controls and attacks.

Knows finished study-mode cells. Draws nothing (`sentiment_figures`), compares with no paper (`sentiment_paper`) and
trains nothing itself (`paclab.experiments`). Accuracies are shares in [0, 1] here and per cent in the tables;
information is in nats.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.finetune import Config
from paclab.notebook.widgets import clock
from paclab.privacy import consensus, posterior, risk
from paclab.releases.paczero import unpack

PAPER_STEPS = 1000  # the paper's T for full fine-tuning: its rate per step is budget / 1000
HALF, NOBODY = "which half", "nobody"


class Row(NamedTuple):
    """One line of the table: a method and what it may spend."""

    key: str
    name: str
    method: str = ""  # empty: not a training run
    total: float | None = None  # the paper's budget in nats
    per_step: bool = False  # spend it at the paper's rate per step instead of in all
    on_disagreement: str = "coin"
    published: str = ""  # row of the paper's table 1, without its track
    control: str = ""  # row of the paper's controls, full fine-tuning only

    def budget(self, steps: int) -> float | None:
        """Nats that a run of `steps` steps may spend; None for methods without a budget."""
        return self.total * steps / PAPER_STEPS if self.per_step else self.total

    @property
    def private(self) -> bool:
        """Whether the secret half takes part at all."""
        return self.method.startswith("paczero")


def _budget_rows() -> list[Row]:
    rows = []
    for kind, name in (("mi", "PACZero-MI"), ("rr", "PACZero-RR")):
        for total in (0.33, 0.68):
            published = f"MI {total} / PACZero-MI" if kind == "mi" else ""
            control = f"PACZero-RR MI {total}" if kind == "rr" else ""
            rows += [Row(f"{kind}-{total}", f"{name}, {total} nats in all", f"paczero-{kind}", total,
                         published=published, control=control),
                     Row(f"{kind}-{total}-rate", f"{name}, {total}/1000 nats per step", f"paczero-{kind}", total, True)]
    return rows


ROWS = {row.key: row for row in [
    Row("zero-shot", "zero-shot", control="zero-shot"),
    Row("majority-class", "majority class"),
    Row("balanced", "zero-shot, answers balanced on the pool"),
    Row("mezo", "MeZO (pool mean)", "mezo", published="non-private / MeZO"),
    Row("sign", "sign of pool mean", "sign"),
    *_budget_rows(),
    Row("zpl-coin", "PACZero-ZPL, coin", "paczero-zpl", published="I=0 / PACZero-ZPL"),
    Row("zpl-skip", "PACZero-ZPL, skip", "paczero-zpl", on_disagreement="skip", control="PACZero-ZPL skip"),
    Row("zpl-majority", "PACZero-ZPL, majority", "paczero-zpl", on_disagreement="majority",
        control="PACZero-ZPL majority"),
]}


class Plan(NamedTuple):
    """What a profile runs: rows by key, tracks, seeds, sizes."""

    rows: list[str]
    tracks: list[str]
    seeds: list[int]
    steps: int
    pool: int = 1000
    test: int | None = None  # held-out sentences; None: all that remain
    dev: int = 500
    eval_every: int = 10
    model: str = "embedded"

    def runs(self) -> list[tuple[int, str, str]]:
        """(seed, track, row key) of every training run, seeds outermost: an interrupted run holds whole seeds."""
        return [(s, t, key) for s in self.seeds for t in self.tracks for key in self.rows if ROWS[key].method]

    def left_out(self, rows: list[str], tracks: list[str], seeds: int) -> str:
        """What this plan leaves out of the whole table, in one sentence."""
        gone = [ROWS[key].name for key in rows if key not in self.rows]
        missing = [t for t in tracks if t not in self.tracks]
        parts = [f"rows {'; '.join(gone)}"] * bool(gone) + [f"track {', '.join(missing)}"] * bool(missing)
        if len(self.seeds) < seeds:
            parts.append(f"{seeds - len(self.seeds)} of {seeds} seeds")
        return f"Left out here, present in the desk profile: {'. Also '.join(parts)}." if parts else "Nothing left out."


def plan_of(*, rows: list[str], tracks: list[str], seeds: int, steps: int, pool: int, held_out: int, dev: int,
            model: str, seed: int) -> Plan:
    """The plan that the chapter's parameters ask for; raises InputError when the row it is about is missing."""
    if "zpl-coin" not in rows:
        raise InputError("rows", "lack zpl-coin, the row that this chapter is about", "add it")
    return Plan(rows, tracks, [seed + i for i in range(seeds)], steps, pool, held_out or None,
                dev=dev, eval_every=max(1, steps // 8), model=model)


def config(plan: Plan, seed: int, track: str, key: str) -> Config:
    """Settings of one run; learning rates are the method's defaults."""
    row = ROWS[key]
    return Config(task="sentiment", method=row.method, steps=plan.steps, pool=plan.pool,
                  candidates=126 if row.method == "paczero-zpl" else 128, mi=row.budget(plan.steps), track=track,
                  on_disagreement=row.on_disagreement, seed=seed, model=plan.model, dev=plan.dev, test=plan.test,
                  eval_every=plan.eval_every, study=True)


def watcher(label: str) -> Callable[[int, int], None]:
    """`watch(done, total)` for `run_cells`: sparse lines with the time left."""
    start, state = time.monotonic(), {"first": None, "said": -1.0}

    def watch(done: int, total: int) -> None:
        now = time.monotonic()
        if state["first"] is None:
            state["first"] = done
            print(f"{label}: {done} of {total} runs are on disk already" if done else f"{label}: {total} runs to do")
        elif done == total or now - state["said"] > 30:
            left = (now - start) / max(done - state["first"], 1) * (total - done)
            print(f"{label}: {done}/{total}, {clock(now - start)} so far, about {clock(left)} left", flush=True)
            state["said"] = now

    return watch


# ---------------------------------------------------------------- reference rows and the attack


class Reference(NamedTuple):
    """The untrained model on one seed's held-out sentences: loss [n], score [n], share of the larger class."""

    loss: np.ndarray
    score: np.ndarray
    majority: float
    labels: np.ndarray  # [n], 0 or 1
    balanced: np.ndarray  # score [n] once the threshold is the pool's median margin

    def positive(self, score: np.ndarray) -> float:
        """Share of the sentences that were answered "positive", read back from labels and correctness."""
        return float(np.where(score == 1, self.labels, 1 - self.labels).mean())


def zero_shot(plan: Plan, seed: int) -> Reference:
    """Score the untrained model on exactly the sentences on which the runs of this seed are scored.

    `balanced` moves one number, the threshold between the two answers, to the pool's median: what a run gains
    beyond it is more than a corrected leaning towards one answer.
    """
    import torch

    from paclab import models, tasks
    from paclab.sources import load_splits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the runs: the same last digits on any machine
    try:
        splits = load_splits("sentiment", "embedded", seed=seed, pool=plan.pool, dev=plan.dev, test=plan.test)
        model = models.load(plan.model, "cpu")
        held_out = tasks.objective("sentiment", model, splits.test)
        outcome = held_out.outcome()
        pool, test = (np.asarray(s[:, 1] - s[:, 0])
                      for s in (tasks.objective("sentiment", model, splits.pool).scores(), held_out.scores()))
    finally:
        torch.set_num_threads(threads)
    labels = np.array([int(record["label"]) for record in splits.test])
    return Reference(outcome.loss, outcome.score, float(max(labels.mean(), 1 - labels.mean())), labels,
                     balanced(pool, test, labels))


def balanced(pool: np.ndarray, test: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Correctness [n] of answering 1 where the test margin exceeds the pool's median margin."""
    return ((test > np.median(pool)) == (labels == 1)).astype(np.float64)


class Attack(NamedTuple):
    """The strongest known-pool attacker on one run, after every step."""

    weights: np.ndarray  # [steps + 1, M] posterior over candidate halves
    success: np.ndarray  # [steps + 1] mean over records of the best membership guess
    exposed: float  # the most exposed record at the end


def attack(cell: Cell) -> Attack:
    """Bayes' posterior of an attacker who knows pool, halves, every vote and every release of this run.

    Any other attacker knows less. Releases that do not depend on the secret leave the posterior uniform.
    """
    c = cell.config
    stream = np.random.Generator(np.random.Philox(cell.run["keys"]["subsets"]))
    membership = consensus.complementary_halves(c.pool, c.candidates, stream)
    belief = posterior.uniform(c.candidates)
    weights, success = [posterior.weights(belief)], [0.5]
    for info in cell.infos:
        for bit in info.get("bits", ()):
            if bit["channel"]:
                votes = unpack(bit["votes"], c.candidates)
                rule = (posterior.gaussian_log_likelihood if bit["channel"] == "gaussian"
                        else posterior.rr_log_likelihood)
                belief = posterior.update(belief, rule(votes, bit["seen"], bit["parameter"]))
        weights.append(posterior.weights(belief))
        success.append(float(posterior.record_success(belief, membership).mean()))
    return Attack(np.array(weights), np.array(success), float(posterior.record_success(belief, membership).max()))


# ---------------------------------------------------------------- intervals


class Interval(NamedTuple):
    """Mean over seeds with 95 % half-widths: over seeds (Student's t; NaN below two seeds), over sentences."""

    mean: float
    seeds: float
    sentences: float

    @property
    def shown(self) -> float:
        """The half-width to draw: over seeds where there are two or more, else over sentences."""
        return self.seeds if self.seeds == self.seeds else self.sentences


def interval(per_record: Iterable[np.ndarray]) -> Interval:
    """Of per-record values, one array a seed (for a paired comparison: per-record differences)."""
    arrays = [np.asarray(a, dtype=np.float64) for a in per_record]
    means = np.array([a.mean() for a in arrays])
    sentences = 1.96 * float(np.sqrt(np.mean([a.var(ddof=1) / len(a) for a in arrays])))
    n = len(means)
    seeds = float(stats.t.ppf(0.975, n - 1) * means.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Interval(float(means.mean()), seeds, sentences)


# ---------------------------------------------------------------- the table


class Results(NamedTuple):
    """Everything the chapter shows: cells by (track, row key) in seed order, references in seed order."""

    plan: Plan
    cells: dict[tuple[str, str], list[Cell]]
    zero: list[Reference]
    attacks: dict[tuple[str, str], list[Attack]]

    def gain(self, track: str, key: str) -> Interval:
        """Accuracy over zero-shot on the same sentences, a share."""
        return interval(c.score - z.score for c, z in zip(self.cells[track, key], self.zero, strict=True))

    def behind(self, track: str, key: str, other: str) -> Interval:
        """Accuracy of row `other` minus that of row `key`, on the same sentences, a share."""
        return interval(b.score - a.score for a, b in zip(self.cells[track, key], self.cells[track, other],
                                                          strict=True))

    def free(self, track: str, key: str) -> np.ndarray:
        """Share of free steps of each seed (NaN where there are no votes)."""
        return np.array([np.mean([b["free"] for i in c.infos for b in i["bits"]]) if "bits" in c.infos[0]
                         else np.nan for c in self.cells[track, key]])

    def meter(self, track: str, key: str, name: str) -> np.ndarray:
        """A ledger meter of each seed at the end: charged or realised, nats (0 where nothing is spent)."""
        return np.array([c.infos[-1].get(name, 0.0) for c in self.cells[track, key]])


def results(plan: Plan, cells: list[Cell]) -> Results:
    """Group cells (in the order of `plan.runs()`), score the untrained model, and run the attack."""
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for (_, track, key), cell in zip(plan.runs(), cells, strict=True):
        grouped.setdefault((track, key), []).append(cell)
    attacks = {name: [attack(c) for c in some] for name, some in grouped.items() if ROWS[name[1]].private}
    return Results(plan, grouped, [zero_shot(plan, seed) for seed in plan.seeds], attacks)


def table(r: Results) -> pd.DataFrame:
    """The chapter's table: one line per track and row; accuracies and gains in per cent and points."""
    lines = []
    for track in r.plan.tracks:
        for key in r.plan.rows:
            if ROWS[key].method:
                lines.append(_line(r, track, key))
            elif track == r.plan.tracks[0]:
                lines.append(_reference_line(r, key))
    return pd.DataFrame(lines)


def _reference_line(r: Results, key: str) -> dict:
    line = {"track": "-", "method": ROWS[key].name, "seeds": len(r.zero), "protects": "no private data used"}
    if key == "majority-class":
        return line | {"accuracy, %": 100 * np.mean([z.majority for z in r.zero])}
    scores = [z.score if key == "zero-shot" else z.balanced for z in r.zero]
    value = interval(scores)
    line |= {"accuracy, %": 100 * value.mean, "± seeds": 100 * value.seeds, "± sentences": 100 * value.sentences,
             "says positive, %": 100 * np.mean([z.positive(s) for z, s in zip(r.zero, scores, strict=True)])}
    if key == "zero-shot":
        return line | {"held-out loss": np.mean([z.loss.mean() for z in r.zero])}
    gain = interval(z.balanced - z.score for z in r.zero)
    return line | {"over zero-shot, points": 100 * gain.mean, "gain ± seeds": 100 * gain.seeds,
                   "gain ± sentences": 100 * gain.sentences, "protects": NOBODY}


def _line(r: Results, track: str, key: str) -> dict:
    row, cells = ROWS[key], r.cells[track, key]
    accuracy, gain = interval(c.score for c in cells), r.gain(track, key)
    promised = (row.budget(r.plan.steps) or 0.0) if row.private else np.nan
    attacks = r.attacks.get((track, key), [])
    return {"track": track, "method": row.name, "seeds": len(cells), "accuracy, %": 100 * accuracy.mean,
            "± seeds": 100 * accuracy.seeds, "± sentences": 100 * accuracy.sentences,
            "over zero-shot, points": 100 * gain.mean, "gain ± seeds": 100 * gain.seeds,
            "gain ± sentences": 100 * gain.sentences, "held-out loss": np.mean([c.loss.mean() for c in cells]),
            "says positive, %": 100 * np.mean([z.positive(c.score) for z, c in zip(r.zero, cells, strict=True)]),
            "f": np.mean(r.free(track, key)), "promised, nats": promised,
            "charged, nats": np.mean(r.meter(track, key, "charged")) if row.private else np.nan,
            "learnt, nats": np.mean(r.meter(track, key, "realised")) if row.private else np.nan,
            "MIA bound": risk.success_from_mi(promised) if row.private else np.nan,
            "best attack": np.mean([a.success[-1] for a in attacks]) if attacks else np.nan,
            "most exposed": np.mean([a.exposed for a in attacks]) if attacks else np.nan,
            "protects": HALF if row.private else NOBODY}


def vacuity(r: Results, track: str) -> pd.DataFrame:
    """Every row with I(S*; releases) and what it says, and does not say, about membership in the pool."""
    lines = []
    for row in (ROWS[key] for key in r.plan.rows if ROWS[key].method):
        nats = row.budget(r.plan.steps) or 0.0
        lines.append({"method": row.name, "I(half; releases) at most, nats": nats,
                      "guess: was it in the half?": f"at most {risk.success_from_mi(nats):.4f}",
                      "guess: was it in the pool?": "no bound",
                      "released per step": "a real number" if row.method == "mezo" else "one bit",
                      "accuracy, %": 100 * np.mean([c.score.mean() for c in r.cells[track, row.key]])})
    return pd.DataFrame(lines)
