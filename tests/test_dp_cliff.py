"""Chapter 21's plan, theory and tables: against the package's accountant, simulation, enumeration, and by hand."""

import math
from pathlib import Path

import numpy as np
import pytest

from paclab import sweep
from paclab.chapters import dp_cliff as dc
from paclab.chapters import dp_cliff_equal as side
from paclab.chapters import dp_cliff_explorer as theory
from paclab.chapters import dp_cliff_figures as figures
from paclab.chapters import dp_cliff_tables as tables
from paclab.chapters import rows
from paclab.chapters import sentiment_table as sentiment
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.privacy import dp, risk

ASKED = {"epsilons": [2.0, 0.5], "directions": [4, 16], "laplace": [6.0], "probes": 32, "rates": [0.1, 1.0],
         "clips": [0.5, 2.0], "seeds": 2, "search_seeds": 1, "search_dev": 300, "metric": "dev_loss",
         "paczero": ["zpl-coin"], "paczero_steps": 8, "zpl_trials": 4, "finalists": 0, "pool": 200, "held_out": 60,
         "dev": 40,
         "model": "embedded", "seed": 3}
TEST = 60


@pytest.fixture
def plan():
    return dc.plan_of(**ASKED)


def cell(config, correct=0.6):
    """A finished run with invented results: every step's clipped sum is twice the noise."""
    rng = np.random.default_rng([config.seed, config.k])
    score = (rng.random(TEST) < correct).astype(float)
    infos = [{"signal": [0.5] * config.k, "clipped": 0.25, "batch": 10} for _ in range(config.steps)]
    metrics = [{"step": 0, "dev_loss": 0.7, "dev_score": 0.5},
               {"step": config.steps, "dev_loss": abs(math.log10(config.lr / 1e-3)) if config.lr else 0.6,
                "dev_score": 0.6}]
    return Cell(config, {"release": {"noise_multiplier": 2.0, "noise_std": 0.25}}, np.full(TEST, 0.65), score, infos,
                metrics, Path("."))


@pytest.fixture
def results(plan, monkeypatch):
    zero = rows.Reference(np.full(TEST, 0.69), np.arange(TEST) % 2.0, 0.5, np.arange(TEST) % 2, np.ones(TEST))
    monkeypatch.setattr(sweep, "run_trials", lambda configs, root, **_: [cell(c) for c in configs])
    monkeypatch.setattr(dc, "run_cells", lambda configs, root, **_: [cell(c) for c in configs])
    monkeypatch.setattr(rows, "zero_shot", lambda config: zero)
    return dc.experiment(plan, Path("."))


# ---------------------------------------------------------------- plan and search


def test_every_family_costs_the_same_forwards_and_is_searched_equally(plan):
    assert [f.key for f in plan.families] == ["dpzero", "aggzo-4", "aggzo-16", "laplace"]
    trials = dc.search(plan)
    assert {dc.forwards(c) for c in trials} == {2 * 64 * 32}
    assert {(c.k, c.steps) for c in trials} == {(1, 32), (4, 8), (16, 2)}
    groups = {}
    for c in trials:
        groups.setdefault((c.method, c.k, c.epsilon), set()).add((c.lr, c.clip))
    assert {len(found) for found in groups.values()} == {4} and len(groups) == 3 * 2 + 1
    assert {c.seed for c in trials} == {1003} and {c.dev for c in trials} == {300}
    sweep.check(trials, dc.PER, "dev_loss")


def test_search_seeds_and_reported_seeds_never_meet(plan):
    twice = plan._replace(finalists=2)
    assert plan.final_seeds == [] and twice.final_seeds == [1004, 1005]
    assert not {*twice.final_seeds} & {*twice.search_seeds, *twice.seeds}
    assert not set(plan.seeds) & set(plan.search_seeds)
    with pytest.raises(InputError, match="seed: reaches the search seeds"):
        dc.plan_of(**ASKED | {"seed": 999})


