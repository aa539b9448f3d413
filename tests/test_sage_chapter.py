"""Chapter 22's helpers: the bowl against its law, noise against chi-squares, and the comparisons on tiny real runs."""

import dataclasses
import math
import warnings

import numpy as np
import pandas as pd
import pytest

from paclab import finetune
from paclab.chapters import rows
from paclab.chapters import sage_figures as figures
from paclab.chapters import sage_table as table
from paclab.chapters import sage_toy as toy
from paclab.chapters.sage_table import DECAY, FIXED, ORACLE, PLAIN, SAGE, Group, Plan, Setting
from paclab.errors import InputError
from paclab.experiments import load_cell
from paclab.notebook import tables
from paclab.releases.oracle import NOT_PRIVATE
from paclab.zo import sage, update

# ---------------------------------------------------------------- toys


def walk(lr, std, seed, steps=40, d=30, k=4):
    """The bowl with every coordinate kept: final |theta|^2 / 2 of the plain step."""
    rng, theta = np.random.default_rng(seed), np.ones(d)
    for _ in range(steps):
        z = rng.standard_normal((k, d))
        theta = theta - lr / k * (z @ theta + std * rng.standard_normal(k)) @ z
    return theta @ theta / 2


def test_following_the_radius_is_the_whole_walk_in_distribution():
    size = {"steps": 40, "d": 30, "k": 4}
    short = [toy.descend(update.PLAIN, 0.03, 2.0, seed, **size).loss[-1] for seed in range(600)]
    full = [walk(0.03, 2.0, seed) for seed in range(600)]
    law = toy.expected_loss(0.03, 2.0, **size)[-1]
    error = np.std(full) / math.sqrt(600)
    assert np.mean(full) == pytest.approx(law, abs=4 * error) and np.mean(short) == pytest.approx(law, abs=4 * error)
    assert np.std(short) == pytest.approx(np.std(full), rel=0.15)


def test_the_bowl_shows_help_harm_and_timing():
    frame = toy.bowl_table([0.004, 0.008, 0.03, 0.06], range(4)).set_index(["regime", "lr"])
    said = frame["SAGE against the fixed scale"]
    assert said["noise dominates", 0.03] == said["the signal is clear", 0.06] == "helps"
    assert said["noise dominates", 0.008] == said["the signal is clear", 0.004] == "hurts"
    best = toy.bowl_answers(frame.reset_index()).set_index("regime")
    for regime in toy.REGIMES:  # SAGE wants a larger rate, and gets deeper than a constant factor of the same mean
        assert best.loc[regime, f"{toy.SAGE_RUN}: best lr"] > best.loc[regime, f"{toy.PLAIN_RUN}: best lr"]
        assert (best.loc[regime, f"{toy.SAGE_RUN}: loss there"]
                < best.loc[regime, f"{toy.FIXED_RUN}: loss there"])


def test_side_by_side_controls():
    runs = toy.side_by_side(0.03, 10.0, 1, steps=80)
    factors = runs[toy.SAGE_RUN].factors
    assert (factors[:toy.WARMUP] == 1).all() and 0.1 <= factors.min() < factors.max() == 1
    assert set(runs[toy.FIXED_RUN].factors) == {float(factors.mean())}
    assert set(runs[toy.PLAIN_RUN].factors) == set(runs[toy.DECAY_RUN].factors) == {1.0}
    twin = toy.descend(update.Rule("spy", sage.init, lambda s, t, values: (s, 1.0 if len(set(values)) == 1 else 0.0)),
                       0.03, 10.0, 1, steps=5, oracle=True)
    assert (twin.factors == 1).all()  # the oracle sees K equal values: the energy itself


def test_best_factor_is_wieners_up_to_one_constant():
    frame = toy.wiener_table(toy.steps_by_noise([0.0, 1.0, 3.0, 10.0]))
    assert frame["ratio"].max() / frame["ratio"].min() < 1.1
    assert (frame["change at the best factor"] < 0).all()
    assert frame["change at factor 1"].is_monotonic_increasing


def test_floors_against_chi_square_moments():
    frame = toy.floor_table([1, 16], [0.9, 0.99], 20_000, 0)
    for line in frame.itertuples(index=False):
        k, beta, warmup, spread, law, floor, passes = line
        assert law == pytest.approx(math.sqrt(2 / k * (1 - beta) / (1 + beta)))
        assert spread == pytest.approx(law, rel=0.03) and floor > law and warmup >= 20
        assert 0.12 < passes < 0.19  # one standard deviation of a nearly normal average: 0.16


