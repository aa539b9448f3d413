"""Two-point probes along public directions: per-record loss differences. Knows no task and no privacy.

Master weights stay in float32 and are never perturbed: the live tensors are written as master + mu z, then
master - mu z, then master again, so that restoring is a copy and no update is lost to rounding. The directions of a
step are drawn once, for both signs and the update. On a CPU with several threads the K directions are probed side
by side, each thread on its own copy of the live tensors: the arithmetic of one direction is the same wherever it runs.
"""

import hashlib
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from paclab.errors import InputError
from paclab.threads import side_by_side
from paclab.zo.directions import Directions

STACKED = 8  # perturbed copies that share a forward pass, where the model offers it
CACHED_NUMBERS = 1 << 26  # directions of a step are kept when they fit in 256 MiB, else drawn again


class Weights:
    """Trainable tensors: the live ones that a model reads, and their float32 masters."""

    def __init__(self, live: dict[str, torch.Tensor]):
        if not live:
            raise InputError("track", "no trainable tensor was found", "choose ft, or lora on a model with q and v")
        self.live = {name: tensor.detach() for name, tensor in live.items()}
        self.master = {name: tensor.float().clone() for name, tensor in self.live.items()}
        self.count = sum(tensor.numel() for tensor in self.live.values())
        self._kept: dict[tuple[int, int, str], torch.Tensor] = {}
        self._room, self._guard = CACHED_NUMBERS, threading.Lock()

    def direction(self, directions: Directions, t: int, k: int, name: str) -> torch.Tensor:
        """z of one tensor, from the cache when it was drawn in this step already."""
        kept = self._kept.get((t, k, name))
        if kept is not None:
            return kept
        z = directions.normal(t, k, name, self.live[name].shape, self.live[name].device)
        with self._guard:
            if self._kept and next(iter(self._kept))[0] != t:
                self._kept.clear()
                self._room = CACHED_NUMBERS
            if z.numel() <= self._room:
                self._kept[t, k, name] = z
                self._room -= z.numel()
        return z

    def perturb(self, directions: Directions, t: int, k: int, scale: float, live: dict | None = None) -> None:
        """Write master + scale z into the live tensors, or into those of a copy."""
        for name, tensor in (live or self.live).items():
            z = self.direction(directions, t, k, name)
            if tensor.dtype == torch.float32:
                torch.add(self.master[name], z, alpha=scale, out=tensor)
            else:
                tensor.copy_(torch.add(self.master[name], z, alpha=scale))

    def restore(self) -> None:
        """Write the masters into the live tensors, exactly."""
        for name, live in self.live.items():
            live.copy_(self.master[name])

    def move(self, directions: Directions, t: int, k: int, scale: float) -> None:
        """master += scale z; call `restore` once all moves of a step are made."""
        for name, master in self.master.items():
            master.add_(self.direction(directions, t, k, name), alpha=scale)

    def digest(self) -> str:
        """SHA-256 over names, shapes and float32 bytes of the masters."""
        state = hashlib.sha256()
        for name in sorted(self.master):
            tensor = self.master[name].cpu().contiguous()
            state.update(f"{name}{tuple(tensor.shape)}".encode())
            state.update(tensor.numpy().tobytes())
        return state.hexdigest()


class Copy(NamedTuple):
    """Live tensors of a model of one's own, and the losses that read them."""

    losses: Callable[[np.ndarray | None], np.ndarray]
    live: dict[str, torch.Tensor]


def differences(losses: Callable[[], np.ndarray], weights: Weights, directions: Directions, t: int, k: int,
                mu: float, live: dict | None = None) -> np.ndarray:
    """Projected gradients (L+ - L-) / (2 mu) of every record: float64 [N]; the weights are restored exactly.

    `live` are the tensors that `losses` reads when they are a copy's: these are left perturbed.
    """
    try:
        weights.perturb(directions, t, k, mu, live)
        above = np.asarray(losses(), dtype=np.float64)
        weights.perturb(directions, t, k, -mu, live)
        below = np.asarray(losses(), dtype=np.float64)
    finally:
        if live is None:
            weights.restore()
    return (above - below) / (2 * mu)


def stacked_differences(losses: Callable, batch: np.ndarray, weights: Weights, directions: Directions, t: int,
                        k: int, mu: float) -> np.ndarray:
    """The same along directions 0 .. k-1, in groups whose copies share forward passes: float64 [k, n].

    `losses(stacks, batch)` reads stacks name -> [copies, ...] of perturbed tensors: float64 [copies, n].
    """
    out = []
    for first in range(0, k, STACKED // 2):
        group = [(j, sign) for j in range(first, min(first + STACKED // 2, k)) for sign in (mu, -mu)]
        stacks = {name: torch.stack([torch.add(master, weights.direction(directions, t, j, name), alpha=scale)
                                     for j, scale in group]) for name, master in weights.master.items()}
        both = np.asarray(losses(stacks, batch), dtype=np.float64).reshape(-1, 2, len(batch))
        out.append((both[:, 0] - both[:, 1]) / (2 * mu))
    return np.concatenate(out)


def all_differences(losses: Callable, batch: np.ndarray | None, weights: Weights, directions: Directions, t: int,
                    k: int, mu: float, copies: Callable[[int], list[Copy]] | None = None) -> np.ndarray:
    """`differences` along directions 0 .. k-1 of step t: float64 [k, n].

    `copies(count)` offers at most that many independent copies; without any the directions go one after another.
    """
    own = copies(min(k, torch.get_num_threads())) if copies and k > 1 else []
    if len(own) < 2:
        return np.stack([differences(lambda: losses(batch), weights, directions, t, j, mu) for j in range(k)])
    free, lock = list(own), threading.Lock()

    def work(j: int) -> np.ndarray:
        with lock:
            mine = free.pop()
        try:
            return differences(lambda: mine.losses(batch), weights, directions, t, j, mu, mine.live)
        finally:
            with lock:
                free.append(mine)

    return np.stack(list(side_by_side(work, list(range(k)), torch.device("cpu"), len(own))))
