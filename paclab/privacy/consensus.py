"""Consensus detection: public candidate halves of a pool, their sign votes, unanimity, and its law.

Knows: a pool of N records, M candidate halves, one number per record and direction. Does not know: which half
is the secret one, noise, budgets. Subsets are public candidates: draw them from a public, publishable stream.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from paclab.errors import InputError

_BITS = 52  # fixed-point resolution of a record's value relative to the largest in its row


# ---------------------------------------------------------------- candidate subsets


def complementary_halves(pool_size: int, candidates: int, rng: np.random.Generator) -> np.ndarray:
    """Membership [N, M] of M/2 pairs of exact complementary halves (columns 2k and 2k+1), all distinct.

    Row sums are exactly M/2 and column sums exactly N/2, so every record's prior membership is 1/2. Raises
    InputError for odd or too small sizes. Source: zeroth-order dossier A11.2 [ours].
    """
    _check_candidates(candidates)
    if pool_size < 2 or pool_size % 2:
        raise InputError("pool", f"{pool_size} records cannot be cut into two equal halves",
                         "use an even number of records")
    halves = math.comb(pool_size, pool_size // 2)
    if halves < candidates:
        raise InputError("pool", f"{pool_size} records have only {halves} distinct halves",
                         f"use a larger pool or fewer than {candidates} candidates")
    membership = np.zeros((pool_size, candidates), dtype=bool)
    seen: set[bytes] = set()
    for column in range(0, candidates, 2):
        while True:  # ends: fewer pairs are taken than exist, and duplicates are only likely in tiny pools
            half = np.zeros(pool_size, dtype=bool)
            half[rng.permutation(pool_size)[: pool_size // 2]] = True
            name = (half if half[0] else ~half).tobytes()
            if name not in seen:
                break
        seen.add(name)
        membership[:, column], membership[:, column + 1] = half, ~half
    return membership


def independent_halves(pool_size: int, candidates: int, rng: np.random.Generator) -> np.ndarray:
    """Membership [N, M] drawn as in the papers' code: each record joins M/2 of the M candidates at random.

    Row sums are exactly M/2; column sums vary (sd about sqrt(N)/2). Raises InputError when M is odd or below
    2, or when the draw does not give M distinct, non-empty candidates (tiny pools). Source: dossier A3.
    """
    _check_candidates(candidates)
    if pool_size < 1:
        raise InputError("pool", "is empty", "use at least one record")
    row = np.arange(candidates) < candidates // 2
    membership = rng.permuted(np.broadcast_to(row, (pool_size, candidates)), axis=1)
    distinct = len({column.tobytes() for column in np.ascontiguousarray(membership.T)})
    if distinct < candidates or not membership.any(axis=0).all():
        raise InputError("pool", f"{pool_size} records are too few for {candidates} distinct candidates",
                         "use a larger pool or fewer candidates")
    return membership


def _check_candidates(candidates: int) -> None:
    if candidates < 2 or candidates % 2:
        raise InputError("candidates", f"must be even and at least 2, got {candidates}",
                         f"use {max(2, candidates + 1)}, so that every record lies in exactly half of them")


# ---------------------------------------------------------------- votes


def candidate_means(differences: ArrayLike, membership: ArrayLike) -> np.ndarray:
    """Mean of the per-record values over each candidate: [N] -> [M], [K, N] -> [K, M], float64.

    Values are rounded once to 2^-52 of the largest magnitude of their row and summed as integers: the result
    does not depend on record order, threads or machine, and values that cancel give exactly 0 (a tie).
    Raises InputError for values that are not finite or shapes that do not fit.
    """
    values, member = np.asarray(differences, dtype=np.float64), np.asarray(membership, dtype=bool)
    if member.ndim != 2 or values.ndim not in (1, 2) or values.shape[-1] != member.shape[0]:
        raise InputError("differences", f"shape {values.shape} does not fit membership {member.shape}",
                         "give one value per pool record, [N] or [K, N]")
    sizes = member.sum(axis=0)
    if not np.all(sizes > 0):
        raise InputError("membership", "has an empty candidate", "draw the candidates again")
    if not np.all(np.isfinite(values)):
        raise InputError("differences", f"{np.count_nonzero(~np.isfinite(values))} values are not finite",
                         "drop these records for all candidates, or lower the learning rate")
    bits = min(_BITS, 61 - int(values.shape[-1]).bit_length())  # N values of this size fit in int64
    _, exponent = np.frexp(np.max(np.abs(values), axis=-1, keepdims=True))
    fixed = np.rint(np.ldexp(values, bits - exponent)).astype(np.int64)
    sums = fixed @ member.astype(np.int64)
    return np.ldexp(sums / sizes, exponent - bits)


def sign_votes(means: ArrayLike, tie: str = "abstain") -> np.ndarray:
    """Signs of the candidate means as int8; an exact 0 votes 0 ("abstain") or +1 ("plus", the papers' rule).

    Raises InputError for means that are not finite or an unknown tie rule. Source: dossier A4.4, N3.
    """
    means = np.asarray(means, dtype=np.float64)
    if tie not in ("abstain", "plus"):
        raise InputError("tie", f"unknown rule {tie!r}", "choose one of: abstain, plus")
    if not np.all(np.isfinite(means)):
        raise InputError("means", f"{np.count_nonzero(~np.isfinite(means))} candidate means are not finite",
                         "drop the records whose loss is not finite, for all candidates")
    votes = np.sign(means).astype(np.int8)
    if tie == "plus":
        votes[votes == 0] = 1
    return votes


def break_ties(votes: ArrayLike, coin: ArrayLike) -> np.ndarray:
    """Replace abstentions (0) by one public coin (+1 or -1) per direction, shared by all candidates.

    Needed before a binary channel: [M] with a scalar coin, [K, M] with coins [K]. The coin must be
    independent of the secret index; it then costs nothing. [our reading]
    """
    votes, coin = np.asarray(votes), np.asarray(coin)
    if not np.all(np.abs(coin) == 1):
        raise InputError("coin", "must be +1 or -1", "draw it from the public stream")
    return np.where(votes == 0, coin[..., None], votes).astype(np.int8)


class Consensus(NamedTuple):
    """What the candidates agree on; every field is private unless `sign` is non-zero."""

    sign: int  # +1 or -1 when all M votes are equal and non-zero, else 0
    q_plus: float  # posterior weight of the candidates voting +1
    q_minus: float  # posterior weight of those voting -1
    agreement: float  # unweighted share of the larger side


def unanimity(votes: ArrayLike):
    """+1 or -1 where all M votes are equal and non-zero, else 0: [M] -> int, [K, M] -> [K].

    An exact support test: it looks at every candidate, never at the posterior, so one of tiny
    posterior weight still counts, and the release of a unanimous sign is a function of the pool alone.
    """
    votes = np.asarray(votes)
    sign = np.where(np.all(votes == 1, axis=-1), 1, np.where(np.all(votes == -1, axis=-1), -1, 0))
    return int(sign) if sign.ndim == 0 else sign.astype(np.int8)


def consensus_of(votes: ArrayLike, weights: ArrayLike) -> Consensus:
    """Unanimity and weighted shares of one direction's votes [M] under posterior weights [M]."""
    votes, weights = np.asarray(votes), np.asarray(weights, dtype=np.float64)
    if votes.ndim != 1 or votes.shape != weights.shape:
        raise InputError("votes", f"shape {votes.shape} does not fit weights {weights.shape}",
                         "give one vote per candidate")
    plus, minus = votes == 1, votes == -1
    return Consensus(unanimity(votes), float(weights[plus].sum()), float(weights[minus].sum()),
                     float(max(plus.mean(), minus.mean())))


# ---------------------------------------------------------------- the law of free steps


def pool_t_statistic(differences: ArrayLike):
    """t = mean sqrt(N) / sd of the pool's values along the last axis: how far the pool is from a tie.

    With the N-1 standard deviation a random exact half's mean has standard deviation exactly sd / sqrt(N)
    around the pool's mean. Constant values give +-inf, all-zero values 0. Source: dossier A10 [ours].
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.shape[-1] < 2:
        raise InputError("differences", "needs at least two records", "use a larger pool")
    mean, sd = values.mean(axis=-1), values.std(axis=-1, ddof=1)
    flat = np.ptp(values, axis=-1) == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(flat, np.where(mean == 0, 0.0, np.copysign(np.inf, mean)),
                     mean * np.sqrt(values.shape[-1]) / sd)
    return t.item() if t.ndim == 0 else t


def free_step_probability(t: ArrayLike, candidates: int, draw: str = "independent"):
    """P(all M halves vote alike | t): Phi(|t|)^M, or (2 Phi(|t|) - 1)^(M/2) for complementary pairs.

    Both are Gaussian approximations in N for exact halves; t is `pool_t_statistic`. The papers' draw (each
    record in exactly M/2 candidates of varying size) couples the candidates; its value lies a little below
    Phi^M: .28 against .33 at M = 16, t = 1.5 and .43 against .45 at M = 128, t = 2.5 (simulated, N = 400).
    [our reading] Source: dossier A10.
    """
    t = np.abs(np.asarray(t, dtype=np.float64))
    _check_candidates(candidates)
    if draw == "independent":
        p = np.exp(candidates * special.log_ndtr(t))
    elif draw == "complementary":
        p = special.erf(t / np.sqrt(2.0)) ** (candidates // 2)
    else:
        raise InputError("draw", f"unknown law {draw!r}", "choose one of: independent, complementary")
    return p.item() if p.ndim == 0 else p


def expected_free_fraction(tau: ArrayLike, candidates: int, draw: str = "independent"):
    """Share f of free steps when t ~ N(0, tau^2) over steps: the integral of `free_step_probability`.

    Gauss-Legendre, absolute error below 1e-9. f grows as M shrinks and is not a privacy quantity.
    [our reading] Source: dossier A10 (its table uses the independent law).
    """
    tau = np.asarray(tau, dtype=np.float64)
    if not np.all(tau > 0):
        raise InputError("tau", "must be positive", "give the standard deviation of t over steps")
    nodes, weights = np.polynomial.legendre.leggauss(200)
    top = np.minimum(10.0, 12.0 * tau)[..., None]  # beyond 10 every half agrees; beyond 12 tau no t lies
    t = 0.5 * top * (nodes + 1.0)
    density = np.exp(-0.5 * np.square(t / tau[..., None])) / (tau[..., None] * np.sqrt(2.0 * np.pi))
    inner = np.sum(top * weights * density * free_step_probability(t, candidates, draw), axis=-1)
    f = inner + 2.0 * special.ndtr(-top[..., 0] / tau)
    return f.item() if f.ndim == 0 else f
