"""Figures of chapter 15: how hard objectives are for halves, ties, and what training by each objective gives.

Knows recorded differences (`qa_hardness`) and the table's results (`qa_table`). All show public pools (study mode).
"""

from typing import Any

import numpy as np
import pandas as pd

from paclab.chapters import qa_hardness as hard
from paclab.chapters.consensus_views import half_way, rolling
from paclab.chapters.qa_table import ROWS, Results
from paclab.chapters.sentiment_figures import TRACKS
from paclab.notebook import plots
from paclab.privacy import consensus

Recorded = dict[tuple[str, str], list[np.ndarray]]
PAPER_TAU = {"SST-2": (2.7, 3.4), "SQuAD, full fine-tuning": (2.2, 2.6), "SQuAD, LoRA": (1.4, 1.6)}
LIMIT = 8.0


def headline(recorded: Recorded, candidates: int) -> Any:
    """Left: |t| of every direction by objective and track. Right: tau brought to a pool of a thousand records."""
    import matplotlib.pyplot as plt

    names = list(recorded)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.8, 0.36 * len(names) + 1.6), sharey=True,
                                         width_ratios=(5, 4))
    left.axvspan(half_way(candidates), LIMIT, color="#e8efe4", zorder=0)
    for y, (key, track) in enumerate(names):
        t = np.concatenate([np.abs(consensus.pool_t_statistic(a)) for a in recorded[key, track]])
        jitter = 0.28 * np.sin(2.4 * np.arange(len(t)))
        index = 0 if track == "ft" else 5
        left.plot(np.minimum(t, LIMIT), y + jitter, linestyle="none", markersize=4, alpha=0.7,
                  color=plots.PALETTE[index], marker=plots.MARKERS[0 if track == "ft" else 1])
        signal = float(np.mean([hard.snr(a) for a in recorded[key, track]]))
        right.plot([hard.tau_at(signal, 1000)], [y], marker="D", color=plots.PALETTE[index], linestyle="none")
    for i, (low, high) in enumerate(PAPER_TAU.values()):
        right.axvspan(low, high, color=("#dddddd", "#c4c4c4", "#eeeeee")[i], zorder=0)
    left.set_yticks(range(len(names)), [f"{hard.SIGNALS[key].name}  [{track}]" for key, track in names])
    left.set_ylim(len(names) - 0.5, -0.5)
    widest = max(3.5, *(min(LIMIT, np.abs(consensus.pool_t_statistic(a)).max() + 0.3) for some in recorded.values()
                        for a in some))
    left.set(xlabel="|t| of each direction\n(shaded: halves agree more often than not)", xlim=(-0.1, widest))
    right.set(xlabel="τ brought to N = 1000\n(grey: the paper's SQuAD LoRA, SQuAD, SST-2)")
    for ax in (left, right):
        ax.grid(axis="y", visible=False)
    return figure


def size_law(recorded: Recorded, track: str, repeats: int, seed: int) -> Any:
    """Mean t^2 against the pool's size: counted in random sub-pools (points), 1 + N snr^2 (lines)."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.8, 4.0))
    for i, (key, _) in enumerate(name for name in recorded if name[1] == track):
        arrays = recorded[key, track]
        whole = arrays[0].shape[1]
        sizes = [max(10, whole * part // 8) for part in (1, 2, 3, 4, 6, 8)]
        look, signal = plots.line(i), float(np.mean([hard.snr(a) for a in arrays]))
        grid = np.linspace(sizes[0], whole, 50)
        ax.plot(grid, 1 + grid * signal**2, color=look["color"], linestyle=look["linestyle"])
        ax.plot(sizes, hard.by_size(arrays, sizes, repeats, seed), linestyle="none", marker=look["marker"],
                color=look["color"], label=hard.SIGNALS[key].name)
    ax.axhline(1, color="#777777", linewidth=1)
    ax.set(xlabel=f"records in the pool, N ({TRACKS[track]})", ylabel="mean t² (1 = noise alone)", ylim=(0, None))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
    return figure


def tie_bars(table: pd.DataFrame) -> Any:
    """Directions by kind, one bar per objective, track and tie rule."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(9.6, 0.34 * len(table) + 1.5))
    y, start = np.arange(len(table)), np.zeros(len(table))
    for i, name in ((0, "agreed, none tied"), (1, "agreed with ties"), (4, "all tied, no update"), (7, "split")):
        ax.barh(y, table[name], left=start, label=name, **plots.bar(i))
        start = start + table[name].to_numpy()
    rule = table["tie rule"].str.partition(",")[0].str.partition(" as")[0]
    ax.set_yticks(y, table["objective"] + " [" + table["track"] + "], " + rule, fontsize=8.5)
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set(xlabel="share of the directions", xlim=(0, 1))
    ax.legend(loc="lower left", bbox_to_anchor=(-0.3, 1.0), ncols=4, fontsize=9)
    ax.grid(axis="y", visible=False)
    return figure


# ---------------------------------------------------------------- the explorer


