"""DP accounting against closed forms, brute-force integrals, published roots, Opacus and riskcal."""

import math
import warnings

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from paclab.errors import InputError
from paclab.privacy import dp, risk

DELTA = 1e-5
TARGETS = (0.2, 0.3, 0.5, 1.0, 2.0, 6.0)
ROOTS = {  # noise multipliers at 0.95 epsilon (as in DP-AggZO's code) / at the full epsilon
    (0.064, 1000): "38.54/36.51 26.18/24.97 16.35/15.59 8.672/8.276 4.667/4.462 1.902/1.832",
    (0.064, 2000): "54.46/51.59 36.98/35.26 23.06/22.00 12.20/11.64 6.522/6.232 2.566/2.465",
    (0.064, 20000): "172.1/163.0 116.8/111.4 72.79/69.42 38.41/36.64 20.40/19.48 7.743/7.412",
    (0.0625, 1000): "37.64/35.65 25.57/24.39 15.96/15.23 8.472/8.086 4.561/4.362 1.864/1.796",
    (0.0417, 1000): "25.11/23.79 17.07/16.29 10.68/10.19 5.692/5.437 3.106/2.975 1.357/1.314",
    (0.008, 20000): "21.54/20.40 14.63/13.95 9.137/8.717 4.865/4.645 2.655/2.543 1.182/1.146",
}
PRV = (34.68, 23.59, 14.59, 7.711, 4.167, 1.736)  # q = 0.064, T = 1000, full epsilon


def gaussian_delta(distance, epsilon):
    return risk.gdp_delta(distance, epsilon)


@pytest.mark.parametrize(("place", "cells"), ROOTS.items(), ids=str)
def test_published_noise_multipliers(place, cells):
    """Every root of the table solves the published rule to rel 1e-3: its epsilon crosses the target there."""
    for target, cell in zip(TARGETS, cells.split(), strict=True):
        for share, root in zip((0.95, 1.0), map(float, cell.split("/")), strict=True):
            slack = 1e-3 + (0.5 * 10 ** -(len(cell.split("/")[0].split(".")[1])) / root)
            at = [dp.epsilon(root * (1 + sign * slack), *place, DELTA, "rdp-published") for sign in (1, -1)]
            assert at[0] <= share * target <= at[1]


def test_the_acceptance_values():
    for target, root in ((2, 4.667), (6, 1.902), (0.2, 38.54)):
        assert dp.published_multiplier(target, 0.064, 1000, DELTA, share=0.95) == pytest.approx(root, rel=1e-3)
    assert dp.noise_multiplier(0.95 * 0.2, 0.064, 1000, DELTA, "rdp") == pytest.approx(38.10, rel=1e-3)  # wide orders


def test_prv_roots_are_met_with_less_noise():
    """The dossier's PRV values carry that accountant's +0.01; the pessimistic PLD must sit just below them."""
    for target, root in zip(TARGETS, PRV, strict=True):
        assert target * 0.993 - 0.0105 <= dp.epsilon(root, 0.064, 1000, DELTA, "pld") <= target


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp-published"])
@pytest.mark.parametrize("target", [0.2, 2.0])
def test_calibration_is_certified_and_tight(accountant, target):
    sigma = dp.noise_multiplier(target, 0.05, 300, DELTA, accountant)
    assert dp.epsilon(sigma, 0.05, 300, DELTA, accountant) <= target
    assert dp.epsilon(sigma * (1 - 2 * dp.TIGHT), 0.05, 300, DELTA, accountant) > target


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (20.0, 100), (3.0, 4)])
def test_without_sampling_a_run_is_one_gaussian(sigma, steps):
    """T full-batch releases are one with distance sqrt(T) / sigma: the exact law, approached from above."""
    for adjacency, factor in (("add-remove", 1), ("replace-one", 2)):
        distance = factor * math.sqrt(steps) / sigma
        exact = optimize.brentq(lambda e, d=distance: gaussian_delta(d, e) - DELTA, 0, 200)
        assert exact <= dp.epsilon(sigma, 1.0, steps, DELTA, "pld", adjacency) <= exact * 1.002 + 1e-3
    assert dp.epsilon(sigma, 1.0, steps, DELTA, "rdp") >= optimize.brentq(
        lambda e: gaussian_delta(math.sqrt(steps) / sigma, e) - DELTA, 0, 200)