def test_a_constant_signal_is_shrunk_on_average():
    frame = toy.steady_table([16], [0.3, 30.0], 30, 0).set_index("true rho")
    assert frame.loc[0.3, "mean factor"] + 3 * frame.loc[0.3, "s.e."] < 1
    assert 0.98 < frame.loc[30.0, "mean factor"] < 1 and frame.loc[30.0, "gated"] == 0


@pytest.mark.parametrize("course", toy.COURSES)
def test_played_runs_change_only_what_was_moved(course):
    one, other = (toy.play(course, 16, noise, 0.9, 20) for noise in (0.5, 0.25))
    assert other.truth == pytest.approx(4 * one.truth) and one.floor == other.floor
    assert (one.alpha[:20] == 1).all() and len(one.alpha) == toy.LENGTH
    assert toy.play(course, 16, 0.5, 0.9, 20).alpha.tolist() == one.alpha.tolist()
    assert one.reference == one.rho[19]


def test_the_explorer_draws_every_corner():
    recorded = np.linspace(4, 2, 7)
    run = toy.play_named(recorded, toy.RECORDED, k=4, noise=1.0, tracking=0.9, warmup=5)
    assert run.truth[0] == 1 and run.truth[-1] == pytest.approx(0.5) and len(run.truth) == toy.LENGTH
    assert toy.play_named(recorded, "fades", k=4, noise=1.0, tracking=0.9, warmup=5).truth[-1] < 0.06
    for k, noise, warmup in ((1, 10.0, 1), (64, 0.1, 100)):
        run = toy.play("breaks off", k, noise, 0.99, warmup, "sqrt")
        assert len(figures.explorer(run).axes) == 2
        assert "factor" in " ".join(toy.played_numbers(run))


# ---------------------------------------------------------------- plans


PLAN = {"models": ["embedded"], "bases": ["dp-aggzo", "geodpzo-lc"], "directions": [1, 16, 64], "steps": [100, 32, 16],
        "wide": [1, 16], "epsilons": [2.0, 0.5], "rates": [0.25, 1.0, 4.0], "seeds": 5, "warmup": 0.2, "batch": 32,
        "pool": 1000, "held_out": 2000, "dev": 500, "seed": 3}


def test_the_plan_covers_the_grid_once():
    plan = table.plan_of(**PLAN, toy_seeds=3)
    settings = plan.settings()
    assert len(settings) == len(set(settings)) == 2 * 2 * 3 + 1 + 1
    assert Setting(Group("embedded", "dp-aggzo", 64, 2.0), 1.0) in settings
    assert Setting(Group("embedded", "geodpzo-lc", 16, 2.0), 1.0) in settings
    assert [s.factor for s in plan.of(Group("embedded", "dp-aggzo", 16, 0.5))] == [0.25, 1.0, 4.0]
    assert {(s.group.k, s.group.epsilon) for s in plan.decays()} == {(1, 2.0), (16, 2.0)} and len(plan.decays()) == 6
    assert plan.seeds == [3, 4, 5, 6, 7] and plan.left_out(PLAN) == "Nothing left out."


def test_other_models_and_bases_run_at_the_papers_promises():
    plan = table.plan_of(**PLAN | {"models": ["embedded", "masked"], "epsilons": [2.0, 0.5, 6.0]})
    settings = plan.settings()
    others = [s for s in settings if (s.group.model, s.group.base) != ("embedded", "dp-aggzo")]
    expected = {Group("masked", "dp-aggzo", k, e) for k in (1, 16, 64) for e in (2.0, 6.0)}
    expected |= {Group(model, "geodpzo-lc", 16, e) for model in ("embedded", "masked") for e in (2.0, 6.0)}
    assert {s.group for s in table.plan_of(**PLAN | {"models": ["embedded", "masked"], "epsilons": [2.0, 0.5, 6.0],
                                                     "wide": [1, 16, 64]}).settings()
            if s.group.base == "geodpzo-lc"} == {g for g in expected if g.base == "geodpzo-lc"} | {
                Group("embedded", "geodpzo-lc", 64, e) for e in (2.0, 6.0)}
    assert {s.group for s in others} == expected and {s.factor for s in others} == {1.0}
    assert [s.group.epsilon for s in settings if s.group.k == 64 and s.group.model == "embedded"] == [2.0, 6.0]
    assert len(settings) == len(set(settings)) == 2 * 3 * 3 + 2 + len(expected)
    assert table.plan_of(**PLAN | {"epsilons": [0.5]}).published() == [0.5]