@pytest.mark.parametrize("change, words", [
    ({"epsilons": [2.0]}, "epsilons: .* do not make a curve"), ({"rates": [1.0]}, "rates: .* is no search"),
    ({"rates": [1.0, 1.0]}, "rates: .* holds a value twice"), ({"clips": [0.5, 0.5]}, "clips: .* holds a value twice"),
    ({"paczero": ["mezo"]}, "paczero: lacks zpl-coin"), ({"directions": [64]}, "directions: K = 64 takes more"),
    ({"zpl_trials": 9}, "zpl_trials: 9 against 4 of every other method"),
])
def test_plans_that_show_nothing_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        dc.plan_of(**ASKED | change)


def test_one_setting_for_all_is_the_widest_familys_at_epsilon_two(plan, results):
    wide = results.picked["aggzo-16", 2.0]
    assert results.reused == wide and plan.reference == 2.0
    for family in plan.families:
        for e in family.epsilons:
            best = min((abs(math.log10(c.lr / 1e-3)), c.lr) for c in dc.search(plan)
                       if (c.method, c.k, c.epsilon) == (family.method, family.k, e))[1]
            assert results.picked[family.key, e].lr == best  # the invented loss is best at 1e-3
    kept = [results.cells[dc.AS_PUBLISHED, f, e] for f in ("dpzero", "aggzo-4", "aggzo-16") for e in (0.5, 2.0)]
    assert {(c.config.lr, c.config.clip) for cells in kept for c in cells} == {(wide.lr, wide.clip)}
    assert (dc.AS_PUBLISHED, "laplace", 6.0) not in results.cells
    assert [c.config.seed for c in kept[0]] == [3, 4] and {c.config.schedule for c in kept[0]} == {"constant"}


def test_zpl_is_searched_by_as_many_trials_on_the_same_seeds(plan, results):
    trials = dc.zpl_search(plan)
    own = results.paczero["zpl-coin"][0].config.learning_rate()
    assert np.allclose([c.lr / own for c in trials], np.geomspace(0.1, 10, 5)[1:], rtol=1e-5)
    assert {(c.method, c.seed, c.dev, c.steps) for c in trials} == {("paczero-zpl", 1003, 300, 8)}
    best = min(trials, key=lambda c: abs(math.log10(c.lr / 1e-3))).lr
    assert [c.config.lr for c in results.zpl[dc.SEARCHED]] == [best, best] and best != own
    assert results.zpl[dc.AS_PUBLISHED] == results.paczero["zpl-coin"]
    assert 1.0 in [c.lr / own for c in dc.zpl_search(plan._replace(zpl_trials=9))]
    tried = tables.grid(results)
    tried = tried[tried["method"] == "PACZero-ZPL, coin"]
    assert len(tried) == 4 and tried.loc[tried["best"] == "best", "lr"].tolist() == [best]
    assert tables.grid(results)["trials"].nunique() == 1


def test_a_second_round_reaches_every_search(plan, results, monkeypatch):
    """Of the methods with differential privacy, of ZPL, and of PACZero at equal forwards."""
    asked = []
    monkeypatch.setattr(sweep, "run_trials", lambda configs, root, **_: [asked.append(c) or cell(c) for c in configs])
    monkeypatch.setattr(side, "run_cells", lambda configs, root, **_: [cell(c) for c in configs])
    twice = plan._replace(finalists=1)
    r = dc.experiment(twice, Path("."))
    equal = side.experiment(twice, ["paczero-zpl", "paczero-mi"], Path("."))
    for tuned in (r.tuned, r.zpl_tuned, equal.tuned):
        assert tuned.finalists == 1 and (tuned.grid.loc[tuned.grid["best"] != "", "seeds"] == 3).all()
    assert {c.seed for c in asked} == {*twice.search_seeds, *twice.final_seeds}


