"""Differentially private zeroth-order releases: clip every record's K numbers, sum, add noise, divide by a constant.

    dpzero       K = 1, |g_i| <= c                                                   (arXiv 2310.09639)
    dp-aggzo     ||(g_i1 .. g_iK) / K|| <= c                                          (Bao et al., USENIX Sec. 2025)
    dp-zo        K = 1, |L+_i - L-_i| <= c in loss units, Gaussian or Laplace noise   (arXiv 2401.04343)
    geodpzo-sc   dp-aggzo of (v, -v), first half times sqrt 2: the same as clip c / sqrt 2 with lr sqrt 2
    geodpzo-lc   sorted values; the outermost mirrored pairs lose their mean, then dp-aggzo's clip

Left of `noised` all is private: which records were drawn (Poisson, secret), how many, what was clipped. The spend
depends on public constants only, so it is public, and an empty batch costs as much as a full one: its noise is
released all the same. Noise and batches come from the run's Secret, never from the direction stream; as float64
numbers they are not proof against attacks on rounding. Released values are in the units of a mean projected
gradient (published e_k times K), so lr is the published lr and means the same for every method.
"""

import math
from typing import NamedTuple

import numpy as np

from paclab.errors import InputError, nearest
from paclab.privacy import dp
from paclab.privacy.budget import BudgetExhausted, stated
from paclab.releases.base import Release, Released
from paclab.releases.recipes import recipe_of
from paclab.releases.secret import Secret

SINGLE = ("dpzero", "dp-zo")  # K = 1 methods
EXPECTED_BATCH = 64  # the papers' expected batch, of 1000 records
UNIT = {"add-remove": "one record more or less", "replace-one": "one record replaced by any other"}
GUARANTEE = ("({epsilon}, {delta})-differential privacy of the whole run for {unit}; the number of records is "
             "{split}; attacker sees every released value and knows the directions, the model and the code; "
             "accounted by {accountant}, {steps} steps of Poisson rate {sampling:g}{certified}")


class Plan(NamedTuple):
    """Public constants of one run: a function of its settings alone, the normaliser apart."""

    method: str
    k: int
    clip: float
    unit: float  # statistic -> clipped quantity: 1/K, or 2 mu for loss differences
    noise: str  # gaussian, laplace
    multiplier: float  # noise scale over the clip
    sampling: float
    steps: int
    normaliser: float  # b: expected batch, exact or privatised

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in one released value."""
        return self.multiplier * self.clip * (math.sqrt(2) if self.noise == "laplace" else 1.0) / (
            self.unit * self.normaliser)


class Spent(NamedTuple):
    """Steps that were charged; public, since the charge of a step does not depend on the data."""

    steps: int = 0


def rate(config) -> float:
    """The Poisson rate of a run."""
    return config.sampling if config.sampling is not None else min(1.0, EXPECTED_BATCH / config.pool)


def check_rate(config) -> None:
    """Refuse a Poisson rate that is none."""
    dp.check(None, None, rate(config), config.steps)


def check(config) -> None:
    """Refuse settings that no calibration can honour; `config` carries the fields of `paclab.finetune.Config`."""
    if config.epsilon is None:
        raise InputError("epsilon", f"{config.method} needs a promise for the whole run", "give epsilon=2, say")
    dp.check(config.epsilon, config.delta, rate(config), config.steps, config.accountant, config.adjacency)
    if config.clip is None:
        raise InputError("clip", f"{config.method} bounds every record",
                         f"give clip={recipe_of(config).clip:g}, tuned on the shipped models with its learning rate")
    if config.method in SINGLE and config.k != 1:
        raise InputError("k", f"{config.method} releases one number a step, not {config.k}",
                         "give k=1, or method=dp-aggzo")
    if config.method == "geodpzo-lc" and config.k < 2:
        raise InputError("k", "geodpzo-lc compares a record's values over directions", "give k=2 or more")
    if config.noise not in ("gaussian", "laplace") or (config.noise == "laplace" and config.method != "dp-zo"):
        raise InputError("noise", f"{config.noise!r} is not offered by {config.method}",
                         "give noise=gaussian, or method=dp-zo for noise=laplace")
    if config.normaliser not in ("expected", "private"):
        raise InputError("normaliser", f"{config.normaliser!r} is unknown",
                         nearest(config.normaliser, ("expected", "private")))
    if config.normaliser == "private" and (config.adjacency != "add-remove" or config.noise != "gaussian"):
        raise InputError("normaliser", "a private number of records belongs to add-remove and Gaussian noise",
                         "give normaliser=expected")
    if config.adjacency == "replace-one" and config.noise == "gaussian" and config.accountant == "rdp":
        raise InputError("accountant", "rdp does not account for replace-one here",
                         "give accountant=pld (certified) or accountant=rdp-published (twice the add-remove noise, as "
                         "DPZero's code)")


def multiplier(config) -> float:
    """Noise scale over the clip for the run's promise; certified by its accountant (seconds, cached)."""
    q, steps = rate(config), config.steps
    if config.noise == "laplace":
        return dp.laplace_scale(config.epsilon, q, steps, config.adjacency)
    share = 1 - dp.NORMALISER_SHARE if config.normaliser == "private" else 1.0
    if published_factor_two(config):
        return 2 * dp.published_multiplier(config.epsilon, q, steps, config.delta)
    return dp.noise_multiplier(share * config.epsilon, q, steps, config.delta, config.accountant, config.adjacency)


