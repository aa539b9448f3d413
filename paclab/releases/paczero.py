"""PACZero: one released bit a step, free when all candidate halves agree (arXiv 2605.06505).

    votes    s_m = sign of the mean projected gradient over candidate half S_m
    free     all M votes agree: release that sign; a constant carries no information, charge 0
    mi       they disagree: sign(s_j* + sigma N(0,1)), sigma from the exact Gaussian channel     (as published)
    rr       they disagree: s_j* flipped with probability phi, from the exact randomized-response channel
    zpl      they disagree: a fair coin, no update (skip), or the candidates' majority; charge 0

Guarantee: I(S*; Y_1..Y_T) <= the sum of charges, in nats, for S* uniform over M public candidate halves.

compat="paczero" reproduces the published rules where they differ from ours:
    candidate sizes   every record in exactly M/2 halves, sizes vary     ours: complementary halves of exact size
    ties              sign(0) = +1                                        ours: a public coin; all tied -> no update
    unanimity (mi)    posterior-weighted q_plus within 1e-12 of 0 or 1    ours: all M votes
    noise (mi)        60-node quadrature, bisection to 1e-6 nats absolute, sigma in [1e-4, 1e4]
                                                                          ours: certified, relative 1e-6
    charge            the target beta                                     ours: the MI achieved (at most beta)
The published code's predictable secret (one generator re-seeded with 42) is not reproduced in any mode.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from paclab.privacy import budget as budgets
from paclab.privacy import channels, consensus
from paclab.privacy import posterior as beliefs
from paclab.releases import published
from paclab.releases.base import Release, Released, checked, clip_records
from paclab.releases.secret import Secret

GUARANTEE = ("I(S*; released values) <= {spent} nats; protected: which of {m} public candidate halves of the pool "
             "was used (every record is in half of them); attacker knows pool, halves, model and code; membership "
             "in the pool itself is not protected")
NOMINAL = ("nominal only, since the published noise calibration is not certified and can spend several times its "
           "target at small budgets: ")
SMALLEST_BETA = 1e-12  # below this the certified inverse stops: a coin is released and nothing is charged


class PrivateState(NamedTuple):
    """What the curator knows beyond the transcript."""

    posterior: beliefs.Posterior
    ledger: budgets.Ledger


class Settings(NamedTuple):
    """The fixed choices of one PACZero release."""

    variant: str  # mi, rr, zpl
    membership: np.ndarray  # bool [N, M]
    secret: Secret
    public_coin: Callable[[int, int], int]  # (t, k) -> +-1, from the public direction stream
    steps: int
    k: int = 1
    total: float = 0.0  # nats
    clip: float | None = None
    schedule: str = "adaptive"
    on_disagreement: str = "coin"  # coin, skip, majority (zpl only)
    compat: bool = False


def paczero(settings: Settings) -> Release:
    """The release for one run; statistic [K, N] holds per-record projected gradients."""
    candidates = settings.membership.shape[1]
    secret_index = settings.secret.index(candidates)
    spent = budgets.stated(settings.total) if settings.variant != "zpl" else "0"

    def init() -> PrivateState:
        return PrivateState(beliefs.uniform(candidates), budgets.open_ledger(settings.total))

    def step(private: PrivateState, t: int, statistic: np.ndarray):
        clipped = clip_records(checked(statistic, t), settings.clip)
        beta = step_budget(settings, private.ledger, t)
        values, bits = [], []
        for k, row in enumerate(clipped):
            votes = cast_votes(settings, row, t, k)
            bit = release_bit(settings, private, votes, beta / len(clipped), secret_index, t, k)
            private = advance(settings, private, bit)
            values.append(float(bit["value"]))
            bits.append(bit | {"pool_mean": float(row.mean())})
        info = {"bits": bits, "charged": private.ledger.charged, "calibrated": private.ledger.calibrated,
                "realised": private.ledger.realised}
        return private, Released(tuple(values)), info

    def replay(private: PrivateState, t: int, info: dict) -> PrivateState:
        for bit in info["bits"]:
            private = advance(settings, private, bit)
        return private

    guarantee = GUARANTEE.format(spent=spent, m=candidates)
    if settings.compat and settings.variant != "zpl":
        guarantee = NOMINAL + guarantee
    return Release(f"paczero-{settings.variant}", guarantee, True, init, step, replay)


def step_budget(settings: Settings, ledger: budgets.Ledger, t: int) -> float:
    """beta_t in nats for the whole step, from the schedule (PACZero, adaptive reallocation)."""
    if settings.variant == "zpl":
        return 0.0
    beta = budgets.step_budget(settings.total, ledger.charged, t, settings.steps, settings.schedule)
    return min(beta, ledger.remaining * (1 - 1e-9))  # sums round up, so the last step leaves a hair


def cast_votes(settings: Settings, row: np.ndarray, t: int, k: int) -> np.ndarray:
    """Votes int8 [M] in {-1, +1}; all zero when every candidate ties. Data enter here and nowhere later."""
    means = consensus.candidate_means(row, settings.membership)
    if settings.compat:
        return consensus.sign_votes(means, tie="plus")
    votes = consensus.sign_votes(means, tie="abstain")
    return consensus.break_ties(votes, settings.public_coin(t, k)) if votes.any() else votes


def release_bit(settings: Settings, private: PrivateState, votes: np.ndarray, beta: float, secret_index: int,
                t: int, k: int) -> dict:
    """Decide one bit: its value, what it cost, and the private facts that let the posterior be replayed."""
    bit = {"votes": pack(votes), "q_plus": None, "free": True, "beta": 0.0, "charged": 0.0, "channel": None}
    if not votes.any():
        return bit | {"value": 0}
    q_plus, q_minus = beliefs.vote_shares(private.posterior, votes)
    bit |= {"q_plus": q_plus}
    if is_free(settings, votes, min(q_plus, q_minus)):
        return bit | {"value": int(votes[secret_index])}
    bit |= {"free": False}
    if settings.variant == "zpl":
        return bit | {"value": undecided(settings, votes, t, k)}
    rare = min(q_plus, q_minus)  # the channels are symmetric; the rarer side keeps its digits
    beta = budgets.capped(beta, rare)
    if beta < SMALLEST_BETA:
        return bit | {"value": settings.secret.coin("coin", t, k)}
    vote = int(votes[secret_index])
    if settings.variant == "rr":
        flip = float(channels.rr_flip(rare, beta))
        value = vote if settings.secret.uniform("flip", t, k)[0] >= flip else -vote
        return bit | {"channel": "rr", "parameter": flip, "seen": value, "value": value, "beta": beta,
                      "charged": charge_of(settings, channels.rr_mi(rare, flip), beta)}
    inverse = published.gaussian_sigma if settings.compat else channels.gaussian_sigma
    sigma = float(inverse(rare, beta))
    seen = vote + sigma * float(settings.secret.normal("noise", t, k)[0])
    return bit | {"channel": "gaussian", "parameter": sigma, "seen": seen, "value": 1 if seen >= 0 else -1,
                  "beta": beta, "charged": charge_of(settings, channels.gaussian_mi(rare, sigma), beta)}


def is_free(settings: Settings, votes: np.ndarray, rare: float) -> bool:
    """All M votes agree; compat asks the posterior weight of the rarer side, as published."""
    if settings.compat and settings.variant != "zpl":
        return rare <= published.UNANIMITY
    return bool((votes == votes[0]).all())


def undecided(settings: Settings, votes: np.ndarray, t: int, k: int) -> int:
    """The zero-information answer to a split vote; none of the three looks at the secret index."""
    if settings.on_disagreement == "skip":
        return 0
    if settings.on_disagreement == "majority":
        balance = int(votes.sum(dtype=np.int64))
        return int(math.copysign(1, balance)) if balance else settings.public_coin(t, k)
    return settings.secret.coin("coin", t, k)


def charge_of(settings: Settings, achieved: float, beta: float) -> float:
    """The charge of a noisy bit: the MI achieved, rounded up; compat charges the target, as published."""
    return beta if settings.compat else min(beta, float(channels.certified(achieved)))


def advance(settings: Settings, private: PrivateState, bit: dict) -> PrivateState:
    """Charge the ledger and move the posterior by exactly the released variable's likelihood."""
    belief = private.posterior
    if bit["channel"]:
        votes = unpack(bit["votes"], len(settings.membership[0]))
        likelihood = beliefs.gaussian_log_likelihood if bit["channel"] == "gaussian" else beliefs.rr_log_likelihood
        belief = beliefs.update(belief, likelihood(votes, bit["seen"], bit["parameter"]))
    ledger = budgets.charge(private.ledger, bit["charged"], bit["beta"], beliefs.leakage(belief))
    return PrivateState(belief, ledger)


def pack(votes: np.ndarray) -> str:
    """Votes as hexadecimal bits (1 = +1); a unanimous tie is the empty string."""
    return np.packbits(votes > 0).tobytes().hex() if votes.any() else ""


def unpack(text: str, candidates: int) -> np.ndarray:
    """The votes that `pack` wrote: int8 [M]."""
    if not text:
        return np.zeros(candidates, dtype=np.int8)
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8), count=candidates)
    return np.where(bits, 1, -1).astype(np.int8)
