"""Channels against adaptive quadrature in 40 digits, published numbers, and their own certificates."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from paclab.errors import InputError
from paclab.privacy import channels as ch

SHARES = [0.5, 0.9, 0.1, 0.01, 1 / 128, 1e-6, 1e-12]


def reference_gaussian_mi(q, sigma):
    """Adaptive quadrature of the two KL terms, in the coordinate y / sigma, with 40 digits."""
    with mp.workdps(40):
        q, a = mp.mpf(q), 1 / mp.mpf(sigma)
        edge = mp.log((1 - q) / q) / (2 * a)  # where the posterior turns

        def integrand(z):
            plus, minus = mp.npdf(z - a), mp.npdf(z + a)
            f = q * plus + (1 - q) * minus
            return q * plus * mp.log(plus / f) + (1 - q) * minus * mp.log(minus / f)

        marks = {-a - 12, -a, mp.mpf(0), a, a + 12, edge, edge - 5 / a, edge + 5 / a}
        return mp.quad(integrand, sorted(m for m in marks if -a - 12 <= m <= a + 12))


def reference_rr_mi(q, flip):
    with mp.workdps(60):
        q, flip = mp.mpf(q), mp.mpf(flip)

        def h(p):
            return -p * mp.log(p) - (1 - p) * mp.log(1 - p)

        return h(q * (1 - flip) + (1 - q) * flip) - h(flip)


@pytest.mark.parametrize("q", SHARES)
def test_gaussian_mi_agrees_with_adaptive_quadrature(q):
    for sigma in (0.08, 0.2, 0.32, 0.34, 0.36, 1.0, 3.0, 100.0, 1e8):
        truth, got = reference_gaussian_mi(q, sigma), ch.gaussian_mi(q, sigma)
        assert abs(got - truth) < 1e-15
        assert abs(got / truth - 1) < ch.MI_RELATIVE_ERROR / 10


def test_gaussian_mi_agrees_with_scipy_quadrature_and_entropy_difference():
    """A second derivation: I = h(Y) - h(Y | xi) with SciPy's own adaptive rule."""
    for q, sigma in [(0.5, 0.34), (0.3, 0.7), (0.02, 1.3)]:
        def minus_f_log_f(y, q=q, sigma=sigma):
            f = q * stats.norm.pdf(y, 1, sigma) + (1 - q) * stats.norm.pdf(y, -1, sigma)
            return special.entr(f)
        width = 1 + 12 * sigma
        marks = np.linspace(-width, width, 15)[1:-1]
        output, _ = integrate.quad(minus_f_log_f, -width, width, points=marks, epsabs=1e-12, limit=200)
        assert ch.gaussian_mi(q, sigma) == pytest.approx(output - stats.norm.entropy(scale=sigma), abs=1e-10)


@pytest.mark.parametrize(("q", "sigma", "mi", "tol"), [
    (0.5, 1, 0.33683082, 1e-8), (0.9, 1, 0.14202041, 1e-8), (1 / 128, 1, 0.01474461, 1e-8),
    (0.5, 0.5, 0.63272019, 1e-8), (0.5, 2, 0.11142148, 1e-8), (0.5, 10, 0.0049751646, 1e-10),
    (0.01, 1, 0.018650631, 1e-9)])
def test_published_gaussian_mi(q, sigma, mi, tol):
    assert abs(ch.gaussian_mi(q, sigma) - mi) < tol


@pytest.mark.parametrize(("q", "beta", "sigma", "tol"), [
    (0.5, 3.3e-4, 38.92, 5e-3), (0.5, 6.8e-4, 27.11, 5e-3), (0.25, 3.3e-4, 33.70, 5e-3),
    (0.1, 3.3e-4, 23.35, 5e-3),
    (0.5, 1e-2, 7.036, 5e-4), (0.5, 0.1, 2.124, 5e-4), (0.5, 1e-7, 2236, 0.5)])