def published_factor_two(config) -> bool:
    """DPZero's published noise: twice the add/remove multiplier, meant for replace-one."""
    return config.adjacency == "replace-one" and config.accountant == "rdp-published" and config.noise == "gaussian"


def spent(config, steps: int) -> float:
    """Epsilon of the first `steps` steps by the run's own accountant; public arithmetic."""
    if steps == 0:
        return 0.0
    if config.noise == "laplace":
        return dp.laplace_epsilon(multiplier(config), rate(config), steps, adjacency=config.adjacency)
    noise, adjacency = multiplier(config), config.adjacency
    if published_factor_two(config):
        noise, adjacency = noise / 2, "add-remove"
    extra = dp.NORMALISER_SHARE * config.epsilon if config.normaliser == "private" else 0.0
    return extra + dp.epsilon(noise, rate(config), steps, config.delta, config.accountant, adjacency)


def records_normaliser(config, secret: Secret) -> float:
    """b: rate times N, or rate times (N + Laplace(1 / (0.05 epsilon))) drawn once from the secret."""
    records = float(config.pool)
    if config.normaliser == "private":
        records += laplace(secret, "dp records", 0, 1)[0] / (dp.NORMALISER_SHARE * config.epsilon)
    return rate(config) * max(records, 1.0)


def laplace(secret: Secret, purpose: str, t: int, count: int) -> np.ndarray:
    """Standard Laplace numbers by inversion: float64 [count]."""
    u = secret.uniform(purpose, t, count=count) - 0.5
    return -np.sign(u) * np.log1p(-2 * np.abs(u))


def plan(config, normaliser: float) -> Plan:
    """The public constants of a run."""
    unit = 2 * config.mu if config.method == "dp-zo" else 1 / config.k
    return Plan(config.method, config.k, config.clip, unit, config.noise, multiplier(config), rate(config),
                config.steps, normaliser)


def public(config, normaliser: float) -> dict:
    """What run.json records of a release; `paclab verify` computes it again."""
    made = plan(config, normaliser)
    return {"name": config.method, "noise_multiplier": made.multiplier, "noise_std": made.noise_std,
            "normaliser": made.normaliser, "sampling": made.sampling}


def guarantee(config) -> str:
    """The promise in one sentence."""
    pure, certified = config.noise == "laplace", ""
    if published_factor_two(config):
        value = dp.epsilon(multiplier(config), rate(config), config.steps, config.delta, "pld", "replace-one")
        certified = f" and the published factor 2 (certified for replace-one: epsilon {stated(value, 4)})"
    split = ("noised with 5 % of epsilon (as published; the setting `pool` still tells it)"
             if config.normaliser == "private" else "public")
    return GUARANTEE.format(epsilon=stated(config.epsilon), delta="0" if pure else stated(config.delta),
                            unit=UNIT[config.adjacency], split=split,
                            accountant="basic composition" if pure else config.accountant,
                            steps=config.steps, sampling=rate(config), certified=certified)


