"""Identification: scores, sensitivity and privacy by exhaustion, the Gaussian law, calibration, and
corrections."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from scipy import integrate, special, stats

from paclab.errors import InputError
from paclab.languages import CoSingletons, Multiples, Regular, Residues, TwoAtoms, identify
from paclab.rates.identification import id_error
from paclab.releases import selection

PATTERNS = np.array(list(itertools.product((0, 1), repeat=3)))  # 1: the string is missed by L_i
SMALL = [(2, 3.0), (3, 3.5), (4, 4.2)]


def multisets(n):
    """Miss counts of all samples of n strings over the eight membership patterns of three languages."""
    return [PATTERNS[list(rows)].sum(axis=0) for rows in itertools.combinations_with_replacement(range(8), n)]


def neighbours(n, adjacency):
    """Pairs of miss-count arrays [pairs, 3] of samples that differ by one string."""
    if adjacency == "replace":
        pairs = [(base + x, base + y) for base in multisets(n - 1) for x in PATTERNS for y in PATTERNS]
    else:
        pairs = [(base, base + x) for base in multisets(n) for x in PATTERNS]
    left, right = zip(*pairs, strict=True)
    return np.array(left), np.array(right)


@pytest.mark.parametrize("adjacency", identify.ADJACENCIES)
@pytest.mark.parametrize(("n", "f"), SMALL)
def test_sensitivity_by_exhaustion(n, f, adjacency):
    """Every neighbouring pair over all membership patterns: never above the claim, and the claim is
    attained."""
    scale = identify.horizon(f, 3)
    left, right = neighbours(n, adjacency)
    moved = np.abs(identify.scores(left, n, scale) - identify.scores(right, n, scale))
    claim = identify.sensitivity(scale, n, adjacency)
    assert moved.max() <= claim * (1 + 1e-12)
    if scale.tau > 2 / n:  # below, the deficit's floor at 0 hides a part of the largest move
        assert moved.max() >= claim * (1 - 1e-12)
    assert moved[:, 0].max() == 0  # coordinate 1 is constant
    assert np.linalg.norm(moved, axis=1).max() <= claim * math.sqrt(scale.k - 1) * (1 + 1e-12)


def test_d6_1_the_replace_constant_is_twice_too_large_for_add_remove_and_half_is_too_small_for_replace():
    scale, n = identify.horizon(3.0, 3), 4
    moved = {
        a: np.abs(np.subtract(*(identify.scores(side, n, scale) for side in neighbours(n, a)))).max()
        for a in identify.ADJACENCIES
    }
    paper = 2 * 3.0**2 / n
    assert moved["replace"] == pytest.approx(paper) and moved["add_remove"] == pytest.approx(paper / 2)


@pytest.mark.parametrize("adjacency", identify.ADJACENCIES)
@pytest.mark.parametrize("eps", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("n", "f"), SMALL)
def test_pure_dp_by_exact_output_law_ratios(n, f, eps, adjacency):
    """|log P(i | S) - log P(i | S')| <= eps for every index and all neighbouring pairs."""
    scale = identify.horizon(f, 3)
    laws = [identify.exponential_law(side, n, scale, eps, adjacency) for side in neighbours(n, adjacency)]
    worst = selection.worst_log_ratio(*laws)
    assert worst <= eps * (1 + 1e-12)
    assert worst > eps / 4  # a test that a much too noisy law would fail


def test_privacy_test_catches_a_wrong_sensitivity():
    """With the add/remove constant under replace-one the same test finds a violation."""
    scale, n, eps = identify.horizon(3.0, 3), 4, 1.0
    laws = [identify.exponential_law(side, n, scale, eps, "add_remove") for side in neighbours(n, "replace")]
    assert selection.worst_log_ratio(*laws) > eps * 1.2


@pytest.mark.parametrize("adjacency", identify.ADJACENCIES)
@pytest.mark.parametrize(("eps", "delta"), [(0.5, 1e-2), (0.9, 1e-3), (2.0, 1e-2)])
def test_approximate_dp_by_exact_output_laws(eps, delta, adjacency):
    """Hockey-stick divergence of the Gaussian output laws <= delta, both ways, on all neighbouring pairs."""
    n, scale = 3, identify.horizon(3.5, 3)
    sigma = identify.score_noise(scale, n, eps, adjacency, delta)
    left, right = neighbours(n, adjacency)
    rows, index = np.unique(np.concatenate([left, right]), axis=0, return_inverse=True)
    laws = identify.gaussian_law(rows, n, scale, sigma)[index.ravel()]
    p, q = laws[: len(left)], laws[len(left) :]
    worst = max(float(np.maximum(np.exp(a) - np.exp(eps + b), 0).sum(axis=1).max()) for a, b in ((p, q), (q, p)))
    assert worst <= delta
    weak = identify.gaussian_law(rows, n, scale, sigma / 8)[index.ravel()]  # an eighth of the noise is caught
    p, q = weak[: len(left)], weak[len(left) :]
    assert np.maximum(np.exp(p) - np.exp(eps + q), 0).sum(axis=1).max() > delta


def test_margins_and_rule_are_the_definitions():
    rng = np.random.default_rng(1)
    for _ in range(300):
        n, k = int(rng.integers(1, 40)), int(rng.integers(2, 7))
        scale = identify.horizon(float(rng.uniform(k, k + 1)), k)
        misses = rng.integers(0, n + 1, k)
        err = misses / n
        margin = [1.0] + [min(err[j] - err[i] for j in range(i)) for i in range(1, k)]
        assert np.allclose(identify.margins(misses, n), margin)
        q = [i + 1 - scale.weight * max(scale.tau - margin[i], 0) for i in range(k)]
        assert np.allclose(identify.scores(misses, n, scale), q)
        passing = [i + 1 for i in range(k) if i == 0 or all(err[j] - err[i] > scale.tau for j in range(i))]
        assert identify.margin_rule(misses, n, scale) == max(passing)


def test_deterministic_gap():
    """f >= max(i*, 3/c) and deviations <= 1/(2f): the best index leads by at least 1 (the concentration
    event)."""
    rng, met = np.random.default_rng(2), 0
    for _ in range(4000):
        k, n = int(rng.integers(2, 9)), 10_000
        errors = np.round(rng.random(k), 4)
        star = int(np.argmin(errors)) + 1
        gap = min((errors[j] - errors[star - 1] for j in range(star - 1)), default=math.inf)
        f = max(star, 3 / gap, 2.0) if gap > 0 else math.inf
        if f > 60:
            continue
        scale = identify.horizon(f)
        padded = np.concatenate([errors, rng.uniform(errors.min(), 1, max(0, scale.k - k))])[: scale.k]
        misses = np.round((padded + rng.uniform(-1, 1, scale.k) / (2 * f + 0.01)).clip(0, 1) * n).astype(int)
        if np.abs(misses / n - padded).max() > 1 / (2 * f):
            continue
        q = identify.scores(misses, n, scale)
        assert q[star - 1] - np.delete(q, star - 1).max() >= 1 - 1e-9
        met += 1
    assert met > 1500


def test_gaussian_law_against_quadrature_and_simulation():
    scores, sigma = np.array([0.0, 1.0, -0.5, 0.2]), 1.3

    def density(z, i):
        gaps = (scores[i] - np.delete(scores, i)) / sigma
        return stats.norm.pdf(z) * np.prod(special.ndtr(z + gaps))

    exact = [integrate.quad(density, -12, 12, args=(i,), epsabs=1e-13)[0] for i in range(4)]
    assert np.allclose(np.exp(selection.gaussian_log_law(scores, sigma)), exact, rtol=1e-9)
    rng = np.random.default_rng(3)
    won = np.bincount((scores + sigma * rng.standard_normal((40_000, 4))).argmax(axis=1), minlength=4)
    for count, p in zip(won, exact, strict=True):
        low, high = stats.binomtest(int(count), 40_000).proportion_ci(0.9999)
        assert low <= p <= high


def test_gaussian_law_far_tails_keep_relative_accuracy():
    for gap in (0.0, 5.0, 60.0, 900.0):
        two = selection.gaussian_log_law([gap, 0.0], 1.0)
        assert two[1] == pytest.approx(special.log_ndtr(-gap / math.sqrt(2)), rel=1e-10)
        third = selection.gaussian_log_law([gap, 0.0, -3000.0], 1.0)  # a third candidate that never wins
        assert third[:2] == pytest.approx(two, rel=1e-9, abs=1e-12)
    with pytest.raises(InputError):
        selection.gaussian_log_law([0.0, 0.0, 1e6], 1.0)


@pytest.mark.parametrize("eps", [0.01, 0.3, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-12])
def test_analytic_calibration_against_dp_accounting(eps, delta):
    ours = selection.analytic_sigma(eps, 1.0, delta)
    assert ours == pytest.approx(get_sigma_gaussian(eps, delta), rel=1e-5)
    assert math.exp(selection.log_delta_gaussian(ours, eps)) <= delta
    assert math.exp(selection.log_delta_gaussian(ours * 0.999, eps)) > delta
    if eps < 1:
        assert selection.classical_sigma(eps, 1.0, delta) >= ours
        assert get_epsilon_gaussian(selection.classical_sigma(eps, 1.0, delta), delta) <= eps


def test_calibration_at_extreme_deltas():
    """The classical formula stays above the analytic one and both grow like sqrt(2 log 1/delta)/eps."""
    for log_delta in (-50.0, -700.0, -1e5, -1e10):
        ours = selection.analytic_sigma(0.5, 1.0, log_delta=log_delta)
        wide = selection.classical_sigma(0.5, 1.0, log_delta=log_delta)
        assert 0.5 < ours / wide <= 1


def test_log_delta_against_many_digits():
    """delta(eps) of Gaussian noise with 60 digits; the double-precision value is never below it."""
    import mpmath

    mpmath.mp.dps = 60
    for eps, ratio in ((1e-4, 3e4), (0.01, 500.0), (0.5, 20.0), (1.0, 0.3), (3.0, 40.0), (8.0, 0.9), (0.3, 1e4)):
        x, y = mpmath.mpf(eps) * ratio - 0.5 / mpmath.mpf(ratio), mpmath.mpf(eps) * ratio + 0.5 / mpmath.mpf(ratio)
        exact = float(mpmath.log(mpmath.ncdf(-x) - mpmath.exp(eps) * mpmath.ncdf(-y)))
        found = selection.log_delta_gaussian(ratio, eps)
        assert exact - 1e-9 * abs(exact) <= found <= exact + 1e-6 * abs(exact) + 1e-6


def test_release_matches_its_law():
    scores = np.array([0.0, 2.0, 1.0])
    rng, n = np.random.default_rng(4), 20_000
    release = selection.exponential_selection(1.0, 1.0, "replace", rng)
    private, drawn = release.init(), []
    for t in range(n):
        private, released, info = release.step(private, t, scores)
        drawn.append(int(released.values[0]))
    assert private == n and release.private and info["scores"] == [0.0, 2.0, 1.0]
    law = np.exp(selection.exponential_log_law(scores, 1.0, 1.0))
    for i in (1, 2, 3):
        low, high = stats.binomtest(drawn.count(i), n).proportion_ci(0.9999)
        assert low <= law[i - 1] <= high
    noisy = selection.gaussian_selection(1.5, "test", rng)
    wins = [noisy.step(0, t, scores)[1].values[0] for t in range(n)]
    law = np.exp(selection.gaussian_log_law(scores, 1.5))
    for i in (1, 2, 3):
        low, high = stats.binomtest(wins.count(float(i)), n).proportion_ci(0.9999)
        assert low <= law[i - 1] <= high


@pytest.mark.parametrize(
    ("case", "n", "f"), [(TwoAtoms(), 60, 6.0), (Residues(), 40, 10.0), (Regular(stop=0.3), 30, 6.0)]
)
def test_strings_to_index_by_monte_carlo(case, n, f):
    """Drawing real strings and indices agrees with the exact excess risk (normal interval, bounded
    values)."""
    rng, runs, eps = np.random.default_rng(6), 1500, 3.0
    k = identify.horizon(f, case.languages).k
    scale = identify.horizon(f, k)
    release = selection.exponential_selection(identify.sensitivity(scale, n, "replace"), eps, "replace", rng)
    lost, plain = [], []
    for t in range(runs):
        misses = identify.miss_counts(case, case.sample(n, rng), k)
        index = int(release.step(t, t, identify.scores(misses, n, scale))[1].values[0])
        lost.append(case.error(index) - case.infimum)
        plain.append(case.error(int(identify.margin_rule(misses, n, scale))) - case.infimum)
    for values, mechanism in ((lost, "em"), (plain, "margin")):
        expected = id_error(case, n, f, eps, mechanism=mechanism, rng=np.random.default_rng(7))
        spread = 4.5 * np.std(values) / math.sqrt(runs) + 1e-3
        assert abs(np.mean(values) - expected.value) < spread + (expected.high > expected.low) * 0.01


def test_one_replaced_string_flips_the_margin_rule_but_hardly_the_private_one():
    n, scale = 60, identify.horizon(6.0, 2)
    left, right = np.array([21, 0]), np.array([20, 0])
    assert identify.margin_rule(left, n, scale) == 2 and identify.margin_rule(right, n, scale) == 1
    laws = [identify.exponential_law(s, n, scale, 1.0, "replace") for s in (left, right)]
    assert selection.worst_log_ratio(*laws) <= 1.0


def test_d6_12_unattained_infimum_is_outside_the_theorem():
    """Co-singletons: the infimum 0 is not attained, there is no i*, and the excess risk is not exponential
    in n."""
    case = CoSingletons(0.5)
    assert case.i_star is None and case.gap == 0
    for f, stuck in (
        (7.0, 0.5),
        (12.0, 0.25),
        (20.0, 0.125),
    ):  # index about log2 f: the margin 2^-i must exceed 2/f
        risks = [id_error(case, n, f, mechanism="margin", samples=2000).value for n in (3000, 12_000)]
        assert risks[1] == pytest.approx(stuck, rel=0.05) and min(risks) > 1 / f  # more data do not help


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: identify.horizon(1.9), "f"),
        (lambda: identify.horizon(float("inf")), "f"),
        (lambda: identify.horizon(3, 0), "languages"),
        (lambda: identify.horizon(3, tau=0.0), "tau"),
        (lambda: identify.sensitivity(identify.horizon(3), 2.5, "replace"), "n"),
        (lambda: identify.sensitivity(identify.horizon(3), -4, "replace"), "n"),
        (lambda: identify.sensitivity(identify.horizon(3), 4, "swap"), "adjacency"),
        (lambda: identify.miss_counts(TwoAtoms(), [], 2), "sample"),
        (lambda: identify.miss_counts(TwoAtoms(), ["a"], 3), "k"),
        (lambda: selection.exponential_log_law([0.0, 1.0], 1.0, 0.0), "eps"),
        (lambda: selection.exponential_log_law([0.0, 1.0], 1.0, float("nan")), "eps"),
        (lambda: selection.classical_sigma(1.0, 1.0, 1e-5), "eps"),
        (lambda: selection.analytic_sigma(1.0, 1.0, 1.0), "delta"),
        (lambda: selection.analytic_sigma(1.0, 1.0), "delta"),
        (lambda: selection.gaussian_sigma(1.0, 1.0, 0.1, calibration="best"), "calibration"),
        (lambda: id_error(Multiples(), 50, 4.0, mechanism="laplace"), "mechanism"),
    ],
)
def test_bad_input(make, parameter):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.parameter == parameter
