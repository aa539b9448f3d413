"""Families F1 to F7 against brute force over their first strings, and against the numbers of the reference
page."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from paclab.errors import InputError
from paclab.languages import (
    EVEN_B,
    EVEN_LENGTH,
    FAMILIES,
    STARTS_WITH_A,
    Automaton,
    CoSingletons,
    GenerationExample,
    Multiples,
    Prefixes,
    Regular,
    Residues,
    TwoAtoms,
    family,
)
from paclab.languages.automata import automata, members_up_to, word_counts

CASES = [
    TwoAtoms(),
    TwoAtoms(0.3, 0.0),
    TwoAtoms(0.4, 0.6),
    Multiples(),
    Multiples(0.7, 0.0),
    Residues(),
    Residues((0.5, 0.0, 0.5)),
    CoSingletons(0.4),
    Prefixes(),
    Prefixes((0.0, 0.2, 0.3, 0.5)),
    Regular(),
    Regular(eta=0.0, target=EVEN_LENGTH),
    Regular(stop=0.4, target=STARTS_WITH_A),
    GenerationExample(),
    GenerationExample(0.3),
]
IDS = [f"{case.name}-{at}" for at, case in enumerate(CASES)]
FIRST = 4000  # strings summed over by brute force


def brute(case):
    """(strings, masses, unseen mass) over the first strings of the universe."""
    strings = [case.string(k) for k in range(1, FIRST + 1)]
    masses = np.array([case.mass(u) for u in strings])
    return strings, masses, max(0.0, 1 - masses.sum())


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_universe_and_law(case):
    strings, masses, unseen = brute(case)
    assert len(set(strings)) == FIRST and [case.rank(u) for u in strings] == list(range(1, FIRST + 1))
    assert (masses >= 0).all() and masses.sum() <= 1 + 1e-9
    assert all(case.supports(u) == (m > 0) for u, m in zip(strings[:60], masses[:60], strict=True))
    assert unseen < (0.25 if case.name in ("prefixes", "regular") else 1e-9)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_errors_and_cells_equal_sums_over_strings(case):
    strings, masses, unseen = brute(case)
    k = min(case.languages or 5, 5)
    inside = case.patterns(strings, k)
    cells = case.cells(k)
    assert math.isclose(sum(cells.values()), 1, abs_tol=1e-12) and min(cells.values()) > 0
    for i in range(1, k + 1):
        low = masses[~inside[:, i - 1]].sum()
        assert low - 1e-12 <= case.error(i) <= low + unseen + 1e-12
        by_cells = sum(m for pattern, m in cells.items() if not pattern[i - 1])
        assert math.isclose(by_cells, case.error(i), abs_tol=1e-12)
    for pattern in itertools.product((False, True), repeat=k):
        low = masses[(inside == pattern).all(axis=1)].sum()
        assert low - 1e-12 <= cells.get(pattern, 0.0) <= low + unseen + 1e-12


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_members_in_order_and_far_out(case):
    for i in range(1, min(case.languages or 6, 6) + 1):
        for after in (0, 1, 2, 5, 17):
            found = [k for k in range(after + 1, 400) if case.contains(i, case.string(k))][:8]
            assert [case.rank(case.member(i, j, after)) for j in range(1, len(found) + 1)] == found
            assert len(found) >= 3
        far = 2**600 + 12345
        u = case.member(i, far, 9)
        assert case.contains(i, u) and case.rank(u) >= far


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_witnesses_by_search(case):
    k = min(case.languages or 8, 8)
    for i in range(1, k + 1):
        outside = [
            r for r in range(1, 600) if case.contains(i, case.string(r)) and case.mass(case.string(r)) == 0
        ]
        assert case.witness(i) == (outside[0] if outside else None)
        assert case.bad(i) == bool(outside)
        assert (case.witness(i) or 0) <= case.witness_index()
    if case.languages is not None and case.languages <= k:
        assert case.witness_index() == max(case.witness(i) or 0 for i in range(1, k + 1))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_samples_follow_the_masses(case):
    n = 4000
    drawn = case.sample(n, np.random.default_rng(5))
    assert len(drawn) == n
    for u in [case.string(k) for k in range(1, 7)]:
        low, high = stats.binomtest(drawn.count(u), n).proportion_ci(0.99999)
        assert low <= case.mass(u) <= high, u
    for i in range(1, min(case.languages or 4, 4) + 1):
        missed = sum(not case.contains(i, u) for u in drawn)
        low, high = stats.binomtest(missed, n).proportion_ci(0.99999)
        assert low <= case.error(i) <= high


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_best_language(case):
    if case.name == "co-singletons":
        assert case.i_star is None and case.gap == 0 and case.error(40) < 1e-12
        return
    errors = [case.error(i) for i in range(1, min(case.languages or 60, 60) + 1)]
    star = next(i for i, e in enumerate(errors, 1) if e <= min(errors) + 1e-12)
    assert case.i_star == star and math.isclose(case.infimum, min(errors), abs_tol=1e-12)
    gap = min((e - errors[star - 1] for e in errors[: star - 1]), default=math.inf)
    assert math.isclose(case.gap, gap, abs_tol=1e-12)


def test_printed_numbers_of_f2_f6_f7():
    f2 = Multiples()
    assert [round(f2.error(i), 4) for i in (1, 2, 3, 4)] == [0.5263, 0.0701, 0.8398, 0.8981]
    assert f2.i_star == 2 and round(f2.gap, 4) == 0.4562
    for s in (0.2, 0.5):
        f6 = Regular(stop=s)
        assert math.isclose(f6.chance(EVEN_B), (1 + s) / 2, rel_tol=1e-12)
        assert math.isclose(f6.chance(EVEN_LENGTH), 1 / (2 - s), rel_tol=1e-12)
        assert math.isclose(f6.chance(STARTS_WITH_A), (1 - s) / 2, rel_tol=1e-12)
    f7 = GenerationExample()
    assert [f7.witness(i) for i in range(1, 8)] == [3, 1, None, 1, None, 7, None] and f7.witness_index() == 7
    assert [f7.mass(u) for u in (2, 4, 6)] == [0.5, 0.25, 0.125]


def test_automata_are_distinct_minimal_and_complete():
    """Known counts of minimal automata over two letters: 2, 24, 1028; all but {} and {empty word} etc. are
    kept."""
    two = list(automata(2))
    tables = {
        tuple(a.accepts("".join(w)) for m in range(5) for w in itertools.product("ab", repeat=m)) for a in two
    }
    assert len(tables) == len(two) == 23  # 24 with the finite language {empty word}
    assert len(list(automata(1))) == 1
    three = list(automata(3))
    finite = 1028 - len(three)
    assert (
        finite == 6
    )  # finite languages with three states: subsets of words of length <= 1 that contain a letter
    assert Regular(least=1).error(1) == 0.0 and Regular(least=1).i_star == 1


def test_word_counts_by_listing():
    machine = Automaton(((1, 0), (1, 2), (2, 0)), (False, True, True))
    words = ["".join(w) for m in range(7) for w in itertools.product("ab", repeat=m)]
    counts = word_counts(machine, 6)
    for m in range(7):
        assert counts[m][0] == sum(machine.accepts(w) for w in words if len(w) == m)
    for rank in range(1, 100):
        assert members_up_to(machine, rank) == sum(machine.accepts(w) for w in words[:rank])


def test_a_member_beyond_2_to_the_10000():
    for case in (Multiples(), Prefixes(), GenerationExample(), CoSingletons(), Residues(), TwoAtoms()):
        assert case.contains(2, case.member(2, 2**10000, 7))


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: family("primes"), "family"),
        (lambda: TwoAtoms(0.6, 0.6), "beta"),
        (lambda: TwoAtoms(-0.1, 0.5), "alpha"),
        (lambda: Multiples(1.0), "rho"),
        (lambda: Residues(()), "masses"),
        (lambda: Residues((0.5, 0.2)), "masses"),
        (lambda: Prefixes((0.5, 0.25, 0.25)), "leaves"),
        (lambda: Regular(most=9), "most"),
        (lambda: Regular(target="even"), "target"),
        (lambda: TwoAtoms().cells(3), "k"),
        (lambda: GenerationExample().error(8), "k"),
        (lambda: CoSingletons(float("nan")), "rho"),
        (lambda: Prefixes().cells(0), "k"),
        (lambda: Regular(stop=0.0), "stop"),
    ],
)
def test_bad_input_is_told_in_one_line(make, parameter):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.parameter == parameter and "\n" not in str(caught.value)


def test_every_family_has_defaults():
    assert {name: family(name).name for name in FAMILIES} == {name: name for name in FAMILIES}
