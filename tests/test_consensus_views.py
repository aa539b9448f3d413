"""Chapter 11's readings of recorded differences, against enumeration, quadrature and simulation."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from paclab.chapters import consensus_explorer as explorer
from paclab.chapters import consensus_views as views
from paclab.privacy import consensus


@pytest.fixture(scope="module")
def differences():
    """[40, 200]: normal records whose mean is t standard errors from 0, t ~ N(0, 3^2)."""
    rng = np.random.default_rng(5)
    return (4 * (rng.standard_normal((40, 200)) + 3 * rng.standard_normal((40, 1)) / np.sqrt(200))).astype(np.float32)


def test_a_reading_counts_votes_as_a_loop_over_halves_does(differences):
    view = views.read(differences, 12, 60, clip=2.0, window=(3, 9))
    values = differences[3:10, :60].astype(np.float64)
    values = np.clip(values, *(np.array([-2, 2]) * np.median(np.abs(values))))
    membership = views.halves(60, 12)
    for i, row in enumerate(values):
        means = np.array([row[membership[:, m]].mean() for m in range(12)])
        assert view.plus[i] == np.mean(means > 0)
        assert bool(view.free[i]) == (len(set(np.sign(means))) == 1)
        np.testing.assert_allclose(view.means[i], means / (row.std(ddof=1) / np.sqrt(60)), rtol=1e-10)
        assert view.t[i] == pytest.approx(row.mean() / (row.std(ddof=1) / np.sqrt(60)))
    assert view.steps.tolist() == list(range(3, 10))


def test_the_mean_of_complementary_halves_is_the_pool_t(differences):
    view = views.read(differences, 16)
    np.testing.assert_allclose(view.means.mean(axis=1), view.t, rtol=1e-9)


def test_the_toy_of_six_halves_by_enumeration():
    for values, free, plus in (((4.0, 3.0, 2.0, -1.0), True, 1.0), ((4.0, 3.0, 1.0, -2.0), False, 5 / 6)):
        sums = [a + b for a, b in itertools.combinations(values, 2)]
        view = views.read(np.array([values]), 6)
        assert view.plus[0] == plus == np.mean(np.array(sums) > 0)
        assert bool(view.free[0]) is free


def test_halves_are_public_and_repeatable():
    first = views.halves(50, 10, "independent", 3)
    views.halves.cache_clear()
    assert np.array_equal(first, views.halves(50, 10, "independent", 3))
    assert not np.array_equal(first, views.halves(50, 10, "independent", 4))
    assert (first.sum(axis=1) == 5).all()


def test_simulation_of_a_single_pair_has_a_known_answer():
    """M = 2: both halves share the pool's sign iff the deviation is smaller than |t|: 2 Phi(t) - 1."""
    ts, n = np.array([0.0, 0.5, 1.0, 2.0]), 3000
    count = views.simulate(ts, 2, "complementary", n, seed=1, records=100)
    assert count[0] == 0
    for k, p in zip(count[1:], (0.3829, 0.6827, 0.9545), strict=True):
        assert abs(k / n - p) < 4 * np.sqrt(p * (1 - p) / n)


def test_simulation_shifts_like_a_pool_with_that_mean():
    """One draw serves every t: compare with counting votes of explicitly shifted pools."""
    records, repeats, ts = 40, 60, np.array([0.7, 1.8])
    for draw in views.DRAWS:
        rng = np.random.Generator(np.random.Philox(key=[9, 4]))
        expected = np.zeros(2, dtype=int)
        for _ in range(repeats):
            pool = rng.standard_normal(records)
            pool = (pool - pool.mean()) / pool.std(ddof=1)
            if draw == "independent":
                member = consensus.independent_halves(records, 4, rng)
                columns = [pool[member[:, m]] for m in range(4)]
            else:
                order = rng.permuted(np.broadcast_to(pool, (2, records)), axis=1)
                columns = [half for row in order for half in (row[:20], row[20:])]
            for i, t in enumerate(ts):
                signs = {np.sign((half + t / np.sqrt(records)).mean()) for half in columns}
                expected[i] += len(signs) == 1
        assert views.simulate(ts, 4, draw, repeats, 9, records).tolist() == expected.tolist()


def test_law_table_agrees_with_simulation_of_complementary_halves():
    """All t share the draws, so one bad draw moves them together: four standard errors."""
    table = views.law_table(np.array([1.0, 2.0, 2.5, 3.0]), [16, 64], 400, seed=0)
    ours = table[table["draw"] == "complementary"]
    error = np.sqrt(ours["law"] * (1 - ours["law"]) / 400)
    assert (ours["law minus simulated"].abs() < 4 * error + 1e-3).all()
    assert ((table["low"] <= table["simulated"]) & (table["simulated"] <= table["high"])).all()


