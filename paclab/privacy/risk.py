"""What a budget means to an attacker: MI <-> success <-> (epsilon, delta), at bound level and attack level.

Knows: one secret guess with a known prior, mutual information in nats, differential-privacy parameters. Does
not know: mechanisms, steps, composition. Bound level says what no attack can exceed; attack level says what
the best attack on one named mechanism reaches. Two guarantees with equal bounds need not have equal attacks.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from paclab.errors import InputError
from paclab.privacy.channels import excess

LOG2 = float(np.log(2.0))


# ---------------------------------------------------------------- mutual information <-> success


def kl_from_gain(gain: ArrayLike, prior: ArrayLike = 0.5):
    """kl(prior + gain || prior) in nats, exact to relative 1e-14 for gains as small as 1e-150."""
    x, pi = np.asarray(gain, dtype=np.float64), _prior(prior)
    x = np.minimum(x, 1.0 - pi)
    return _plain(pi * excess(x / pi) + (1.0 - pi) * excess(-x / (1.0 - pi), (1.0 - pi - x) / (1.0 - pi)))


def gain_from_mi(mi: ArrayLike, prior: ArrayLike = 0.5):
    """Largest success minus prior that `mi` nats allow: the root x of kl(prior + x || prior) = mi.

    An upper bound on every attack, rounded up by a relative 1e-12; 1 - prior when mi >= log(1/prior).
    Arguments broadcast. Raises InputError for a negative mi or a prior outside (0, 1). Source: generation
    dossier A.1.
    """
    i, pi = np.broadcast_arrays(_nats("mi", mi), _prior(prior))
    i, pi = i.ravel(), pi.ravel()
    top = 1.0 - pi
    low, high = np.zeros_like(i), top.copy()
    x = np.minimum(np.sqrt(2.0 * pi * top * np.minimum(i, 10.0)), 0.5 * top)
    for _ in range(100):  # Newton inside a bracket; kl is convex and increasing in x
        value = kl_from_gain(x, pi)
        low, high = np.where(value < i, x, low), np.where(value < i, high, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = np.log1p(x / pi) - np.log1p(-x / top)
            guess = x - (value - i) / slope
        inside = (guess > low) & (guess < high)
        new = np.where(inside, guess, 0.5 * (low + high))
        done = np.abs(new - x) <= 1e-14 * x
        x = new
        if np.all(done):
            break
    x = np.where(i >= -np.log(pi), top, np.where(i == 0, 0.0, np.minimum(x * (1.0 + 1e-12), top)))
    return _plain(x.reshape(np.broadcast_shapes(np.shape(mi), np.shape(prior))))


def success_from_mi(mi: ArrayLike, prior: ArrayLike = 0.5):
    """Largest success probability that `mi` nats allow from a guess of success `prior`; an upper bound.

    At prior 1/2 it is 1 from log 2 on. For small budgets read `gain_from_mi`, which keeps its digits.
    Source: PACZero's bound KL(Bern(p) || Bern(1/2)) <= I, dossier C.
    """
    return _plain(np.minimum(np.asarray(_prior(prior) + gain_from_mi(mi, prior)), 1.0))


def mi_from_success(success: ArrayLike, prior: ArrayLike = 0.5):
    """Least mutual information kl(success || prior) in nats that an attack of this success needs."""
    s, pi = np.broadcast_arrays(np.asarray(success, dtype=np.float64), _prior(prior))
    if not np.all((s >= pi) & (s <= 1)):
        raise InputError("success", "must lie between the prior and 1", "guessing alone reaches the prior")
    return kl_from_gain(s - pi, pi)


# ---------------------------------------------------------------- mutual information <-> epsilon


def mi_from_epsilon(epsilon: ArrayLike, delta: float = 0.0):
    """Nats with the same worst-case membership success at prior 1/2 as (epsilon, delta)-DP: a matched bound.

    For delta = 0 it is also the exact information of randomised response, the worst epsilon-DP mechanism.
    Raises InputError unless epsilon >= 0 and 0 <= delta < 1. Source: generation dossier E, dossier C.
    """
    return kl_from_gain(gain_from_epsilon(epsilon, delta))


def gain_from_epsilon(epsilon: ArrayLike, delta: float = 0.0):
    """Worst-case success minus 1/2 under (epsilon, delta)-DP: (e^eps - 1 + 2 delta) / (2 (e^eps + 1))."""
    e = _nats("epsilon", epsilon)
    _delta(delta)
    return _plain(0.5 * np.tanh(e / 2.0) + delta * special.expit(-e))


def epsilon_from_mi(mi: ArrayLike, delta: float = 0.0):
    """The epsilon of (epsilon, delta)-DP whose worst-case success is the bound of `mi` nats; inf from log 2.

    Bound level: the two sides share an upper bound at prior 1/2, not an attack. Rounded up with the gain.
    Source: dossier C; inverse log((1 - delta)/(1 - s) - 1) of generation dossier E.
    """
    x = np.asarray(gain_from_mi(mi))
    _delta(delta)
    lead = np.maximum(2.0 * x - delta, 0.0)  # below 0, delta alone allows more than `mi` nats do
    with np.errstate(divide="ignore"):
        return _plain(np.log1p(lead / (0.5 - x)))


# ---------------------------------------------------------------- attack level, exactly Gaussian mechanisms


def gdp_delta(mu: float, epsilon: float) -> float:
    """delta of a mu-GDP mechanism at epsilon = e: Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)."""
    if not mu > 0:
        raise InputError("mu", f"must be positive, got {mu}", "give sensitivity / sigma")
    near = special.log_ndtr(-epsilon / mu + mu / 2.0)
    far = epsilon + special.log_ndtr(-epsilon / mu - mu / 2.0)
    return float(-np.exp(near) * np.expm1(min(far - near, 0.0)))


def gdp_mu(epsilon: float, delta: float) -> float:
    """mu of the exactly Gaussian mechanism that is (epsilon, delta)-DP and no better, for delta > 0."""
    e = float(_nats("epsilon", epsilon))
    if not 0 < delta < 1:
        raise InputError("delta", f"must lie in (0, 1) for a Gaussian mechanism, got {delta}", "use 1e-5")
    if not np.isfinite(e):
        raise InputError("epsilon", "is infinite", "give a finite epsilon")
    top = np.log(100.0 + 2.0 * np.sqrt(e))  # there delta is 1 in float64
    log_mu = optimize.brentq(lambda u: gdp_delta(np.exp(u), e) - delta, np.log(1e-18), top, xtol=1e-13)
    return float(np.exp(log_mu))


def gdp_success(mu: ArrayLike):
    """Success Phi(mu/2) of the best attack on a mu-GDP mechanism at prior 1/2: exact, not a bound."""
    return _plain(special.ndtr(np.asarray(mu, dtype=np.float64) / 2.0))


def typical_record_gain(mi: ArrayLike, candidates: int):
    """Mean over records of the best attacker's success minus 1/2, sqrt(mi / (pi (M - 1))), for small mi.

    For random balanced candidates and leakage spread over all of them; the most exposed record is above it.
    [our reading] Source: generation dossier A.6.
    """
    if candidates < 2:
        raise InputError("candidates", f"must be at least 2, got {candidates}", "use 126 or 128")
    return _plain(np.sqrt(_nats("mi", mi) / (np.pi * (candidates - 1))))


# ---------------------------------------------------------------- one card with everything


class RiskCard(NamedTuple):
    """One budget in every currency; probabilities refer to one guess by the best attacker."""

    mi: float  # nats
    prior: float  # success of the best guess without any release
    success: float  # upper bound on its success with the releases
    advantage: float  # (success - prior) / (1 - prior): 2 p - 1 at prior 1/2
    epsilon: float  # matched at bound level, prior 1/2
    delta: float  # that epsilon's delta
    gaussian_delta: float  # delta at which an exactly Gaussian mechanism is tight at that epsilon
    gaussian_success: float | None  # its best attack at prior 1/2; None when epsilon is infinite


def risk_card(mi: float | None = None, epsilon: float | None = None, delta: float | None = None,
              prior: float = 0.5) -> RiskCard:
    """Price a budget given as exactly one of `mi` (nats) or `epsilon` (with `delta`, default 0).

    The Gaussian attack level needs a positive delta: the one given, else 1e-5. Raises InputError for bad
    values.
    """
    if (mi is None) == (epsilon is None):
        raise InputError("mi", "needs exactly one of `mi` and `epsilon`", "give mi=0.33, say, or epsilon=2")
    bound_delta = 0.0 if delta is None else delta
    _delta(bound_delta)
    if mi is None:
        mi = mi_from_epsilon(epsilon, bound_delta)
    else:
        epsilon = epsilon_from_mi(mi, bound_delta)
    gain = gain_from_mi(mi, prior)
    gaussian_delta = bound_delta or 1e-5
    attack: float | None = None
    if epsilon == 0 and not bound_delta:
        attack = 0.5
    elif np.isfinite(epsilon):
        attack = gdp_success(gdp_mu(epsilon, gaussian_delta))
    return RiskCard(float(mi), float(prior), success_from_mi(mi, prior), gain / (1.0 - prior), float(epsilon),
                    float(bound_delta), gaussian_delta, attack)


# ---------------------------------------------------------------- checks


def _nats(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array >= 0):
        bad = array[~(array >= 0)].flat[0]
        raise InputError(name, f"must be zero or more, got {bad}", "give a number from 0 up")
    return array


def _prior(value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if not np.all((array > 0) & (array < 1)):
        raise InputError("prior", "must lie strictly between 0 and 1", "use 0.5 for balanced membership")
    return array


def _delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise InputError("delta", f"must lie in [0, 1), got {delta}", "use 1e-5, or 0 for pure epsilon")


def _plain(array):
    """A Python float for scalar input, the array otherwise."""
    return array.item() if np.ndim(array) == 0 else array
