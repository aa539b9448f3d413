"""The differentially private methods without their noise: the same random batches, the same clip, not private.

    aggzo   K projected gradients a record of a Poisson batch, clipped as dp-aggzo does (clip None: not at all),
            summed over the expected batch. K = 1 without a clip is MeZO on random batches.

It draws the batches from the same stream as `releases.dp`, so a study's two runs with one seed meet the same records
and differ by the noise alone.
"""

import numpy as np

from paclab.releases import dp
from paclab.releases.base import Release, Released, checked, stateless
from paclab.releases.secret import Secret

NOT_PRIVATE = "not private: a sum over a random batch of records is released without noise"


def aggzo(config, secret: Secret) -> Release:
    """The release of one run; statistic [K, n] holds projected gradients of the sampled records, n may be 0."""
    rate, clip = dp.rate(config), config.clip
    expected = rate * config.pool

    def step(private, t: int, statistic: np.ndarray):
        vectors = checked(statistic, t) / config.k
        clipped, share = (vectors, 0.0) if clip is None else dp.clip_vectors(vectors, clip)
        values = clipped.sum(axis=1) * (config.k / expected)
        return private, Released(tuple(map(float, values))), {"batch": vectors.shape[1], "clipped": share}

    return Release("aggzo", NOT_PRIVATE, False, stateless, step, lambda private, t, info: private,
                   lambda t: dp.poisson(secret, config.pool, rate, t))
