"""Figures of chapter 14: what matters, why the plateau is flat, and each study by itself.

Knows `ablations_results.Results` and the published plateau. Every measured figure shows a public pool (study mode).
"""

from typing import Any

import numpy as np

from paclab.chapters import ablations_model as model
from paclab.chapters import ablations_results as read
from paclab.chapters.ablations import BASE_MI, BUDGETS, HALVES, PLATEAU, STUDIES
from paclab.chapters.ablations_results import Results
from paclab.chapters.sentiment_figures import TRACKS
from paclab.notebook import plots, tables


def what_matters(r: Results) -> Any:
    """Accuracy over each study's base row, paired, with 95 % intervals; one block a study.

    The paper's clips are left to the page's own figure: they repeat the learning rates.
    """
    import matplotlib.pyplot as plt

    studies = [study for study in r.plan.studies if study != "clipped-rate"]
    shown = [v for study in studies for v in r.variants(study) if study != "plateau" or _extreme(r, v)]
    blocks = [(study, some) for study in studies if (some := [v for v in shown if v.study == study])]
    rows = sum(len(some) + 1 for _, some in blocks)
    figure, ax = plt.subplots(figsize=(9.4, 0.235 * rows + 0.9))
    y, names = 0, []
    for study, some in blocks:
        names.append((y, f"{STUDIES[study].upper()}"))
        y += 1
        for v in some:
            _point(ax, r, v, y)
            names.append((y, f"{v.label}  [{v.track}]" + ("  = base" if v.base else "")))
            y += 1
    ax.axvline(0, color=plots.INK, linewidth=1)
    ax.set_yticks([at for at, _ in names], [text for _, text in names], fontsize=8.5)
    ax.set(ylim=(y - 0.4, -0.6), xlabel="accuracy over the block's base row, points (95 %, paired on sentences)")
    ax.grid(axis="y", visible=False)
    return figure


def _extreme(r: Results, v: Any) -> bool:
    """Of the plateau only its ends, the usual budget and the reference rows."""
    spent = [w.setting["mi"] for w in r.variants("plateau", v.track) if "mi" in w.setting]
    return "mi" not in v.setting or v.setting["mi"] in (min(spent), BASE_MI, max(spent))


def _point(ax: Any, r: Results, v: Any, y: float) -> None:
    index = 0 if v.track == "ft" else 5
    if v.base:
        ax.plot([0], [y], marker="|", markersize=9, color=plots.INK, linestyle="none")
        return
    gap = r.over_base(v)
    ax.errorbar([100 * gap.mean], [y], xerr=[100 * gap.shown], capsize=2.5, linestyle="none",
                color=plots.PALETTE[index], marker=plots.MARKERS[0 if v.track == "ft" else 1], markersize=5)


# ---------------------------------------------------------------- the plateau


