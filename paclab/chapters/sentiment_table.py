"""Rows, settings and arithmetic of chapter 13: the sentiment part of PACZero's Table 1, with controls and attacks.

Knows finished study-mode cells. Draws nothing (`sentiment_figures`), compares with no paper (`sentiment_paper`) and
trains nothing itself (`paclab.experiments`). Accuracies are shares in [0, 1] here and per cent in the tables;
information is in nats.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from paclab.chapters import rows as shared
from paclab.chapters.rows import Interval, Reference, interval
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.finetune import Config
from paclab.privacy import consensus, dp, posterior, risk
from paclab.releases import dp as dp_release
from paclab.releases.dp import EXPECTED_BATCH
from paclab.releases.paczero import unpack

PAPER_STEPS = 1000  # the paper's T for full fine-tuning: its rate per step is budget / 1000
HALF, RECORD, NOBODY = "which half", "whether one record takes part", "nobody"


class Row(NamedTuple):
    """One line of the table: a method and what it may spend."""

    key: str
    name: str
    method: str = ""  # empty: not a training run
    total: float | None = None  # the paper's budget in nats
    per_step: bool = False  # spend it at the paper's rate per step instead of in all
    on_disagreement: str = "coin"
    epsilon: float | None = None  # differentially private rows
    k: int = 1
    published: str = ""  # row of the paper's table 1, without its track
    control: str = ""  # row of the paper's controls, full fine-tuning only

    def budget(self, steps: int) -> float | None:
        """Nats that a run of `steps` steps may spend; None for methods without a budget."""
        return self.total * steps / PAPER_STEPS if self.per_step else self.total

    @property
    def halves(self) -> bool:
        """Whether the secret half takes part at all."""
        return self.method.startswith("paczero")

    @property
    def protects(self) -> str:
        """The protected unit."""
        return HALF if self.halves else RECORD if self.epsilon else NOBODY


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


def _dp_rows() -> list[Row]:
    rows = []
    for epsilon, nats in ((2, 0.33), (6, 0.68)):
        for key, name, method, k, published in (("dpzero", "DPZero", "dpzero", 1, "DPZero K=1"),
                                                ("aggzo", "DP-AggZO, K = 16", "dp-aggzo", 16, "DP-AggZO K=16")):
            rows.append(Row(f"{key}-{epsilon}", f"{name}, ε = {epsilon}", method, epsilon=float(epsilon), k=k,
                            published=f"eps {epsilon} (MI {nats}) / {published}"))
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
    *_dp_rows(),
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
    dp_forwards: float = 1.0  # forward passes of a DP row, as a share of the other rows'

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
            model: str, seed: int, dp_forwards: float = 1.0) -> Plan:
    """The plan that the chapter's parameters ask for; raises InputError when the row it is about is missing."""
    if "zpl-coin" not in rows:
        raise InputError("rows", "lack zpl-coin, the row that this chapter is about", "add it")
    return Plan(rows, tracks, [seed + i for i in range(seeds)], steps, pool, held_out or None,
                dev=dev, eval_every=max(1, steps // 8), model=model, dp_forwards=dp_forwards)


def config(plan: Plan, seed: int, track: str, key: str) -> Config:
    """Settings of one run; learning rates are the method's defaults, those of DP rows come with their clip.

    A DP row samples 64 of the pool's records a step and takes as many steps as the other rows' forward passes
    (times `dp_forwards`) buy.
    """
    row = ROWS[key]
    if row.epsilon:
        steps = shared.equal_steps(plan.dp_forwards * plan.steps * plan.pool / EXPECTED_BATCH, row.k)
        return shared.dp_config(row.method, row.epsilon, k=row.k, track=track, steps=steps, pool=plan.pool, seed=seed,
                                model=plan.model, dev=plan.dev, test=plan.test, eval_every=max(1, steps // 8))
    return Config(task="sentiment", method=row.method, steps=plan.steps, pool=plan.pool,
                  candidates=126 if row.method == "paczero-zpl" else 128, mi=row.budget(plan.steps), track=track,
                  on_disagreement=row.on_disagreement, seed=seed, model=plan.model, dev=plan.dev, test=plan.test,
                  eval_every=plan.eval_every, study=True)


# ---------------------------------------------------------------- the attack


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


# ---------------------------------------------------------------- the table


class Results(NamedTuple):
    """Everything the chapter shows: cells by (track, row key) in seed order, references in seed order."""

    plan: Plan
    cells: dict[tuple[str, str], list[Cell]]
    zero: list[Reference]
    attacks: dict[tuple[str, str], list[Attack]]

    def gain(self, track: str, key: str) -> Interval:
        """Accuracy over zero-shot on the same sentences, a share."""
        return shared.gain(self.cells[track, key], self.zero)

    def behind(self, track: str, key: str, other: str) -> Interval:
        """Accuracy of row `other` minus that of row `key`, on the same sentences, a share."""
        return shared.behind(self.cells[track, key], self.cells[track, other])

    def free(self, track: str, key: str) -> np.ndarray:
        """Share of free steps of each seed (NaN where there are no votes)."""
        return np.array([np.mean([b["free"] for i in c.infos for b in i["bits"]]) if "bits" in c.infos[0]
                         else np.nan for c in self.cells[track, key]])

    def meter(self, track: str, key: str, name: str) -> np.ndarray:
        """A ledger meter of each seed at the end: charged or realised, nats (0 where nothing is spent)."""
        return np.array([c.infos[-1].get(name, 0.0) for c in self.cells[track, key]])


def zero_shot(plan: Plan, seed: int) -> Reference:
    """The untrained model on the held-out sentences of this seed."""
    return shared.zero_shot(Config(pool=plan.pool, dev=plan.dev, test=plan.test, model=plan.model, seed=seed,
                                   study=True))


def results(plan: Plan, cells: list[Cell]) -> Results:
    """Group cells (in the order of `plan.runs()`), score the untrained model, and run the attack."""
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for (_, track, key), cell in zip(plan.runs(), cells, strict=True):
        grouped.setdefault((track, key), []).append(cell)
    attacks = {name: [attack(c) for c in some] for name, some in grouped.items() if ROWS[name[1]].halves}
    return Results(plan, grouped, [zero_shot(plan, seed) for seed in plan.seeds], attacks)


# the table's columns in two parts that fit a page: what was learnt, and what was promised and found out
LEARNT = ["track", "method", "seeds", "accuracy, %", "± seeds", "± sentences", "says positive, %", "held-out loss",
          "over zero-shot, points", "gain ± seeds", "gain ± sentences", "f"]
GUARANTEES = ["track", "method", "protects", "promised, nats", "charged, nats", "learnt, nats", "promised, ε",
              "certified, ε", "MIA bound", "best attack", "most exposed"]


def guarantees(shown: pd.DataFrame) -> pd.DataFrame:
    """Of the rows that promise something: the promise, what was charged, and what attacks found out."""
    kept = shown[shown["protects"].isin((HALF, RECORD))].reindex(columns=GUARANTEES)
    return kept.dropna(axis="columns", how="all").reset_index(drop=True)


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
    return {"track": track, "method": row.name, **shared.line(cells, r.zero),
            "says positive, %": 100 * np.mean([z.positive(c.score) for z, c in zip(r.zero, cells, strict=True)]),
            "f": np.mean(r.free(track, key)), **(_half(r, track, key) if row.halves else _record(cells[0].config)
                                                 if row.epsilon else {}), "protects": row.protects}


def _half(r: Results, track: str, key: str) -> dict:
    promised, attacks = ROWS[key].budget(r.plan.steps) or 0.0, r.attacks[track, key]
    return {"promised, nats": promised, "charged, nats": np.mean(r.meter(track, key, "charged")),
            "learnt, nats": np.mean(r.meter(track, key, "realised")), "MIA bound": risk.success_from_mi(promised),
            "best attack": np.mean([a.success[-1] for a in attacks]),
            "most exposed": np.mean([a.exposed for a in attacks])}


def _record(config: Config) -> dict:
    """Of a DP row: the promise, what its accountant certifies, the promise's bound and the best attack's.

    The best attack here knows every other record, the directions and the releases: no attack on this noise does
    better at prior 1/2 (accounted by pld, add/remove).
    """
    noise = dp_release.multiplier(config)
    return {"promised, ε": config.epsilon, "certified, ε": dp_release.spent(config, config.steps),
            "MIA bound": 0.5 + risk.gain_from_epsilon(config.epsilon, config.delta),
            "best attack": 0.5 + dp.advantage(noise, dp_release.rate(config), config.steps) / 2}


def vacuity(r: Results, track: str) -> pd.DataFrame:
    """Every row with I(S*; releases) and what it says, and does not say, about membership in the pool."""
    lines = []
    for row in (ROWS[key] for key in r.plan.rows if ROWS[key].method):
        nats = row.budget(r.plan.steps) or 0.0
        pool = 0.5 + risk.gain_from_epsilon(row.epsilon, 1e-5) if row.epsilon else None
        released = f"{row.k} noisy number{'s' * (row.k > 1)}" if row.epsilon else (
            "a real number" if row.method == "mezo" else "one bit")
        lines.append({"method": row.name, "I(half; releases) at most, nats": nats,
                      "guess: was it in the half?": f"at most {risk.success_from_mi(nats):.4f}",
                      "guess: was it in the pool?": f"at most {pool:.4f}" if pool else "no bound",
                      "released per step": released,
                      "accuracy, %": 100 * np.mean([c.score.mean() for c in r.cells[track, row.key]])})
    return pd.DataFrame(lines)
