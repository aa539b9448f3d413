"""Helpers of chapters 10 and 12: the numbers behind their figures, against laws and hand computations."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from paclab.chapters import known_pool, one_bit, peak_memory
from paclab.chapters import zeroth_order as zo
from paclab.chapters import zeroth_order_model as lab
from paclab.notebook import tables
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


# ---------------------------------------------------------------- chapter 10

RECORDS = [{"sentence": s, "label": i % 2} for i, s in enumerate(
    ["a dull mess", "a warm , funny film", "bad", "good", "slow and sad", "a joy from start to end"])]


def test_toy_estimates_average_to_the_gradient():
    theta = np.array([2.0, 1.0])
    corners = [np.array([a, b]) for a in (1.0, -1.0) for b in (1.0, -1.0)]
    slopes = [zo.two_point(zo.bowl, theta, z, 0.3) for z in corners]
    assert slopes == pytest.approx([6, -2, 2, -6])
    assert np.mean([g * z for g, z in zip(slopes, corners, strict=True)], axis=0) == pytest.approx([2, 4])


def test_descents_reach_the_bottom_of_the_bowl():
    for path in zo.descent_paths(40, 0.1, 1).values():
        assert path.shape == (41, 2) and zo.bowl(path[-1]) < 0.02 * zo.bowl(path[0])


def test_estimator_error_and_cosine_follow_their_laws():
    table = zo.variance_table([5, 40], [1, 8], 400, 0)
    gap = (table["error, measured"] - table["error, (d + 1)/K"]).abs() / table["standard error"]
    assert gap.max() < 4.5
    assert table["cosine (rms), measured"].to_numpy() == pytest.approx(table["cosine, law"].to_numpy(), rel=0.12)
    assert zo.cosine_law(10, 1) == pytest.approx(math.sqrt(0.1))  # one direction: a random unit vector


def test_two_point_error_has_a_valley_between_rounding_and_truncation():
    curves = zo.error_curves()
    for name, floor in (("fp64", 1e-8), ("fp32", 1e-3)):
        error = curves[name].error
        assert error.min() < floor and error[0] > error.min() and error[-1] > 100 * error.min()
    assert zo.curve_error("fp64", 1e-2) == pytest.approx(100 * zo.curve_error("fp64", 1e-3), rel=0.1)  # order mu^2
    assert zo.curve_error("fp32", 1e-3) < zo.curve_error("fp16", 1e-3) < zo.curve_error("bf16", 1e-3)


def test_in_place_restore_drifts_as_measured_and_updates_are_lost():
    known = {"fp32": 8.5e-7, "fp16": 0.007, "bf16": 0.055}
    for name, dtype in zo.DTYPES.items():
        assert zo.drift(dtype, 200, size=1 << 13)["drift"].iloc[-1] == pytest.approx(known[name], rel=0.15)
    assert zo.lost_updates(torch.float16, 0.0, 1e-4) == pytest.approx(0.995, abs=0.005)
    assert zo.lost_updates(torch.float16, 0.02, 1e-4) == pytest.approx(0.045, abs=0.005)
    ones = torch.ones(1, dtype=torch.float16)
    assert (ones + 2.0**-11 == ones).item() and not (ones + 2.0**-11 * 1.01 == ones).item()


def test_live_bytes_counts_what_is_alive_and_not_views():
    with peak_memory.LiveBytes() as meter:
        a = torch.zeros(1000)
        a.view(10, 100).add_(1)
        b = a + 1
        del a
        c = b * 2
        del b, c
    assert meter.peak == 8000 and meter.live == 0


def test_gains_are_paired_and_keyed_as_the_papers():
    zero = {0: SimpleNamespace(score=np.array([1.0, 0, 0, 1]), loss=np.full(4, 0.7))}
    config = SimpleNamespace(method="mezo", seed=0, k=1)
    metrics = [{"step": 0, "dev_loss": 0.7, "dev_score": 0.5}, {"step": 4, "dev_loss": 0.6, "dev_score": 0.75}]
    cells = [SimpleNamespace(config=config, score=np.array([1.0, 1, 0, 1]), loss=np.full(4, 0.6), metrics=metrics)]
    table = lab.gain_table(cells, zero).set_index("method")
    assert table["gain, points"]["mezo"] == pytest.approx(25)
    assert table["gain, half width"]["mezo"] == pytest.approx(1.96 * 25)  # sd of (0, 100, 0, 0) is 50, over sqrt(4)
    compared = tables.compare(lab.paper_rows(table.reset_index(), "embedded"), tables.load_published("paczero"))
    assert compared["ours"].notna().sum() == 2
    assert set(compared.loc[compared["ours"].notna(), "status"].str.partition(" (")[0]) == {"not comparable"}
    found = lab.curves(cells)
    assert found["forwards"].tolist() == [0, 8]
    backprop = pd.DataFrame({"forwards": [0, 3], "dev_loss": [0.7, 0.5], "dev_score": [0.5, 0.8]})
    changes = lab.training_figure(found, backprop).axes[0].lines[0].get_ydata()
    assert changes == pytest.approx([0, -0.1])


def test_two_point_slopes_equal_backpropagation_on_the_model(embedded):
    before = {name: p.clone() for name, p in embedded.module.named_parameters()}
    assert lab.slope_check(embedded, RECORDS, 2, 1, 1e-3)["error"].max() < 0.02
    assert lab.restored_exactly(embedded, RECORDS, 2, 3)
    pair = lab.slices(embedded, RECORDS, np.array([-1e-3, 0.0, 1e-3]), 1, 3)
    assert pair[0, 1] == pytest.approx(pair[0].mean(), abs=1e-3)
    memory = peak_memory.memory_table(embedded, RECORDS, 1, ks=(4, 8)).set_index("method")["on top, MiB"]
    assert memory["two-point, in place"] < memory["two-point, kept copy"] < memory["backpropagation, AdamW"]
    four, eight = (memory[f"two-point, kept copy, K = {k}"] for k in (4, 8))
    size = sum(p.numel() * p.element_size() for p in embedded.module.parameters()) / peak_memory.MIB
    assert eight - four == pytest.approx(4 * size, rel=0.05)  # every direction of a step is kept
    assert all(torch.equal(before[name], p) for name, p in embedded.module.named_parameters())
    assert all(p.grad is None and not p.requires_grad for p in embedded.module.parameters())


def test_chapter_10_figures_draw():
    published = peak_memory.published_memory()
    memory = pd.DataFrame({"method": ["a"], "weights, MiB": [1.0], "on top, MiB": [2.0]})
    scales, losses = np.linspace(-0.01, 0.01, 3), np.ones((2, 3))
    for figure in (zo.paths_figure(zo.descent_paths(5, 0.1, 0)), zo.explorer_figure(-3, 1, 6),
                   zo.variance_figure(zo.variance_table([5], [1, 2], 5, 0)),
                   peak_memory.memory_figure(memory, published),
                   lab.slice_figure(scales, losses, 1e-3, np.ones((2, 2))),
                   zo.drift_figure({"fp32": zo.drift(torch.float32, 10, size=64)})):
        assert figure.axes and figure.axes[0].has_data()
    assert "cosine" in " ".join(zo.explorer_numbers(-3, 1, 6))
