"""Candidate halves, votes and unanimity; the law of free steps against simulation and the published table."""

import numpy as np
import pytest
from scipy import integrate, stats

from paclab.errors import InputError
from paclab.privacy import consensus as co

PUBLISHED_TAU = (1, 2, 2.5, 2.9, 3.3, 4, 6, 10)
PUBLISHED_F = {  # zeroth-order dossier A10
    16: (0.118, 0.394, 0.490, 0.550, 0.598, 0.662, 0.769, 0.860),
    64: (0.031, 0.253, 0.356, 0.425, 0.482, 0.560, 0.697, 0.815),
    126: (0.016, 0.205, 0.307, 0.377, 0.436, 0.520, 0.667, 0.796),
    128: (0.016, 0.204, 0.306, 0.376, 0.435, 0.519, 0.666, 0.795),
    256: (0.008, 0.165, 0.264, 0.334, 0.395, 0.482, 0.638, 0.778),
    512: (0.004, 0.134, 0.228, 0.298, 0.359, 0.449, 0.613, 0.761),
}


# ---------------------------------------------------------------- subsets


@pytest.mark.parametrize(("n", "m"), [(1000, 126), (1000, 128), (10, 2), (4, 6)])
def test_complementary_halves_are_exact(n, m):
    r = co.complementary_halves(n, m, np.random.default_rng(3))
    assert r.shape == (n, m) and r.dtype == bool
    assert np.all(r.sum(axis=1) == m // 2) and np.all(r.sum(axis=0) == n // 2)
    assert np.array_equal(r[:, 0::2], ~r[:, 1::2])
    assert np.unique(r, axis=1).shape[1] == m


def test_independent_halves_have_the_papers_margins():
    r = co.independent_halves(1000, 128, np.random.default_rng(3))
    assert np.all(r.sum(axis=1) == 64)
    sizes = r.sum(axis=0)
    assert sizes.std() > 5 and abs(sizes.mean() - 500) < 1e-9
    assert 440 < sizes.min() < sizes.max() < 560


@pytest.mark.parametrize("draw", [co.complementary_halves, co.independent_halves])
def test_subsets_are_reproducible_from_a_public_stream_and_uniform(draw):
    assert np.array_equal(draw(40, 6, np.random.default_rng(5)), draw(40, 6, np.random.default_rng(5)))
    assert not np.array_equal(draw(40, 6, np.random.default_rng(5)), draw(40, 6, np.random.default_rng(6)))
    rng = np.random.default_rng(0)
    share = np.mean([draw(60, 4, rng) for _ in range(2000)], axis=0)
    assert np.all(np.abs(share - 0.5) < 5 * 0.5 / np.sqrt(2000))


@pytest.mark.parametrize(("draw", "n", "m", "parameter"), [
    (co.complementary_halves, 10, 5, "candidates"), (co.complementary_halves, 10, 0, "candidates"),
    (co.complementary_halves, 9, 4, "pool"), (co.complementary_halves, 4, 8, "pool"),
    (co.complementary_halves, 0, 4, "pool"), (co.independent_halves, 10, 7, "candidates"),
    (co.independent_halves, 0, 4, "pool"), (co.independent_halves, 2, 16, "pool")])
def test_bad_sizes_are_refused(draw, n, m, parameter):
    with pytest.raises(InputError) as error:
        draw(n, m, np.random.default_rng(0))
    assert error.value.parameter == parameter


# ---------------------------------------------------------------- means and votes


def test_candidate_means_match_numpy_and_do_not_depend_on_order():
    rng = np.random.default_rng(1)
    for n in (200, 5000):
        g = rng.standard_t(2, (3, n)) * np.array([[1e-6], [1.0], [1e12]])
        r = co.complementary_halves(n, 16, rng)
        means = co.candidate_means(g, r)
        expected = np.array([[g[k, r[:, m]].mean() for m in range(16)] for k in range(3)])
        np.testing.assert_allclose(means, expected, rtol=1e-9, atol=1e-12 * np.abs(g).max())
        order = rng.permutation(n)
        assert np.array_equal(co.candidate_means(g[:, order], r[order]), means)
        assert np.array_equal(co.candidate_means(g[1], r), means[1])


def test_exact_cancellation_is_a_tie_in_any_order():
    """0.1 + 0.2 - 0.3 is not 0 in floating point; here it is a tie for every order of the records."""
    values = np.array([0.1, -0.1, 0.7, -0.7, 0.3, -0.3])
    everyone = np.ones((6, 1), dtype=bool)
    for order in ([0, 1, 2, 3, 4, 5], [0, 2, 4, 1, 3, 5], [4, 2, 0, 5, 1, 3]):
        assert co.candidate_means(values[order], everyone)[0] == 0.0
    assert np.all(co.candidate_means(np.zeros(6), everyone) == 0.0)
    assert co.candidate_means(np.full(6, 5e-324), everyone)[0] == 5e-324
    assert co.candidate_means(np.full(6, 1e308), everyone)[0] == pytest.approx(1e308)


def test_tie_rules():
    means = np.array([1e-300, -1e-300, 0.0, -0.0])
    assert co.sign_votes(means).tolist() == [1, -1, 0, 0] and co.sign_votes(means).dtype == np.int8
    assert co.sign_votes(means, tie="plus").tolist() == [1, -1, 1, 1]
    assert co.break_ties(co.sign_votes(means), -1).tolist() == [1, -1, -1, -1]
    both = co.break_ties(np.array([[0, 1], [0, -1]]), np.array([1, -1]))
    assert both.tolist() == [[1, 1], [-1, -1]]


def test_unanimity_is_an_exact_support_test():
    assert co.unanimity(np.ones(8)) == 1 and co.unanimity(-np.ones(8)) == -1
    assert co.unanimity(np.zeros(8)) == 0
    assert co.unanimity([1, 1, 1, 0]) == 0 and co.unanimity([1, 1, 1, -1]) == 0
    assert co.unanimity([[1, 1], [1, -1], [-1, -1]]).tolist() == [1, 0, -1]
    outlier = np.array([1, 1, 1, -1])
    weights = np.array([1 - 1e-15, 5e-16, 5e-16, 1e-300])  # a posterior threshold would call this unanimous
    seen = co.consensus_of(outlier, weights)
    assert seen.sign == 0 and seen.q_minus == 1e-300 and seen.agreement == 0.75
    assert seen.q_plus == pytest.approx(1.0)


@pytest.mark.parametrize(("call", "parameter"), [
    (lambda: co.candidate_means([1.0, np.nan], np.ones((2, 2), bool)), "differences"),
    (lambda: co.candidate_means([1.0, np.inf], np.ones((2, 2), bool)), "differences"),
    (lambda: co.candidate_means([1.0, 2.0, 3.0], np.ones((2, 2), bool)), "differences"),
    (lambda: co.candidate_means([1.0, 2.0], np.array([[1, 0], [1, 0]], bool)), "membership"),
    (lambda: co.sign_votes([np.nan]), "means"), (lambda: co.sign_votes([1.0], tie="coin"), "tie"),
    (lambda: co.break_ties([0, 1], 0), "coin"), (lambda: co.consensus_of([1, 1], [1.0]), "votes"),
    (lambda: co.free_step_probability(1.0, 4, "bootstrap"), "draw"),
    (lambda: co.free_step_probability(1.0, 3), "candidates"),
    (lambda: co.expected_free_fraction(0.0, 4), "tau"), (lambda: co.pool_t_statistic([1.0]), "differences")])
def test_bad_values_name_the_parameter(call, parameter):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.parameter == parameter


# ---------------------------------------------------------------- the law of free steps


def simulate(draw, n, m, t, subsets, pools, rng):
    """Number of unanimous steps among subsets * pools standardised pools with statistic exactly t."""
    count = 0
    for _ in range(subsets):
        g = rng.standard_normal((pools, n))
        g = (g - g.mean(axis=1, keepdims=True)) / g.std(axis=1, ddof=1, keepdims=True) + t / np.sqrt(n)
        assert co.pool_t_statistic(g[0]) == pytest.approx(t)
        member = draw(n, m, rng)
        count += np.count_nonzero(co.unanimity(co.sign_votes(g @ (member / member.sum(axis=0)))))
    return count


def fresh_halves(n, m, rng):
    """Exact halves without any coupling: one column of each complementary pair."""
    return co.complementary_halves(n, 2 * m, rng)[:, ::2]


@pytest.mark.parametrize(("draw", "law"), [(co.complementary_halves, "complementary"),
                                           (fresh_halves, "independent")])
@pytest.mark.parametrize(("m", "t"), [(4, 1.5), (16, 1.5), (16, 2.5), (126, 2.5)])
def test_law_lies_in_the_binomial_interval_of_the_simulation(draw, law, m, t):
    subsets, pools = 100, 40
    count = simulate(draw, 400, m, t, subsets, pools, np.random.default_rng(11))
    interval = stats.binomtest(count, subsets * pools).proportion_ci(0.9999, method="exact")
    assert interval.low < co.free_step_probability(t, m, law) < interval.high


@pytest.mark.parametrize(("m", "t"), [(16, 1.5), (128, 2.5)])
def test_the_papers_draw_stays_just_below_the_law(m, t):
    subsets, pools = 100, 40
    count = simulate(co.independent_halves, 400, m, t, subsets, pools, np.random.default_rng(12))
    interval = stats.binomtest(count, subsets * pools).proportion_ci(0.9999, method="exact")
    law = co.free_step_probability(t, m)
    assert interval.low < law and law - 0.08 < interval.high


def test_acceptance_values_at_t_25():
    assert co.free_step_probability(2.5, 128) == pytest.approx(0.45, abs=5e-3)
    assert co.free_step_probability(2.5, 128, "complementary") == pytest.approx(0.45, abs=5e-3)
    assert co.free_step_probability(-3.0, 128) == pytest.approx(0.84, abs=5e-3)
    assert co.free_step_probability(0.0, 128, "complementary") == 0.0
    assert co.free_step_probability(np.array([0.0, 40.0]), 2).tolist() == [0.25, 1.0]


@pytest.mark.parametrize("m", PUBLISHED_F)
def test_published_table_of_free_fractions(m):
    f = co.expected_free_fraction(np.array(PUBLISHED_TAU, dtype=float), m)
    assert np.all(np.abs(f - PUBLISHED_F[m]) <= 5.05e-4)  # three printed digits


def test_free_fraction_against_adaptive_quadrature():
    for tau, m, draw in [(0.01, 16, "independent"), (0.5, 2, "complementary"), (2.9, 126, "complementary"),
                         (50.0, 512, "independent")]:
        def integrand(z, tau=tau, m=m, draw=draw):
            return 2 * co.free_step_probability(tau * z, m, draw) * stats.norm.pdf(z)

        marks = sorted({min(11.9, x / tau) for x in (0.5, 1, 2, 3, 4, 5, 6, 8)})
        value, _ = integrate.quad(integrand, 0, 12, points=marks, epsabs=1e-12, limit=400)
        assert co.expected_free_fraction(tau, m, draw) == pytest.approx(value, abs=1e-9)


def test_t_statistic_of_flat_and_stacked_pools():
    assert co.pool_t_statistic([2.0, 2.0]) == np.inf and co.pool_t_statistic([-2.0, -2.0]) == -np.inf
    assert co.pool_t_statistic([0.0, 0.0]) == 0.0
    values = np.array([[1.0, 2.0, 6.0], [0.0, 1.0, -1.0]])
    np.testing.assert_allclose(co.pool_t_statistic(values),
                               [stats.ttest_1samp(row, 0).statistic for row in values], atol=1e-15)
