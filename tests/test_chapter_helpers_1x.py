"""Helpers of chapters 10 and 12: the numbers behind their figures, against laws and hand computations."""

import math

import numpy as np
import pytest

from paclab.notebook import known_pool, one_bit
from paclab.privacy import channels, consensus, risk


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


# ---------------------------------------------------------------- chapter 12


def test_small_budget_laws_of_both_channels():
    gaussian, rr = one_bit.correlations(0.5, np.array([1e-8]))
    assert rr[0] == pytest.approx(math.sqrt(2e-8), rel=1e-5)
    assert gaussian[0] == pytest.approx(math.sqrt(4e-8 / math.pi), rel=1e-5)
    row = one_bit.rivals_table([1e-8]).iloc[0]
    assert row["RR / Gaussian"] == pytest.approx(one_bit.SMALL_GAIN, rel=1e-5)
    assert row["nats in the sign / beta"] == pytest.approx(one_bit.SMALL_SHARE, rel=1e-5)


def test_published_rule_overspends_tiny_budgets_and_the_certified_one_does_not():
    assert one_bit.overspend(0.5, np.array([1e-7, 5e-8])) == pytest.approx([5, 10], rel=1e-3)
    table = one_bit.inverse_table([0.5, 1 / 128], [1e-7, 1e-3, 0.1])
    assert len(table) == 5  # 0.1 nats exceed the entropy of a vote with share 1/128
    assert table["spent / beta"].between(1 - 1e-6, 1).all()


def test_vector_price_is_the_number_of_axes():
    rng = np.random.default_rng(0)
    membership = consensus.complementary_halves(100, 12, rng)
    table = one_bit.covariance_table([1, 2000], [0.0, 3.0], membership, 1e-3, rng).set_index(["decay", "d"])
    price = table["in units of one number"]
    assert price[0.0, 1] == pytest.approx(1)
    assert table["rank"][0.0, 2000] == 6  # complementary pairs: M / 2 axes
    assert 5.8 < price[0.0, 2000] <= 6
    assert price[3.0, 2000] < 2  # one dominant axis


def test_explorer_cuts_the_budget_at_the_entropy():
    assert one_bit.explorer_budget(0.01, -0.15) == pytest.approx(0.999 * channels.entropy(0.01))
    assert one_bit.explorer_budget(0.5, -2) == pytest.approx(1e-2)
    numbers = one_bit.explorer_numbers(0.5, -1)
    assert "0.4396" in numbers["correlation, randomized response"]


def test_simulated_release_spends_its_budget_and_the_attack_stays_below_the_bound():
    setting = known_pool.Setting("mi", 0.2)
    out = known_pool.simulate(setting, 60, 1, records=60, candidates=16)
    assert 0.15 < out["spent"] <= 0.2 and out["spent"] == pytest.approx(out["charged"], rel=1e-9)
    assert out == known_pool.simulate(setting, 60, 1, records=60, candidates=16)
    assert 0.5 < out["success"] <= out["exposed"] < risk.success_from_mi(0.2) + 0.1
    assert 0.3 < out["free"] < 0.85


def test_free_steps_follow_the_law():
    """f = E Phi(|t|)^M with t ~ N(0, 2.9^2) is 0.550 at M = 16 for independent candidates."""
    settings = known_pool.Setting("mi", 0.1)
    runs = [known_pool.simulate(settings, 150, s, records=200, candidates=16)["free"] for s in range(3)]
    # complementary pairs: (2 Phi - 1)^(M/2) of the same t, integrated numerically
    t = np.linspace(-25, 25, 20001)
    density = np.exp(-((t / 2.9) ** 2) / 2) / (2.9 * math.sqrt(2 * math.pi))
    inside = np.array([math.erf(abs(x) / math.sqrt(2)) for x in t]) ** 8
    law = float(np.sum(inside * density) * (t[1] - t[0]))
    assert abs(np.mean(runs) - law) < 4 * math.sqrt(law * (1 - law) / 450)


def test_attack_table_averages_and_published_rows_name_the_papers_keys():
    run = {"release": "Gaussian, as published", "total": 1e-4, "seed": 0, "charged": 1e-4, "spent": 1e-4,
           "realised": 1e-4, "free": 0.4, "success": 0.5, "exposed": 0.5, "correlation": 0.0}
    table = known_pool.attack_table([run, run | {"spent": 3e-4}])
    assert table["spent"][0] == pytest.approx(2e-4) and table["runs"][0] == 2
    rows = known_pool.published_rows(table, 1000, 128)
    assert rows["row"].tolist() == ["MI 1e-4"] and rows["reason"].tolist() == [""]
    assert known_pool.published_rows(table, 500, 128)["reason"][0] == "other T or M"


def test_chapter_12_figures_draw():
    membership = consensus.complementary_halves(60, 8, np.random.default_rng(0))
    table = one_bit.covariance_table([1, 8], [0.0], membership, 1e-3, np.random.default_rng(0))
    attacks = known_pool.attack_table([known_pool.simulate(known_pool.Setting("mi", 0.3), 20, 0, records=40,
                                                           candidates=8)])
    for figure in (one_bit.price_figure(0.33, 1000), one_bit.to_zero_figure(1000), one_bit.covariance_figure(table),
                   known_pool.risk_figure(attacks), one_bit.explorer_figure(0.01, -0.15)):
        assert figure.axes and figure.axes[0].has_data()
