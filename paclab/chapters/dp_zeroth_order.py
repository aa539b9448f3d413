"""Rows, settings and tables of chapter 20: one optimiser with and without differential privacy.

Knows finished study-mode cells and Bao et al.'s tables. Draws nothing (`dp_zeroth_order_figures`), probes nothing
(`dp_zeroth_order_clip`). Accuracies are shares here and per cent in tables.

A row's key is `promise-K`, as in `2-16`: epsilon 2, sixteen directions; `none-16` is its twin without noise, `masked-`
in front asks for the masked model, `s` behind for as many steps as the K = 16 rows take (else as many forward passes).
"""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from paclab.chapters import rows
from paclab.chapters.rows import Interval, Reference, interval
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.finetune import Config
from paclab.notebook import tables
from paclab.privacy import dp as account
from paclab.releases import dp
from paclab.releases.dp import EXPECTED_BATCH

KEY = re.compile(r"(?P<masked>masked-)?(?P<promise>none|[0-9.]+)-(?P<k>[0-9]+)(?P<short>s)?")
MASKED = "masked"
DPZERO_TABLE = "RoBERTa-large, six tasks"
SHORT_K = 16  # rows ending in s take the steps of this K
OTHER = "{name}, rotten tomatoes, {steps}: not {theirs}"
NAMES = {"embedded": "0.9 M model", MASKED: "our masked model"}
WHY = {"AdamW": "backpropagation: another optimiser", "6.7B": "needs the hub and a GPU",
       "OPT eps 6 / DPZero": "needs the hub and a GPU", "SQuAD 1.3B": "see chapter 15",
       "Table 3": "another model; ours: memory.csv", "Table 5": "another model; ours: memory.csv",
       **dict.fromkeys(("SST-5", "NLI", "RTE", "TREC"), "no such data offline")}


class Row(NamedTuple):
    """One row: its promise (None: no noise), K, and whether it runs on the masked model or for few steps."""

    key: str
    epsilon: float | None
    k: int
    masked: bool
    short: bool

    @property
    def name(self) -> str:
        """For figures and tables."""
        what = ("MeZO, clipped" if self.k == 1 else f"AggZO, K = {self.k}") if self.epsilon is None else (
            f"{'DPZero' if self.k == 1 else f'DP-AggZO, K = {self.k}'}, ε = {self.epsilon:g}")
        return what + ", masked" * self.masked + ", few steps" * self.short

    @property
    def method(self) -> str:
        """The release."""
        return "aggzo" if self.epsilon is None else "dpzero" if self.k == 1 else "dp-aggzo"

    @property
    def twin(self) -> str:
        """Key of the same row without noise."""
        return f"{MASKED + '-' if self.masked else ''}none-{self.k}{'s' if self.short else ''}"


def row(key: str) -> Row:
    """Read a key; raises InputError for one that is none."""
    found = KEY.fullmatch(key)
    if not found or int(found["k"]) < 1:
        raise InputError("rows", f"{key!r} is no row", "write promise-K, such as 2-16 or none-1")
    epsilon = None if found["promise"] == "none" else float(found["promise"])
    return Row(key, epsilon, int(found["k"]), bool(found["masked"]), bool(found["short"]))


