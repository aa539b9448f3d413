"""Peak memory of a step, measured by counting the bytes of every live tensor, and the published peaks.

Knows torch's dispatcher and one micro-batch of a sentiment task. Does not see what the allocator or the operating
system add; its numbers are the same on every machine.
"""

import copy
import weakref
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paclab import tasks
from paclab.chapters.zeroth_order_model import differentiable
from paclab.models import LanguageModel, trainable
from paclab.notebook import plots, tables
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights, all_differences, differences
from paclab.zo.update import descend

MIB = float(1 << 20)
MU = 1e-3


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors made inside the block that are still alive, and their peak."""

    def __init__(self):
        super().__init__()
        self.live, self.peak, self.known = 0, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inputs = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for tensor in (x for x in tree_leaves(out) if isinstance(x, torch.Tensor)):
            storage = tensor.untyped_storage()
            name = storage._cdata
            if name in self.known or name in inputs:  # a view, or written in place
                continue
            self.known.add(name)
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._freed, name, storage.nbytes())
        return out

    def _freed(self, name: int, size: int) -> None:
        self.known.discard(name)
        self.live -= size


def memory_table(model: LanguageModel, records: list[dict], key: int, ks: tuple[int, ...] = ()) -> pd.DataFrame:
    """Peak tensor memory of one micro-batch's step, MiB, by method; the weights are counted once in every row.

    The optimisers take two steps, so that their moments exist while the second one runs. `ks`: also steps of so many
    directions, one after another, as runs do them on one thread. `model` is left as it is.
    """
    model = model._replace(module=copy.deepcopy(model.module))
    size = sum(p.numel() * p.element_size() for p in model.module.parameters())
    objective = tasks.objective("sentiment", model, records)

    def kept_copy() -> None:
        weights = Weights(trainable(model.module))
        differences(objective.losses, weights, Directions(key, tuple(weights.live)), 0, 0, MU)

    def several(k: int) -> None:
        weights = Weights(trainable(model.module))
        directions = Directions(key, tuple(weights.live))
        all_differences(objective.losses, None, weights, directions, 0, k, MU)
        descend(weights, directions, 0, [1.0] * k, 0.0)

    ways = {"forward only": objective.losses, "two-point, in place": lambda: _in_place(model, objective, key),
            "two-point, kept copy": kept_copy,
            **{f"two-point, kept copy, K = {k}": partial(several, k) for k in ks},
            "backpropagation, SGD": lambda: _two_steps(model, records, torch.optim.SGD),
            "backpropagation, AdamW": lambda: _two_steps(model, records, torch.optim.AdamW)}
    rows = []
    for name, way in ways.items():
        with LiveBytes() as meter:
            way()
        rows.append({"method": name, "weights, MiB": size / MIB, "on top, MiB": meter.peak / MIB,
                     "peak, MiB": (size + meter.peak) / MIB})
    return pd.DataFrame(rows)


def _in_place(model: LanguageModel, objective, key: int) -> None:
    """A probe as MeZO does it: the live weights are moved, and z is drawn again for every move."""
    directions, parameters = Directions(key), trainable(model.module)
    for factor, measured in ((MU, True), (-2 * MU, True), (MU, False)):
        for name, tensor in parameters.items():
            tensor.add_(directions.normal(0, 0, name, tensor.shape), alpha=factor)
        if measured:
            objective.losses()


def _two_steps(model: LanguageModel, records: list[dict], optimiser_class) -> None:
    loss = differentiable(model, records)
    optimiser = optimiser_class(model.module.parameters(), lr=1e-12)
    for _ in range(2):
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    model.module.requires_grad_(False)


def memory_figure(table: pd.DataFrame, published: pd.DataFrame) -> Any:
    """Left: our peak by method. Right: the papers' peak, backpropagation against zeroth order."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 3.6), width_ratios=(1, 1))
    places = np.arange(len(table))
    left.barh(places, table["weights, MiB"], label="weights", **plots.bar(0))
    left.barh(places, table["on top, MiB"], left=table["weights, MiB"], label="on top", **plots.bar(1))
    left.set_yticks(places, table["method"])
    left.set(xlabel="peak tensor memory, MiB (embedded model)")
    left.legend(loc="upper right")
    spots = np.arange(len(published))
    for i, column in enumerate(("zeroth order, GiB", "backpropagation, GiB")):
        right.barh(spots + 0.2 - 0.4 * (1 - i), published[column], height=0.38, label=column.partition(",")[0],
                   **plots.bar((0, 1)[i]))
    for spot, missing in zip(spots, published["backpropagation, GiB"].isna(), strict=True):
        if missing:
            right.text(0.5, spot + 0.2, "out of memory", va="center", fontsize=9)
    right.set_yticks(spots, published["model and task"])
    right.set(xlabel="published peak, GiB (Bao et al.)", ylim=(-0.6, len(published) - 0.4))
    right.legend(loc="upper right")
    for ax in (left, right):
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
    return figure


def published_memory() -> pd.DataFrame:
    """Bao et al.'s peaks, GiB (tables 3 and 5): DP-AdamW (backpropagation; empty: printed as OOM) and zeroth order."""
    both = tables.load_published("dp-aggzo")
    both = both[both["unit"] == "peak memory, GiB"].pivot(index="column", columns="row", values="value")
    both = both.loc[sorted(both.index, key=lambda name: (not name.startswith("RoBERTa"), name))]
    adam, zo = both["DP-AdamW"].to_numpy(), both["DPZO and AggZO"].to_numpy()
    return pd.DataFrame({"model and task": both.index.str.replace("RoBERTa", "RoBERTa-large"),
                         "backpropagation, GiB": adam, "zeroth order, GiB": zo, "ratio": adam / zo})
