"""Figures of chapter 22: why shrinking may help, where it does on a bowl, and what it did on real runs.

Knows `sage_toy`'s tables and `sage_table.Results`. Every figure says that SAGE is our reading of the abstract; those of
real runs show private quantities of a public pool (study mode).
"""

from typing import Any

import numpy as np
import pandas as pd

from paclab.chapters import sage_table as table
from paclab.chapters import sage_toy as toy
from paclab.chapters.sage_table import DECAY, FIXED, NAMES, ORACLE, PLAIN, SAGE, Group, Results, Setting
from paclab.notebook import plots
from paclab.rates import training
from paclab.rates.training import Step
from paclab.zo import sage

LOOKS = {PLAIN: 0, SAGE: 1, FIXED: 2, ORACLE: 3, DECAY: 4}
TOY_LOOKS = dict(zip(toy.KINDS, (0, 1, 2, 3, 4), strict=True))


def mark(figure: Any, height: float = 1.005) -> Any:
    """Say on the figure itself what SAGE is here; `height` of the line's foot, 1 is the figure's upper edge."""
    figure.text(0.995, height, "SAGE: our reading of the abstract (arXiv 2608.03277)", ha="right", va="bottom",
                fontsize=8, style="italic", color="#555555")
    return figure


def why(steps: dict[float, Step]) -> Any:
    """Left: descent falls with alpha, risk with its square. Right: their sum by noise, the best factor marked."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.7))
    alpha = np.linspace(0, 1, 101)
    left.plot(alpha, alpha, label="descent, ∝ α", **plots.line(2, 20))
    left.plot(alpha, alpha**2, label="curvature and noise, ∝ α²", **plots.line(5, 20))
    left.set(xlabel="factor α", ylabel="share of what it is at α = 1")
    left.legend(loc="upper left")
    for i, (std, step) in enumerate(steps.items()):
        change = np.array([training.shrunk(step, a).change for a in alpha])
        right.plot(alpha, change / step.descent, label=f"noise {std:g}", **plots.line(i, 20))
        best = min(training.best_alpha(step), 1.0)
        right.plot([best], [training.shrunk(step, best).change / step.descent], marker="*", markersize=15,
                   color=plots.PALETTE[i], markeredgecolor=plots.INK, linestyle="none", zorder=5)
    right.axhline(0, color=plots.INK, linewidth=1)
    right.set(xlabel="factor α (star: the best one)", ylabel="expected change of the loss\n(1 = the descent)",
              ylim=(-1.05, 1.5))
    right.legend(loc="upper left", title="gradient 1", title_fontsize=9)
    return mark(figure)


def bowl(frame: pd.DataFrame) -> Any:
    """Final loss against the learning rate, one panel a regime: where SAGE lies below the fixed scale it helps."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, frame["regime"].nunique(), figsize=(11.6, 4.0))
    for ax, (regime, part) in zip(axes, frame.groupby("regime", sort=False), strict=True):
        for kind in toy.KINDS:
            look = plots.line(TOY_LOOKS[kind])
            ax.plot(part["lr"], part[kind], label=kind, **look)
        helps = (part[toy.SAGE_RUN] < part[toy.PLAIN_RUN]).to_numpy()
        edges = np.sqrt(part["lr"].to_numpy()[1:] * part["lr"].to_numpy()[:-1])
        if helps.any() and not helps.all():
            start = edges[np.argmax(helps) - 1]
            ax.axvspan(start, part["lr"].max() * 1.3, color="#eeeeee", zorder=0)
            ax.text(start * 1.05, 0.97, "helps", transform=ax.get_xaxis_transform(), va="top", fontsize=9)
            ax.text(start / 1.05, 0.97, "hurts", transform=ax.get_xaxis_transform(), va="top", ha="right", fontsize=9)
        low, high = part["lr"].min() / 1.2, part["lr"].max() * 1.2
        ax.set(xscale="log", yscale="log", xlabel="learning rate", xlim=(low, high),
               title=f"{regime}: noise {part['noise of a value'].iloc[0]:g} a value")
        _plain_ticks(ax, "x", part["lr"].tolist())
        _plain_ticks(ax, "y", [0.2, 0.5, 1, 2, 5, 10, 20, 50])
    axes[0].set_ylabel("loss after the last step (100 at first)")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return mark(figure)


