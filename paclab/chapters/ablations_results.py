"""What chapter 14 reads from finished runs: accuracies paired with a base row, free steps, charges, captured signal.

Knows `ablations.Plan` and study-mode cells. Draws nothing. Shares in [0, 1] here, per cent and points in tables.

The captured signal of a run of bits is sum_t Y_t g_t / sum_t |g_t|, where g_t is the pool's mean projected gradient at
step t: 1 for the sign of the pool mean, 0 on average for a coin. It is what the update could use, before curvature.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from paclab.chapters import ablations_model as model
from paclab.chapters import rows
from paclab.chapters.ablations import BASE_MI, BUDGETS, Plan, Variant, config
from paclab.chapters.rows import Interval, Reference, interval
from paclab.experiments import Cell, statistics
from paclab.privacy import budget, channels, consensus
from paclab.releases.paczero import Settings, paczero, unpack
from paclab.releases.secret import Secret


class Results(NamedTuple):
    """Cells by row name (study, track, label) in seed order, and the untrained model of every seed."""

    plan: Plan
    cells: dict[tuple[str, str, str], list[Cell]]
    zero: list[Reference]

    def variants(self, study: str, track: str | None = None) -> list[Variant]:
        """The rows of a study, in the order of the page."""
        return [v for v in self.plan.variants() if v.study == study and track in (None, v.track)]

    def tracks(self, study: str) -> list[str]:
        """The tracks on which a study was run."""
        return [t for t in self.plan.tracks if self.variants(study, t)]

    def of(self, variant: Variant) -> list[Cell]:
        """A row's cells, in seed order."""
        return self.cells[variant.name]

    def base(self, variant: Variant) -> Variant:
        """The row that this one is compared with."""
        return next(v for v in self.variants(variant.study, variant.track) if v.base)

    def gain(self, variant: Variant) -> Interval:
        """Accuracy over zero-shot on the same sentences, a share."""
        return rows.gain(self.of(variant), self.zero[: len(self.of(variant))])

    def over_base(self, variant: Variant) -> Interval:
        """Accuracy over the study's base row on the same sentences and seeds, a share."""
        return rows.behind(self.of(self.base(variant)), self.of(variant))


def results(plan: Plan, cells: list[Cell]) -> Results:
    """Give every row its cells (those of `ablations.settings`, in any order) and score the untrained model."""
    grouped: dict[tuple[str, str, str], list[Cell]] = {}
    of = {cell.config: cell for cell in cells}
    for seed, variant in plan.runs():
        grouped.setdefault(variant.name, []).append(of[config(plan, seed, variant)])
    first = plan.variants()[0]
    return Results(plan, grouped, [rows.zero_shot(config(plan, seed, first)) for seed in plan.seeds])


# ---------------------------------------------------------------- one run


class Bits(NamedTuple):
    """The released bits of one run, one entry a direction, in order."""

    value: np.ndarray  # what was released: -1, 0 or +1
    mean: np.ndarray  # the pool's mean projected gradient (after the clip)
    free: np.ndarray  # all halves agreed (True also where nobody voted)
    votes: np.ndarray  # int8 [bits, M]
    weight: np.ndarray  # share of the halves that vote with the pool's sign
    correlation: np.ndarray  # E[Y s] of the channel used (0: a coin; NaN: free)


def bits(cell: Cell) -> Bits | None:
    """The bits of a run whose halves voted; None for the others."""
    found = [b for info in cell.infos for b in info.get("bits", ())]
    if not found or "votes" not in found[0]:
        return None
    votes = np.array([unpack(b["votes"], cell.config.candidates) for b in found])
    mean = np.array([b["pool_mean"] for b in found])
    free = np.array([b["free"] for b in found], dtype=bool)
    weight = np.mean(votes == np.where(mean >= 0, 1, -1)[:, None], axis=1)
    return Bits(np.array([b["value"] for b in found], dtype=float), mean, free, votes, weight,
                np.array([np.nan if b["free"] else _correlation(b) for b in found]))


def _correlation(bit: dict) -> float:
    if bit["channel"] == "gaussian":
        return float(channels.gaussian_sign_correlation(bit["parameter"]))
    return float(channels.rr_correlation(bit["parameter"])) if bit["channel"] == "rr" else 0.0


