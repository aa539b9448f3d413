"""Identification: empirical errors, margins, deficits, scores and the three rules of paper 4.

    sample -> misses [k] -> margins -> deficits -> scores -> release -> index

Knows one sample's miss counts and the horizon. Does not know the law D, error rates or bounds (paclab.rates).
All functions accept a batch: misses [..., k] of whole numbers, so a whole enumeration is one call.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from paclab.errors import InputError
from paclab.languages.checks import horizon_size, positive, whole
from paclab.languages.families import Family, String
from paclab.releases.selection import exponential_log_law, gaussian_log_law, gaussian_sigma

ADJACENCIES = ("replace", "add_remove")


class Horizon(NamedTuple):
    """Horizon of the search: k languages, margin threshold tau, weight w of the deficit (paper: 2/f and
    f^2)."""

    k: int
    tau: float
    weight: float


def horizon(
    f: float, languages: int | None = None, *, tau: float | None = None, weight: float | None = None
) -> Horizon:
    """Horizon of the paper's f = f(n): k = floor(f) candidates (at most `languages`), tau = 2/f, w = f^2.

    The paper writes i in [f(n)] for a real f; languages need whole indices, hence the floor (D.6, point 10).
    Raises InputError for f below 2, an empty class, tau or weight not positive.
    """
    f = horizon_size(f)
    if languages is not None and languages < 1:
        raise InputError("languages", "the family is empty", "give a family with at least one language")
    k = int(f) if languages is None else min(int(f), languages)
    return Horizon(
        k,
        2 / f if tau is None else positive("tau", tau),
        f * f if weight is None else positive("weight", weight),
    )


def sensitivity(scale: Horizon, n: int, adjacency: str) -> float:
    """Largest change of a score: 2 w / n for `replace`, w / n for `add_remove` with the public normaliser n.

    Replacing one string can raise err(L_j) and lower err(L_i) at once; adding or removing one moves a
    margin by at most 1/n (paper 4, design 1, which has the replace-one constant; D.6, point 1).
    """
    n = whole("n", n, 1)
    if adjacency not in ADJACENCIES:
        raise InputError("adjacency", f"unknown {adjacency!r}", f"choose one of: {', '.join(ADJACENCIES)}")
    return (2.0 if adjacency == "replace" else 1.0) * scale.weight / n


def miss_counts(family: Family, sample: list[String], k: int) -> np.ndarray:
    """How many strings of the sample each of L_1..L_k misses: int [k]; n err_S."""
    if not sample:
        raise InputError("sample", "is empty", "give at least one string")
    return (~family.patterns(sample, family.check_window(k))).sum(axis=0)


def margins(misses: ArrayLike, n: int) -> np.ndarray:
    """M_S(1) = 1, M_S(i) = min_{j<i} (err_S(L_j) - err_S(L_i)): misses [..., k] -> [..., k] (paper 4,
    design 1)."""
    misses = np.asarray(misses)
    out = np.ones(misses.shape)
    if misses.shape[-1] > 1:
        best = np.minimum.accumulate(misses, axis=-1)[..., :-1]
        out[..., 1:] = (best - misses[..., 1:]) / n
    return out


def deficits(margin: ArrayLike, scale: Horizon) -> np.ndarray:
    """d_S(i) = (tau - M_S(i))_+ (paper 4, design 1)."""
    return np.maximum(scale.tau - np.asarray(margin, dtype=np.float64), 0.0)


def scores(misses: ArrayLike, n: int, scale: Horizon) -> np.ndarray:
    """q(S, i) = i - w d_S(i): misses [..., k] -> [..., k] (paper 4, design 1)."""
    d = deficits(margins(misses, n), scale)
    return np.arange(1, d.shape[-1] + 1) - scale.weight * d


def margin_rule(misses: ArrayLike, n: int, scale: Horizon) -> np.ndarray:
    """Non-private rule: the largest i with err_S(L_j) - err_S(L_i) > tau for all j < i; index 1 always
    qualifies."""
    passed = margins(misses, n) > scale.tau
    passed[..., 0] = True
    k = passed.shape[-1]
    return k - np.argmax(passed[..., ::-1], axis=-1)


def exponential_law(misses: ArrayLike, n: int, scale: Horizon, eps: float, adjacency: str) -> np.ndarray:
    """Log output law of pure eps-DP identification: [..., k] -> [..., k] (paper 4, design 3)."""
    return exponential_log_law(scores(misses, n, scale), sensitivity(scale, n, adjacency), eps)


def score_noise(
    scale: Horizon,
    n: int,
    eps: float,
    adjacency: str,
    delta: float | None = None,
    *,
    log_delta: float | None = None,
    calibration: str = "auto",
) -> float:
    """sigma of Gaussian identification: Delta_2 <= sqrt(k - 1) Delta, because coordinate 1 is constant."""
    size = sensitivity(scale, n, adjacency) * max(scale.k - 1, 1) ** 0.5
    return gaussian_sigma(eps, size, delta, log_delta=log_delta, calibration=calibration)


def gaussian_law(misses: ArrayLike, n: int, scale: Horizon, sigma: float) -> np.ndarray:
    """Log output law of argmax(q + N(0, sigma^2 I)): [..., k] -> [..., k]; (eps, delta)-DP for sigma of
    score_noise."""
    return gaussian_log_law(scores(misses, n, scale), sigma)