def _plain_ticks(ax: Any, axis: str, values: list[float]) -> None:
    """Ticks of a logarithmic axis at these values only, in plain digits."""
    from matplotlib import ticker

    limits = ax.get_xlim() if axis == "x" else ax.get_ylim()
    kept = [v for v in values if limits[0] <= v <= limits[1]]
    getattr(ax, f"set_{axis}ticks")(kept, [f"{v:g}" for v in kept])
    getattr(ax, f"{axis}axis").set_minor_locator(ticker.NullLocator())


def noise(floors: pd.DataFrame, steady: pd.DataFrame) -> Any:
    """Left: spread of the tracked estimate without a signal. Right: the mean factor where the signal never changes."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.2, 3.9))
    for i, (beta, part) in enumerate(floors.groupby("tracking")):
        look = {"color": plots.PALETTE[i], "markeredgecolor": "white"}
        left.loglog(part["K"], part["spread, law"], linestyle=plots.LINESTYLES[i], label=f"law, β = {beta:g}", **look)
        left.loglog(part["K"], part["spread, simulated"], marker=plots.MARKERS[i], linestyle="none",
                    label=f"simulated, β = {beta:g}", **look)
    left.set(xlabel="directions per step, K", ylabel="spread of A / s² under pure noise")
    left.legend()
    for i, (k, part) in enumerate(steady.groupby("K")):
        x = part["true rho"].to_numpy().copy()
        x[x == 0] = x[x > 0].min() / 3
        mid, half = part["mean factor"], 1.96 * part["s.e."]
        plots.band(right, x, mid - half, mid, np.minimum(mid + half, 1), index=i, label=f"K = {k}")
    right.axhline(1, color=plots.INK, linewidth=1, linestyle=":")
    right.set(xscale="log", ylim=(0.5, 1.04), ylabel="mean factor after the warm-up",
              xlabel="true ρ, the same at every step")
    shown = sorted(set(steady["true rho"]) - {0})
    right.set_xticks([min(shown) / 3, *shown], ["none", *(f"{v:g}" for v in shown)])
    right.minorticks_off()
    right.legend(loc="lower right")
    return mark(figure)


def explorer(run: toy.Played) -> Any:
    """rho_t, its estimate and the floor above; alpha_t and the oracle's below."""
    import matplotlib.pyplot as plt

    t = np.arange(1, len(run.alpha) + 1)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8.2, 4.6), layout="none", sharex=True)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.93, bottom=0.11, hspace=0.12)
    top.plot(t, np.maximum(run.truth, 1e-4), color=plots.INK, linestyle=":", label="true ρ")
    top.plot(t, np.maximum(run.rho, 1e-4), color=plots.PALETTE[1], label="SAGE's estimate")
    top.axhline(run.floor, color=plots.PALETTE[5], linestyle="--", linewidth=1.2, label="detection floor")
    low = max(min(run.truth.min(), run.floor) / 3, 1e-4)
    top.set(yscale="log", ylabel="ρ", ylim=(low, 3 * max(run.truth.max(), run.rho.max(), run.floor)))
    top.legend(loc="upper right", ncols=3, fontsize=8.5)
    bottom.plot(t, run.alpha, color=plots.PALETTE[1], label="SAGE [our reading]")
    bottom.plot(t, run.oracle, color=plots.PALETTE[3], linestyle="-.", label="oracle twin: told the true energy")
    bottom.set(xlabel="step (grey: warm-up)", ylabel="factor α", ylim=(0, 1.08))
    bottom.legend(loc="lower left", fontsize=8.5)
    top.set_xlim(0, len(t) + 1)
    top.minorticks_off()  # text is most of the drawing time
    bottom.locator_params(nbins=5)
    for ax in (top, bottom):
        ax.axvspan(0, run.warmup, color="#eeeeee", zorder=0)
    return mark(figure, 0.955)


