"""Hyper-parameter search over study-mode runs: which setting per group does best on the public dev split.

Knows grids of Configs, groups and dev numbers. Does not know the held-out test records: a trial scores one of them
and nobody reads it. Study mode only, because search on a private pool is not free: every trial releases its own
values, so ten trials at epsilon 2 cost up to epsilon 20 (and ten trials at 0.33 nats up to 3.3), while reporting
only the winner makes it look like 2. Here the pool is declared public, and so is the dev split that picks.
"""

import dataclasses
import hashlib
import itertools
import random
import tomllib
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd

from paclab.errors import InputError, nearest
from paclab.experiments import Cell, run_trials
from paclab.finetune import Config

METRICS = {"dev_loss": 1.0, "dev_score": -1.0}  # name -> sign that makes smaller better
FIELDS = {field.name: field for field in dataclasses.fields(Config)}
KEYS = ("base", "grid", "seeds", "trials", "per", "metric", "unequal")
DECLARED = ("Picked by {metric} on the dev split, which is public by declaration (so is the pool: study mode, "
            "reproducible, not private). The whole grid is shown; the held-out test records were not looked at.")
EXAMPLE = """\
seeds = [1000, 1001]         # apart from the seeds that you report
trials = 6                   # at most so many settings per group
per = ["method", "epsilon"]  # one winner per group
metric = "dev_loss"          # or dev_score, noisier on few sentences

[base]                       # any setting of a run
study = true                 # the pool is declared public
steps = 40
dev = 2000

[[grid]]                     # several blocks, or one [grid]
method = ["dpzero"]
epsilon = [0.5, 2.0]
clip = [25.0, 100.0]
lr = [1e-5, 1e-4, 1e-3]

[[grid]]
method = ["dp-aggzo"]
k = [16]
epsilon = [0.5, 2.0]
clip = [5.0, 25.0]
lr = [1e-5, 1e-4, 1e-3]
"""


class Sweep(NamedTuple):
    """A grid file, read and checked: one Config per trial and seed."""

    configs: list[Config]
    per: tuple[str, ...]
    metric: str
    unequal: bool


class Tuned(NamedTuple):
    """Every trial's dev numbers, averaged over seeds, and the winning settings of each group.

    grid: one row per group and trial, in the given order; "... before" is the untrained model on the same sentences;
    `best` says "best" on the winners, `edge` names numeric settings whose winner is the smallest or largest value
    tried in its group (the grid may be too narrow there).
    best: group (values of `per`, in that order) -> Config with the seed and `test` of the group's first trial.
    """

    grid: pd.DataFrame
    best: dict[tuple, Config]
    per: tuple[str, ...]
    metric: str
    finalists: int = 0  # 0: one round

    def note(self) -> str:
        """What the choice rests on, in one line."""
        rounds = (f" The best {self.finalists} of each group ran again on more seeds (column seeds); the winner is the "
                  "best of these over all its seeds." if self.finalists else "")
        return DECLARED.format(metric=self.metric) + rounds


def tune(configs: Iterable[Config], root: Path | str, *, per: Sequence[str] = ("method",), metric: str = "dev_loss",
         jobs: int | None = None, watch=None, unequal: bool = False, finalists: int = 0,
         again: Sequence[int] = ()) -> Tuned:
    """Run every trial (cached, resumable, in processes) and pick the best per group by its mean over seeds.

    With `finalists` there is a second round: so many of each group's trials, the best of the first round, run on the
    seeds `again` too, and the best of them over all seeds wins. The winner of one noisy run a trial is often luck.

    Configs that differ only in their seed are one trial. `dev_loss` is the default since on 500 to 2,000 sentences
    accuracy moves in noisy jumps that the loss does not have. Ties go to the trial given first. Raises InputError
    for private configs, groups with different numbers of trials (unless `unequal`), or trials with different seeds.
    """
    configs, per = list(configs), tuple(per)
    check(configs, per, metric, unequal)
    if finalists < 0 or bool(finalists) != bool(again):
        raise InputError("finalists", f"{finalists} with {len(again)} further seeds", "give both, or neither")
    if {c.seed for c in configs} & set(again) or len(set(again)) != len(again):
        raise InputError("again", f"{list(again)} repeats a seed", "give seeds that the first round does not have")
    cells = run_trials([dataclasses.replace(c, test=1) for c in configs], root, jobs=jobs, watch=watch)
    first = pick(configs, cells, per, metric)
    if not finalists:
        return first
    kept = best_trials(configs, cells, per, metric, finalists)
    more = [dataclasses.replace(trial, seed=seed) for trial in kept for seed in again]
    cells += run_trials([dataclasses.replace(c, test=1) for c in more], root, jobs=jobs, watch=watch)
    return pick([*configs, *more], cells, per, metric, kept)._replace(finalists=finalists)


