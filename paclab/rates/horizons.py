"""How the horizon f(n) grows, and the n_0 from which the theorems speak; regimes; groups of strings per user.

Knows closed formulas of paper 4's corollaries with their constants. Does not know samples or exact errors.
"""

import math
from typing import NamedTuple

from paclab.errors import InputError, nearest
from paclab.languages.checks import open_probability, positive, whole

KINDS = ("constant", "sqrt_log", "log_log", "power")


class Growth(NamedTuple):
    """A horizon f(n): constant c; sqrt_log sqrt(c log n); log_log sqrt(c log log n); power n^c. At least
    2."""

    kind: str
    c: float

    def __call__(self, n: float) -> float:
        return max(2.0, self.raw(n))

    def raw(self, n: float) -> float:
        """The formula without the floor at 2."""
        if self.kind == "constant":
            return self.c
        if self.kind == "power":
            return n**self.c
        inner = math.log(n) if self.kind == "sqrt_log" else math.log(max(math.log(n), 1.0))
        return math.sqrt(self.c * max(inner, 0.0))

    def log10_n0(self, i_star: int, gap: float) -> float:
        """log10 of n_0, the smallest n with f(n) >= max(i*, 3/c): below it the theorem says nothing.

        inf if f never gets there (a constant horizon, or a gap of 0: the unattained infimum).
        """
        need = max(float(i_star), 3 / gap if gap > 0 else math.inf, 2.0)
        if self.kind == "constant":
            return 0.0 if self.c >= need else math.inf
        if self.kind == "power":
            return math.log10(need) / self.c
        inner = need * need / self.c
        if self.kind == "sqrt_log":
            return inner / math.log(10)
        return math.exp(inner) / math.log(10) if inner < 700 else math.inf


def growth(kind: str, c: float) -> Growth:
    """A checked Growth; power needs c < 1/2 (beyond, the sensitivity 2 f^2/n does not vanish)."""
    if kind not in KINDS:
        raise InputError("growth", f"unknown {kind!r}", nearest(kind, KINDS))
    c = positive("growth constant", c)
    if kind == "power" and c >= 0.5:
        raise InputError("growth constant", f"n^{c:g} makes the sensitivity 2 f^2/n grow", "choose below 0.5")
    return Growth(kind, c)


class Regime(NamedTuple):
    """Where eps lies: name, and the two thresholds (paper 4, table 2 last row, with constants; D.6 point
    4)."""

    name: str
    switch: float
    free: float


def regime(n: int, p: float, f: float, delta: float, eps: float, *, log_delta: float | None = None) -> Regime:
    """Generation with a known window: which mechanism has the larger exponent, and is Gaussian noise free?

    Leading exponents with L = log(1.25/delta): exponential eps n p/4, Gaussian eps^2 n^2 p^2/(32 f L),
    statistics n p/8. `EM better` for eps <= 8 f L/(n p); `free` for eps >= 2 sqrt(f L/(n p)), else
    `Gaussian pays`. When n p < 16 f L the order of the thresholds is reversed and `EM better` may overlap
    with `free`: then both mechanisms are already faster than the statistics.
    """
    n, p, f, eps = whole("n", n, 1), open_probability("p", p), positive("f", f), positive("eps", eps)
    tail = math.log(1.25) - (math.log(open_probability("delta", delta)) if log_delta is None else log_delta)
    switch, free = 8 * f * tail / (n * p), 2 * math.sqrt(f * tail / (n * p))
    name = "free" if eps >= free else ("EM better" if eps <= switch else "Gaussian pays")
    return Regime(name, switch, free)


class UserLevel(NamedTuple):
    """Guarantee for a whole user of m strings when each string has (eps, delta): group privacy."""

    eps: float
    delta: float


def user_level(eps: float, m: int, delta: float = 0.0) -> UserLevel:
    """(m eps, delta (e^(m eps) - 1)/(e^eps - 1)) for users of at most m strings; delta clipped at 1."""
    eps, m = positive("eps", eps), whole("m", m, 1)
    if m * eps > 700:
        return UserLevel(m * eps, min(1.0, math.inf if delta else 0.0))
    return UserLevel(m * eps, min(1.0, delta * math.expm1(m * eps) / math.expm1(eps)))