def test_without_a_search_zpl_keeps_the_packages_rate(plan, monkeypatch):
    monkeypatch.setattr(sweep, "run_trials", lambda configs, root, **_: [cell(c) for c in configs])
    monkeypatch.setattr(dc, "run_cells", lambda configs, root, **_: [cell(c) for c in configs])
    monkeypatch.setattr(rows, "zero_shot", lambda config: rows.Reference(
        np.full(TEST, 0.69), np.arange(TEST) % 2.0, 0.5, np.arange(TEST) % 2, np.ones(TEST)))
    r = dc.experiment(plan._replace(zpl_trials=0), Path("."))
    assert r.zpl_tuned is None and [c.config for c in r.zpl[dc.SEARCHED]] == [c.config for c in r.paczero["zpl-coin"]]
    assert not tables.relations(r)["claim"].str.contains("ZPL, searched|helps ZPL").any()
    assert "the search for PACZero-ZPL" in plan._replace(zpl_trials=0).left_out()


def test_the_quick_plan_says_what_it_leaves_out(plan):
    assert "ε 0.2" in plan.left_out() and "3 of 5 seeds" in plan.left_out() and "PACZero-RR" in plan.left_out()
    full = dc.plan_of(**ASKED | {"epsilons": [0.2, 0.3, 0.5, 1.0, 2.0, 6.0], "seeds": 5,
                                 "paczero": list(dc.PACZERO_ROWS)})
    assert full.left_out() == "Nothing left out."


# ---------------------------------------------------------------- theory


@pytest.mark.parametrize("sampling, steps", [(0.064, 128), (0.064, 1000), (1.0, 8)])
def test_the_fast_calibration_is_safe_and_near_the_packages(sampling, steps):
    for epsilon in (0.2, 2.0):
        fast = theory.multipliers(sampling, steps, 1e-5, (epsilon,))[0]
        assert dp.epsilon(fast, sampling, steps, 1e-5, "pld") <= epsilon
        assert fast <= 1.02 * dp.noise_multiplier(epsilon, sampling, steps, 1e-5, "rdp")


def test_renyi_without_sampling_is_the_gaussian_law():
    found = theory.renyi(np.array([0.7, 3.0]), 1.0)
    assert found == pytest.approx(theory.ORDERS / (2 * np.array([[0.7], [3.0]]) ** 2), rel=1e-10)


def test_gain_is_the_expected_decrease_of_a_noisy_step_on_a_bowl():
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    for r in (0.3, 1.0):
        for s in (0.2, 5.0):
            slope = 1 + nodes / np.sqrt(s)
            expected = np.sum(weights * (1 - (1 - r * slope) ** 2)) / weights.sum()
            assert theory.gain(r, s) == pytest.approx(expected, rel=1e-10)
    assert theory.gain(0.5, 1 / 3) == pytest.approx(0, abs=1e-15)
    grid = np.linspace(0.01, 1, 500)
    assert grid[np.argmax(theory.gain(grid, 0.25))] == pytest.approx(theory.best_rate(0.25), abs=2e-3)
    assert theory.gain(theory.best_rate(0.25), 0.25) == pytest.approx(0.2)


def test_signal_power_is_unbiased_and_counts_clipped_vectors():
    rng = np.random.default_rng(0)
    values = 2.0 + 10 * rng.standard_normal((4000, 50))
    found = theory.signal(values, 1, 1e9)
    assert found.power == pytest.approx(4.0, abs=0.4) and found.variance == pytest.approx(100, rel=0.02)
    assert found.clipped == 0
    blocks = theory.signal(values, 4, 1e9)  # K at a time, nothing clipped: the same numbers
    assert blocks.power == pytest.approx(found.power) and blocks.variance == pytest.approx(found.variance)
    assert theory.signal(np.array([[3.0, -3.0], [4.0, -4.0]]), 2, 1e-3).clipped == 1.0


