"""Every published conversion table, high-precision roots, an actual attack, and the command `paclab risk`."""

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from paclab.cli import risk as cli_risk
from paclab.errors import InputError
from paclab.privacy import channels as ch
from paclab.privacy import risk as ri

LOG2 = np.log(2)


def printed(value, digits, unit=0.5):
    """Half of the last printed digit, with a hair for the boundary."""
    return abs(value) <= unit * 10.0**-digits * 1.001


# ---------------------------------------------------------------- published tables


@pytest.mark.parametrize(("mi", "percent", "digits"), [  # generation dossier A.2
    (1e-10, 50.00071, 5), (1e-8, 50.00707, 5), (1e-6, 50.07071, 5), (1e-5, 50.22361, 5),
    (210_000 * 2**-32, 50.4944, 4), (1e-4, 50.7071, 4), (1e6 * 2**-32, 51.0789, 4), (1e-3, 52.2357, 4),
    (1e-2, 57.0593, 4), (0.05, 65.6782, 4), (0.1, 71.9795, 4), (0.2, 80.5173, 4), (0.33, 88.1888, 4),
    (0.5, 95.1811, 4), (0.68, 99.8204, 4), (0.693148, 100, 9), (3.0, 100, 9)])
def test_success_table(mi, percent, digits):
    assert printed(100 * ri.success_from_mi(mi) - percent, digits)


GRID = {1: (67.49, 54.42, 51.10, 50.28, 50.07, 50.02, 50.00, 50.00),
        1e2: (100, 91.00, 61.00, 52.76, 50.69, 50.17, 50.04, 50.01),
        1e4: (100, 100, 100, 76.89, 56.89, 51.73, 50.43, 50.11),
        1e6: (100, 100, 100, 100, 100, 67.09, 54.31, 51.08)}


@pytest.mark.parametrize("steps", GRID)
def test_the_predecessors_grid(steps):
    b = 2.0 ** -np.arange(4, 33, 4)
    ours = 100 * ri.success_from_mi(steps * b)
    assert np.all(np.abs(ours - GRID[steps]) <= 0.00501)


@pytest.mark.parametrize(("mi", "row"), [(2.328e-4, (0.10653, 0.01222, 0.00979)),
                                         (0.1, (0.25687, 0.08051, 0.07294))])
def test_other_priors(mi, row):
    for prior, success in zip((0.1, 0.01, 1 / 128), row, strict=True):
        assert printed(ri.success_from_mi(mi, prior) - success, 5)


@pytest.mark.parametrize(("epsilon", "success", "mi"), [  # zeroth-order dossier C
    (0.04, 0.509999, 0.000200), (0.1, 0.524979, 0.001248), (0.2, 0.549834, 0.004975),
    (0.3, 0.574443, 0.011125),
    (0.5, 0.622459, 0.030300), (1, 0.731059, 0.110944), (2, 0.880797, 0.327813), (3, 0.952574, 0.502282),
    (4, 0.982014, 0.603052), (6, 0.997527, 0.675836), (8, 0.999665, 0.690129)])
def test_epsilon_table(epsilon, success, mi):
    assert printed(ri.mi_from_epsilon(epsilon) - mi, 6)
    assert printed(0.5 + ri.gain_from_epsilon(epsilon) - success, 6)
    assert ri.epsilon_from_mi(ri.mi_from_epsilon(epsilon)) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("mi", "success", "epsilon"), [
    (1e-4, 0.50707, 0.0283), (5e-4, 0.51581, 0.0633), (1e-3, 0.52236, 0.0895), (3e-3, 0.53871, 0.1552),
    (1e-2, 0.57059, 0.2843), (3e-2, 0.62186, 0.4974), (5e-2, 0.65678, 0.6490), (0.11, 0.73011, 0.9952),
    (0.20, 0.80517, 1.4189), (0.33, 0.88189, 2.0104), (0.68, 0.99820, 6.3206)])
def test_matched_epsilon_table(mi, success, epsilon):
    assert printed(ri.success_from_mi(mi) - success, 5)
    assert printed(ri.epsilon_from_mi(mi) - epsilon, 4)


def test_acceptance_values():
    assert printed(ri.success_from_mi(0.33) - 0.881888, 6) and printed(ri.success_from_mi(0.68) - 0.998204, 6)
    assert ri.epsilon_from_mi(0.5) == pytest.approx(2.98, abs=5e-3)
    assert ri.epsilon_from_mi(LOG2) == np.inf == ri.epsilon_from_mi(5.0)


@pytest.mark.parametrize(("epsilon", "percent", "nats", "tokens"), [  # generation dossier E, delta = 1e-5
    (0.01, 50.2505, 1.255e-5, 5.4e4), (0.02, 50.5005, 5.010e-5, 2.2e5), (0.0431, 51.0778, 2.324e-4, 1.0e6),
    (0.1, 52.498, 1.249e-3, 5.4e6), (0.5, 62.246, 0.03030, 1.3e8), (1, 73.106, 0.11095, 4.8e8),
    (2, 88.080, 0.32782, 1.4e9), (4, 98.201, 0.60305, 2.6e9), (6, 99.753, 0.67584, 2.9e9),
    (8, 99.966, 0.69013, 3.0e9)])  # the dossier prints 99.967: 99.96647 rounded twice
