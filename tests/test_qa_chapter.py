"""Chapter 15: hardness of objectives against hand computations and simulation, and the table on synthetic runs."""

from pathlib import Path

import numpy as np
import pytest

from paclab import finetune, tasks
from paclab.chapters import qa_figures as figures
from paclab.chapters import qa_hardness as hard
from paclab.chapters import qa_paper as paper
from paclab.chapters import qa_table as qt
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.notebook.book import load_book
from paclab.privacy import consensus
from paclab.releases.paczero import Settings, paczero
from paclab.releases.secret import Secret
from paclab.zo import transcript

# ---------------------------------------------------------------- hardness


def test_one_record_that_moves_alone_has_t_one_at_any_size():
    for size in (1e-3, 1.0, 500.0):
        row = np.zeros((1, 200))
        row[0, 7] = size
        assert hard.tau_squared(row) == pytest.approx(1.0)
    assert hard.tau_squared(np.zeros((3, 50))) == 0.0
    three = np.zeros((1, 200))
    three[0, :3] = 1
    assert hard.tau_squared(three) == pytest.approx(3 * 199 / 197)


@pytest.mark.parametrize("signal", [0.0, 0.05, 0.2])
def test_signal_per_record_does_not_depend_on_the_pool(signal):
    rng = np.random.default_rng(4)
    for size in (100, 400):
        values = rng.standard_normal((3000, size)) * 7 + 7 * signal * rng.standard_normal((3000, 1))
        tau2 = 1 + size * signal**2
        assert hard.tau_squared(values) == pytest.approx(tau2, rel=4 * np.sqrt(2 / 3000) + 2.5 / size)
        if signal:
            assert hard.snr(values) == pytest.approx(signal, rel=0.12)
    assert hard.tau_at(signal, 400) ** 2 == pytest.approx(1 + 400 * signal**2)


def test_records_needed_is_the_inverse_of_tau():
    needed = hard.records_for(0.06, 2.9)
    assert hard.tau_at(0.06, needed) == pytest.approx(2.9)
    assert hard.records_for(0.0, 2.9) == float("inf")


def test_kinds_by_hand():
    everyone, nobody = np.full(20, 2.0), np.zeros(20)
    one = np.zeros(20)
    one[3] = 1.0  # in each pair one half holds it and the other is tied
    torn = np.r_[np.full(10, 1.0), np.full(10, -1.0)] + 0.01 * np.arange(20)
    rows = np.stack([everyone, nobody, one, torn])
    plus = hard.kinds(rows, 8, tie="plus")
    assert (plus.agreed, plus.tied, plus.by_coin, plus.split) == (0.25, 0.0, 0.5, 0.25)  # one > 0 joins the +1
    coin = hard.kinds(rows, 8)
    assert coin.agreed == 0.25 and coin.tied == 0.25
    assert coin.by_coin + coin.split == 0.5 and coin.split >= 0.25
    down = hard.kinds(-one[None], 8, tie="plus")
    assert down.split == 1.0  # the tied halves vote +1, the others -1


def test_a_public_coin_makes_half_of_the_lone_moves_unanimous():
    rng = np.random.default_rng(0)
    rows = np.zeros((4000, 20))
    rows[np.arange(4000), rng.integers(0, 20, 4000)] = rng.choice([-1, 1], 4000)
    parts = hard.kinds(rows, 6)
    assert parts.by_coin == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(4000)) and parts.agreed == 0


def test_votes_here_are_those_of_the_release():
    """Free bits of the real release with the same halves and a coin of +1 are agreed, by_coin, or tied directions."""
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((40, 20)) < 0.06, rng.choice([-1, 1], (40, 20)), 0.0)
    membership = np.array(hard.halves(20, 6))
    release = paczero(Settings("zpl", membership, Secret.from_seed(0), lambda t, k: 1, 40))
    private, free = release.init(), []
    for t, row in enumerate(rows):
        private, _, info = release.step(private, t, row[None])
        free.append(info["bits"][0]["free"])
    votes = consensus.sign_votes(consensus.candidate_means(rows, membership))
    filled = consensus.break_ties(votes, np.ones(40, dtype=np.int8))
    expected = (consensus.unanimity(filled) != 0) | ~(votes != 0).any(axis=1)
    assert free == expected.tolist()


def test_a_low_clip_is_a_majority_of_signs():
    rng = np.random.default_rng(2)
    values = np.where(rng.random((30, 60)) < 0.3, rng.choice([-1, 1], (30, 60)) * rng.uniform(100, 500, (30, 60)), 0.0)
    table = hard.clipped([values], [1000.0, 50.0], 16).set_index("clip")
    assert table.loc["1000", "tau"] == table.loc["none", "tau"]
    assert table.loc["50", "tau"] == pytest.approx(table.loc["signs only", "tau"])
    assert table.loc["50", "halves that vote as the majority of signs, %"] == 100
    assert table.loc["none", "halves that vote as the majority of signs, %"] < 100
    assert table["of the moved records, cut %"].tolist() == [0, 0, 100, 100]