def test_the_outlook_finds_its_own_cliff():
    rng = np.random.default_rng(1)
    differences = 1.8 * rng.standard_normal((16, 1)) + 12 * rng.standard_normal((16, 300))
    o = theory.outlook(differences, 1000, 128, 1, 20.0)
    assert (o.tuned >= o.kept - 1e-12).all() and (o.tuned > 0).all()
    i = int(np.searchsorted(theory.EPSILONS, o.cliff))
    assert o.kept[i - 1] < 0 <= o.kept[i]
    more = theory.outlook(differences, 10_000, 128, 1, 20.0)
    assert more.cliff < o.cliff or math.isnan(more.cliff)  # a larger pool moves the cliff out
    assert len(theory.draw(differences, 0.5, 1000, 128, 1, 20.0).axes) == 2
    assert theory.numbers(differences, 0.5, 1000, 128, 1, 20.0)["directions' worth, rate fitted"].endswith("of 128")


# ---------------------------------------------------------------- tables


def test_attack_matched_epsilon_inverts_the_gaussian_attack():
    for epsilon in (0.2, 2.0, 6.0):
        assert tables.attack_matched(risk.gdp_success(risk.gdp_mu(epsilon, 1e-5))) == pytest.approx(epsilon, rel=1e-6)
    assert tables.attack_matched(0.5) == 0.0


def test_table_three_has_the_papers_layout(results):
    table = tables.table_3(results)
    assert list(table.columns) == ["method", "learning rate and clip", "trials", "ε = 0.5", "ε = 2"]
    assert table["method"].tolist().count("DPZero, K = 1") == 2
    zpl = table[table["method"] == "PACZero-ZPL, coin"].iloc[0]
    assert zpl["ε = 0.5"] == zpl["ε = 2"] == tables.said(rows.interval(c.score for c in results.paczero["zpl-coin"]))
    assert table[table["method"].str.startswith("DP-ZO")].iloc[0]["ε = 2"] == "-"  # run at 6 only


def test_runs_carry_settings_noise_and_the_protected_unit(results):
    table = tables.runs(results)
    first = table.iloc[0]
    assert first["signal / noise, power"] == pytest.approx(4.0) and first["clipped"] == 0.25  # (0.5 / 0.25)^2
    assert first["promise"] == "(0.5, 1e-05)-DP" and "one record more or less" in first["protects"]
    laplace = table[table["method"].str.contains("Laplace")].iloc[0]
    assert laplace["promise"] == "(6, 0)-DP"
    zpl = table[table["method"] == "PACZero-ZPL, coin"].iloc[0]
    assert zpl["promise"] == "0 nats about the half" and zpl["forwards"] == 2 * 200 * 8


def test_our_rows_have_keys_of_the_paper_and_never_match(results):
    ours = tables.our_rows(results)
    beside = tables.beside_the_paper(ours, "desk")
    assert ours["reason"].str.contains("not OPT-1.3B").all() and not ours.duplicated(["table", "row", "column"]).any()
    assert (beside["status"] == "match").sum() == 0
    assert set(ours["column"]) == {"eps 0.5", "eps 2.0", "SST-2 1.3B"}


def test_published_small_epsilons_stand_side_by_side():
    table = tables.small_epsilons()
    own = table[table["printed by"].str.startswith("DP-AggZO") & (table["task"] == "SST-2")].set_index("method")
    assert own.loc["AggZO K=256", "ε = 0.5"] == 90.9  # Bao et al., table 4
    house = table[table["printed by"].str.startswith("PACZero")].set_index("method")
    assert house.loc["DP-AggZO K=64", "ε = 0.5"] == 65.94 and house.loc["DPZero K=1", "ε = 2"] == 85.78


def test_relations_compare_on_the_same_sentences(results):
    table = tables.relations(results)
    line = table[table["claim"] == f"ZPL is ahead of DPZero, K = 1, ε = 0.5, {dc.AS_PUBLISHED}"].iloc[0]
    assert line["paper, points"] == pytest.approx(88.99 - 51.03)
    gap = np.mean([z.score.mean() - c.score.mean() for z, c in zip(
        results.paczero["zpl-coin"], results.cells[dc.AS_PUBLISHED, "dpzero", 0.5], strict=True)])
    assert line["ours, points"] == pytest.approx(100 * gap)


