"""Where does noise win? Expected signal, calibrated noise and progress a step, fast enough for sliders.

One step along a random direction with a learning rate r times the best noise-free one lowers the loss, in units of
what a noise-free step gains, by
    gain(r) = r (2 - r (1 + 1 / snr)),    snr = S^2 / (V / b + sigma^2)
S^2 the power of the clipped mean over directions, V its variance over records, b the expected batch, sigma the noise.
Best at r = 1 / (1 + 1 / snr), where gain = snr / (1 + snr): a slope. With r kept, gain falls through zero at
snr = r / (2 - r): the cliff. A second-order model of the loss with one curvature for all directions [ours].
Knows differences and accountants' formulas. Does not know runs.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from paclab.notebook import plots
from paclab.releases.dp import EXPECTED_BATCH, clip_vectors

ORDERS = np.array([*range(2, 17), 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256])
EPSILONS = tuple(np.geomspace(0.1, 8, 24).tolist())
REFERENCE = 2.0


def renyi(multiplier: np.ndarray, sampling: float) -> np.ndarray:
    """Renyi divergence of one Poisson-sampled Gaussian step at the whole orders ORDERS: [len(multiplier), orders].

    Add/remove adjacency. Source: Mironov, Talwar, Zhang 2019, the binomial sum for whole orders.
    """
    k = np.arange(int(ORDERS[-1]) + 1)
    a = ORDERS[:, None]
    choose = special.gammaln(a + 1) - special.gammaln(k + 1) - special.gammaln(np.maximum(a - k, 0) + 1)
    rest = np.where(k < a, (a - k) * math.log1p(-sampling), 0.0) if sampling < 1 else np.where(k < a, -np.inf, 0.0)
    fixed = np.where(k <= a, choose + k * math.log(sampling) + rest, -np.inf)
    power = k * (k - 1) / (2 * np.asarray(multiplier, float)[:, None, None] ** 2)
    return special.logsumexp(fixed + power, axis=2) / (ORDERS - 1)


def spent(multiplier: np.ndarray, sampling: float, steps: int, delta: float) -> np.ndarray:
    """Epsilon at delta of each multiplier, an upper bound: the best whole order."""
    total = steps * renyi(multiplier, sampling)
    return np.min(total + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1), axis=1)


@functools.lru_cache(maxsize=512)
def multipliers(sampling: float, steps: int, delta: float = 1e-5,
                epsilons: tuple[float, ...] = EPSILONS) -> np.ndarray:
    """Noise over clip for each promise: never too little, some per cent above the package's accountant."""
    target = np.array(epsilons)
    low, high = np.full(len(target), math.log(0.2)), np.full(len(target), math.log(1e5))
    for _ in range(24):
        middle = (low + high) / 2
        fine = spent(np.exp(middle), sampling, steps, delta) <= target
        low, high = np.where(fine, low, middle), np.where(fine, middle, high)
    return np.exp(high)


class Signal(NamedTuple):
    """Of clipped projected gradients, per direction: power of the mean, and variance over records."""

    power: float
    variance: float
    clipped: float


def signal(differences: np.ndarray, k: int, clip: float) -> Signal:
    """What K directions at a time carry at this clip (of K = 1; divided by sqrt K): differences [directions, n].

    The power is unbiased: the sampling variance of the n records is taken off. Directions beyond a multiple of K are
    left out.
    """
    blocks, shares = [], []
    for first in range(0, len(differences) - k + 1, k):
        clipped, share = clip_vectors(differences[first:first + k] / k, clip / math.sqrt(k))
        blocks.append(clipped * k)
        shares.append(share)
    values = np.concatenate(blocks)
    variance = values.var(axis=1, ddof=1)
    power = np.mean(values.mean(axis=1) ** 2 - variance / values.shape[1])
    return Signal(float(max(power, 0.0)), float(variance.mean()), float(np.mean(shares)))


def gain(r: np.ndarray, snr: np.ndarray) -> np.ndarray:
    """Expected gain of a step in units of a noise-free best step; r is the rate over the best noise-free one."""
    return r * (2 - r * (1 + 1 / np.asarray(snr)))


def best_rate(snr: np.ndarray) -> np.ndarray:
    """The rate with the largest gain, as a share of the best noise-free one."""
    return 1 / (1 + 1 / np.asarray(snr))