def best_trials(configs: Sequence[Config], cells: Sequence[Cell | None], per: Sequence[str], metric: str,
                most: int) -> list[Config]:
    """Each group's `most` best trials by the mean over seeds, as Configs of seed 0; ties go to the first given."""
    found: dict[Config, list[float]] = {}
    for c, cell in zip(configs, cells, strict=True):
        found.setdefault(_trial(c), []).append(_rank(_last(cell), metric))
    means = {trial: float(np.mean(values)) for trial, values in found.items()}
    return [trial for trials in _groups(found, per).values() for trial in
            sorted(trials, key=lambda t: means[t] if np.isfinite(means[t]) else np.inf)[:most]]


def check(configs: Sequence[Config], per: Sequence[str], metric: str, unequal: bool = False) -> None:
    """Refuse a search that would be unfair, empty or not free, before anything runs."""
    if not isinstance(metric, str) or metric not in METRICS:
        raise InputError("metric", f"{metric!r} is unknown", nearest(str(metric), METRICS))
    for name in per:
        if name not in FIELDS or name == "seed":
            raise InputError("per", f"{name!r} is no setting to group by", nearest(name, set(FIELDS) - {"seed"}))
    if not configs:
        raise InputError("grid", "holds no trial", "give at least one value per setting")
    private = [c for c in configs if not c.study]
    if private:
        raise InputError("study", f"each of the {len(private)} trials on a private pool would spend a budget of its "
                         "own, so the search is not free", "declare a public pool (study = true) and tune there")
    seeds: dict[Config, list[int]] = {}
    for c in configs:
        seeds.setdefault(_trial(c), []).append(c.seed)
    first = sorted(next(iter(seeds.values())))
    for trial, found in seeds.items():
        if sorted(found) != first or len(set(found)) != len(found):
            raise InputError("seeds", f"trials of {trial.method} run on seeds {sorted(found)}, others on {first}",
                             "give every trial the same seeds once")
    counts = {group: len(trials) for group, trials in _groups(seeds, per).items()}
    if len(set(counts.values())) > 1 and not unequal:
        few, many = min(counts, key=counts.get), max(counts, key=counts.get)
        raise InputError("trials", f"{_said(few)} has {counts[few]} trials and {_said(many)} has {counts[many]}: "
                         "the better searched one would look better", f"set trials = {counts[few]}, or unequal = true")


