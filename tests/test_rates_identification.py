"""Identification rates: printed vectors, brute force, bounds on thousands of points, slopes, D.6."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from paclab.errors import InputError
from paclab.languages import Multiples, Prefixes, Regular, Residues, TwoAtoms, identify
from paclab.rates.horizons import growth
from paclab.rates.identification import (
    cramer_rate,
    exponent_id,
    id_error,
    id_exact,
    id_upper,
    id_upper_gauss,
    statistics_cramer,
    statistics_hoeffding,
    trinomial_log_pmf,
)
from paclab.rates.logs import LN10, compositions, log_multinomial, slope
from paclab.rates.lower import lower_two_point, lower_two_point_sharp

VECTORS = {  # D.8: alpha = .1, beta = .6, f = 6, P(wrong)
    ("em", 0.5): ["4.146e-01", "3.331e-01", "1.996e-01", "5.854e-02", "3.851e-03"],
    ("em", 1.0): ["3.342e-01", "1.996e-01", "5.854e-02", "3.851e-03", "1.495e-05"],
    ("em", 2.0): ["2.015e-01", "5.859e-02", "3.851e-03", "1.495e-05", "2.234e-10"],
    ("margin", 1.0): ["8.462e-03", "3.163e-04", "8.299e-07", "5.405e-12", "4.442e-22"],
    ("argmax", 1.0): ["2.519e-03", "4.653e-05", "1.390e-08", "1.699e-15", "3.525e-29"],
}


@pytest.mark.parametrize(("mechanism", "eps"), VECTORS)
def test_printed_vectors(mechanism, eps):
    found = [
        f"{id_exact(n, 0.1, 0.6, 6, eps, mechanism=mechanism).value:.3e}" for n in (100, 200, 400, 800, 1600)
    ]
    assert found == VECTORS[mechanism, eps]


def test_printed_slopes():
    for eps, measured, formula in ((0.5, 0.00340, 0.00347), (1, 0.00694, 0.00694), (2, 0.01389, 0.01389)):
        logs = [id_exact(n, 0.1, 0.6, 6, eps).log10 for n in (800, 1600)]
        assert round(float(slope([800, 1600], logs)[0]), 5) == measured
        assert round(exponent_id(0.1, 0.6, 6, eps), 5) == formula
    assert round(cramer_rate(0.1, 0.6, 1 / 3), 5) == 0.02875
    logs = [id_exact(n, 0.1, 0.6, 6, mechanism="margin").log10 for n in (800, 1600)]
    assert round(float(slope([800, 1600], logs)[0]), 4) == 0.0290


@pytest.mark.parametrize(
    ("alpha", "beta", "f", "eps"),
    [
        (0.1, 0.6, 6, 0.5),
        (0.1, 0.6, 6, 2.0),
        (0.05, 0.9, 4, 1.0),
        (0.2, 0.95 - 0.2, 7, 3.0),
        (0.6, 0.1, 6, 1.0),
        (0.02, 0.5, 6.5, 60.0),
    ],
)
def test_slopes_match_the_exponent_to_one_percent(alpha, beta, f, eps):
    n = [20_000, 40_000]
    logs = [id_exact(m, alpha, beta, f, eps).log10 for m in n]
    assert float(slope(n, logs)[0]) == pytest.approx(exponent_id(alpha, beta, f, eps), rel=0.01)


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.6), (0.3, 0.7), (0.0, 0.4), (0.25, 0.0), (1e-9, 0.5)])
def test_trinomial_pmf_with_exact_fractions(alpha, beta):
    n = 40
    a, b = Fraction(alpha), Fraction(beta)
    rest = max(Fraction(0), 1 - a - b) if alpha + beta < 1 - 1e-15 else Fraction(0)
    exact = [Fraction(0)] * (2 * n + 1)
    for i, j in itertools.product(range(n + 1), repeat=2):
        if i + j <= n:
            ways = math.comb(n, i) * math.comb(n - i, j)
            exact[n + j - i] += ways * a**i * b**j * rest ** (n - i - j)
    found = trinomial_log_pmf(n, alpha, beta)
    for x, p in enumerate(exact):
        if p == 0:
            assert found[x] == -math.inf
        else:
            wanted = math.log(p.numerator) - math.log(p.denominator)
            assert found[x] == pytest.approx(wanted, abs=1e-11)


def test_trinomial_deep_tails_and_sum():
    n = 20_000
    log_pmf = trinomial_log_pmf(n, 0.3, 0.2)
    assert log_pmf[0] == pytest.approx(n * math.log(0.3), rel=1e-12)
    assert log_pmf[-1] == pytest.approx(n * math.log(0.2), rel=1e-12)
    assert math.fsum(np.exp(log_pmf)) == pytest.approx(1, abs=1e-10)
    x = np.arange(-n, n + 1)
    assert math.fsum(np.exp(log_pmf) * x) == pytest.approx(-n * 0.1, rel=1e-9)


@pytest.mark.parametrize("mechanism", ["em", "gaussian", "margin", "argmax"])
def test_exact_by_listing_all_sequences(mechanism):
    """All 3^7 sequences of two atoms, scores and laws written out again."""
    n, f, eps, delta = 7, 4.5, 1.3, 0.01
    for alpha, beta in ((0.1, 0.6), (0.5, 0.2)):
        star = 1 if beta < alpha else 2
        sigma = identify.score_noise(identify.horizon(f, 2), n, eps, "replace", delta)
        total = 0.0
        for word in itertools.product("abt", repeat=n):
            p = math.prod({"a": alpha, "b": beta, "t": 1 - alpha - beta}[letter] for letter in word)
            margin = (word.count("b") - word.count("a")) / n
            q1, q2 = 1.0, 2 - f * f * max(2 / f - margin, 0)
            lead = q2 - q1 if star == 2 else q1 - q2
            wrong = {
                "em": 1 / (1 + math.exp(eps * lead * n / (4 * f * f))),
                "gaussian": stats.norm.sf(lead / (math.sqrt(2) * sigma)),
                "margin": float((margin > 2 / f) != (star == 2)),
                "argmax": 0.5 if lead == 0 else float(lead < 0),
            }[mechanism]
            total += p * wrong
        found = id_exact(
            n, alpha, beta, f, eps, mechanism=mechanism, delta=delta if mechanism == "gaussian" else None
        )
        assert found.value == pytest.approx(total, rel=1e-9)


def test_enumeration_agrees_with_the_closed_form():
    for mechanism in ("em", "gaussian", "margin"):
        for n in (5, 60, 301):
            options = {"mechanism": mechanism, "delta": 1e-4 if mechanism == "gaussian" else None}
            closed = id_exact(n, 0.15, 0.5, 6, 0.8, **options).log10 + math.log10(0.35)
            assert id_error(TwoAtoms(0.15, 0.5), n, 6, 0.8, **options).log10 == pytest.approx(
                closed, abs=1e-9
            )


def test_rao_blackwell_interval_covers_the_exact_risk():
    case, covered = Residues(), 0
    exact = id_error(case, 60, 10.0, 2.0).value
    for seed in range(20):
        rng = np.random.default_rng(seed)
        cells = case.cells(4)
        draws = rng.multinomial(60, list(cells.values()), size=400)
        law = np.exp(
            identify.exponential_law(
                draws @ ~np.array(list(cells)), 60, identify.horizon(10.0, 4), 2.0, "replace"
            )
        )
        risk = law @ (np.array([case.error(i) for i in (1, 2, 3, 4)]) - case.infimum)
        from paclab.rates.logs import bernstein_interval

        low, high = bernstein_interval(risk)
        covered += low <= exact <= high
    assert covered >= 19
    estimate = id_error(case, 400, 10.0, 2.0, samples=500)
    assert estimate.method.startswith("Rao") and estimate.low <= estimate.log10 <= estimate.high


def random_points(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        alpha, beta = rng.dirichlet((1, 1, 1))[:2].tolist()
        yield {
            "n": int(10 ** rng.uniform(0.3, 3.2)),
            "alpha": alpha,
            "beta": beta,
            "eps": 10 ** rng.uniform(-2.5, 1.5),
            "f": float(rng.uniform(2, 12)),
            "delta": 10 ** rng.uniform(-12, -1),
        }


def test_exact_never_exceeds_the_upper_bounds_on_2500_points():
    spoken = informative = 0
    for p in random_points(2500, 11):
        case = TwoAtoms(p["alpha"], p["beta"])
        gap = abs(p["beta"] - p["alpha"])
        known = {"i_star": case.i_star, "gap": case.gap, "k": 2, "excess": gap}
        em = id_exact(p["n"], p["alpha"], p["beta"], p["f"], p["eps"]).log10 + math.log10(gap)
        top = id_upper(p["n"], p["f"], p["eps"], **known)
        assert em <= top.log10 + 1e-12
        noisy = id_exact(
            p["n"], p["alpha"], p["beta"], p["f"], p["eps"], mechanism="gaussian", delta=p["delta"]
        )
        top_noisy = id_upper_gauss(p["n"], p["f"], p["eps"], p["delta"], **known)
        assert noisy.log10 + math.log10(gap) <= top_noisy.log10 + 1e-12
        spoken += top.holds
        informative += top.holds and top.log10 < math.log10(gap)
    assert spoken > 900 and informative > 150


def test_tighter_statistics_bound_the_gap_event_on_500_points():
    """P(lead of i* below 1) <= Cramer sum <= Hoeffding sum, two to four languages, by enumeration."""
    rng, met = np.random.default_rng(12), 0
    for _ in range(500):
        masses = rng.dirichlet((1, 1, 2, 1)).round(4)
        masses[2] += 1 - masses.sum()
        case = Residues(tuple(masses.tolist()))
        n, f = int(rng.integers(3, 45)), float(rng.uniform(4, 20))
        scale = identify.horizon(f, 4)
        errors = [case.error(i) for i in range(1, 5)]
        rows = compositions(n, 4)
        q = identify.scores(n - rows, n, scale)
        lead = q[:, case.i_star - 1] - np.delete(q, case.i_star - 1, axis=1).max(axis=1)
        missed = (
            np.exp(log_multinomial(rows[lead < 1 - 1e-9], masses)).sum() if (lead < 1 - 1e-9).any() else 0.0
        )
        cramer = statistics_cramer(n, case, case.i_star, scale)
        assert missed <= math.exp(min(cramer, 0)) * (1 + 1e-9)
        assert cramer <= statistics_hoeffding(n, errors, case.i_star, scale) + 1e-9
        met += cramer < 0
    assert met > 80


@pytest.mark.parametrize("case", [Residues((0.1, 0.2, 0.7)), Multiples(), Prefixes(), Regular(stop=0.3)])
def test_upper_bound_on_other_families(case):
    for n, eps, f in itertools.product((20, 200), (0.5, 8.0), (4.5, 6.5)):
        k = identify.horizon(f, case.languages).k
        excess = max(case.error(i) for i in range(1, k + 1)) - case.infimum
        top = id_upper(n, f, eps, i_star=case.i_star, gap=case.gap, k=k, excess=excess)
        assert id_error(case, n, f, eps, samples=2000).low <= top.log10 + 1e-12


def test_lower_bound_below_the_worse_of_two_coupled_laws_on_2500_points():
    """D_b = (1 - gamma) Q + gamma R_b with Q on both atoms and the tail; wrong index and excess risk."""
    rng, tight = np.random.default_rng(13), 0
    for p in random_points(2500, 14):
        gamma = float(rng.uniform(0.001, 0.95))
        shared = float(rng.uniform(0, (1 - gamma) / 2))
        laws = [(shared, shared + gamma), (shared + gamma, shared)]
        for mechanism in ("em", "argmax"):
            eps = p["eps"] if mechanism == "em" else 500.0
            worst = max(id_exact(p["n"], a, b, p["f"], eps, mechanism=mechanism).log10 for a, b in laws)
            floor, sharp = lower_two_point(p["n"], gamma, eps), lower_two_point_sharp(p["n"], gamma, eps)
            assert floor <= sharp + 1e-9 and sharp <= floor + math.log10(2) + 1e-9
            assert sharp <= worst + 1e-9
            tight += worst - floor < 1
    assert tight > 50


def best_rule(n, gamma, eps, delta):
    """Smallest possible max_b P_b(wrong) over all (eps, delta)-DP binary rules, by linear programming."""
    from scipy.optimize import linprog

    states = [(a, b) for a in range(n + 1) for b in range(n + 1 - a)]
    at = {s: k for k, s in enumerate(states)}

    def law(pa, pb):
        ways = [math.comb(n, a) * math.comb(n - a, b) for a, b in states]
        return np.array(
            [w * pa**a * pb**b * (1 - pa - pb) ** (n - a - b) for w, (a, b) in zip(ways, states, strict=True)]
        )

    zero, one = law(gamma, 0.0), law(0.0, gamma)  # under law 0 choosing 2 is wrong, under law 1 choosing 1 is
    rows, ends = [np.append(zero, -1), np.append(-one, -1)], [0.0, -1.0]
    moves = [(1, 0), (0, 1), (-1, 0), (0, -1), (1, -1), (-1, 1)]
    for s in states:
        for move in moves:
            t = (s[0] + move[0], s[1] + move[1])
            if t in at:
                row = np.zeros(len(states) + 1)
                row[at[s]], row[at[t]] = 1, -math.exp(eps)
                rows.append(row)
                ends.append(delta)
                row = np.zeros(len(states) + 1)
                row[at[s]], row[at[t]] = -1, math.exp(eps)
                rows.append(row)
                ends.append(math.exp(eps) - 1 + delta)
    found = linprog(np.append(np.zeros(len(states)), 1), A_ub=np.array(rows), b_ub=ends, bounds=(0, 1))
    return found.fun


@pytest.mark.parametrize("delta", [0.0, 0.02])
@pytest.mark.parametrize("eps", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9])
def test_lower_bounds_against_the_best_rule_there_is(gamma, eps, delta):
    """A linear program finds the optimal DP rule for n = 1..6: no bound is above it, and n = 1 is
    attained."""
    for n in (1, 3, 6):
        optimum = best_rule(n, gamma, eps, delta)
        sharp = 10 ** lower_two_point_sharp(n, gamma, eps, delta)
        assert sharp <= optimum + 1e-7
        if delta == 0:
            assert 10 ** lower_two_point(n, gamma, eps) <= optimum + 1e-7
        if n == 1:
            assert sharp == pytest.approx(optimum, abs=1e-7)


def test_extremes_stay_probabilities():
    for n, eps, f in itertools.product((1, 2, 10_000), (1e-9, 1.0, 1e9), (2, 6, 1000.0)):
        for alpha, beta in ((0.1, 0.6), (0.0, 1.0), (1.0, 0.0), (1e-300, 0.5), (0.5, 0.5 - 1e-12)):
            for mechanism in ("em", "margin", "argmax"):
                found = id_exact(n, alpha, beta, f, eps, mechanism=mechanism).log10
                assert found <= 0 and not math.isnan(found)
            noisy = id_exact(n, alpha, beta, f, eps, mechanism="gaussian", log_delta=-1e6).log10
            assert noisy <= 0 and not math.isnan(noisy)
        top = id_upper(n, f, eps, i_star=2, gap=0.5)
        assert top.log10 <= 0 and not any(math.isnan(t) for t in top.terms.values())
        for bottom in (lower_two_point(n, 0.3, eps), lower_two_point_sharp(n, 0.3, eps, 0.1)):
            assert bottom <= 0 and not math.isnan(bottom)


# ---------------------------------------------------------------- corrections (D.6)


def test_d6_2_at_constant_eps_pure_dp_reaches_the_approximate_rate():
    """Claim: pure DP pays exp(-min{1, eps} r(n)). At eps = 1/2 the pure rule beats exp(-r(n)) for r =
    sqrt(n)."""
    eps, n = 0.5, 200_000
    r = math.sqrt(n)
    log_error = id_exact(n, 0.1, 0.6, 6, eps).log10 * LN10
    assert log_error < -r < -eps * r  # the approximate-DP bound exp(-r), which is claimed to be out of reach
    case, small = identify.horizon(6, 2), np.array([[3, 0], [2, 1]])
    p, q = identify.exponential_law(small, 5, case, eps, "replace")
    assert (
        np.maximum(np.exp(p) - np.exp(eps + q), 0).sum() <= 1e-15
    )  # pure DP is (eps, delta)-DP for every delta


def test_d6_3_tiny_deltas_are_not_free():
    """Claim: zero cost for delta >= exp(-poly(n)). Already at exp(-n/10) the Gaussian rule loses to the
    pure one."""
    n = 1600
    gauss = id_exact(n, 0.1, 0.6, 6, 1.0, mechanism="gaussian", log_delta=-n / 10).value
    assert 0.15 < gauss < 0.3 and id_exact(n, 0.1, 0.6, 6, 1.0).value < 2e-5
    errors = [
        id_exact(m, 0.1, 0.6, 6, 1.0, mechanism="gaussian", log_delta=-(m**2.2)).value
        for m in (400, 1600, 6400)
    ]
    assert min(errors) > 0.49  # sixteen times the data do not help
    plain = [id_exact(m, 0.1, 0.6, 6, mechanism="margin").log10 for m in (400, 6400)]
    assert plain[1] < -75 and plain[0] < -6


def test_d6_8_tight_in_the_factor_only():
    """Upper exponent per string falls to 0 with f -> inf, the lower bound's does not: o(n) against O(n)."""
    horizon = growth("sqrt_log", 4.0)
    rate = [
        -id_upper(n, horizon(n), 1.0, i_star=2, gap=0.5).terms["privacy"] * LN10 / n
        for n in (1e5, 1e10, 1e20, 1e40)
    ]
    assert rate == sorted(rate, reverse=True) and rate[-1] < rate[0] / 5
    low = [-lower_two_point(n, 0.5, 1.0) * LN10 / n for n in (10**5, 10**10)]
    assert low[0] == pytest.approx(low[1], rel=1e-3)


