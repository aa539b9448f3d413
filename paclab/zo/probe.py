"""Two-point probes along public directions: per-record loss differences. Knows no task and no privacy.

Master weights stay in float32 and are never perturbed: the live tensors are written as master + mu z, then
master - mu z, then master again, so that restoring is a copy and no update is lost to rounding.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import torch

from paclab.errors import InputError
from paclab.zo.directions import Directions

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

    def direction(self, directions: Directions, t: int, k: int, name: str) -> torch.Tensor:
        """z of one tensor, from the cache when it was drawn in this step already."""
        if (t, k, name) in self._kept:
            return self._kept[t, k, name]
        if self._kept and next(iter(self._kept))[0] != t:
            self._kept.clear()
        z = directions.normal(t, k, name, self.live[name].shape, self.live[name].device)
        if sum(kept.numel() for kept in self._kept.values()) + z.numel() <= CACHED_NUMBERS:
            self._kept[t, k, name] = z
        return z

    def perturb(self, directions: Directions, t: int, k: int, scale: float) -> None:
        """Write master + scale z into the live tensors."""
        for name, live in self.live.items():
            live.copy_(torch.add(self.master[name], self.direction(directions, t, k, name), alpha=scale))

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


def differences(losses: Callable[[], np.ndarray], weights: Weights, directions: Directions, t: int, k: int,
                mu: float) -> np.ndarray:
    """Projected gradients (L+ - L-) / (2 mu) of every record: float64 [N]; the weights are restored exactly."""
    try:
        weights.perturb(directions, t, k, mu)
        above = np.asarray(losses(), dtype=np.float64)
        weights.perturb(directions, t, k, -mu)
        below = np.asarray(losses(), dtype=np.float64)
    finally:
        weights.restore()
    return (above - below) / (2 * mu)