def mixture(q, mean, sigma):
    return lambda x: (1 - q) * stats.norm.pdf(x, 0, sigma) + q * stats.norm.pdf(x, mean, sigma)


def hockey_stick(p, q, epsilon, span=60.0, nodes=400_001):
    x = np.linspace(-span, span, nodes)
    return float(integrate.simpson(np.maximum(p(x) - math.exp(epsilon) * q(x), 0), x=x))


@pytest.mark.parametrize(("q", "sigma"), [(0.3, 1.0), (0.05, 0.7), (0.9, 2.5)])
def test_one_sampled_step_against_the_integral(q, sigma):
    """Both neighbours, by quadrature: the claimed epsilon holds, and is not far above the least that does."""
    for adjacency, other in (("add-remove", stats.norm(0, sigma).pdf), ("replace-one", mixture(q, -1.0, sigma))):
        epsilon = dp.epsilon(sigma, q, 1, DELTA, "pld", adjacency)
        sides = [(mixture(q, 1.0, sigma), other), (other, mixture(q, 1.0, sigma))]
        assert max(hockey_stick(*side, epsilon) for side in sides) <= DELTA * 1.0001
        assert max(hockey_stick(*side, epsilon - 2e-3) for side in sides) > DELTA


def test_two_replaced_steps_against_the_plane():
    """T = 2, replace-one: the product law on a grid of the plane, for opposite and for zero replacements."""
    q, sigma, delta = 0.3, 1.5, 1e-3
    epsilon = dp.epsilon(sigma, q, 2, delta, "pld", "replace-one")
    x = np.linspace(-16, 16, 3001)
    one = mixture(q, 1.0, sigma)(x)
    worst = 0.0
    for other in (-1.0, 0.0, 0.5):
        two = mixture(q, other, sigma)(x)
        for a, b in ((one, two), (two, one)):
            excess = np.maximum(np.outer(a, a) - math.exp(epsilon) * np.outer(b, b), 0)
            worst = max(worst, float(integrate.trapezoid(integrate.trapezoid(excess, x, axis=1), x)))
    assert 0.98 * delta < worst <= delta * (1 + 1e-5)  # the trapezoid's kink


def test_the_published_factor_two_under_replace_one():
    """DPZero's rule (twice the add/remove noise) is certified for replace-one, with the slack of its accountant."""
    for target in (0.2, 2.0, 6.0):
        sigma = 2 * dp.published_multiplier(target, 0.064, 1000, DELTA)
        assert 0.8 * target < dp.epsilon(sigma, 0.064, 1000, DELTA, "pld", "replace-one") <= target


def test_no_replacement_is_worse_than_the_opposite_one():
    """Random x, x' of norm at most 1 in the plane: the profile never exceeds the dominating pair's, at any level."""
    rng, q, sigma = np.random.default_rng(0), 0.3, 0.8
    axis = np.linspace(-6, 6, 241)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    cell = (axis[1] - axis[0]) ** 2

    def law(mean):
        at = [np.exp(-((grid - m) ** 2).sum(-1) / (2 * sigma**2)) / (2 * np.pi * sigma**2) for m in (np.zeros(2), mean)]
        return (1 - q) * at[0] + q * at[1]

    def profile(x, other, level):
        return float(np.maximum(law(x) - level * law(other), 0).sum() * cell)

    for level in (1.0, 1.3, 2.0):
        worst = profile(np.array([1.0, 0.0]), np.array([-1.0, 0.0]), level)
        for _ in range(60):
            x, other = rng.normal(size=(2, 2))
            x, other = (v / np.linalg.norm(v) * r for v, r in ((x, rng.random() ** 0.3), (other, rng.random() ** 0.3)))
            assert profile(x, other, level) <= worst + 1e-9


