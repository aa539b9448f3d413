"""Runs, comparisons and counts of chapter 22: SAGE (our reading of the abstract) against its rivals.

A setting is (model, base method, K, epsilon, learning rate). In each: the fixed scale and SAGE; at SAGE's own best
rate its two controls, a constant factor equal to the SAGE run's mean and the oracle twin; at some settings a linear
decay instead.
Paired throughout: runs of one seed share sentences, batches, directions and noise. Learning rates are chosen on the
public dev split. Knows finished study-mode cells; draws nothing (`sage_figures`).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from paclab.chapters import rows
from paclab.chapters.rows import Interval, Reference
from paclab.errors import InputError
from paclab.experiments import Cell, run_cells, statistics
from paclab.finetune import Config, transcript_lines
from paclab.releases.dp import clip_vectors, localised
from paclab.zo import sage

PLAIN, SAGE, FIXED, ORACLE, DECAY = "plain", "sage", "fixed", "sage-oracle", "decay"
NAMES = {PLAIN: "fixed scale", SAGE: "SAGE [our reading]", FIXED: "SAGE's mean factor, constant",
         ORACLE: "oracle twin [our reading, not private]", DECAY: "fixed scale, linear decay"}
PROMISES = (2.0, 6.0)  # epsilons of the paper's tables
BASES = {"dp-aggzo": "DP-AggZO", "geodpzo-lc": "GeoDPZO-lc"}


class Group(NamedTuple):
    """Everything of a setting but its learning rate."""

    model: str
    base: str
    k: int
    epsilon: float

    @property
    def name(self) -> str:
        """For tables and axes; DP-AggZO with K = 1 is DPZero's step with a fixed divisor."""
        base = "DPZO" if (self.base, self.k) == ("dp-aggzo", 1) else f"{BASES[self.base]} K={self.k}"
        return f"{base}, ε={self.epsilon:g}" + ("" if self.model == "embedded" else f", {self.model}")


class Setting(NamedTuple):
    """A group at one multiple of the package's learning rate."""

    group: Group
    factor: float


class Plan(NamedTuple):
    """What a profile runs.

    The first model and base run at every epsilon and rate where K is wide. All else runs at the usual rate and the
    paper's promises: the other K, the other models at every K, and the other bases at every wide K above 1 (with the
    other models: at the first of these, which is the one beside the paper).
    """

    models: list[str]
    bases: list[str]
    directions: list[int]  # K
    steps: list[int]  # T, one for each K
    wide: list[int]  # values of K that run at every epsilon and learning rate
    epsilons: list[float]
    rates: list[float]  # multiples of the package's learning rate; the one nearest 1 is the usual one
    seeds: list[int]
    warmup: float  # share of the steps
    batch: int = 32
    pool: int = 1000
    test: int = 2000
    dev: int = 500

    def settings(self) -> list[Setting]:
        """Every setting, in the order of the tables."""
        found = []
        for model in self.models:
            for base in self.bases:
                first = (model, base) == (self.models[0], self.bases[0])
                several = [k for k in self.wide if k > 1] or self.wide
                few = several if model == self.models[0] else several[:1]
                for k in self.directions if base == self.bases[0] else few:
                    full = first and k in self.wide
                    found += [Setting(Group(model, base, k, epsilon), rate)
                              for epsilon in (self.epsilons if full else self.published())
                              for rate in (self.rates if full else [self.usual()])]
        return found

    def published(self) -> list[float]:
        """The promises that the paper uses too; the first one where none is."""
        return [epsilon for epsilon in self.epsilons if epsilon in PROMISES] or self.epsilons[:1]

    def usual(self) -> float:
        """The learning-rate factor of the settings that run at one rate only."""
        return min(self.rates, key=lambda rate: abs(np.log(rate)))

    def groups(self) -> list[Group]:
        """Groups in order, once each."""
        return list(dict.fromkeys(s.group for s in self.settings()))

    def searched(self) -> list[Group]:
        """The groups that ran at several learning rates; all of them where none did."""
        return [g for g in self.groups() if len(self.of(g)) > 1] or self.groups()

    def of(self, group: Group) -> list[Setting]:
        """The settings of one group, smallest learning rate first."""
        return sorted((s for s in self.settings() if s.group == group), key=lambda s: s.factor)

    def decays(self) -> list[Setting]:
        """Settings with the linear-decay control: first model, base and epsilon, wide K."""
        return [s for s in self.settings() if s.group in
                {Group(self.models[0], self.bases[0], k, self.epsilons[0]) for k in self.wide}]

    def left_out(self, whole: dict) -> str:
        """What this plan leaves out of the desk profile's settings and seeds, in one sentence."""
        parts = [f"{name} {', '.join(map(str, gone))}" for name in
                 ("models", "bases", "directions", "epsilons", "rates")
                 if (gone := [v for v in whole[name] if v not in getattr(self, name)])]
        if len(self.seeds) < whole["seeds"]:
            parts.append(f"{whole['seeds'] - len(self.seeds)} of {whole['seeds']} seeds")
        return f"Left out here, present in the desk profile: {'; '.join(parts)}." if parts else "Nothing left out."


