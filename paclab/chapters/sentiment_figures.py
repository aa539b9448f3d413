"""Figures of chapter 13: what was learnt, what was free, what was charged, what an attacker believes.

Knows `sentiment_table.Results`. Every figure shows private quantities of a public pool (study mode).
"""

from typing import Any

import numpy as np

from paclab.chapters.consensus_views import rolling
from paclab.chapters.rows import interval
from paclab.chapters.sentiment_table import ROWS, Results
from paclab.notebook import plots
from paclab.releases.dp import EXPECTED_BATCH

TRACKS = {"ft": "full fine-tuning", "lora": "LoRA"}
CURVES = ("mezo", "sign", "mi-0.33", "rr-0.33", "zpl-coin", "zpl-skip", "dpzero-2", "aggzo-2")


def _series(r: Results, keys: tuple[str, ...], track: str) -> list[tuple[int, str]]:
    return [(i, key) for i, key in enumerate(keys) if (track, key) in r.cells]


def _over_seeds(curves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over seeds (zero with one)."""
    stack = np.array(curves)
    spread = stack.std(axis=0, ddof=1) / np.sqrt(len(stack)) if len(stack) > 1 else np.zeros(stack.shape[1])
    return stack.mean(axis=0), spread


def headline(r: Results, track: str, key: str = "zpl-coin") -> Any:
    """Left: held-out accuracy over zero-shot, with and without a secret to keep. Right: nats charged on the way."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 3.2), width_ratios=(4, 4))
    _gain_axis(left, r, [name for name in ("mezo", "mi-0.33", key) if (track, name) in r.cells], [track])
    left.set(xlabel="accuracy over zero-shot, points\n(dotted: one corrected threshold)")
    for i, name in ((2, "mi-0.33"), (0, key)):
        if (track, name) in r.cells:
            charged = np.mean([[info["charged"] for info in c.infos] for c in r.cells[track, name]], axis=0)
            right.plot(np.arange(1, len(charged) + 1), charged, label=ROWS[name].name, **plots.line(i, 10))
    right.set(xlabel="step", ylabel="charged so far, nats")
    right.legend(loc="upper left")
    return figure


def _metric(ax: Any, r: Results, track: str, key: str, index: int, name: str, scale: float) -> None:
    cells = r.cells[track, key]
    config = cells[0].config
    read = config.k * (EXPECTED_BATCH if ROWS[key].epsilon else config.pool) / 1000
    steps = [read * m["step"] for m in cells[0].metrics]
    mean, spread = _over_seeds([scale * np.array([m[name] for m in c.metrics]) for c in cells])
    plots.band(ax, steps, mean - spread, mean, mean + spread, index=index, label=ROWS[key].name)


def curves(r: Results) -> Any:
    """Loss and accuracy on the public dev sentences over forward passes, one row a track; bands: one standard error."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(r.plan.tracks), 2, figsize=(10.4, 3.5 * len(r.plan.tracks)), squeeze=False)
    for (left, right), track in zip(axes, r.plan.tracks, strict=True):
        for i, key in _series(r, CURVES, track):
            _metric(left, r, track, key, i, "dev_loss", 1.0)
            _metric(right, r, track, key, i, "dev_score", 100.0)
        left.set(xlabel="records probed, thousands", ylabel="dev loss, nats", title=TRACKS[track])
        right.set(xlabel="records probed, thousands", ylabel="dev accuracy, %")
    axes[0, 1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def free_steps(r: Results, window: int = 10) -> Any:
    """Running share of free steps of every method with candidate votes, one panel a track."""
    import matplotlib.pyplot as plt

    tracks = r.plan.tracks
    figure, axes = plt.subplots(1, len(tracks), figsize=(4.2 * len(tracks) + 2.4, 3.8), sharey=True, squeeze=False)
    keys = tuple(key for key in r.plan.rows if ROWS[key].halves and not ROWS[key].per_step)
    for ax, track in zip(axes[0], tracks, strict=True):
        for i, key in _series(r, keys, track):
            free = [rolling(np.array([info["bits"][0]["free"] for info in c.infos]), window)
                    for c in r.cells[track, key]]
            mean, _ = _over_seeds(free)
            ax.plot(np.arange(1, len(mean) + 1), mean, label=ROWS[key].name, **plots.line(i, 8))
        ax.axhspan(0.34, 0.45, color="#dddddd", zorder=0)
        ax.set(xlabel="step (grey: the paper's whole-run range)", title=TRACKS[track], ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel(f"free share of the last {window} steps")
    axes[0, -1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def gains(r: Results) -> Any:
    """Held-out accuracy over zero-shot by row, with 95 % intervals; labels say what is promised about the half."""
    import matplotlib.pyplot as plt

    keys = [key for key in r.plan.rows if ROWS[key].method]
    figure, ax = plt.subplots(figsize=(9.2, 0.42 * len(keys) + 1.5))
    _gain_axis(ax, r, keys, r.plan.tracks)
    over = f"95 % over {len(r.zero)} seeds" if len(r.zero) > 1 else "95 % over sentences, one seed"
    ax.set(xlabel=f"accuracy over zero-shot, points ({over}; dotted: one corrected threshold)")
    if len(r.plan.tracks) > 1:
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure


def _gain_axis(ax: Any, r: Results, keys: list[str], tracks: list[str]) -> None:
    for i, track in enumerate(tracks):
        found = [r.gain(track, key) for key in keys]
        y = np.arange(len(keys)) + (2 * i - 1) * 0.16 * (len(tracks) > 1)
        ax.errorbar([100 * g.mean for g in found], y, xerr=[100 * g.shown for g in found], capsize=3,
                    linestyle="none", color=plots.PALETTE[(0, 5)[i]], marker=plots.MARKERS[i], label=TRACKS[track])
    ax.axvline(0, color=plots.INK, linewidth=1)
    corrected = 100 * interval(z.balanced - z.score for z in r.zero).mean
    ax.axvline(corrected, color="#777777", linestyle=":", linewidth=1.6)
    ax.set_yticks(range(len(keys)), [f"{ROWS[key].name}   {_label(r, key)}" for key in keys])
    ax.set_ylim(len(keys) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def _label(r: Results, key: str) -> str:
    row = ROWS[key]
    nats = row.budget(r.plan.steps) or 0.0
    if row.epsilon:
        return "[one record]"
    return "[not private]" if not row.halves else f"[≤ {nats:.2g} nats]" if nats else "[0 nats]"


def charges(r: Results) -> Any:
    """Nats charged so far against the step, one panel a track, logarithmic; dotted: what was promised."""
    import matplotlib.pyplot as plt

    tracks = r.plan.tracks
    figure, axes = plt.subplots(1, len(tracks), figsize=(4.2 * len(tracks) + 3.2, 3.9), sharey=True, squeeze=False)
    keys = tuple(key for key in r.plan.rows if ROWS[key].total)
    for ax, track in zip(axes[0], tracks, strict=True):
        for i, key in _series(r, keys, track):
            charged = np.mean([[info["charged"] for info in c.infos] for c in r.cells[track, key]], axis=0)
            look, shown = plots.line(i, 8), charged > 0
            ax.plot(np.arange(1, len(charged) + 1)[shown], charged[shown], label=ROWS[key].name, **look)
            ax.axhline(ROWS[key].budget(r.plan.steps), color="#777777", linestyle=":", linewidth=1)
        ax.set(xlabel="step", title=TRACKS[track], yscale="log")
    axes[0, 0].set_ylabel("charged so far, nats (dotted: promised)")
    axes[0, -1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def belief(r: Results, track: str, key: str, step: int, seed_index: int = 0) -> Any:
    """What the strongest attacker believes after `step` steps: posterior over halves, and its history."""
    import matplotlib.pyplot as plt

    cell, attack = r.cells[track, key][seed_index], r.attacks[track, key][seed_index]
    step = min(step, len(attack.success) - 1)
    weights = attack.weights[step]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.3), layout="none")
    figure.subplots_adjust(left=0.08, right=0.92, top=0.9, bottom=0.16, wspace=0.28)
    order = np.argsort(-weights, kind="stable")
    left.plot(np.arange(1, len(weights) + 1), len(weights) * weights[order], color=plots.PALETTE[0],
              drawstyle="steps-mid")
    secret = int(np.flatnonzero(order == _secret_index(cell))[0])
    left.plot([secret + 1], [len(weights) * weights[order][secret]], color=plots.PALETTE[5], marker="D", markersize=8,
              linestyle="none", label="the half that was used")
    left.axhline(1, color="#777777", linestyle=":")
    left.set(xlabel="candidate halves, most suspected first", ylabel="suspicion, prior = 1",
             ylim=(0, 1.35 * len(weights) * weights.max()))  # the legend above a flat line too
    left.legend(loc="upper right")
    loss = [m["dev_loss"] for m in cell.metrics]
    right.plot([m["step"] for m in cell.metrics], loss, **plots.line(1), label="dev loss (left axis)")
    right.axvline(step, color="#777777", linestyle=":")
    twin = right.twinx()
    twin.plot(np.arange(len(attack.success)), attack.success, color=plots.PALETTE[0], linestyle="--")
    twin.set(ylim=(0.498, max(0.56, attack.success.max() + 0.005)), ylabel="mean membership guess (dashed)")
    twin.grid(visible=False)
    right.set(xlabel="step", ylabel="dev loss, nats (line)")
    for ax in (left, right, twin):
        ax.locator_params(axis="y", nbins=4)
    return figure


def belief_numbers(r: Results, track: str, key: str, step: int, seed_index: int = 0) -> dict:
    """The numbers behind `belief`."""
    attack, cell = r.attacks[track, key][seed_index], r.cells[track, key][seed_index]
    step = min(step, len(attack.success) - 1)
    weights = attack.weights[step]
    info = cell.infos[step - 1] if step else {"charged": 0.0, "realised": 0.0}
    free = np.mean([i["bits"][0]["free"] for i in cell.infos[:step]]) if step else float("nan")
    return {"method": ROWS[key].name, "steps": step, "charged, nats": f"{info['charged']:.4g}",
            "learnt by the attacker, nats": f"{info['realised']:.4g}", "free steps so far": f"{free:.3f}",
            "most suspected half, times the prior": f"{len(weights) * weights.max():.3f}",
            "mean guess of a record's membership": f"{attack.success[step]:.4f}"}


def _secret_index(cell: Any) -> int:
    from paclab.releases.secret import Secret

    return Secret.from_seed(cell.config.seed).index(cell.config.candidates)


def sentence(r: Results, track: str, key: str = "zpl-coin") -> str:
    """The answer in one line, from this run's numbers."""
    gain, accuracy = r.gain(track, key), interval(c.score for c in r.cells[track, key])
    over = f"{len(r.zero)} seeds" if len(r.zero) > 1 else "sentences, one seed"
    return (f"{ROWS[key].name}, {TRACKS[track]}, {r.plan.steps} steps: accuracy {100 * accuracy.mean:.1f} %, "
            f"{100 * gain.mean:+.1f} ± {100 * gain.shown:.1f} points over zero-shot (95 % over {over}); "
            f"{100 * np.mean(r.free(track, key)):.0f} % of the steps free; charged 0 nats; "
            f"the attacker's guess stays at {np.mean([a.success[-1] for a in r.attacks[track, key]]):.3f}")
