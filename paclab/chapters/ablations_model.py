"""The plateau in closed form: what a budget buys on split steps, and how much signal free steps carry for nothing.

Knows exact channels and the law of unanimity. Knows no model, no run and no record. Budgets in nats.

Model [our reading]: the pool's t is N(0, tau^2) over steps, a step's signal is |t|, halves are in complementary pairs.
    free        |t| (2 Phi(|t|) - 1)^(M/2)                      captured whole, at no cost
    split       |t| ((2 Phi(|t|) - 1) - (2 Phi(|t|) - 1)^(M/2)) captured times c(q, beta) at the rarer share q
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from paclab.notebook import plots
from paclab.privacy import channels, consensus, risk

PAPER_T = 1000  # of the paper's full fine-tuning rows
SHOWN_HALVES = (2, 8, 16, 32, 64, 128, 256, 512)


def gaussian_correlation(q: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """E[Y s] of the sign of s + sigma N(0,1) calibrated to beta nats at share q; beta is cut to 0.999 h(q)."""
    q, beta = np.broadcast_arrays(np.asarray(q, dtype=float), np.asarray(beta, dtype=float))
    beta = np.minimum(beta, channels.ENTROPY_SHARE_CAP * channels.entropy(q))
    return np.asarray(channels.gaussian_sign_correlation(channels.gaussian_sigma(q, beta)))


def rr_correlation(q: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """E[Y s] of randomized response calibrated to beta nats at share q; beta is cut to 0.999 h(q)."""
    q, beta = np.broadcast_arrays(np.asarray(q, dtype=float), np.asarray(beta, dtype=float))
    beta = np.minimum(beta, channels.ENTROPY_SHARE_CAP * channels.entropy(q))
    return np.asarray(channels.rr_correlation(channels.rr_flip(q, beta)))


def per_split_step(total: ArrayLike, steps: int, free: float) -> np.ndarray:
    """Nats of a split step when free steps pass their share on (adaptive schedule): total / (T (1 - f))."""
    return np.asarray(total, dtype=float) / (steps * (1 - free))


@lru_cache(maxsize=4)
def _nodes(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(count)


@lru_cache(maxsize=512)
def signal_shares(tau: float, candidates: int) -> tuple[float, float]:
    """(free, split): shares of the signal carried by free steps, and by split steps if all were answered truly.

    The rest is the halves' own error: even a true answer of one half is not the pool's.
    """
    nodes, weights = _nodes(160)
    top = min(12.0, 12.0 * tau)
    t = 0.5 * top * (nodes + 1)
    density = 0.5 * top * weights * t * np.exp(-0.5 * (t / tau) ** 2)
    one_half, agreed = special.erf(t / np.sqrt(2)), consensus.free_step_probability(t, candidates, "complementary")
    tail = np.exp(-0.5 * (top / tau) ** 2) * tau**2  # beyond `top` every half agrees
    whole = density.sum() + tail
    return float((density @ agreed + tail) / whole), float(density @ (one_half - agreed) / whole)


@lru_cache(maxsize=4096)
def free_fraction(tau: float, candidates: int) -> float:
    """f by the law of complementary pairs, t ~ N(0, tau^2)."""
    nodes, weights = _nodes(160)
    top = min(10.0, 12.0 * tau)
    t = 0.5 * top * (nodes + 1)
    density = top * weights * np.exp(-0.5 * (t / tau) ** 2) / (tau * np.sqrt(2 * np.pi))
    agreed = consensus.free_step_probability(t, candidates, "complementary")
    return float(density @ agreed + 2 * special.ndtr(-top / tau))


@lru_cache(maxsize=4096)
def paid_share(tau: float, candidates: int, beta: float) -> float:
    """Share of the signal that split steps add when each costs beta nats (Gaussian channel, then its sign)."""
    nodes, weights = _nodes(60)
    top = min(12.0, 12.0 * tau)
    t = 0.5 * top * (nodes + 1)
    density = 0.5 * top * weights * t * np.exp(-0.5 * (t / tau) ** 2)
    one_half, agreed = special.erf(t / np.sqrt(2)), consensus.free_step_probability(t, candidates, "complementary")
    rare = np.maximum(special.ndtr(-t), 1 / candidates)  # a split vote has a dissenter
    whole = tau**2  # the integral of t exp(-t^2 / 2 tau^2)
    return float(density @ ((one_half - agreed) * gaussian_correlation(rare, beta)) / whole)


def captured(tau: float, candidates: int, total: float, steps: int) -> tuple[float, float]:
    """(free, paid): shares of the signal that a run of so many nats and steps captures on average."""
    beta = float(per_split_step(total, steps, free_fraction(tau, candidates)))
    return signal_shares(tau, candidates)[0], paid_share(tau, candidates, beta)


# ---------------------------------------------------------------- the explorer


@lru_cache(maxsize=64)
def _curve(q: float, low: float = -7.0, high: float = -0.3, points: int = 60) -> tuple[np.ndarray, ...]:
    beta = np.logspace(low, high, points)
    return beta, gaussian_correlation(q, beta), rr_correlation(q, beta)


def explorer_figure(log_total: float, q: float, halves: int, tau: float, steps: int) -> Any:
    """Left: what a budget buys on a split step. Right: where the signal is carried, by number of halves."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="none")
    figure.subplots_adjust(left=0.08, right=0.99, top=0.88, bottom=0.17, wspace=0.24)
    beta = _beta(log_total, halves, tau, steps)
    grid, gaussian, rr = _curve(round(q, 2))
    left.plot(grid, gaussian, color=plots.PALETTE[0], label="Gaussian, then its sign")
    left.plot(grid, rr, color=plots.PALETTE[1], linestyle="--", label="randomized response")
    left.plot([beta], [float(gaussian_correlation(q, beta))], color=plots.PALETTE[5], marker="D", markersize=8)
    left.set(xscale="log", xlabel="nats of a split step", ylabel="correlation with the vote", ylim=(-0.03, 1.03))
    left.legend(loc="upper left", fontsize=9)
    _bars(right, log_total, halves, tau, steps)
    return figure