def test_pld_saves_noise():
    saved = dp.savings(1.0, 0.064, 1000)
    assert saved.published == pytest.approx(8.276, rel=1e-3) and saved.pld <= saved.rdp <= saved.published * 1.0001
    assert 0.05 < saved.saved < 0.12 and saved.saved == pytest.approx(1 - saved.pld / saved.published)


@pytest.mark.parametrize(("scale", "q"), [(0.5, 0.3), (2.0, 0.05), (1.0, 1.0)])
def test_laplace_is_pure_and_exact(scale, q):
    """sup |log ratio| of the two output laws by dense search, and T of them add up."""
    x = np.linspace(-40, 40, 800_001)
    base, moved = np.exp(-np.abs(x) / scale), np.exp(-np.abs(x - 1) / scale)
    ratio = np.log((1 - q) * base + q * moved) - np.log(base)
    assert dp.laplace_epsilon(scale, q, 1) == pytest.approx(np.abs(ratio).max(), rel=1e-9)
    assert dp.laplace_epsilon(scale, q, 70) == pytest.approx(70 * np.abs(ratio).max(), rel=1e-9)
    away = np.exp(-np.abs(x + 1) / scale)
    both = np.log((1 - q) * base + q * moved) - np.log((1 - q) * base + q * away)
    assert np.abs(both).max() <= dp.laplace_epsilon(scale, q, 1, adjacency="replace-one") * (1 + 1e-9)
    assert dp.laplace_epsilon(scale, q, 70, delta=1e-5) < dp.laplace_epsilon(scale, q, 70)


@pytest.mark.parametrize("adjacency", dp.ADJACENCIES)
@pytest.mark.parametrize("target", [0.1, 4.0, 3000.0])
def test_laplace_calibration(adjacency, target):
    scale = dp.laplace_scale(target, 0.02, 500, adjacency)
    assert target * (1 - 1e-9) <= dp.laplace_epsilon(scale, 0.02, 500, adjacency=adjacency) <= target
    assert np.isfinite(dp.laplace_scale(1e6, 0.02, 1)) and dp.laplace_epsilon(1e-4, 0.02, 1) > 9000


def test_attack_level_without_sampling_is_gaussian():
    exact = 2 * special.ndtr(math.sqrt(50) / 10 / 2) - 1
    assert exact <= dp.advantage(10.0, 1.0, 50) <= exact + 1e-3


def test_opacus_agrees():
    opacus = pytest.importorskip("opacus.accountants", reason="opacus is a test-time dependency")
    from opacus.accountants.analysis import rdp

    orders = opacus.RDPAccountant.DEFAULT_ALPHAS
    assert tuple(orders) == pytest.approx(dp.PUBLISHED_ORDERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PRV bounds its domain with an RDP at a tiny delta and says so
        for sigma, q, steps in ((4.462, 0.064, 1000), (1.357, 0.0417, 1000), (20.4, 0.008, 20000)):
            spent = rdp.compute_rdp(q=q, noise_multiplier=sigma, steps=steps, orders=orders)
            theirs, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=DELTA)
            assert dp.epsilon(sigma, q, steps, DELTA, "rdp-published") == pytest.approx(float(theirs), rel=1e-3)
            prv = opacus.PRVAccountant()
            prv.history = [(sigma, q, steps)]
            law = prv._get_dprv(eps_error=0.01, delta_error=1e-8)
            low, middle, high = law.compute_epsilon(DELTA, 1e-8, 0.01)
            ours = dp.epsilon(sigma, q, steps, DELTA, "pld")
            assert low <= ours <= high and ours == pytest.approx(float(middle), abs=2e-3)


