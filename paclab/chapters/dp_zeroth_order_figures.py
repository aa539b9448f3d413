"""Figures of chapter 20: what DP costs, what a clip takes, what noise leaves, and bounds beside real steps.

Knows the chapter's results. Every figure shows private quantities of a public pool (study mode).
"""

from typing import Any

import numpy as np
import pandas as pd

from paclab.chapters import dp_zeroth_order_clip as clip
from paclab.chapters.dp_zeroth_order import Results, forwards, row
from paclab.chapters.rows import interval
from paclab.notebook import plots


def _main(r: Results) -> list[str]:
    return [key for key in r.cells if not row(key).masked]


def headline(r: Results) -> Any:
    """Left: held-out gains by row. Right: what the noise alone took, from twins on the same batches."""
    import matplotlib.pyplot as plt

    keys = list(r.cells)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 0.34 * len(keys) + 1.9), width_ratios=(3, 2))
    for ax, values in ((left, [r.gain(key) for key in keys]), (right, [r.noise_cost(key) for key in keys])):
        for i, value in enumerate(values):
            if value:
                ax.errorbar([100 * value.mean], [i], xerr=[100 * value.shown], capsize=3, linestyle="none",
                            color=plots.PALETTE[0 if row(keys[i]).epsilon else 5],
                            marker=plots.MARKERS[0 if row(keys[i]).epsilon else 1])
        ax.axvline(0, color=plots.INK, linewidth=1)
        ax.set_ylim(len(keys) - 0.5, -0.5)
        ax.grid(axis="y", visible=False)
    left.set_yticks(range(len(keys)), [row(key).name for key in keys])
    right.set_yticks(range(len(keys)), [])
    over = f"{len(r.plan.seeds)} seeds" if len(r.plan.seeds) > 1 else "sentences, one seed"
    left.set(xlabel=f"accuracy over zero-shot, points (95 % over {over})")
    right.set(xlabel="accuracy that the noise took, points")
    for i, (color, name) in enumerate(((0, "with DP noise"), (5, "its twin without noise: not private"))):
        left.plot([], [], color=plots.PALETTE[color], marker=plots.MARKERS[i], label=name)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def tails(deltas: list[np.ndarray], beta: float) -> Any:
    """Left: survival of |projected gradient| beside a normal law. Right: histogram of them with the clip.

    The records of all seeds together.
    """
    import matplotlib.pyplot as plt
    from scipy import special

    delta = np.concatenate(deltas, axis=1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 3.7))
    own = delta / (np.linalg.norm(delta, axis=0) / np.sqrt(len(delta)))
    for i, (name, values) in enumerate((("all records", delta), ("each record over its own norm", own))):
        found = clip.tail(values)
        shown = np.unique(np.geomspace(1, len(found.value), 400).astype(int)) - 1
        shown = np.unique(np.concatenate([np.linspace(0, len(found.value) - 1, 200).astype(int),
                                          len(found.value) - 1 - shown]))
        left.plot(found.value[shown], found.beyond[shown], label=name, **plots.line(i, 40))
    x = np.linspace(0, 5, 200)
    left.plot(x, special.erfc(x / np.sqrt(2)), color="#777777", linestyle=":", label="normal law")
    left.set(yscale="log", ylim=(1e-5, 1.2), xlabel="|projected gradient| over its root mean square",
             ylabel="share beyond")
    left.legend(loc="upper right")
    right.hist(delta.ravel(), bins=80, log=True, **plots.bar(0))
    for side in (-beta, beta):
        right.axvline(side, color=plots.PALETTE[5], linestyle="--")
    right.set(xlabel="projected gradient of one record (dashed: clip at K = 1)", ylabel="count")
    return figure