def clip_vectors(vectors: np.ndarray, clip: float) -> tuple[np.ndarray, float]:
    """Columns [K, n] scaled to Euclidean norm at most clip, and the share that was scaled."""
    peaks = np.abs(vectors).max(axis=0)
    peaks[peaks < 1e-290] = 1.0
    shapes = vectors / peaks  # squares of huge values would overflow, and a crash would tell of a record
    norms = np.linalg.norm(shapes, axis=0)
    over = norms > clip / peaks
    clipped = np.where(over, shapes * (clip / np.where(over, norms, 1.0)), vectors)
    return clipped, float(over.mean()) if norms.size else 0.0


def localised(vectors: np.ndarray) -> np.ndarray:
    """GeoDPZO's lc, per record (column of [K, n]): outermost mirrored pairs lose their mean, up to the largest jump
    between neighbouring |pair sums|. [our reading of the authors' code]"""
    order = np.argsort(vectors, axis=0, kind="stable")
    ranked = np.take_along_axis(vectors, order, axis=0)
    sums = ranked + ranked[::-1]
    last = np.argmax(np.abs(np.diff(np.abs(sums), axis=0)), axis=0)
    position = np.arange(len(ranked))[:, None]
    outer = np.minimum(position, len(ranked) - 1 - position) <= last
    moved = np.where(outer, ranked - sums / 2, ranked)
    back = np.empty_like(vectors)
    np.put_along_axis(back, order, moved, axis=0)
    return back


def bounded(made: Plan, statistic: np.ndarray) -> tuple[np.ndarray, float]:
    """Every record's contribution [K, n], of norm at most `clip`, and the share that was clipped."""
    vectors = statistic * made.unit
    if made.method == "geodpzo-lc":
        return clip_vectors(localised(vectors), made.clip)
    if made.method == "geodpzo-sc":
        clipped, share = clip_vectors(np.concatenate([vectors, -vectors]), made.clip)
        return math.sqrt(2) * clipped[: made.k], share
    return clip_vectors(vectors, made.clip)


def noised(made: Plan, total: np.ndarray, secret: Secret, t: int) -> np.ndarray:
    """The only line that data cross: the clipped sum [K] plus noise, in released units."""
    draw = laplace(secret, "dp noise", t, made.k) if made.noise == "laplace" else secret.normal(
        "dp noise", t, count=made.k)
    return (total + made.multiplier * made.clip * draw) / (made.unit * made.normaliser)


def select(made: Plan, secret: Secret, records: int, t: int) -> np.ndarray | None:
    """The secret Poisson batch of step t; None stands for all records (rate 1)."""
    return poisson(secret, records, made.sampling, t)


def poisson(secret: Secret, records: int, sampling: float, t: int) -> np.ndarray | None:
    """Which of the records join step t, each with probability `sampling`; None stands for all records (rate 1)."""
    if sampling >= 1:
        return None
    return np.flatnonzero(secret.uniform("dp sample", t, count=records) < sampling)


def differential(config, secret: Secret) -> Release:
    """The release of one run; statistic [K, n] holds projected gradients of the sampled records, n may be 0."""
    made = plan(config, records_normaliser(config, secret))

    def step(private: Spent, t: int, statistic: np.ndarray):
        if private.steps >= made.steps:
            raise BudgetExhausted("epsilon", f"the promise covers {made.steps} steps and all are spent",
                                  "stop, or plan a new run with more steps and more noise")
        # a record without a finite loss counts as zero: stopping the run would tell of it
        values = np.nan_to_num(np.atleast_2d(statistic), nan=0.0, posinf=0.0, neginf=0.0)
        if len(values) != made.k:
            raise InputError("k", f"{len(values)} directions in a release of {made.k}", "probe k directions")
        clipped, share = bounded(made, values)
        total = clipped.sum(axis=1)
        out = noised(made, total, secret, t)
        info = {"batch": values.shape[1], "clipped": share,
                "signal": (total / (made.unit * made.normaliser)).tolist()}
        return Spent(private.steps + 1), Released(tuple(map(float, out))), info

    return Release(config.method, guarantee(config), True, Spent, step,
                   lambda private, t, info: Spent(private.steps + 1),
                   lambda t: select(made, secret, config.pool, t), public(config, made.normaliser))
