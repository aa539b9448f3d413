"""PACZero's side of chapter 21 at the price of a differentially private run: as many forwards, as many trials.

A step over a whole pool of N records takes N / 64 times the forwards of an expected batch of 64, so a run makes fewer.
MI and RR spend, for each epsilon, the nats whose bound on a membership guess is that epsilon's (`dp_cliff.matched`);
ZPL spends none and has no epsilon. Each is searched by as many learning rates as a DP method has trials.
Knows finished study-mode cells; draws nothing.
"""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from paclab.chapters import rows
from paclab.chapters.dp_cliff import SEARCHED, Plan, Results, forwards, lr_factors, matched
from paclab.chapters.rows import Interval
from paclab.experiments import Cell, run_cells
from paclab.finetune import Config
from paclab.releases.dp import EXPECTED_BATCH
from paclab.sweep import Tuned, tune

NAMES = {"paczero-zpl": "PACZero-ZPL, coin", "paczero-mi": "PACZero-MI", "paczero-rr": "PACZero-RR"}
PER = ("method", "mi")


class Kind(NamedTuple):
    """A release, and the epsilon whose bound it matches (None: it spends nothing)."""

    method: str
    epsilon: float | None

    @property
    def nats(self) -> float | None:
        """Budget of the whole run."""
        return matched(self.epsilon) if self.epsilon else None


class Equal(NamedTuple):
    """What was tried and what is reported, cells in seed order."""

    tuned: Tuned
    cells: dict[Kind, list[Cell]]

    def gain(self, kind: Kind, r: Results) -> Interval:
        """Accuracy over zero-shot, a share."""
        return rows.gain(self.cells[kind], r.zero)


def kinds(plan: Plan, methods: list[str]) -> list[Kind]:
    """What is run: a release with a budget at every epsilon, ZPL once."""
    return [Kind(m, e) for m in methods for e in ([None] if m == "paczero-zpl" else plan.epsilons)]


def config(plan: Plan, kind: Kind, seed: int) -> Config:
    """Settings of one reported run at the package's learning rate."""
    steps = rows.equal_steps(plan.probes * EXPECTED_BATCH / plan.pool, 1)
    return Config(method=kind.method, mi=kind.nats, steps=steps, candidates=126 if kind.epsilon is None else 128,
                  pool=plan.pool, seed=seed, dev=plan.dev, test=plan.held_out, model=plan.model, study=True)


def search(plan: Plan, methods: list[str]) -> list[Config]:
    """Every trial: learning rates about the package's, as far as the DP methods' step lengths go."""
    found = []
    for kind in kinds(plan, methods):
        base = dataclasses.replace(config(plan, kind, 0), dev=plan.search_dev)
        found += [dataclasses.replace(base, lr=base.learning_rate() * factor, seed=s)
                  for factor in lr_factors(plan.rates, plan.trials) for s in plan.search_seeds]
    return found


def experiment(plan: Plan, methods: list[str], root: Path, jobs: int | None = None) -> Equal:
    """Search, then run what is reported; every run is cached under `root` and an interrupted one goes on."""
    tuned = tune(search(plan, methods), root, per=PER, metric=plan.metric, jobs=jobs, finalists=plan.finalists,
                 again=plan.final_seeds, watch=rows.watcher("search for PACZero at equal forwards"))
    wanted = {(kind, s): dataclasses.replace(config(plan, kind, s), lr=tuned.best[kind.method, kind.nats].lr)
              for kind in kinds(plan, methods) for s in plan.seeds}
    cells = run_cells(wanted.values(), root, jobs=jobs, watch=rows.watcher("PACZero at equal forwards"))
    grouped: dict[Kind, list[Cell]] = {}
    for (kind, _), cell in zip(wanted, cells, strict=True):
        grouped.setdefault(kind, []).append(cell)
    return Equal(tuned, grouped)


# ---------------------------------------------------------------- tables


def table(r: Results, equal: Equal) -> pd.DataFrame:
    """Every searched method at about the same forwards: promise, settings and what was learnt."""
    lines = []
    for family in r.plan.families:
        for e in family.epsilons:
            cells = r.cells[SEARCHED, family.key, e]
            lines.append(_line(family.name, e, None, cells, r))
    for kind, cells in equal.cells.items():
        lines.append(_line(NAMES[kind.method], kind.epsilon, kind.nats or 0.0, cells, r))
    return pd.DataFrame(lines)


def _line(name: str, epsilon: float | None, nats: float | None, cells: list[Cell], r: Results) -> dict:
    c = cells[0].config
    return {"method": name, "ε, promised or bound-matched": epsilon or np.nan,
            "nats about the half": np.nan if nats is None else nats, "T": c.steps, "K": c.k, "forwards": forwards(c),
            "trials": r.plan.trials, "lr": c.learning_rate()} | rows.line(cells, r.zero)


def grid(equal: Equal) -> pd.DataFrame:
    """Every trial of PACZero's search; `edge` names winners at an end of their rates."""
    frame = equal.tuned.grid
    frame = frame.assign(method=frame["method"].map(NAMES))
    shown = [c for c in ("method", "mi", "lr", "dev_loss", "dev_score", "seeds", "best", "edge") if c in frame]
    return frame[shown].rename(columns={"mi": "nats", "dev_loss": "dev loss", "dev_score": "dev accuracy"})


def relations(r: Results, equal: Equal) -> pd.DataFrame:
    """At every epsilon: is PACZero ahead of each DP family, all searched alike and at equal forwards?"""
    found = []
    for kind_of in dict.fromkeys(kind.method for kind in equal.cells):
        for family in (f for f in r.plan.families if f.noise == "gaussian"):
            for e in family.epsilons:
                kind = Kind(kind_of, None if kind_of == "paczero-zpl" else e)
                found.append(rows.Relation(f"{NAMES[kind_of]} is ahead of {family.name}, ε = {e:g}", np.nan,
                                           rows.behind(r.cells[SEARCHED, family.key, e], equal.cells[kind])))
    return pd.DataFrame([relation.line(len(r.zero)) for relation in found]).drop(columns="paper, points")


def left_out(methods: list[str]) -> str:
    """Which of PACZero's releases are not run here, in one sentence; empty where none."""
    gone = [name for method, name in NAMES.items() if method not in methods]
    return f"Left out here at equal forwards: {', '.join(gone)}." if gone else ""


def compute_ratio(r: Results, equal: Equal) -> float:
    """Largest over smallest forwards of all searched rows."""
    all_cells = [c[0] for (how, _, _), c in r.cells.items() if how == SEARCHED] + [c[0] for c in equal.cells.values()]
    costs = [forwards(c.config) for c in all_cells]
    return max(costs) / min(costs)
