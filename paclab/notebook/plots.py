"""How figures look and how they are stored: one palette that also reads in grey, the same bytes at every run.

Knows matplotlib. Does not know chapters or results.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paclab.errors import InputError
from paclab.files import write_atomic

# Okabe and Ito's colours, ordered so that neighbours also differ in lightness.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#8C8C8C")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINESTYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "ooo", "---", "+++")
INK, GRID, FACE = "#222222", "#d9d9d9", "#ffffff"
MAX_BYTES, DPIS = 300_000, (200, 160, 120, 90)
SHOWN_DPI = 90


def rc() -> dict[str, Any]:
    """matplotlib settings: an opaque light face (legible on both JupyterLab themes), large enough type."""
    from cycler import cycler

    cycle = cycler(color=PALETTE) + cycler(linestyle=LINESTYLES)
    return {
        "figure.figsize": (7.0, 4.2),
        "figure.facecolor": FACE,
        "figure.constrained_layout.use": True,
        "axes.facecolor": FACE,
        "savefig.facecolor": FACE,
        "savefig.transparent": False,
        "axes.prop_cycle": cycle,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "axes.labelsize": 11,
        "font.size": 10.5,
        "legend.frameon": False,
        "legend.fontsize": 9.5,
        "lines.linewidth": 1.9,
        "lines.markersize": 5.5,
        "lines.markeredgecolor": "white",
        "lines.markeredgewidth": 0.6,
        "font.family": "DejaVu Sans",
        "svg.hashsalt": "paclab",
        "figure.max_open_warning": 5,
    }


@contextmanager
def style() -> Iterator[None]:
    """Context in which figures get the house look; `begin` also sets it for the whole notebook."""
    import matplotlib

    with matplotlib.rc_context(rc()):
        yield


def use_style() -> None:
    """Set the house look for the rest of this process."""
    import matplotlib

    matplotlib.rcParams.update(rc())


def line(index: int, every: int = 1) -> dict[str, Any]:
    """Colour, marker (on each `every`-th point) and line style of series `index`, for `plot`."""
    i = index % len(PALETTE)
    return {"color": PALETTE[i], "marker": MARKERS[i], "linestyle": LINESTYLES[i], "markevery": every}


def bar(index: int) -> dict[str, Any]:
    """Face, edge and hatch of bar series `index`, told apart without colour."""
    i = index % len(PALETTE)
    return {"color": PALETTE[i], "hatch": HATCHES[i], "edgecolor": "white", "linewidth": 0.6}


def intervals(
    ax: Any,
    x: Sequence,
    low: Sequence,
    mid: Sequence,
    high: Sequence,
    *,
    index: int = 0,
    label: str | None = None,
) -> None:
    """Points with the interval [low, high] of each, in the look of series `index` (no joining line)."""
    import numpy as np

    mid, low, high = (np.asarray(v, float) for v in (mid, low, high))
    ax.errorbar(
        x,
        mid,
        yerr=np.vstack([mid - low, high - mid]).clip(min=0),
        label=label,
        capsize=3,
        color=PALETTE[index % len(PALETTE)],
        marker=MARKERS[index % len(MARKERS)],
        linestyle="none",
    )


def band(
    ax: Any,
    x: Sequence,
    low: Sequence,
    mid: Sequence,
    high: Sequence,
    *,
    index: int = 0,
    label: str | None = None,
    every: int = 1,
) -> None:
    """A line with a shaded interval, in the look of series `index`, a marker every `every` points."""
    look = line(index, every)
    ax.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
    ax.plot(x, mid, label=label, **look)


def watermark(figure: Any, text: str) -> None:
    """Small print below the figure: the profile, and whether its secrets were public."""
    figure.text(0.995, -0.015, text, ha="right", va="top", fontsize=7.5, color="#555555")


def png_bytes(figure: Any, dpi: int, metadata: dict[str, str] | None = None, tight: bool = True) -> bytes:
    """The figure as PNG; the same figure gives the same bytes (no date, no program version)."""
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format="png",
        dpi=dpi,
        bbox_inches="tight" if tight else None,
        pad_inches=0.08,
        metadata={"Software": None, **(metadata or {})},
    )
    return buffer.getvalue()


def save_figure(figure: Any, path: Any, metadata: dict[str, str] | None = None) -> None:
    """Write a PNG under 300 kB, at the highest of a few resolutions that fits."""
    for dpi in DPIS:
        data = png_bytes(figure, dpi, metadata)
        if len(data) <= MAX_BYTES:
            write_atomic(path, data)
            return
    raise InputError(
        "figure",
        f"{path.name} is {len(data) // 1000} kB even at {DPIS[-1]} dpi",
        "plot fewer points (rasterise or bin them)",
    )


def png_image(figure: Any, alt: str = "", tight: bool = True) -> Any:
    """The figure as a light image to display, with `alt` for screen readers; tight=False is a third faster."""
    from IPython.display import Image

    return Image(data=png_bytes(figure, SHOWN_DPI, tight=tight), format="png", alt=alt or None)
