"""Families over the numbers 1, 2, 3, ...: multiples (F2), residues (F3), co-singletons (F4), the generation
example (F7).

Knows arithmetic on masses of geometric laws. Does not know samples' statistics, scores or privacy.
"""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paclab.errors import InputError
from paclab.languages.checks import open_probability, probability, total_mass, whole
from paclab.languages.families import Family, Pattern, best_index, geometric, merge

_PRIMES = [2, 3]


def prime(i: int) -> int:
    """The i-th prime, found when asked for."""
    while len(_PRIMES) < i:
        candidate = _PRIMES[-1] + 2
        while any(candidate % p == 0 for p in _PRIMES):
            candidate += 2
        _PRIMES.append(candidate)
    return _PRIMES[i - 1]


class _Numbers(Family):
    """Families over N = 1, 2, 3, ...: the string of rank k is the number k."""

    def string(self, k):
        return whole("k", k, 1) if k < 2**53 else k

    def rank(self, u):
        return u


@dataclass(frozen=True)
class Multiples(_Numbers):
    """F2: L_i = multiples of the i-th prime; x = 3G with probability 1 - eta, else x = G', G, G'
    geometric(rho)."""

    rho: float = 0.9
    eta: float = 0.1
    name = "multiples"

    def __post_init__(self):
        open_probability("rho", self.rho)
        probability("eta", self.eta)

    def divides(self, q: int) -> float:
        """P(q divides G) = (1 - rho) rho^(q-1) / (1 - rho^q)."""
        return (1 - self.rho) * self.rho ** (q - 1) / -math.expm1(q * math.log(self.rho))

    def contains(self, i, u):
        return u % prime(i) == 0

    def language(self, i):
        return f"multiples of {prime(i)}"

    def member(self, i, j, after=0):
        return prime(i) * (after // prime(i) + j)

    def mass(self, u):
        third = (1 - self.eta) * (1 - self.rho) * self.rho ** (u // 3 - 1) if u % 3 == 0 else 0.0
        return third + self.eta * (1 - self.rho) * self.rho ** (u - 1)

    def supports(self, u):
        return self.eta > 0 or u % 3 == 0

    def sample(self, n, rng):
        mixed = rng.random(n) < self.eta
        return [g if m else 3 * g for m, g in zip(mixed.tolist(), geometric(rng, 1 - self.rho, n), strict=True)]

    def error(self, i):
        p = prime(i)
        return self.eta * (1 - self.divides(3)) if p == 3 else 1 - self.divides(p)

    @property
    def i_star(self):
        return 2 if self.error(2) < self.error(1) else 1

    @property
    def gap(self):
        return self.error(1) - self.error(2) if self.i_star == 2 else math.inf

    @property
    def infimum(self):
        return min(self.error(1), self.error(2))

    def cells(self, k):
        primes = [prime(i) for i in range(1, whole("k", k, 1) + 1)]
        free = {p: self._exactly(p, primes) for p in itertools.product((False, True), repeat=len(primes))}
        out = {p: self.eta * m for p, m in free.items()}
        for pattern, mass in free.items():  # x = 3G: divisible by 3 whatever G is
            shifted = tuple(True if q == 3 else inside for q, inside in zip(primes, pattern, strict=True))
            out[shifted] += (1 - self.eta) * mass
        return merge(out.items(), k)

    def _exactly(self, pattern: Pattern, primes: list[int]) -> float:
        base = math.prod(q for q, inside in zip(primes, pattern, strict=True) if inside)
        rest = [q for q, inside in zip(primes, pattern, strict=True) if not inside]
        terms = [
            (-1) ** size * self.divides(base * math.prod(extra))
            for size in range(len(rest) + 1)
            for extra in itertools.combinations(rest, size)
        ]
        return max(0.0, math.fsum(terms))

    def witness(self, i):
        return None if self.eta > 0 or prime(i) == 3 else prime(i)

    def witness_index(self):
        return 0 if self.eta > 0 else math.inf


@dataclass(frozen=True)
class Residues(_Numbers):
    """F3: L_i = {x : x mod d = i - 1}, i = 1..d, disjoint; class i has mass masses[i-1], geometric inside."""

    masses: tuple[float, ...] = (0.15, 0.2, 0.5, 0.15)
    name = "residues"

    def __post_init__(self):
        masses = total_mass("masses", self.masses)
        if len(masses) < 2 or abs(math.fsum(masses) - 1) > 1e-9:
            raise InputError(
                "masses",
                f"{len(masses)} residues of total mass {math.fsum(masses):.6g}",
                "give at least two masses that sum to 1",
            )

    @property
    def languages(self):
        return len(self.masses)

    def first(self, i: int) -> int:
        """Smallest positive number of residue i - 1."""
        return i - 1 if i > 1 else len(self.masses)

    def contains(self, i, u):
        return u % len(self.masses) == self.check_window(i) - 1

    def language(self, i):
        return f"x mod {len(self.masses)} = {self.check_window(i) - 1}"

    def member(self, i, j, after=0):
        d = len(self.masses)
        return self.first(i) + d * (max(0, (after - self.first(i)) // d + 1) + j - 1)

    def mass(self, u):
        i = u % len(self.masses) + 1
        return self.masses[i - 1] * 0.5 ** ((u - self.first(i)) // len(self.masses) + 1)

    def supports(self, u):
        return self.masses[u % len(self.masses)] > 0

    def sample(self, n, rng):
        d = len(self.masses)
        which = rng.choice(d, size=n, p=np.array(self.masses) / sum(self.masses)).tolist()
        return [self.first(i + 1) + d * (g - 1) for i, g in zip(which, geometric(rng, 0.5, n), strict=True)]

    def error(self, i):
        return math.fsum(m for j, m in enumerate(self.masses, 1) if j != self.check_window(i))

    @cached_property
    def _best(self):
        return best_index([self.error(i) for i in range(1, len(self.masses) + 1)])

    i_star = property(lambda self: self._best[0])
    gap = property(lambda self: self._best[1])
    infimum = property(lambda self: self._best[2])

    def cells(self, k):
        k = self.check_window(k)
        d = len(self.masses)
        return merge(((tuple(j == i for j in range(d)), m) for i, m in enumerate(self.masses)), k)

    def witness(self, i):
        return self.first(i) if self.masses[self.check_window(i) - 1] == 0 else None

    def witness_index(self):
        return max(self.witness(i) or 0 for i in range(1, len(self.masses) + 1))


@dataclass(frozen=True)
class CoSingletons(_Numbers):
    """F4: L_i = N without i, D geometric(rho) with full support: the infimum 0 of the errors is not
    attained."""

    rho: float = 0.5
    name = "co-singletons"
    i_star = None
    gap = 0.0
    infimum = 0.0

    def __post_init__(self):
        open_probability("rho", self.rho)

    def contains(self, i, u):
        return u != i

    def language(self, i):
        return f"all but {i}"

    def member(self, i, j, after=0):
        return after + j + (1 if after < i <= after + j else 0)

    def mass(self, u):
        return (1 - self.rho) * self.rho ** (u - 1)

    def supports(self, u):
        return True

    def sample(self, n, rng):
        return geometric(rng, 1 - self.rho, n)

    def error(self, i):
        return self.mass(i)

    def cells(self, k):
        k = whole("k", k, 1)
        each = [(tuple(j != i for j in range(1, k + 1)), self.mass(i)) for i in range(1, k + 1)]
        return merge([*each, ((True,) * k, self.rho**k)], k)

    def witness(self, i):
        return None

    def witness_index(self):
        return 0


@dataclass(frozen=True)
class GenerationExample(_Numbers):
    """F7: N; D(2j) = (1 - rho) rho^(j-1) on the even numbers; seven languages, three good and four bad.

    3N (witness 3), odds (1), 4N, all (1), 2N, x >= 6 (7), 6N: witness index 7.
    """

    rho: float = 0.5
    name = "generation-example"
    languages = 7

    def __post_init__(self):
        open_probability("rho", self.rho)

    # (label, step, offset): the language is {offset + step, offset + 2 step, ...}
    _shapes = (
        ("multiples of 3", 3, 0),
        ("odd numbers", 2, -1),
        ("multiples of 4", 4, 0),
        ("all numbers", 1, 0),
        ("even numbers", 2, 0),
        ("numbers from 6 on", 1, 5),
        ("multiples of 6", 6, 0),
    )

    def _shape(self, i: int) -> tuple[str, int, int]:
        return self._shapes[self.check_window(i) - 1]

    def contains(self, i, u):
        _, step, offset = self._shape(i)
        return u > offset and (u - offset) % step == 0

    def language(self, i):
        return self._shape(i)[0]

    def member(self, i, j, after=0):
        _, step, offset = self._shape(i)
        return offset + step * (max(0, (after - offset) // step) + j)

    def mass(self, u):
        return 0.0 if u % 2 else (1 - self.rho) * self.rho ** (u // 2 - 1)

    def supports(self, u):
        return u % 2 == 0

    def sample(self, n, rng):
        return [2 * g for g in geometric(rng, 1 - self.rho, n)]

    def error(self, i):
        return math.fsum(mass for pattern, mass in self.cells(7).items() if not pattern[self.check_window(i) - 1])

    @cached_property
    def _best(self):
        return best_index([self.error(i) for i in range(1, 8)])

    i_star = property(lambda self: self._best[0])
    gap = property(lambda self: self._best[1])
    infimum = property(lambda self: self._best[2])

    def cells(self, k):
        k = self.check_window(k)
        few = [(self._pattern(u), self.mass(u)) for u in (2, 4)]
        cycle = -math.expm1(6 * math.log(self.rho))  # from 6 on, the pattern of x = 2j depends on j mod 6 only
        return merge([*few, *((self._pattern(2 * j), self.mass(2 * j) / cycle) for j in range(3, 9))], k)

    def _pattern(self, u: int) -> Pattern:
        return tuple(self.contains(i, u) for i in range(1, 8))

    def witness(self, i):
        return {1: 3, 2: 1, 4: 1, 6: 7}.get(self.check_window(i))

    def witness_index(self):
        return 7
