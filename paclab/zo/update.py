"""Update rules: what happens to the weights right of the door. They see released values and public constants only."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from paclab.errors import InputError, nearest
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights

FLOOR = 1e-7  # the papers' final learning rate under linear decay
LARGEST = float(torch.finfo(torch.float32).max)


def linear(lr: float, steps: int) -> Callable[[int], float]:
    """Linear decay from lr to 1e-7 over the run (the papers' polynomial schedule of power one)."""
    floor = min(FLOOR, lr)
    return lambda t: (lr - floor) * max(0.0, 1 - t / steps) + floor


def constant(lr: float, steps: int) -> Callable[[int], float]:
    """The same learning rate at every step."""
    return lambda t: lr


SCHEDULES = {"linear": linear, "constant": constant}


def schedule(name: str, lr: float, steps: int) -> Callable[[int], float]:
    """A learning-rate schedule by name."""
    if name not in SCHEDULES:
        raise InputError("schedule", f"{name!r} is unknown", nearest(name, SCHEDULES))
    return SCHEDULES[name](lr, steps)


class Rule(NamedTuple):
    """Post-processing of released values: `step(state, t, values) -> (state, factor)` scales the learning rate.

    A rule sees the transcript and public constants only, so it needs no budget and a replay recomputes it.
    """

    name: str
    init: Callable[[], Any]
    step: Callable[[Any, int, Sequence[float]], tuple[Any, float]]


PLAIN = Rule("plain", lambda: None, lambda state, t, values: (state, 1.0))


def descend(weights: Weights, directions: Directions, t: int, values: Sequence[float], lr: float) -> None:
    """theta <- theta - (lr / K) sum_k Y_k z_k; a released zero leaves the weights as they are."""
    for k, value in enumerate(values):
        scale = -lr * value / len(values)
        if not abs(scale) <= LARGEST:
            raise InputError("lr", f"step {t} would move the weights beyond float32",
                             "take a smaller lr or factor, or a promise that needs less noise")
        if value:
            weights.move(directions, t, k, scale)
    weights.restore()


class Follower:
    """Applies public steps in order, with a rule's state; training and replay share this arithmetic."""

    def __init__(self, weights: Weights, directions: Directions, rule: Rule = PLAIN):
        self.weights, self.directions, self.rule, self.state = weights, directions, rule, rule.init()

    def apply(self, t: int, lr: float, values: Sequence[float]) -> float:
        """Move the weights by one public step; returns the rule's factor."""
        self.state, factor = self.rule.step(self.state, t, values)
        descend(self.weights, self.directions, t, values, lr * factor)
        return factor
