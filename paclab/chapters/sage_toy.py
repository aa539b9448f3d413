"""Toys of chapter 22: SAGE on a quadratic bowl, under pure noise, and on a simulated run one can play with.

SAGE is our reading of the abstract (arXiv 2608.03277), here as in `paclab.zo.sage`. Knows update rules and the
one-step law (`paclab.rates.training`); draws nothing (`sage_figures`) and trains no language model.
"""

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from paclab.rates import training
from paclab.rates.training import Step
from paclab.zo import rules, sage
from paclab.zo.update import PLAIN, Rule

D, K, STEPS, WARMUP = 200, 16, 300, 15  # the bowl: dimension, directions, steps, warm-up
REGIMES = {"noise dominates": 10.0, "the signal is clear": 3.0}  # noise of one released value, |gradient| = 14 at first
RATES = (0.002, 0.004, 0.008, 0.015, 0.03, 0.06)
PLAIN_RUN, SAGE_RUN, FIXED_RUN = "fixed scale", "SAGE [our reading]", "SAGE's mean factor, constant"
ORACLE_RUN, DECAY_RUN = "oracle twin [our reading]", "fixed scale, linear decay"
KINDS = (PLAIN_RUN, SAGE_RUN, FIXED_RUN, ORACLE_RUN, DECAY_RUN)


# ---------------------------------------------------------------- why: alpha against alpha squared


def steps_by_noise(stds: Sequence[float], lr: float = 0.03, gradient: float = 1.0, rank: float = D,
                   k: int = K) -> dict[float, Step]:
    """The expected change of one step on the bowl by noise of a released value; smoothness 1."""
    return {std: training.zeroth_order_step(lr, gradient, 1.0, rank, k, std) for std in stds}


def wiener_table(steps: dict[float, Step], gradient: float = 1.0) -> pd.DataFrame:
    """The factor that minimises the expected change, beside signal / (signal + noise) up to one constant."""
    lines = []
    for std, step in steps.items():
        rho = math.inf if std == 0 else gradient**2 / std**2
        best = training.best_alpha(step)
        lines.append({"noise of a value": std, "signal to noise, rho": rho, "best factor": best,
                      "Wiener gain": 1.0 if rho == math.inf else rho / (1 + rho),
                      "change at factor 1": step.change,
                      "change at the best factor": training.shrunk(step, best).change})
    frame = pd.DataFrame(lines)
    return frame.assign(ratio=frame["best factor"] / frame["Wiener gain"])


# ---------------------------------------------------------------- the bowl f = |theta|^2 / 2


class Descent(NamedTuple):
    """One run on the bowl: |theta|^2 / 2 after every step [steps + 1] and the factor of every step [steps]."""

    loss: np.ndarray
    factors: np.ndarray


def descend(rule: Rule, lr: float, std: float, seed: int, *, steps: int = STEPS, d: int = D, k: int = K,
            start: float = 1.0, oracle: bool = False, decay: bool = False) -> Descent:
    """K noisy directional derivatives a step on f = |theta|^2 / 2 from theta = (start, .., start).

    Only |theta| is followed, exactly in distribution: along theta the K directions have normal entries u, across it
    sum_k Y_k z_k is |Y| times a normal vector of d - 1 entries. `oracle` shows the rule the true signal; `decay` lowers
    lr linearly to 0.
    """
    rng, state = np.random.Generator(np.random.Philox(seed)), rule.init()
    radius, loss, factors = start * math.sqrt(d), [start**2 * d / 2], []
    for t in range(steps):
        u, noise, across = rng.standard_normal(k), rng.standard_normal(k), rng.chisquare(d - 1)
        signal = radius * u
        released = signal + std * noise
        seen = [math.sqrt(float(signal @ signal) / k + std**2)] * k if oracle else released.tolist()
        state, alpha = rule.step(state, t, seen)
        move = lr * alpha / k * (1 - t / steps if decay else 1.0)
        radius = math.sqrt((radius - move * float(released @ u)) ** 2 + move**2 * float(released @ released) * across)
        loss.append(radius**2 / 2)
        factors.append(alpha)
    return Descent(np.array(loss), np.array(factors))