def _beta(log_total: float, halves: int, tau: float, steps: int) -> float:
    return float(per_split_step(10**log_total, steps, free_fraction(tau, halves)))


def _bars(ax: Any, log_total: float, halves: int, tau: float, steps: int) -> None:
    shown = sorted({*SHOWN_HALVES, halves})
    free, paid = np.array([captured(tau, m, 10**log_total, steps) for m in shown]).T
    where = np.arange(len(shown))
    ax.bar(where, free, label="free steps", **plots.bar(0))
    ax.bar(where, paid, bottom=free, label="paid bits", **plots.bar(5))
    ax.plot([shown.index(halves)], [free[shown.index(halves)] + paid[shown.index(halves)] + 0.04], marker="v",
            color=plots.INK, linestyle="none")
    ax.set_xticks(where, [str(m) for m in shown])
    ax.set(xlabel="candidate halves M", ylabel="share of the signal", ylim=(0, 1.02))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 0.99), ncols=2, fontsize=9, borderpad=0)
    ax.grid(axis="x", visible=False)


def explorer_numbers(log_total: float, q: float, halves: int, tau: float, steps: int) -> dict:
    """The numbers behind `explorer_figure`."""
    total, beta = 10**log_total, _beta(log_total, halves, tau, steps)
    c = float(gaussian_correlation(q, beta))
    free, paid = captured(tau, halves, total, steps)
    return {"total budget, nats": f"{total:.3g}", "nats of a split step": f"{beta:.3g}",
            "correlation at this q, Gaussian then sign": f"{c:.4f}",
            "the same, randomized response": f"{float(rr_correlation(q, beta)):.4f}",
            "free fraction f": f"{free_fraction(tau, halves):.3f}",
            "signal carried by free steps": f"{free:.3f}", "added by the paid bits": f"{paid:.4f}",
            "guess of a record's membership, at most": f"{risk.success_from_mi(min(total, 0.693)):.3f}",
            "chance of guessing the half blindly": f"1 in {halves}"}
