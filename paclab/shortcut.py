"""In a model's last block, everything after attention may be computed at the read positions only.

Found by protocol, proved by trial: a part of the last block is narrowed only if the hidden states at the read
positions come out unchanged on a first batch (attention itself fails that trial and stays whole). For the embedded
two-layer model this saves a third of the arithmetic; for deep models little.
"""

import copy
import threading
from collections.abc import Callable
from contextlib import contextmanager

import torch

SMALLEST_SHARE = 0.05  # parts with fewer of the block's weights are not worth a trial


class Reading:
    """Which positions a forward pass is read at, for hooks; one answer per thread, None outside `reading`."""

    def __init__(self):
        self.local = threading.local()

    @property
    def positions(self) -> torch.Tensor | None:
        return getattr(self.local, "positions", None)

    @contextmanager
    def reading(self, positions: torch.Tensor):
        """Only these positions [rows] of the hidden states are read from the forward pass inside."""
        self.local.positions = positions
        try:
            yield
        finally:
            self.local.positions = None


class Narrow(Reading):
    """Hooks on parts of the last block; without `reading` they do nothing. Safe to use from several threads."""

    def __init__(self, decoder: torch.nn.Module | None):
        super().__init__()
        stacks = [m for m in decoder.modules() if isinstance(m, torch.nn.ModuleList)] if decoder is not None else []
        self.stack = max(stacks, key=len) if stacks else torch.nn.ModuleList()  # the decoder's blocks
        self.block = self.stack[-1] if len(self.stack) else None

    def __reduce__(self):
        return Narrow, (None,)  # hooks of a pickled model stay asleep

    def __deepcopy__(self, memo) -> "Narrow":
        """Hooks of a copied model work for whoever holds the copy of this object, and sleep otherwise."""
        memo[id(self)] = twin = Narrow(None)
        twin.stack, twin.block = copy.deepcopy(self.stack, memo), copy.deepcopy(self.block, memo)
        return twin

    def prove(self, states: Callable[[], torch.Tensor], positions: torch.Tensor) -> None:
        """Try every sizeable part once; keep those that leave `states()` [rows, length, width] as it is there."""
        if self.block is None:
            return
        rows = torch.arange(len(positions), device=positions.device)
        whole = states()[rows, positions]
        total = sum(p.numel() for p in self.block.parameters())
        for part in self.block.children():
            if sum(p.numel() for p in part.parameters()) < SMALLEST_SHARE * total:
                continue
            hooks = part.register_forward_pre_hook(self._gather), part.register_forward_hook(self._scatter)
            try:
                self.local.narrowed = False
                with self.reading(positions):
                    same = torch.allclose(states()[rows, positions], whole, rtol=1e-4, atol=1e-5)
                same = same and self.local.narrowed
            except (RuntimeError, IndexError, TypeError, ValueError):
                same = False
            if not same:
                for hook in hooks:
                    hook.remove()

    def _gather(self, part, args):
        positions = self.positions
        self.local.length = None
        if positions is None or not args or not torch.is_tensor(args[0]) or args[0].dim() != 3:
            return None
        x = args[0]
        self.local.length = x.shape[1]
        rows = torch.arange(len(x), device=x.device)
        alike = [torch.is_tensor(arg) and arg.dim() == 3 and arg.shape[:2] == x.shape[:2] for arg in args]
        return tuple(arg[rows, positions][:, None] if same else arg for arg, same in zip(args, alike, strict=True))

    def _scatter(self, part, args, output):
        length = getattr(self.local, "length", None)
        self.local.length = None
        if length is None:
            return None
        if not torch.is_tensor(output):
            raise TypeError("a part that returns more than a tensor cannot be narrowed")
        self.local.narrowed = True
        full = output.new_zeros(len(output), length, output.shape[-1])
        full[torch.arange(len(output), device=output.device), self.positions] = output[:, 0]
        return full
