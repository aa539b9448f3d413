"""Identification: upper bounds with their terms, exponents, and exact errors of the three rules.

Knows the algorithm's scores (paclab.languages.identify) and the law's cells. Does not know samples of
strings. Errors are of the excess risk IdErr = E err_D(L_i_hat) - inf err_D, or of P(wrong) where the name
says so.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, special

from paclab.errors import InputError
from paclab.languages import identify
from paclab.languages.checks import positive, probability, total_mass, whole
from paclab.languages.families import Family, Pattern
from paclab.rates.logs import (
    LN10,
    MAX_N,
    Bound,
    Error,
    bound,
    compositions,
    estimate,
    exact,
    log_binomial_pmf,
    log_multinomial,
    log_of,
    log_sum,
)

MECHANISMS = ("em", "gaussian", "margin", "argmax")
MAX_STATES = 400_000  # largest number of multinomial outcomes that is enumerated
_BLOCK = 100_000


# ---------------------------------------------------------------- upper bounds


def id_upper(
    n: int,
    f: float,
    eps: float,
    *,
    i_star: int,
    gap: float,
    k: int | None = None,
    excess: float = 1.0,
    adjacency: str = "replace",
) -> Bound:
    """IdErr <= Delta_max [2k e^(-n/(2 f^2)) + (k-1) e^(-eps n/(4 f^2))], pure eps-DP, replace-one.

    `gap` is c, `excess` is Delta_max, k = floor(f) candidates unless the family has fewer. Terms: statistics,
    privacy. Holds for f >= max(i*, 3/c); otherwise the theorem says nothing and the bound is trivial. The
    constants are our reconstruction of paper 4's identification theorem [our reading].
    """
    scale = identify.horizon(f, k)
    privacy = log_of(scale.k - 1) - positive("eps", eps) / (2 * identify.sensitivity(scale, n, adjacency))
    return _upper(n, f, scale, i_star, gap, excess, privacy)


def id_upper_gauss(
    n: int,
    f: float,
    eps: float,
    delta: float | None = None,
    *,
    i_star: int,
    gap: float,
    k: int | None = None,
    excess: float = 1.0,
    adjacency: str = "replace",
    log_delta: float | None = None,
    calibration: str = "auto",
) -> Bound:
    """IdErr <= Delta_max [2k e^(-n/(2 f^2)) + (k-1) Phibar(1/(sqrt2 sigma))], (eps, delta)-DP [our
    reading]."""
    scale = identify.horizon(f, k)
    sigma = identify.score_noise(scale, n, eps, adjacency, delta, log_delta=log_delta, calibration=calibration)
    privacy = log_of(scale.k - 1) + float(special.log_ndtr(-1 / (math.sqrt(2) * sigma)))
    return _upper(n, f, scale, i_star, gap, excess, privacy)


def _upper(n, f, scale, i_star, gap, excess, privacy) -> Bound:
    n, i_star = whole("n", n, 1), whole("i_star", i_star, 1)
    holds, why = n_zero_met(f, i_star, gap)
    if scale.k < i_star:
        holds, why = False, f"only {scale.k} candidates, i* = {i_star}"
    terms = {"statistics": math.log(2 * scale.k) - n / (2 * f * f), "privacy": privacy}
    return bound(terms, probability("excess", excess), holds, why)


def n_zero_met(f: float, i_star: int, gap: float) -> tuple[bool, str]:
    """Whether f >= max(i*, 3/c), and what is missing."""
    if gap <= 0:
        return False, "no gap: the infimum is not attained"
    need = max(i_star, 3 / gap)
    return f >= need, "" if f >= need else f"f = {f:.4g} is below max(i*, 3/c) = {need:.4g}"


def statistics_hoeffding(n: int, errors: Sequence[float], i_star: int, scale: identify.Horizon) -> float:
    """log of the one-sided per-pair bound on P(gap of the scores < 1), from the errors of L_1..L_k.

    sum_{j<i*} exp(-n (c_j - tau)^2 / 2) + sum_{i>i*} exp(-n (c_i + tau - (i - i* + 1)/w)^2 / 2), c the excess
    errors (Hoeffding on values in [-1, 1]); a pair whose margin is not positive counts 1 [our reading].
    """
    logs = []
    for _, spare in _spares(errors, i_star, scale):
        logs.append(-n * spare * spare / 2 if spare > 0 else 0.0)
    return log_sum(logs)


def statistics_cramer(n: int, family: Family, i_star: int, scale: identify.Horizon) -> float:
    """log of the same sum with the Chernoff rate of 1[x not in L_j] - 1[x not in L_{i*}] for each pair."""
    errors = [family.error(i) for i in range(1, scale.k + 1)]
    cells = family.cells(scale.k)
    logs = []
    for i, spare in _spares(errors, i_star, scale):
        only_star, only_i = pair_masses(cells, i, i_star)
        mean = errors[i - 1] - errors[i_star - 1]
        x = mean - spare  # the average difference must fall from its mean to x or below
        logs.append(-n * cramer_rate(only_i, only_star, x) if spare > 0 else 0.0)
    return log_sum(logs)


def _spares(errors, i_star, scale):
    for i in range(1, scale.k + 1):
        if i == i_star:
            continue
        c = errors[i - 1] - errors[i_star - 1]
        yield i, c - scale.tau if i < i_star else c + scale.tau - (i - i_star + 1) / scale.weight


def pair_masses(cells: dict[Pattern, float], i: int, star: int) -> tuple[float, float]:
    """(mass in L_star only, mass in L_i only)."""
    only_star = math.fsum(m for p, m in cells.items() if p[star - 1] and not p[i - 1])
    only_i = math.fsum(m for p, m in cells.items() if p[i - 1] and not p[star - 1])
    return only_star, only_i


# ---------------------------------------------------------------- exponents


def cramer_rate(alpha: float, beta: float, x: float) -> float:
    """Rate I(x) of the mean of a variable that is +1 w.p. beta, -1 w.p. alpha, else 0 (Cramer's theorem)."""
    rho = max(0.0, 1.0 - alpha - beta)
    if abs(x) > 1:
        return math.inf
    if abs(x) == 1:
        return -log_of(beta if x > 0 else alpha)
    root = math.sqrt(rho * rho * x * x + 4 * alpha * beta * (1 - x * x))
    up = root + rho * x if x >= 0 else 4 * alpha * beta * (1 - x * x) / (root - rho * x) if root > rho * x else 0.0
    z = up / (2 * beta * (1 - x)) if beta > 0 else None
    if z is None or z == 0:  # one-sided variables and the corner x = 0
        return _one_sided_rate(alpha, beta, rho, x)
    total = alpha / z + rho + beta * z
    return max(0.0, x * math.log(z) - math.log(total))


def _one_sided_rate(alpha: float, beta: float, rho: float, x: float) -> float:
    if alpha == beta == 0:
        return 0.0 if x == 0 else math.inf
    mass, level = (beta, x) if alpha == 0 else (alpha, -x)
    if level < 0:
        return math.inf
    return float(special.rel_entr(level, mass) + special.rel_entr(1 - level, rho))


def exponent_id(alpha: float, beta: float, f: float, eps: float) -> float:
    """lim -1/n log P(wrong) of the exponential mechanism on two atoms with a fixed horizon value f (D.4).

    min_x { I(x) + eps/(4 f^2) (gap of the scores at M_S(2) = x)_+ }; eps/(4 f^2) in practice.
    """
    scale = identify.horizon(f, 2)
    star = 1 if beta <= alpha else 2

    def total(x):
        q = 2 - scale.weight * max(scale.tau - x, 0.0)
        gap = q - 1 if star == 2 else 1 - q
        return cramer_rate(alpha, beta, x) + eps / (4 * scale.weight) * max(gap, 0.0)

    kinks = {-1.0, scale.tau - 1 / scale.weight, min(scale.tau, 1.0), beta - alpha, 1.0}
    return _least(total, sorted(kinks))


def _least(function, ends: Sequence[float]) -> float:
    """Smallest value of a function that is smooth and convex between neighbouring `ends`."""
    best = min(function(x) for x in ends)
    for low, high in itertools.pairwise(ends):
        if high - low > 1e-14:
            found = optimize.minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
            best = min(best, float(found.fun))
    return best


# ---------------------------------------------------------------- exact errors


def trinomial_log_pmf(n: int, alpha: float, beta: float) -> np.ndarray:
    """log P(#b - #a = x) for x = -n..n, n strings of masses alpha (a), beta (b): [2n + 1].

    Coefficients of (alpha + rho z + beta z^2)^n by their three-term recurrence, upwards from both ends: every
    term is positive, so the relative error stays near n 2^-53 however small the probability; O(n).
    """
    n = whole("n", n, 1, MAX_N)
    alpha, beta = total_mass("masses", [alpha, beta])
    rho = max(0.0, 1.0 - alpha - beta)
    if rho < 1e-15:
        rho = 0.0
    if alpha == 0 or beta == 0:
        out = np.full(2 * n + 1, -math.inf)
        if alpha == 0:
            out[n:] = log_binomial_pmf(n, beta)
        else:
            out[: n + 1] = log_binomial_pmf(n, alpha)[::-1]
        return out
    low, high = _ladder(n, alpha, rho, beta), _ladder(n, beta, rho, alpha)
    return np.concatenate([low, high[-2::-1]])


def _ladder(n: int, low: float, mid: float, high: float) -> np.ndarray:
    """log of the coefficients 0..n of (low + mid z + high z^2)^n, rescaled by powers of two on the way."""
    mantissa, exponent = np.empty(n + 1), np.empty(n + 1)
    before, now, scale = 0.0, 1.0, 0
    for m in range(n + 1):
        mantissa[m], exponent[m] = now, scale
        if m < n:
            before, now = now, (mid * (n - m) * now + high * (2 * n - m + 1) * before) / (low * (m + 1))
            largest = max(before, now)
            if largest > 2.0**200 or largest < 2.0**-200:
                shift = math.frexp(largest)[1]
                before, now, scale = math.ldexp(before, -shift), math.ldexp(now, -shift), scale + shift
    with np.errstate(divide="ignore"):
        return np.log(mantissa) + exponent * math.log(2) + n * math.log(low)


def id_exact(
    n: int,
    alpha: float,
    beta: float,
    f: float,
    eps: float = 1.0,
    *,
    mechanism: str = "em",
    adjacency: str = "replace",
    delta: float | None = None,
    log_delta: float | None = None,
    calibration: str = "auto",
) -> Error:
    """Exact P(wrong) on two atoms: em, gaussian, margin (non-private), argmax (em with eps -> inf).

    IdErr is this times |beta - alpha|. Relative error below 1e-9, for n up to 1e5 in under a second.
    Raises InputError for a tie alpha == beta: no index is wrong.
    """
    check_mechanism(mechanism)
    if alpha == beta:
        raise InputError("beta", "alpha == beta: both languages are optimal", "choose different masses")
    scale = identify.horizon(f, 2)
    star = 1 if beta < alpha else 2
    log_pmf = trinomial_log_pmf(n, alpha, beta)
    x = np.arange(-n, n + 1)
    misses = np.stack([np.maximum(x, 0), np.maximum(-x, 0)], axis=-1)  # only the difference matters
    if mechanism == "margin":
        wrong = np.where(identify.margin_rule(misses, n, scale) == star, -math.inf, 0.0)
        return exact(log_sum(log_pmf + wrong))
    q = identify.scores(misses, n, scale)
    lead = q[:, star - 1] - q[:, 2 - star]
    if mechanism == "argmax":
        wrong = np.where(np.abs(lead) < 1e-9, -math.log(2), np.where(lead > 0, -math.inf, 0.0))
    elif mechanism == "em":
        slant = positive("eps", eps) / (2 * identify.sensitivity(scale, n, adjacency))
        wrong = -np.logaddexp(0.0, slant * lead)
    else:
        sigma = identify.score_noise(scale, n, eps, adjacency, delta, log_delta=log_delta, calibration=calibration)
        wrong = special.log_ndtr(-lead / (math.sqrt(2) * sigma))
    return exact(log_sum(log_pmf + wrong))


def check_mechanism(mechanism: str) -> str:
    """The mechanism, if it is a known one."""
    if mechanism not in MECHANISMS:
        raise InputError("mechanism", f"unknown {mechanism!r}", f"choose one of: {', '.join(MECHANISMS)}")
    return mechanism


def id_error(
    family: Family,
    n: int,
    f: float,
    eps: float = 1.0,
    *,
    mechanism: str = "em",
    adjacency: str = "replace",
    delta: float | None = None,
    samples: int = 20_000,
    rng: np.random.Generator | None = None,
) -> Error:
    """IdErr of any family: exact by enumerating the cell counts where they are few, else a Rao-Blackwell
    estimate.

    The estimate averages the exact excess risk given the cell counts over `samples` draws of the counts; its
    interval (Maurer and Pontil, 99 %) holds at every sample size and is wide for errors below 1/samples.
    """
    check_mechanism(mechanism)
    n = whole("n", n, 1, MAX_N)
    k = identify.horizon(f, family.languages).k
    scale = identify.horizon(f, k)
    cells = family.cells(k)
    patterns, masses = np.array(list(cells)), np.array(list(cells.values()))
    excess = np.array([family.error(i) for i in range(1, k + 1)]) - family.infimum
    excess = np.where(np.abs(excess) < 1e-12, 0.0, excess)
    risk = _risk_function(n, scale, excess, eps, mechanism, adjacency, delta)
    if math.comb(n + len(cells) - 1, len(cells) - 1) <= MAX_STATES:
        counts = compositions(n, len(cells))
        with np.errstate(divide="ignore"):
            logs = np.log(_in_blocks(risk, counts @ ~patterns)) + log_multinomial(counts, masses)
        return exact(log_sum(logs), f"exact, {len(counts)} outcomes")
    rng = rng or np.random.default_rng(0)
    draws = rng.multinomial(n, masses / masses.sum(), size=whole("samples", samples, 2))
    return estimate(_in_blocks(risk, draws @ ~patterns), f"Rao-Blackwell, {samples} draws")


def _in_blocks(function, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([function(rows[i : i + _BLOCK]) for i in range(0, len(rows), _BLOCK)])


def _risk_function(n, scale, excess, eps, mechanism, adjacency, delta):
    """misses [m, k] -> expected excess risk given the misses, [m]."""
    if mechanism == "margin":
        return lambda misses: excess[identify.margin_rule(misses, n, scale) - 1]
    if mechanism == "argmax":
        return lambda misses: excess[np.argmax(identify.scores(misses, n, scale), axis=-1)]
    if mechanism == "em":
        return lambda misses: np.exp(identify.exponential_law(misses, n, scale, eps, adjacency)) @ excess
    sigma = identify.score_noise(scale, n, eps, adjacency, delta)

    def gaussian(misses):
        rows, back = np.unique(misses, axis=0, return_inverse=True)
        return (np.exp(identify.gaussian_law(rows, n, scale, sigma)) @ excess)[back.ravel()]

    return gaussian


def log10_excess(error: Error, gap: float) -> Error:
    """P(wrong) turned into IdErr of a two-language class by the factor `gap`."""
    shift = math.log(gap) / LN10
    return Error(error.log10 + shift, error.low + shift, error.high + shift, error.method)
