"""Generation: pointer rule, counters, pair search, novelty; sensitivity and privacy by exhaustion."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from paclab.errors import InputError
from paclab.languages import GenerationExample, Prefixes, Regular, Residues, generate
from paclab.rates.generation import gen_error, novelty, novelty_bound
from paclab.releases import selection

WINDOW = 4
MEMBERS = np.array(
    [[1, 0, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool
)  # L_3 has an empty window
KINDS = np.eye(WINDOW + 1, dtype=int)[:, :WINDOW]  # a string is one of u_1..u_4 or lies outside the window


def samples(n):
    """Window counts of all samples of n strings."""
    return [KINDS[list(rows)].sum(axis=0) for rows in itertools.combinations_with_replacement(range(5), n)]


def neighbours(n, adjacency):
    if adjacency == "replace":
        pairs = [(base + x, base + y) for base in samples(n - 1) for x in KINDS for y in KINDS]
    else:
        pairs = [(base, base + x) for base in samples(n) for x in KINDS]
    left, right = zip(*pairs, strict=True)
    return np.array(left), np.array(right)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize(("n", "g"), [(3, 1), (4, 2), (5, 5)])
def test_sensitivity_one_by_exhaustion(n, g, adjacency):
    """The minimum of counts moves by at most 1 although a replaced string changes two counts; 1 is
    attained."""
    left, right = neighbours(n, adjacency)
    moved = np.abs(generate.scores(left, MEMBERS, n, g) - generate.scores(right, MEMBERS, n, g))
    assert moved.max() == generate.SENSITIVITY == 1
    assert np.linalg.norm(moved, axis=1).max() <= math.sqrt(len(MEMBERS))
    pairs = np.abs(generate.pair_scores(left, MEMBERS, n, g) - generate.pair_scores(right, MEMBERS, n, g))
    assert pairs.max() == pytest.approx(generate.pair_sensitivity(WINDOW, g), rel=1e-12)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("eps", [0.2, 1.0, 5.0])
def test_pure_dp_by_exact_output_law_ratios(eps, pairs, adjacency):
    n, g = 4, 3
    score, size = (
        (generate.pair_scores, generate.pair_sensitivity(WINDOW, g)) if pairs else (generate.scores, 1.0)
    )
    laws = [
        selection.exponential_log_law(score(side, MEMBERS, n, g).reshape(len(side), -1), size, eps)
        for side in neighbours(n, adjacency)
    ]
    worst = selection.worst_log_ratio(*laws)
    assert eps / 5 < worst <= eps * (1 + 1e-12)
    broken = [
        selection.exponential_log_law(score(side, MEMBERS, n, g).reshape(len(side), -1), size / 3, eps)
        for side in neighbours(n, adjacency)
    ]
    assert selection.worst_log_ratio(*broken) > eps  # three times less noise is caught


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_gaussian_by_exact_output_laws(adjacency):
    n, g, eps, delta = 4, 3, 0.7, 0.01
    sigma = selection.gaussian_sigma(eps, math.sqrt(len(MEMBERS)), delta)
    left, right = neighbours(n, adjacency)
    rows, at = np.unique(
        generate.scores(np.concatenate([left, right]), MEMBERS, n, g), axis=0, return_inverse=True
    )
    law = selection.gaussian_log_law(rows, sigma)[at.ravel()]
    p, q = law[: len(left)], law[len(left) :]
    for a, b in ((p, q), (q, p)):
        assert np.maximum(np.exp(a) - np.exp(eps + b), 0).sum(axis=1).max() <= delta


def test_under_add_remove_the_score_is_monotone_and_half_the_noise_is_enough():
    """Adding a string lowers no score, so exp(eps q), not exp(eps q / 2), is eps-DP under add/remove
    (ours)."""
    n, g, eps = 4, 4, 1.0
    apart = np.array(
        [[1, 0, 0, 0], [0, 1, 0, 0]], dtype=bool
    )  # a replaced string can raise one, lower the other
    left, right = neighbours(n, "add_remove")
    rise = generate.scores(right, apart, n, g) - generate.scores(left, apart, n, g)
    assert rise.min() == 0 and rise.max() == 1
    ratio = {}
    for adjacency in ("replace", "add_remove"):
        sides = [generate.scores(side, apart, n, g) for side in neighbours(n, adjacency)]
        ratio[adjacency] = selection.worst_log_ratio(
            *(selection.exponential_log_law(q, 1.0, 2 * eps) for q in sides)
        )
    assert ratio["add_remove"] <= eps * (1 + 1e-12) and ratio["replace"] > 1.5 * eps


def test_minima_are_the_definition():
    case, n = GenerationExample(), 30
    sample = case.sample(n, np.random.default_rng(1))
    counts, members = generate.window_counts(case, sample, 7), generate.window_members(case, 7, 7)
    assert counts.tolist() == [sample.count(u) for u in range(1, 8)]
    for i in range(1, 8):
        inside = [sample.count(u) for u in range(1, 8) if case.contains(i, u)]
        assert generate.minima(counts, members, n)[i - 1] == (min(inside) if inside else n)
        for t in range(1, 8):
            inside = [sample.count(u) for u in range(1, t + 1) if case.contains(i, u)]
            a = min(inside) if inside else n
            q = generate.pair_scores(counts, members, n, 4)[i - 1, t - 1]
            assert q == pytest.approx(t - 7 / 4 * max(4 - a, 0))


def test_pointer_jumps_any_distance_when_one_copy_of_one_string_goes():
    """The non-private rule's pointer: bad languages stop at their witness, one deletion throws a good one
    back."""
    case = GenerationExample()
    for reach in (10, 100, 1000):
        sample = [2 * j for j in range(1, reach + 1)]
        full = generate.pointer_rule(case, sample, 7.5)
        cut = generate.pointer_rule(case, sample[1:], 7.5)  # the only copy of 2 is gone
        assert full.ranks[4] == 2 * reach + 2 and cut.ranks[4] == 2
        for i in (1, 2, 4, 6):
            assert full.ranks[i - 1] <= case.witness(i)
        counts = [generate.window_counts(case, s, 7) for s in (sample, sample[1:])]
        members = generate.window_members(case, 7, 7)
        moved = np.abs(np.diff([generate.scores(c, members, reach, 3) for c in counts], axis=0))
        assert moved.max() <= 1


def test_pointer_rule_output_is_new_and_eventually_valid():
    case, rng = GenerationExample(), np.random.default_rng(2)
    valid = 0
    for _ in range(200):
        sample = case.sample(300, rng)
        chosen = generate.pointer_rule(case, sample, 8)
        assert chosen.string not in sample and case.contains(chosen.language, chosen.string)
        valid += case.mass(chosen.string) > 0
    assert valid > 190


def test_whole_generator_by_monte_carlo():
    """Strings in, string out: bad selections agree with the exact law (Clopper-Pearson), good outputs are
    new."""
    case, n, g, eps, runs = GenerationExample(), 60, 4, 1.5, 2000
    rng = np.random.default_rng(3)
    members, bad, repeated = generate.window_members(case, 7, 7), 0, 0
    release = selection.exponential_selection(1.0, eps, "replace", rng)
    for t in range(runs):
        sample = case.sample(n, rng)
        q = generate.scores(generate.window_counts(case, sample, 7), members, n, g)
        i = int(release.step(t, t, q)[1].values[0])
        x = generate.novel_string(case, i, 7, generate.public_index(n, rng))
        bad += case.bad(i)
        if not case.bad(i):
            assert case.mass(x) >= 0 and x % 2 == 0 and x > 7
            repeated += x in sample
    low, high = stats.binomtest(bad, runs).proportion_ci(0.9999)
    exact = gen_error(case, n, 7, 7, g, eps)
    assert exact.method.startswith("exact") and low <= exact.value <= high
    assert repeated == 0


def test_two_stage_output_law_is_private_string_by_string():
    """P(x | S) of the printed string, stage two included, on all neighbouring samples of two strings."""
    case, n, g, eps = GenerationExample(), 2, 1, 1.0
    members = generate.window_members(case, 7, 7)
    laws = {}
    for sample in itertools.combinations_with_replacement((2, 4, 6, 8), n):
        counts = generate.window_counts(case, list(sample), 7)
        law = np.exp(selection.exponential_log_law(generate.scores(counts, members, n, g), 1.0, eps))
        out = {}
        for i in range(1, 8):
            for j in range(1, 2**n + 1):
                x = generate.novel_string(case, i, 7, j)
                out[x] = out.get(x, 0.0) + law[i - 1] / 2**n
        laws[sample] = out
    worst = 0.0
    for s, t in itertools.product(laws, repeat=2):
        if sum((np.bincount(s, minlength=9) - np.bincount(t, minlength=9)).clip(0)) == 1:
            worst = max(worst, *(abs(math.log(laws[s][x] / laws[t][x])) for x in laws[s]))
    assert 0.05 < worst <= eps


def test_novelty_by_brute_force():
    """P(the printed string is in S) for small n: all tail strings, all samples by their complement."""
    case = GenerationExample(0.6)
    for n in (1, 2, 3, 6):
        tail = [case.member(5, j, 7) for j in range(1, 2**n + 1)]
        expected = sum(1 - (1 - case.mass(u)) ** n for u in tail) / 2**n
        found = novelty(case, 5, 7, n)
        assert found.low == pytest.approx(math.log10(expected), abs=1e-9) and found.high == pytest.approx(
            found.low
        )
    for n in (50, 700):
        found = novelty(case, 5, 7, n)
        assert found.low <= found.high <= novelty_bound(n) + 1e-9


def test_d6_5_novelty_simplification_fails_between_2_and_13():
    """The paper bounds n 2^-n by exp(-n/2): false for n = 2..13, true for n = 1 and from 14 on."""
    fails = [n for n in range(1, 60) if novelty_bound(n) > -n / 2 / math.log(10)]
    assert fails == list(range(2, 14))


def test_public_index_is_uniform_and_reaches_the_top():
    rng = np.random.default_rng(4)
    drawn = [generate.public_index(3, rng) for _ in range(8000)]
    assert set(drawn) == set(range(1, 9))
    assert stats.chisquare(np.bincount(drawn)[1:]).pvalue > 1e-4
    assert 2**9990 < generate.public_index(10_000, rng) <= 2**10_000


def test_witness_index_must_be_finite():
    assert Prefixes((0.0, 0.2, 0.3, 0.5)).witness_index() == math.inf
    assert Residues((0.5, 0.0, 0.5)).witness_index() == 1
    assert Regular(eta=0.0).witness_index() < 40


def test_threshold():
    assert [generate.threshold(n, 0.0625) for n in (50, 100, 400)] == [1, 3, 12]


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: generate.window_counts(GenerationExample(), [2], 0), "window"),
        (lambda: generate.window_members(GenerationExample(), 8, 7), "k"),
        (lambda: generate.deficits(np.array([1]), -1), "g"),
        (lambda: generate.threshold(-5, 0.1), "n"),
        (lambda: generate.threshold(5, 0.0), "least_mass"),
        (lambda: generate.public_index(0, None), "n"),
        (lambda: generate.pair_sensitivity(3, 0), "g"),
        (lambda: generate.pointer_rule(GenerationExample(), [], 1), "f"),
        (lambda: gen_error(GenerationExample(), 50, 7, 0, 3), "window"),
        (lambda: gen_error(GenerationExample(), 50.5, 7, 7, 3), "n"),
        (lambda: gen_error(GenerationExample(), 50, 7, 7, 3, -1.0), "eps"),
        (lambda: gen_error(GenerationExample(), 50, 7, 7, 3, mechanism="laplace"), "mechanism"),
    ],
)
def test_bad_input(make, parameter):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.parameter == parameter
