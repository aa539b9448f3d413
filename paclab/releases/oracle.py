"""SAGE's oracle twin [our reading]: the shrinkage factor is computed from the true signal. NOT PRIVATE, it says so.

It bounds from above what any estimate of the signal's energy could win. It stands in this folder, not among the
update rules, because it looks left of the door.
"""

import math
from collections.abc import Callable

from paclab.releases.base import Release, Released

NOT_PRIVATE = "not private: an oracle scales every released value by a factor computed from the private signal"


def oracle(inner: Release, shrink: Callable, init: Callable, noise_std: float) -> Release:
    """`inner`'s values times alpha_t of the true signal; noise_std is in the units of the released values.

    `shrink(state, t, values) -> (state, alpha)` is the update rule's own step: it is given K equal values whose mean
    square is signal energy plus noise variance, so that its estimate of the energy is the truth.
    """

    def begin():
        return inner.init(), init()

    def advance(state, t: int, info: dict) -> tuple:
        signal = info["signal"]
        level = math.sqrt(sum(s * s for s in signal) / len(signal) + noise_std**2)
        return shrink(state, t, [level] * len(signal))

    def step(private, t: int, statistic):
        below, state = private
        below, released, info = inner.step(below, t, statistic)
        state, alpha = advance(state, t, info)
        return (below, state), Released(tuple(alpha * v for v in released.values)), info | {"alpha": alpha}

    def replay(private, t: int, info: dict):
        below, state = private
        return inner.replay(below, t, info), advance(state, t, info)[0]

    public = {"name": f"{inner.name} + sage-oracle"}
    return Release(public["name"], NOT_PRIVATE, False, begin, step, replay, inner.select, public)
