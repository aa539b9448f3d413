"""Non-private references: functions of the whole pool. In PACZero's model even these have I(S*; Y) = 0, because
the secret is which half of the pool was used and they never look at it: that is why I = 0 alone says nothing
about membership in the pool, and why they stand beside every PACZero row as controls."""

import numpy as np

from paclab.releases.base import Release, Released, checked, clip_records, stateless

NOT_PRIVATE = "not private: a function of every record of the pool is released without noise"


def _pool_release(name: str, read, clip: float | None) -> Release:
    def step(private, t, statistic):
        means = clip_records(checked(statistic, t), clip).mean(axis=1)
        return private, Released(tuple(float(v) for v in read(means))), {"pool_mean": means.tolist()}

    return Release(name, NOT_PRIVATE, False, stateless, step, lambda private, t, info: private)


def mezo(clip: float | None = None) -> Release:
    """The pool's mean projected gradient (MeZO, arXiv 2305.17333, with the whole pool as its batch)."""
    return _pool_release("mezo", lambda means: means, clip)


def sign(clip: float | None = None) -> Release:
    """The sign of the pool's mean projected gradient; zero stays zero and means no update."""
    return _pool_release("sign", np.sign, clip)
