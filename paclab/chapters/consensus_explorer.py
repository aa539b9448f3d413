"""The drawings of chapter 11 that a reader plays with: one reading of recorded steps from four sides.

Knows `consensus_views.View`; pure functions, fast enough to be redrawn while a slider is moved.
"""

from typing import Any

import numpy as np

from paclab.chapters.consensus_views import DRAWS, View, half_way, read
from paclab.notebook import plots
from paclab.privacy import consensus

LIMIT = 4.5  # |t| shown on the axis of the law


def headline_figure(view: View, candidates: int) -> Any:
    """Every step of a run by its t: free steps filled, split ones hollow, the edge of agreement shaded."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(8.4, 4.0))
    half = half_way(candidates)
    _draw_steps(ax, view, half)
    ax.set(xlabel=f"step (grey: agreement of {candidates} halves less likely than not, |t| < {half:.2f})",
           ylabel="pool mean in standard errors, t")
    return figure


def explorer_figure(differences: np.ndarray, candidates: int, size: int, clip: float, threshold: float,
                    window: tuple[int, int]) -> Any:
    """Four small views of one reading: t over steps, candidate means, vote shares, the law."""
    import matplotlib.pyplot as plt

    view = read(differences, candidates, size, clip, window)
    figure, axes = plt.subplots(2, 2, figsize=(9.0, 5.0), layout="none")
    figure.subplots_adjust(left=0.075, right=0.99, top=0.94, bottom=0.105, hspace=0.46, wspace=0.2)
    _draw_steps(axes[0, 0], view, threshold)
    _draw_means(axes[0, 1], view)
    axes[1, 0].hist(view.plus, bins=np.linspace(0, 1, 21), color=plots.PALETTE[4], edgecolor=plots.INK, linewidth=0.5)
    axes[1, 0].set(xlabel="q₊: share of halves voting +1", ylabel="steps")
    _draw_law(axes[1, 1], view, candidates, threshold)
    for ax in axes.flat:  # text is most of the drawing time
        ax.locator_params(axis="x", nbins=5)
        ax.locator_params(axis="y", nbins=3)
    return figure


def _draw_steps(ax: Any, view: View, threshold: float) -> None:
    ax.axhspan(-threshold, threshold, color="#eeeeee")
    for mask, name, index, face in ((view.free, "all halves agree: free", 0, plots.PALETTE[0]),
                                    (~view.free, "split", 5, "white")):
        ax.plot(view.steps[mask], view.t[mask], linestyle="none", marker=plots.MARKERS[0 if index == 0 else 1],
                color=plots.PALETTE[index], markerfacecolor=face, markeredgecolor=plots.PALETTE[index], label=name)
    ax.set(xlabel="step (grey: |t| below the threshold)", ylabel="pool's t")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=2, fontsize=9, borderpad=0, handletextpad=0.1)


def _draw_means(ax: Any, view: View) -> None:
    sharp, close = int(np.argmax(np.abs(view.t))), int(np.argmin(np.abs(view.t)))
    for index, (i, name) in enumerate(((sharp, "largest |t|"), (close, "smallest |t|"))):
        ax.hist(view.means[i], bins=20, histtype="stepfilled", label=f"step {view.steps[i]}: {name}",
                color=plots.PALETTE[index], alpha=0.75, hatch=plots.HATCHES[index], edgecolor=plots.INK, linewidth=0.6)
    ax.axvline(0, color=plots.INK, linewidth=1.2)
    ax.set(xlabel="candidate means, in units of sd/√N", ylabel="halves")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=2, fontsize=9, borderpad=0)


def _draw_law(ax: Any, view: View, candidates: int, threshold: float) -> None:
    t = np.linspace(0, LIMIT, 100)
    for i, draw in enumerate(DRAWS):
        ax.plot(t, consensus.free_step_probability(t, candidates, draw), color=plots.PALETTE[i],
                linestyle=plots.LINESTYLES[i])
    seen, where, _, _ = binned(view)
    ax.plot(where, seen, linestyle="none", marker="D", color=plots.INK)
    ax.text(0.1, 0.62, "diamonds: share of steps\nline: (2Φ - 1)^(M/2)\ndashes: Φ^M", fontsize=9)
    ax.axvline(threshold, color="#777777", linestyle=":", linewidth=1.4)
    ax.set(xlabel="|t|", ylabel="P(all agree)", xlim=(0, LIMIT), ylim=(-0.04, 1.04))


def binned(view: View, edges: tuple[float, ...] = (0, 1, 1.5, 2, 2.5, 3, 3.5, LIMIT)):
    """(share of free steps, mean |t|, free, all) in each bin of |t| that holds a step."""
    size = np.minimum(np.abs(view.t), LIMIT)
    which = np.digitize(size, edges[1:-1])
    filled = [i for i in range(len(edges) - 1) if (which == i).any()]
    free = np.array([view.free[which == i].sum() for i in filled])
    count = np.array([(which == i).sum() for i in filled])
    return free / count, np.array([size[which == i].mean() for i in filled]), free, count


def explorer_numbers(differences: np.ndarray, candidates: int, size: int, clip: float, threshold: float,
                     window: tuple[int, int]) -> dict:
    """The numbers behind `explorer_figure`."""
    view = read(differences, candidates, size, clip, window)
    law = {draw: np.mean(consensus.free_step_probability(view.t, candidates, draw)) for draw in DRAWS}
    above = np.abs(view.t) > threshold
    return {"steps in the window": len(view.t), "f, share of free steps": f"{view.free.mean():.3f}",
            "f by the law, complementary halves": f"{law['complementary']:.3f}",
            "f by the law, Φ(|t|)^M": f"{law['independent']:.3f}",
            f"share of steps with |t| > {threshold:g}": f"{above.mean():.3f}",
            "steps on which that test says what the vote says": f"{np.mean(above == view.free):.3f}",
            "tau, root mean square of t": f"{np.sqrt(np.mean(view.t ** 2)):.2f}",
            "I(secret half; releases of ZPL), nats": "0 at every setting"}
