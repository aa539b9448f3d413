"""Runs of chapter 21: differentially private zeroth-order training over epsilon, searched once or at every epsilon.

A family is a method with its number of directions K; all families cost the same forward passes (T = probes / K).
    AS_PUBLISHED   one learning rate and one clip for every epsilon and every K: those that the search picks for the
                   largest K at the epsilon nearest to 2, as the in-house scripts reuse DP-AggZO's published point
    SEARCHED       the best of the same number of trials at every epsilon, on search seeds that are not reported
PACZero rows are chapter 13's runs; ZPL is also searched, by as many learning rates as a family has trials (it has no
clip, and its promise does not depend on epsilon). Knows finished study-mode cells; draws nothing and prints no table.
"""

import dataclasses
import itertools
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from paclab.chapters import rows
from paclab.chapters import sentiment_table as sentiment
from paclab.chapters.rows import Interval, Recipe, Reference
from paclab.errors import InputError
from paclab.experiments import Cell, run_cells
from paclab.finetune import Config
from paclab.privacy import risk
from paclab.releases import METHODS
from paclab.releases import dp as dp_release
from paclab.sweep import Tuned, tune

AS_PUBLISHED, SEARCHED = "one setting for all", "searched per ε"
HOWS = (AS_PUBLISHED, SEARCHED)
REFERENCE = 2.0  # the epsilon whose setting is reused
DELTA = 1e-5
SEARCH_SEED = 1000  # search seeds start here: none of them is reported
PER = ("method", "k", "epsilon")
ZPL = "zpl-coin"  # the row that the paper holds against DP
PACZERO_ROWS = ("mezo", "mi-0.33", "mi-0.68", "rr-0.33", "rr-0.68", ZPL, "zpl-skip")


class Family(NamedTuple):
    """A method with its K, and the promises it is run at."""

    key: str
    name: str
    method: str
    k: int
    epsilons: tuple[float, ...]
    noise: str = "gaussian"
    hows: tuple[str, ...] = HOWS


class Plan(NamedTuple):
    """What a profile runs."""

    epsilons: list[float]
    directions: list[int]  # values of K of DP-AggZO
    laplace: list[float]  # pure promises of DP-ZO with Laplace noise
    probes: int  # directions of each run, over an expected batch of 64: T * K
    rates: list[float]  # multiples of the package's step length: learning rate times clip
    clips: list[float]  # multiples of the package's clip
    seeds: list[int]
    search_seeds: list[int]
    search_dev: int
    metric: str  # dev_loss or dev_score: what picks
    paczero: list[str]  # rows of chapter 13
    paczero_steps: int
    zpl_trials: int = 0  # learning rates tried for ZPL; 0: the package's stands
    finalists: int = 0  # trials of each group that run again on two more seeds before one is picked; 0: one round
    pool: int = 1000
    held_out: int | None = None
    dev: int = 2000
    model: str = "embedded"

    @property
    def families(self) -> list[Family]:
        """DPZero, DP-AggZO at each K, and DP-ZO with Laplace noise."""
        found = [Family("dpzero", "DPZero, K = 1", "dpzero", 1, tuple(self.epsilons))]
        found += [Family(f"aggzo-{k}", f"DP-AggZO, K = {k}", "dp-aggzo", k, tuple(self.epsilons))
                  for k in self.directions]
        if self.laplace:
            found.append(Family("laplace", "DP-ZO, Laplace (δ = 0)", "dp-zo", 1, tuple(self.laplace), "laplace",
                                (SEARCHED,)))
        return found

    @property
    def trials(self) -> int:
        """Settings tried per family and epsilon."""
        return len(self.rates) * len(self.clips)

    @property
    def final_seeds(self) -> list[int]:
        """Seeds of the second round, none of them reported."""
        last = max(self.search_seeds)
        return [last + 1, last + 2] if self.finalists else []

    @property
    def reference(self) -> float:
        """The epsilon whose setting is reused everywhere: the one nearest to 2."""
        return min(self.epsilons, key=lambda e: abs(math.log(e / REFERENCE)))

    def left_out(self) -> str:
        """What this plan leaves out of the desk table, in one sentence."""
        gone = [f"ε {e:g}" for e in (0.2, 0.3, 0.5, 1.0, 2.0, 6.0) if e not in self.epsilons]
        gone += [f"K = {k}" for k in (4, 16) if k not in self.directions]
        gone += [] if self.laplace else ["DP-ZO with Laplace noise"]
        gone += [sentiment.ROWS[key].name for key in PACZERO_ROWS if key not in self.paczero]
        gone += [] if self.zpl_trials else ["the search for PACZero-ZPL"]
        gone += [f"{5 - len(self.seeds)} of 5 seeds"] if len(self.seeds) < 5 else []
        return f"Left out here, present in the desk profile: {'; '.join(gone)}." if gone else "Nothing left out."