def test_d6_10_the_log_horizon_is_no_optimum_and_c_moves_only_n0():
    """A slower horizon has the larger exponent n/f^2; a larger c lowers n_0 and the exponent alike."""
    slow, fast = growth("log_log", 4.0), growth("sqrt_log", 4.0)
    for n in (1e6, 1e12, 1e30):
        assert n / slow(n) ** 2 > n / fast(n) ** 2
    zeros = [growth("sqrt_log", c).log10_n0(2, 0.5) for c in (1.0, 4.0, 16.0)]
    assert zeros == pytest.approx([36 / LN10, 9 / LN10, 2.25 / LN10])
    assert growth("power", 0.25).log10_n0(2, 0.5) == pytest.approx(4 * math.log10(6))
    assert growth("constant", 5.0).log10_n0(2, 0.5) == math.inf == growth("power", 0.3).log10_n0(1, 0.0)
    assert isinstance(identify.horizon(fast(1e5)).k, int) and identify.horizon(6.9).k == 6


def test_n0_is_where_the_hypothesis_starts():
    for kind, c in (("sqrt_log", 4.0), ("power", 0.3)):
        horizon = growth(kind, c)
        n0 = 10 ** horizon.log10_n0(2, 0.5)
        for n, holds in ((n0 * 1.01, True), (n0 * 0.99, False)):
            assert id_upper(math.ceil(n), horizon(n), 1.0, i_star=2, gap=0.5).holds == holds


