"""Releases that select an index: the exponential and the Gaussian mechanism, with their exact output laws.

    scores -> release -> index        score [k]: one number per candidate, larger is better

Knows score vectors, their sensitivity and the noise. Does not know languages, samples or what the index
means. Every law is computed in the log domain, so that an output of probability 1e-400 keeps its digits.
Real noise is drawn in floating point: the laws are exact for the ideal mechanism, not proof against attacks
on float rounding.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from paclab.errors import InputError
from paclab.releases.base import Release, Released

_STEP = 1 / 32  # quadrature step in standard deviations; halving it changes nothing above 1e-12 (tested)
_TAIL = 13.0  # standard deviations kept outside the outermost score: the rest is below 1e-37 of the integrand
_MAX_NODES = 400_000


def _number(name: str, value: float, low: float, high: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise InputError(name, f"must be a number, got {value!r}", "give a number")
    if not low < value < high:
        raise InputError(name, f"{value!r} is not between {low:g} and {high:g}", "choose a value inside the range")
    return float(value)


def exponential_log_law(scores: ArrayLike, sensitivity: float, eps: float) -> np.ndarray:
    """Log output law of the exponential mechanism, P(i) proportional to exp(eps q_i / (2 Delta)).

    scores [..., k] -> log-probabilities [..., k]. Pure eps-DP for the adjacency in which one change moves
    every score by at most `sensitivity` (paper 4, design 3; McSherry and Talwar).
    """
    eps, sensitivity = _number("eps", eps, 0), _number("sensitivity", sensitivity, 0)
    q = np.asarray(scores, dtype=np.float64)
    with np.errstate(over="ignore"):
        tilt = (q - q.max(axis=-1, keepdims=True)) * (eps / (2 * sensitivity))
    return tilt - special.logsumexp(tilt, axis=-1, keepdims=True)


def gaussian_log_law(scores: ArrayLike, sigma: float) -> np.ndarray:
    """Log law of argmax(q + N(0, sigma^2 I)): scores [..., k] -> [..., k].

    P(i) = int phi(z) prod_{j != i} Phi(z + (q_i - q_j)/sigma) dz by the trapezoidal rule on an analytic
    integrand, log domain; relative error below 1e-9 while the gaps stay below 10^4 sigma (then: InputError).
    """
    sigma = _number("sigma", sigma, 0)
    q = np.asarray(scores, dtype=np.float64)
    if q.shape[-1] == 2:  # two candidates: the difference of two noises is N(0, 2 sigma^2)
        lead = (q[..., 0] - q[..., 1]) / (math.sqrt(2) * sigma)
        return special.log_ndtr(np.stack([lead, -lead], axis=-1))
    flat = q.reshape(-1, q.shape[-1]) / sigma
    laws = np.stack([_argmax_law(row) for row in flat]) if flat.size else flat
    return laws.reshape(q.shape)


def _argmax_law(u: np.ndarray) -> np.ndarray:
    if len(u) == 1:
        return np.zeros(1)
    reach = float(u.max() - u.min())
    if reach + 2 * _TAIL > _MAX_NODES * _STEP:
        raise InputError("sigma", f"scores differ by {reach:.3g} standard deviations", "raise sigma")
    z = np.arange(-_TAIL, reach + _TAIL, _STEP)
    log_phi = -0.5 * z * z - 0.5 * math.log(2 * math.pi) + math.log(_STEP)
    out = np.empty(len(u))
    for i in range(len(u)):
        others = np.delete(u, i)
        out[i] = special.logsumexp(log_phi + special.log_ndtr(z[:, None] + (u[i] - others)).sum(axis=1))
    return out - special.logsumexp(out)


def log_delta_gaussian(ratio: float, eps: float) -> float:
    """log delta(eps) of the Gaussian mechanism with noise `ratio` = sigma / Delta_2 (Balle and Wang, Theorem 8).

    delta = Phi(-x) - e^eps Phi(-y) with x = eps ratio - 1/(2 ratio), y = x + 1/ratio. For x > 0 both terms share
    the factor phi(x), which leaves a difference of Mills ratios R(x) - R(y); where even that cancels, its upper
    bound (y - x)/(1 + x^2) is returned, so that the value never falls below the truth by more than rounding.
    """
    x, y = eps * ratio - 0.5 / ratio, eps * ratio + 0.5 / ratio
    if x <= 0:
        a, b = float(special.log_ndtr(-x)), eps + float(special.log_ndtr(-y))
        return a + math.log1p(-math.exp(min(b - a, 0.0))) if b < a else -math.inf
    near, far = float(special.erfcx(x / math.sqrt(2))), float(special.erfcx(y / math.sqrt(2)))
    drop = math.sqrt(math.pi / 2) * (near - far)
    if near - far < 1e-7 * near:
        drop = (y - x) / (1 + x * x)
    return -0.5 * x * x - 0.5 * math.log(2 * math.pi) + math.log(drop)


def log_delta_of(delta: float | None, log_delta: float | None) -> float:
    """Natural logarithm of delta, given either way; delta must lie in (0, 1)."""
    if (delta is None) == (log_delta is None):
        raise InputError("delta", "give exactly one of delta and log_delta", "drop one of them")
    if delta is not None:
        return math.log(_number("delta", delta, 0, 1))
    return _number("log_delta", log_delta, -math.inf, 0)


def classical_sigma(
    eps: float, sensitivity: float, delta: float | None = None, *, log_delta: float | None = None
) -> float:
    """sigma = Delta_2 sqrt(2 log(1.25/delta)) / eps, a theorem for 0 < eps < 1 only (Dwork and Roth, A.1)."""
    eps = _number("eps", eps, 0)
    if eps >= 1:
        raise InputError(
            "eps",
            f"{eps:g}: the classical calibration is proven for eps < 1 only",
            "use calibration='analytic'",
        )
    tail = math.log(1.25) - log_delta_of(delta, log_delta)
    return _number("sensitivity", sensitivity, 0) * math.sqrt(2 * tail) / eps


def analytic_sigma(
    eps: float, sensitivity: float, delta: float | None = None, *, log_delta: float | None = None
) -> float:
    """Smallest sigma, up to 1e-9 and never below, for which Gaussian noise is (eps, delta)-DP (Balle and
    Wang)."""
    eps, sensitivity = _number("eps", eps, 0), _number("sensitivity", sensitivity, 0)
    target = log_delta_of(delta, log_delta)

    def spare(log_ratio: float) -> float:
        return max(log_delta_gaussian(math.exp(log_ratio), eps), -1e300) - target

    low = high = 0.0
    while spare(low) < 0:
        low -= 1.0
    while spare(high) > 0:
        high += 1.0
    root = optimize.brentq(spare, low, high, xtol=1e-12) if low < high else low
    nudge = 1e-10
    while spare(root + nudge) > 0:
        nudge *= 2
    return sensitivity * math.exp(root + nudge)


def gaussian_sigma(
    eps: float,
    sensitivity: float,
    delta: float | None = None,
    *,
    log_delta: float | None = None,
    calibration: str = "auto",
) -> float:
    """Noise of the Gaussian mechanism: `classical`, `analytic`, or `auto` (classical for eps < 1, else
    analytic)."""
    if calibration not in ("auto", "classical", "analytic"):
        raise InputError("calibration", f"unknown {calibration!r}", "choose auto, classical or analytic")
    if calibration == "auto":
        calibration = "classical" if 0 < eps < 1 else "analytic"
    chosen = classical_sigma if calibration == "classical" else analytic_sigma
    return chosen(eps, sensitivity, delta, log_delta=log_delta)


def hockey_stick(log_p: np.ndarray, log_q: np.ndarray, eps: float) -> float:
    """delta needed between two output laws at eps: sum (P - e^eps Q)_+."""
    return float(np.maximum(np.exp(log_p) - np.exp(eps + np.asarray(log_q)), 0.0).sum())


def worst_log_ratio(log_p: np.ndarray, log_q: np.ndarray) -> float:
    """max_i |log P(i) - log Q(i)|, the eps that this pair of laws needs; outputs impossible under both are
    skipped."""
    both = ~(np.isneginf(log_p) & np.isneginf(log_q))
    return float(np.abs(np.asarray(log_p)[both] - np.asarray(log_q)[both]).max())


def exponential_selection(sensitivity: float, eps: float, adjacency: str, rng: np.random.Generator) -> Release:
    """Release of one index per call by the exponential mechanism; `rng` is the secret noise.

    step(private, t, scores [k]) -> Released((index,)), 1-based. Pure eps-DP per call for `adjacency`.
    """

    def step(private: int, t: int, scores: np.ndarray) -> tuple[int, Released, dict]:
        law = np.exp(exponential_log_law(scores, sensitivity, eps))
        index = int(min(np.searchsorted(np.cumsum(law), rng.random()), len(law) - 1)) + 1
        return private + 1, Released((float(index),)), {"scores": list(map(float, scores))}

    guarantee = f"pure {eps:g}-DP per index under {adjacency}, exponential mechanism"
    return Release("exponential selection", guarantee, True, lambda: 0, step, lambda private, t, info: private + 1)


def gaussian_selection(sigma: float, guarantee: str, rng: np.random.Generator) -> Release:
    """Release of one index per call: argmax of the scores plus N(0, sigma^2 I); calibrate sigma first."""
    sigma = _number("sigma", sigma, 0)

    def step(private: int, t: int, scores: np.ndarray) -> tuple[int, Released, dict]:
        index = int(np.argmax(np.asarray(scores) + sigma * rng.standard_normal(len(scores)))) + 1
        return private + 1, Released((float(index),)), {"scores": list(map(float, scores))}

    return Release("Gaussian selection", guarantee, True, lambda: 0, step, lambda private, t, info: private + 1)