def plan_of(*, models: list[str], bases: list[str], directions: list[int], steps: list[int], wide: list[int],
            epsilons: list[float], rates: list[float], seeds: int, warmup: float, batch: int, pool: int, held_out: int,
            dev: int, seed: int, **_) -> Plan:
    """The plan that the chapter's parameters ask for; raises InputError where they do not fit together."""
    if len(steps) != len(directions):
        raise InputError("steps", f"{len(steps)} numbers for {len(directions)} values of K", "give one per K")
    if not set(wide) <= set(directions) or not wide:
        raise InputError("wide", f"{wide} is not a part of directions {directions}", "name some of these K")
    if batch > pool:
        raise InputError("batch", f"{batch} expected records of {pool}", "take a smaller batch")
    chosen = [seed + i for i in range(seeds)]
    return Plan(models, bases, directions, steps, wide, epsilons, rates, chosen, warmup, batch, pool, held_out, dev)


def whole(chapter) -> dict:
    """The desk profile's value of every parameter: what a smaller plan is measured against."""
    return {name: parameter.value("desk") for name, parameter in chapter.parameters.items()}


def config(plan: Plan, setting: Setting, seed: int, kind: str, factor: float | None = None) -> Config:
    """Settings of one run. The learning rate is constant, as in DP-AggZO's code: a decay would already shrink."""
    group, steps = setting.group, plan.steps[plan.directions.index(setting.group.k)]
    lr, clip = rows.recipe(group.base, "masked" if group.model == "masked" else "ft", group.k)
    shrinks = kind in (SAGE, ORACLE)
    return rows.dp_config(
        group.base, group.epsilon, k=group.k, model=group.model, steps=steps, pool=plan.pool, dev=plan.dev,
        test=plan.test, seed=seed, sampling=plan.batch / plan.pool, clip=clip,
        lr=lr * setting.factor, schedule="linear" if kind == DECAY else "constant",
        rule=PLAIN if kind == DECAY else kind, factor=factor,
        warmup=max(1, round(plan.warmup * steps)) if shrinks else None)


# ---------------------------------------------------------------- running


class Results(NamedTuple):
    """Finished cells by (setting, kind), one a seed in the plan's order; the untrained model by (model, seed)."""

    plan: Plan
    cells: dict[tuple[Setting, str], list[Cell]]
    zero: dict[str, list[Reference]]

    def has(self, setting: Setting, kind: str) -> bool:
        return (setting, kind) in self.cells

    def best(self, group: Group, kind: str) -> Setting:
        """The group's setting with the lowest mean loss on the public dev split."""
        return best_on_dev([s for s in self.plan.of(group) if self.has(s, kind)], lambda s: self.cells[s, kind])


def best_on_dev(settings: Iterable[Setting], cells_of: Callable[[Setting], list[Cell]]) -> Setting:
    """The setting with the lowest mean dev loss at the end of its runs; a run that blew up loses."""
    def loss(setting: Setting) -> float:
        value = np.mean([cell.metrics[-1]["dev_loss"] for cell in cells_of(setting)])
        return float(value) if np.isfinite(value) else np.inf
    return min(settings, key=loss)


def run_all(plan: Plan, root, watch: Callable[[str], Callable] = rows.watcher) -> Results:
    """Two rounds, both cached: what needs nothing, then the controls that need SAGE's best rate and mean factor."""
    first = [(s, kind, seed) for seed in plan.seeds for s in plan.settings() for kind in (PLAIN, SAGE)]
    first += [(s, DECAY, seed) for seed in plan.seeds for s in plan.decays()]
    made = run_cells([config(plan, s, seed, kind) for s, kind, seed in first], root, record=True,
                     watch=watch("runs without and with SAGE"))
    cells: dict[tuple[Setting, str], list[Cell]] = {}
    for (s, kind, _), cell in zip(first, made, strict=True):
        cells.setdefault((s, kind), []).append(cell)
    second = _controls(plan, cells)
    ready = iter(run_cells([c for _, _, c in second if isinstance(c, Config)], root, watch=watch("controls")))
    for s, kind, one in second:
        cells.setdefault((s, kind), []).append(next(ready) if isinstance(one, Config) else one)
    first_of = {s.group.model: s for s in reversed(plan.settings())}
    zero = {model: [rows.zero_shot(cell.config) for cell in cells[s, PLAIN]] for model, s in first_of.items()}
    return Results(plan, cells, zero)


