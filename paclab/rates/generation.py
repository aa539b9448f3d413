"""Generation: upper bounds with their terms, exponents, and exact errors of the private rules.

Knows the algorithm's scores (paclab.languages.generate) and the masses of the window. Does not know strings'
samples. The error computed is P(a bad language is selected): every bad selection counts as a failure, and the
novelty term (printing a string of the sample) is kept apart, see `novelty`. Constants are ours [our reading];
the paper's text gives orders.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from paclab.errors import InputError
from paclab.languages import generate
from paclab.languages.checks import finite, open_probability, positive, probability, total_mass, whole
from paclab.languages.families import Family
from paclab.rates.logs import (
    LN10,
    MAX_N,
    Bound,
    Error,
    bound,
    compositions,
    estimate,
    exact,
    kl,
    log_binomial_pmf,
    log_multinomial,
    log_of,
    log_sum,
)
from paclab.releases.selection import exponential_log_law, gaussian_log_law, gaussian_sigma

MAX_STATES = 400_000
MECHANISMS = ("em", "gaussian", "argmax")
MAX_WINDOW = 100  # strings of a family's window; the pair search takes time in its square
_BLOCK, _DRAWS = 100_000, 10_000  # outcomes, and random draws, evaluated at once
_NEGLIGIBLE = 32.0  # nats below the largest term: together the dropped terms stay below 1e-9 of the sum


# ---------------------------------------------------------------- upper bounds


def gen_upper(n: int, window: int, p_w: float, g: int, bad: int, eps: float, *, tight: bool = False) -> Bound:
    """GenErr <= W e^(-n p_W/8) + B e^(-eps g/2) + n 2^-n: pure eps-DP, both adjacencies, known window.

    p_w: smallest mass of the reference language's window strings; g <= n p_W/2; bad: number B of bad
    languages in [f]. tight: coverage W e^(-n kl((g-1)/n || p_W)) instead of the Chernoff form at g = n p_W/2.
    """
    privacy = log_of(whole("bad", bad, 0)) - positive("eps", eps) * whole("g", g, 1) / 2
    return _upper(n, window, p_w, g, privacy, tight)


def gen_upper_gauss(
    n: int,
    window: int,
    p_w: float,
    g: int,
    bad: int,
    eps: float,
    delta: float | None = None,
    *,
    f: int | None = None,
    log_delta: float | None = None,
    calibration: str = "auto",
    tight: bool = False,
) -> Bound:
    """The same with B Phibar(g/(sqrt2 sigma)): (eps, delta)-DP, Delta_2 <= sqrt(f), f languages (default B
    + 1)."""
    sigma = score_noise(bad + 1 if f is None else f, eps, delta, log_delta=log_delta, calibration=calibration)
    privacy = log_of(whole("bad", bad, 0)) + float(special.log_ndtr(-whole("g", g, 1) / (math.sqrt(2) * sigma)))
    return _upper(n, window, p_w, g, privacy, tight)


def _upper(n, window, p_w, g, privacy, tight) -> Bound:
    n, window, p_w = whole("n", n, 1), whole("window", window, 1), probability("p_w", p_w)
    holds = 0 < g <= n * p_w / 2
    why = "" if holds else f"g = {g} is not in [1, n p_W/2 = {n * p_w / 2:.4g}]"
    rate = float(kl((g - 1) / n, p_w)) if tight and holds else p_w / 8
    terms = {
        "coverage": math.log(window) - n * rate,
        "privacy": privacy,
        "novelty": math.log(n) - n * math.log(2),
    }
    return bound(terms, 1.0, holds, why)


def pair_upper(n: int, h: int, witness: int, p_h: float, g: int, f: int, eps: float) -> Bound:
    """Unknown window: h e^(-n p_h/8) + f h exp(-eps g (h - w + 1)/(2h)) + n 2^-n, pure eps-DP, both
    adjacencies.

    p_h: smallest mass of the reference's strings among u_1..u_h; it falls with h, so that the exponent is
    o(n) when h -> inf (D.6, point 7). Holds for w <= h and g <= n p_h/2.
    """
    n, h, f, g = whole("n", n, 1), whole("h", h, 1), whole("f", f, 2), whole("g", g, 1)
    witness, p_h = whole("witness", witness, 0), probability("p_h", p_h)
    gap = h - max(witness, 1) + 1
    holds = gap >= 1 and g <= n * p_h / 2
    why = "" if holds else f"needs w <= h (w = {witness}, h = {h}) and g <= n p_h/2 = {n * p_h / 2:.4g} (g = {g})"
    terms = {
        "coverage": math.log(h) - n * p_h / 8,
        "privacy": math.log(f * h) - positive("eps", eps) * g * max(gap, 0) / (2 * h),
        "novelty": math.log(n) - n * math.log(2),
    }
    return bound(terms, 1.0, holds, why)


def score_noise(
    languages: int,
    eps: float,
    delta: float | None = None,
    *,
    log_delta: float | None = None,
    calibration: str = "auto",
) -> float:
    """sigma of Gaussian generation: Delta_2 <= sqrt(f) for f languages, both adjacencies."""
    return gaussian_sigma(eps, math.sqrt(whole("f", languages, 1)), delta, log_delta=log_delta, calibration=calibration)


def novelty_bound(n: int) -> float:
    """log10 of n 2^-n, the chance that the second stage prints a string of the sample.

    The paper simplifies it to exp(-n/2), which is false for n = 2..13 (D.6, point 5).
    """
    return (math.log(whole("n", n, 1)) - n * math.log(2)) / LN10


def novelty(family: Family, i: int, window: int, n: int, terms: int = 4000) -> Error:
    """sum_k (1 - (1 - D(u_k))^n) / 2^n over the first 2^n strings of L_i beyond the window, as an interval.

    Strings after the first `terms` are bounded by n times their whole mass.
    """
    n, window = whole("n", n, 1), whole("window", window, 0)
    count = min(terms, 2**n if n < 60 else terms)
    masses = np.array([family.mass(family.member(i, j, window)) for j in range(1, count + 1)])
    seen = math.fsum(-np.expm1(n * np.log1p(-np.minimum(masses, 1 - 1e-16))))
    inside = [family.mass(family.string(k)) for k in range(1, window + 1)]
    left = 0.0 if count == 2**n else max(0.0, 1 - math.fsum(masses) - math.fsum(inside)) + 1e-15
    top = min(seen + n * left, float(n))
    shift = n * math.log(2)
    low, high = (log_of(seen) - shift) / LN10, (log_of(top) - shift) / LN10
    return Error(high, low, high, "interval")


# ---------------------------------------------------------------- exponents


def exponent_gen(p: float, eps: float, theta: float | None = None) -> float:
    """lim -1/n log err with threshold g = n theta (default p/2): min_{0<=x<=p} {kl(x || p) + eps/2 min(x,
    theta)}."""
    p, eps = open_probability("p", p), positive("eps", eps)
    theta = p / 2 if theta is None else positive("theta", theta)

    def total(x: float) -> float:
        return float(kl(x, p)) + eps / 2 * min(x, theta)

    tilted = p * math.exp(-eps / 2) / (1 - p + p * math.exp(-eps / 2))  # where the slope of the first piece is 0
    return min(total(x) for x in (0.0, min(tilted, theta), min(theta, p), p))


def exponent_gen_free(p: float, eps: float) -> float:
    """The same without threshold (score = a_i): -log(1 - p (1 - e^(-eps/2)))."""
    return -math.log1p(open_probability("p", p) * math.expm1(-positive("eps", eps) / 2))


# ---------------------------------------------------------------- exact errors


def gen_exact(
    n: int,
    masses: Sequence[float],
    g: int,
    bad: int,
    eps: float = 1.0,
    *,
    mechanism: str = "em",
    delta: float | None = None,
    f: int | None = None,
    log_delta: float | None = None,
    calibration: str = "auto",
) -> Error:
    """Exact P(a bad language is selected): one good language, `bad` bad ones whose witnesses are in the
    window.

    masses: D(u_k) of the good language's window strings (an empty list: it has none, a = n). The score is
    -(g - a)_+; no threshold is g = n. err = E[phi(min_k N_k)] by conditioning on which count is the smallest,
    relative error below 1e-9. Mechanisms: em, gaussian (f coordinates, default bad + 1), argmax (eps -> inf).
    """
    n, bad = whole("n", n, 1, MAX_N), whole("bad", bad, 0)
    g = whole("g", g, 0, n)
    masses = total_mass("masses", masses) if len(masses) else []
    log_phi = _log_failure(n, masses, g, bad, eps, mechanism, delta, f, log_delta, calibration)
    if bad == 0:
        return exact(-math.inf)
    if not masses:
        return exact(float(log_phi[n]))
    if min(masses) == 0:
        return exact(float(log_phi[0]))
    return exact(log_mean_of_minimum(n, masses, log_phi))


def _log_failure(n, masses, g, bad, eps, mechanism, delta, f, log_delta, calibration) -> np.ndarray:
    """log P(bad selected | smallest window count a) for a = 0..n: decreasing in a."""
    if mechanism not in MECHANISMS:
        raise InputError("mechanism", f"unknown {mechanism!r}", f"choose one of: {', '.join(MECHANISMS)}")
    lead = np.minimum(np.arange(n + 1), g).astype(np.float64)  # score of the good language minus that of a bad one
    if bad == 0:
        return np.full(n + 1, -math.inf)
    if mechanism == "em":
        return -np.logaddexp(0.0, positive("eps", eps) / 2 * lead - math.log(bad))
    if mechanism == "argmax":
        return np.where(lead > 0, -math.inf, math.log(bad / (bad + 1)))
    sigma = score_noise(bad + 1 if f is None else f, eps, delta, log_delta=log_delta, calibration=calibration)
    floor = special.log_ndtr(-lead / (math.sqrt(2) * sigma))  # one bad language; at most `bad` times as much
    if bad == 1:
        return floor
    out = np.minimum(floor + math.log(bad), 0.0)
    weights = np.maximum.reduce([log_binomial_pmf(n, p) for p in masses]) if masses else 0.0
    needed = out + weights > (floor + weights).max() - _NEGLIGIBLE  # elsewhere the upper bound is small enough
    kinds, back = np.unique(lead[needed], return_inverse=True)
    out[needed] = np.array([log_overtake(bad, x / sigma) for x in kinds])[back]
    return out


def log_overtake(bad: int, u: float) -> float:
    """log P(max of `bad` standard normals > another one + u): log int phi(z) (1 - Phi(z + u)^B) dz.

    Trapezoidal rule in the log domain. For u = 0 the value is log(B/(B + 1)).
    """
    z = np.linspace(-u - 12.0, 12.0, 1601) if u < 60 else np.linspace(-u / 2 - 12.0, -u / 2 + 12.0, 1601)
    below = bad * special.log_ndtr(z + u)  # log Phi^B
    inside = np.log(-np.expm1(np.minimum(below, -1e-320)))  # log(1 - Phi^B)
    rare = below > -1e-8
    inside[rare] = special.log_ndtr(-(z[rare] + u)) + math.log(bad)
    step = z[1] - z[0]
    return min(0.0, log_sum(-0.5 * z * z - 0.5 * math.log(2 * math.pi) + inside + math.log(step)))


def log_mean_of_minimum(n: int, masses: Sequence[float], log_phi: np.ndarray) -> float:
    """log E[phi(min_k N_k)] for multinomial counts N_k of positive masses and a decreasing positive phi.

    E = sum_k sum_t phi(t) P(N_k = t) P(the earlier counts > t, the later ones >= t | N_k = t). Because
    E >= E[phi(N_k)] for every k, the last factor needs absolute accuracy only, and terms 32 nats below the
    largest are dropped: the relative error stays below 1e-9.
    """
    masses = sorted(masses)
    t = np.arange(n + 1)
    logs = [log_phi + log_binomial_pmf(n, p) for p in masses]
    top = max(float(log.max()) for log in logs)
    total = []
    for k, log in enumerate(logs):
        others = [
            (p / (1 - masses[k]) if masses[k] < 1 else 0.0, 1 if j < k else 0) for j, p in enumerate(masses) if j != k
        ]
        for_t = t[log > top - _NEGLIGIBLE]
        share = _all_reach(n - for_t, for_t, others)
        with np.errstate(divide="ignore"):
            total.append(log_sum(log[for_t] + np.log(share)))
    return log_sum(total)


def _all_reach(m: np.ndarray, t: np.ndarray, others: list[tuple[float, int]]) -> np.ndarray:
    """P(N_j >= t + strict_j for all j) under m strings of masses p_j, elementwise; absolute error below
    1e-11."""
    if not others:
        return np.ones(len(t))
    short = [_binomial_below(m, p, t + strict) for p, strict in others]
    if len(others) == 1:
        return 1 - short[0]
    out = 1 - sum(short)
    certain = np.maximum.reduce(short) > 1 - 1e-16  # one of them falls short: the share is 0
    out[certain] = 0.0
    second = sum(short) - np.maximum.reduce(short)  # where only one can fall short, the sum is exact
    for at in np.flatnonzero(~certain & (second > 1e-17)):
        if len(others) == 2:
            out[at] += _both_below(int(m[at]), int(t[at]), others)
        else:
            out[at] = _all_reach_many(int(m[at]), int(t[at]), others)
    return np.clip(out, 0.0, 1.0)


def _binomial_below(m: np.ndarray, p: float, level: np.ndarray) -> np.ndarray:
    """P(Bin(m, p) < level), elementwise."""
    k = np.minimum(level - 1, m)
    inside = special.betaincc(np.maximum(k, 0) + 1.0, np.maximum(m - k, 1e-300), min(p, 1.0))
    return np.where(k < 0, 0.0, np.where(k >= m, 1.0, inside))


def _both_below(m: int, t: int, others: list[tuple[float, int]]) -> float:
    """P(N_1 < t + s_1, N_2 < t + s_2) under m strings."""
    (p, s), (q, r) = others
    middle, reach = m * p, 7.5 * math.sqrt(m * p * (1 - p)) + 20
    x = np.arange(max(0, int(middle - reach)), min(m, t + s - 1, int(middle + reach)) + 1)
    if not len(x):
        return 0.0
    choose = _log_factorials(m)[m] - _log_factorials(m)[x] - _log_factorials(m)[m - x]
    log_pmf = choose + x * log_of(p) + (m - x) * math.log1p(-p) if p < 1 else np.where(x == m, 0.0, -math.inf)
    return float(np.exp(log_pmf) @ _binomial_below(m - x, min(q / (1 - p), 1.0), np.full(len(x), t + r)))


_FACTORIALS = np.zeros(1)


def _log_factorials(m: int) -> np.ndarray:
    """log x! for x = 0..m at least, kept between calls."""
    global _FACTORIALS
    if len(_FACTORIALS) <= m:
        _FACTORIALS = special.gammaln(np.arange(2 * m + 2) + 1.0)
    return _FACTORIALS


def _all_reach_many(m: int, t: int, others: list[tuple[float, int]]) -> float:
    """P(N_j >= t + s_j for all j): coefficient of z^m in a product of truncated Poisson sequences, divided by
    P(Poisson(m) = m); sequences are cut 9 deviations from their means, an absolute error below 1e-13."""
    rest = max(0.0, 1 - math.fsum(p for p, _ in others))
    start, product = 0, np.ones(1)
    for p, least in [*((p, t + s) for p, s in others), (rest, 0)]:
        rate = m * p
        reach = 9 * math.sqrt(rate) + 35
        x = np.arange(max(least, int(rate - reach)), max(least, int(rate + reach)) + 1)
        weights = np.exp(special.xlogy(x, rate) - rate - special.gammaln(x + 1))
        start, product = start + int(x[0]), np.convolve(product, weights)
    if not start <= m < start + len(product):
        return 0.0
    at_m = math.exp(special.xlogy(m, m) - m - special.gammaln(m + 1))
    return float(product[m - start] / at_m)


# ---------------------------------------------------------------- any family


def gen_error(
    family: Family,
    n: int,
    f: float,
    window: int,
    g: int,
    eps: float = 1.0,
    *,
    mechanism: str = "em",
    pairs: bool = False,
    delta: float | None = None,
    samples: int = 20_000,
    rng: np.random.Generator | None = None,
) -> Error:
    """P(a bad language is selected) for any family: enumeration of the window counts, else Rao-Blackwell.

    pairs: search (i, t) in [f] x [window] instead (the window is then h). Several good languages are allowed.
    """
    n, window, g = whole("n", n, 1, MAX_N), whole("window", window, 1, MAX_WINDOW), whole("g", g, 1)
    k = generate.horizon_languages(family, f)
    members = generate.window_members(family, k, window)
    is_bad = np.array([family.bad(i) for i in range(1, k + 1)])
    chance = _bad_chance(n, g, members, is_bad, finite("eps", eps), mechanism, pairs, delta)
    masses = np.array([family.mass(family.string(j)) for j in range(1, window + 1)])
    seen = np.flatnonzero(masses > 0)
    cells = np.append(masses[seen], max(0.0, 1 - masses.sum()))

    def at(rows: np.ndarray) -> np.ndarray:
        counts = np.zeros((len(rows), window), dtype=np.int64)
        counts[:, seen] = rows[:, :-1]
        return chance(counts)

    if math.comb(n + len(cells) - 1, len(cells) - 1) <= MAX_STATES:
        rows = compositions(n, len(cells))
        logs = np.concatenate([at(rows[i : i + _BLOCK]) for i in range(0, len(rows), _BLOCK)])
        return exact(log_sum(logs + log_multinomial(rows, cells)), f"exact, {len(rows)} outcomes")
    rng = rng or np.random.default_rng(0)
    draws = rng.multinomial(n, cells / cells.sum(), size=whole("samples", samples, 2))
    logs = np.concatenate([at(draws[i : i + _DRAWS]) for i in range(0, len(draws), _DRAWS)])
    return estimate(np.exp(logs), f"Rao-Blackwell, {samples} draws")


def _bad_chance(n, g, members, is_bad, eps, mechanism, pairs, delta):
    """counts [m, W] -> log P(bad selected | counts), [m]."""

    def score(counts):
        if not pairs:
            return generate.scores(counts, members, n, g)
        return generate.pair_scores(counts, members, n, g).reshape(len(counts), -1)

    width = members.shape[1] if pairs else 1
    bad = np.repeat(is_bad, width)
    size = generate.pair_sensitivity(members.shape[1], g) if pairs else generate.SENSITIVITY
    if not bad.any():
        return lambda counts: np.full(len(counts), -math.inf)
    if mechanism == "em":
        positive("eps", eps)
        return lambda counts: special.logsumexp(exponential_log_law(score(counts), size, eps)[:, bad], axis=-1)
    if mechanism == "argmax":
        return lambda counts: np.where(bad[np.argmax(score(counts), axis=-1)], 0.0, -math.inf)
    if mechanism != "gaussian":
        raise InputError("mechanism", f"unknown {mechanism!r}", f"choose one of: {', '.join(MECHANISMS)}")
    sigma = score_noise(len(bad), eps, delta) * size

    def gaussian(counts):
        rows, back = np.unique(score(counts), axis=0, return_inverse=True)
        return special.logsumexp(gaussian_log_law(rows, sigma)[:, bad], axis=-1)[back.ravel()]

    return gaussian
