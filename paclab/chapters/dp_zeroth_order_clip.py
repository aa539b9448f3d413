"""Projected gradients of single records: their tails, what a clip takes, and what the noise leaves.

    delta [K, n]     projected gradients of n records along K directions at one point
    vector           a record's K numbers over K; its norm times sqrt K is near the record's own gradient norm
    beta             beta_clip = sqrt(K) c: one clip for every K

Knows arrays, a model and public records (study mode). Does not know runs' settings.
"""

import math
import time
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from paclab import models, tasks
from paclab.chapters import rows
from paclab.models import LanguageModel, trainable
from paclab.releases.dp import clip_vectors
from paclab.sources import load_splits
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights, all_differences, differences
from paclab.zo.update import descend

MU = 1e-3


def probe(model: LanguageModel, records: list[dict], count: int, key: int, watch=None) -> np.ndarray:
    """Projected gradients of every record along `count` public directions at the model's weights: [count, n]."""
    weights = Weights(trainable(model.module))
    directions = Directions(key, tuple(weights.live))
    losses = tasks.objective("sentiment", model, records).losses
    out = np.empty((count, len(records)))
    for k in range(count):
        out[k] = differences(losses, weights, directions, 0, k, MU)
        if watch:
            watch(k + 1)
    return out


class Recording(NamedTuple):
    """A seed's public sentences and their projected gradients at the model's weights."""

    records: list[dict]
    key: int  # of the public directions
    delta: np.ndarray  # [directions, records]


def recordings(model: LanguageModel, seeds: list[int], count: int, directions: int, watch=None) -> list[Recording]:
    """`count` sentences of every seed, each answering along `directions` directions of that seed's own."""
    found = []
    for seed in seeds:
        records = load_splits("sentiment", seed=seed, pool=count, dev=100, test=100).pool
        found.append(Recording(records, seed + 20, probe(model, records, directions, seed + 20)))
        if watch:
            watch(len(found))
    return found


def time_steps(kinds: list[tuple[str, int]], records: list[dict], key: int) -> dict[tuple[str, int], float]:
    """`time_step` of every (model's name, K)."""
    loaded = {name: models.load(name, "cpu") for name, _ in kinds}
    return {(name, k): time_step(loaded[name], records, key, k) for name, k in kinds}


def time_step(model: LanguageModel, records: list[dict], key: int, k: int) -> float:
    """Seconds of one core that a step of k directions on these records takes, as runs do it: probes, then the update.

    The fastest of three, of one beyond 4 directions; differs by machine. The model is left as it was.
    """
    import torch

    weights = Weights(trainable(model.module))
    directions = Directions(key, tuple(weights.live))
    task, batch, found = tasks.objective("sentiment", model, records), np.arange(len(records)), []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for t in range(3 if k <= 4 else 1):
            start = time.process_time()
            all_differences(task.losses, batch, weights, directions, t, k, MU)
            descend(weights, directions, t, [1.0] * k, lr=0.0)
            found.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    return min(found)


# ---------------------------------------------------------------- tails


class Tail(NamedTuple):
    """|delta| over its root mean square: sorted values [m] and the share beyond each."""

    value: np.ndarray
    beyond: np.ndarray


def tail(delta: np.ndarray) -> Tail:
    """Survival function of |delta| / rms over all records and directions."""
    value = np.sort(np.abs(delta[np.isfinite(delta)]).ravel())
    value = value / np.sqrt(np.mean(value**2))
    return Tail(value, 1 - (np.arange(len(value)) + 0.5) / len(value))


def kurtosis(delta: np.ndarray) -> float:
    """Fourth moment over the squared second: 3 for a normal law, more for a heavy tail."""
    values = delta[np.isfinite(delta)]
    return float(np.mean(values**4) / np.mean(values**2) ** 2)


def tail_table(deltas: list[np.ndarray], beta: float) -> pd.DataFrame:
    """How heavy the tail is: of one record's numbers, of all of them, and of the K-vector norms.

    deltas: one [K, n] a seed. Means over them; of kurtosis and clipped share also Student's 95 % half-width.
    """
    every = pd.concat([_tails_of(delta, beta) for delta in deltas], ignore_index=True)
    by = every.groupby("quantity", sort=False)
    found = by.mean().reset_index()
    for name in ("kurtosis", "beyond the clip, %"):
        found.insert(found.columns.get_loc(name) + 1, f"± {name}", by[name].agg(rows.half_width).to_numpy())
    return found.assign(seeds=len(deltas))