def plan_of(*, epsilons, directions, laplace, probes, rates, clips, seeds, search_seeds, search_dev, metric, paczero,
            paczero_steps, zpl_trials, finalists, pool, held_out, dev, model, seed, **_) -> Plan:
    """The plan that the chapter's parameters ask for; raises InputError for one that cannot show a cliff."""
    if len(set(epsilons)) != len(epsilons) or len(epsilons) < 2:
        raise InputError("epsilons", f"{epsilons} do not make a curve", "give two or more different values")
    for name, values in (("rates", rates), ("clips", clips), ("directions", directions)):
        if len(set(values)) != len(values):
            raise InputError(name, f"{values} holds a value twice", "give each once")
    if len(set(rates)) < 2:
        raise InputError("rates", f"{rates} is no search", "give two or more different multiples")
    if ZPL not in paczero:
        raise InputError("paczero", f"lacks {ZPL}, the row that the paper holds against DP", "add it")
    if zpl_trials not in (0, len(rates) * len(clips)):
        raise InputError("zpl_trials", f"{zpl_trials} against {len(rates) * len(clips)} of every other method: the "
                         "better searched one would look better", f"give {len(rates) * len(clips)}, or 0 for no search")
    if max(directions) > probes:
        raise InputError("directions", f"K = {max(directions)} takes more than the {probes} probes of a run",
                         "raise probes, or take a smaller K")
    if seed + seeds > SEARCH_SEED:
        raise InputError("seed", f"reaches the search seeds from {SEARCH_SEED} on", "take a smaller one")
    return Plan(sorted(epsilons), list(directions), sorted(laplace), probes, rates, clips,
                [seed + i for i in range(seeds)], [SEARCH_SEED + seed + i for i in range(search_seeds)], search_dev,
                metric, list(paczero), paczero_steps, zpl_trials, finalists, pool, held_out or None, dev, model)


def config(plan: Plan, family: Family, epsilon: float, recipe: Recipe, seed: int) -> Config:
    """Settings of one reported run; the learning rate is constant, as in the published codes."""
    return Config(method=family.method, k=family.k, epsilon=epsilon, steps=rows.equal_steps(plan.probes, family.k),
                  noise=family.noise, lr=recipe.lr, clip=recipe.clip, schedule="constant", seed=seed, pool=plan.pool,
                  dev=plan.dev, test=plan.held_out, model=plan.model, study=True)


def search(plan: Plan) -> list[Config]:
    """Every trial of the search: the same grid, in multiples of the package's settings, for every family.

    A trial keeps its step length (learning rate times clip, to which a step's noise is proportional) as the clip
    varies: else a larger clip would only ever mean more noise.
    """
    found = []
    for family in plan.families:
        lr, clip = rows.recipe(family.method, "ft", family.k)
        for epsilon in family.epsilons:
            for rate, factor in itertools.product(plan.rates, plan.clips):
                trial = config(plan, family, epsilon, Recipe(lr * (rate / factor), clip * factor), 0)
                found += [dataclasses.replace(trial, dev=plan.search_dev, seed=s) for s in plan.search_seeds]
    return found