@pytest.mark.parametrize(("name", "value"), [("steps", [3]), ("wide", [4]), ("wide", []), ("batch", 2000)])
def test_plans_that_do_not_fit_together(name, value):
    with pytest.raises(InputError, match=name):
        table.plan_of(**PLAN | {name: value})


def test_a_quick_plan_says_what_is_missing():
    quick = table.plan_of(**PLAN | {"directions": [16], "steps": [8], "wide": [16], "epsilons": [2.0], "seeds": 1,
                                    "rates": [1.0, 4.0], "bases": ["dp-aggzo"]})
    said = quick.left_out(PLAN)
    missing = ("geodpzo-lc", "directions 1, 64", "epsilons 0.5", "rates 0.25", "4 of 5 seeds")
    assert all(words in said for words in missing)


def test_settings_of_a_run():
    plan = table.plan_of(**PLAN)
    setting = Setting(Group("embedded", "dp-aggzo", 16, 0.5), 4.0)
    plain, shrunk, slow, fixed = (table.config(plan, setting, 7, kind, factor) for kind, factor in
                                  ((PLAIN, None), (SAGE, None), (DECAY, None), (FIXED, 0.5)))
    assert plain.lr == pytest.approx(4 * rows.recipe("dp-aggzo", "ft", 16).lr)
    assert (plain.schedule, slow.schedule, slow.rule, plain.study) == ("constant", "linear", "plain", True)
    assert shrunk.warmup == 6 and plain.warmup is None and (fixed.rule, fixed.factor) == ("fixed", 0.5)
    assert plain == dataclasses.replace(shrunk, rule="plain", warmup=None)
    assert table.config(plan, setting, 7, ORACLE).rule == "sage-oracle" and plain.sampling == 0.032


# ---------------------------------------------------------------- verdicts


def test_verdicts_need_the_whole_interval():
    lower = rows.Interval(-0.02, 0.01, 0.05)
    assert table.verdict(lower, "loss") == "helps" and table.verdict(lower, "score") == "hurts"
    assert table.verdict(rows.Interval(-0.02, 0.03, 0.0), "loss") == "no difference"
    assert table.verdict(rows.Interval(-0.02, float("nan"), 0.05), "loss") == "no difference"  # one seed: sentences
    assert table.verdict(rows.Interval(0.0, 0.0, 0.0), "loss") == "no difference"


# ---------------------------------------------------------------- the whole chain on a tiny model


@pytest.fixture(scope="module")
def tiny(tiny_model):
    """A random GPT-2 of one layer, and sixty one-line reviews."""
    return tiny_model


TINY = Plan(["tiny"], ["dp-aggzo", "geodpzo-lc"], [1, 4], [12, 12], [4], [90.0], [1.0, 30.0], [0, 1], 0.25, batch=10,
            pool=30, test=12, dev=6)


@pytest.fixture(scope="module")
def results(tiny, tmp_path_factory):
    """`run_all` with real runs, in this process instead of in workers."""
    made, plain_config = [], table.config

    def small(*given):
        c = plain_config(*given)
        return dataclasses.replace(c, model=str(tiny), source=str(tiny / "films.csv"), accountant="rdp-published",
                                   clip=20.0 / math.sqrt(c.k))

    def run_cells(configs, root, *, record=False, watch=None):
        from paclab.experiments import _recorder, cell_name
        folders = [root / cell_name(c, record) for c in configs]
        for c, folder in zip(configs, folders, strict=True):
            if not folder.exists():
                finetune.start(c, folder, device="cpu", record_statistic=_recorder(folder) if record else None)
                made.append(c)
        return [load_cell(folder) for folder in folders]

    def zero_shot(config):
        n = config.test
        return rows.Reference(np.full(n, 0.7), np.arange(n) % 2.0, 0.5, np.arange(n) % 2, np.ones(n))

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", sage.UndetectableSignal)
        patch.setattr(table, "config", small)
        patch.setattr(table, "run_cells", run_cells)
        patch.setattr(rows, "zero_shot", zero_shot)
        yield table.run_all(TINY, tmp_path_factory.mktemp("cells"), watch=lambda label: None), made


def test_every_setting_has_its_rivals(results):
    r, _ = results
    for s in TINY.settings():
        assert all(len(r.cells[s, kind]) == 2 for kind in (PLAIN, SAGE))
    for group in TINY.groups():
        for kind in (FIXED, ORACLE):
            assert [s for s in TINY.of(group) if r.has(s, kind)] == [r.best(group, SAGE)]
            assert [c.config.seed for c in r.cells[r.best(group, SAGE), kind]] == TINY.seeds
    assert all(r.has(s, DECAY) for s in TINY.decays())