def recorded():
    rng = np.random.default_rng(3)

    def smooth(signal):
        return [rng.standard_normal((12, 60)) + signal * rng.standard_normal((12, 1)) for _ in range(2)]

    rare = [np.where(rng.random((12, 60)) < 0.03, 500.0, 0.0) * rng.choice([-1, 1], (12, 60)) for _ in range(2)]
    return {("sentiment", "ft"): smooth(0.8), ("qa-ce", "ft"): smooth(0.3), ("qa-f1", "ft"): rare,
            ("qa-f1", "lora"): rare}


def test_hardness_table_and_its_figures():
    import matplotlib.pyplot as plt

    found = recorded()
    table = hard.hardness(found, 16).set_index(["objective", "track"])
    easy, dull = table.loc[("sentiment", "ft")], table.loc[(hard.SIGNALS["qa-f1"].name, "ft")]
    assert easy["tau"] > 2 * dull["tau"] and easy["records moved, %"] == 100 and dull["records moved, %"] < 10
    assert easy["f, untied"] > dull["f, untied"] and dull["agreed by a tie's coin"] + dull["all tied"] > 0
    tied = hard.ties(found, 16)
    assert np.allclose(tied[["agreed, none tied", "agreed with ties", "all tied, no update", "split"]].sum(axis=1), 1)
    for figure in (figures.headline(found, 16), figures.size_law(found, "ft", 2, 0), figures.tie_bars(tied),
                   figures.explorer_figure(found, ("qa-f1", "ft"), 40, 16, 1.0, "plus")):
        figure.canvas.draw()
        plt.close(figure)
    numbers = figures.explorer_numbers(found, ("qa-f1", "ft"), 60, 16, np.inf, "coin")
    assert float(numbers["records moved by a nudge"].rstrip(" %")) < 10
    said = figures.sentence(hard.hardness(found, 16))
    assert "full fine-tuning, 60 questions" in said and "cross-entropy: tau" in said and "LoRA" in said
    sizes = hard.by_size([np.eye(12, 60)], [10, 60], 30, 0)
    assert sizes[1] == pytest.approx(1) and sizes[0] == pytest.approx(1)  # lone moves have t = 1 in every sub-pool


def test_recordings_leave_the_model_as_it_is(tmp_path):
    """Replaying the recorded steps moves no weight by more than rounding hides, LoRA's zero matrices included."""
    named = hard.settings(signals=["sentiment", "qa-f1"], tracks=["lora"], directions=3, pool=4, seed=0, seeds=1,
                          model="embedded")
    config = named["sentiment", "lora"][0]
    seen = []
    run = finetune.start(config, tmp_path / "run", device="cpu", record_statistic=lambda t, s: seen.append(s))
    base = finetune.base(config, run["keys"], "cpu")
    before = {name: tensor.clone() for name, tensor in base.weights.master.items()}
    transcript.replay(base.weights, base.directions, finetune.transcript_lines(tmp_path / "run"))
    assert max((base.weights.master[n] - w).abs().max() for n, w in before.items()) < 1e-9
    assert len(seen) == 3 and seen[0].shape == (1, 4)


# ---------------------------------------------------------------- the table


def plan(**changed):
    given = {"rows": list(qt.ROWS), "lora_rows": ["f1-mezo", "f1-zpl-coin", "ce-zpl-coin"],
             "table_tracks": ["ft", "lora"], "seed": 0, "seeds": 2, "few_seeds": 1, "steps": 6, "pool": 40,
             "held_out": 50, "mu_f1": 0.01, "model": "embedded"}
    return qt.plan_of(**(given | changed))


def made(p):
    cells, scores = {}, {}
    for seed, track, key in p.runs():
        c = qt.config(p, seed, track, key)
        rng = np.random.default_rng([seed, len(key), track == "ft"])
        infos = [{"pool_mean": [0.1], "released": [1]} for _ in range(c.steps)]
        if qt.ROWS[key].protects == qt.HALF:
            infos = [{"bits": [{"free": bool(rng.random() < 0.4)}], "charged": 0.5 * (c.mi or 0)}
                     for _ in range(c.steps)]
        cells.setdefault((track, key), []).append(
            Cell(c, {}, np.zeros(50), np.full(50, np.nan), infos, [], Path(".")))
        scores.setdefault((track, key), []).append(qt.Scores((rng.random(50) < 0.5).astype(float), 3 + rng.random(50)))
    rng = np.random.default_rng(9)
    return qt.Results(p, cells, scores, [qt.Scores((rng.random(50) < 0.4).astype(float), 3 + rng.random(50))
                                         for _ in p.seeds])


