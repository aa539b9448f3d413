"""Generation: the pointer rule, thresholded prefix counts, pair search, and the two-stage novel output of
paper 4.

    sample -> window counts [W] -> minima -> deficits -> scores -> release -> index -> novel string

Knows one sample's counts and the window. Does not know the law D, error rates or bounds (paclab.rates).
Functions on counts accept a batch: counts [..., W] of whole numbers.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from paclab.languages.checks import horizon_size, positive, whole
from paclab.languages.families import Family, String

SENSITIVITY = 1.0  # of every window score, under both adjacencies: a minimum of counts that each move by at most 1


class Pointer(NamedTuple):
    """What the pointer rule did: chosen language, its first unseen string, and the rank of each language's
    pointer."""

    language: int
    string: String
    ranks: tuple[int, ...]


def pointer_rule(family: Family, sample: Sequence[String], f: float) -> Pointer:
    """Non-private rule: each of L_1..L_floor(f) points at its first unseen string; the farthest pointer wins.

    Farthest means the largest rank in the universe; ties go to the smaller index [our reading]. A bad
    language's pointer never passes its witness, a good one's moves on for ever; but deleting the only copy
    of one string sends the pointer back by any distance: the rule's sensitivity is unbounded (paper 4,
    design 2).
    """
    k = horizon_languages(family, f)
    seen = set(sample)
    strings, ranks = [], []
    for i in range(1, k + 1):
        j, string = 1, family.member(i, 1)
        while string in seen:
            j += 1
            string = family.member(i, j)
        strings.append(string)
        ranks.append(family.rank(string))
    best = int(np.argmax(ranks))
    return Pointer(best + 1, strings[best], tuple(ranks))


def horizon_languages(family: Family, f: float) -> int:
    """floor(f), at most the number of languages of the family."""
    k = int(horizon_size(f))
    return k if family.languages is None else min(k, family.languages)


def window_counts(family: Family, sample: Sequence[String], window: int) -> np.ndarray:
    """N_S(u_1), ..., N_S(u_W): int [W]."""
    window = whole("window", window, 1)
    found = Counter(sample)
    return np.array([found[family.string(k)] for k in range(1, window + 1)])


def window_members(family: Family, k: int, window: int) -> np.ndarray:
    """Whether u_1..u_W lie in L_1..L_k: bool [k, W]; row i is I_i(W)."""
    strings = [family.string(j) for j in range(1, whole("window", window, 1) + 1)]
    return family.patterns(strings, family.check_window(k)).T


def minima(counts: ArrayLike, members: np.ndarray, n: int) -> np.ndarray:
    """a_i^W(S) = min_{k in I_i(W)} N_S(u_k), n where the window is empty: counts [..., W] -> [...,
    languages]."""
    counts = np.asarray(counts)
    each = np.where(members, counts[..., None, :], np.iinfo(np.int64).max)
    least = each.min(axis=-1)
    return np.where(members.any(axis=-1), least, n)


def deficits(minimum: ArrayLike, g: int) -> np.ndarray:
    """d_i = (g - a_i)_+ (paper 4, design 2)."""
    return np.maximum(whole("g", g, 0) - np.asarray(minimum), 0)


def scores(counts: ArrayLike, members: np.ndarray, n: int, g: int) -> np.ndarray:
    """q_W(S, i) = -(g - a_i)_+, of sensitivity 1: counts [..., W] -> [..., languages] (paper 4, design 2)."""
    return -deficits(minima(counts, members, n), g).astype(np.float64)


def pair_scores(counts: ArrayLike, members: np.ndarray, n: int, g: int) -> np.ndarray:
    """q_pair(S, (i, t)) = t - (h/g)(g - a_i^t)_+ for t = 1..h: counts [..., h] -> [..., languages, h].

    The window is not known: it is searched together with the language (paper 4, design 3).
    """
    h, g = members.shape[1], whole("g", g, 1)
    each = [t - h / g * deficits(minima(np.asarray(counts)[..., :t], members[:, :t], n), g) for t in range(1, h + 1)]
    return np.stack(each, axis=-1)


def pair_sensitivity(h: int, g: int) -> float:
    """h/g for both adjacencies (paper 4, design 3)."""
    return whole("h", h, 1) / whole("g", g, 1)


def threshold(n: int, least_mass: float) -> int:
    """g(n) = floor(n p_0 / 2) for a known lower bound p_0 on the window's masses (paper 4, strategy 2)."""
    return int(whole("n", n, 1) * positive("least_mass", least_mass) / 2)


def public_index(n: int, rng: np.random.Generator) -> int:
    """j uniform on 1..2^n, independent of the sample (paper 4, design 4)."""
    n = whole("n", n, 1)
    return int.from_bytes(rng.bytes((n + 7) // 8), "little") % (1 << n) + 1


def novel_string(family: Family, i: int, window: int, j: int) -> String:
    """Second stage: the j-th smallest string of L_i beyond the window; post-processing, no privacy cost."""
    return family.member(i, whole("j", j, 1) if j < 2**53 else j, whole("window", window, 0))