def _tails_of(delta: np.ndarray, beta: float) -> pd.DataFrame:
    k = len(delta)
    norms = np.linalg.norm(delta, axis=0) / math.sqrt(k)
    within = delta / norms  # each record over its own root mean square
    lines = []
    for name, values in (("all records, one direction", delta), ("each record over its own norm", within),
                         (f"norm of a record's {k} numbers", norms)):
        size = np.abs(values).ravel()
        lines.append({"quantity": name, "median": np.median(size), "rms": np.sqrt(np.mean(size**2)),
                      "99 % quantile": np.quantile(size, 0.99), "largest": size.max(), "kurtosis": kurtosis(values),
                      "beyond the clip, %": 100 * np.mean(size > beta) if values is not within else np.nan})
    return pd.DataFrame(lines)


# ---------------------------------------------------------------- clipping error


def groups(delta: np.ndarray, k: int) -> np.ndarray:
    """The directions in disjoint groups of k: [groups, k, n] of a [K, n] array; a remainder is left out."""
    whole = len(delta) // k
    return delta[: whole * k].reshape(whole, k, delta.shape[1])


def clipping(delta: np.ndarray, k: int, beta: float) -> tuple[float, float, float]:
    """Sums behind the clipping error of disjoint groups of k directions: |error|^2, |mean|^2, clipped share.

    error: mean over records of the clipped vectors less that of the unclipped ones; NaN records are left out.
    """
    wrong, whole, share = clipping_of_groups(delta, k, beta)
    return float(wrong.sum()), float(whole.sum()), float(share.mean())