def _controls(plan: Plan, cells: dict) -> list[tuple[Setting, str, Config | Cell]]:
    """The second round, at SAGE's best rate of every group: its mean factor as a constant, and its oracle twin.

    Settings to run, or the plain cell itself where SAGE never acted (a factor of exactly 1).
    """
    best = [best_on_dev(plan.of(g), lambda s: cells[s, SAGE]) for g in plan.groups()]
    found: list[tuple[Setting, str, Config | Cell]] = []
    for i, seed in enumerate(plan.seeds):
        for s in best:
            mean = float(alphas(cells[s, SAGE][i])["alpha"].mean())
            found.append((s, FIXED, cells[s, PLAIN][i] if mean == 1.0 else config(plan, s, seed, FIXED, mean)))
            found.append((s, ORACLE, config(plan, s, seed, ORACLE)))
    return found


# ---------------------------------------------------------------- what one run's transcript tells


def settings_of(cell: Cell) -> sage.Settings:
    """SAGE's constants for a run, from its public record; of a run without SAGE: those it would have had."""
    return sage.settings(cell.config, cell.run["release"]["noise_std"])


def alphas(cell: Cell) -> dict[str, np.ndarray]:
    """alpha_t and rho_t from the public transcript alone."""
    return sage.trace(settings_of(cell), [line.values for line in transcript_lines(cell.folder)])


def tracked(values: np.ndarray, beta: float) -> np.ndarray:
    """The bias-corrected average of `values` [T], as SAGE tracks its estimate."""
    out, average = [], 0.0
    for t, value in enumerate(values):
        average = beta * average + (1 - beta) * value
        out.append(average / (1 - beta ** (t + 1)))
    return np.array(out)


class Truth(NamedTuple):
    """Tracked signal-to-noise of a recorded run [T]: what SAGE estimates, and the part of it that is descent."""

    sum: np.ndarray  # of the clipped batch, sampling noise included
    descent: np.ndarray  # of the batch's expectation: the square of its mean less its sampling variance, unbiased


def truth(cell: Cell) -> Truth:
    """From the private record of a study-mode run; the descent part corrects for the Poisson batch's own noise.

    With v_i = a record's clipped contribution and rate q: E (sum v_i)^2 = (E sum)^2 + (1 - q) E sum v_i^2. [ours]
    """
    given, c = settings_of(cell), cell.config
    std, q = given.noise_std, c.sampling
    normaliser = cell.run["release"]["normaliser"]
    whole = np.array([np.mean(np.square(info["signal"])) for info in cell.infos])
    own = []
    for step in statistics(cell):
        values = step[:, ~np.isnan(step).any(axis=0)].astype(np.float64) / c.k
        v = clip_vectors(localised(values) if c.method == "geodpzo-lc" else values, c.clip)[0] * c.k / normaliser
        own.append((1 - q) * float((v**2).sum(axis=1).mean()))
    return Truth(tracked(whole, given.tracking) / std**2, tracked(whole - np.array(own), given.tracking) / std**2)


def recorded_energy(r: Results) -> np.ndarray:
    """The batch sum's mean energy at every step of the first setting's plain run [T], private (study mode)."""
    return np.array([np.mean(np.square(info["signal"])) for info in r.cells[r.plan.settings()[0], PLAIN][0].infos])


# ---------------------------------------------------------------- comparisons


def gap(cells: list[Cell], others: list[Cell], measure: str) -> Interval:
    """Mean of `cells` minus `others` on the same sentences: loss in nats, score as a share."""
    return rows.interval(getattr(a, measure) - getattr(b, measure) for a, b in zip(cells, others, strict=True))


def verdict(difference: Interval, measure: str) -> str:
    """helps or hurts when the whole 95 % interval says so; identical runs and doubtful ones are 'no difference'."""
    if difference.mean == 0 or not abs(difference.mean) > difference.shown:
        return "no difference"
    return "helps" if (difference.mean < 0) == (measure == "loss") else "hurts"