def side_by_side(lr: float, std: float, seed: int, **size) -> dict[str, Descent]:
    """The fixed scale, SAGE, the constant factor with SAGE's mean, the oracle, and linear decay, on the same draws."""
    given = sage.Settings(std, size.get("k", K), 0.9, WARMUP)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sage.UndetectableSignal)
        shrunk = descend(sage.sage(given), lr, std, seed, **size)
        return {PLAIN_RUN: descend(PLAIN, lr, std, seed, **size), SAGE_RUN: shrunk,
                FIXED_RUN: descend(rules.fixed(float(shrunk.factors.mean())), lr, std, seed, **size),
                ORACLE_RUN: descend(sage.sage(given), lr, std, seed, oracle=True, **size),
                DECAY_RUN: descend(PLAIN, lr, std, seed, decay=True, **size)}


def expected_loss(lr: float, std: float, steps: int = STEPS, d: int = D, k: int = K) -> np.ndarray:
    """The law of the fixed scale on the bowl from theta = (1, .., 1): expected loss [steps + 1]. Exact."""
    return training.quadratic_path(lambda t, gradient: training.zeroth_order_step(lr, gradient, 1.0, d, k, std), d / 2,
                                   1.0, steps)


def bowl_table(rates: Sequence[float], seeds: Sequence[int], **size) -> pd.DataFrame:
    """Final loss of the five by regime and learning rate: mean over seeds, s.e., and SAGE's mean factor."""
    lines = []
    for regime, std in REGIMES.items():
        for lr in rates:
            runs = [side_by_side(lr, std, seed, **size) for seed in seeds]
            line = {"regime": regime, "noise of a value": std, "lr": lr,
                    "mean factor": float(np.mean([r[SAGE_RUN].factors.mean() for r in runs]))}
            for kind in KINDS:
                final = np.array([r[kind].loss[-1] for r in runs])
                line |= {kind: final.mean(), f"{kind} s.e.": final.std(ddof=1) / math.sqrt(len(final))}
            gap = np.array([r[SAGE_RUN].loss[-1] - r[PLAIN_RUN].loss[-1] for r in runs])
            verdict = "helps" if (gap < 0).all() else "hurts" if (gap > 0).all() else "mixed"
            lines.append(line | {"SAGE against the fixed scale": verdict})
    return pd.DataFrame(lines)


def bowl_answers(table: pd.DataFrame) -> pd.DataFrame:
    """By regime: every kind's best learning rate and the loss it reaches there."""
    lines = []
    for regime, part in table.groupby("regime", sort=False):
        line = {"regime": regime}
        for kind in KINDS:
            best = part.loc[part[kind].idxmin()]
            line |= {f"{kind}: best lr": best["lr"], f"{kind}: loss there": best[kind]}
        lines.append(line)
    return pd.DataFrame(lines)


# ---------------------------------------------------------------- no signal at all, and a constant one


def floor_table(ks: Sequence[int], trackings: Sequence[float], runs: int, seed: int) -> pd.DataFrame:
    """Spread of the tracked signal-to-noise without any signal: simulated, and the law.

    Y is pure noise, so (1/K)|Y|^2 / s^2 - 1 is a centred chi-square; "passes" is the share of runs whose average
    after the warm-up exceeds one such spread, which SAGE then takes for a signal.
    """
    rng, lines = np.random.Generator(np.random.Philox(seed)), []
    for k in ks:
        for tracking in trackings:
            warmup, steps = math.ceil(max(20, 2 / (1 - tracking))), math.ceil(5 / (1 - tracking))
            average = np.zeros(runs)
            for t in range(max(warmup, steps)):
                average = tracking * average + (1 - tracking) * (rng.chisquare(k, runs) / k - 1)
                if t + 1 == warmup:
                    passes = average / (1 - tracking**warmup) > sage.detection_floor(k, tracking, warmup)
            lines.append({"K": k, "tracking": tracking, "warm-up": warmup,
                          "spread, simulated": float(average.std() / (1 - tracking**steps)),
                          "spread, law": sage.detection_floor(k, tracking),
                          "floor after the warm-up": sage.detection_floor(k, tracking, warmup),
                          "noise passes the floor": float(passes.mean())})
    return pd.DataFrame(lines)