def clipping_of_groups(delta: np.ndarray, k: int, beta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three parts of `clipping` for every group of k directions, each [groups]."""
    delta = delta[:, np.isfinite(delta).all(axis=0)]
    found = []
    for part in groups(delta, k):
        vectors = part / k
        clipped, over = clip_vectors(vectors, beta / math.sqrt(k))
        mean = vectors.mean(axis=1)
        found.append((np.sum((clipped.mean(axis=1) - mean) ** 2), np.sum(mean**2), over))
    wrong, whole, share = np.array(found, dtype=np.float64).reshape(-1, 3).T
    return wrong, whole, share


def error_table(deltas: list[np.ndarray], ks: list[int], betas: list[float]) -> pd.DataFrame:
    """Relative clipping error (root of summed squares, error over mean) and clipped share by K and beta_clip.

    [our reading] of figure 3's "clipping error": of the batch's mean vector, in the direction of the update. Mean over
    `deltas`, one [K, n] a seed, with 95 % half-widths: Student's over seeds, and the jackknife's over the groups of
    directions of all of them (none with fewer than eight).
    """
    lines = []
    for beta in betas:
        for k in (k for k in ks if k <= len(deltas[0])):
            every = [clipping_of_groups(delta, k, beta) for delta in deltas]
            error = np.array([math.sqrt(wrong.sum() / whole.sum()) for wrong, whole, _ in every])
            wrong, whole, share = (np.concatenate(part) for part in zip(*every, strict=True))
            lines.append({"K": k, "beta_clip": beta, "clip": beta / math.sqrt(k), "relative error": error.mean(),
                          "± seeds": rows.half_width(error), "± groups": _jackknife(wrong, whole),
                          "clipped, %": 100 * share.mean(), "groups": len(share), "seeds": len(deltas)})
    return pd.DataFrame(lines)


def _jackknife(wrong: np.ndarray, whole: np.ndarray) -> float:
    """95 % half-width of sqrt(sum wrong / sum whole) over its groups; NaN with fewer than eight."""
    n = len(wrong)
    if n < 8:
        return math.nan
    without = np.sqrt((wrong.sum() - wrong) / (whole.sum() - whole))
    return float(stats.t.ppf(0.975, n - 1) * math.sqrt((n - 1) / n * np.sum((without - without.mean()) ** 2)))


def error_over_training(runs: list[np.ndarray], ks: list[int], beta: float, window: int) -> pd.DataFrame:
    """Relative clipping error of recorded runs, each [T, K, n], in windows of steps, by K (groups within a step).

    Mean over the runs, one a seed, with Student's 95 % half-width.
    """
    lines = []
    for start in range(0, len(runs[0]), window):
        for k in (k for k in ks if k <= runs[0].shape[1]):
            sums = np.array([[clipping(step, k, beta) for step in run[start:start + window]] for run in runs])
            error = np.sqrt(sums[..., 0].sum(axis=1) / sums[..., 1].sum(axis=1))
            steps = sums.shape[1]
            lines.append({"steps": f"{start + 1} to {start + steps}", "middle": start + (steps + 1) / 2, "K": k,
                          "beta_clip": beta, "relative error": error.mean(), "± seeds": rows.half_width(error),
                          "clipped, %": 100 * sums[..., 2].mean(), "seeds": len(runs)})
    return pd.DataFrame(lines)


# ---------------------------------------------------------------- what the noise leaves


class Signal(NamedTuple):
    """Root mean squares of one released value, in the units of a mean projected gradient."""

    signal: float  # clipped mean over the records, sampling apart
    lost: float  # what the clip took from it
    sampling: float  # spread from which records joined the batch
    noise: float  # privacy noise
    clipped: float  # share of the records

    @property
    def ratio(self) -> float:
        """Signal over all noise."""
        return self.signal / math.sqrt(self.sampling**2 + self.noise**2)


def signal(delta: np.ndarray, k: int, beta: float, multiplier: float, batch: float) -> Signal:
    """What one step of K directions releases when `batch` of many such records are expected in it.

    delta [K', n] with K' >= k; groups of k are pooled. noise = multiplier beta sqrt(k) / batch: published e_k times K.
    """
    return _rooted(_powers(delta, k, beta, batch), multiplier * beta * math.sqrt(k) / batch)


def signal_of_run(statistic: np.ndarray, k: int, beta: float, multiplier: float, batch: float) -> Signal:
    """The same, pooled over the steps of a recorded run [T, K, n]."""
    pooled = np.mean([_powers(step, k, beta, batch) for step in statistic], axis=0)
    return _rooted(pooled, multiplier * beta * math.sqrt(k) / batch)


def _rooted(powers: np.ndarray, noise: float) -> Signal:
    square, lost, sampling, share = map(float, powers)
    return Signal(math.sqrt(max(square, 0.0)), math.sqrt(lost), math.sqrt(sampling), noise, share)


def _powers(delta: np.ndarray, k: int, beta: float, batch: float) -> np.ndarray:
    """Squares of signal (unbiased, so it may be negative), of what the clip took and of sampling; share clipped."""
    delta = delta[:, np.isfinite(delta).all(axis=0)]
    kept, lost, spread, share = [], [], [], []
    for part in groups(delta, k):
        clipped, over = clip_vectors(part / k, beta / math.sqrt(k))
        clipped = clipped * k  # released units
        kept.append(clipped.mean(axis=1))
        lost.append(part.mean(axis=1) - kept[-1])
        spread.append(np.mean(clipped**2, axis=1))
        share.append(over)
    sampling = float(np.mean(spread)) / batch  # Poisson: every record's square, over the expected batch
    bias = float(np.mean(spread)) / delta.shape[1]  # the mean of n records is itself noisy: taken off the signal
    return np.array([np.mean(np.square(kept)) - bias, np.mean(np.square(lost)), sampling, np.mean(share)])


def shuffled_advantage(multiplier: float, steps: int, runs: int, seed: int) -> tuple[float, float]:
    """Advantage 2p - 1 of the likelihood-ratio attack on one shuffled epoch, and its standard error.

    The record joins exactly one of `steps` batches, in secret order, and moves that release by the clip; the
    attacker knows everything else and the noise's size (`multiplier` clips). With Poisson batches of rate 1/steps an
    accountant's bound may be lower than this: then the bound does not hold for shuffled batches.
    """
    rng = np.random.default_rng(seed)
    without = rng.standard_normal((runs, steps)) * multiplier
    joined = rng.standard_normal((runs, steps)) * multiplier
    joined[np.arange(runs), rng.integers(steps, size=runs)] += 1.0
    said = [np.mean(np.exp((x - 0.5) / multiplier**2), axis=1) > 1 for x in (joined, without)]
    rates = [float(s.mean()) for s in said]
    error = math.sqrt(sum(r * (1 - r) for r in rates) / runs)
    return rates[0] - rates[1], error
