"""Bounds of `paclab.rates.training` beside one real step: gradient, curvature, and the measured change of a loss.

Knows one model, public records and their recorded projected gradients (study mode). `probe` of
`dp_zeroth_order_clip` made the gradients: direction k of step 0 of the same key moves the weights here.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from paclab import tasks
from paclab.chapters import rows
from paclab.chapters.dp_zeroth_order_clip import Recording
from paclab.chapters.zeroth_order_model import differentiable
from paclab.models import LanguageModel, trainable
from paclab.privacy import consensus
from paclab.rates import training
from paclab.releases.dp import clip_vectors
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights

STEP = 0.02  # length of the nudge along the gradient, where curvature is read
MU = 1e-3  # of z, as in a probe: a shorter one drowns in the rounding of float32 losses
GAP = "measured - predicted"


class Local(NamedTuple):
    """The loss of some records near the model's weights, to second order."""

    loss: float
    gradient: float  # norm |g|
    along: float  # g'Hg / |g|^2, curvature along the gradient (l of the formulas: exact for one step)
    trace: float  # tr H, or the curvature along g where the estimate is below it (the formulas ask for r >= 1)
    trace_error: float  # standard error of the estimate
    spread: float  # rms over records of one projected gradient about the mean one
    mean_norm: float  # mean norm of a record's gradient, from its projections

    @property
    def rank(self) -> float:
        """Effective rank tr H / l."""
        return self.trace / self.along


def measure(model: LanguageModel, records: list[dict], delta: np.ndarray, key: int, nudges: int = 8) -> Local:
    """Gradient by backpropagation, curvature along it and the Hessian's trace by second differences.

    delta [K, n]: recorded projected gradients of these records. The trace is the curvature along g plus the mean of
    z'Hz over `nudges` normal z from which g was taken out: far less noisy when g points where the loss bends most.
    """
    loss = differentiable(model, records)
    value = loss.backward()
    gradient = {name: tensor.grad.clone() for name, tensor in model.module.named_parameters()}
    model.module.zero_grad(set_to_none=True)
    model.module.requires_grad_(False)
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradient.values()))
    weights = Weights(trainable(model.module))
    losses = tasks.objective("sentiment", model, records).losses
    at = _curve(weights, losses)
    unit = {name: g / norm for name, g in gradient.items()}
    along = at(unit, STEP)
    directions = Directions(key, tuple(weights.live))
    rest = []
    for k in range(nudges):
        z = {n: directions.normal(1, k, n, t.shape) for n, t in weights.live.items()}
        inner = sum(float((z[n] * unit[n]).sum()) for n in z)
        rest.append(at({n: z[n] - inner * unit[n] for n in z}, MU))
    traces = along + np.array(rest)
    return Local(value, norm, along, max(float(traces.mean()), along), float(traces.std(ddof=1) / math.sqrt(nudges)),
                 float(np.sqrt(np.mean(delta.var(axis=1, ddof=1)))),
                 float(np.mean(np.sqrt(np.mean(delta**2, axis=0)))))


def _curve(weights: Weights, losses: Callable[[], np.ndarray]) -> Callable[[dict, float], float]:
    middle = losses().mean()

    def second(direction: dict, size: float) -> float:
        ends = []
        for scale in (size, -size):
            _move(weights, direction, scale)
            ends.append(losses().mean())
        weights.restore()
        return float((ends[0] + ends[1] - 2 * middle) / size**2)

    return second


def _move(weights: Weights, direction: dict, scale: float) -> None:
    for name, live in weights.live.items():
        live.copy_(torch.add(weights.master[name], direction[name], alpha=scale))


# ---------------------------------------------------------------- one step, predicted and measured


class Way(NamedTuple):
    """A release at one point: what leaves for a group of k directions, and what a step of it is predicted to do."""

    name: str
    k: int
    values: Callable[[np.ndarray, np.random.Generator], np.ndarray]  # [k, n] -> released [k]
    predict: Callable[[float], training.Step]  # learning rate -> expected change
    bound: Callable[[float], training.Step] | None  # a looser published one
    control: Callable[[np.ndarray, float], float]  # (mean values, lr): what lucky directions explain, mean zero


def mezo(local: Local) -> Way:
    """The mean projected gradient of all records, K = 1, no clip and no noise."""
    return Way("MeZO, all records", 1, lambda part, rng: part.mean(axis=1),
               lambda lr: training.zeroth_order_step(lr, local.gradient, local.along, local.rank), None,
               _luck(local, 1))


def _luck(local: Local, k: int) -> Callable[[np.ndarray, float], float]:
    """Descent and curvature along g of one group of directions, less their means over normal directions."""

    def excess(mean: np.ndarray, lr: float) -> float:
        along = float(np.mean(mean**2)) / local.gradient**2  # of the step, in units of g: mean 1, square 1 + 2 / K
        return local.gradient**2 * (-lr * (along - 1) + lr**2 / 2 * local.along * (along**2 - 1 - 2 / k))

    return excess