def pick(configs: Sequence[Config], cells: Sequence[Cell | None], per: Sequence[str], metric: str,
         among: Sequence[Config] | None = None) -> Tuned:
    """The grid and its winners from finished cells (None: diverged), one per config in the same order.

    among: the trials that may win, as Configs of seed 0; all of them by default.
    """
    found: dict[Config, list[tuple[Config, dict]]] = {}
    for c, cell in zip(configs, cells, strict=True):
        start = {f"{name} before": cell.metrics[0].get(name, np.nan) for name in METRICS} if cell else {}
        found.setdefault(_trial(c), []).append((c, _last(cell) | start))
    varied = [name for name in FIELDS if name not in (*per, "seed") and len({_value(t, name) for t in found}) > 1]
    rows, best = [], {}
    for group, trials in _groups(found, per).items():
        means = [float(np.mean([_rank(line, metric) for _, line in found[t]])) for t in trials]
        finite = [value if np.isfinite(value) and (among is None or t in among) else np.inf
                  for t, value in zip(trials, means, strict=True)]
        winner = int(np.argmin(finite))
        if not np.isfinite(finite[winner]):
            who = "finalist" if among else "trial"
            raise InputError("lr", f"every {who} of {_said(group)} ended without a finite {metric}",
                             "add smaller learning rates")
        best[group] = found[trials[winner]][0][0]
        edges = _edges(trials, winner, varied)
        for i, trial in enumerate(trials):
            row = dict(zip(per, group, strict=True)) | {name: _value(trial, name) for name in varied}
            for name in METRICS:
                values = [line.get(name, np.nan) for _, line in found[trial]]
                row |= {name: float(np.mean(values)), f"{name} s.e.": _standard_error(values),
                        f"{name} before": _mean(found[trial], f"{name} before")}
            rows.append(row | {"seeds": len(found[trial]), "trials": len(trials), "best": "best" * (i == winner),
                               "edge": edges if i == winner else ""})
    return Tuned(pd.DataFrame(rows), best, tuple(per), metric)


def _last(cell: Cell | None) -> dict:
    return cell.metrics[-1] if cell else {}


def _rank(line: dict, metric: str) -> float:
    """What is minimised; NaN for a model that diverged, whose accuracy is that of one constant answer."""
    finite = bool(line) and np.isfinite(line.get("dev_loss", 0.0))
    return METRICS[metric] * line.get(metric, np.nan) if finite else np.nan


def _trial(config: Config) -> Config:
    return dataclasses.replace(config, seed=0)


def _groups(trials: Iterable[Config], per: Sequence[str]) -> dict[tuple, list[Config]]:
    groups: dict[tuple, list[Config]] = {}
    for trial in trials:
        groups.setdefault(tuple(getattr(trial, name) for name in per), []).append(trial)
    return groups


def _said(group: tuple) -> str:
    return ", ".join(str(value) for value in group) or "the sweep"


def _value(config: Config, name: str) -> Any:
    return config.learning_rate() if name == "lr" else getattr(config, name)


def _mean(runs: list[tuple[Config, dict]], metric: str) -> float:
    return float(np.mean([line.get(metric, np.nan) for _, line in runs]))


def _standard_error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _edges(trials: list[Config], winner: int, varied: list[str]) -> str:
    """Numeric settings whose winning value ends the range that this group tried."""
    found = []
    for name in varied:
        values = [_value(t, name) for t in trials]
        numbers = sorted({v for v in values if isinstance(v, int | float) and not isinstance(v, bool)})
        if len(numbers) > 1 and values[winner] in (numbers[0], numbers[-1]):
            found.append(f"{name} {'smallest' if values[winner] == numbers[0] else 'largest'}")
    return ", ".join(found)


# ---------------------------------------------------------------- the grid file


