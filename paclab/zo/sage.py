"""SAGE: shrink a noisy step by its estimated signal quality. Our reading of the abstract (arXiv 2608.03277).

The paper's body, constants and code were not available; every formula here is [our reading]. With Y_t in R^K the
released values and s their known noise standard deviation per coordinate:

    ahat_t = ||Y_t||^2 / K - s^2           unbiased signal energy; never clamped before it is averaged
    A_t    = beta A_{t-1} + (1 - beta) ahat_t, corrected by 1 - beta^(t+1)
    rho_t  = max(A_t, 0) / s^2             signal to noise
    alpha_t = 1 during warm-up, then clip(w(rho_t) / w(rho_ref), alpha_min, 1), rho_ref = rho at its end, or the mean
              of rho over its last half
    w(x)   = x / (1 + x) (wiener), x (linear), sqrt(x) (sqrt)

Knows released values and public constants only: no extra query, no budget, a state of three numbers. A reference
below the detection floor says nothing, so alpha stays 1 and a warning is given.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from paclab.errors import InputError, nearest
from paclab.zo.update import Rule

GAINS: dict[str, Callable[[float], float]] = {
    "wiener": lambda x: x / (1 + x), "linear": lambda x: x, "sqrt": math.sqrt}
REFERENCES = ("end", "mean")  # rho after the warm-up, or its mean over the warm-up's last half


class UndetectableSignal(UserWarning):
    """The warm-up reference lies below the detection floor: the factor stays 1."""


class Settings(NamedTuple):
    """Public constants of one SAGE run."""

    noise_std: float  # of one released value
    k: int
    tracking: float  # beta
    warmup: int  # W, steps with alpha = 1
    alpha_min: float = 0.1
    gain: str = "wiener"
    reference: str = "end"


class State(NamedTuple):
    """The whole state, O(1): the uncorrected average, steps seen, and the reference, frozen after the warm-up."""

    average: float = 0.0
    steps: int = 0
    reference: float | None = None


def init() -> State:
    """Before the first step."""
    return State()


def default_tracking(k: int) -> float:
    """beta = 0.9 from K = 16 on, else 0.99; E1 leaves 4 < K < 16 open."""
    return 0.9 if k >= 16 else 0.99


def default_warmup(tracking: float, steps: int) -> int:
    """W = max(20, 2 / (1 - beta)), at most 5 % of the run and at least one step."""
    return max(1, min(math.ceil(max(20.0, 2 / (1 - tracking)) - 1e-9), int(0.05 * steps)))


def check(config) -> None:
    """Refuse settings that cannot work; `config` carries the fields of `paclab.finetune.Config`."""
    if config.gain not in GAINS:
        raise InputError("gain", f"{config.gain!r} is unknown", nearest(config.gain, GAINS))
    if config.reference not in REFERENCES:
        raise InputError("reference", f"{config.reference!r} is unknown", nearest(config.reference, REFERENCES))
    if config.tracking is not None and not 0 < config.tracking < 1:
        raise InputError("tracking", f"{config.tracking} is not in (0, 1)", "give tracking=0.9 (K >= 16) or 0.99")
    if config.warmup is not None and not 1 <= config.warmup < config.steps:
        raise InputError("warmup", f"{config.warmup} of {config.steps} steps", "give at least 1 and fewer than `steps`")
    if not 0 < config.alpha_min <= 1:
        raise InputError("alpha_min", f"{config.alpha_min} is not in (0, 1]", "give alpha_min=0.1, say")


def settings(config, noise_std: float) -> Settings:
    """The settings of a run; noise_std in the units of the released values."""
    tracking = config.tracking if config.tracking is not None else default_tracking(config.k)
    warmup = config.warmup if config.warmup is not None else default_warmup(tracking, config.steps)
    return Settings(noise_std, config.k, tracking, warmup, config.alpha_min, config.gain, config.reference)


def detection_floor(k: int, tracking: float, steps: float = math.inf) -> float:
    """Standard deviation of the corrected A_t / s^2 when there is no signal, after `steps` steps.

    sqrt((2/K) (1-beta)/(1+beta)) in the limit (zo dossier E1); after a short warm-up the average is still that of
    fewer steps, which multiplies the variance by (1 + beta^t) / (1 - beta^t) [ours].
    """
    young = tracking**steps
    return math.sqrt(2 / k * (1 - tracking) / (1 + tracking) * (1 + young) / (1 - young))


def reference_floor(given: Settings) -> float:
    """The floor of a run's reference: that of its last step, or of the first of those it is the mean of.

    A mean spreads no more than its widest term, and the average of fewest steps is the widest. [ours]
    """
    return detection_floor(given.k, given.tracking, _averaged_from(given))


def _averaged_from(given: Settings) -> int:
    """The first step, counted from 1, whose rho enters the reference."""
    return given.warmup if given.reference == "end" else given.warmup // 2 + 1


def observe(given: Settings, state: State, values: Sequence[float]) -> tuple[State, float]:
    """One step of tracking: (state with the new average, rho_t)."""
    excess = math.fsum(v * v for v in values) / len(values) - given.noise_std**2
    average = given.tracking * state.average + (1 - given.tracking) * excess
    steps = state.steps + 1
    rho = max(average / (1 - given.tracking**steps), 0.0) / given.noise_std**2
    return State(average, steps, state.reference), rho


def factor(given: Settings, rho: float, reference: float) -> float:
    """alpha_t in [alpha_min, 1]; 1 when the reference is 0, the mark of an undetectable signal."""
    if reference <= 0:
        return 1.0
    gain = GAINS[given.gain]
    return min(1.0, max(given.alpha_min, gain(rho) / gain(reference)))


def sage(given: Settings) -> Rule:
    """The update rule: lr times alpha_t. Warns once, when warm-up ends below the detection floor."""

    def step(state: State, t: int, values: Sequence[float]) -> tuple[State, float]:
        state, rho = observe(given, state, values)
        if state.steps > given.warmup:
            return state, factor(given, rho, state.reference)
        averaged = state.steps - _averaged_from(given) + 1
        if averaged > 0:
            before = state.reference or 0.0
            state = state._replace(reference=before + (rho - before) / averaged)
        if state.steps == given.warmup and state.reference < (floor := reference_floor(given)):
            warnings.warn(f"signal-to-noise {state.reference:.3g} after warm-up is below the detection floor "
                          f"{floor:.3g}: nothing can be inferred, so the factor stays 1", UndetectableSignal,
                          stacklevel=2)
            state = state._replace(reference=0.0)
        return state, 1.0

    return Rule("sage", init, step)


def trace(given: Settings, released: Iterable[Sequence[float]]) -> dict[str, np.ndarray]:
    """alpha_t and rho_t of every step, from released values alone: float64 [steps] each."""
    state, other, rows = init(), init(), []
    rule = sage(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndetectableSignal)
        for t, values in enumerate(released):
            state, alpha = rule.step(state, t, values)
            other, rho = observe(given, other, values)
            rows.append((alpha, rho))
    alpha, rho = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    return {"alpha": alpha, "rho": rho}