def test_free_fraction_agrees_with_adaptive_quadrature_and_inverts():
    for tau, m, draw in itertools.product((0.7, 2.9, 10.0), (16, 128), views.DRAWS):
        assert views.by_quadrature(tau, m, draw) == pytest.approx(consensus.expected_free_fraction(tau, m, draw),
                                                                  abs=1e-9)
    tau = views.tau_for(0.395, 128)
    assert consensus.expected_free_fraction(tau, 128) == pytest.approx(0.395)
    table = views.free_fraction_table([2.9], [16, 128, 512])
    assert table["tau 2.9"].round(3).tolist() == [0.550, 0.376, 0.298]  # the dossier's table


def test_fewer_halves_and_larger_pools_are_free_more_often(differences):
    table = views.by_size(differences, [4, 64], [50, 200], repeats=4, seed=0).set_index(["N", "M", "draw"])["f"]
    for draw in views.DRAWS:
        assert table[200, 4, draw] > table[200, 64, draw]
        assert table[200, 64, draw] > table[50, 64, draw]


def test_binned_shares_add_up(differences):
    view = views.read(differences, 32)
    share, where, free, count = explorer.binned(view)
    assert count.sum() == len(view.t) and free.sum() == view.free.sum()
    assert (np.diff(where) > 0).all() and ((share >= 0) & (share <= 1)).all()


def test_rolling_means():
    assert views.rolling(np.array([1.0, 0.0, 0.0, 1.0]), 2).tolist() == [1.0, 0.5, 0.0, 0.5]
    assert views.rolling(np.array([3.0, 1.0]), 10).tolist() == [3.0, 2.0]


def test_figures_draw_and_the_explorer_reacts(differences):
    import matplotlib.pyplot as plt

    from paclab.notebook import plots

    arguments = {"candidates": 32, "size": 200, "clip": np.inf, "threshold": 2.5, "window": (0, 39)}
    figure = explorer.explorer_figure(differences, **arguments)
    other = explorer.explorer_figure(differences, **{**arguments, "candidates": 8})
    assert plots.png_bytes(figure, 50) != plots.png_bytes(other, 50)
    low, high = (explorer.explorer_numbers(differences, **{**arguments, "candidates": m}) for m in (64, 4))
    assert float(low["f, share of free steps"]) < float(high["f, share of free steps"])
    view = views.read(differences, 32)
    explorer.headline_figure(view, 32)
    views.training_figure({"one": [view, view]}, 5, 32)
    views.size_figure(views.by_size(differences, [4, 16], [50, 200], 1, 0))
    views.law_figure(views.law_table(np.array([1.0, 3.0]), [4], 20, 0))
    plt.close("all")


def test_recorded_runs_are_studies_and_repeatable_settings():
    named = views.runs(seed=3, seeds=2, steps=5, lora_steps=4, pool=60, candidates=6, model="embedded", repeats=9)
    assert [c.seed for c in named["LoRA"]] == [3, 4] and {c.steps for c in named["full fine-tuning"]} == {5}
    assert all(c.study and c.method == "paczero-zpl" and c.candidates == 6 for some in named.values() for c in some)


def test_a_run_is_read_with_its_own_halves(differences):
    named = views.runs(seed=0, seeds=1, steps=40, lora_steps=1, pool=200, candidates=8, model="embedded")
    cell = SimpleNamespace(run={"keys": {"subsets": 11}}, config=named["LoRA"][0])
    stream = np.random.Generator(np.random.Philox(11))
    membership = consensus.complementary_halves(200, 8, stream)
    votes = np.sign(differences.astype(float) @ membership)
    assert views.own(cell, differences).free.tolist() == (np.abs(votes.sum(axis=1)) == 8).tolist()


def test_half_way_is_where_the_law_is_one_half():
    for m in (2, 16, 126):
        assert consensus.free_step_probability(views.half_way(m), m, "complementary") == pytest.approx(0.5)


def test_the_ladder_and_the_papers_tau(differences):
    ladder = views.agreement_ladder(differences, [4, 16, 64])
    assert ladder["f"].is_monotonic_decreasing and (ladder["I(half; ZPL releases), nats"] == 0).all()
    table = views.beside_the_paper({"LoRA": [views.read(differences, 32)]}, 32)
    sst = table[table["where"] == "paper, SST-2"].iloc[0]
    assert 2.6 < sst["tau low"] < sst["tau"] < sst["tau high"] < 3.5  # the dossier: about 2.7 to 3.4
    assert table.iloc[-1]["status"].startswith("not comparable")