def settings_table(r: Results) -> pd.DataFrame:
    """One line a setting: held-out loss and accuracy without SAGE, what SAGE changes, paired.

    Against its mean factor at SAGE's best rate of a group only, elsewhere "not run".
    """
    lines = []
    for s in r.plan.settings():
        plain, shrunk = r.cells[s, PLAIN], r.cells[s, SAGE]
        traces = [alphas(c) for c in shrunk]
        given = settings_of(shrunk[0])
        floor = sage.reference_floor(given)
        loss, score = gap(shrunk, plain, "loss"), gap(shrunk, plain, "score")
        control = gap(shrunk, r.cells[s, FIXED], "loss") if r.has(s, FIXED) else None
        lines.append({
            "setting": s.group.name, "lr factor": s.factor, "lr": plain[0].config.lr, "T": plain[0].config.steps,
            "seeds": len(plain), "reference rho": np.mean([t["rho"][given.warmup - 1] for t in traces]), "floor": floor,
            "below the floor": np.mean([t["rho"][given.warmup - 1] < floor for t in traces]),
            "mean alpha": np.mean([t["alpha"].mean() for t in traces]),
            "loss, fixed scale": np.mean([c.loss.mean() for c in plain]), "loss, SAGE - fixed": loss.mean,
            "± loss": loss.shown, "by loss": verdict(loss, "loss"),
            "accuracy, fixed scale, %": 100 * np.mean([c.score.mean() for c in plain]),
            "accuracy, SAGE - fixed, points": 100 * score.mean, "± accuracy": 100 * score.shown,
            "by accuracy": verdict(score, "score"),
            "loss, SAGE - its mean factor": control.mean if control else np.nan,
            "± control": control.shown if control else np.nan,
            "against its mean factor": verdict(control, "loss") if control else "not run"})
    return pd.DataFrame(lines)


def best_table(r: Results) -> pd.DataFrame:
    """One line a group and kind, each at the best learning rate that was tried, on dev; SAGE minus it, paired."""
    lines = []
    for group in r.plan.groups():
        shrunk = r.cells[r.best(group, SAGE), SAGE]
        zero = r.zero[group.model]
        for kind in NAMES:
            tried = sum(r.has(s, kind) for s in r.plan.of(group))
            if not tried:
                continue
            s = r.best(group, kind)
            cells = r.cells[s, kind]
            loss, score = gap(shrunk, cells, "loss"), gap(shrunk, cells, "score")
            own = kind == SAGE
            over = rows.gain(cells, zero)
            lines.append({
                "group": group.name, "run": NAMES[kind], "rates tried": tried, "best lr factor": s.factor,
                "seeds": len(cells),
                "held-out loss": np.mean([c.loss.mean() for c in cells]),
                "accuracy, %": 100 * np.mean([c.score.mean() for c in cells]),
                "over zero-shot, points": 100 * over.mean, "± gain": 100 * over.shown,
                "loss, SAGE - this": np.nan if own else loss.mean, "± loss": np.nan if own else loss.shown,
                "accuracy, SAGE - this, points": np.nan if own else 100 * score.mean,
                "± accuracy": np.nan if own else 100 * score.shown,
                "SAGE, by loss": "" if own else verdict(loss, "loss"),
                "SAGE, by accuracy": "" if own else verdict(score, "score")})
    return pd.DataFrame(lines)


def _identical(cells: list[Cell], others: list[Cell]) -> bool:
    return all(np.array_equal(a.loss, b.loss) for a, b in zip(cells, others, strict=True))


def count_table(r: Results) -> pd.DataFrame:
    """In how many settings SAGE helps, hurts, or makes no difference, by what it is compared with and measured by."""
    def same_lr(kind: str) -> list[tuple[list[Cell], list[Cell]]]:
        return [(r.cells[s, SAGE], r.cells[s, kind]) for s in r.plan.settings() if r.has(s, kind)]

    found = {"the fixed scale, same lr (settings)": same_lr(PLAIN), "linear decay, same lr (settings)": same_lr(DECAY)}
    for name, kind in (("the fixed scale, each at its best lr (groups)", PLAIN),
                       ("linear decay, each at its best lr (groups)", DECAY)):
        found[name] = [(r.cells[r.best(g, SAGE), SAGE], r.cells[r.best(g, kind), kind]) for g in r.plan.searched()
                       if any(r.has(s, kind) for s in r.plan.of(g))]
    found |= {"its mean factor, constant, at SAGE's best lr (groups)": same_lr(FIXED),
              "its oracle twin, at SAGE's best lr (groups)": same_lr(ORACLE)}
    lines = []
    for name, pairs in found.items():
        for measure, label in (("loss", "held-out loss"), ("score", "accuracy")):
            said = [verdict(gap(a, b, measure), measure) for a, b in pairs]
            mean = [gap(a, b, measure).mean * (-1 if measure == "loss" else 1) for a, b in pairs]
            lines.append({"SAGE [our reading] against": name, "measured by": label, "compared": len(pairs),
                          **{word: said.count(word) for word in ("helps", "hurts", "no difference")},
                          "better on average": sum(m > 0 for m in mean),
                          "identical runs": sum(_identical(*pair) for pair in pairs)})
    return pd.DataFrame(lines)