def test_d6_11_gaussian_with_a_power_horizon():
    """Exponent n^(2 - 5a) against n^(1 - 2a) of the exponential mechanism: Gaussian wins for a < 1/3 only."""
    grid = [10**14, 10**18]
    for a in (0.1, 0.2, 0.4):
        known = [{"n": n, "f": float(n) ** a, "eps": 0.5, "i_star": 2, "gap": 0.5} for n in grid]
        front = [math.log10(int(k["f"]) - 1) for k in known]  # the factor k - 1 is not part of the exponent
        gauss = [
            log - id_upper_gauss(**k, delta=1e-6).terms["privacy"]
            for log, k in zip(front, known, strict=True)
        ]
        pure = [log - id_upper(**k).terms["privacy"] for log, k in zip(front, known, strict=True)]
        growths = [math.log(x[1] / x[0]) / math.log(grid[1] / grid[0]) for x in (gauss, pure)]
        if a < 0.4:
            assert growths[0] == pytest.approx(2 - 5 * a, rel=0.01)
            assert gauss[1] > pure[1]
        else:
            assert gauss[1] <= pure[1]
        assert growths[1] == pytest.approx(1 - 2 * a, rel=0.01)


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: id_exact(10.5, 0.1, 0.6, 6), "n"),
        (lambda: id_exact(0, 0.1, 0.6, 6), "n"),
        (lambda: id_exact(10, 0.1, 0.6, 1.5), "f"),
        (lambda: id_exact(10, 0.1, 0.6, 6, -1.0), "eps"),
        (lambda: id_exact(10, 0.3, 0.3, 6), "beta"),
        (lambda: id_exact(10, 0.9, 0.6, 6), "masses"),
        (lambda: id_exact(10, 0.1, 0.6, 6, mechanism="gaussian", delta=1.0), "delta"),
        (lambda: id_exact(10, 0.1, 0.6, 6, mechanism="gaussian"), "delta"),
        (lambda: id_upper(10, 6, 1.0, i_star=0, gap=0.5), "i_star"),
        (lambda: id_upper(10, 6, 1.0, i_star=2, gap=0.5, excess=2.0), "excess"),
        (lambda: lower_two_point(10, 1.5, 1.0), "gamma"),
        (lambda: growth("linear", 1.0), "growth"),
        (lambda: growth("power", 0.6), "growth constant"),
        (lambda: growth("sqrt_log", 0), "growth constant"),
    ],
)
def test_bad_input(make, parameter):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.parameter == parameter