def errors(table: pd.DataFrame, training: pd.DataFrame) -> Any:
    """Left: relative clipping error against K, a line a clip. Right: over training, a line a K."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.8, 3.9))
    for i, (beta, part) in enumerate(table.groupby("beta_clip")):
        spread = part["± seeds"].fillna(part["± groups"]).fillna(0)
        left.errorbar(part["K"], part["relative error"], yerr=spread, capsize=3, label=f"√K c = {beta:.3g}",
                      **plots.line(i))
    left.set(xscale="log", xlabel="directions K", ylabel="clipping error, relative", ylim=(0, None))
    left.set_xscale("log", base=2)
    left.legend()
    for i, (k, part) in enumerate(training.groupby("K")):
        beside = part["middle"] + 0.25 * (i - 1)
        right.errorbar(beside, part["relative error"], yerr=part["± seeds"].fillna(0), capsize=3, label=f"K = {k}",
                       **plots.line(i))
    right.set(xlabel=f"step (√K c = {training['beta_clip'].iloc[0]:.3g})", ylabel="clipping error, relative",
              ylim=(0, None))
    right.legend()
    return figure


def by_directions(r: Results) -> Any:
    """Gain against K: equal forward passes (lines), equal steps (open marks), one colour a promise."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10.4, 3.8))
    promises = sorted({row(key).epsilon or np.inf for key in _main(r)})
    for i, promise in enumerate(promises):
        keys = sorted((k for k in _main(r) if (row(k).epsilon or np.inf) == promise), key=lambda k: row(k).k)
        name = "no noise" if promise == np.inf else f"ε = {promise:g}"
        for ax, scale, read in ((axes[0], 100, r.gain), (axes[1], 1, lambda key: _loss(r, key))):
            for short in (False, True):
                some = [k for k in keys if row(k).short == short]
                if some:
                    found = [read(k) for k in some]
                    look = plots.line(i) | ({"linestyle": "none", "markerfacecolor": "none",
                                             "markeredgecolor": plots.PALETTE[i]} if short else {})
                    look.pop("markevery")
                    ax.errorbar([row(k).k * 1.06**i for k in some], [scale * f.mean for f in found],
                                yerr=[scale * f.shown for f in found], capsize=3,
                                label=name + ", few steps" * short, **look)
    values = sorted({row(key).k for key in _main(r)})
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xticks(values, [str(k) for k in values])
        ax.axhline(0, color=plots.INK, linewidth=0.8)
        ax.set_xlabel("directions K (lines: equal forward passes)")
    axes[0].set_ylabel("accuracy over zero-shot, points")
    axes[1].set_ylabel("held-out loss over zero-shot, nats")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def _loss(r: Results, key: str) -> Any:
    return interval(c.loss - z.loss for c, z in zip(r.cells[key], r.untrained(key), strict=True))