class Plan(NamedTuple):
    """What a profile runs; a run costs `probes` probes of the expected batch, whatever its K."""

    keys: list[str]
    seeds: list[int]
    probes: int
    pool: int
    dev: int
    test: int | None
    model: str

    @property
    def rows(self) -> list[Row]:
        """The rows whose model is there."""
        return [r for r in map(row, self.keys) if not r.masked or masked_is_there()]

    def config(self, r: Row, seed: int, **settings) -> Config:
        """Settings of one run: the shared recipe of its method, track ft; the twin takes that of dp-aggzo."""
        steps = rows.equal_steps(self.probes, SHORT_K if r.short else r.k)
        lr, clip = rows.recipe("dpzero" if r.k == 1 else "dp-aggzo", MASKED if r.masked else "ft", r.k)
        return Config(**({"method": r.method, "epsilon": r.epsilon, "k": r.k, "lr": lr, "clip": clip, "steps": steps,
                          "pool": self.pool, "seed": seed, "model": MASKED if r.masked else self.model,
                          "dev": self.dev, "test": self.test, "eval_every": max(1, steps // 5), "study": True}
                         | settings))

    def configs(self) -> list[Config]:
        """Settings of every run, seeds outermost: an interrupted chapter holds whole seeds."""
        return [self.config(r, seed) for seed in self.seeds for r in self.rows]

    def left_out(self, keys: list[str], seeds: int) -> str:
        """What this plan leaves out of the desk profile, in one sentence."""
        gone = [row(key).name for key in keys if key not in self.keys]
        parts = [f"rows {'; '.join(gone)}"] if gone else []
        if len(self.seeds) < seeds:
            parts.append(f"{seeds - len(self.seeds)} of {seeds} seeds")
        missing = [r.name for r in map(row, self.keys) if r not in self.rows]
        said = f"Left out here, present in the desk profile: {'. Also '.join(parts)}." if parts else "Nothing left out."
        return said + f" No masked model on this machine: {'; '.join(missing)}." * bool(missing)


def masked_is_there() -> bool:
    """Whether the project's masked model is shipped."""
    from paclab import models

    folder = models.shipped(MASKED)
    return folder is not None and (folder / "config.json").is_file()


class Results(NamedTuple):
    """Cells by row key in seed order, and the untrained models in seed order by model."""

    plan: Plan
    cells: dict[str, list[Cell]]
    zero: dict[str, list[Reference]]

    def gain(self, key: str) -> Interval:
        """Accuracy over zero-shot on the same sentences, a share."""
        return rows.gain(self.cells[key], self.untrained(key))

    def untrained(self, key: str) -> list[Reference]:
        """The untrained model that a row began with."""
        return self.zero[MASKED if row(key).masked else self.plan.model]

    def noise_cost(self, key: str) -> Interval | None:
        """Accuracy that the noise took: the twin's minus the row's, same batches, directions and sentences."""
        twin = row(key).twin
        return rows.behind(self.cells[key], self.cells[twin]) if twin in self.cells and twin != key else None


def results(plan: Plan, cells: list[Cell]) -> Results:
    """Group cells (in the order of `plan.configs()`) and score the untrained models."""
    grouped: dict[str, list[Cell]] = {}
    for (_, r), cell in zip([(s, r) for s in plan.seeds for r in plan.rows], cells, strict=True):
        grouped.setdefault(r.key, []).append(cell)
    first = {MASKED if row(key).masked else plan.model: [c.config for c in some] for key, some in grouped.items()}
    return Results(plan, grouped, {model: [rows.zero_shot(c) for c in configs] for model, configs in first.items()})


def recorded(r: Results) -> list[Cell]:
    """The private runs whose recorded differences are shown, one a seed: `2-16`, else those of the most directions."""
    private = [key for key in r.cells if row(key).epsilon and not row(key).masked]
    if not private:
        raise InputError("rows", "lack a private row", "add 2-16")
    return r.cells["2-16" if "2-16" in private else max(private, key=lambda key: row(key).k)]


# ---------------------------------------------------------------- tables


def forwards(config: Config) -> float:
    """Forward passes over one record that a run expects to make, probes only (two per direction)."""
    read = EXPECTED_BATCH if config.method != "mezo" else config.pool
    return 2.0 * config.k * config.steps * read


def kinds(r: Results) -> list[tuple[str, int]]:
    """Every (model, K) among the rows, once."""
    return sorted({(c[0].config.model, c[0].config.k) for c in r.cells.values()})


def table(r: Results, seconds: dict[tuple[str, int], float]) -> pd.DataFrame:
    """The chapter's table; `seconds` of one core that a step of (model, K) takes, measured."""
    lines = []
    for key, cells in r.cells.items():
        made, config = row(key), cells[0].config
        cost = r.noise_cost(key)
        lines.append({"row": made.name, "ε": made.epsilon or np.nan, "K": made.k, "steps": config.steps,
                      "forwards, thousand": forwards(config) / 1000,
                      "seconds of one core": config.steps * seconds[config.model, config.k],
                      "lr": config.learning_rate(), "clip": config.clip,
                      "noise of a value": cells[0].run["release"].get("noise_std", 0.0),
                      "clipped, %": 100 * np.mean([info["clipped"] for c in cells for info in c.infos]),
                      **rows.line(cells, r.untrained(key)),
                      "noise took, points": 100 * cost.mean if cost else np.nan,
                      "took ±": 100 * cost.shown if cost else np.nan})
    return pd.DataFrame(lines)


def spends(r: Results) -> tuple[bool, str]:
    """Whether every private run spends at most its promise by its own accountant, and what each spends."""
    private = {key: some[0].config for key, some in r.cells.items() if some[0].config.epsilon}
    spent = {key: dp.spent(config, config.steps) for key, config in private.items()}
    fine = all(spent[key] <= config.epsilon for key, config in private.items())
    return fine, ", ".join(f"{key}: {value:.4f}" for key, value in spent.items())


def batches(r: Results) -> tuple[bool, str]:
    """Whether the batches' mean size is the expected one within four standard errors, and their range."""
    drawn = {(c.config.seed, t): info["batch"] for some in r.cells.values() for c in some
             for t, info in enumerate(c.infos)}  # the rows of a seed share their batches
    sizes = np.array(list(drawn.values()))
    expected = min(EXPECTED_BATCH, r.plan.pool)
    error = np.sqrt(expected / len(sizes))
    return bool(abs(sizes.mean() - expected) < 4 * error), (
        f"mean {sizes.mean():.1f} of {expected} expected, from {sizes.min()} to {sizes.max()}")


def our_rows(r: Results, errors: pd.DataFrame) -> pd.DataFrame:
    """Our numbers under the papers' keys, each with the reason why it cannot be held against theirs.

    errors: the table of clipping errors.
    """
    lines = []

    def add(where: str, name: str, column: str, value: Interval, model: str, steps: int,
            paper: str = "dp-aggzo") -> None:
        theirs = "OPT-1.3B on SST-2" if where == "Table 2" else "RoBERTa-large on SST-2"
        made = f"{steps} step{'s' * (steps > 1)}" if steps else "untrained"
        reason = OTHER.format(name=NAMES.get(model, "another model"), steps=made, theirs=theirs)
        lines.append({"paper": paper, "table": where, "row": name, "column": column, "value": 100 * value.mean,
                      "half_width": 100 * value.shown, "seeds": len(r.plan.seeds), "reason": reason})

    known = set(tables.load_published("dp-aggzo")[["table", "row", "column"]].itertuples(index=False, name=None))
    for key, cells in r.cells.items():
        made, config = row(key), cells[0].config
        label = "DPZO" if made.k == 1 and made.epsilon else "MeZO" if made.k == 1 else f"AggZO K={made.k}"
        name = f"eps {made.epsilon:g} / {label}" if made.epsilon else f"non-private / {label}"
        for where, column in (("Table 1", "SST-2"), ("Table 4", "SST-2"), ("Table 2", "SST-2 1.3B")):
            if (where, name, column) in known and made.masked == (where != "Table 2") and not made.short:
                add(where, name, column, interval(c.score for c in cells), config.model, config.steps)
        if (made.masked, made.epsilon, made.k, made.short) == (True, 6, 1, False):
            add(DPZERO_TABLE, "eps 6 / DPZero", "SST-2", interval(c.score for c in cells), config.model, config.steps,
                "dpzero")
    for model, zero in r.zero.items():
        where, column = ("Table 1", "SST-2") if model == MASKED else ("Table 2", "SST-2 1.3B")
        add(where, "zero-shot / no training", column, interval(z.score for z in zero), model, 0)
    return pd.concat([pd.DataFrame(lines), _clipping_rows(errors), _multiplier_rows()], ignore_index=True)


def _clipping_rows(errors: pd.DataFrame) -> pd.DataFrame:
    """Figure 3's points at the recipe's clip: relative error of the batch's mean [our reading]."""
    here = errors[errors["beta_clip"] == rows.BETA_CLIP["ft"]]
    known = tables.load_published("dp-aggzo").query("table == 'Figure 3'")["column"].tolist()
    here = here[[f"K={k}" in known for k in here["K"]]]
    reason = f"0.9 M model, rotten tomatoes, √K c = {rows.BETA_CLIP['ft']:g}; our reading of clipping error"
    return pd.DataFrame({"paper": "dp-aggzo", "table": "Figure 3", "row": "clipping error",
                         "column": [f"K={k}" for k in here["K"]], "value": here["relative error"].to_numpy(),
                         "half_width": here["± seeds"].to_numpy(), "seeds": here["seeds"].to_numpy(),
                         "reason": reason})


def _multiplier_rows() -> pd.DataFrame:
    """The noise multipliers that DP-AggZO's code asks for, as exact roots of its own accountant's bound."""
    lines = [{"paper": "dp-aggzo", "table": "Noise multipliers", "row": f"eps {epsilon:g}", "column": "q 0.064, T 1000",
              "value": account.published_multiplier(epsilon, 0.064, 1000, 1e-5, share=0.95),
              "reason": "the exact root; their search stops at a tolerance of 0.01"} for epsilon in (0.2, 1.0)]
    return pd.DataFrame(lines)


def beside_the_paper(ours: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Bao et al.'s tables 1 to 5, figure 3 and noise multipliers and DPZero's rows with ours, failing rows first."""
    published = pd.concat([tables.load_published(paper) for paper in ("dp-aggzo", "dpzero")], ignore_index=True)
    shown = [*(f"Table {i}" for i in range(1, 6)), "Figure 3", "Noise multipliers"]
    return rows.beside(ours, published[published["table"].isin(shown) | (published["paper"] == "dpzero")], profile, WHY)


def relations(r: Results) -> pd.DataFrame:
    """What Bao et al.'s numbers say about each other, and whether the same holds here."""
    published = tables.load_published("dp-aggzo")
    here = (published["table"] == "Table 2") & (published["column"] == "SST-2 1.3B")
    small = published["table"].isin(["Table 1", "Table 4"]) & (published["column"] == "SST-2")
    theirs, roberta = (published[part].drop_duplicates("row").set_index("row")["value"] for part in (here, small))
    claims = [("2-16", "2-1", "K = 16 is ahead of K = 1 at ε = 2", "eps 2 / AggZO K=16", "eps 2 / DPZO"),
              ("2-64", "2-16", "K = 64 is ahead of K = 16 at ε = 2", "eps 2 / AggZO K=64", "eps 2 / AggZO K=16"),
              ("6-16", "2-16", "ε = 6 is ahead of ε = 2 at K = 16", "eps 6 / AggZO K=16", "eps 2 / AggZO K=16"),
              ("none-16", "2-16", "no noise is ahead of ε = 2 at K = 16", "non-private / AggZO K=16",
               "eps 2 / AggZO K=16"),
              ("none-1", "2-1", "no noise is ahead of ε = 2 at K = 1", "non-private / MeZO", "eps 2 / DPZO"),
              ("2-4", "2-1", "K = 4 is ahead of K = 1 at ε = 2", "eps 2 / AggZO K=4", "eps 2 / DPZO"),
              ("2-4", "2-16", "K = 4 is ahead of K = 16 at ε = 2", "eps 2 / AggZO K=4", "eps 2 / AggZO K=16")]
    claims += [(f"masked-{e}-64", f"masked-{e}-1", f"masked: K = 64 is ahead of K = 1 at ε = {e}",
                f"eps {e} / AggZO K=64", f"eps {e} / DPZO") for e in ("6", "2", "1", "0.5")]
    lines = []
    for high, low, text, a, b in claims:
        if {high, low} <= set(r.cells):
            paper = roberta if row(high).masked else theirs
            gap = rows.behind(r.cells[low], r.cells[high])
            lines.append(rows.Relation(text, paper.get(a, np.nan) - paper[b], gap).line(len(r.plan.seeds)))
    lines += [rows.Relation(f"{row(key).name} is ahead of zero-shot", np.nan, r.gain(key)).line(len(r.plan.seeds))
              for key in r.cells]
    return pd.DataFrame(lines)


# ---------------------------------------------------------------- the map of clips and rates


def heat_configs(plan: Plan, k: int, steps: int, epsilon: float, clips: list[float],
                 rates: list[float]) -> list[Config]:
    """One run per seed, clip and learning rate (multiples of the recipe's), seeds outermost, then clips."""
    base = rows.recipe("dp-aggzo", "ft", k)
    made = Row("map", epsilon, k, False, False)
    return [plan.config(made, seed, steps=steps, clip=base.clip * c, lr=base.lr * x, eval_every=0)
            for seed in plan.seeds for c in clips for x in rates]


def heat_table(cells: list[Cell], zero: list[Reference], clips: list[float], rates: list[float]) -> pd.DataFrame:
    """What every point of the map learnt, over seeds; clip and rate also in units of the recipe's.

    cells: those of `heat_configs`, in its order; zero: the untrained model, one a seed.
    """
    grid, lines = [(c, x) for c in clips for x in rates], []
    for i, (c, x) in enumerate(grid):
        point = cells[i::len(grid)]
        lines.append({"clip": point[0].config.clip, "lr": point[0].config.learning_rate(), "clip, of the recipe": c,
                      "lr, of the recipe": x} | rows.line(point, zero))
    return pd.DataFrame(lines)


# ---------------------------------------------------------------- backpropagation


def backpropagation(plan: Plan, lr: float) -> pd.DataFrame:
    """AdamW on the whole pool of every seed at the runs' forward passes: dev loss and accuracy, not private."""
    from paclab import models
    from paclab.chapters.zeroth_order_model import BACKPROP_FORWARDS, backpropagate
    from paclab.sources import load_splits

    steps = max(1, round(2 * plan.probes * EXPECTED_BATCH / plan.pool / BACKPROP_FORWARDS))
    found = []
    for seed in plan.seeds:
        split = load_splits("sentiment", seed=seed, pool=plan.pool, dev=plan.dev, test=100)
        found.append(backpropagate(models.load(plan.model, "cpu"), split.pool, split.dev, steps, lr).assign(seed=seed))
    return pd.concat(found, ignore_index=True)