def test_riskcal_agrees_on_the_attack_level():
    conversions = pytest.importorskip("riskcal.analysis.conversions", reason="riskcal is a test-time dependency")
    from dp_accounting import pld

    for sigma, q, steps in ((4.144, 0.064, 1000), (1.0, 0.01, 200)):
        accountant = pld.PLDAccountant().compose(dp.gaussian_event(sigma, q, steps))
        theirs = conversions.get_advantage_from_pld(accountant._pld)
        assert dp.advantage(sigma, q, steps) == pytest.approx(float(theirs), abs=1e-6)
    beta = np.array([conversions.get_beta_from_pld(accountant._pld, alpha=a) for a in (0.05, 0.2)])
    assert (beta >= 1 - np.array([0.05, 0.2]) - dp.advantage(1.0, 0.01, 200) - 1e-9).all()


@pytest.mark.parametrize(("arguments", "message"), [
    ((0.0, 0.1, 10, DELTA), "epsilon: 0.0 is no promise"), ((-1.0, 0.1, 10, DELTA), "epsilon"),
    ((math.nan, 0.1, 10, DELTA), "epsilon"), ((math.inf, 0.1, 10, DELTA), "epsilon"),
    ((1.0, 0.0, 10, DELTA), "sampling: 0.0 is no Poisson rate"), ((1.0, 1.5, 10, DELTA), "sampling"),
    ((1.0, 0.1, 0, DELTA), "steps"), ((1.0, 0.1, 10, 0.0), "delta: 0.0 is not in"), ((1.0, 0.1, 10, 1.0), "delta"),
    ((1.0, 0.1, 10, DELTA, "rpd"), "accountant: 'rpd' is unknown; did you mean 'rdp'"),
    ((1.0, 0.1, 10, DELTA, "pld", "swap"), "adjacency"),
    ((1.0, 0.1, 10, DELTA, "rdp", "replace-one"), "accountant: rdp does not account for replace-one"),
    ((1e-6, 1.0, 1000, 1e-12, "rdp"), "epsilon: 1e-06 cannot be met"),
])
def test_bad_promises_are_one_line(arguments, message):
    with pytest.raises(InputError) as error:
        dp.noise_multiplier(*arguments)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_no_noise_is_refused():
    for call in (lambda: dp.epsilon(0.0, 0.1, 10, DELTA), lambda: dp.laplace_epsilon(0.0, 0.1, 10),
                 lambda: dp.laplace_epsilon(1.0, 0.1, 10, 1e-5, "replace-one")):
        with pytest.raises(InputError):
            call()


def test_a_record_that_is_never_drawn_but_with_probability_delta_costs_nothing():
    assert dp.epsilon(0.05, 1e-6, 10, 1e-5) == 0
    assert dp.noise_multiplier(0.1, 1e-6, 10, 1e-5, adjacency="replace-one") == dp.SPAN[0]
    assert dp.epsilon(0.2, 1e-5, 2, 1e-5) > 0  # drawn with a larger probability, and then seen through so little noise


def test_the_least_promise_is_met_and_smaller_numbers_are_refused():
    assert dp.epsilon(dp.noise_multiplier(1e-6, 1.0, 1, 1e-3), 1.0, 1, 1e-3) <= 1e-6
    for name, value in (("epsilon", 1e-300), ("sampling", 1e-300)):
        with pytest.raises(InputError, match=f"{name}: .* below what the accountants resolve"):
            dp.check(**{name: value})


def test_calibrate_prints_the_published_root_and_what_pld_saves(capsys):
    from paclab.cli import calibrate

    calibrate.calibrate(2.0, 1000, 0.064, DELTA, "add-remove")
    lines = capsys.readouterr().out.splitlines()
    by = {line.split()[0]: float(line.split()[1]) for line in lines[1:4]}
    assert by["rdp-published"] == pytest.approx(4.462, rel=1e-3) and by["pld"] < 4.167 <= by["rdp"]  # 4.167: PRV
    saved = 100 * (1 - by["pld"] / by["rdp-published"])
    assert "add-remove" in lines[0] and lines[4].startswith(f"pld saves {saved:.1f} %")
