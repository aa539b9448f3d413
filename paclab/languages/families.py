"""Families of languages with known answers: universe, membership, sampling law, errors, cells, witnesses.

Knows one countable universe u_1, u_2, ... per family, its languages L_1, L_2, ... (each infinite) and one
law D. Does not know samples' statistics, scores or privacy. Nothing is truncated: strings and languages are
made when asked for, by closed formulas, and the j-th member of a language is found for j as large as 2^10000.
F1 is here; F2, F3, F4 and F7 (numbers) in numbers.py, F5 (prefixes) in words.py, F6 (regular) in automata.py.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from paclab.errors import InputError
from paclab.languages.checks import probability, whole

String = int | str
Pattern = tuple[bool, ...]
TIE = 1e-12  # errors closer than this count as equal when i* is looked up in a finite class


class Family(ABC):
    """A class of languages over one universe together with one law D.

    Every index (of strings and of languages) starts at 1. `i_star` is the smallest index attaining the
    smallest error, None if no language attains it; `gap` is c = min_{j < i*} (err_j - err_{i*}), inf for i*
    = 1.
    """

    name: str = ""
    languages: int | None = None  # how many there are, None for countably many
    i_star: int | None
    gap: float
    infimum: float

    # ---------------------------------------------------------------- what each family says

    @abstractmethod
    def string(self, k: int) -> String:
        """u_k."""

    @abstractmethod
    def rank(self, u: String) -> int:
        """The k with u = u_k."""

    @abstractmethod
    def contains(self, i: int, u: String) -> bool:
        """Whether u lies in L_i."""

    @abstractmethod
    def language(self, i: int) -> str:
        """L_i in words."""

    @abstractmethod
    def member(self, i: int, j: int, after: int = 0) -> String:
        """The j-th smallest string of L_i among u_{after+1}, u_{after+2}, ..."""

    @abstractmethod
    def mass(self, u: String) -> float:
        """D(u)."""

    @abstractmethod
    def supports(self, u: String) -> bool:
        """Whether D(u) > 0, also where the mass is below the smallest float."""

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> list[String]:
        """n independent strings from D."""

    @abstractmethod
    def error(self, i: int) -> float:
        """err_D(L_i) = P(x not in L_i)."""

    @abstractmethod
    def cells(self, k: int) -> dict[Pattern, float]:
        """Mass of every membership pattern in L_1..L_k that has any; the values sum to 1."""

    @abstractmethod
    def witness(self, i: int) -> int | None:
        """Rank of the first string of L_i outside supp(D); None if L_i lies inside: a good language."""

    @abstractmethod
    def witness_index(self) -> float:
        """Smallest W such that every bad language of the class has a witness in u_1..u_W; inf if there is
        none."""

    # ---------------------------------------------------------------- what follows

    def bad(self, i: int) -> bool:
        """Whether L_i is not contained in supp(D)."""
        return self.witness(i) is not None

    def window(self, i: int, size: int) -> list[int]:
        """I_i(W): ranks k <= W with u_k in L_i."""
        return [k for k in range(1, size + 1) if self.contains(i, self.string(k))]

    def window_masses(self, i: int, size: int) -> list[float]:
        """D(u_k) for k in I_i(W)."""
        return [self.mass(self.string(k)) for k in self.window(i, size)]

    def check_window(self, k: int) -> int:
        """`k` if the class has that many languages."""
        k = whole("k", k, 1)
        if self.languages is not None and k > self.languages:
            raise InputError(
                "k",
                f"{k} languages asked of {self.name}, which has {self.languages}",
                f"choose k of at most {self.languages}",
            )
        return k

    def patterns(self, strings: Iterable[String], k: int) -> np.ndarray:
        """Membership of each string in L_1..L_k: bool [n, k]."""
        rows = [[self.contains(i, u) for i in range(1, k + 1)] for u in strings]
        return np.array(rows, dtype=bool).reshape(-1, k)


def geometric(rng: np.random.Generator, stop: float, n: int) -> list[int]:
    return rng.geometric(stop, n).tolist()


def best_index(errors: Iterable[float]) -> tuple[int, float, float]:
    """(i*, gap c, smallest error) of a finite class; errors within TIE count as equal."""
    errors = list(errors)
    least = min(errors)
    i_star = next(i for i, e in enumerate(errors, 1) if e <= least + TIE)
    gap = min((e - errors[i_star - 1] for e in errors[: i_star - 1]), default=math.inf)
    return i_star, gap, errors[i_star - 1]


@dataclass(frozen=True)
class TwoAtoms(Family):
    """F1: a in L_1 only (mass alpha), b in L_2 only (mass beta), a geometric tail t1, t2, ... in both."""

    alpha: float = 0.1
    beta: float = 0.6
    name = "two-atoms"
    languages = 2

    def __post_init__(self):
        probability("alpha", self.alpha)
        probability("beta", self.beta)
        if self.alpha + self.beta > 1 + 1e-12:
            raise InputError("beta", "alpha + beta exceeds 1", "lower one of the two masses")

    @property
    def tail_mass(self) -> float:
        return max(0.0, 1.0 - self.alpha - self.beta)

    def string(self, k):
        return ("a", "b")[k - 1] if k <= 2 else f"t{k - 2}"

    def rank(self, u):
        return {"a": 1, "b": 2}.get(u) or 2 + int(u[1:])

    def contains(self, i, u):
        return u not in ("a", "b") or u == ("a", "b")[self.check_window(i) - 1]

    def language(self, i):
        return f"{{{'ab'[self.check_window(i) - 1]}}} and the tail"

    def member(self, i, j, after=0):
        if after < i:
            if j == 1:
                return self.string(i)
            j -= 1
        return self.string(max(2, after) + j)

    def mass(self, u):
        if u in ("a", "b"):
            return self.alpha if u == "a" else self.beta
        return self.tail_mass * 0.5 ** int(u[1:])

    def supports(self, u):
        return (self.alpha if u == "a" else self.beta if u == "b" else self.tail_mass) > 0

    def sample(self, n, rng):
        kinds = rng.choice(
            3,
            size=n,
            p=np.array([self.alpha, self.beta, self.tail_mass]) / (self.alpha + self.beta + self.tail_mass),
        ).tolist()
        tails = geometric(rng, 0.5, n)
        return [("a", "b", f"t{t}")[kind] for kind, t in zip(kinds, tails, strict=True)]

    def error(self, i):
        return (self.beta, self.alpha)[self.check_window(i) - 1]

    @property
    def i_star(self):
        return best_index([self.beta, self.alpha])[0]

    @property
    def gap(self):
        return best_index([self.beta, self.alpha])[1]

    @property
    def infimum(self):
        return min(self.alpha, self.beta)

    def cells(self, k):
        k = self.check_window(k)
        full = {(True, False): self.alpha, (False, True): self.beta, (True, True): self.tail_mass}
        return merge(full.items(), k)

    def witness(self, i):
        if self.error(3 - i) == 0:  # the language's own atom has no mass
            return i
        return 3 if self.tail_mass == 0 else None

    def witness_index(self):
        return max((self.witness(i) or 0 for i in (1, 2)), default=0)


def merge(cells: Iterable[tuple[Pattern, float]], k: int) -> dict[Pattern, float]:
    out: dict[Pattern, float] = {}
    for pattern, mass in cells:
        if mass > 0:
            out[pattern[:k]] = out.get(pattern[:k], 0.0) + mass
    return out