def test_the_control_has_the_mean_of_the_run_it_stands_beside(results):
    r, _ = results
    acted = 0
    for s in (r.best(group, SAGE) for group in TINY.groups()):
        for shrunk, control, plain in zip(r.cells[s, SAGE], r.cells[s, FIXED], r.cells[s, PLAIN], strict=True):
            mean = float(table.alphas(shrunk)["alpha"].mean())
            if mean == 1.0:
                assert control is plain and (shrunk.loss == plain.loss).all()
            else:
                assert control.config.factor == mean
                acted += 1
    assert acted > 0


def test_alpha_is_a_function_of_the_public_transcript(results):
    r, _ = results
    s = next(s for s in TINY.settings() if table.alphas(r.cells[s, SAGE][0])["alpha"].min() < 1)
    shrunk = r.cells[s, SAGE][0]
    assert table.rebuilt(shrunk)
    assert not table.rebuilt(shrunk._replace(config=dataclasses.replace(shrunk.config, rule="plain", warmup=None)))
    same, shared = table.same_promise(r, s)
    first = int(np.argmax(table.alphas(shrunk)["alpha"] < 1))
    assert same and shared == first + 1  # the release after the first shorter step is the first that differs
    assert [k for k in shrunk.run["release"] if "alpha" in k] == []
    twin = next(c for (_, kind), some in r.cells.items() if kind == ORACLE for c in some)
    assert not twin.run["private"] and twin.run["guarantee"] == NOT_PRIVATE


def test_tables_and_figures_of_real_runs(results):
    r, _ = results
    frame = table.settings_table(r)
    assert len(frame) == len(TINY.settings()) and frame["mean alpha"].between(0.1, 1).all()
    beside = frame["against its mean factor"] != "not run"
    assert beside.sum() == len(TINY.groups()) < len(frame)
    assert (beside == frame["loss, SAGE - its mean factor"].notna()).all()
    assert set(frame["by loss"]) <= {"helps", "hurts", "no difference"}
    best = table.best_table(r)
    own = best[best["run"] == table.NAMES[SAGE]]
    assert own["SAGE, by loss"].eq("").all() and len(own) == len(TINY.groups())
    counted = table.count_table(r)
    assert (counted[["helps", "hurts", "no difference"]].sum(axis=1) == counted["compared"]).all()
    assert counted["compared"].iloc[0] == len(TINY.settings()) and figures.sentence(counted).count("helps") == 2
    assert (counted["identical runs"] + counted["better on average"] <= counted["compared"]).all()
    effects = figures.effects(frame, best)
    for figure in (figures.headline(r), figures.runs(r), figures.learning_rates(r), effects):
        assert "our reading" in " ".join(text.get_text() for text in figure.texts)
    beside_plain, beside_control = effects.axes[0].containers
    assert len(beside_plain[0].get_xdata()) == len(frame)
    assert np.allclose(beside_control[0].get_xdata(), frame["loss, SAGE - its mean factor"].dropna())
    assert len(table.recorded_energy(r)) == 12


def test_count_reads_the_gaps(results):
    """A SAGE run that is better on every sentence of every seed helps, by loss and by accuracy."""
    r, _ = results
    better = {key: [c._replace(loss=c.loss * 0 + (0.1 if key[1] == SAGE else 0.5) + 0.001 * c.config.seed,
                               score=c.score * 0 + (key[1] == SAGE)) for c in some] for key, some in r.cells.items()}
    counted = table.count_table(r._replace(cells=better))
    assert (counted["helps"] == counted["compared"]).all() and (counted["better on average"] == counted["helps"]).all()


def test_the_truth_splits_the_batchs_own_noise(results, monkeypatch):
    """On invented records the tracked descent part is the square of the expectation, without bias."""
    r, _ = results
    s = TINY.settings()[0]
    cell = r.cells[s, SAGE][0]
    rng, n, q, steps, k = np.random.default_rng(0), 40, 0.25, 4000, 1
    g = rng.normal(1.0, 2.0, n)
    normaliser = q * n
    batches = [g[rng.random(n) < q] for _ in range(steps)]
    infos = [{"signal": [float(b.sum() / normaliser)]} for b in batches]
    wide = max(map(len, batches))
    kept = np.stack([np.pad(b, (0, wide - len(b)), constant_values=np.nan)[None] for b in batches])
    monkeypatch.setattr(table, "statistics", lambda cell: kept)
    config = dataclasses.replace(cell.config, sampling=q, clip=100.0, k=k, steps=steps, tracking=0.999)
    fake = cell._replace(config=config, infos=infos,
                         run=cell.run | {"release": {"noise_std": 1.0, "normaliser": normaliser}})
    found = table.truth(fake)
    energy, noise = (g.sum() * q / normaliser) ** 2, q * (1 - q) * (g**2).sum() / normaliser**2
    assert found.descent[-1] == pytest.approx(energy, abs=0.1)
    assert found.sum[-1] == pytest.approx(energy + noise, abs=0.1) and noise > 0.2