def test_accounting_and_equal_compute_agree_with_the_accountants():
    table = tables.accounting([2.0], [(0.064, 1000)]).iloc[0]
    assert table["published rule (RDP)"] == pytest.approx(4.462, abs=2e-3)  # dossier D3
    assert table["PLD"] == pytest.approx(4.167, rel=1e-2)  # PRV in the same table, an upper bound too
    assert table["ε of the published noise, by PLD"] < 2.0
    equal = tables.equal_compute(1000, {20_000: [1, 16]}, [0.5])
    assert equal["T"].tolist() == [20_000, 1250]
    ratio = equal["noise of one number, against the first K"].tolist()
    assert ratio[0] == 1 and ratio[1] == pytest.approx(1, abs=0.02)  # the regime where noise grows like sqrt T


def test_risk_table_has_bound_attack_and_unit_on_both_sides(plan):
    table = tables.risks(plan, attack_runs=1, steps=40).iloc[1]
    assert table["ε"] == 2.0 and table["bound-matched nats"] == pytest.approx(0.3278, abs=2e-4)
    assert table["bound on any guess, both"] == pytest.approx(0.8808, abs=1e-4)
    assert table["best attack, Gaussian DP"] == pytest.approx(0.59901, abs=1e-4)  # dossier C
    assert 0.5 < table["attack on PACZero, mean record"] < table["attack on PACZero, most exposed"]
    assert table["attack-matched ε, mean record"] < 2.0
    assert table["DP protects"] == tables.RECORD and table["PACZero protects"] == tables.HALF


def test_attacks_move_the_same_row_along_the_axis(results, monkeypatch):
    found = sentiment.Attack(np.zeros((1, 1)), np.array([0.5, 0.533]), 0.641)
    monkeypatch.setattr(sentiment, "attack", lambda cell: found)
    results = results._replace(paczero={"rr-0.33": results.paczero["zpl-coin"], **results.paczero})
    table = tables.exposures(results).set_index("key")
    assert table.loc["rr-0.33", "bound-matched ε"] == pytest.approx(2.0104, abs=1e-3)  # dossier C
    assert table.loc["zpl-coin", "bound-matched ε"] == 0.0
    mean, worst = (table.loc["rr-0.33", f"attack-matched ε, {who}"] for who in ("mean record", "most exposed"))
    assert risk.gdp_success(risk.gdp_mu(mean, 1e-5)) == pytest.approx(0.533) and mean < 2.0104 < worst
    assert len(figures.matched(results, table.reset_index()).axes) == 3


def test_figures_show_every_family(results):
    left, right = figures.cliff(results).axes
    assert len(right.get_legend().get_texts()) == 5 and left.get_title() == dc.AS_PUBLISHED
    assert figures.search(results).axes[0].get_ylabel().startswith("dev loss")
    by_score = results._replace(tuned=results.tuned._replace(metric="dev_score"))
    assert [ax.get_ylabel() for ax in figures.search(by_score).axes] == ["dev accuracy, best clip", "", "", ""]
    assert "searched" in figures.sentence(results) and results.tuned.note().startswith("Picked by dev_loss")


def test_the_grid_names_families_and_marks_one_winner_each(results):
    grid = tables.grid(results)
    assert (grid["best"] == "best").sum() == 7 + 1 == len(results.picked) + 1 and len(grid) == 28 + 4
    assert set(grid["method"]) == {f.name for f in results.plan.families} | {"PACZero-ZPL, coin"}


def test_the_search_keeps_the_step_length_when_the_clip_varies(results):
    grid = tables.grid(results._replace(zpl_tuned=None))
    assert set(grid["step length"]) == set(results.plan.rates)
    for _, some in grid.groupby(["method", "ε", "step length"]):
        assert len(some) == len(results.plan.clips) == some["clip"].nunique()
        np.testing.assert_allclose(some["lr"] * some["clip"], (some["lr"] * some["clip"]).iloc[0])
    for line in grid.to_dict("records"):  # two of each: a winner is always at an end of both, any other at none
        steps, clips = line["edge"].split(", ") if line["best"] else ("", "")
        wanted = "smallest" if line["step length"] == min(results.plan.rates) else "largest"
        assert steps == (f"step {wanted}" if line["best"] else "") and clips.startswith("clip " * bool(line["best"]))