def compute(r: Results, adam: pd.DataFrame, seconds: dict[tuple[str, int], float]) -> Any:
    """Dev loss against forward passes over one record (left) and seconds of one core (right).

    Colour and marker say K, the line's style the promise: ten rows would run out of looks of their own.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11.4, 3.9), sharey=True)
    keys = [k for k in _main(r) if not row(k).short]
    ks, promises = sorted({row(k).k for k in keys}), sorted({row(k).epsilon or np.inf for k in keys})[::-1]
    for key in keys:
        look = plots.line(ks.index(row(key).k)) | {
            "linestyle": plots.LINESTYLES[promises.index(row(key).epsilon or np.inf)]}
        cells = r.cells[key]
        config = cells[0].config
        steps = np.array([m["step"] for m in cells[0].metrics])
        loss = np.array([[m["dev_loss"] for m in c.metrics] for c in cells])
        loss = (loss - loss[:, :1]).mean(axis=0)
        read = forwards(config) / config.steps / 1000
        for ax, unit in ((axes[0], read), (axes[1], seconds[config.model, config.k])):
            ax.plot(unit * steps, loss, label=row(key).name, **look)
    pool = r.plan.pool / 1000
    adam = adam.groupby("forwards", as_index=False)[["dev_loss", "seconds"]].mean()
    for ax, spent in ((axes[0], pool * adam["forwards"]), (axes[1], adam["seconds"])):
        ax.plot(spent, adam["dev_loss"] - adam["dev_loss"].iloc[0], color=plots.INK,
                linestyle="-", label="AdamW, not private")
        ax.axhline(0, color=plots.INK, linewidth=0.8)
    axes[0].set(xlabel="forward passes over a record, thousands\n(a backward pass counts as two)",
                ylabel="change of the dev loss, nats")
    axes[1].set(xlabel="seconds of one core, this machine")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def bounds(table: pd.DataFrame) -> Any:
    """Predicted (lines) and measured (points) change of the loss by one step, one panel a method."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(table["method"]))
    figure, axes = plt.subplots(1, len(names), figsize=(3.7 * len(names) + 1.4, 3.7), squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        part = table[table["method"] == name]
        x = part["lr over the best"]
        ax.plot(x, 1000 * part["predicted change"], label="predicted", **plots.line(0))
        ax.errorbar(x * 1.03, 1000 * part["measured change"], yerr=1000 * part["± measured"], capsize=3,
                    linestyle="none", color=plots.PALETTE[5], marker=plots.MARKERS[1], label="measured")
        if part["Lemma 4 at most"].notna().any():
            ax.plot(x, 1000 * part["Lemma 4 at most"], color="#777777", linestyle=":", label="Lemma 4, at most")
            reach = part["predicted change"].abs(), part["measured change"].abs() + part["± measured"]
            _linear_within(ax, 1000 * float(max(r.max() for r in reach)), 1000 * float(part["Lemma 4 at most"].max()))
        ax.axhline(0, color=plots.INK, linewidth=0.8)
        ax.set(title=name, xlabel="lr over the predicted best")
    axes[0, 0].set_ylabel("change of the loss, thousandths of a nat")
    axes[0, min(1, len(names) - 1)].legend(loc="upper left")
    return figure


def _linear_within(ax: Any, reach: float, top: float) -> None:
    """Logarithmic beyond ±`reach`, rounded up to one digit, with room to `top`: a bound may lie far above the rest."""
    from matplotlib import ticker

    unit = 10.0 ** np.floor(np.log10(reach))
    edge = float(np.ceil(reach / unit) * unit)
    ax.set_yscale("symlog", linthresh=edge, linscale=1.5)
    ax.set_ylim(-2.5 * edge, 40 * max(top, edge))
    ax.set_yticks([-edge, -edge / 2, 0, edge / 2, edge, *(t for t in (10 * edge, 100 * edge) if t < 3 * top)])
    ax.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    ax.yaxis.set_minor_locator(ticker.NullLocator())
    ax.text(0.98, 0.02, f"logarithmic beyond ±{edge:g}", transform=ax.transAxes, ha="right", fontsize=8)


def heat(table: pd.DataFrame) -> Any:
    """Accuracy over zero-shot by clip and learning rate, with 95 % half-widths where there are several seeds."""
    import matplotlib.pyplot as plt

    grid, half = (table.pivot(index="clip", columns="lr", values=name) for name in (
        "over zero-shot, points", "gain ± seeds"))
    figure, ax = plt.subplots(figsize=(1.25 * grid.shape[1] + 2.6, 0.66 * grid.shape[0] + 1.7))
    image = ax.imshow(grid, cmap="cividis", aspect="auto")  # dark is low, in grey too; the sign stands in the cell
    middle = (image.norm.vmin + image.norm.vmax) / 2
    for (i, j), value in np.ndenumerate(grid.to_numpy()):
        spread = half.iat[i, j]
        ax.text(j, i, f"{value:+.1f}" + f" ± {spread:.1f}" * bool(np.isfinite(spread)), ha="center", va="center",
                fontsize=10, color="white" if value < middle else plots.INK)
    ax.set_xticks(range(grid.shape[1]), [f"{x:.2g}" for x in grid.columns])
    ax.set_yticks(range(grid.shape[0]), [f"{c:.3g}" for c in grid.index])
    ax.set(xlabel="learning rate", ylabel="clip c")
    ax.grid(visible=False)
    figure.colorbar(image, label="points over zero-shot")
    return figure


def explorer(statistic: np.ndarray, multipliers: dict[float, float], batch: float, k: int, log2_beta: float,
             epsilon: float) -> Any:
    """Left: norms of the records' K-vectors and the clip. Right: what one released value consists of."""
    import matplotlib.pyplot as plt

    beta = 2.0**log2_beta
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 3.4), layout="none")
    figure.subplots_adjust(left=0.08, right=0.97, top=0.9, bottom=0.17, wspace=0.25)
    sizes = _norms(statistic, k)
    left.hist(np.minimum(sizes, np.quantile(sizes, 0.999)), bins=50, **plots.bar(0))
    left.axvline(beta, color=plots.PALETTE[5], linestyle="--")
    left.set(xlabel=f"√K times the norm of a record's {k} numbers (dashed: clip)", ylabel="records, all steps")
    found = clip.signal_of_run(statistic, k, beta, multipliers[epsilon], batch)
    names = ("signal", "lost to the clip", "sampling", "privacy noise")
    for i, value in enumerate(found[:4]):
        right.bar(i, value, **plots.bar(i))
    right.set_xticks(range(4), names)
    right.set(ylabel="rms of one released value")
    right.set_title(f"clipped {100 * found.clipped:.0f} %, signal over noise {found.ratio:.2f}", fontsize=11)
    return figure


def explorer_numbers(statistic: np.ndarray, multipliers: dict[float, float], batch: float, k: int, log2_beta: float,
                     epsilon: float) -> dict:
    """The numbers behind `explorer`."""
    beta = 2.0**log2_beta
    found = clip.signal_of_run(statistic, k, beta, multipliers[epsilon], batch)
    return {"clip c = 2^x / √K": f"{beta / np.sqrt(k):.4g}", "noise multiplier": f"{multipliers[epsilon]:.4g}",
            "clipped records": f"{100 * found.clipped:.1f} %", "signal": f"{found.signal:.3g}",
            "lost to the clip": f"{found.lost:.3g}", "sampling": f"{found.sampling:.3g}",
            "privacy noise": f"{found.noise:.3g}", "signal over all noise, one value": f"{found.ratio:.3g}",
            "the same over K values": f"{found.ratio * np.sqrt(k):.3g}"}


def _norms(statistic: np.ndarray, k: int) -> np.ndarray:
    sizes = [np.linalg.norm(part, axis=0) / np.sqrt(k) for step in statistic for part in clip.groups(step, k)]
    found = np.concatenate(sizes)
    return found[np.isfinite(found)]