# ---------------------------------------------------------------- real runs


def _mean_of(curves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over seeds (zero with one)."""
    stack = np.array(curves)
    spread = stack.std(axis=0, ddof=1) / np.sqrt(len(stack)) if len(stack) > 1 else np.zeros(stack.shape[1])
    return stack.mean(axis=0), spread


def _estimates(ax: Any, r: Results, s: Setting) -> None:
    cells = r.cells[s, SAGE]
    given = table.settings_of(cells[0])
    truths = [table.truth(c) for c in cells]
    shown = ((1, "SAGE's estimate (public)", [table.alphas(c)["rho"] for c in cells]),
             (0, "truth, batch's own noise included", [x.sum for x in truths]),
             (2, "truth, descent only", [np.maximum(x.descent, 0) for x in truths]))
    t = np.arange(1, cells[0].config.steps + 1)
    for i, label, curves in shown:
        mean, spread = _mean_of(curves)
        plots.band(ax, t, mean - spread, mean, mean + spread, index=i, label=label, every=max(1, len(t) // 8))
    ax.axhline(sage.reference_floor(given), color=plots.PALETTE[5], linestyle="--",
               linewidth=1.2, label="detection floor")
    ax.axvspan(0, given.warmup, color="#eeeeee", zorder=0)
    ax.set(title=f"{s.group.name}, lr × {s.factor:g}", ylim=(0, None))


def _factors(ax: Any, r: Results, s: Setting) -> None:
    cells = r.cells[s, SAGE]
    t = np.arange(1, cells[0].config.steps + 1)
    every = max(1, len(t) // 8)
    mean, spread = _mean_of([table.alphas(c)["alpha"] for c in cells])
    plots.band(ax, t, mean - spread, mean, mean + spread, index=LOOKS[SAGE], label=NAMES[SAGE], every=every)
    if r.has(s, ORACLE):
        mean, spread = _mean_of([np.array([i["alpha"] for i in c.infos]) for c in r.cells[s, ORACLE]])
        plots.band(ax, t, mean - spread, mean, mean + spread, index=LOOKS[ORACLE], label=NAMES[ORACLE], every=every)
    ax.axvspan(0, table.settings_of(cells[0]).warmup, color="#eeeeee", zorder=0)
    ax.set(xlabel="step (grey: warm-up)", ylim=(0, 1.06))


def shown_settings(r: Results, most: int = 4) -> list[Setting]:
    """For the curves over steps: SAGE's best setting of the first model's groups, those of the first epsilon first."""
    groups = [g for g in r.plan.groups() if g.model == r.plan.models[0] and g.base == r.plan.bases[0]]
    groups.sort(key=lambda g: g.epsilon != r.plan.epsilons[0])
    return [r.best(g, SAGE) for g in groups[:most]]


def runs(r: Results) -> Any:
    """rho_t (above) and alpha_t (below) over steps of real runs, a column a group; bands: one s.e. over seeds."""
    import matplotlib.pyplot as plt

    chosen = shown_settings(r)
    figure, axes = plt.subplots(2, len(chosen), figsize=(3.5 * len(chosen) + 3.2, 5.4), squeeze=False, sharex="col")
    for (top, bottom), s in zip(axes.T, chosen, strict=True):
        _estimates(top, r, s)
        _factors(bottom, r, s)
    axes[0, 0].set_ylabel("signal to noise, ρ")
    axes[1, 0].set_ylabel("factor α")
    for line in axes:
        _one_legend(line)
    return mark(figure)


def _one_legend(axes: Any) -> None:
    """One legend beside the last of `axes` with everything that any of them shows."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    order = [label for label in NAMES.values() if label in found] + [label for label in found
                                                                     if label not in NAMES.values()]
    axes[-1].legend([found[label] for label in order], order, loc="upper left", bbox_to_anchor=(1.01, 1.0))


