"""F6: regular languages over {a, b} in a canonical order of small automata, under a law with a regular
target.

Knows deterministic automata, transfer matrices and word counting. Does not know samples' statistics or
privacy. The order is: number of states, then the transition table in lexicographic order, then the
accepting states as a bit mask; only minimal automata with breadth-first numbering and infinite language are
listed, so every regular language of the stated size occurs exactly once. (The paper fixes no order. [our
reading])
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from paclab.errors import InputError
from paclab.languages.checks import open_probability, probability, whole
from paclab.languages.families import best_index, merge
from paclab.languages.words import Words, word, word_rank

MOST_STATES = 4


@dataclass(frozen=True)
class Automaton:
    """A complete automaton: step[q] = (state after a, state after b), start 0, accepting states as a tuple
    of bools."""

    step: tuple[tuple[int, int], ...]
    accepting: tuple[bool, ...]

    def run(self, u: str, q: int = 0) -> int:
        """The state reached from q by reading u."""
        for letter in u:
            q = self.step[q][letter == "b"]
        return q

    def accepts(self, u: str) -> bool:
        """Whether u is in the language."""
        return self.accepting[self.run(u)]

    def words(self) -> str:
        """The table in words: '0:01 1:10 accept 0' reads: from state 0, a leads to 0 and b to 1."""
        table = " ".join(f"{q}:{a}{b}" for q, (a, b) in enumerate(self.step))
        return f"{table} accept {','.join(str(q) for q, yes in enumerate(self.accepting) if yes)}"


EVEN_B = Automaton(((0, 1), (1, 0)), (True, False))
EVEN_LENGTH = Automaton(((1, 1), (0, 0)), (True, False))
STARTS_WITH_A = Automaton(((1, 2), (1, 1), (2, 2)), (False, True, False))
TARGETS = {"even_b": EVEN_B, "even_length": EVEN_LENGTH, "starts_with_a": STARTS_WITH_A}


def automata(states: int) -> Iterator[Automaton]:
    """All minimal automata with exactly `states` states and an infinite language, in canonical order."""
    rows = list(itertools.product(range(states), repeat=2))
    for step in itertools.product(rows, repeat=states):
        if not _breadth_first(step):
            continue
        for mask in itertools.product((False, True), repeat=states):
            automaton = Automaton(step, mask[::-1])
            if _infinite(automaton) and _minimal(automaton):
                yield automaton


def _breadth_first(step: tuple[tuple[int, int], ...]) -> bool:
    seen = [0]
    for q in seen:
        for target in step[q]:
            if target not in seen:
                if target != len(seen):
                    return False
                seen.append(target)
    return len(seen) == len(step)


def _infinite(automaton: Automaton) -> bool:
    n = len(automaton.step)
    counts = word_counts(automaton, 2 * n)
    return any(counts[length][0] for length in range(n, 2 * n))


def _minimal(automaton: Automaton) -> bool:
    block = [int(x) for x in automaton.accepting]
    while True:
        keys = [(block[q], block[a], block[b]) for q, (a, b) in enumerate(automaton.step)]
        names = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        refined = [names[key] for key in keys]
        if len(names) == len(set(block)):
            return len(names) == len(automaton.step)
        block = refined


def word_counts(automaton: Automaton, length: int) -> list[list[int]]:
    """counts[m][q]: number of accepted words of length m from state q, m = 0..length, as exact integers."""
    counts = [[int(x) for x in automaton.accepting]]
    for _ in range(length):
        last = counts[-1]
        counts.append([last[a] + last[b] for a, b in automaton.step])
    return counts


@lru_cache(maxsize=8)
def _listing(least: int, most: int) -> tuple[Automaton, ...]:
    return tuple(a for n in range(least, most + 1) for a in automata(n))


@dataclass(frozen=True)
class Regular(Words):
    """F6: automata with `least` to `most` states; D has geometric length, fair letters and a regular target.

    With probability 1 - eta the word is conditioned on the target's language, else it is free; `stop` is the
    probability of stopping before each letter. The one-state language of all words has error 0 and would make
    the task trivial, so the class starts at two states unless least = 1.
    """

    stop: float = 0.2
    eta: float = 0.1
    target: Automaton = EVEN_B
    least: int = 2
    most: int = 2
    name = "regular"

    def __post_init__(self):
        open_probability("stop", self.stop)
        probability("eta", self.eta)
        if not isinstance(self.target, Automaton):
            raise InputError("target", f"{self.target!r} is not an automaton", f"choose from TARGETS: {list(TARGETS)}")
        whole("most", self.most, whole("least", self.least, 1), MOST_STATES)
        if self.chance(self.target) == 0:
            raise InputError("target", "its language is empty", "choose a target with at least one word")

    @property
    def languages(self):
        return len(_listing(self.least, self.most))

    def automaton(self, i: int) -> Automaton:
        """The automaton of L_i."""
        return _listing(self.least, self.most)[self.check_window(i) - 1]

    def chance(self, automaton: Automaton) -> float:
        """P(a free word lies in the automaton's language) = stop e_0 (I - (1 - stop) T)^-1 accept."""
        return self._accepted([automaton]).get((True,), 0.0)

    def _accepted(self, machines: list[Automaton]) -> dict[tuple[bool, ...], float]:
        """P(acceptance pattern of a free word) for several automata, by the transfer matrix of their
        product."""
        states = {(0,) * len(machines): 0}
        arrows: list[tuple[int, int]] = []
        for here in list_growing(states):
            for letter in (0, 1):
                there = tuple(m.step[q][letter] for m, q in zip(machines, here, strict=True))
                arrows.append((states[here], states.setdefault(there, len(states))))
        matrix = np.eye(len(states))
        for start, end in arrows:
            matrix[end, start] -= (1 - self.stop) / 2
        visits = np.linalg.solve(matrix, np.eye(len(states))[0])
        patterns = (tuple(m.accepting[q] for m, q in zip(machines, here, strict=True)) for here in states)
        return merge(((p, self.stop * float(v)) for p, v in zip(patterns, visits, strict=True)), len(machines))

    def contains(self, i, u):
        return self.automaton(i).accepts(u)

    def language(self, i):
        return self.automaton(i).words()

    def mass(self, u):
        word_rank(u)
        free = self.stop * ((1 - self.stop) / 2) ** len(u)
        hit = (1 - self.eta) / self.chance(self.target) if self.target.accepts(u) else 0.0
        return free * (hit + self.eta)

    def supports(self, u):
        return self.eta > 0 or self.target.accepts(u)

    def sample(self, n, rng):
        free = rng.random(n) < self.eta
        return [self._walk(rng, None if f else self._reach) for f in free.tolist()]

    @cached_property
    def _reach(self) -> list[float]:
        """h(q): chance that a free word read from q on ends in the target's language."""
        size = len(self.target.step)
        matrix = np.eye(size)
        for q, ends in enumerate(self.target.step):
            for end in ends:
                matrix[q, end] -= (1 - self.stop) / 2
        return np.linalg.solve(matrix, self.stop * np.array(self.target.accepting, float)).tolist()

    def _walk(self, rng: np.random.Generator, reach: list[float] | None) -> str:
        letters, q = [], 0
        while True:
            if reach is None:
                halt, a = self.stop, (1 - self.stop) / 2
            else:  # the walk conditioned to end accepting: each move is reweighted by h (Doob)
                halt = self.stop * self.target.accepting[q] / reach[q]
                a = (1 - self.stop) / 2 * reach[self.target.step[q][0]] / reach[q]
            draw = rng.random()
            if draw < halt:
                return "".join(letters)
            letters.append("a" if draw < halt + a else "b")
            q = self.target.step[q][letters[-1] == "b"]

    def cells(self, k):
        k = self.check_window(k)
        joint = self._accepted([self.automaton(i) for i in range(1, k + 1)] + [self.target])
        hit = math.fsum(m for pattern, m in joint.items() if pattern[-1])
        scaled = ((p, m * ((1 - self.eta) / hit * p[-1] + self.eta)) for p, m in joint.items())
        return merge(scaled, k)

    @cached_property
    def _errors(self) -> list[float]:
        target = self.chance(self.target)
        out = []
        for i in range(1, self.languages + 1):
            joint = self._accepted([self.automaton(i), self.target])
            missed, common = joint.get((False, True), 0.0), joint.get((False, False), 0.0)
            out.append((1 - self.eta) * missed / target + self.eta * (missed + common))
        return out

    def error(self, i):
        return self._errors[self.check_window(i) - 1]

    @cached_property
    def _best(self):
        return best_index(self._errors)

    i_star = property(lambda self: self._best[0])
    gap = property(lambda self: self._best[1])
    infimum = property(lambda self: self._best[2])

    def member(self, i, j, after=0):
        automaton = self.automaton(i)
        j += members_up_to(automaton, after)
        counts = word_counts(automaton, 0)
        length = 0
        while j > counts[length][0]:
            j -= counts[length][0]
            length += 1
            if length == len(counts):
                last = counts[-1]
                counts.append([last[a] + last[b] for a, b in automaton.step])
        letters, q = [], 0
        for left in range(length - 1, -1, -1):
            with_a = counts[left][automaton.step[q][0]]
            letters.append("a" if j <= with_a else "b")
            j -= 0 if j <= with_a else with_a
            q = automaton.step[q][letters[-1] == "b"]
        return "".join(letters)

    def witness(self, i):
        if self.eta > 0:
            return None
        return first_outside(self.automaton(i), self.target)

    def witness_index(self):
        return max(self.witness(i) or 0 for i in range(1, self.languages + 1))


def list_growing(states: dict) -> Iterator:
    """The keys of a dictionary, those added during the walk included."""
    done = 0
    while done < len(states):
        yield from list(itertools.islice(states, done, done := len(states)))


def members_up_to(automaton: Automaton, rank: int) -> int:
    """How many of the words u_1..u_rank the automaton accepts."""
    if rank < 1:
        return 0
    u = word(rank)
    counts = word_counts(automaton, len(u))
    total, q = sum(counts[m][0] for m in range(len(u))), 0
    for at, letter in enumerate(u):
        if letter == "b":
            total += counts[len(u) - at - 1][automaton.step[q][0]]
        q = automaton.step[q][letter == "b"]
    return total + int(automaton.accepting[q])


def first_outside(inner: Automaton, outer: Automaton) -> int | None:
    """Rank of the first word that `inner` accepts and `outer` does not; None if there is none."""
    seen: dict[tuple[int, int], str] = {(0, 0): ""}
    for here in list_growing(seen):
        p, q = here
        if inner.accepting[p] and not outer.accepting[q]:
            return word_rank(seen[here])
        for letter in (0, 1):
            seen.setdefault((inner.step[p][letter], outer.step[q][letter]), seen[here] + "ab"[letter])
    return None
