"""PACZero taken apart: what the secret half, its sign, and no data at all do to a run. Ablations, not private.

    raw-half     mean projected gradient over the secret half S*                      (published code: raw_half)
    quant-half   s_j*, the vote of the secret half, released at every step as it is   (quant_half)
    random-sign  a fair coin that looks at no record: the random walk of the same step size   (random_sign)

The published raw_full is the method `mezo`, quant_full is `sign` (paclab.releases.pool).
"""

import numpy as np

from paclab.releases.base import Release, Released, checked, clip_records, stateless
from paclab.releases.paczero import Settings, cast_votes
from paclab.releases.secret import Secret

RAW_HALF = ("not private: the mean over the secret half is released without noise, and a few steps tell which of "
            "{m} halves was used")
QUANT_HALF = ("not private: the secret half's vote is released without noise at every step, disagreement or not, and "
              "tells which of {m} halves was used, up to log(2) nats a bit")
RANDOM_SIGN = "I(S*; released values) = 0 trivially: a fair coin that looks at no record, and learns from none"


def raw_half(membership: np.ndarray, secret: Secret, clip: float | None = None) -> Release:
    """Mean of the clipped statistic [K, N] over S*."""
    half = membership[:, secret.index(membership.shape[1])]

    def step(private, t: int, statistic: np.ndarray):
        values = clip_records(checked(statistic, t), clip)
        means = values[:, half].mean(axis=1)
        return private, Released(tuple(map(float, means))), {"pool_mean": values.mean(axis=1).tolist()}

    guarantee = RAW_HALF.format(m=membership.shape[1])
    return Release("raw-half", guarantee, False, stateless, step, lambda private, t, info: private)


def quant_half(settings: Settings) -> Release:
    """The vote s_j* of every direction, with PACZero's own clip and tie rules."""
    candidates = settings.membership.shape[1]
    index = settings.secret.index(candidates)

    def step(private, t: int, statistic: np.ndarray):
        clipped = clip_records(checked(statistic, t), settings.clip)
        votes = [cast_votes(settings, row, t, k) for k, row in enumerate(clipped)]
        info = {"pool_mean": clipped.mean(axis=1).tolist(),
                "unanimous": [bool((v == v[0]).all()) for v in votes]}
        return private, Released(tuple(float(v[index]) for v in votes)), info

    guarantee = QUANT_HALF.format(m=candidates)
    return Release("quant-half", guarantee, False, stateless, step, lambda private, t, info: private)


def random_sign(k: int, secret: Secret) -> Release:
    """K fair coins a step; no record is probed."""

    def step(private, t: int, statistic: np.ndarray):
        return private, Released(tuple(float(secret.coin("random sign", t, j)) for j in range(k))), {}

    return Release("random-sign", RANDOM_SIGN, True, stateless, step, lambda private, t, info: private,
                   lambda t: np.zeros(0, dtype=np.int64))