def read_sweep(path: Path | str) -> Sweep:
    """A grid file's trials and seeds, every Config checked; raises InputError naming the file's fault in one line."""
    try:
        raw = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("sweep", f"cannot read {path} ({getattr(error, 'strerror', None) or 'not text'})",
                         "give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError("sweep", f"{path} is not valid TOML ({error})", "mend that line") from None
    for key in raw:
        if key not in KEYS:
            raise InputError("sweep", f"{key!r} is unknown", nearest(key, KEYS) + (
                " (settings of a run go under [base] or [grid])" if key in FIELDS else ""))
    per = raw.get("per", ["method"])
    if not isinstance(per, list) or not all(isinstance(name, str) for name in per):
        raise InputError("per", f"{per!r} is no list of settings", 'write per = ["method", "epsilon"]')
    if not isinstance(raw.get("unequal", False), bool):
        raise InputError("unequal", f"{raw['unequal']!r} is not true or false", "write unequal = true")
    points = _points(raw)
    base = _settings("base", raw.get("base", {}))
    trials = list(dict.fromkeys(_config({**base, **point}) for point in points))
    trials = capped(trials, per, _trials(raw))
    configs = [dataclasses.replace(t, seed=seed) for t in trials for seed in _seeds(raw)]
    sweep = Sweep(configs, tuple(per), raw.get("metric", "dev_loss"), raw.get("unequal", False))
    check(sweep.configs, sweep.per, sweep.metric, sweep.unequal)
    return sweep


def capped(trials: list[Config], per: Sequence[str], most: int | None) -> list[Config]:
    """At most `most` trials per group, drawn in an order that only the group's name decides (random search)."""
    for name in per:
        if name not in FIELDS:
            raise InputError("per", f"{name!r} is no setting to group by", nearest(name, FIELDS))
    if most is None:
        return trials
    kept = []
    for group, members in _groups(trials, per).items():
        draw = random.Random(hashlib.sha256(repr(group).encode()).digest())
        chosen = set(draw.sample(range(len(members)), min(most, len(members))))
        kept += [trial for i, trial in enumerate(members) if i in chosen]
    return kept


def _points(raw: dict) -> list[dict[str, Any]]:
    blocks = raw.get("grid", [])
    blocks = blocks if isinstance(blocks, list) else [blocks]
    if not blocks or not all(isinstance(block, dict) and block for block in blocks):
        raise InputError("grid", "is empty", "list values under [grid], such as lr = [1e-4, 1e-3]")
    points = []
    for block in blocks:
        for name, values in block.items():
            if not isinstance(values, list) or not values:
                raise InputError(name, f"{values!r} is no list of values", f"write {name} = [...] with one or more")
        lists = [[_setting("grid", name, value) for value in values] for name, values in block.items()]
        points += [dict(zip(block, point, strict=True)) for point in itertools.product(*lists)]
    return points


def _settings(where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InputError(where, f"{given!r} is no table", f"write [{where}] and one setting a line")
    return {name: _setting(where, name, value) for name, value in given.items()}


def _setting(where: str, name: str, value: Any) -> Any:
    """A setting in the type that Config wants; whole numbers may stand for real ones."""
    if name == "seed":
        raise InputError("seed", f"does not go under [{where}]", "write seeds = [1000, 1001] at the top")
    if name not in FIELDS:
        raise InputError(name, "is no setting of a run", nearest(name, FIELDS))
    kind = FIELDS[name].type
    kinds = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) not in kinds:
        words = " or ".join({float: "a number", int: "a whole number", str: "a text", bool: "true or false"}[k]
                            for k in kinds if k is not types.NoneType)
        raise InputError(name, f"{value!r} does not fit", f"give {words}")
    return value


def _config(given: dict[str, Any]) -> Config:
    try:
        return Config(**given)
    except InputError as error:
        said = ", ".join(f"{name} {value!r}" for name, value in given.items() if name in ("method", "epsilon", "k"))
        raise InputError(error.parameter, f"{error.problem} (trial with {said})" if said else error.problem,
                         error.fix) from None


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _seeds(raw: dict) -> list[int]:
    seeds = raw.get("seeds")
    if not isinstance(seeds, list) or not seeds or not all(_whole(s, 0) for s in seeds):
        raise InputError("seeds", "is missing" if seeds is None else f"{seeds!r} is no list of whole numbers",
                         "write seeds = [1000, 1001], apart from the seeds that you report")
    if len(set(seeds)) != len(seeds):
        raise InputError("seeds", "holds a seed twice", "give each once")
    return seeds


def _trials(raw: dict) -> int | None:
    most = raw.get("trials")
    if most is not None and not _whole(most, 1):
        raise InputError("trials", f"{most!r} is no number of trials", "give a whole number of at least 1")
    return most