# ---------------------------------------------------------------- beside the paper


COLUMN = {"embedded": "OPT-1.3B", "masked": "RoBERTa-large"}
OTHER = {"embedded": "0.9 M causal model, rotten tomatoes, {steps} steps: not OPT-1.3B on SST-2",
         "masked": "small masked model, rotten tomatoes, {steps} steps: not RoBERTa-large on SST-2"}
WHY_NOT = {"6.7B": "needs the hub and a GPU", "SQuAD": "question answering: chapter 15",
           "SST-5": "another task", "SNLI": "another task", "MNLI": "another task", "RTE": "another task",
           "TREC": "another task"}


def our_rows(r: Results) -> pd.DataFrame:
    """Our numbers under the paper's keys, each at its own best learning rate, with the reason it is no match."""
    published = {(t, row) for t, row in zip(*(_paper()[name] for name in ("table", "row")), strict=True)}
    lines, told = [], set()
    for group in r.plan.groups():
        base = {1: "DPZO"}.get(group.k, f"AggZO K={group.k}") if group.base == "dp-aggzo" else "GeoDPZO-lc"
        shrunk = [(SAGE, f"SAGE K={group.k}")] if group.base == "dp-aggzo" else []
        for kind, name in [(PLAIN, base), *shrunk]:
            row = f"eps {group.epsilon:g} / {name}"
            key = (COLUMN.get(group.model), row)
            if key not in published or key in told:  # the paper's GeoDPZO rows name no K: our first one stands there
                continue
            told.add(key)
            cells = r.cells[r.best(group, kind), kind]
            value = rows.interval(c.score for c in cells)
            reason = OTHER[group.model].format(steps=cells[0].config.steps)
            reason += f"; K = {group.k}" if group.base == "geodpzo-lc" else ""
            reason += "; SAGE: our reading of the abstract" if kind == SAGE else ""
            lines.append({"paper": "sage", "table": COLUMN[group.model], "row": row, "column": "SST-2",
                          "value": 100 * value.mean, "half_width": 100 * value.shown, "seeds": len(cells),
                          "reason": reason})
    counted = count_table(r)
    won = counted[counted["SAGE [our reading] against"].str.contains("each at its best") & (
        counted["measured by"] == "accuracy")].iloc[0]
    lines.append({"paper": "sage", "table": "Claims", "row": "SAGE above the baselines", "column": "settings won",
                  "value": won["better on average"] / won["compared"], "half_width": np.nan, "seeds": len(r.plan.seeds),
                  "reason": "mean accuracy at each one's best lr, significant or not; our reading of the abstract"})
    return pd.DataFrame(lines)


def _paper() -> pd.DataFrame:
    from paclab.notebook import tables

    return tables.load_published("sage")


def marked(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table with a last column that says what SAGE is here, for files that travel without their caption."""
    return frame.assign(SAGE="our reading of the abstract")


def beside_the_paper(ours: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Every row of the paper's reconstructed grid with ours; the paper prints no number that we could read."""
    return rows.beside(ours, _paper(), profile, WHY_NOT).drop(columns="± published")


def same_promise(r: Results, setting: Setting) -> tuple[bool, int]:
    """Whether plain and SAGE runs carry the same guarantee and noise, and how many first releases are the same."""
    plain, shrunk = r.cells[setting, PLAIN][0], r.cells[setting, SAGE][0]
    same = all(plain.run[name] == shrunk.run[name] for name in ("guarantee", "private"))
    same &= plain.run["release"]["noise_std"] == shrunk.run["release"]["noise_std"]
    pairs = zip(transcript_lines(plain.folder), transcript_lines(shrunk.folder), strict=True)
    agree = [a.values == b.values for a, b in pairs]
    return same, agree.index(False) if False in agree else len(agree)


def rebuilt(cell: Cell) -> bool:
    """Whether base weights, direction key and transcript, alpha recomputed on the way, give the run's final weights."""
    from paclab import finetune
    from paclab.zo import rules, transcript

    start = finetune.base(cell.config, cell.run["keys"], cell.run["device"])
    rule = rules.open_rule(cell.config, cell.run["release"])
    transcript.replay(start.weights, start.directions, transcript_lines(cell.folder), rule)
    return start.weights.digest() == cell.run["weights_sha256"]
