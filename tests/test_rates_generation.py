"""Generation rates: printed vectors, brute force, bounds on thousands of points, slopes, regimes, D.6."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from paclab.errors import InputError
from paclab.languages import GenerationExample, Multiples, generate
from paclab.rates.generation import (
    exponent_gen,
    exponent_gen_free,
    gen_error,
    gen_exact,
    gen_upper,
    gen_upper_gauss,
    log_mean_of_minimum,
    log_overtake,
    novelty_bound,
    pair_upper,
    score_noise,
)
from paclab.rates.horizons import regime, user_level
from paclab.rates.logs import LN10, compositions, log_multinomial, slope
from paclab.rates.lower import exponent_lower, lower_gen, lower_two_point, lower_two_point_sharp

MASSES = [0.25, 0.125, 0.0625]


@pytest.mark.parametrize(
    ("eps", "share", "printed"),
    [
        (1.0, 32, ["0.8474", "0.6733", "0.3116", "0.02186"]),
        (2.0, 32, ["0.7734", "0.3235", "0.02291", "5.589e-05"]),
        (1.0, 1, ["0.6619", "0.337", "0.0483", "0.0004184"]),
    ],
)
def test_printed_vectors(eps, share, printed):
    found = [f"{gen_exact(n, MASSES, n // share, 9, eps).value:.4g}" for n in (50, 100, 200, 400)]
    assert found == printed
    assert f"{gen_exact(400, MASSES, 12, 9, 1.0).value:.6f}" == "0.021856"


def test_printed_exponents():
    grid = {
        0.1: (0.00625, 0.01227, 0.02408),
        0.5: (0.03125, 0.05689, 0.10355),
        1: (0.0625, 0.10355, 0.17201),
        2: (0.125, 0.17201, 0.24356),
        4: (0.24356, 0.24356, 0.28160),
    }
    for eps, (held, free, floor) in grid.items():
        assert round(exponent_gen(0.25, eps), 5) == held and round(exponent_gen_free(0.25, eps), 5) == free
        assert round(exponent_lower(0.25, eps), 5) == floor
        for g, formula in ((8, exponent_gen(0.25, eps)), (1, exponent_gen_free(0.25, eps))):
            logs = [gen_exact(n, [0.25], n // g, 9, eps).log10 for n in (2000, 4000)]
            assert float(slope([2000, 4000], logs)[0]) == pytest.approx(formula, rel=1e-4)


@pytest.mark.parametrize(
    ("masses", "eps"), [([0.3], 0.7), (MASSES, 1.0), ([0.5, 0.2], 3.0), ([0.4, 0.3, 0.2, 0.1], 0.4)]
)
def test_slopes_match_the_exponent_to_one_percent(masses, eps):
    n, p = np.array([8000, 16_000]), min(masses)
    held = [gen_exact(int(m), masses, int(m * p / 2), 5, eps).log10 for m in n]
    assert float(slope(n, held)[0]) == pytest.approx(exponent_gen(p, eps), rel=0.01)
    free = [gen_exact(int(m), masses, int(m), 5, eps).log10 for m in n]
    assert float(slope(n, free)[0]) == pytest.approx(exponent_gen_free(p, eps), rel=0.01)


def test_exponent_is_the_minimum_of_the_formula():
    x = np.linspace(1e-9, 1 - 1e-9, 400_001)
    for p, eps, theta in itertools.product((0.05, 0.4), (0.1, 1.0, 6.0), (0.02, 0.2, 0.6)):
        kl = special.rel_entr(x, p) + special.rel_entr(1 - x, 1 - p)
        wanted = float((kl + eps / 2 * np.minimum(x, theta))[x <= p].min())
        assert exponent_gen(p, eps, theta) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("masses", [[0.4], [0.3, 0.2], [0.5, 0.3, 0.2], [0.3, 0.3, 0.3], [0.1, 0.2, 0.3, 0.25]])
@pytest.mark.parametrize("mechanism", ["em", "gaussian", "argmax"])
def test_exact_by_enumerating_the_counts(masses, mechanism):
    """All multinomial outcomes with weights written out again; two sample sizes and thresholds."""
    bad, eps, delta = 4, 1.1, 0.01
    for n, g in ((8, 3), (12, 12)):
        total, sigma = 0.0, score_noise(bad + 1, eps, delta)
        for counts in itertools.product(range(n + 1), repeat=len(masses)):
            rest = n - sum(counts)
            if rest < 0:
                continue
            ways, left = 1, n
            for c in counts:
                ways, left = ways * math.comb(left, c), left - c
            p = ways * math.prod(m**c for m, c in zip(masses, counts, strict=True)) * max(0, 1 - sum(masses)) ** rest
            lead = min(min(counts), g)
            if mechanism == "em":
                fail = bad / (bad + math.exp(eps * lead / 2))
            elif mechanism == "argmax":
                fail = bad / (bad + 1) if lead == 0 else 0.0
            else:
                fail = overtake(bad, lead / sigma)
            total += p * fail
        noise = {"delta": delta} if mechanism == "gaussian" else {}
        found = gen_exact(n, masses, g, bad, eps, mechanism=mechanism, **noise)
        assert found.value == pytest.approx(total, rel=1e-8)


@functools.cache
def overtake(bad, u):
    """P(max of `bad` normals > another + u) by adaptive quadrature."""
    return integrate.quad(lambda z: stats.norm.pdf(z) * (1 - special.ndtr(z + u) ** bad), -12, 12, epsabs=1e-14)[0]


def test_overtake():
    for bad, u in itertools.product((1, 3, 50), (0.0, 0.5, 3.0, 5.0)):
        assert math.exp(log_overtake(bad, u)) == pytest.approx(overtake(bad, u), rel=1e-8)
    assert log_overtake(7, 0.0) == pytest.approx(math.log(7 / 8), abs=1e-10)
    for u in (30.0, 59.9, 60.1, 2000.0):
        assert log_overtake(1, u) == pytest.approx(special.log_ndtr(-u / math.sqrt(2)), rel=1e-9)


@pytest.mark.parametrize("masses", [[0.3, 0.3, 0.3], [0.25, 0.125, 0.0625], [0.02, 0.5, 0.4]])
def test_three_windows_against_enumeration_at_a_hundred(masses):
    n = 100
    rows = compositions(n, 4)
    log_p = log_multinomial(rows, [*masses, 1 - sum(masses)])
    for g, eps in ((5, 0.3), (100, 2.0)):
        log_phi = -np.logaddexp(0, eps / 2 * np.minimum(np.arange(n + 1), g) - math.log(9))
        wanted = float(special.logsumexp(log_p + log_phi[rows[:, :3].min(axis=1)]))
        assert log_mean_of_minimum(n, masses, log_phi) == pytest.approx(wanted, abs=1e-9)


def test_five_windows_agree_with_four_plus_a_certain_one():
    """The general route (products of Poisson sequences) against a window whose extra string never matters."""
    n, log_phi = 600, -np.logaddexp(0, 0.4 * np.minimum(np.arange(601), 12) - math.log(9))
    few = log_mean_of_minimum(n, [0.05, 0.06], log_phi)
    many = log_mean_of_minimum(n, [0.05, 0.06, 0.29, 0.3, 0.3], log_phi)
    assert many == pytest.approx(few, abs=1e-9)
    draws = np.random.default_rng(8).multinomial(300, [0.06, 0.08, 0.1, 0.12, 0.64], size=40_000)[:, :4].min(axis=1)
    log_phi = -np.logaddexp(0, 0.2 * np.minimum(np.arange(301), 15) - math.log(9))
    values = np.exp(log_phi[draws])
    found = math.exp(log_mean_of_minimum(300, [0.06, 0.08, 0.1, 0.12], log_phi))
    assert abs(values.mean() - found) < 5 * values.std() / 200


def random_points(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        window = int(rng.integers(1, 4))
        masses = rng.dirichlet(np.ones(window + 1))[:window].tolist()
        n = int(10 ** rng.uniform(0.7, 2.7))
        g = max(1, int(n * min(masses) / 2 * rng.choice([1.0, 1.0, rng.uniform(0.2, 3)])))
        yield {
            "n": n,
            "masses": masses,
            "g": min(g, n),
            "bad": int(rng.integers(1, 40)),
            "eps": 10 ** rng.uniform(-2.5, 1.5),
            "delta": 10 ** rng.uniform(-12, -1),
        }


def test_exact_never_exceeds_the_upper_bounds_on_2200_points():
    spoken = informative = 0
    for p in random_points(2200, 21):
        n, masses, g, bad, eps = p["n"], p["masses"], p["g"], p["bad"], p["eps"]
        least, window = min(masses), len(masses)
        found = gen_exact(n, masses, g, bad, eps).log10
        top = gen_upper(n, window, least, g, bad, eps)
        tight = gen_upper(n, window, least, g, bad, eps, tight=True)
        assert found <= tight.log10 + 1e-12 and tight.log10 <= top.log10 + 1e-12
        noisy = gen_exact(n, masses, g, bad, eps, mechanism="gaussian", delta=p["delta"]).log10
        assert noisy <= gen_upper_gauss(n, window, least, g, bad, eps, p["delta"]).log10 + 1e-12
        spoken += top.holds
        informative += top.holds and top.log10 < 0
    assert spoken > 900 and informative > 200


def test_lower_bound_below_the_worse_of_two_coupled_laws_on_2200_points():
    """Core u_1 of mass 1 - gamma, disjoint tails: by symmetry both laws give the same exact error (B = 1)."""
    rng, tight = np.random.default_rng(22), 0
    for p in random_points(2200, 23):
        gamma, share = float(rng.uniform(0.001, 0.999)), float(rng.uniform(0.2, 1))
        masses = [1 - gamma, gamma * share]  # the window holds the core and the tail's first string
        found = gen_exact(p["n"], masses, p["g"], 1, p["eps"]).log10
        floor = lower_gen(p["n"], gamma, p["eps"])
        assert floor <= lower_two_point(p["n"], gamma, p["eps"]) + 1e-12
        assert floor <= found + 1e-9
        assert lower_two_point_sharp(p["n"], gamma, p["eps"]) <= found + 1e-9
        tight += found - floor < 1
    assert tight > 50


def test_upper_bounds_on_the_example_family_known_and_unknown_window():
    """F7 has three good and four bad languages; enumeration with a known window and for the pair search."""
    case = GenerationExample(0.3)
    checked = 0
    for n, eps in itertools.product((16, 30, 45), (0.5, 2.0, 8.0)):
        p = min(case.window_masses(7, 7))  # 6N is a reference language
        g = generate.threshold(n, p)
        if g >= 1:
            top = gen_upper(n, 7, p, g, 4, eps)
            assert top.holds and gen_error(case, n, 7, 7, g, eps).log10 <= top.log10 + 1e-12
            checked += 1
        for reference in (3, 5, 7):  # any good language may serve
            p_h = min(case.window_masses(reference, 7))
            g = max(1, generate.threshold(n, p_h))
            top = pair_upper(n, 7, 7, p_h, g, 7, eps)
            assert gen_error(case, n, 7, 7, g, eps, pairs=True).log10 <= top.log10 + 1e-12
            checked += top.holds
    assert checked >= 15


def test_several_good_languages_against_the_definition():
    """P(bad | counts) with sum_good e^(-eps d_i / 2) in the denominator, as the reference page states it."""
    case, n, g, eps = GenerationExample(), 24, 3, 1.0
    rows = compositions(n, 4)
    p = np.exp(log_multinomial(rows, [0.5, 0.25, 0.125, 0.125]))
    n2, n4, n6 = rows[:, 0], rows[:, 1], rows[:, 2]
    d = [np.maximum(g - a, 0) for a in (n4, np.minimum(np.minimum(n2, n4), n6), n6)]
    good = sum(np.exp(-eps * x / 2) for x in d)
    bad = 4 * math.exp(-eps * g / 2)
    assert gen_error(case, n, 7, 7, g, eps).value == pytest.approx(float(p @ (bad / (bad + good))), rel=1e-10)
    wide = gen_error(case, 2000, 7, 7, 20, 1.0, samples=3000)
    assert wide.method.startswith("Rao") and wide.low <= wide.log10 <= wide.high


def test_regimes_and_their_thresholds():
    found = regime(20_000, 0.25, 8, 1e-6, 0.2)
    assert round(found.switch, 2) == 0.18 and round(found.free, 2) == 0.30
    names = [regime(20_000, 0.25, 8, 1e-6, eps).name for eps in (0.1, 0.2, 0.4)]
    assert names == ["EM better", "Gaussian pays", "free"]
    printed = {}
    for eps in (0.1, 0.3):
        em = gen_upper(20_000, 1, 0.25, 2500, 7, eps).terms["privacy"]
        gauss = gen_upper_gauss(20_000, 1, 0.25, 2500, 7, eps, 1e-6, f=8).terms["privacy"]
        printed[eps] = (round(-em), round(-gauss))
        exact = [
            gen_exact(20_000, [0.25], 2500, 7, eps, mechanism=m, f=8, **d).log10
            for m, d in (("em", {}), ("gaussian", {"delta": 1e-6}))
        ]
        assert (exact[0] < exact[1]) == (em < gauss)  # the exact errors are ordered as the bounds
    assert printed == {0.1: (53, 31), 0.3: (162, 273)}


def test_user_level_is_group_privacy():
    """m replaced strings: output-law ratio at distance m stays within m eps, and reaches a part of it."""
    assert user_level(0.1, 5) == (0.5, 0.0)
    pair = user_level(0.5, 3, 1e-6)
    assert pair.eps == 1.5 and pair.delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1.0)))
    assert user_level(10.0, 100, 1e-9).delta == 1.0
    members, n, g, eps = np.array([[1, 0], [0, 1]], dtype=bool), 8, 8, 0.4
    from paclab.releases.selection import exponential_log_law, worst_log_ratio

    for m in (1, 2, 4):
        laws = [
            exponential_log_law(generate.scores(np.array(c), members, n, g), 1.0, eps) for c in ((4, 4), (4 - m, 4 + m))
        ]
        assert 0.3 * m * eps < worst_log_ratio(*laws) <= m * eps


def test_extremes_stay_probabilities():
    for n, eps in itertools.product((1, 2, 3000), (1e-9, 1.0, 1e9)):
        for masses in ([], [1.0], [0.5, 0.5], [1e-300], [0.0, 0.3], [0.3, 0.3, 0.4], [0.25] * 4):
            for mechanism in ("em", "gaussian", "argmax"):
                noise = {"log_delta": -1e5} if mechanism == "gaussian" else {}
                for g in {0, 1, n}:
                    found = gen_exact(n, masses, g, 3, eps, mechanism=mechanism, **noise).log10
                    assert found <= 0 and not math.isnan(found)
        assert gen_exact(n, [0.5], 1, 0, eps).log10 == -math.inf  # no bad language
        top = gen_upper(n, 3, 0.2, 1, 3, eps)
        assert top.log10 <= 0 and not any(math.isnan(t) for t in top.terms.values())
    assert gen_error(Multiples(), 40, 4, 5, 2).log10 == -math.inf


# ---------------------------------------------------------------- corrections (D.6)


def test_d6_3_gaussian_generation_needs_log_1_over_delta_below_eps2_n_over_f():
    """Claim: free for delta >= exp(-poly(n)). At exp(-n^1.3) the exponent is n^0.7, not linear; at n^2.2
    none."""
    n = [10**8, 10**11]
    terms = [-gen_upper_gauss(m, 1, 0.25, m // 8, 1, 1.0, log_delta=-(m**1.3)).terms["privacy"] for m in n]
    assert math.log(terms[1] / terms[0]) / math.log(n[1] / n[0]) == pytest.approx(0.7, rel=0.01)
    stuck = [gen_exact(m, [0.25], m // 8, 9, 1.0, mechanism="gaussian", log_delta=-(m**2.2)).value for m in (100, 3000)]
    assert min(stuck) > 0.85 and gen_exact(3000, [0.25], 375, 9, mechanism="argmax").value < 1e-300


def test_d6_4_at_fixed_delta_the_gaussian_exponent_is_quadratic_in_n():
    """Claim: exp(-eps^2 .) in the place of exp(-eps .). At fixed delta it is eps^2 n^2 and wins for large
    n."""
    n = [10**7, 10**8]
    terms = [-gen_upper_gauss(m, 1, 0.25, m // 8, 1, 0.01, 1e-6).terms["privacy"] for m in n]
    assert math.log(terms[1] / terms[0]) / math.log(10) == pytest.approx(2, rel=0.01)
    for m, gauss_better in ((10**4, False), (10**6, True)):  # "pure beats Gaussian" holds at the smaller n only
        gauss = gen_upper_gauss(m, 1, 0.25, m // 8, 1, 0.01, 1e-6).terms["privacy"]
        assert (gauss < gen_upper(m, 1, 0.25, m // 8, 1, 0.01).terms["privacy"]) == gauss_better


def test_d6_6_the_printed_privacy_term_is_loose_by_two_in_the_exponent():
    n, p, eps, bad = 40_000, 0.25, 0.2, 7
    ours = -gen_upper(n, 1, p, int(n * p / 2), bad, eps).terms["privacy"] * LN10 + math.log(bad)
    paper = eps * n * p / 8
    assert ours / paper == pytest.approx(2, rel=0.01)
    assert -gen_exact(n, [p], int(n * p / 2), bad, eps).log10 * LN10 > 1.9 * paper


def test_d6_7_unknown_window_with_a_growing_search_has_no_linear_exponent():
    """Claim: exponent Omega(n) with a constant mass bound. The reference's masses fall with h, so either the
    bound does not apply and the exponent falls like 1/h, or it holds with p_h and the exponent falls with
    it."""
    case = GenerationExample()
    slopes = []
    for h in (16, 32, 64):  # p_0 = 1/4 kept: g = n/8, yet D(u_h) is far below
        assert not pair_upper(1600, h, 7, case.window_masses(5, h)[-1], 200, 7, 1.0).holds
        logs = [gen_error(case, n, 7, h, n // 8, 1.0, pairs=True, samples=1500).log10 for n in (800, 1600)]
        slopes.append(float(slope([800, 1600], logs)[0]))
    assert slopes[1] < 0.7 * slopes[0] and slopes[2] < 0.7 * slopes[1], slopes
    per_string = []
    for n in (10**3, 10**4, 10**5, 10**6):
        h = 8 + 2 * int(math.log2(n / 100) / 2)
        p_h = min(case.window_masses(5, h))
        bound = pair_upper(n, h, 7, p_h, int(n * p_h / 2), 7, 1.0)
        assert bound.holds
        per_string.append(-bound.terms["coverage"] * LN10 / n)
    assert per_string == sorted(per_string, reverse=True) and per_string[-1] < per_string[0] / 10


def test_d6_9_not_every_dp_rule_loses_the_eps_factor():
    """Claim: no differentially private algorithm evades the factor eps. The Gaussian one is below the pure
    bound."""
    n, gamma, eps, delta = 20_000, 0.25, 0.1, 1e-6
    floor = lower_gen(n, gamma, eps)
    gauss = gen_exact(n, [1 - gamma, gamma], n, 1, eps, mechanism="gaussian", delta=delta).log10
    assert gauss < floor - 100
    assert gen_exact(n, [1 - gamma, gamma], n, 1, eps).log10 > floor


def test_threshold_costs_up_to_a_factor_two():
    for eps in (0.01, 0.1):
        assert exponent_gen_free(0.25, eps) / exponent_gen(0.25, eps) == pytest.approx(2, rel=0.03)
    assert exponent_gen(0.25, 4.0) == pytest.approx(exponent_gen_free(0.25, 4.0), rel=1e-12)


def test_novelty_bound_value():
    assert novelty_bound(14) == pytest.approx(math.log10(14 / 2**14))


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: gen_exact(10.5, [0.5], 2, 1), "n"),
        (lambda: gen_exact(-1, [0.5], 2, 1), "n"),
        (lambda: gen_exact(10, [0.5], 2.5, 1), "g"),
        (lambda: gen_exact(10, [0.5], 11, 1), "g"),
        (lambda: gen_exact(10, [0.7, 0.7], 2, 1), "masses"),
        (lambda: gen_exact(10, [0.5], 2, -1), "bad"),
        (lambda: gen_exact(10, [0.5], 2, 1, 0.0), "eps"),
        (lambda: gen_exact(10, [0.5], 2, 1, mechanism="gaussian", delta=1.5), "delta"),
        (lambda: gen_exact(10, [0.5], 2, 1, mechanism="x"), "mechanism"),
        (lambda: gen_upper(10, 0, 0.5, 2, 1, 1.0), "window"),
        (lambda: gen_upper(10, 1, 1.5, 2, 1, 1.0), "p_w"),
        (lambda: lower_gen(10, 1.0, 1.0), "gamma"),
        (lambda: regime(10, 0.25, 8, 1.0, 0.1), "delta"),
        (lambda: user_level(0.1, 0), "m"),
        (lambda: pair_upper(10, 3, 2, 0.2, 1, 1, 1.0), "f"),
    ],
)
def test_bad_input(make, parameter):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.parameter == parameter
