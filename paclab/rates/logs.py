"""Probabilities far below the smallest float: sums in the log domain, bounds with separate terms, intervals.

Knows logarithms. Does not know languages or privacy. Natural logarithms inside, log10 in everything returned.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

LN10 = math.log(10.0)
MAX_N = 1_000_000  # largest sample size of the exact errors: they keep a number for every count 0..n


class Bound(NamedTuple):
    """An upper bound on an error: log10 of the sum (never above 0), log10 of every term, and if it applies.

    holds: whether the theorem's hypotheses are met; if not, log10 is that of the trivial bound and `why` says
    what is missing. Terms are given in either case, so that a plot can stack them.
    """

    log10: float
    terms: dict[str, float]
    holds: bool = True
    why: str = ""


class Error(NamedTuple):
    """An exact error or an estimate: log10 of the value and of the ends of its interval, and how it was
    found."""

    log10: float
    low: float
    high: float
    method: str

    @property
    def value(self) -> float:
        """The error itself; 0.0 where it is below the smallest float."""
        return power10(self.log10)


def log_sum(values: ArrayLike) -> float:
    """log of the sum of exponentials; -inf for an empty sum."""
    values = np.asarray(values, dtype=np.float64).ravel()
    top = float(values.max()) if values.size else -math.inf
    return top + math.log(float(np.exp(values - top).sum())) if top > -math.inf else -math.inf


def log_of(value: float) -> float:
    """Natural logarithm, -inf at 0."""
    return math.log(value) if value > 0 else -math.inf


def log10_of(value: float) -> float:
    """log10, -inf at 0."""
    return math.log10(value) if value > 0 else -math.inf


def power10(exponent: float) -> float:
    """10^exponent; 0.0 on underflow, never above what a float holds."""
    return 0.0 if exponent < -323 else 10.0 ** min(exponent, 308.0)


def show(log10: float) -> str:
    """A number given by its log10 in words such as 1.495e-05, also far below the smallest float."""
    if log10 == -math.inf:
        return "0"
    if -3 <= log10:
        return f"{10.0**log10:.4g}"
    exponent = math.floor(log10)
    mantissa = 10.0 ** (log10 - exponent)
    if round(mantissa, 3) >= 10:
        mantissa, exponent = 1.0, exponent + 1
    return f"{mantissa:.3f}e{exponent:+03d}"


def bound(terms: Mapping[str, float], factor: float = 1.0, holds: bool = True, why: str = "") -> Bound:
    """Sum of exp(term) (natural logs), at most 1, times `factor` in [0, 1]; the trivial bound unless it
    holds."""
    total = min(log_sum(list(terms.values())), 0.0) if holds else 0.0
    scale = log10_of(factor)
    return Bound(total / LN10 + scale, {name: t / LN10 + scale for name, t in terms.items()}, holds, why)


def exact(log_value: float, method: str = "exact") -> Error:
    """An exact error from its natural logarithm; rounding above 1 is clipped."""
    log10 = min(log_value, 0.0) / LN10
    return Error(log10, log10, log10, method)


def bernstein_interval(values: np.ndarray, confidence: float = 0.99) -> tuple[float, float]:
    """Interval of a mean of values in [0, 1] that holds at every sample size (Maurer and Pontil, Theorem
    4)."""
    m, mean = len(values), float(values.mean())
    tail = math.log(4 / (1 - confidence))
    reach = math.sqrt(2 * float(values.var(ddof=1)) * tail / m) + 7 * tail / (3 * (m - 1))
    return max(0.0, mean - reach), min(1.0, mean + reach)


def estimate(values: np.ndarray, method: str, confidence: float = 0.99) -> Error:
    """An average of probabilities with its interval (see bernstein_interval)."""
    low, high = bernstein_interval(values, confidence)
    return Error(log10_of(float(values.mean())), log10_of(low), log10_of(high), method)


def kl(x: ArrayLike, p: ArrayLike) -> np.ndarray:
    """Binary Kullback-Leibler divergence kl(x || p) in nats."""
    x, p = np.asarray(x, dtype=np.float64), np.asarray(p, dtype=np.float64)
    return special.rel_entr(x, p) + special.rel_entr(1 - x, 1 - p)


def log_binomial_pmf(n: int, p: float) -> np.ndarray:
    """log P(Bin(n, p) = t) for t = 0..n."""
    t = np.arange(n + 1)
    choose = special.gammaln(n + 1) - special.gammaln(t + 1) - special.gammaln(n - t + 1)
    out = choose + special.xlogy(t, p) + special.xlog1py(n - t, -p)
    return out - log_sum(out)  # removes the common rounding of log n!


def compositions(n: int, cells: int) -> np.ndarray:
    """All ways to share n strings among `cells` cells: int [number, cells]."""
    rows = np.full((1, 1), n)  # the last column is what is left to share
    for _ in range(cells - 1):
        left = rows[:, -1]
        repeat = np.repeat(np.arange(len(rows)), left + 1)
        starts = np.repeat(np.cumsum(left + 1) - (left + 1), left + 1)
        taken = np.arange(len(repeat)) - starts
        rows = np.column_stack([rows[repeat, :-1], taken, left[repeat] - taken])
    return rows


def log_multinomial(counts: np.ndarray, masses: ArrayLike) -> np.ndarray:
    """log multinomial probability of each row of `counts` (rows of equal sum) under `masses`."""
    n = int(counts[0].sum())
    out = special.gammaln(n + 1) + special.xlogy(counts, np.asarray(masses)).sum(axis=1)
    return out - special.gammaln(counts + 1.0).sum(axis=1)


def slope(n: ArrayLike, log10: ArrayLike) -> np.ndarray:
    """Finite-difference exponents -d ln(error) / dn between neighbouring n."""
    return -np.diff(np.asarray(log10, dtype=np.float64)) * LN10 / np.diff(np.asarray(n, dtype=np.float64))