def plateau(r: Results) -> Any:
    """Left: correlation of the released bit with the true vote. Right: accuracy over the zero-nats row."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.6, 4.0))
    _correlations(left, r)
    for i, track in enumerate(r.tracks("plateau")):
        rows = [v for v in r.variants("plateau", track) if "mi" in v.setting]
        gaps = [r.over_base(v) for v in rows]
        mean, half = (np.array([100 * getattr(g, name) for g in gaps]) for name in ("mean", "shown"))
        plots.band(right, [v.setting["mi"] for v in rows], mean - half, mean, mean + half, index=(0, 5)[i],
                   label=f"here, {TRACKS[track]}")
    x, y = _published()
    right.plot(x, y, linestyle="none", marker="X", markersize=7, color=plots.PALETTE[1],
               label="paper, OPT-1.3B, one seed")
    right.axhline(0, color=plots.INK, linewidth=1)
    right.set(xscale="log", xlabel="total budget, nats (bands: 95 %)", ylabel="accuracy over 0 nats, points")
    right.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=9)
    return figure


def _correlations(ax: Any, r: Results) -> None:
    budgets = np.logspace(-4, np.log10(max(r.plan.budgets)), 40)
    marks = np.array(sorted(b for b in r.plan.budgets))
    for i, (steps, name) in enumerate(((r.plan.steps, "here"), (model.PAPER_T, "paper, FT"), (2000, "paper, LoRA"))):
        low, high = (model.gaussian_correlation(q, budgets / steps) for q in (0.5, 0.1))
        look = plots.line(i)
        ax.fill_between(budgets, low, high, color=look["color"], alpha=0.18, linewidth=0)
        ax.plot(budgets, low, color=look["color"], linestyle=look["linestyle"])
        ax.plot(marks, model.gaussian_correlation(0.5, marks / steps), linestyle="none", marker=look["marker"],
                color=look["color"], label=f"T = {steps} ({name})")
    ax.set(xscale="log", xlabel="total budget, nats (band: q from 0.5 to 0.1)",
           ylabel="correlation of the bit with the vote", ylim=(-0.02, 1.02))
    ax.legend(loc="upper left", fontsize=9)


def _published() -> tuple[list[float], list[float]]:
    frame = tables.load_published("paczero")
    zpl = frame[(frame["row"] == "FT / I=0 / PACZero-ZPL") & (frame["column"] == "SST-2 1.3B")]["value"].iloc[0]
    rows = frame[(frame["table"] == PLATEAU["ft"]) & (frame["column"] == "test")].set_index("row")["value"].dropna()
    found = {total: rows[name] - zpl for total, name in BUDGETS.items() if name in rows}
    return list(found), list(found.values())


def captured_figure(r: Results) -> Any:
    """Captured signal against the budget: measured, expected from each run's own votes, and with votes held still."""
    import matplotlib.pyplot as plt

    tracks = r.tracks("plateau")
    figure, axes = plt.subplots(1, len(tracks), figsize=(4.6 * len(tracks) + 3.2, 3.9), sharey=True, squeeze=False)
    grid = np.logspace(-4, np.log10(max(r.plan.budgets)), 50)
    for ax, track in zip(axes[0], tracks, strict=True):
        rows = [v for v in r.variants("plateau", track) if v.setting["method"] != "sign"]
        zero = [b for c in r.of(rows[0]) if (b := read.bits(c))]
        ax.plot(grid, np.mean([read.predicted(b, grid) for b in zero], axis=0), color=plots.PALETTE[0],
                label="with the votes of the 0-nats runs")
        ax.plot(grid, [sum(model.captured(2.9, HALVES, x, model.PAPER_T)) for x in grid], color=plots.PALETTE[1],
                linestyle="--", label="by the law at τ = 2.9, T = 1000")
        x = np.array([v.setting["mi"] for v in rows[1:]])
        cells = [r.of(v) for v in rows[1:]]
        own = [np.mean([read.expected(read.bits(c)) for c in some]) for some in cells]
        ax.plot(x, own, linestyle="none", marker="D", markerfacecolor="white", markeredgecolor=plots.INK, markersize=6,
                markeredgewidth=1.1, label="expected from each run's own votes")
        ax.plot(x, [np.mean([read.captured(c) for c in some]) for some in cells], linestyle="none", marker="o",
                markersize=6, color=plots.PALETTE[5], label="measured, mean over seeds")
        ax.plot(x, [np.mean([read.carried_free(read.bits(c)) for c in some]) for some in cells], linestyle=":",
                color="#777777", label="carried by the runs' free steps")
        ax.set(xscale="log", xlabel="total budget, nats", title=TRACKS[track], ylim=(-0.05, 1.05))
    axes[0, 0].set(ylabel="captured signal (1: every sign right)")
    axes[0, -1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
    return figure


# ---------------------------------------------------------------- the other studies


def study(r: Results, name: str) -> Any:
    """One study: accuracy over zero-shot (left), captured signal and f (right), by row."""
    return studies(r, [name])


def studies(r: Results, names: list[str]) -> Any:
    """Several studies one below the other, as `study`."""
    import matplotlib.pyplot as plt

    rows = [v for name in names for v in r.variants(name)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.2, 0.32 * len(rows) + 1.4), sharey=True,
                                         width_ratios=(5, 4))
    for y, v in enumerate(rows):
        gain, index = r.gain(v), 0 if v.track == "ft" else 5
        left.errorbar([100 * gain.mean], [y], xerr=[100 * gain.shown], capsize=3, linestyle="none",
                      color=plots.PALETTE[index], marker=plots.MARKERS[0 if v.track == "ft" else 1])
        _shares(right, [read.captured(c) for c in r.of(v)], [read.free_share(c) for c in r.of(v)], y)
        if y and v.study != rows[y - 1].study:
            for ax in (left, right):
                ax.axhline(y - 0.5, color="#999999", linewidth=0.8)
    left.axvline(0, color=plots.INK, linewidth=1)
    left.set_yticks(range(len(rows)), [f"{v.label}  [{v.track}]" for v in rows])
    left.set_ylim(len(rows) - 0.5, -0.5)
    left.set(xlabel="accuracy over zero-shot, points")
    right.set(xlabel="diamonds: captured signal; circles: f")
    for ax in (left, right):
        ax.grid(axis="y", visible=False)
    return figure