def test_equal_risk_budgets(epsilon, percent, nats, tokens):
    mi = ri.mi_from_epsilon(epsilon, 1e-5)
    assert mi == pytest.approx(nats, rel=5.1e-4 if nats < 1e-2 else 2e-4)
    assert 100 * (0.5 + ri.gain_from_epsilon(epsilon, 1e-5)) == pytest.approx(percent, abs=5.1e-4)
    assert mi * 2**32 == pytest.approx(tokens, rel=0.04)
    assert ri.epsilon_from_mi(mi, 1e-5) == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize(("epsilon", "mu", "success", "mi"), [  # zeroth-order dossier C, delta = 1e-5
    (0.2, 0.0613, 0.51223, 0.00030), (0.3, 0.0890, 0.51774, 0.00063), (0.5, 0.1422, 0.52834, 0.00161),
    (1, 0.2681, 0.55331, 0.00569), (2, 0.5016, 0.59901, 0.01973), (6, 1.3095, 0.74369, 0.12399)])
def test_gaussian_attack_table(epsilon, mu, success, mi):
    ours = ri.gdp_mu(epsilon, 1e-5)
    assert printed(ours - mu, 4) and printed(ri.gdp_success(ours) - success, 5)
    assert printed(ri.mi_from_success(ri.gdp_success(ours)) - mi, 5)


# ---------------------------------------------------------------- independent truth


@pytest.mark.parametrize("prior", [0.5, 0.1, 1 / 128, 0.9])
def test_gain_solves_its_equation_in_fifty_digits_and_errs_upwards(prior):
    for mi in (1e-30, 1e-16, 2**-32, 1e-5, 0.1, 0.99 * -np.log(prior)):
        gain = ri.gain_from_mi(mi, prior)
        with mp.workdps(60):
            pi, x = mp.mpf(prior), mp.mpf(gain)
            kl = (pi + x) * mp.log(1 + x / pi) + (1 - pi - x) * mp.log(1 - x / (1 - pi))
            assert 0 <= kl / mp.mpf(mi) - 1 < 1e-9
    assert ri.gain_from_mi(0.0, prior) == 0.0
    assert ri.gain_from_mi(-np.log(prior) + 1e-12, prior) == 1 - prior


def test_small_budgets_follow_the_square_root_law_from_below():
    mi = np.array([1e-20, 1e-12, 1e-6, 1e-2, 0.5])
    gain = ri.gain_from_mi(mi)
    assert np.all(gain <= np.sqrt(mi / 2) * (1 + 1e-11))
    np.testing.assert_allclose(gain[:2], np.sqrt(mi[:2] / 2), rtol=1e-9)


def test_round_trips_and_broadcasting():
    mi = np.geomspace(1e-9, 0.6, 9)
    np.testing.assert_allclose(ri.mi_from_success(ri.success_from_mi(mi)), mi, rtol=1e-6)
    grid = ri.success_from_mi(mi, np.array([0.5, 0.25])[:, None])
    assert grid.shape == (2, 9) and grid[1, 3] == ri.success_from_mi(mi[3], 0.25)
    assert np.all(np.diff(grid, axis=1) > 0)


def test_epsilon_is_attained_by_randomised_response():
    """The worst epsilon-DP mechanism flips with probability 1/(1+e^eps): its exact MI is the conversion."""
    for epsilon in (1e-3, 0.5, 2.0, 6.0):
        flip = 1 / (1 + np.exp(epsilon))
        assert ri.mi_from_epsilon(epsilon) == pytest.approx(ch.rr_mi(0.5, flip), rel=1e-9)
        assert 0.5 + ri.gain_from_epsilon(epsilon) == pytest.approx(1 - flip)


def test_gaussian_attack_against_simulation_and_total_variation():
    mu = ri.gdp_mu(2.0, 1e-5)
    rng = np.random.default_rng(3)
    secret = rng.integers(0, 2, 200_000)
    hits = np.count_nonzero((mu * secret + rng.standard_normal(secret.size) > mu / 2) == secret)
    interval = stats.binomtest(hits, secret.size).proportion_ci(0.9999)
    assert interval.low < ri.gdp_success(mu) < interval.high
    assert ri.gdp_delta(0.5, 0.0) == pytest.approx(0.197413, abs=5e-7)  # sigma = 2, dossier E cross-check
    assert ri.gdp_mu(1.0, 1e-5) == pytest.approx(1 / 3.7306, rel=2e-5)  # dp_accounting's calibration
    assert ri.gdp_delta(0.5, 1.99309) == pytest.approx(1e-5, rel=1e-4)


