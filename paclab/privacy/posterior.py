"""The best attacker's belief over the M candidates, and how much it has learnt: the realised-leakage meter.

Knows: M equiprobable candidates, their votes, one released value per step. Does not know: the secret index,
how noise was calibrated. A posterior is private state: never write it to a public file.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from paclab.errors import InputError
from paclab.privacy.channels import Q_FLOOR, excess


class Posterior(NamedTuple):
    """Log-weights l_i = log(M p_i) [M]: 0 at the uniform prior, so tiny updates keep all their digits."""

    log_weights: np.ndarray


def uniform(candidates: int) -> Posterior:
    """The prior: every one of the M candidates equally likely. Raises InputError for M < 2."""
    if candidates < 2:
        raise InputError("candidates", f"must be at least 2, got {candidates}", "use an even number")
    return Posterior(np.zeros(candidates))


def update(posterior: Posterior, log_likelihood: ArrayLike) -> Posterior:
    """Bayes' rule: log_likelihood [M] of the released value under each candidate, up to a constant.

    -inf excludes a candidate. Raises InputError for nan, +inf, a wrong shape, or no candidate left. Source:
    generation dossier A.4, numerical rules A.8.
    """
    step = np.asarray(log_likelihood, dtype=np.float64)
    if step.shape != posterior.log_weights.shape:
        raise InputError("log_likelihood", f"shape {step.shape}, posterior {posterior.log_weights.shape}",
                         "give one value per candidate")
    if np.any(np.isnan(step)) or np.any(step == np.inf):
        raise InputError("log_likelihood", "is not a number or infinite", "check the released value")
    logs = posterior.log_weights + step
    possible = logs[logs > -np.inf]
    if not possible.size:
        raise InputError("log_likelihood", "excludes every candidate", "check that votes and channel match")
    logs = logs - np.mean(possible)
    if np.all(np.abs(logs) < 0.5):
        return Posterior(logs - np.log1p(np.mean(np.expm1(logs))))
    return Posterior(logs - (special.logsumexp(logs) - np.log(logs.size)))


def weights(posterior: Posterior) -> np.ndarray:
    """p [M], summing to 1; a weight below 1e-308 prints as 0 here but is kept in the log-weights."""
    return special.softmax(posterior.log_weights)


def vote_shares(posterior: Posterior, votes: ArrayLike) -> tuple[float, float]:
    """(q_plus, q_minus): posterior weight of the candidates [M] voting +1 and -1, each to full precision.

    A side with any vote never underflows to 0: it is at least 1e-290, which only makes calibrated noise
    larger. Use the smaller of the two as the channel's q_plus (the channels are symmetric). Raises InputError
    for votes other than +1 and -1: break ties first.
    """
    v = _signed(posterior, votes)
    logs = posterior.log_weights - np.log(v.size)
    return _side(logs[v == 1]), _side(logs[v == -1])


def q_plus(posterior: Posterior, votes: ArrayLike) -> float:
    """Posterior weight of the candidates [M] voting +1; float64 may round a tiny minority away near 1."""
    return vote_shares(posterior, votes)[0]


def _side(logs: np.ndarray) -> float:
    return min(1.0, max(Q_FLOOR, float(np.exp(special.logsumexp(logs))))) if logs.size else 0.0


def leakage(posterior: Posterior) -> float:
    """Realised leakage log M - H(p) in nats, without cancellation; its mean over runs is I(S; releases).

    Source: generation dossier A.5 and A.8 (mean of phi(M p_i - 1)).
    """
    r = np.expm1(posterior.log_weights)
    return float(np.mean(excess(r, np.exp(posterior.log_weights))))


def record_membership(posterior: Posterior, membership: ArrayLike) -> np.ndarray:
    """P(record j in the secret half) [N], from membership [N, M]; source: generation dossier A.6."""
    member = np.asarray(membership, dtype=np.float64)
    if member.ndim != 2 or member.shape[1] != posterior.log_weights.size:
        raise InputError("membership", f"shape {member.shape} for {posterior.log_weights.size} candidates",
                         "give the [N, M] matrix the run used")
    prior = member.mean(axis=1)
    learnt = (member - prior[:, None]) @ np.expm1(posterior.log_weights) / member.shape[1]
    return np.clip(prior + learnt, 0.0, 1.0)


def record_success(posterior: Posterior, membership: ArrayLike) -> np.ndarray:
    """Success [N] of the best guess on each record's membership given this transcript: max(P, 1 - P)."""
    inside = record_membership(posterior, membership)
    return np.maximum(inside, 1.0 - inside)


# ---------------------------------------------------------------- likelihoods of the released value


def gaussian_log_likelihood(votes: ArrayLike, released: float, sigma: float) -> np.ndarray:
    """log N(released; votes, sigma^2) [M] up to a constant, for the real-valued release Ytilde."""
    if not sigma > 0 or not np.isfinite(released):
        raise InputError("sigma", f"needs a positive sigma and a finite release, got {sigma} and {released}",
                         "route a zero budget to ZPL")
    return _pm_one(votes) * (released / sigma) / sigma  # the square terms are the same for every vote


def gaussian_sign_log_likelihood(votes: ArrayLike, released: int, sigma: float) -> np.ndarray:
    """log P(sign of the Gaussian release = released | vote) [M], when only that sign leaves the door."""
    if not sigma > 0:
        raise InputError("sigma", f"must be positive, got {sigma}", "do not update on a unanimous vote")
    return special.log_ndtr(_pm_one(votes) * _bit(released) / sigma)


def rr_log_likelihood(votes: ArrayLike, released: int, flip: float) -> np.ndarray:
    """log of (1 - flip) where the vote equals the released bit, of flip elsewhere [M]; dossier A10."""
    if not 0 <= flip <= 1:
        raise InputError("flip", f"must lie in [0, 1], got {flip}", "pass a probability")
    with np.errstate(divide="ignore"):
        same, other = np.log1p(-flip), np.log(flip)
    return np.where(_pm_one(votes) == _bit(released), same, other)


def _pm_one(votes: ArrayLike) -> np.ndarray:
    v = np.asarray(votes, dtype=np.float64)
    if not np.all(np.abs(v) == 1):
        raise InputError("votes", "must all be +1 or -1", "break ties with a public coin first")
    return v


def _signed(posterior: Posterior, votes: ArrayLike) -> np.ndarray:
    v = _pm_one(votes)
    if v.shape != posterior.log_weights.shape:
        raise InputError("votes", f"shape {v.shape} for {posterior.log_weights.size} candidates",
                         "give one vote per candidate")
    return v


def _bit(released: int) -> int:
    if released not in (1, -1):
        raise InputError("released", f"must be +1 or -1, got {released}", "pass the released sign")
    return int(released)
