"""What chapters 40 to 42 show: replayed runs equal the rules on the same strings, tables are consistent."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from paclab.chapters import generation_views, identification_views, rates_views
from paclab.languages import GenerationExample, Residues, TwoAtoms, generate, identify
from paclab.notebook.tables import load_published
from paclab.rates.horizons import growth


def test_identification_replay_reads_one_fixed_stream():
    law = TwoAtoms()
    replay = identification_views.Replay(law, 300, 3)
    strings = law.sample(300, np.random.default_rng(3))
    for n in (5, 120, 300):
        assert replay.misses[n - 1].tolist() == identify.miss_counts(law, strings[:n], 2).tolist()
    numbers = replay.describe(120, 1.0, 6.0)
    scale = identify.horizon(6.0, 2)
    assert numbers["score of L2"] == pytest.approx(identify.scores(replay.misses[119], 120, scale)[1])
    assert isinstance(replay.draw(120, 1.0, 6.0), Figure)


def test_generation_replay_reads_one_fixed_stream():
    law = GenerationExample()
    replay = generation_views.Replay(law, 300, 3)
    strings = law.sample(300, np.random.default_rng(3))
    g, q, chances = replay.state(200, 1.0, 0.05)
    assert g == 10 and replay.counts[199].tolist() == generate.window_counts(law, strings[:200], 7).tolist()
    assert q.tolist() == generate.scores(replay.counts[199], generate.window_members(law, 7, 7), 200, 10).tolist()
    assert chances.sum() == pytest.approx(1) and isinstance(replay.draw(200, 1.0, 0.05), Figure)


def test_by_hand_tables():
    table = identification_views.by_hand(Residues(), {1: 3, 2: 9, 3: 3, 4: 1}, 10.0, 2.0)
    assert table["misses"].tolist() == [15, 13, 7, 13]
    assert table["q"].tolist() == pytest.approx([1, 2 - 100 * 0.075, 3, 4 - 100 * 0.575])
    weights = np.exp(2.0 * table["q"] / (2 * 2 * 100 / 16))
    assert table["P(released)"].tolist() == pytest.approx((weights / weights.sum()).tolist())
    small = generation_views.by_hand(GenerationExample(), [2] * 6 + [4] * 3 + [6] * 2 + [8], 7, 2, 2.0)
    assert small["a"].tolist() == [0, 0, 3, 0, 2, 0, 2] and small["d"].tolist() == [2, 2, 0, 2, 0, 2, 0]


def test_explorer_of_the_rates_and_its_numbers():
    assert isinstance(rates_views.explorer(400, 0.5, 6, 7, 0.25), Figure)
    numbers = rates_views.explorer_numbers(20_000, 0.2, 6, 7, 0.25)
    assert numbers["regime"] == "Gaussian pays" and numbers["exponent per string"] == pytest.approx(0.0125)
    for corner in ((100, 0.01, 15, 100, 0.02), (20_000, 10.0, 1, 1, 0.9)):
        assert isinstance(rates_views.explorer(*corner), Figure)


def test_tables_of_the_paper_have_every_cell():
    first = rates_views.table1(2000, 0.5, 6.0, 1e-6)
    assert len(first) == 12 and (first["log10 bound"] <= 0).all()
    upper = first[first["bound"] == "upper"]
    assert (upper["log10 exact error"] <= upper["log10 bound"] + 1e-9).all()
    second = rates_views.table2(20_000, 0.5, 1e-6)
    assert len(second) == 7 and second["exponent at n"].min() > 0
    claims = rates_views.claims_table(load_published("language-price"))
    assert claims["status"].iloc[0] == "fails" and claims["status"].iloc[-1] == "holds"


def test_user_level_table_is_group_privacy():
    table = rates_views.users_table(500, [1, 4], 0.5, 1e-6)
    assert table["eps per user"].tolist() == pytest.approx([0.5, 0.5])
    assert table["delta per user"].tolist() == pytest.approx([1e-6, 1e-6])


def test_accounting_grows_as_composition_says():
    table = rates_views.accounting_table([1, 100], 2.0, 1e-5)
    assert table["Gaussian noise"][1] == pytest.approx(10 * table["Gaussian noise"][0])
    assert table["Laplace noise"].tolist() == pytest.approx([math.sqrt(2) / 2, 100 * math.sqrt(2) / 2])


def test_horizon_table_marks_where_the_theorem_speaks():
    table = rates_views.horizons_table({"n^0.2": growth("power", 0.2)}, [1e3, 1e5], 1.0, 0.5)
    assert table["theorem speaks"].tolist() == [False, True]
    assert 10 ** table["log10 n0"][0] == pytest.approx(6**5)