def aggzo(local: Local, k: int, clip: float, multiplier: float, batch: float, records: int) -> Way:
    """DP-AggZO: a Poisson batch of `records`, clipped K-vectors, noise. Its prediction counts sampling as noise."""
    noise = multiplier * clip * k / batch
    second = local.spread**2 + local.gradient**2  # mean square of a record's projected gradient
    spread = math.hypot(noise, math.sqrt(second / batch * (1 - min(1.0, batch / records))))

    def values(part: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        drawn = rng.random(part.shape[1]) < batch / part.shape[1]
        clipped, _ = clip_vectors(part[:, drawn] / k, clip)
        return clipped.sum(axis=1) * k / batch + noise * rng.standard_normal(k)

    return Way(f"DP-AggZO, K = {k}", k, values,
               lambda lr: training.zeroth_order_step(lr, local.gradient, local.along, local.rank, k, spread),
               lambda lr: training.lemma_4(lr, local.gradient, local.along, local.rank, k=k,
                                           beta_clip=clip * math.sqrt(k), noise_multiplier=multiplier, batch=batch,
                                           mean_norm=local.mean_norm),
               _luck(local, k))


def zpl(local: Local, records: int, candidates: int, seed: int) -> Way:
    """PACZero-ZPL: the common sign of all halves, which is right, or a coin, which is right half of the time."""
    membership = consensus.complementary_halves(records, candidates, np.random.Generator(np.random.Philox(seed)))
    tau = local.gradient * math.sqrt(records) / local.spread
    free = training.free_share(tau, candidates)

    def values(part: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        votes = consensus.sign_votes(consensus.candidate_means(part[0], membership))
        common = consensus.unanimity(votes)
        return np.array([float(common or rng.choice((-1.0, 1.0)))])

    return Way("PACZero-ZPL, coin", 1, values,
               lambda lr: training.paczero_step(lr, local.gradient, local.along, local.rank, tau=tau,
                                                candidates=candidates), None,
               lambda mean, lr: -lr * free * (abs(float(mean[0])) - math.sqrt(2 / math.pi) * local.gradient)
               + lr**2 / 2 * local.along * (float(mean[0]) ** 2 / local.gradient**2 - 1))


def bounds_table(model: LanguageModel, recorded: list[Recording], ways_of: Callable[[Local, int], list[Way]],
                 multiples: list[float], trials: int, watch=None) -> tuple[pd.DataFrame, Local]:
    """`step_table` at every seed's sentences, each at its own best rates: means over seeds; and the mean `Local`.

    With several seeds both ± are Student's over them; with one seed over its groups of directions. "measured -
    predicted" is paired, so its ± can be the smaller one.
    """
    places, frames = [], []
    for one in recorded:
        places.append(measure(model, one.records, one.delta, one.key, nudges=max(2, min(32, len(one.delta) // 4))))
        frames.append(step_table(model, one.records, one.delta, one.key, ways_of(places[-1], len(one.records)),
                                 multiples, trials, one.key))
        if watch:
            watch(len(frames))
    mean = Local(*(float(np.mean(values)) for values in zip(*places, strict=True)))
    if len(frames) == 1:
        return frames[0].assign(seeds=1), mean
    every = pd.concat(frames, ignore_index=True)
    by = every.groupby(["method", "lr over the best"], sort=False)
    found = by.mean()
    found["± measured"] = by["measured change"].agg(rows.half_width)
    found["± gap"] = by[GAP].agg(rows.half_width)
    found["gap inside ±"] = found[GAP].abs() <= found["± gap"]
    return found.reset_index().assign(seeds=len(frames)), mean


def step_table(model: LanguageModel, records: list[dict], delta: np.ndarray, key: int, ways: list[Way],
               multiples: list[float], trials: int, seed: int, watch=None) -> pd.DataFrame:
    """Predicted and measured change of the records' loss by one step, at multiples of the predicted best rate.

    Directions are those of the recorded probe, so a trial draws no new losses for its gradients; what lucky
    directions explain along g (`control`, mean zero) is taken off each measured change. Trials beyond the recorded
    directions use these again, so the interval is Student's over groups of directions.
    """
    weights = Weights(trainable(model.module))
    directions = Directions(key, tuple(weights.live))
    losses = tasks.objective("sentiment", model, records).losses
    before, lines = losses().mean(), []
    for way in ways:
        best = training.best_lr(way.predict(1.0))
        found = np.array([_trial(weights, directions, losses, delta, way, t, [best * m for m in multiples],
                                 np.random.default_rng([seed, t, way.k])) for t in range(trials)]) - before
        for i, multiple in enumerate(multiples):
            lr = best * multiple
            changes = found[:, i] - np.array([way.control(_group(delta, way.k, t).mean(axis=1), lr)
                                              for t in range(trials)])
            groups = len(delta) // way.k
            changes = np.array([changes[i::groups].mean() for i in range(min(groups, trials))])
            step, half = way.predict(lr), rows.half_width(changes)
            lines.append({"method": way.name, "lr over the best": multiple, "lr": lr, "descent": step.descent,
                          "curvature": step.curvature, "noise": step.noise, "predicted change": step.change,
                          "Lemma 4 at most": way.bound(lr).change if way.bound else math.nan,
                          "measured change": changes.mean(), "± measured": half, GAP: changes.mean() - step.change,
                          "± gap": half, "gap inside ±": bool(abs(changes.mean() - step.change) <= half),
                          "trials": trials, "groups of directions": len(changes)})
        if watch:
            watch(way.name)
    return pd.DataFrame(lines)


def _group(delta: np.ndarray, k: int, trial: int) -> np.ndarray:
    start = trial * k % (len(delta) // k * k)
    return delta[start:start + k]


def _trial(weights: Weights, directions: Directions, losses, delta: np.ndarray, way: Way, trial: int,
           rates: list[float], rng: np.random.Generator) -> list[float]:
    """The records' mean loss after one step, at every rate, with the same directions, batch and noise."""
    start = trial * way.k % (len(delta) // way.k * way.k)
    values = way.values(delta[start:start + way.k], rng)
    step: dict[str, Any] = {}
    for i, value in enumerate(values):
        for name, live in weights.live.items():
            z = directions.normal(0, start + i, name, live.shape) * (float(value) / way.k)
            step[name] = step[name] + z if name in step else z
    out = []
    for lr in rates:
        _move(weights, step, -lr)
        out.append(float(losses().mean()))
    weights.restore()
    return out