def test_gaussian_delta_matches_high_precision_and_extremes():
    for mu, epsilon in [(0.05, 0.2), (1.0, 6.0), (3.0, 0.0), (0.3, 3.0), (10.0, 700.0)]:
        with mp.workdps(60):
            m, e = mp.mpf(mu), mp.mpf(epsilon)
            exact = mp.ncdf(-e / m + m / 2) - mp.exp(e) * mp.ncdf(-e / m - m / 2)
        assert ri.gdp_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)
    for epsilon, delta in [(0.0, 1e-5), (1e-4, 1e-12), (2.0, 1e-30), (500.0, 1e-5), (1.0, 0.9)]:
        assert ri.gdp_delta(ri.gdp_mu(epsilon, delta), epsilon) == pytest.approx(delta, rel=1e-6)


def test_typical_record_gain_against_simulated_posteriors():
    """Small leakage spread over random halves: mean success is far below the bound (dossier A.6)."""
    from paclab.privacy import consensus as co
    from paclab.privacy import posterior as po
    rng = np.random.default_rng(8)
    member = co.independent_halves(2000, 128, rng)
    gains, leaks = [], []
    for _ in range(60):
        belief = po.update(po.uniform(128), 0.08 * rng.standard_normal(128))
        gains.append(np.mean(po.record_success(belief, member)) - 0.5)
        leaks.append(po.leakage(belief))
    assert np.mean(gains) == pytest.approx(np.mean(ri.typical_record_gain(np.array(leaks), 128)), rel=0.03)
    ratio = ri.gain_from_mi(np.mean(leaks)) / np.mean(gains)
    assert ratio == pytest.approx(np.sqrt(np.pi * 127 / 2), rel=0.03)


@pytest.mark.parametrize(("call", "parameter"), [
    (lambda: ri.success_from_mi(-0.1), "mi"), (lambda: ri.success_from_mi(float("nan")), "mi"),
    (lambda: ri.success_from_mi(0.1, 0.0), "prior"), (lambda: ri.success_from_mi(0.1, 1.0), "prior"),
    (lambda: ri.mi_from_success(0.4), "success"), (lambda: ri.mi_from_epsilon(-1.0), "epsilon"),
    (lambda: ri.mi_from_epsilon(1.0, 1.0), "delta"), (lambda: ri.epsilon_from_mi(0.1, -1e-5), "delta"),
    (lambda: ri.gdp_mu(1.0, 0.0), "delta"), (lambda: ri.gdp_mu(np.inf, 1e-5), "epsilon"),
    (lambda: ri.gdp_delta(0.0, 1.0), "mu"), (lambda: ri.typical_record_gain(0.1, 1), "candidates"),
    (lambda: ri.risk_card(), "mi"), (lambda: ri.risk_card(mi=0.1, epsilon=1.0), "mi")])
def test_bad_values_name_the_parameter(call, parameter):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.parameter == parameter


# ---------------------------------------------------------------- the command


def run_command(*args):
    import typer
    app = typer.Typer()
    app.callback()(lambda: None)
    cli_risk.register(app)
    return CliRunner().invoke(app, ["risk", *args])


def test_card_shows_units_bounds_and_the_protected_unit():
    out = run_command("--mi", "0.33").output
    for piece in ("0.33 nats", "0.881888", "2.0104", "0.59946", "Protected: which of the M public candidate",
                  "Not protected: membership in the pool"):
        assert piece in out
    out = run_command("--epsilon", "2", "--delta", "1e-5").output
    assert "0.327816 nats" in out and "0.59901" in out and "delta 1e-05" in out


def test_the_card_of_an_epsilon_protects_a_record_and_not_a_half():
    out = run_command("--epsilon", "2").output
    assert "Protected: whether any one record took part" in out and "half" not in out and "pool itself" not in out
    assert "matched nats, bound" in out and "\nepsilon                2  (" in out


@pytest.mark.parametrize(("mi", "delta"), [(0.33, 0.9), (0.0, 0.5), (1e-3, 0.999)])
@pytest.mark.filterwarnings("error")
def test_a_delta_that_allows_more_than_the_budget_needs_no_epsilon(mi, delta):
    assert ri.epsilon_from_mi(mi, delta) == 0.0
    assert "\nmatched epsilon, bound  0  (" in run_command("--mi", str(mi), "--delta", str(delta)).output


def test_card_at_the_ends():
    assert "infinite" in run_command("--mi", "0.7").output
    card = ri.risk_card(mi=0.0)
    assert card.success == 0.5 and card.advantage == 0 and card.epsilon == 0 and card.gaussian_success == 0.5
    assert "0.0042862" in run_command("--mi", "0.001", "--prior", "0.0078125").output


@pytest.mark.parametrize("args", [[], ["--mi", "0.3", "--epsilon", "2"], ["--mi", "-1"], ["--epsilon", "-1"],
                                  ["--mi", "0.3", "--prior", "1"], ["--mi", "nan"],
                                  ["--epsilon", "1", "--delta", "2"], ["--epsilon", "1", "--prior", "0.1"]])
def test_bad_options_raise_one_line(args):
    result = run_command(*args)
    assert isinstance(result.exception, InputError) and "\n" not in str(result.exception)


def test_installed_command_exits_with_2(capsys, monkeypatch):
    from paclab import cli
    monkeypatch.setattr("sys.argv", ["paclab", "risk", "--mi", "-1"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "mi: must be zero or more" in err