def steady_table(ks: Sequence[int], rhos: Sequence[float], runs: int, seed: int, *, steps: int = 60,
                 warmup: int = 12) -> pd.DataFrame:
    """SAGE's mean factor after the warm-up where the signal never changes, so that nothing should be shrunk.

    Signals along normal directions are normal themselves: Y = s (sqrt(rho) u + e). 'gated' is the share of runs
    whose reference lay below the floor.
    """
    rng, lines = np.random.Generator(np.random.Philox(seed)), []
    for k in ks:
        given = sage.Settings(1.0, k, sage.default_tracking(k), warmup)
        for rho in rhos:
            means, gated = [], 0
            for _ in range(runs):
                values = math.sqrt(rho) * rng.standard_normal((steps, k)) + rng.standard_normal((steps, k))
                found = sage.trace(given, values.tolist())
                means.append(found["alpha"][warmup:].mean())
                gated += found["rho"][warmup - 1] < sage.detection_floor(k, given.tracking, warmup)
            lines.append({"K": k, "tracking": given.tracking, "true rho": rho, "mean factor": float(np.mean(means)),
                          "s.e.": float(np.std(means) / math.sqrt(runs)), "gated": gated / runs})
    return pd.DataFrame(lines)


# ---------------------------------------------------------------- the explorer's run


COURSES, RECORDED = ("fades", "stays", "grows", "breaks off"), "of the recorded run"
LENGTH = 200


class Played(NamedTuple):
    """One simulated run: true signal-to-noise, SAGE's estimate and factor [steps], the oracle's factor, the floor."""

    truth: np.ndarray
    rho: np.ndarray
    alpha: np.ndarray
    oracle: np.ndarray
    floor: float
    reference: float
    warmup: int


def energy(course: str, steps: int = LENGTH) -> np.ndarray:
    """Mean signal energy of every step; 1 at the start (`grows`: at the end)."""
    x = np.arange(steps) / steps
    return {"fades": np.exp(-3 * x), "stays": np.ones(steps), "grows": np.exp(-3 * (1 - x)),
            "breaks off": np.where(x < 0.5, 1.0, 0.05)}[course]


def play(course: str, k: int, noise: float, tracking: float, warmup: int, gain: str = "wiener", seed: int = 0,
         recorded: np.ndarray | None = None) -> Played:
    """A run whose signal follows `course` (or the `recorded` energies, scaled to 1 at most), noise in the same unit.

    The same normals at every setting: moving a control changes the setting and nothing else.
    """
    power = energy(course) if recorded is None else np.asarray(recorded) / max(float(np.max(recorded)), 1e-300)
    rng = np.random.Generator(np.random.Philox(seed))
    u, e = rng.standard_normal((2, len(power), 64))[:, :, :k]
    signal = np.sqrt(power)[:, None] * u
    given = sage.Settings(noise, k, tracking, min(warmup, len(power) - 1), gain=gain)
    found = sage.trace(given, (signal + noise * e).tolist())
    level = np.sqrt((signal**2).mean(1) + noise**2)
    told = sage.trace(given, np.repeat(level[:, None], k, axis=1).tolist())
    floor = sage.detection_floor(k, tracking, given.warmup)
    return Played(power / noise**2, found["rho"], found["alpha"], told["alpha"], floor,
                  float(found["rho"][given.warmup - 1]), given.warmup)


def play_named(recorded: np.ndarray, course: str, **settings) -> Played:
    """`play` with the recorded energies under their own name, stretched to the length of the other courses."""
    if course != RECORDED:
        return play(course, **settings)
    at = np.linspace(0, len(recorded) - 1, LENGTH)
    return play(course, **settings, recorded=np.interp(at, np.arange(len(recorded)), recorded))


def played_numbers(run: Played) -> dict:
    """The numbers behind the explorer's figure."""
    after = run.alpha[run.warmup:]
    return {"reference rho": f"{run.reference:.3f}", "detection floor": f"{run.floor:.3f}",
            "verdict": "above the floor: SAGE acts" if run.reference >= run.floor else "below it: the factor stays 1",
            "mean factor after warm-up": f"{after.mean():.3f}", "smallest factor": f"{after.min():.3f}",
            "mean factor of the oracle": f"{run.oracle[run.warmup:].mean():.3f}"}