# ---------------------------------------------------------------- PACZero at equal forwards

METHODS = ["paczero-zpl", "paczero-mi", "paczero-rr"]


@pytest.fixture
def equal(plan, results, monkeypatch):
    monkeypatch.setattr(side, "run_cells", lambda configs, root, **_: [cell(c, 0.8) for c in configs])
    return side.experiment(plan, METHODS, Path("."))


def test_paczero_gets_as_many_forwards_trials_and_search_seeds_as_a_dp_row(plan):
    trials = side.search(plan, METHODS)
    theirs = dc.search(plan)
    assert {dc.forwards(c) for c in trials} == {2 * 200 * 10}  # ten steps of 200 records, 32 batches of 64: 2 % off
    groups = {}
    for c in trials:
        groups.setdefault((c.method, c.mi), set()).add(c.lr)
    assert len(groups) == 1 + 2 * 2 and {len(found) for found in groups.values()} == {plan.trials} == {4}
    assert {(c.seed, c.dev) for c in trials} == {(c.seed, c.dev) for c in theirs}
    sweep.check(trials, side.PER, "dev_loss")


def test_budgets_bound_a_guess_like_their_epsilon(plan):
    for kind in side.kinds(plan, METHODS):
        if kind.epsilon is None:
            assert kind == side.Kind("paczero-zpl", None) and kind.nats is None
        else:
            bound = (math.exp(kind.epsilon) + 1e-5) / (1 + math.exp(kind.epsilon))
            assert risk.success_from_mi(kind.nats) == pytest.approx(bound, abs=1e-6)


def test_what_is_reported_ran_at_the_rate_that_its_own_search_picked(plan, equal):
    for kind, cells in equal.cells.items():
        tried = [c for c in side.search(plan, METHODS) if (c.method, c.mi) == (kind.method, kind.nats)]
        best = min(tried, key=lambda c: abs(math.log10(c.lr / 1e-3))).lr  # the invented loss is best at 1e-3
        assert [(c.config.seed, c.config.lr, c.config.test) for c in cells] == [(3, best, 60), (4, best, 60)]
    assert (side.grid(equal)["best"] == "best").sum() == 5


def test_tables_at_equal_forwards_pair_the_same_sentences(results, equal):
    said = side.relations(results, equal).set_index("claim")
    assert len(said) == 3 * 3 * 2  # three releases, three Gaussian families, two epsilons
    mine, theirs = equal.cells[side.Kind("paczero-rr", 0.5)], results.cells[dc.SEARCHED, "aggzo-4", 0.5]
    gap = np.mean([a.score.mean() - b.score.mean() for a, b in zip(mine, theirs, strict=True)])
    assert said.loc["PACZero-RR is ahead of DP-AggZO, K = 4, ε = 0.5", "ours, points"] == pytest.approx(100 * gap)
    shown = side.table(results, equal)
    assert len(shown) == 3 * 2 + 1 + 5 and shown["trials"].nunique() == 1
    assert side.compute_ratio(results, equal) == pytest.approx(shown["forwards"].max() / shown["forwards"].min())
    third = tables.table_3(results, equal).set_index("method")
    assert third.loc["PACZero-MI, T = 10: the DP rows' forwards", "trials"] == "4 per ε"
    assert third.loc["PACZero-ZPL, coin, T = 10: the DP rows' forwards", ["ε = 0.5", "ε = 2"]].nunique() == 1
    assert "PACZero-MI" in side.left_out(["paczero-zpl"]) and side.left_out(METHODS) == ""


def test_the_figure_at_equal_forwards_draws(results, equal):
    import matplotlib.pyplot as plt

    figure = figures.equal(results, equal)
    assert len(figure.axes[0].get_legend_handles_labels()[0]) == 3 + 2 + 1
    plt.close(figure)
