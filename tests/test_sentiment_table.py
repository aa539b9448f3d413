"""Chapter 13's rows and arithmetic on synthetic runs: real releases, invented accuracies."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from paclab.chapters import rows as shared
from paclab.chapters import sentiment_figures as figures
from paclab.chapters import sentiment_paper as paper
from paclab.chapters import sentiment_table as st
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.privacy import consensus, posterior, risk
from paclab.releases.paczero import Settings, paczero, unpack
from paclab.releases.secret import Secret

STEPS, POOL, TEST = 12, 40, 300


def cell(plan, seed, track, key):
    """A run whose releases are real and whose held-out results are drawn: about 60 % correct."""
    config, row = st.config(plan, seed, track, key), st.ROWS[key]
    rng = np.random.default_rng([seed, len(key), track == "lora"])
    infos = [{"pool_mean": [0.1]} for _ in range(STEPS)]
    if row.halves:
        stream = np.random.Generator(np.random.Philox(77 + seed))
        membership = consensus.complementary_halves(POOL, config.candidates, stream)
        release = paczero(Settings(row.method.removeprefix("paczero-"), membership, Secret.from_seed(seed),
                                   lambda t, k: 1, STEPS, total=config.mi or 0.0,
                                   on_disagreement=config.on_disagreement))
        private, infos = release.init(), []
        for t in range(STEPS):
            values = rng.standard_normal(POOL) + 3 * rng.standard_normal() / np.sqrt(POOL)
            private, _, info = release.step(private, t, values[None])
            infos.append(json.loads(json.dumps(info)))
    score = (rng.random(TEST) < 0.6).astype(float)
    metrics = [{"step": s, "dev_loss": 0.7 - s / 100, "dev_score": 0.6} for s in (0, 6, 12)]
    return Cell(config, {"keys": {"subsets": 77 + seed}}, rng.random(TEST), score, infos, metrics, Path("."))


def made(rows=tuple(st.ROWS), tracks=("ft", "lora"), seeds=(0, 1, 2)):
    plan = st.Plan(list(rows), list(tracks), list(seeds), STEPS, pool=POOL, test=TEST)
    cells: dict = {}
    for seed, track, key in plan.runs():
        cells.setdefault((track, key), []).append(cell(plan, seed, track, key))
    attacks = {name: [st.attack(c) for c in some] for name, some in cells.items() if st.ROWS[name[1]].halves}
    zero = [shared.Reference(np.full(TEST, 0.69), (np.random.default_rng(s).random(TEST) < 0.55).astype(float), 0.5,
                         np.arange(TEST) % 2, (np.arange(TEST) % 5 > 0).astype(float)) for s in seeds]
    return st.Results(plan, cells, zero, attacks)


@pytest.fixture(scope="module")
def results():
    return made()


def test_budgets_in_all_and_at_the_papers_rate():
    assert st.ROWS["mi-0.33"].budget(60) == 0.33
    assert st.ROWS["rr-0.68-rate"].budget(60) == pytest.approx(0.68 * 60 / 1000)
    assert st.ROWS["zpl-coin"].budget(60) is None and st.ROWS["mezo"].budget(60) is None


def test_a_plan_needs_the_row_the_chapter_is_about():
    asked = {"tracks": ["ft"], "seeds": 2, "steps": 40, "pool": 100, "held_out": 0, "dev": 300,
             "model": "embedded", "seed": 3}
    with pytest.raises(InputError, match="zpl-coin"):
        st.plan_of(rows=["mezo"], **asked)
    plan = st.plan_of(rows=["mezo", "zpl-coin"], **asked)
    assert plan.seeds == [3, 4] and plan.test is None and plan.eval_every == 5 and plan.dev == 300


def test_runs_hold_whole_seeds_in_front():
    plan = st.Plan(["zero-shot", "mezo", "zpl-skip"], ["ft", "lora"], [3, 4], 10)
    assert plan.runs() == [(s, t, k) for s in (3, 4) for t in ("ft", "lora") for k in ("mezo", "zpl-skip")]


def test_settings_of_every_row_are_accepted_and_as_published():
    plan = st.Plan(list(st.ROWS), ["ft", "lora"], [0], 60)
    made = {key: st.config(plan, 0, "ft", key) for _, track, key in plan.runs() if track == "ft"}
    assert len(made) == 17 and all(c.study and c.test is None for c in made.values())
    assert all((c.lr is None) == (c.epsilon is None) for c in made.values())
    assert {c.candidates for k, c in made.items() if k.startswith(("mi", "rr"))} == {128}
    assert {c.candidates for k, c in made.items() if k.startswith("zpl")} == {126}
    for key, k, epsilon in (("dpzero-2", 1, 2), ("dpzero-6", 1, 6), ("aggzo-2", 16, 2), ("aggzo-6", 16, 6)):
        c = made[key]
        assert (c.k, c.epsilon, c.clip) == (k, epsilon, shared.recipe(c.method, "ft", k).clip)
        assert c.steps * k * 64 == pytest.approx(60 * 1000, rel=0.02)  # as many records probed as by the other rows
    assert {c.on_disagreement for k, c in made.items() if k.startswith("zpl")} == {"coin", "skip", "majority"}


def test_interval_is_students_over_seeds_and_honest_about_one():
    arrays = [np.array([1.0, 0, 1, 1]), np.array([0.0, 0, 1, 1]), np.array([1.0, 1, 1, 1])]
    made = shared.interval(arrays)
    low, high = stats.t.interval(0.95, 2, loc=0.75, scale=stats.sem([0.75, 0.5, 1.0]))
    assert made.mean == pytest.approx(0.75) and made.seeds == pytest.approx((high - low) / 2)
    assert made.shown == made.seeds
    alone = shared.interval(arrays[:1])
    assert np.isnan(alone.seeds) and alone.shown == pytest.approx(1.96 * arrays[0].std(ddof=1) / 2)


def test_the_gain_is_paired_on_the_same_sentences(results):
    gain = results.gain("ft", "mezo")
    by_hand = [c.score.mean() - z.score.mean() for c, z in zip(results.cells["ft", "mezo"], results.zero, strict=True)]
    assert gain.mean == pytest.approx(np.mean(by_hand))
    unpaired = np.sqrt(np.mean([c.score.var() / TEST + z.score.var() / TEST
                                for c, z in zip(results.cells["ft", "mezo"], results.zero, strict=True)]))
    assert gain.sentences == pytest.approx(1.96 * unpaired, rel=0.15)  # these runs are independent of zero-shot
    same = results.behind("ft", "mezo", "mezo")
    assert same.mean == 0 and same.sentences == 0


@pytest.mark.parametrize("key", ["mi-0.33", "rr-0.68"])
def test_the_attack_is_bayes_rule_over_the_halves(results, key):
    run, attack = results.cells["ft", key][0], results.attacks["ft", key][0]
    logs = np.zeros(128)
    for info in run.infos:
        for bit in info["bits"]:
            if bit["channel"] == "gaussian":
                logs += stats.norm.logpdf(bit["seen"], unpack(bit["votes"], 128), bit["parameter"])
            elif bit["channel"] == "rr":
                agrees = unpack(bit["votes"], 128) == bit["seen"]
                logs += np.log(np.where(agrees, 1 - bit["parameter"], bit["parameter"]))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    np.testing.assert_allclose(attack.weights[-1], weights, rtol=1e-8)
    stream = np.random.Generator(np.random.Philox(77))
    inside = consensus.complementary_halves(POOL, 128, stream) @ weights
    assert attack.success[-1] == pytest.approx(np.maximum(inside, 1 - inside).mean())
    assert attack.exposed == pytest.approx(np.maximum(inside, 1 - inside).max())
    assert posterior.leakage(posterior.Posterior(np.log(128 * weights))) == pytest.approx(
        run.infos[-1]["realised"], rel=1e-6)


def test_zero_leakage_rows_teach_the_attacker_nothing(results):
    for key in ("zpl-coin", "zpl-skip", "zpl-majority"):
        attack = results.attacks["ft", key][0]
        assert (attack.weights == 1 / 126).all() or np.allclose(attack.weights, 1 / 126, atol=1e-15)
        assert np.allclose(attack.success, 0.5) and attack.exposed == pytest.approx(0.5)


def test_the_table_holds_its_promises(results):
    table = st.table(results)
    assert len(table) == 3 + 17 * 2
    corrected = table.set_index("method").loc["zero-shot, answers balanced on the pool"]
    by_hand = np.mean([0.8 - z.score.mean() for z in results.zero])
    assert corrected["over zero-shot, points"] == pytest.approx(100 * by_hand) and corrected["protects"] == st.NOBODY
    private = table[table["protects"] == st.HALF]
    assert (private["charged, nats"] <= private["promised, nats"] + 1e-15).all()
    assert private["f"].between(0, 1).all()
    np.testing.assert_allclose(private["MIA bound"], risk.success_from_mi(private["promised, nats"].to_numpy()))
    assert (private["best attack"] <= private["MIA bound"] + 1e-9).all()
    noised = table[table["protects"] == st.RECORD]
    assert set(noised["promised, ε"]) == {2, 6} and noised["promised, nats"].isna().all() and len(noised) == 8
    assert (noised["certified, ε"] <= noised["promised, ε"]).all()
    np.testing.assert_allclose(noised["MIA bound"], special.expit(noised["promised, ε"]), atol=1e-5)
    assert ((noised["best attack"] > 0.5) & (noised["best attack"] < noised["MIA bound"])).all()
    assert (table[table["protects"] == st.NOBODY]["MIA bound"].isna()).all()
    parts = st.guarantees(table)
    assert set(st.LEARNT) | set(parts) == set(table) and len(parts) == len(private) + len(noised)


def test_answers_are_read_back_from_correctness():
    reference = shared.Reference(np.zeros(4), np.zeros(4), 0.5, np.array([1, 1, 0, 0]), np.zeros(4))
    assert reference.positive(np.array([1.0, 0, 0, 1])) == 0.5  # answers 1, 0, 1, 0
    assert reference.positive(np.array([1.0, 1, 0, 0])) == 1.0


def test_one_number_corrects_a_leaning():
    labels, margin = np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.8, 0.9])  # says 1 everywhere at threshold 0
    assert shared.balanced(margin, margin, labels).tolist() == [1, 1, 1, 1]
    assert shared.balanced(margin + 1, margin, labels).tolist() == [1, 1, 0, 0]


def test_one_seed_shows_no_interval_over_seeds():
    table = st.table(made(("zero-shot", "mezo", "zpl-coin"), ("ft",), (0,)))
    assert table["± seeds"].isna().all() and table["gain ± seeds"].isna().all()
    assert (table["± sentences"] > 0).all()


def test_what_is_left_out_is_said():
    plan = st.Plan(["zero-shot", "mezo"], ["ft"], [0], 10)
    said = plan.left_out(["zero-shot", "mezo", "zpl-coin"], ["ft", "lora"], 5)
    assert "PACZero-ZPL, coin" in said and "lora" in said and "4 of 5 seeds" in said
    assert st.Plan(["mezo"], ["ft"], [0], 10).left_out(["mezo"], ["ft"], 1) == "Nothing left out."


def test_the_vacuity_control_promises_nothing_about_the_pool(results):
    table = st.vacuity(results, "ft").set_index("method")
    noised = table.index.str.contains("ε")
    assert (table["guess: was it in the pool?"][~noised] == "no bound").all()
    assert table.loc["DPZero, ε = 2", "guess: was it in the pool?"] == "at most 0.8808"
    mezo = table.loc["MeZO (pool mean)"]
    assert mezo["I(half; releases) at most, nats"] == 0 and mezo["guess: was it in the half?"] == "at most 0.5000"
    assert table.loc["PACZero-MI, 0.33 nats in all", "I(half; releases) at most, nats"] == 0.33


@pytest.mark.parametrize("profile", ["quick", "desk"])
def test_no_number_is_called_a_match(results, profile):
    ours = paper.our_rows(results)
    assert not ours.duplicated(["table", "row", "column"]).any()
    shown = paper.beside_the_paper(ours, profile)
    found = shown[shown["ours"].notna()]
    assert len(found) == len(ours) and found["status"].str.startswith("not comparable").all()
    assert shown[shown["ours"].isna()]["status"].str.startswith("not run").all()
    assert not shown["row"].str.contains("SQuAD").any()


def test_relations_say_yes_no_or_cannot_tell():
    def holds(mean, half, limit=None):
        return shared.Relation("x", 0.0, shared.Interval(mean / 100, half / 100, 0.0), limit).holds()

    assert [holds(2, 1), holds(-2, 1), holds(0.5, 1), holds(0, 0)] == ["yes", "no", "cannot tell", "no"]
    assert [holds(2, 0.5, 3), holds(5, 1, 3), holds(3, 1, 3)] == ["yes", "no", "cannot tell"]


def test_relations_quote_the_published_table(results):
    table = paper.relations(results, "ft").set_index("claim")
    assert table.loc["ZPL is at most 3 points behind MeZO", "paper, points"] == pytest.approx(91.1 - 88.99)
    assert table.loc["MeZO (pool mean) is ahead of zero-shot", "paper, points"] == pytest.approx(91.1 - 53.6)
    lora = paper.relations(results, "lora")
    assert lora["paper, points"].isna().sum() >= 1 and len(lora) == len(table)


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_figures_draw(seeds):
    import matplotlib.pyplot as plt

    r = made(tracks=("ft", "lora") if len(seeds) > 1 else ("ft",), seeds=seeds)
    for figure in (figures.headline(r, "ft"), figures.curves(r), figures.free_steps(r), figures.gains(r),
                   figures.charges(r), figures.belief(r, "ft", "mi-0.33", 5)):
        figure.canvas.draw()
        plt.close(figure)
    assert figures.belief_numbers(r, "ft", "zpl-coin", 12)["mean guess of a record's membership"] == "0.5000"
    assert "charged 0 nats" in figures.sentence(r, "ft")


def test_watch_says_what_is_left(capsys):
    watch = shared.watcher("training")
    watch(0, 2)
    watch(1, 2)
    watch(2, 2)
    said = capsys.readouterr().out
    assert "2 runs to do" in said and "2/2" in said



def test_a_second_round_has_a_clock_of_its_own(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(shared.time, "monotonic", lambda: now[0])
    watch = shared.watcher("search")
    for at, done, total in ((0, 0, 2), (100, 2, 2), (100, 0, 10), (140, 4, 10)):
        now[0] = float(at)
        watch(done, total)
    said = capsys.readouterr().out.splitlines()
    assert said[2] == "search: 10 runs to do" and said[3].startswith("search: 4/10, 40 s so far, about 1 min left")