def learning_rates(r: Results) -> Any:
    """Held-out loss against the learning rate with and without SAGE and with its controls, one panel a group."""
    import matplotlib.pyplot as plt

    groups = r.plan.searched()
    columns = min(len(groups), 2)
    lines = -(-len(groups) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.3 * columns + 3.0, 3.4 * lines), squeeze=False)
    for ax, group in zip(axes.flat, groups, strict=False):
        _against_rate(ax, r, group)
    for ax in list(axes.flat)[len(groups):]:
        ax.set_visible(False)
    _one_legend(list(axes[0]) if lines == 1 else [*axes[1:].flat, *axes[0]])
    return mark(figure)


def _against_rate(ax: Any, r: Results, group: Group) -> None:
    for kind in NAMES:
        have = [s for s in r.plan.of(group) if r.has(s, kind)]
        if have:
            mean, spread = zip(*(_mean_of([np.array([c.loss.mean()]) for c in r.cells[s, kind]]) for s in have),
                               strict=True)
            mean, spread = np.ravel(mean), np.ravel(spread)
            look = plots.line(LOOKS[kind])
            if len(have) == 1:  # the controls often lie on one another: hollow, the constant factor's larger
                look |= {"markersize": 15 if kind == FIXED else 8, "linestyle": "none", "markerfacecolor": "none",
                         "markeredgecolor": look["color"], "markeredgewidth": 1.8, "zorder": 6}
            ax.errorbar([s.factor for s in have], mean, yerr=spread, label=NAMES[kind], capsize=2,
                        **{k: v for k, v in look.items() if k != "markevery"})
    zero = np.mean([z.loss.mean() for z in r.zero[group.model]])
    ax.axhline(zero, color="#777777", linestyle=":", label="zero-shot")
    ticks = [s.factor for s in r.plan.of(group)]
    ax.set(xscale="log", title=group.name, xlabel="learning rate, × the package's", ylabel="held-out loss, nats")
    ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
    ax.minorticks_off()


def effects(settings: pd.DataFrame, best: pd.DataFrame) -> Any:
    """What SAGE changes in every setting, paired, from the two tables; left of zero (loss) it helps."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11.6, 0.34 * len(settings) + 1.9), sharey=True)
    over = "seeds" if settings["seeds"].max() > 1 else "sentences, one seed"
    control = _control_places(settings, best)
    for ax, measure, plain, of_best, half, linear in (
            (axes[0], "held-out loss, difference in nats", "loss, SAGE - fixed", "loss, SAGE - this", "± loss", 1e-3),
            (axes[1], "accuracy, difference in points", "accuracy, SAGE - fixed, points",
             "accuracy, SAGE - this, points", "± accuracy", 0.1)):
        for j, (y, mean, spread, label) in enumerate((
                (np.arange(len(settings)), settings[plain], settings[half], "against the fixed scale"),
                (control.index, control[of_best], control[half], "against its mean factor\n(at SAGE's best rate)"))):
            ax.errorbar(mean, np.asarray(y) + (j - 0.5) * 0.3, xerr=spread, capsize=2, linestyle="none",
                        marker=plots.MARKERS[j], color=plots.PALETTE[(0, 5)[j]], label=label)
        ax.axvline(0, color=plots.INK, linewidth=1)
        ax.grid(axis="y", visible=False)
        ax.set_xlabel(measure)
        _about_zero(ax, linear)
    axes[0].set(title="loss: left of zero SAGE is better",
                xlabel=f"{axes[0].get_xlabel()}\n(95 % over {over}; linear up to the first ticks)")
    axes[1].set_title("accuracy: right of zero SAGE is better")
    axes[0].set_yticks(range(len(settings)),
                       [f"{s}, lr × {x:g}" for s, x in zip(settings["setting"], settings["lr factor"], strict=True)])
    axes[0].set_ylim(len(settings) - 0.5, -0.5)
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return mark(figure)


def _control_places(settings: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """The lines of `best` for the constant factor, indexed by the place of SAGE's best setting in `settings`."""
    place = {key: i for i, key in enumerate(zip(settings["setting"], settings["lr factor"], strict=True))}
    fixed = best[best["run"] == NAMES[FIXED]]
    return fixed.set_index(pd.Index([place[key] for key in zip(fixed["group"], fixed["best lr factor"], strict=True)]))