def captured(cell: Cell) -> float:
    """The captured signal of a run that releases signs (NaN for real numbers, and where no record was probed)."""
    if cell.config.method in ("mezo", "raw-half", "random-sign"):
        return float("nan")
    value = np.array([v for info in cell.infos for v in info["released"]])
    read = bits(cell)
    mean = read.mean if read else np.array([m for info in cell.infos for m in np.atleast_1d(info["pool_mean"])])
    return float(np.sum(value * mean) / np.sum(np.abs(mean)))


def free_share(cell: Cell) -> float:
    """f: the share of free bits (NaN where no halves vote)."""
    read = bits(cell)
    return float(read.free.mean()) if read else float("nan")


def carried_free(read: Bits) -> float:
    """The share of the signal that free steps carry: what a run of zero nats captures, on average over coins."""
    return float(np.sum(np.abs(read.mean) * read.free) / np.sum(np.abs(read.mean)))


def expected(read: Bits) -> float:
    """What this run's bits capture on average over the noise, given its votes, means and the channels it used."""
    size, c = np.abs(read.mean), np.nan_to_num(read.correlation)
    return float(np.sum(size * np.where(read.free, 1.0, c * (2 * read.weight - 1))) / size.sum())


def predicted(read: Bits, totals: np.ndarray) -> np.ndarray:
    """Captured signal expected at each total budget (nats) of a run that had this one's votes and means.

    A free step captures all of its |mean|. A split one captures c (2a - 1) of it: a is the share of halves that vote
    with the pool, c the channel's correlation at q = the rarer share and what the adaptive schedule spends a step.
    """
    size = np.abs(read.mean)
    split = np.flatnonzero(~read.free & (read.weight < 1))
    if split.size == 0:
        return np.ones(len(totals))
    rare = np.minimum(read.weight[split], 1 - read.weight[split])
    beta = np.asarray(totals, dtype=float)[:, None] / split.size
    c = model.gaussian_correlation(rare[None, :], beta)
    gain = c @ (size[split] * (2 * read.weight[split] - 1))
    return (np.sum(size * read.free) + gain) / size.sum()


def same_bits(cell: Cell, other: Cell) -> int:
    """How many of the first released values two runs have in common, before they part."""
    a, b = ([v for info in c.infos for v in info["released"]] for c in (cell, other))
    differs = np.flatnonzero(np.array(a[: len(b)]) != np.array(b[: len(a)]))
    return int(differs[0]) if differs.size else min(len(a), len(b))


# ---------------------------------------------------------------- tables


def table(r: Results, study: str) -> pd.DataFrame:
    """One line per row of a study; accuracies in per cent, gains and gaps in points, with 95 % half-widths."""
    return pd.DataFrame([_line(r, v) for v in r.variants(study)])


def _line(r: Results, v: Variant) -> dict:
    cells = r.of(v)
    gap, reads = r.over_base(v), [b for c in cells if (b := bits(c))]
    spends = cells[0].config.mi is not None
    line = {"track": v.track, "row": v.label} | rows.line(cells, r.zero[: len(cells)])
    line |= {"over base, points": 100 * gap.mean, "± over base": 100 * gap.shown,
             "f": np.mean([b.free.mean() for b in reads]) if reads else np.nan,
             "captured": np.mean([captured(c) for c in cells]),
             "c on split steps": _mean([x for b in reads for x in b.correlation]) if spends else np.nan,
             "promised, nats": cells[0].config.mi if spends else 0.0 if reads else np.nan,
             "charged, nats": np.mean([c.infos[-1].get("charged", np.nan) for c in cells]) if reads else np.nan}
    if v.study == "plateau" and spends:
        smallest = next(w for w in r.variants("plateau", v.track) if "mi" in w.setting)
        line["bits as at the smallest budget"] = np.mean(
            [same_bits(a, b) for a, b in zip(cells, r.of(smallest), strict=True)])
    return line


def _mean(values: list[float]) -> float:
    kept = [x for x in values if x == x]
    return float(np.mean(kept)) if kept else float("nan")


def spread(r: Results, track: str) -> tuple[float, float]:
    """Highest minus lowest mean accuracy over the published budgets, points, and the largest half-width of a gap."""
    published = [v for v in r.variants("plateau", track) if v.setting.get("mi") in BUDGETS]
    means = [100 * interval(c.score for c in r.of(v)).mean for v in published]
    pairs = [rows.behind(r.of(published[int(np.argmin(means))]), r.of(published[int(np.argmax(means))]))]
    return max(means) - min(means), 100 * max(p.shown for p in pairs)


# ---------------------------------------------------------------- charges and the clip


