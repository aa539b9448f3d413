"""Rows of an experiment: what the chapters that train many runs share (13, 14, 15, 20, 21, 22).

    dp_config                settings of a differentially private run with its recipe (`releases.recipes`)
    equal_steps              steps that cost as many forward passes as a run of another K
    watcher                  progress lines for `run_cells`
    zero_shot, Reference     the untrained model on a seed's held-out sentences
    interval, gain, behind   means over seeds with 95 % half-widths, paired on the same sentences
    frame                    rows of finished cells -> one table, accuracies in per cent
    Relation                 a claim about a paired gap: yes, no, or cannot tell
    beside                   published rows with ours and the status, failing rows first

Knows finished study-mode cells. Draws nothing and trains nothing. Accuracies are shares in [0, 1] here and per cent in
tables.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from paclab.experiments import Cell
from paclab.finetune import Config
from paclab.notebook import tables
from paclab.notebook.widgets import clock
from paclab.releases.recipes import BETA_CLIP as BETA_CLIP
from paclab.releases.recipes import Recipe as Recipe
from paclab.releases.recipes import recipe as recipe

# ---------------------------------------------------------------- differentially private settings


def equal_steps(probes: float, k: int) -> int:
    """Steps of K directions over the expected batch that cost as much as `probes` of one direction over it.

    A step over a whole pool of N records costs N / 64 of them.
    """
    return max(1, round(probes / k))


def dp_config(method: str, epsilon: float, *, k: int = 1, track: str = "ft", **settings) -> Config:
    """Settings of a study-mode differentially private run with its recipe; anything given in `settings` wins."""
    lr, clip = recipe(method, track, k)
    return Config(**({"method": method, "epsilon": epsilon, "k": k, "track": track, "lr": lr, "clip": clip,
                      "study": True} | settings))


# ---------------------------------------------------------------- progress


def watcher(label: str) -> Callable[[int, int], None]:
    """`watch(done, total)` for `run_cells`: sparse lines with the time left; a count that falls begins a new round."""
    state = {"last": math.inf}

    def watch(done: int, total: int) -> None:
        now = time.monotonic()
        if done < state["last"]:
            state.update(first=done, start=now, said=-1.0)
            print(f"{label}: {done} of {total} runs are on disk already" if done else f"{label}: {total} runs to do")
        elif done == total or now - state["said"] > 30:
            spent = now - state["start"]
            left = spent / max(done - state["first"], 1) * (total - done)
            print(f"{label}: {done}/{total}, {clock(spent)} so far, about {clock(left)} left", flush=True)
            state["said"] = now
        state["last"] = done

    return watch


# ---------------------------------------------------------------- the untrained model


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


def zero_shot(config: Config) -> Reference:
    """Score the untrained sentiment model on exactly the sentences on which the runs of this seed are scored.

    `balanced` moves one number, the threshold between the two answers, to the pool's median: what a run gains
    beyond it is more than a corrected leaning towards one answer.
    """
    import torch

    from paclab import models, tasks
    from paclab.sources import load_splits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the runs: the same last digits on any machine
    try:
        splits = load_splits("sentiment", config.source, seed=config.seed, pool=config.pool, dev=config.dev,
                             test=config.test)
        model = models.load(config.model, "cpu")
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
    return Interval(float(means.mean()), half_width(means), sentences)


def half_width(values: Iterable[float]) -> float:
    """Student's 95 % half-width of the mean of one value a seed; NaN with one seed."""
    found = np.asarray(list(values), dtype=np.float64)
    n = len(found)
    return float(stats.t.ppf(0.975, n - 1) * found.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def gain(cells: Sequence[Cell], zero: Sequence[Reference]) -> Interval:
    """Accuracy over zero-shot on the same sentences, a share; one cell and one reference a seed, in one order."""
    return interval(c.score - z.score for c, z in zip(cells, zero, strict=True))


def behind(cells: Sequence[Cell], others: Sequence[Cell]) -> Interval:
    """Accuracy of `others` minus that of `cells`, seed by seed on the same sentences, a share."""
    return interval(b.score - a.score for a, b in zip(cells, others, strict=True))


# ---------------------------------------------------------------- tables


def line(cells: Sequence[Cell], zero: Sequence[Reference]) -> dict:
    """What one row learnt: accuracy, gain (both in per cent or points) and held-out loss, with half-widths."""
    accuracy, over = interval(c.score for c in cells), gain(cells, zero)
    return {"seeds": len(cells), "accuracy, %": 100 * accuracy.mean, "± seeds": 100 * accuracy.seeds,
            "± sentences": 100 * accuracy.sentences, "over zero-shot, points": 100 * over.mean,
            "gain ± seeds": 100 * over.seeds, "gain ± sentences": 100 * over.sentences,
            "held-out loss": float(np.mean([c.loss.mean() for c in cells]))}


def frame(named: Mapping[str, Sequence[Cell]], zero: Sequence[Reference]) -> pd.DataFrame:
    """One line per named row (one cell a seed each), zero-shot first."""
    value = interval(z.score for z in zero)
    first = {"row": "zero-shot", "seeds": len(zero), "accuracy, %": 100 * value.mean, "± seeds": 100 * value.seeds,
             "± sentences": 100 * value.sentences, "held-out loss": float(np.mean([z.loss.mean() for z in zero]))}
    return pd.DataFrame([first, *({"row": name} | line(cells, zero) for name, cells in named.items())])


class Relation(NamedTuple):
    """A claim about a paired gap of ours: at most `limit` points, or (limit None) above zero."""

    claim: str
    paper: float  # points; NaN where the paper prints none
    gap: Interval  # a share
    limit: float | None = None

    def holds(self) -> str:
        """yes or no when the whole interval says so, else cannot tell."""
        low, high = 100 * (self.gap.mean - self.gap.shown), 100 * (self.gap.mean + self.gap.shown)
        if self.limit is None:
            return "yes" if low > 0 else "no" if high <= 0 else "cannot tell"
        return "yes" if high <= self.limit else "no" if low > self.limit else "cannot tell"

    def line(self, seeds: int) -> dict:
        """The claim as a table row."""
        return {"claim": self.claim, "paper, points": self.paper, "ours, points": 100 * self.gap.mean,
                "± ours": 100 * self.gap.shown, "seeds": seeds, "holds here?": self.holds()}


def beside(ours: pd.DataFrame, published: pd.DataFrame, profile: str, why: Mapping[str, str]) -> pd.DataFrame:
    """Published rows with ours and the status, failing rows first; `published` says why where the paper has no value.

    why: a piece of a row's or column's name -> why rows that hold it were not run.
    """
    compared = tables.compare(ours, published, profile)
    name = compared["table"] + " " + compared["row"] + " " + compared["column"]
    for mark, reason in why.items():
        hit = (compared["status"] == "not run") & name.str.contains(mark, regex=False)
        compared.loc[hit, "status"] = f"not run ({reason})"
    blank = compared["value"].isna()
    printed = compared["note"].where(compared["note"].str.startswith(tables.PRINTED), tables.UNAVAILABLE)
    compared["value"] = compared["value"].astype(object).mask(blank, "n/a: " + printed)
    shown = compared.rename(columns={"value": "published", "half_width": "± published", "ours_half_width": "± ours"})
    return shown[["table", "row", "column", "published", "± published", "ours", "± ours", "seeds", "status"]]