@pytest.fixture(scope="module")
def r():
    return made(plan())


def test_every_row_is_accepted_and_reads_its_own_objective():
    p = plan()
    for seed, track, key in p.runs():
        c, row = qt.config(p, seed, track, key), qt.ROWS[key]
        assert c.study and c.task == row.task and c.epsilon == row.epsilon and c.mi == row.total
        assert c.mu == (1e-3 if row.task == "qa-ce" or "published" in key else 0.01)
        assert (c.max_new_tokens is None) == (row.task == "qa-ce")
    whole = qt.desk_plan(load_book(Path(__file__).parents[1]).chapter("15_paczero_qa"))
    assert set(whole.rows) == {"ft", "lora"} and all(key in qt.ROWS for keys in whole.rows.values() for key in keys)
    assert qt.config(p, 0, "ft", "ce-aggzo-2").steps == max(1, round(6 * 40 / 64 / 16))


def test_a_plan_needs_the_two_rows_it_compares():
    with pytest.raises(InputError, match="ce-zpl-coin"):
        plan(rows=["f1-zpl-coin"])
    said = plan(table_tracks=["ft"], seeds=1).left_out(plan())
    assert "(lora)" in said and "1 of 2 seeds" in said


def test_table_is_paired_and_keeps_promises(r):
    table = qt.table(r)
    assert len(table) == 1 + len(r.cells)
    by_hand = np.mean([s.f1.mean() - z.f1.mean() for s, z in zip(r.scores["ft", "f1-mezo"], r.zero, strict=True)])
    line = table[(table["row"] == "F1: MeZO (pool mean)") & (table["track"] == "ft")].iloc[0]
    assert line["F1 over zero-shot, points"] == pytest.approx(100 * by_hand) and line["seeds"] == 2
    assert table[table["track"] == "lora"]["seeds"].eq(1).all()
    assert set(table["protects"]) == {qt.HALF, qt.RECORD, qt.NOBODY, "no private data used"}
    assert r.behind("ft", "f1-mezo", "f1-mezo").mean == 0


@pytest.mark.parametrize("profile", ["quick", "desk"])
def test_no_number_is_called_a_match(r, profile):
    ours = paper.our_rows(r)
    assert not ours.duplicated(["table", "row", "column"]).any()
    shown = paper.beside_the_paper(ours, profile)
    here = shown[shown["ours"].notna()]
    assert len(here) == len(ours) and here["status"].str.startswith("not comparable").all()
    assert shown["column"].str.contains("SQuAD|F1|6.7B").all() and (shown["column"] != "SST-2 1.3B").all()


def test_relations_quote_the_published_table(r):
    table = paper.relations(r).set_index("claim")
    assert table.loc["PACZero-ZPL on F1 is ahead of zero-shot", "paper, points"] == pytest.approx(62.25 - 26.8)
    ahead = table.loc["MeZO on cross-entropy is ahead of PACZero-ZPL on F1"]
    assert ahead["paper, points"] == pytest.approx(78.1 - 62.25)


def test_published_f_as_tau():
    table = paper.published_tau().set_index("task")
    assert table.loc["SST-2", "tau"] == pytest.approx(3.0, abs=0.25)
    assert 1.2 < table.loc["SQuAD LoRA", "tau"] < 1.8 < table.loc["SQuAD FT", "tau"]


def test_figures_draw(r):
    import matplotlib.pyplot as plt

    for figure in (figures.gains(r), figures.free_steps(r)):
        figure.canvas.draw()
        plt.close(figure)


def test_both_scores_are_those_of_the_rebuilt_model(tmp_path):
    config = qt.config(plan(steps=2, pool=12, held_out=12), 0, "ft", "ce-zpl-coin")
    run = finetune.start(config, tmp_path / "cell", device="cpu")
    loss, _ = np.load(tmp_path / "cell" / "test.npy")
    cell = Cell(config, run, loss, loss, [], [], tmp_path / "cell")
    found = qt.scores(cell)
    np.testing.assert_allclose(found.ce, loss, rtol=1e-6)
    assert ((found.f1 >= 0) & (found.f1 <= 1)).all() and (tmp_path / "cell" / "both_scores.npy").exists()
    again = qt.scores(cell)
    assert (again.f1 == found.f1).all()
    zero = qt.zero_shot(config)
    from paclab import models
    answers = tasks.objective("qa", models.load("embedded", "cpu"), qt._held_out(config), max_new_tokens=10)
    assert (zero.f1 == answers.outcome().score).all()