def replayed_charges(values: np.ndarray, clip: float | None, halves: int, total: float, seed: int) -> list[dict]:
    """Release the same recorded values [T, N] at another clip, with the same halves, secret and noise; one bit a step.

    The values do not react to the bits (a replay of what was recorded), so only the clip differs.
    """
    stream = np.random.Generator(np.random.Philox(key=[seed, values.shape[1]]))
    membership = consensus.complementary_halves(values.shape[1], halves, stream)
    release = paczero(Settings("mi", membership, Secret.from_seed(seed), lambda t, k: 1, len(values), total=total,
                               clip=clip))
    private, out = release.init(), []
    for t, row in enumerate(values):
        private, _, info = release.step(private, t, row[None])
        out.append(info["bits"][0] | {"paid": info["charged"]})
    return out


def clip_table(r: Results, seed: int) -> pd.DataFrame:
    """What each clip does to recorded values: fired, votes changed, f, charges; nothing is trained again."""
    base = next(v for v in r.variants("plateau", r.plan.tracks[0]) if v.setting.get("mi") == BASE_MI)
    values = statistics(r.of(base)[0])[:, 0].astype(np.float64)
    plain, lines = replayed_charges(values, None, HALVES_SHOWN, BASE_MI, seed), []
    rare = [float(np.quantile(np.abs(values), share)) for share in (0.9998, 0.998, 0.98)]
    for clip in [None, *rare, *sorted(r.plan.clips, reverse=True), 0.1]:
        done = replayed_charges(values, clip, HALVES_SHOWN, BASE_MI, seed)
        same = [a["votes"] == b["votes"] for a, b in zip(done, plain, strict=True)]
        first = same.index(False) if False in same else len(same)
        paid = [a["charged"] == b["charged"] for a, b in zip(done, plain, strict=True)]
        lines.append({"clip": "none" if clip is None else f"{clip:.4g}",
                      "values cut, %": 100 * np.mean(np.abs(values) > (clip or np.inf)),
                      "steps with other votes": len(same) - sum(same), "first such step": first,
                      "charges equal before it": all(paid[:first]),
                      "f": np.mean([b["free"] for b in done]), "charged, nats": done[-1]["paid"],
                      "promised, nats": BASE_MI})
    return pd.DataFrame(lines)


HALVES_SHOWN = 126  # of the replay: drawn afresh, with no relation to the run's own


def charge_by_hand(votes: np.ndarray, total: float, steps: int) -> float:
    """What the first step costs, from the votes alone: nats of a Gaussian release of one of them, uniform posterior."""
    rare = min(np.mean(votes > 0), np.mean(votes < 0))
    if rare == 0:
        return 0.0
    beta = budget.capped(budget.step_budget(total, 0.0, 0, steps, "adaptive"), rare)
    return float(channels.gaussian_mi(rare, channels.gaussian_sigma(rare, beta)))


class Verdict(NamedTuple):
    """A comparison of charges: whether all were equal, and of how many."""

    equal: bool
    detail: str


def same_votes_same_charge(r: Results, seed: int) -> Verdict:
    """Scale every step's recorded values by its own positive factor: no vote changes, and no charge may."""
    base = next(v for v in r.variants("plateau", r.plan.tracks[0]) if v.setting.get("mi") == BASE_MI)
    values = statistics(r.of(base)[0])[:, 0].astype(np.float64)
    factors = np.random.Generator(np.random.Philox(key=[seed, 14])).lognormal(0, 3, size=(len(values), 1))
    plain, other = (replayed_charges(v, None, HALVES_SHOWN, BASE_MI, seed) for v in (values, values * factors))
    votes = all(a["votes"] == b["votes"] for a, b in zip(plain, other, strict=True))
    paid = all(a["charged"] == b["charged"] for a, b in zip(plain, other, strict=True))
    return Verdict(votes and paid, f"{len(values)} steps, values scaled by {factors.min():.2g} to {factors.max():.2g}")


def first_charges(r: Results) -> Verdict:
    """Recompute the first step's charge of every budgeted run from its votes, budget and steps alone."""
    gaps = []
    for cells in r.cells.values():
        for c in cells:
            if c.config.mi is not None and c.config.k == 1:
                bit = c.infos[0]["bits"][0]
                by_hand = charge_by_hand(unpack(bit["votes"], c.config.candidates), c.config.mi, c.config.steps)
                gaps.append(abs(by_hand - bit["charged"]) / max(by_hand, 1e-12))
    return Verdict(max(gaps) < 1e-8, f"{len(gaps)} rows and seeds, largest relative gap {max(gaps):.1g}")