def _about_zero(ax: Any, linear: float) -> None:
    """An axis that is linear within ±`linear` and logarithmic beyond: differences of all sizes are legible."""
    widest = max(abs(x) for x in ax.get_xlim())
    ax.set_xscale("symlog", linthresh=linear, linscale=0.9)
    ticks = [linear * 10**i for i in range(max(1, int(np.ceil(np.log10(widest / linear)))))]
    names = [f"{t:g}" for t in ticks]
    ax.set_xticks([-t for t in reversed(ticks)] + [0, *ticks], [f"−{name}" for name in reversed(names)] + ["0", *names],
                  fontsize=9, rotation=45 if len(ticks) > 2 else 0)
    ax.set_xlim(-1.3 * widest, 1.3 * widest)
    ax.minorticks_off()


def headline(r: Results) -> Any:
    """Left: the factor over the steps of one real run, with its estimate. Right: what it changes, per group."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    groups = r.plan.groups()
    s = r.best(Group(r.plan.models[0], r.plan.bases[0], r.plan.wide[-1], r.plan.epsilons[0]), SAGE)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.4, max(3.5, 0.27 * len(groups) + 1.3)), width_ratios=(4, 5))
    alpha, spread = _mean_of([table.alphas(c)["alpha"] for c in r.cells[s, SAGE]])
    t = np.arange(1, len(alpha) + 1)
    plots.band(left, t, alpha - spread, alpha, alpha + spread, index=1, label="factor α", every=max(1, len(t) // 8))
    left.axvspan(0, table.settings_of(r.cells[s, SAGE][0]).warmup, color="#eeeeee", zorder=0)
    left.set(xlabel="step (grey: warm-up)", ylabel="SAGE's factor", ylim=(0, 1.06),
             title=f"{s.group.name}, lr × {s.factor:g}")
    for j, (kind, label) in enumerate(((PLAIN, "fixed scale"), (SAGE, NAMES[SAGE]))):
        found = [rows_interval(r, g, kind) for g in groups]
        y = np.arange(len(groups)) + (j - 0.5) * 0.26
        right.errorbar([f.mean for f in found], y, xerr=[f.shown for f in found], capsize=3, linestyle="none",
                       marker=plots.MARKERS[j], color=plots.PALETTE[LOOKS[kind]], label=label)
    right.axvline(0, color=plots.INK, linewidth=1)
    right.set_yticks(range(len(groups)), [g.name + " (one rate)" * (len(r.plan.of(g)) == 1) for g in groups])
    right.set_ylim(len(groups) - 0.5, -0.5)
    right.grid(axis="y", visible=False)
    right.set(xlabel="held-out loss minus zero-shot, nats\n(each at the best rate tried; left is better)")
    right.xaxis.set_major_locator(MaxNLocator(5))
    right.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return mark(figure)


def rows_interval(r: Results, group: Group, kind: str) -> table.Interval:
    """Held-out loss minus zero-shot's at the best learning rate that was tried with the kind, paired."""
    cells = r.cells[r.best(group, kind), kind]
    return table.rows.interval(c.loss - z.loss for c, z in zip(cells, r.zero[group.model], strict=True))


def sentence(counted: pd.DataFrame) -> str:
    """The count in one line, from the table."""
    def said(line: pd.Series) -> str:
        return f"helps in {line['helps']}, hurts in {line['hurts']}, no difference in {line['no difference']}"
    first, best = counted.iloc[0], counted[counted.iloc[:, 0].str.contains("fixed scale, each at its best")].iloc[0]
    return (f"By held-out loss SAGE [our reading] {said(first)} of {first['compared']} settings against the fixed "
            f"scale at the same learning rate; with each at its own best rate it {said(best)} of {best['compared']} "
            "groups.")
