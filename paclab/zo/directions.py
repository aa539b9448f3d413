"""Public random directions from a counter-based key; knows no parameters' values, no data and no secret.

Element e of tensor `name` in direction k of step t is a pure function of (key, t, k, name, e): it depends
neither on the order of tensors nor on how the work is split. Generator: Philox-4x32-10 (Salmon et al. 2011)
followed by Box-Muller in float32 (|z| <= 5.77). The integers agree on every device; the float32
logarithm and cosine may differ in the last bit between a CPU and a GPU, so a transcript names its device kind.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from paclab.errors import InputError

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
CHUNK = 1 << 15  # counters handled at once, so that the generator's state stays in the cache


def philox(counter: tuple, key: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Philox-4x32-10 of int64 tensors (or ints) holding 32-bit words; four int64 tensors of 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c2 = (p1 >> 32) & MASK ^ c1 ^ k0, (p0 >> 32) & MASK ^ c3 ^ k1
        c1, c3 = p1 & MASK, p0 & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def _gaussian_pair(radius_bits: torch.Tensor, angle_bits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Box-Muller on the top 23 bits of two words, so that both uniforms are exact in float32."""
    uniform = ((radius_bits >> 9).to(torch.float32) + 0.5) * 2.0**-23
    angle = ((angle_bits >> 9).to(torch.float32) + 0.5) * (2.0**-23 * 6.283185307179586)
    radius = uniform.log_().mul_(-2.0).sqrt_()
    return radius * angle.cos(), radius * angle.sin()


def tensor_id(name: str) -> int:
    """The 32-bit counter word that stands for a parameter's name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")


@dataclass(frozen=True)
class Directions:
    """Standard normal directions of one run, named by a public 64-bit key."""

    key: int
    names: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self):
        if not 0 <= self.key < 1 << 64:
            raise InputError("key", f"{self.key} is not a 64-bit number", "give 0 <= key < 2**64")
        ids = {tensor_id(name) for name in self.names}
        if len(ids) != len(set(self.names)):
            raise InputError("names", "two parameter names share a counter word", "rename one of them")

    @classmethod
    def fresh(cls, names: Iterable[str] = ()) -> "Directions":
        """A new key from the operating system."""
        return cls(secrets.randbits(64), tuple(names))

    def normal(self, step: int, k: int, name: str, shape, device="cpu") -> torch.Tensor:
        """Direction k of step `step` for parameter `name`: float32 of the given shape."""
        count = int(torch.Size(shape).numel())
        out = torch.empty(-(-count // 4) * 4, dtype=torch.float32, device=device).view(-1, 4)
        key = (self.key & MASK, self.key >> 32)
        word = tensor_id(name)
        for start in range(0, len(out), CHUNK):
            stop = min(start + CHUNK, len(out))
            block = torch.arange(start, stop, dtype=torch.int64, device=device)
            fixed = [torch.full_like(block, value) for value in (word, step, k)]
            w0, w1, w2, w3 = philox((block, *fixed), key)
            out[start:stop, 0], out[start:stop, 1] = _gaussian_pair(w0, w1)
            out[start:stop, 2], out[start:stop, 3] = _gaussian_pair(w2, w3)
        return out.view(-1)[:count].view(torch.Size(shape))

    def coin(self, step: int, k: int) -> int:
        """A public fair sign (+1 or -1) for direction k of step `step`, used to break ties."""
        word = philox(
            tuple(torch.tensor([v], dtype=torch.int64) for v in (0, tensor_id("paclab/tie"), step, k)),
            (self.key & MASK, self.key >> 32),
        )[0]
        return 1 if int(word) & 1 else -1
