"""Public random directions from a counter-based key; knows no parameters' values, no data and no secret.

Element e of tensor `name` in direction k of step t is a pure function of (key, t, k, name, e): it depends
neither on the order of tensors nor on how the work is split. Generator: Philox-4x64-10 (Salmon et al. 2011; NumPy's
own, so a CPU draws at the speed of C) followed by Box-Muller in float32 (|z| <= 5.77). The integers agree on every
device; the float32 logarithm and cosine may differ in the last bit between a CPU and a GPU, so a transcript names
its device kind.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch

from paclab.errors import InputError

MASK, LOW = (1 << 64) - 1, 0xFFFFFFFF
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
ROUNDS = 10
CHUNK = 1 << 16  # words turned into normals at once, so that they stay in a CPU's cache
DEVICE_CHUNK = 1 << 20  # counters at once elsewhere, against the memory that the rounds take


def _signed(word: int) -> int:
    """A 64-bit word as the int64 of the same bits."""
    return word - (1 << 64) if word >> 63 else word


def _product(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 64 bits of the unsigned product of a tensor and a constant."""
    high, low, top, bottom = (a >> 32) & LOW, a & LOW, b >> 32, b & LOW
    first = high * bottom + ((low * bottom >> 32) & LOW)
    second = low * top + (first & LOW)
    return high * top + ((first >> 32) & LOW) + ((second >> 32) & LOW), a * _signed(b)


def philox(counter: tuple[torch.Tensor, ...], key: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Philox-4x64-10 of four int64 tensors that hold 64-bit words, on any device; four int64 tensors."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        (high0, low0), (high1, low1) = _product(c0, MULTIPLIERS[0]), _product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ _signed(k0), low1, high0 ^ c3 ^ _signed(k1), low0
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def words(key: int, name_word: int, step: int, k: int, count: int, device="cpu") -> torch.Tensor:
    """`count` 64-bit words of one tensor's stream: int64 [count]; block b of four has the counter b + 1."""
    if torch.device(device).type != "cpu":
        return device_words(key, name_word, step, k, count, device)
    stream = np.random.Philox(key=np.array([key, 0], dtype=np.uint64),
                              counter=np.array([0, name_word, step, k], dtype=np.uint64))
    return torch.from_numpy(stream.random_raw(count).view(np.int64))


def device_words(key: int, name_word: int, step: int, k: int, count: int, device) -> torch.Tensor:
    """The same words by torch's integer arithmetic, where the tensor lives."""
    out = torch.empty(-(-count // 4), 4, dtype=torch.int64, device=device)
    for start in range(0, len(out), DEVICE_CHUNK):
        block = torch.arange(start + 1, min(start + DEVICE_CHUNK, len(out)) + 1, dtype=torch.int64, device=device)
        fixed = [torch.full_like(block, _signed(value)) for value in (name_word, step, k)]
        out[start:start + DEVICE_CHUNK] = torch.stack(philox((block, *fixed), (key, 0)), dim=1)
    return out.view(-1)[:count]


def _gaussian_pairs(bits: torch.Tensor, out: torch.Tensor) -> None:
    """Box-Muller on 23 + 23 bits of every word, so that both uniforms are exact in float32; out [words, 2]."""
    uniform = ((bits >> 41) & 0x7FFFFF).to(torch.float32).add_(0.5).mul_(2.0**-23)
    angle = ((bits >> 9) & 0x7FFFFF).to(torch.float32).add_(0.5).mul_(2.0**-23 * 6.283185307179586)
    radius = uniform.log_().mul_(-2.0).sqrt_()
    torch.mul(radius, angle.cos(), out=out[:, 0])
    torch.mul(radius, angle.sin(), out=out[:, 1])


def tensor_id(name: str) -> int:
    """The 64-bit counter word that stands for a parameter's name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


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
        bits = words(self.key, tensor_id(name), step, k, -(-count // 2), device)
        out = torch.empty(len(bits), 2, dtype=torch.float32, device=device)
        for part, pairs in zip(bits.split(CHUNK), out.split(CHUNK), strict=True):
            _gaussian_pairs(part, pairs)
        return out.view(-1)[:count].view(torch.Size(shape))

    def coin(self, step: int, k: int) -> int:
        """A public fair sign (+1 or -1) for direction k of step `step`, used to break ties."""
        return 1 if int(words(self.key, tensor_id("paclab/tie"), step, k, 1)[0]) & 1 else -1