def chapter_13(plan: Plan) -> sentiment.Plan:
    """The plan of chapter 13's rows that stand beside."""
    return sentiment.plan_of(rows=plan.paczero, tracks=["ft"], seeds=len(plan.seeds), steps=plan.paczero_steps,
                             pool=plan.pool, held_out=plan.held_out or 0, dev=plan.dev, model=plan.model,
                             seed=plan.seeds[0])


def zpl_search(plan: Plan) -> list[Config]:
    """Trials of ZPL: learning rates evenly spaced in the logarithm about the package's, as far as the families' go."""
    base = sentiment.config(chapter_13(plan), plan.seeds[0], "ft", ZPL)
    return [dataclasses.replace(base, lr=base.learning_rate() * factor, dev=plan.search_dev, seed=s)
            for factor in lr_factors(plan.rates, plan.zpl_trials) for s in plan.search_seeds]


def lr_factors(rates: list[float], trials: int) -> list[float]:
    """Learning rates of a method without a clip, of the package's: evenly spaced in the logarithm, 1 among them.

    They reach as far from 1 as the families' step lengths do; where `trials` is even the smallest one is left out.
    """
    widest = max(max(rates), 1 / min(rates))
    return [float(f"{factor:.6g}") for factor in np.geomspace(1 / widest, widest, trials + 1 - trials % 2)[-trials:]]


def matched(epsilon: float) -> float:
    """Nats with the same bound on a membership guess as (epsilon, 1e-5)-DP."""
    return float(risk.mi_from_epsilon(epsilon, DELTA))


class Results(NamedTuple):
    """Everything the chapter shows; cells and references in seed order."""

    plan: Plan
    tuned: Tuned
    picked: dict[tuple[str, float], Recipe]  # (family, epsilon) -> what the search found
    reused: Recipe  # the one setting for all
    cells: dict[tuple[str, str, float], list[Cell]]  # (how, family, epsilon)
    paczero: dict[str, list[Cell]]  # rows of chapter 13
    zpl_tuned: Tuned | None  # None: not searched
    zpl: dict[str, list[Cell]]  # how -> ZPL at the package's learning rate, and at the one that its search found
    zero: list[Reference]

    def curve(self, how: str, family: Family) -> list[Interval]:
        """Accuracy over zero-shot at each of the family's epsilons, a share."""
        return [rows.gain(self.cells[how, family.key, e], self.zero) for e in family.epsilons]

    def paczero_gain(self, key: str) -> Interval:
        """Accuracy of a row of chapter 13 over zero-shot, a share."""
        return rows.gain(self.paczero[key], self.zero)


def step_length(family: Family, recipe: Recipe) -> float:
    """Learning rate times clip, in units of the package's for this family."""
    lr, clip = rows.recipe(family.method, "ft", family.k)
    return recipe.lr * recipe.clip / (lr * clip)


def trials(r: Results) -> pd.DataFrame:
    """The search's grid with every trial's `step length`; `edge` names which ends of the plan's grid a winner is at."""
    frame, plan = r.tuned.grid.copy(), r.plan
    families = {(f.method, f.k): f for f in plan.families}
    own = [families[m, k] for m, k in zip(frame["method"], frame["k"], strict=True)]
    recipes = list(map(Recipe, frame["lr"], frame["clip"]))
    frame.insert(3, "step length", [float(f"{step_length(f, x):.6g}") for f, x in zip(own, recipes, strict=True)])
    clips = [x.clip / rows.recipe(f.method, "ft", f.k).clip for f, x in zip(own, recipes, strict=True)]

    def end(name: str, value: float, ends: list[float]) -> list[str]:
        smallest, largest = np.isclose(value, min(ends)), np.isclose(value, max(ends))
        return [f"{name} {'smallest' if smallest else 'largest'}"] if len(set(ends)) > 1 and smallest | largest else []

    frame["edge"] = [", ".join(end("step", step, plan.rates) + end("clip", clip, plan.clips)) if best else "" for
                     step, clip, best in zip(frame["step length"], clips, frame["best"], strict=True)]
    return frame


