"""Figures of chapter 21: the cliff and the slope, the search, and the axis that a comparison is drawn on.

Knows `dp_cliff.Results`. Every figure shows results on a public pool (study mode).
"""

from typing import Any

import numpy as np
import pandas as pd

from paclab.chapters import rows
from paclab.chapters import sentiment_table as sentiment
from paclab.chapters.dp_cliff import AS_PUBLISHED, HOWS, SEARCHED, ZPL, Family, Results, step_length, trials
from paclab.chapters.dp_cliff_equal import NAMES, Equal
from paclab.notebook import plots


def _ticks(ax: Any, epsilons: list[float]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
    ax.minorticks_off()


def _curve(ax: Any, r: Results, how: str, family: Family, index: int) -> None:
    values = r.curve(how, family)
    mean = np.array([100 * v.mean for v in values])
    half = np.array([100 * v.shown for v in values])
    shift = 1.03 ** (index - 1)  # intervals of neighbours stand side by side
    ax.errorbar(np.array(family.epsilons) * shift, mean, yerr=half, capsize=3, label=family.name,
                **plots.line(index))


def over(r: Results) -> str:
    """What the intervals are over."""
    return f"95 % over {len(r.zero)} seeds" if len(r.zero) > 1 else "95 % over sentences, one seed"


def cliff(r: Results) -> Any:
    """Accuracy over zero-shot against epsilon: one setting for all, and searched at every epsilon."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11.0, 4.2), sharey=True)
    for ax, how in zip(axes, HOWS, strict=True):
        zpl = rows.gain(r.zpl[how], r.zero)
        ax.axhspan(100 * (zpl.mean - zpl.shown), 100 * (zpl.mean + zpl.shown), color=plots.PALETTE[7], alpha=0.25)
        ax.axhline(100 * zpl.mean, color=plots.PALETTE[6], linestyle="--", label="PACZero-ZPL (0 nats, other unit)")
        ax.axhline(0, color=plots.INK, linewidth=1)
        for i, family in enumerate(r.plan.families):
            if how in family.hows:
                _curve(ax, r, how, family, i)
        _ticks(ax, r.plan.epsilons)
        ax.set(xlabel="ε of the whole run (δ = 1e-5)", title=how)
    axes[0].set_ylabel(f"accuracy over zero-shot, points\n({over(r)})")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def equal(r: Results, side: Equal) -> Any:
    """Accuracy over zero-shot against epsilon, every method searched alike at equal forwards; PACZero by its bound."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(8.6, 4.2))
    families = [family for family in r.plan.families if family.key != "laplace"]
    for i, family in enumerate(families):
        _curve(ax, r, SEARCHED, family, i)
    for j, method in enumerate(dict.fromkeys(kind.method for kind in side.cells if kind.epsilon)):
        own = [kind for kind in side.cells if kind.method == method]
        values = [side.gain(kind, r) for kind in own]
        ax.errorbar([kind.epsilon * 1.03 ** (len(families) + j - 1) for kind in own], [100 * v.mean for v in values],
                    yerr=[100 * v.shown for v in values], capsize=3, label=f"{NAMES[method]}, bound-matched nats",
                    **plots.line(len(families) + j))
    for kind in side.cells:
        if kind.epsilon is None:
            zpl = side.gain(kind, r)
            ax.axhspan(100 * (zpl.mean - zpl.shown), 100 * (zpl.mean + zpl.shown), color=plots.PALETTE[7], alpha=0.25)
            ax.axhline(100 * zpl.mean, color=plots.PALETTE[6], linestyle="--", label="PACZero-ZPL (0 nats)")
    ax.axhline(0, color=plots.INK, linewidth=1)
    _ticks(ax, r.plan.epsilons)
    ax.set(xlabel="ε promised to a record (δ = 1e-5), or with the same bound on a guess of the half",
           ylabel=f"accuracy over zero-shot, points\n({over(r)})")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def search(r: Results) -> Any:
    """The metric that picks against the step length, at the best clip; a panel a family, a line an epsilon.

    Where trials of a second round stand at a step length, the best of these: one run among means of three is luck.
    """
    import matplotlib.pyplot as plt

    families = r.plan.families
    figure, axes = plt.subplots(1, len(families), figsize=(3.3 * len(families) + 1.2, 3.8), sharey=True, squeeze=False)
    frame, metric = trials(r), r.tuned.metric
    for ax, family in zip(axes[0], families, strict=True):
        own = frame[(frame["method"] == family.method) & (frame["k"] == family.k)]
        for e in family.epsilons:
            i = r.plan.epsilons.index(e) if e in r.plan.epsilons else len(r.plan.epsilons)
            tried = own[own["epsilon"] == e]
            tried = tried[tried["seeds"] == tried.groupby("step length")["seeds"].transform("max")]
            line = tried.groupby("step length")[metric].agg("min" if metric == "dev_loss" else "max")
            ax.plot(line.index, line.to_numpy(), label=f"ε = {e:g}", **plots.line(i))
        if AS_PUBLISHED in family.hows:
            reused = ax.axvline(step_length(family, r.reused), color="#777777", linestyle=":")
        ax.set_xscale("log")
        ax.set_xticks(r.plan.rates, [f"{rate:g}" for rate in r.plan.rates])
        ax.minorticks_off()
        ax.set(xlabel="step length, of the package's", title=family.name)
    axes[0, 0].set_ylabel(f"{'dev loss' if metric == 'dev_loss' else 'dev accuracy'}, best clip")
    if metric == "dev_loss":
        axes[0, 0].set_ylim(*_window(frame[metric].to_numpy()))
    lines, labels = axes[0, 0].get_legend_handles_labels()
    axes[0, -1].legend([*lines, reused], [*labels, "reused for all"], loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def _window(losses: np.ndarray) -> tuple[float, float]:
    """The range in which learning shows: a trial that blew up runs out of the top of the panel."""
    finite = losses[np.isfinite(losses)]
    low, middle = finite.min(), np.median(finite)
    return float(low - 0.1 * (middle - low) - 1e-4), float(max(middle + 2 * (middle - low), low + 0.01))


def matched(r: Results, exposures: pd.DataFrame) -> Any:
    """PACZero's rows on the DP axis three ways: by bound, by the attack's mean record, by its most exposed record."""
    import matplotlib.pyplot as plt

    axes_of = {"bound-matched ε": "matched by bound",
               "attack-matched ε, most exposed": "by attack, most exposed record",
               "attack-matched ε, mean record": "by attack, mean record"}
    figure, axes = plt.subplots(1, 3, figsize=(12.0, 4.0), sharey=True)
    floor = min(0.05, min(r.plan.epsilons) / 2)
    for ax, (column, title) in zip(axes, axes_of.items(), strict=True):
        for i, family in enumerate(f for f in r.plan.families if f.key != "laplace"):
            _curve(ax, r, SEARCHED, family, i)
        for j, line in enumerate(exposures.to_dict("records")):
            gain = r.paczero_gain(line["key"])
            ax.errorbar([max(line[column], floor) * 1.07 ** (j % 3 - 1)], [100 * gain.mean], yerr=[100 * gain.shown],
                        capsize=3, linestyle="none", marker=plots.MARKERS[(3 + j) % 8], color=plots.INK, markersize=8,
                        markerfacecolor=plots.FACE, markeredgecolor=plots.INK, markeredgewidth=1.2,
                        label=line["method"])
        ax.axhline(0, color=plots.INK, linewidth=1)
        _ticks(ax, [floor, *(e for e in (0.2, 0.5, 1.0, 2.0, 6.0) if e <= max(6.0, *r.plan.epsilons))])
        ax.set_xticks(ax.get_xticks(), ["0", *[f"{t:g}" for t in ax.get_xticks()[1:]]])
        ax.set(xlabel="ε (δ = 1e-5)", title=title)
    axes[0].set_ylabel(f"accuracy over zero-shot, points\n({over(r)})")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def sentence(r: Results) -> str:
    """The answer in lines, from this run's numbers."""
    low, high = r.plan.epsilons[0], r.plan.reference
    lines = []
    for family in (f for f in r.plan.families if AS_PUBLISHED in f.hows):
        parts = []
        for e in dict.fromkeys((low, high)):
            kept, fitted = (rows.gain(r.cells[how, family.key, e], r.zero) for how in HOWS)
            parts.append(f"ε = {e:g}: {100 * kept.mean:+.1f} ± {100 * kept.shown:.1f} with the one setting, "
                         f"{100 * fitted.mean:+.1f} ± {100 * fitted.shown:.1f} searched")
        lines.append(f"{family.name}, points over zero-shot; {'; '.join(parts)}")
    for how in HOWS if r.zpl_tuned else [AS_PUBLISHED]:
        zpl = rows.gain(r.zpl[how], r.zero)
        rate = "learning rate searched" if how == SEARCHED else "the package's learning rate"
        lines.append(f"{sentiment.ROWS[ZPL].name}, {rate}: {100 * zpl.mean:+.1f} ± {100 * zpl.shown:.1f} ({over(r)})")
    return "\n".join(lines)