class Outlook(NamedTuple):
    """Curves over EPSILONS for one setting; noise and signal in released units."""

    signal: Signal
    noise: np.ndarray  # standard deviation of the DP noise
    batch: float  # standard deviation from the random batch
    snr: np.ndarray
    kept: np.ndarray  # gain with the rate that is best at epsilon 2
    tuned: np.ndarray  # gain with the best rate at each epsilon
    cliff: float  # epsilon where `kept` crosses zero; NaN when it does not in range


def outlook(differences: np.ndarray, records: int, steps: int, k: int, clip: float) -> Outlook:
    """Expected course of a run: `records` in the pool, `steps` steps of `k` directions over a batch of 64."""
    found = signal(differences, k, clip)
    sampling = min(1.0, EXPECTED_BATCH / records)
    b = sampling * records
    noise = multipliers(sampling, steps) * clip * math.sqrt(k) / b
    snr = found.power / (found.variance / b + noise**2)
    at = float(np.interp(math.log(REFERENCE), np.log(EPSILONS), snr))
    kept = gain(best_rate(at), snr)
    below = np.flatnonzero((kept[:-1] < 0) & (kept[1:] >= 0))
    cliff = float("nan")
    if len(below):
        i = below[-1]
        share = kept[i] / (kept[i] - kept[i + 1])
        cliff = float(np.exp((1 - share) * math.log(EPSILONS[i]) + share * math.log(EPSILONS[i + 1])))
    return Outlook(found, noise, math.sqrt(found.variance / b), snr, kept, gain(best_rate(snr), snr), cliff)


def draw(differences: np.ndarray, epsilon: float, records: int, steps: int, k: int, clip: float) -> Any:
    """Left: signal and noises of a step over epsilon. Right: what a step gains with a kept and with a fitted rate."""
    import matplotlib.pyplot as plt

    o = outlook(differences, records, steps, k, clip)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.6, 3.6))
    left.loglog(EPSILONS, o.noise, label="noise added", **plots.line(5, 4))
    left.axhline(math.sqrt(o.signal.power), color=plots.PALETTE[0], label="signal")
    left.axhline(o.batch, color=plots.PALETTE[7], linestyle="--", label="random batch")
    left.set(xlabel="ε", ylabel="size in one released number")
    right.semilogx(EPSILONS, o.tuned, label="rate fitted to each ε", **plots.line(0, 4))
    right.semilogx(EPSILONS, np.maximum(o.kept, -1.2), label="rate kept from ε = 2", **plots.line(1, 4))
    right.axhline(0, color=plots.INK, linewidth=1)
    if o.cliff == o.cliff:
        right.axvline(o.cliff, color="#777777", linestyle=":", label=f"cliff at ε = {o.cliff:.2g}")
    right.set(xlabel="ε", ylabel="gain of a step\n(1: noise-free)", ylim=(-1.25, 1.05))
    for ax in (left, right):
        ax.axvline(epsilon, color=plots.INK, linewidth=0.8, linestyle="--")
        ax.legend(loc="best")
    return figure


def numbers(differences: np.ndarray, epsilon: float, records: int, steps: int, k: int, clip: float) -> dict:
    """The same at one epsilon, as text."""
    o = outlook(differences, records, steps, k, clip)

    def at(curve: np.ndarray) -> float:
        return float(np.interp(math.log(epsilon), np.log(EPSILONS), curve))

    return {"signal": f"{math.sqrt(o.signal.power):.3g}", "noise added": f"{at(o.noise):.3g}",
            "random batch": f"{o.batch:.3g}", "records clipped": f"{100 * o.signal.clipped:.0f} %",
            "signal to noise, power": f"{at(o.snr):.3g}", "gain, rate fitted": f"{at(o.tuned):.3f}",
            "gain, rate kept from ε = 2": f"{at(o.kept):.3f}",
            "directions' worth, rate fitted": f"{at(o.tuned) * steps * k:.1f} of {steps * k}"}


@functools.lru_cache(maxsize=4)
def differences(seed: int = 0, directions: int = 16, records: int = 200, model: str = "embedded") -> np.ndarray:
    """Projected gradients of the untrained model on sentences of a public pool: float64 [directions, records]."""
    import torch

    from paclab import finetune
    from paclab.releases.secret import Secret
    from paclab.zo.train import probe

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        config = finetune.Config(method="mezo", pool=records, k=directions, seed=seed, dev=1, test=1, model=model,
                                 study=True)
        return probe(finetune.prepare(config, Secret.from_seed(seed), device="cpu").job, 0)
    finally:
        torch.set_num_threads(threads)