def picks(plan: Plan, tuned: Tuned) -> tuple[dict[tuple[str, float], Recipe], Recipe]:
    """The search's setting of every (family, epsilon), and the one that is reused: largest K, epsilon nearest 2."""
    def best(family: Family, epsilon: float) -> Recipe:
        config = tuned.best[family.method, family.k, epsilon]
        return Recipe(config.learning_rate(), config.clip)

    picked = {(f.key, e): best(f, e) for f in plan.families for e in f.epsilons}
    return picked, picked[f"aggzo-{max(plan.directions)}", plan.reference]


def reported(plan: Plan, picked: dict[tuple[str, float], Recipe], reused: Recipe) -> dict[tuple, Config]:
    """(how, family, epsilon, seed) -> settings of every reported run."""
    return {(how, f.key, e, s): config(plan, f, e, reused if how == AS_PUBLISHED else picked[f.key, e], s)
            for s in plan.seeds for how in HOWS for f in plan.families if how in f.hows for e in f.epsilons}


def experiment(plan: Plan, root: Path, jobs: int | None = None) -> Results:
    """Search, then run what is reported; every run is cached under `root` and an interrupted one goes on."""
    tuned = tune(search(plan), root, per=PER, metric=plan.metric, jobs=jobs, finalists=plan.finalists,
                 again=plan.final_seeds, watch=rows.watcher("search, on seeds that are not reported"))
    picked, reused = picks(plan, tuned)
    wanted = reported(plan, picked, reused)
    others = chapter_13(plan)
    beside = {(key, s): sentiment.config(others, s, "ft", key) for s, _, key in others.runs()}
    zpl_tuned = tune(zpl_search(plan), root, per=("method",), metric=plan.metric, jobs=jobs, finalists=plan.finalists,
                     again=plan.final_seeds, watch=rows.watcher("search for ZPL")) if plan.zpl_trials else None
    best = [_at(beside[ZPL, s], zpl_tuned) for s in plan.seeds]
    cells = run_cells([*beside.values(), *wanted.values(), *best], root, jobs=jobs, watch=rows.watcher("reported runs"))
    grouped: dict[tuple[str, str, float], list[Cell]] = {}
    for (how, key, epsilon, _), cell in zip(wanted, cells[len(beside):-len(best)], strict=True):
        grouped.setdefault((how, key, epsilon), []).append(cell)
    paczero: dict[str, list[Cell]] = {}
    for (key, _), cell in zip(beside, cells, strict=False):
        paczero.setdefault(key, []).append(cell)
    zero = [rows.zero_shot(cell.config) for cell in paczero[ZPL]]
    zpl = {AS_PUBLISHED: paczero[ZPL], SEARCHED: cells[-len(best):]}
    return Results(plan, tuned, picked, reused, grouped, paczero, zpl_tuned, zpl, zero)


def _at(config: Config, tuned: Tuned | None) -> Config:
    """A ZPL run at the learning rate that the search found; the very same run where that is the package's."""
    own = config.learning_rate()
    found = tuned.best[config.method,].learning_rate() if tuned else own
    return config if math.isclose(found, own, rel_tol=1e-9) else dataclasses.replace(config, lr=found)


def forwards(config: Config) -> int:
    """Expected forward passes of single records over the whole run: two for each record and direction."""
    each = config.pool if not METHODS[config.method].differential else dp_release.rate(config) * config.pool
    return round(2 * each * config.k * config.steps)


def signal_to_noise(cells: list[Cell]) -> float:
    """Power of the clipped sums over the power of the noise that was added, mean over steps and seeds (study mode).

    The sums hold the random batch's own variance too, so this is what one step could follow at best.
    """
    return float(np.mean([np.mean(np.square(i["signal"])) / c.run["release"]["noise_std"] ** 2
                          for c in cells for i in c.infos]))
