"""What a zeroth-order step costs, from a handful of numbers, and how fast this machine is.

Knows the two-forward-passes rule. Does not know any model: all parameters count as multiplied,
so a model that is mostly embedding tables costs less (the embedded one about a third; `benchmarks/step.py` counts).
"""

import time
from typing import Any, NamedTuple

import numpy as np

from paclab.notebook import plots
from paclab.notebook.book import Book
from paclab.notebook.widgets import clock

MODELS = (("embedded", 0.9e6), ("GPT-2", 124e6), ("OPT-1.3B", 1.3e9), ("OPT-6.7B", 6.7e9))
RATES = (("laptop, 2 cores", 150e9), ("workstation, 16 cores", 1.2e12), ("one GPU, half its peak", 2e14))


class StepCost(NamedTuple):
    """Cost of one zeroth-order step: floating-point operations, and bytes held by weights and optimiser."""

    flop: float
    zeroth_order_bytes: float
    adam_bytes: float


def step_cost(parameters: float, records: int, tokens: float, directions: int = 1) -> StepCost:
    """Estimate a step that scores every record at theta + mu z and theta - mu z, per direction.

    A forward pass costs about 2 operations per parameter and token; two passes make 4. In float32 the weights
    take 4 bytes each; Adam with backpropagation holds gradient and two moments besides, 16 bytes each.
    Activations come on top: one layer's at a time for a forward pass, all layers' for backpropagation.
    """
    flop = 4.0 * parameters * records * tokens * directions
    return StepCost(flop, 4.0 * parameters, 16.0 * parameters)


def matmul_rate(seconds: float = 0.4, size: int = 768) -> float:
    """Operations per second of float32 matrix products here, with the threads torch has now: best of many."""
    import torch

    a, b = torch.ones(size, size), torch.ones(size, size)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best


def cost_figure(records: int, tokens: float, parameters: float) -> Any:
    """Seconds per step against model size for three machines, the named models marked."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    sizes = np.logspace(5, 10.2, 40)
    for i, (name, rate) in enumerate(RATES):
        seconds = [step_cost(p, records, tokens).flop / (0.5 * rate) for p in sizes]
        ax.loglog(sizes, seconds, label=name, **plots.line(i, 13))
    for name, size in MODELS:
        ax.axvline(size, color=plots.GRID, linewidth=1.2, zorder=0)
        ax.text(size, 1.01, name, rotation=30, fontsize=8.5, transform=ax.get_xaxis_transform())
    ax.axvline(parameters, color=plots.INK, linewidth=1, linestyle=":")
    for seconds, name in ((1, "1 s"), (60, "1 min"), (3600, "1 h")):
        ax.axhline(seconds, color=plots.GRID, linewidth=1.2, zorder=0)
        ax.text(1.05e5, seconds * 1.15, name, fontsize=8.5, color="#555555")
    ax.set(
        xlabel="parameters of the model", ylabel="seconds per step (half the peak rate)", xlim=(1e5, 1.6e10)
    )
    ax.legend(loc="lower right")
    return figure


def explorer_figure(rate: float, log10_parameters: float, records: int, tokens: int, directions: int) -> Any:
    """Two bars each: time of a step here, and memory against backpropagation with Adam."""
    import matplotlib.pyplot as plt

    cost = step_cost(10**log10_parameters, records, tokens, directions)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.6))
    times = [cost.flop / rate, cost.flop / (0.5 * rate)]
    memory = [cost.zeroth_order_bytes / 2**30, cost.adam_bytes / 2**30]
    _bars(
        left,
        ["arithmetic alone", "at half the peak"],
        times,
        [clock_fine(t) for t in times],
        "seconds per step, here",
        (1e-3, 1e6),
    )
    _bars(
        right,
        ["zeroth order", "Adam"],
        memory,
        [f"{m:.3g} GB" for m in memory],
        "GB for weights and optimiser",
        (1e-3, 1e3),
    )
    return figure


def explorer_numbers(
    rate: float, log10_parameters: float, records: int, tokens: int, directions: int
) -> dict:
    """The numbers that `explorer_figure` shows, with units."""
    cost = step_cost(10**log10_parameters, records, tokens, directions)
    return {
        "parameters": f"{10**log10_parameters:.3g}",
        "arithmetic": f"{cost.flop / 1e9:.3g} GFLOP per step",
        "time at half the peak": f"{clock_fine(cost.flop / (0.5 * rate))} per step",
        "1000 steps": clock(1000 * cost.flop / (0.5 * rate)),
        "memory, zeroth order": f"{cost.zeroth_order_bytes / 2**30:.3g} GB",
        "memory, Adam": f"{cost.adam_bytes / 2**30:.3g} GB",
    }


def book_table(book: Book) -> Any:
    """Chapters with their question, declared minutes per profile and memory, as a data frame."""
    import pandas as pd

    rows = [
        {
            "chapter": c.id,
            "question": c.question,
            "quick_minutes": c.minutes.get("quick"),
            "desk_minutes": c.minutes.get("desk"),
            "memory_gb": c.memory_gb,
        }
        for c in book.chapters.values()
    ]
    return pd.DataFrame(rows)


def book_figure(table: Any) -> Any:
    """Declared minutes of every chapter, quick beside desk, on a logarithmic axis."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 1.3 + 0.34 * len(table)))
    places = np.arange(len(table))
    for i, (column, name) in enumerate((("quick_minutes", "quick"), ("desk_minutes", "desk"))):
        known = table[column].notna().to_numpy()
        values = table[column].to_numpy(dtype=float)
        if not known.any():
            continue
        ax.barh(places[known] + 0.2 - 0.4 * i, values[known], height=0.38, label=name, **plots.bar(i))
    ax.set_yticks(places, table["chapter"])
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(xscale="log", xlabel="minutes on two idle cores (declared)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def clock_fine(seconds: float) -> str:
    """Seconds with three digits below a minute, as people say them above."""
    return f"{seconds:.3g} s" if seconds < 60 else clock(seconds)


def _bars(
    ax: Any, names: list[str], values: list[float], labels: list[str], axis: str, limits: tuple
) -> None:
    for i, (value, label) in enumerate(zip(values, labels, strict=True)):
        ax.barh(i, value, height=0.55, **plots.bar(i))
        near = min(max(value, limits[0]), limits[1] / 30)
        ax.text(
            near * 1.25,
            i,
            label,
            va="center",
            fontsize=10,
            bbox={"facecolor": plots.FACE, "edgecolor": "none", "pad": 1.0, "alpha": 0.85},
        )
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(xscale="log", xlim=limits, xlabel=axis)
