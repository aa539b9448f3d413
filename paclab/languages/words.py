"""Families over words of a and b in length-lexicographic order (empty word first): F5, and what F6 shares.

Knows words and prefixes. Does not know automata (automata.py), samples' statistics or privacy.
"""

import itertools
import math
from dataclasses import dataclass

from paclab.errors import InputError
from paclab.languages.checks import open_probability, total_mass, whole
from paclab.languages.families import Family, best_index


def word(k: int) -> str:
    """The k-th word: '', a, b, aa, ab, ...: the binary digits of k after the leading one, 0 -> a, 1 -> b."""
    return bin(k)[3:].replace("0", "a").replace("1", "b")


def word_rank(u: str) -> int:
    """The k with word(k) == u."""
    if set(u) - {"a", "b"}:
        raise InputError("string", f"{u!r} is not a word over a and b", "use the letters a and b")
    return int("1" + u.replace("a", "0").replace("b", "1"), 2)


class Words(Family):
    """Families whose universe is {a, b}* in length-lexicographic order."""

    def string(self, k):
        return word(whole("k", k, 1) if k < 2**53 else k)

    def rank(self, u):
        return word_rank(u)


@dataclass(frozen=True)
class Prefixes(Words):
    """F5: L_i = w{a,b}* for the i-th non-empty word w; D picks a leaf word, then continues with fair letters.

    leaves: masses of the 2^depth words of length `depth` in lexicographic order; the continuation stops
    before each letter with probability `stop`. Longer prefixes are nested in shorter ones: errors tie where
    all the mass of a language lies in a sub-language, and the smaller index wins.
    """

    leaves: tuple[float, ...] = (0.05, 0.1, 0.25, 0.6)
    stop: float = 0.3
    name = "prefixes"

    def __post_init__(self):
        masses = total_mass("leaves", self.leaves)
        open_probability("stop", self.stop)
        if len(masses) < 2 or len(masses) & (len(masses) - 1) or abs(math.fsum(masses) - 1) > 1e-9:
            raise InputError(
                "leaves",
                f"{len(masses)} leaf masses of sum {math.fsum(masses):.6g}",
                "give 2, 4, 8, ... masses that sum to 1",
            )

    @property
    def depth(self) -> int:
        return len(self.leaves).bit_length() - 1

    def prefix(self, i: int) -> str:
        """The word w of L_i."""
        return word(whole("i", i, 1) + 1)

    def starts(self, w: str) -> float:
        """P(x starts with w)."""
        if len(w) >= self.depth:
            leaf = self.leaves[word_rank(w[: self.depth]) - len(self.leaves)]
            return leaf * ((1 - self.stop) / 2) ** (len(w) - self.depth)
        letters = itertools.product("ab", repeat=self.depth - len(w))
        return math.fsum(self.starts(w + "".join(rest)) for rest in letters)

    def contains(self, i, u):
        return u.startswith(self.prefix(i))

    def language(self, i):
        return f"words starting with {self.prefix(i)}"

    def member(self, i, j, after=0):
        w = self.prefix(i)
        base, skipped = word_rank(w), 0
        if after >= base:  # count the members of rank at most `after`, level by level
            extra = after.bit_length() - base.bit_length()
            low = base << extra
            skipped = (1 << extra) - 1 + min(max(after - low + 1, 0), 1 << extra)
        suffix_rank = skipped + j  # j-th word in length-lex order appended to w
        return w + word(suffix_rank)

    def mass(self, u):
        return self.starts(u) * self.stop if len(u) >= self.depth else 0.0

    def supports(self, u):
        return len(u) >= self.depth and self.starts(u[: self.depth]) > 0

    def sample(self, n, rng):
        leaf = rng.choice(len(self.leaves), size=n, p=[m / math.fsum(self.leaves) for m in self.leaves]).tolist()
        lengths = (rng.geometric(self.stop, n) - 1).tolist()
        return [
            word(len(self.leaves) + x) + "".join(rng.choice(["a", "b"], size=m))
            for x, m in zip(leaf, lengths, strict=True)
        ]

    def error(self, i):
        w = self.prefix(i)
        if len(w) > self.depth:
            return 1 - self.starts(w)
        others = ("".join(t) for t in itertools.product("ab", repeat=len(w)))
        return math.fsum(self.starts(v) for v in others if v != w)

    @property
    def _best(self):
        return best_index([self.error(1), self.error(2)])  # deeper prefixes are never better than their parent

    i_star = property(lambda self: self._best[0])
    gap = property(lambda self: self._best[1])
    infimum = property(lambda self: self._best[2])

    def cells(self, k):
        listed = {self.prefix(i) for i in range(1, whole("k", k, 1) + 1)}
        out = {}
        for w in ["", *sorted(listed)]:
            children = [w + letter for letter in "ab"]
            mass = self.mass(w) + math.fsum(self.starts(v) for v in children if v not in listed)
            if mass > 0:
                out[tuple(w.startswith(self.prefix(i)) for i in range(1, k + 1))] = mass
        return out

    def witness(self, i):
        w = self.prefix(i)
        return word_rank(w) if len(w) < self.depth or self.starts(w) == 0 else None

    def witness_index(self):
        if min(self.leaves) == 0:
            return math.inf
        return word_rank("b" * (self.depth - 1)) if self.depth > 1 else 0