def explorer_figure(recorded: Recorded, name: tuple[str, str], size: int, halves: int, clip: float, tie: str) -> Any:
    """Left: t of every direction by kind. Middle: one direction's records. Right: f by the law of tau, and counted."""
    import matplotlib.pyplot as plt

    values = _read(recorded, name, size, clip)
    parts = hard.kinds(values, halves, tie=tie)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.4, 3.2), layout="none")
    figure.subplots_adjust(left=0.06, right=0.99, top=0.93, bottom=0.23, wspace=0.26)
    t = consensus.pool_t_statistic(values)
    left.axhspan(-half_way(halves), half_way(halves), color="#eeeeee")
    left.plot(np.arange(len(t)), np.clip(t, -LIMIT, LIMIT), linestyle="none", marker="o", markersize=4,
              color=plots.PALETTE[0])
    left.set(xlabel="direction", ylabel="pool's t")
    _records(middle, values[int(np.argmax(np.abs(t)))])
    grid = np.linspace(0.3, 6, 40)
    right.plot(grid, consensus.expected_free_fraction(grid, halves, "complementary"), color=plots.PALETTE[0])
    right.plot([min(np.sqrt(hard.tau_squared(values)), 6)], [parts.agreed + parts.by_coin], marker="D",
               color=plots.PALETTE[5], markersize=8, linestyle="none")
    right.set(xlabel="τ (line: law, diamond: counted)", ylabel="share agreed", ylim=(-0.03, 1.03))
    for ax in (left, middle, right):
        ax.locator_params(axis="x", nbins=4)
        ax.locator_params(axis="y", nbins=4)
    return figure


def _records(ax: Any, row: np.ndarray) -> None:
    still = int(np.sum(row == 0))
    ax.hist(row[row != 0] if still < len(row) else [0.0], bins=24, color=plots.PALETTE[4], edgecolor=plots.INK,
            linewidth=0.4)
    ax.set(xlabel=f"g of the records that move\n(clearest direction; {still} of {len(row)} do not)", ylabel="records")


def _read(recorded: Recorded, name: tuple[str, str], size: int, clip: float) -> np.ndarray:
    values = recorded[name][0][:, :size].astype(np.float64)
    moved = np.abs(values[values != 0])
    if np.isfinite(clip) and moved.size:
        values = np.clip(values, -clip * np.median(moved), clip * np.median(moved))
    return values


def explorer_numbers(recorded: Recorded, name: tuple[str, str], size: int, halves: int, clip: float,
                     tie: str) -> dict:
    """The numbers behind `explorer_figure`."""
    values = _read(recorded, name, size, clip)
    parts, signal = hard.kinds(values, halves, tie=tie), hard.snr(values)
    needed = hard.records_for(signal, 2.9)
    return {"objective": f"{hard.SIGNALS[name[0]].name}, {TRACKS[name[1]]}", "directions": len(values),
            "records moved by a nudge": f"{100 * hard.moved_share(values):.1f} %",
            "tau": f"{np.sqrt(hard.tau_squared(values)):.2f}", "signal per record": f"{signal:.3f}",
            "records that tau = 2.9 would need": f"{needed:,.0f}" if np.isfinite(needed) else "no signal seen",
            "agreed, none tied": f"{parts.agreed:.3f}", "agreed with ties": f"{parts.by_coin:.3f}",
            "all tied": f"{parts.tied:.3f}", "split": f"{parts.split:.3f}"}


# ---------------------------------------------------------------- the table's figures


def gains(r: Results) -> Any:
    """F1 (left, points) and cross-entropy (right, nats) against zero-shot by row, paired, with 95 % intervals."""
    import matplotlib.pyplot as plt

    names = list(r.cells)
    figure, axes = plt.subplots(1, 2, figsize=(11.0, 0.33 * len(names) + 1.5), sharey=True)
    for ax, what, scale in ((axes[0], "f1", 100), (axes[1], "ce", 1)):
        for y, (track, key) in enumerate(names):
            gain, index = r.gain(track, key, what), 0 if ROWS[key].task == "qa" else 5
            ax.errorbar([scale * gain.mean], [y], xerr=[scale * gain.shown], capsize=3, linestyle="none",
                        color=plots.PALETTE[index], marker=plots.MARKERS[0 if track == "ft" else 1])
        ax.axvline(0, color=plots.INK, linewidth=1)
        ax.grid(axis="y", visible=False)
    axes[0].set_yticks(range(len(names)), [f"{ROWS[key].name}  [{track}]" for track, key in names])
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    axes[0].set(xlabel="F1 over zero-shot, points")
    axes[1].set(xlabel="change of cross-entropy, nats (less is better)")
    return figure


def free_steps(r: Results, window: int = 10) -> Any:
    """Running share of free steps of the rows whose halves vote, by objective, one panel a track."""
    import matplotlib.pyplot as plt

    tracks = list(r.plan.rows)
    figure, axes = plt.subplots(1, len(tracks), figsize=(4.2 * len(tracks) + 2.6, 3.6), sharey=True, squeeze=False)
    for ax, track in zip(axes[0], tracks, strict=True):
        shown = [key for t, key in r.cells if t == track and "zpl-coin" in key]
        for i, key in enumerate(shown):
            free = np.mean([rolling(np.array([np.mean([b["free"] for b in info["bits"]]) for info in c.infos]), window)
                            for c in r.cells[track, key]], axis=0)
            ax.plot(np.arange(1, len(free) + 1), free, label=ROWS[key].name, **plots.line(i, 8))
        ax.axhspan(*((0.25, 0.33) if track == "ft" else (0.08, 0.11)), color="#dddddd", zorder=0)
        ax.set(xlabel="step (grey: the paper's whole-run range)", title=TRACKS[track], ylim=(-0.03, 1.03))
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel(f"free share of the last {window} steps")
    axes[0, -1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
    return figure


def sentence(table: pd.DataFrame) -> str:
    """The answer in one line, from the hardness table: the same questions by both objectives, one line a track."""
    lines = []
    for track, part in table.groupby("track", sort=False):
        found = part.set_index("objective")
        said = [f"{name.removeprefix('answers, ')}: tau {found.loc[name, 'tau']:.2f}, "
                f"{found.loc[name, 'records moved, %']:.1f} % of the records move"
                for name in (hard.SIGNALS[key].name for key in ("qa-ce", "qa-f1")) if name in found.index]
        lines.append(f"{TRACKS[track]}, {int(part['N'].iloc[0])} questions (noise alone: tau 1): {'; '.join(said)}")
    return "\n".join(lines)