def _shares(ax: Any, captured: list[float], free: list[float], y: float) -> None:
    if np.isfinite(np.mean(captured)):
        ax.plot([np.mean(captured)], [y], marker="D", color=plots.PALETTE[0], linestyle="none", markersize=6)
    if np.isfinite(np.mean(free)):
        ax.plot([np.mean(free)], [y], marker="o", markerfacecolor="white", markeredgecolor=plots.INK,
                markeredgewidth=1.2, linestyle="none", markersize=6)


def halves_law(r: Results) -> Any:
    """Captured signal and f against M, measured (points) and by the law at the tau of the base runs (lines)."""
    import matplotlib.pyplot as plt

    rows, grid = r.variants("halves"), np.unique(np.round(np.logspace(0.5, 9, 40, base=2) / 2).astype(int) * 2)
    tau = tau_of(r)
    figure, ax = plt.subplots(figsize=(7.6, 3.9))
    lines = {"carried by free steps": [model.signal_shares(tau, int(m))[0] for m in grid],
             "f": [_law_f(tau, int(m)) for m in grid]}
    for i, (name, values) in enumerate(lines.items()):
        ax.plot(grid, values, color=plots.PALETTE[(0, 4)[i]], linestyle=plots.LINESTYLES[i], label=f"{name}, law at τ")
    for v in rows:
        reads = [read.bits(c) for c in r.of(v)]
        m = v.setting["candidates"]
        ax.plot([m], [np.mean([read.carried_free(b) for b in reads])], marker="D", color=plots.PALETTE[0],
                linestyle="none", label="carried by free steps, measured" if v.base else None)
        ax.plot([m], [np.mean([b.free.mean() for b in reads])], marker="o", color=plots.PALETTE[4], linestyle="none",
                label="f, measured" if v.base else None)
    ax.set_xscale("log", base=2)
    ax.set_xticks([v.setting["candidates"] for v in rows], [str(v.setting["candidates"]) for v in rows])
    ax.minorticks_off()
    ax.set(xlabel=f"candidate halves M (zero nats everywhere; τ = {tau:.2f})", ylabel="share", ylim=(0, 1.03))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
    return figure


def _law_f(tau: float, m: int) -> float:
    from paclab.privacy import consensus

    return float(consensus.expected_free_fraction(tau, m, "complementary"))


def tau_of(r: Results) -> float:
    """The tau at which the law gives the base row's measured f (kept inside the range that the solver searches)."""
    from paclab.chapters.consensus_views import tau_for

    base = next(v for v in r.variants("halves") if v.base)
    f = float(np.mean([read.free_share(c) for c in r.of(base)]))
    return tau_for(min(max(f, 1e-3), 0.98), HALVES, "complementary")


def sentence(r: Results, track: str) -> str:
    """The answer in one line, from this run's numbers."""
    width, half = read.spread(r, track)
    base = next(v for v in r.variants("plateau", track) if v.base)
    free = np.mean([read.carried_free(b) for c in r.of(base) if (b := read.bits(c))])
    f = np.mean([read.free_share(c) for c in r.of(base)])
    return (f"{TRACKS[track]}, {r.plan.steps} steps: over the published budgets accuracy ranges over {width:.1f} "
            f"points (a single gap is known to ±{half:.1f}); at zero nats {100 * f:.0f} % of the steps are free and "
            f"carry {100 * free:.0f} % of the signal")