def test_published_inverse(q, beta, sigma, tol):
    assert abs(ch.gaussian_sigma(q, beta) - sigma) < tol


def test_the_sixty_node_rule_of_the_papers_is_off_near_sigma_034():
    """The reason for another rule: probabilists' Gauss-Hermite with 60 nodes errs by about 1.4e-6 there."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    sigma, q = 0.34, 0.5
    y = 1 + sigma * nodes  # by symmetry one component is enough at q = 1/2
    log_ratio = -np.log(q + (1 - q) * np.exp(-2 * y / sigma**2))
    papers = float(weights @ log_ratio / np.sqrt(2 * np.pi))
    assert 1e-7 < abs(papers - ch.gaussian_mi(q, sigma)) < 3e-6


def test_limits_and_symmetry():
    assert ch.gaussian_mi(0.3, 0.0) == ch.entropy(0.3) == pytest.approx(0.6108643020548935, rel=1e-15)
    assert ch.gaussian_mi(0.3, np.inf) == 0.0
    assert ch.gaussian_mi(0.0, 1.0) == ch.gaussian_mi(1.0, 0.0) == 0.0
    assert ch.gaussian_mi(0.5, 1e-300) == np.log(2)
    assert ch.gaussian_mi(1 - 2**-20, 0.7) == ch.gaussian_mi(2**-20, 0.7)
    assert ch.rr_mi(0.3, 0.0) == pytest.approx(ch.entropy(0.3), rel=1e-15)
    assert ch.rr_mi(0.3, 0.5) == 0.0 and ch.rr_mi(0.0, 0.0) == 0.0 and ch.rr_mi(1.0, 0.1) == 0.0
    assert ch.rr_mi(0.3, 0.1) == pytest.approx(ch.rr_mi(0.7, 0.9), rel=1e-14)


def test_entropy_is_exact_at_the_ends():
    assert ch.entropy(0.0) == ch.entropy(1.0) == 0.0
    assert ch.entropy(0.5) == pytest.approx(np.log(2), rel=1e-16)
    for q in (1e-300, 1e-20, 1e-9, 0.2, 1 - 1e-9):
        with mp.workdps(350):
            exact = -mp.mpf(q) * mp.log(q) - (1 - mp.mpf(q)) * mp.log(1 - mp.mpf(q))
        assert abs(ch.entropy(q) / exact - 1) < 1e-15


def test_excess_matches_high_precision_across_the_switch():
    for x in (-1.0, -0.99, -0.11, -0.0999, -1e-3, 1e-12, 0.0999, 0.1001, 3.0, 1e12):
        with mp.workdps(60):
            y = mp.mpf(x)
            exact = ((1 + y) * mp.log(1 + y) if x > -1 else mp.mpf(0)) - y
        assert abs(ch.excess(x) / exact - 1) < 3e-14


@pytest.mark.parametrize("q", SHARES)
def test_rr_mi_agrees_with_high_precision(q):
    for flip in (0.0, 1e-30, 1e-9, 1e-3, 0.2, 0.45, 0.5 - 1e-4, 0.5 - 1e-7, 0.5 + 1e-3, 0.99):
        truth = reference_rr_mi(q, flip) if flip else mp.mpf(ch.entropy(q))
        assert abs(ch.rr_mi(q, flip) / truth - 1) < ch.MI_RELATIVE_ERROR / 10


# the open unit interval on a log scale, towards both ends
shares = st.one_of(st.floats(-12, np.log10(0.5)).map(lambda e: 10.0**e),
                   st.floats(-12, np.log10(0.5)).map(lambda e: 1 - 10.0**e))


@settings(max_examples=300, deadline=None)
@given(shares, st.floats(0, 1), st.booleans())
def test_inverses_are_certified(q, place, gaussian):
    """From 1e-12 nats to 0.999 h(q): never above the target, and within a millionth below it."""
    top = 0.999 * ch.entropy(q)
    beta = 1e-12 * (top / 1e-12) ** place if top > 1e-12 else top * 10 ** (-6 * place)
    if gaussian or beta < 1e-12:
        achieved = ch.gaussian_mi(q, ch.gaussian_sigma(q, beta))
    else:
        achieved = ch.rr_mi(q, ch.rr_flip(q, beta))
    assert beta * (1 - 1e-6) <= achieved <= beta
    assert ch.certified(achieved) <= beta


def test_inverse_is_the_conservative_end_in_high_precision():
    for q, beta in [(0.5, 1e-12), (0.5, 0.69), (1 / 128, 2**-32), (0.3, 3.3e-4), (0.01, 0.05)]:
        assert reference_gaussian_mi(q, ch.gaussian_sigma(q, beta)) <= beta
        assert reference_rr_mi(q, ch.rr_flip(q, beta)) <= beta


def test_vectorised_calls_equal_scalar_calls():
    rng = np.random.default_rng(7)
    q = rng.uniform(0.01, 0.99, (5, 1))
    sigma = np.geomspace(0.05, 1e4, 7)
    grid = ch.gaussian_mi(q, sigma)
    assert grid.shape == (5, 7)
    alone = np.array([[ch.gaussian_mi(x, s) for s in sigma] for x in q.ravel()])
    np.testing.assert_allclose(grid, alone, rtol=1e-14)
    beta = np.array([1e-12, 1e-6, 0.01])
    for inverse, forward in [(ch.gaussian_sigma, ch.gaussian_mi), (ch.rr_flip, ch.rr_mi)]:
        noise = inverse(q, beta)
        assert noise.shape == (5, 3) and isinstance(inverse(0.5, 0.1), float)
        assert np.all(forward(q, noise) <= beta) and np.all(forward(q, noise) >= beta * (1 - 1e-6))


def test_many_elements_in_blocks():
    q = np.full(30_000, 0.2)
    sigma = np.geomspace(0.05, 50, q.size)
    mi = ch.gaussian_mi(q, sigma)
    assert np.all(np.diff(mi) <= 1e-15)
    picks = [0, 12_345, 29_999]
    np.testing.assert_allclose(mi[picks], [ch.gaussian_mi(0.2, sigma[i]) for i in picks], rtol=1e-14)


@pytest.mark.parametrize(("beta", "gaussian", "rr"), [(3.3e-4, 0.0205, 0.02569), (1e-2, 0.113, 0.14119),
                                                      (0.1, 0.362, 0.43959), (0.3, 0.642, 0.733)])
def test_published_correlations(beta, gaussian, rr):
    assert abs(ch.gaussian_sign_correlation(ch.gaussian_sigma(0.5, beta)) - gaussian) < 5.1e-4
    assert abs(ch.rr_correlation(ch.rr_flip(0.5, beta)) - rr) < (5.1e-6 if rr != 0.733 else 5e-4)


def test_correlations_against_simulation():
    rng = np.random.default_rng(0)
    xi = np.where(rng.random(200_000) < 0.3, 1, -1)
    y = np.where(xi + 1.7 * rng.standard_normal(xi.size) >= 0, 1, -1)
    assert np.mean(y * xi) == pytest.approx(ch.gaussian_sign_correlation(1.7), abs=5 / np.sqrt(xi.size))


def test_sign_keeps_two_over_pi_of_a_small_budget():
    sigma = ch.gaussian_sigma(0.5, 3.3e-4)
    assert ch.gaussian_sign_mi(0.5, sigma) / 3.3e-4 == pytest.approx(2 / np.pi, rel=1e-3)
    for q in (0.5, 0.1, 1e-3):
        for s in (0.1, 0.5, 2.0, 1e4, 1e8):
            carried = ch.gaussian_sign_mi(q, s)
            assert 0 < carried <= ch.gaussian_mi(q, s) * (1 + 1e-14)
            if s < 1e4:
                assert carried == pytest.approx(ch.rr_mi(q, stats.norm.sf(1 / s)), rel=1e-9)


def test_bounds_are_ordered_and_meet_at_large_noise():
    q = np.array([0.5, 0.1, 0.01])[:, None]
    sigma = np.geomspace(0.05, 1e6, 40)
    exact, logdet, variance = ch.gaussian_mi(q, sigma), ch.gaussian_logdet_bound(q, sigma), \
        ch.gaussian_variance_bound(q, sigma)
    assert np.all(exact <= logdet * (1 + 1e-12)) and np.all(logdet <= variance)
    np.testing.assert_allclose(variance[:, -1], exact[:, -1], rtol=1e-10)
    assert ch.gaussian_variance_bound(0.25, 2.0) == 2 * 0.25 * 0.75 / 4


@pytest.mark.parametrize(("q", "row"), [(0.5, (0.9999, 0.990, 0.911, 0.775, 0.597)),
                                        (0.1, (0.9999, 0.990, 0.883, 0.668, 0.418)),
                                        (1 / 128, (0.9999, 0.977, 0.437, 0.152, 0.066))])
def test_published_tightness_of_the_variance_bound(q, row):
    """Noise calibrated by the bound at b really spends this share of b (generation dossier A.3).

    One-hot votes (1,0) / (0,1) under trace-optimal noise are this binary channel with variance bound b.
    """
    for b, share in zip((1e-4, 1e-2, 0.1, 0.3, 0.69), row, strict=True):
        sigma = np.sqrt(2 * q * (1 - q) / b)
        assert ch.gaussian_mi(q, sigma) / b == pytest.approx(share, abs=6e-4)


def test_vector_noise_is_what_the_trace_bound_asks():
    sd, budget = np.array([3.0, 1.0, 0.5, 0.0]), 0.2
    power = sd * sd.sum() / (2 * budget)  # per-axis optimum
    assert ch.vector_noise_power(sd, budget) == pytest.approx(power.sum())
    assert 0.5 * np.sum(sd[:3] ** 2 / power[:3]) == pytest.approx(budget)
    isotropic = sd.size * np.sum(sd**2) / (2 * budget)
    assert ch.vector_noise_power(sd, budget) < isotropic
    assert ch.vector_noise_power([2.0], 0.1) == pytest.approx(4.0 / 0.2)


@pytest.mark.parametrize(("call", "parameter"), [
    (lambda: ch.gaussian_sigma(0.5, 0.0), "beta"), (lambda: ch.gaussian_sigma(0.5, -1e-3), "beta"),
    (lambda: ch.gaussian_sigma(0.5, float("nan")), "beta"), (lambda: ch.rr_flip(0.5, 0.0), "beta"),
    (lambda: ch.gaussian_sigma(0.1, 0.4), "beta"), (lambda: ch.rr_flip(0.5, np.log(2)), "beta"),
    (lambda: ch.gaussian_sigma(0.0, 0.1), "q_plus"), (lambda: ch.gaussian_sigma(1.0, 0.1), "q_plus"),
    (lambda: ch.rr_flip(float("nan"), 0.1), "q_plus"), (lambda: ch.gaussian_mi(1.2, 1.0), "q_plus"),
    (lambda: ch.gaussian_mi(0.5, -1.0), "sigma"), (lambda: ch.gaussian_mi(0.5, float("nan")), "sigma"),
    (lambda: ch.rr_mi(0.5, 1.5), "flip"), (lambda: ch.entropy(-0.1), "q"),
    (lambda: ch.vector_noise_power([1.0], 0.0), "budget"),
    (lambda: ch.gaussian_sigma([0.5, 0.5], [0.1, 0.0]), "beta")])
def test_bad_values_name_the_parameter(call, parameter):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.parameter == parameter and "\n" not in str(error.value)


def test_zero_budget_is_routed_to_zpl():
    with pytest.raises(InputError, match="ZPL"):
        ch.gaussian_sigma(0.5, 0.0)
    with pytest.raises(InputError, match="cap"):
        ch.rr_flip(0.01, 0.2)