def test_learning_rates_are_chosen_on_dev(results):
    r, _ = results
    group = next(g for g in TINY.groups() if len(TINY.of(g)) > 1)
    scores = {s: np.mean([c.metrics[-1]["dev_loss"] for c in r.cells[s, PLAIN]]) for s in TINY.of(group)}
    assert r.best(group, PLAIN) == min(scores, key=scores.get)
    blown = {s: [c._replace(metrics=[{"dev_loss": math.nan}]) for c in r.cells[s, PLAIN]] for s in TINY.of(group)[:1]}
    chosen = table.best_on_dev(TINY.of(group), lambda s: blown.get(s, r.cells[s, PLAIN]))
    assert chosen == TINY.of(group)[1]


def test_rows_beside_the_paper(results):
    r, _ = results
    group = {g: g._replace(model="embedded", epsilon=2.0, k=16 if g.k == 4 else 1) for g in TINY.groups()}
    plan = TINY._replace(models=["embedded"], directions=[1, 16], wide=[16], epsilons=[2.0])
    cells = {(Setting(group[s.group], s.factor), kind): some for (s, kind), some in r.cells.items()}
    ours = table.our_rows(table.Results(plan, cells, {"embedded": r.zero["tiny"]}))
    keys = set(map(tuple, ours[["table", "row"]].to_numpy()))
    assert keys == {("OPT-1.3B", f"eps 2 / {name}") for name in ("DPZO", "AggZO K=16", "SAGE K=16", "GeoDPZO-lc")} | {
        ("Claims", "SAGE above the baselines")}
    reading = ours[ours["row"].str.contains("SAGE")]["reason"]
    assert reading.str.contains("our reading of the abstract").all() and ours["reason"].str.len().gt(0).all()
    shown = table.beside_the_paper(ours, "desk")
    assert len(shown) == len(tables.load_published("sage"))
    assert (shown["published"] == "n/a: paper text unavailable").all()
    assert shown["status"].str.startswith(("not run", "not comparable")).all()
    assert shown[shown["column"] == "SQuAD"]["status"].str.contains("chapter 15|6.7B|GPU").all()


def test_a_release_at_several_k_has_one_row_beside_the_paper(results):
    r, _ = results
    geo, *_ = [s for s in TINY.settings() if s.group.base == "geodpzo-lc"]
    many = [geo._replace(group=geo.group._replace(model="embedded", epsilon=2.0, k=k)) for k in (16, 64)]
    plan = TINY._replace(models=["embedded"], bases=["dp-aggzo", "geodpzo-lc"], directions=[1, 16, 64], steps=[8, 6, 6],
                         wide=[1, 16, 64], epsilons=[2.0])
    cells = {(s, kind): r.cells.get((geo, kind), r.cells[geo, table.PLAIN])
             for s in plan.settings() for kind in table.NAMES}
    assert {s.group for s in many} <= {s.group for s in plan.settings()}
    ours = table.our_rows(table.Results(plan, cells, {"embedded": r.zero["tiny"]}))
    assert not ours.duplicated(["table", "row", "column"]).any()
    one, = ours[ours["row"] == "eps 2 / GeoDPZO-lc"]["reason"]
    assert one.endswith("K = 16")
    table.beside_the_paper(ours, "desk")


def test_figures_of_the_toys_say_whose_reading_it_is():
    bowl = toy.bowl_table([0.004, 0.06], range(2), steps=40)
    floors, steady = toy.floor_table([1, 16], [0.9], 200, 0), toy.steady_table([16], [0, 1.0], 3, 0)
    made = (figures.why(toy.steps_by_noise([0.0, 1.0])), figures.bowl(bowl), figures.noise(floors, steady),
            figures.explorer(toy.play("stays", 16, 1.0, 0.9, 20)))
    for figure in made:
        assert "our reading" in " ".join(text.get_text() for text in figure.texts)
    assert isinstance(bowl, pd.DataFrame)
