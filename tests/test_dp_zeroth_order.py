"""Chapter 20's arithmetic: rows by key, clipping error, what a released value consists of, bounds on a known bowl."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from paclab.chapters import dp_zeroth_order as table
from paclab.chapters import dp_zeroth_order_clip as clip
from paclab.chapters import dp_zeroth_order_figures as figures
from paclab.chapters import dp_zeroth_order_theory as theory
from paclab.chapters import rows
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.notebook import plots

KEYS = ["none-1", "none-16", "none-64", "2-1", "2-16", "2-64", "6-16", "2-4s", "masked-2-64"]
PLAN = table.Plan(KEYS, [0, 1], 320, 1000, 500, None, "embedded")
TEST = 400


def made(plan=PLAN):
    """Results with invented accuracies; settings are those of the real runs."""
    cells = {}
    for seed in plan.seeds:
        for r in plan.rows:
            rng = np.random.default_rng([seed, r.k, int(10 * (r.epsilon or 0))])
            config = plan.config(r, seed)
            infos = [{"batch": int(rng.poisson(64)), "clipped": 0.25} for _ in range(config.steps)]
            score = (rng.random(TEST) < 0.62).astype(float)
            metrics = [{"step": s, "dev_loss": 0.6 - s / 1e4, "dev_score": 0.6} for s in (0, config.steps)]
            cells.setdefault(r.key, []).append(
                Cell(config, {"release": {"noise_std": 1.0} if r.epsilon else {}}, 1 - score, score, infos, metrics,
                     Path(".")))
    score = (np.arange(TEST) % 5 > 1).astype(float)
    zero = [rows.Reference(1 - score, score, 0.5, np.arange(TEST) % 2, score)] * len(plan.seeds)
    return table.Results(plan, cells, {some[0].config.model: zero for some in cells.values()})


# ---------------------------------------------------------------- rows


def test_keys_name_promise_directions_model_and_steps():
    one, twin = table.row("masked-0.5-64"), table.row("none-16s")
    assert (one.epsilon, one.k, one.masked, one.short, one.method) == (0.5, 64, True, False, "dp-aggzo")
    assert (twin.epsilon, twin.short, twin.method) == (None, True, "aggzo")
    assert one.twin == "masked-none-64" and table.row("2-1").method == "dpzero"
    for wrong in ("2", "2-0", "two-16", "2-16x"):
        with pytest.raises(InputError, match="no row"):
            table.row(wrong)


def test_rows_cost_the_same_and_a_row_differs_from_its_twin_by_the_noise():
    costs = {key: table.forwards(PLAN.config(table.row(key), 0)) for key in KEYS if not table.row(key).short}
    assert max(costs.values()) / min(costs.values()) < 1.01 and costs["2-1"] == 2 * 64 * 320
    row, twin = (PLAN.config(table.row(key), 3) for key in ("2-16", "none-16"))
    same = ("k", "lr", "clip", "steps", "pool", "seed", "dev", "test", "sampling", "schedule")
    assert all(getattr(row, name) == getattr(twin, name) for name in same) and row.method != twin.method
    assert PLAN.config(table.row("2-4s"), 0).steps == row.steps


def test_what_is_left_out_is_said():
    plan = table.Plan(["2-1"], [0], 10, 1000, 500, 300, "embedded")
    said = plan.left_out(["2-1", "none-16"], 5)
    assert "AggZO, K = 16" in said and "4 of 5 seeds" in said
    assert plan.left_out(["2-1"], 1).startswith("Nothing left out.")


def test_the_table_pairs_a_row_with_its_twin():
    r = made()
    seconds = {kind: 0.1 * kind[1] for kind in table.kinds(r)} | {("embedded", 16): 1.0}
    shown = table.table(r, seconds).set_index("row")
    cost = np.mean([b.score.mean() - a.score.mean() for a, b in zip(r.cells["2-16"], r.cells["none-16"], strict=True)])
    assert shown.loc["DP-AggZO, K = 16, ε = 2", "noise took, points"] == pytest.approx(100 * cost)
    assert shown["noise took, points"].notna().sum() == 4  # none-64's twin row 2-64, and 2-1, 2-16, 6-16
    assert shown.loc["DPZero, ε = 2", "seconds of one core"] == pytest.approx(32.0)
    assert shown.loc["DP-AggZO, K = 16, ε = 2", "seconds of one core"] == pytest.approx(20.0)  # 20 steps of its own K


def test_the_recorded_run_is_private_and_has_many_directions():
    r = made()
    assert table.recorded(r) is r.cells["2-16"]
    few = made(PLAN._replace(keys=["none-64", "2-1", "2-4s"]))
    assert table.recorded(few) is few.cells["2-4s"]
    with pytest.raises(InputError, match="private row"):
        table.recorded(made(PLAN._replace(keys=["none-64"])))


def test_no_number_is_called_a_match_and_every_row_says_why():
    deltas = [np.random.default_rng(seed).standard_normal((16, 40)) * 30 for seed in (0, 1)]
    errors = clip.error_table(deltas, [1, 2, 4, 16], [15.0, 30.0])
    ours = table.our_rows(made(PLAN._replace(keys=[*KEYS, "masked-6-1"])), errors)
    assert {"eps 2 / DPZO", "eps 2 / AggZO K=16", "non-private / MeZO", "zero-shot / no training"} <= set(ours["row"])
    assert not ours["row"].str.contains("K=4").any()  # neither in the paper nor comparable: few steps
    figure = ours[ours["table"] == "Figure 3"].set_index("column")
    assert list(figure.index) == ["K=1", "K=4", "K=16"]  # the paper's K, at the recipe's clip
    here = errors[(errors["beta_clip"] == 30) & (errors["K"] == 4)].iloc[0]
    assert figure.loc["K=4", ["value", "half_width"]].tolist() == here[["relative error", "± seeds"]].tolist()
    noise = ours[ours["table"] == "Noise multipliers"]["value"].tolist()
    assert noise == pytest.approx([38.54, 8.672], rel=1e-3)  # the exact roots of zo.md D3
    assert ours[ours["paper"] == "dpzero"]["row"].tolist() == ["eps 6 / DPZero"]
    assert ours["reason"].str.contains("untrained").sum() == 2 and not ours["reason"].str.contains(" 1 steps").any()
    shown = table.beside_the_paper(ours, "desk")
    assert shown["published"].notna().all() and (shown["published"] == "n/a: printed as OOM").sum() == 8
    found = shown[shown["ours"].notna()]
    assert len(found) == len(ours) and found["status"].str.startswith("not comparable (").all()
    assert shown["status"].str.contains("backpropagation").sum() > 10
    assert not (shown["status"] == "match").any()


def test_relations_quote_the_paper():
    relations = table.relations(made()).set_index("claim")
    assert relations.loc["K = 16 is ahead of K = 1 at ε = 2", "paper, points"] == pytest.approx(90.8 - 86.6)
    assert set(relations["holds here?"]) <= {"yes", "no", "cannot tell"}
    r = made(PLAN._replace(keys=["2-4", "2-1", "masked-2-1", "masked-2-64", "masked-0.5-1", "masked-0.5-64"]))
    found = table.relations(r).set_index("claim")
    for e, gap in (("2", 92.0 - 91.8), ("0.5", 90.6 - 90.3)):  # tables 1 and 4, RoBERTa-large
        line = found.loc[f"masked: K = 64 is ahead of K = 1 at ε = {e}"]
        assert line["paper, points"] == pytest.approx(gap)
        by_hand = [b.score.mean() - a.score.mean() for a, b in zip(r.cells[f"masked-{e}-1"], r.cells[f"masked-{e}-64"],
                                                                  strict=True)]
        assert line["ours, points"] == pytest.approx(100 * np.mean(by_hand))
    assert np.isnan(found.loc["K = 4 is ahead of K = 1 at ε = 2", "paper, points"])


def test_the_map_pairs_every_point_with_zero_shot_over_the_seeds():
    plan = PLAN._replace(seeds=[3, 4, 5])
    configs = table.heat_configs(plan, 16, 4, 2.0, [0.5, 2.0], [0.25, 1.0, 4.0])
    assert [c.seed for c in configs] == [3] * 6 + [4] * 6 + [5] * 6
    rng = np.random.default_rng(1)
    cells = [made().cells["2-16"][0]._replace(config=c, score=(rng.random(40) < 0.6).astype(float), loss=rng.random(40))
             for c in configs]
    zero = [made().zero["embedded"][0]._replace(score=(rng.random(40) < 0.5).astype(float)) for _ in plan.seeds]
    found = table.heat_table(cells, zero, [0.5, 2.0], [0.25, 1.0, 4.0])
    base = configs[0].clip / 0.5
    assert found["clip"].tolist() == pytest.approx([0.5 * base] * 3 + [2 * base] * 3)
    gaps = [cells[4 + 6 * i].score.mean() - zero[i].score.mean() for i in range(3)]
    assert found["over zero-shot, points"][4] == pytest.approx(100 * np.mean(gaps))
    assert found["gain ± seeds"][4] == pytest.approx(100 * 4.302653 * np.std(gaps, ddof=1) / np.sqrt(3))


def test_backpropagation_runs_on_every_seed_at_the_runs_forward_passes():
    found = table.backpropagation(PLAN._replace(seeds=[0, 1], probes=23, pool=100, dev=100), 1e-4)
    assert found["seed"].value_counts().to_dict() == {0: 11, 1: 11}  # 2 * 23 * 64 / 100 / 3 = 10 steps, and the start
    assert found["forwards"].max() == 3 * 10
    ends = found.groupby("seed")["dev_loss"].agg(["first", "last"])
    assert (ends["last"] < ends["first"]).all() and ends["first"].nunique() == 2


# ---------------------------------------------------------------- clipping


def test_clipping_error_by_hand():
    delta = np.array([[3.0, 0.8], [4.0, 0.8]])  # two directions, two records
    wrong, whole, share = clip.clipping(delta, 2, 1.0)  # vectors (1.5, 2) and (.4, .4); clip 1/sqrt 2
    first = np.array([1.5, 2.0])
    second = np.array([0.4, 0.4])
    c = 1 / math.sqrt(2)
    error = (first * c / 2.5 - first) / 2
    assert (wrong, whole) == pytest.approx((np.sum(error**2), np.sum(((first + second) / 2) ** 2)))
    assert share == 0.5
    assert clip.clipping(delta, 1, 100.0)[0] == 0


def test_records_of_one_norm_are_clipped_less_with_more_directions():
    """Normal projections of equal gradient norms 1, clip just above: K = 1 cuts a third, many directions none."""
    delta = np.random.default_rng(0).standard_normal((256, 400))
    found = clip.error_table([delta], [1, 16, 256], [1.5]).set_index("K")
    assert found.loc[1, "clipped, %"] == pytest.approx(100 * math.erfc(1.5 / math.sqrt(2)), abs=1)
    assert found.loc[256, "clipped, %"] == 0 and found["relative error"].is_monotonic_decreasing


def test_a_normal_law_has_no_heavy_tail_and_a_mixture_of_norms_has():
    rng = np.random.default_rng(1)
    normal = rng.standard_normal((300, 200))
    mixed = normal * np.exp(rng.standard_normal(200))
    assert clip.kurtosis(normal) == pytest.approx(3, abs=0.1) and clip.kurtosis(mixed) > 8
    shown = clip.tail_table([mixed], 1.0).set_index("quantity")
    assert shown.loc["each record over its own norm", "kurtosis"] == pytest.approx(3, abs=0.1)
    both = clip.tail_table([mixed, normal], 1.0).set_index("quantity").loc["all records, one direction"]
    pair = [clip.kurtosis(mixed), clip.kurtosis(normal)]
    assert both["kurtosis"] == pytest.approx(np.mean(pair)) and both["seeds"] == 2
    assert both["± kurtosis"] == pytest.approx(12.7062 * abs(pair[0] - pair[1]) / 2, rel=1e-4)
    found = clip.tail(normal)
    assert found.beyond[np.searchsorted(found.value, 2.0)] == pytest.approx(math.erfc(2 / math.sqrt(2)), rel=0.1)


def test_the_parts_of_a_released_value_are_those_of_simulated_releases():
    """Without a clip: signal = the mean's size, sampling = rms / sqrt(batch), noise as dp-aggzo adds it."""
    rng = np.random.default_rng(2)
    means = rng.standard_normal(64) * 2
    delta = means[:, None] + 3 * rng.standard_normal((64, 500))
    found = clip.signal(delta, 16, 1e6, 0.5, 64)
    assert found.signal == pytest.approx(np.sqrt(np.mean(means**2)), rel=0.1) and found.lost < 1e-9
    assert found.sampling == pytest.approx(math.sqrt(np.mean(means**2) + 9) / 8, rel=0.05)
    assert found.noise == pytest.approx(0.5 * (1e6 / 4) * 16 / 64)
    released = [(delta[:, rng.random(500) < 64 / 500].sum(axis=1) / 64) for _ in range(400)]
    assert np.std(released, axis=0).mean() == pytest.approx(found.sampling * math.sqrt(1 - 64 / 500), rel=0.1)


def test_padded_records_are_left_out():
    delta = np.random.default_rng(3).standard_normal((4, 10))
    padded = np.pad(delta, ((0, 0), (0, 3)), constant_values=np.nan)
    assert clip.clipping(padded, 2, 1.0) == clip.clipping(delta, 2, 1.0)
    assert clip.signal(padded, 2, 1.0, 1.0, 64) == clip.signal(delta, 2, 1.0, 1.0, 64)
    table_ = clip.error_over_training([np.stack([padded] * 5)], [1, 4], 1.0, 2)
    assert list(table_["middle"].unique()) == [1.5, 3.5, 5.0] and table_["± seeds"].isna().all()


def test_clipping_errors_have_intervals_over_groups_and_over_seeds():
    rng = np.random.default_rng(4)
    delta = rng.standard_normal((64, 30)) * np.exp(rng.standard_normal(30))
    found = clip.error_table([delta], [1, 8, 16], [1.0]).set_index("K")
    assert found["groups"].to_dict() == {1: 64, 8: 8, 16: 4} and np.isnan(found.loc[16, "± groups"])
    truth = clip.error_table([rng.standard_normal((20000, 30)) * np.std(delta, axis=0)], [1], [1.0])
    drawn = [clip.error_table([rng.standard_normal((64, 30)) * np.std(delta, axis=0)], [1], [1.0]).iloc[0]
             for _ in range(200)]
    inside = [abs(d["relative error"] - truth["relative error"][0]) <= d["± groups"] for d in drawn]
    assert 0.88 <= np.mean(inside) <= 0.995  # 95 % of them, but for the jackknife's error
    seeds = [rng.standard_normal((16, 30)) * np.exp(rng.standard_normal(30)) for _ in range(3)]
    apart = [clip.error_table([d], [2], [1.0]).iloc[0] for d in seeds]
    both = clip.error_table(seeds, [2], [1.0]).iloc[0]
    assert both["relative error"] == pytest.approx(np.mean([a["relative error"] for a in apart]))
    spread = np.std([a["relative error"] for a in apart], ddof=1)
    assert both["± seeds"] == pytest.approx(4.302653 * spread / math.sqrt(3)) and np.isnan(apart[0]["± seeds"])
    assert both["groups"] == 24 and both["seeds"] == 3
    steps = [rng.standard_normal((4, 4, 20)) for _ in range(3)]
    both = clip.error_over_training(steps, [2], 1.0, 2)
    each = [clip.error_over_training([s], [2], 1.0, 2)["relative error"] for s in steps]
    assert np.allclose(both["relative error"], np.mean(each, axis=0))
    assert both["± seeds"][0] == pytest.approx(4.302653 * np.std([e[0] for e in each], ddof=1) / math.sqrt(3))


def test_the_rows_of_a_seed_share_their_batches_and_count_once():
    """Forty rows that repeat the same 41 sizes make 41 sizes: a mean one standard error off is nothing."""
    config = PLAN.config(table.row("2-16"), 0)
    sizes = np.array([64 + round(1.3 * 8 / 41**0.5 + (-1) ** i) for i in range(41)])
    one = Cell(config, {}, np.zeros(1), np.zeros(1), [{"batch": int(b)} for b in sizes], [], Path("."))
    off = abs(sizes.mean() - 64)
    assert 4 * 8 / (40 * 41) ** 0.5 < off < 4 * 8 / 41**0.5
    assert table.batches(table.Results(PLAN, {"2-16": [one] * 40}, {}))[0]
    many = [one._replace(config=PLAN.config(table.row("2-16"), seed)) for seed in range(40)]
    assert not table.batches(table.Results(PLAN, {"2-16": many}, {}))[0]


def test_pure_noise_has_no_signal_over_a_run():
    """A step's squared signal is unbiased, below zero as often as above: only their mean may be cut off at zero."""
    steps = np.random.default_rng(5).standard_normal((400, 4, 50))
    pooled = clip.signal_of_run(steps, 4, 1e6, 1.0, 10).signal
    clamped = np.sqrt(np.mean([clip.signal(step, 4, 1e6, 1.0, 10).signal ** 2 for step in steps]))
    assert pooled < 0.5 * clamped


def test_a_shuffled_epoch_gives_more_away_than_poisson_batches():
    from paclab.privacy import dp

    reached, error = clip.shuffled_advantage(0.5, 16, 20000, 0)
    assert reached - 4 * error > dp.advantage(0.5, 1 / 16, 16)
    assert clip.shuffled_advantage(1e3, 16, 5000, 0)[0] < 0.05
    assert clip.shuffled_advantage(0.05, 16, 500, 0)[0] > 0.99  # without noise one always sees it join


# ---------------------------------------------------------------- bounds on a bowl


class Bowl:
    """Records with losses |A(theta - x_i)|^2 / 2 in the engine's shape: live weights, exact projected gradients."""

    def __init__(self, dim=6, records=80, seed=0):
        rng = np.random.default_rng(seed)
        self.scale = np.linspace(0.5, 2.0, dim)
        self.centre = rng.standard_normal((records, dim)) + 2
        self.live = {"w": torch.zeros(dim)}

    def losses(self, _batch=None):
        gap = (self.live["w"].double().numpy() - self.centre) * np.sqrt(self.scale)
        return (gap**2).sum(axis=1) / 2


@pytest.fixture
def bowl(monkeypatch):
    made = Bowl()
    monkeypatch.setattr(theory, "trainable", lambda module: made.live)
    monkeypatch.setattr(theory.tasks, "objective", lambda *a, **k: made)
    return made


def test_measured_steps_follow_the_formula_on_a_bowl(bowl):
    """The second-order formula is exact in expectation for a quadratic: |g|, tr H and g'Hg are known here."""
    from types import SimpleNamespace

    from paclab.zo.directions import Directions
    from paclab.zo.probe import Weights, differences

    gradient = -bowl.scale * bowl.centre.mean(axis=0)
    norm = np.linalg.norm(gradient)
    weights, directions = Weights(bowl.live), Directions(7, ("w",))
    delta = np.stack([differences(bowl.losses, weights, directions, 0, k, 1e-2) for k in range(512)])
    along = float((gradient**2 * bowl.scale).sum() / norm**2)
    local = theory.Local(0.0, norm, along, float(bowl.scale.sum()), 0.0, float(np.sqrt(delta.var(axis=1).mean())),
                         float(np.sqrt((delta**2).mean(axis=0)).mean()))
    ways = [theory.mezo(local), theory.aggzo(local, 16, 1e3, 0.01, 20.0, 80), theory.zpl(local, 80, 16, 1)]
    found = theory.step_table(SimpleNamespace(module=None), [], delta, 7, ways, [0.5, 1.0], 400, 0)
    for way in ways[:2]:
        part = found[found["method"] == way.name]
        gap = (part["measured change"] - part["predicted change"]).abs()
        assert (gap < 1.5 * part["± measured"] + 0.05 * part["predicted change"].abs()).all(), part
    free = found[found["method"] == ways[2].name]
    assert (free["measured change"] < 0).all() and (free["predicted change"] < 0).all()
    assert (bowl.live["w"] == 0).all()


def test_bounds_over_seeds_are_means_and_pair_measured_with_predicted(bowl, monkeypatch):
    """The seeds' own tables, averaged; the paired gap has an interval of its own."""
    places = [theory.Local(0.0, 1.0 + i, 2.0, 3.0, 0.0, 1.0, 1.0) for i in range(3)]
    changes = {"a": [-1.0, -2.0, -3.0], "b": [-1.0, -2.0, -3.0]}
    predicted = {"a": [-1.1, -1.9, -3.0], "b": [-0.5, -1.5, -2.5]}  # a: gaps about zero; b: always half too little
    frames = [theory.pd.DataFrame([{"method": name, "lr over the best": 1.0, "predicted change": predicted[name][i],
                                    "measured change": changes[name][i], "± measured": 9.0,
                                    theory.GAP: changes[name][i] - predicted[name][i], "± gap": 9.0,
                                    "gap inside ±": True} for name in "ab"]) for i in range(3)]
    left = iter(zip(places, frames, strict=True))
    now = []
    monkeypatch.setattr(theory, "measure", lambda *a, **k: now.append(next(left)) or now[-1][0])
    monkeypatch.setattr(theory, "step_table", lambda *a, **k: now[-1][1])
    recorded = [clip.Recording([], key, np.zeros((4, 2))) for key in range(3)]
    found, local = theory.bounds_table(None, recorded, lambda at, n: [], [1.0], 5)
    assert local.gradient == 2.0 and found["seeds"].tolist() == [3, 3]
    assert found["measured change"].tolist() == [-2.0, -2.0]
    assert found["± measured"].tolist() == pytest.approx([4.302653 / math.sqrt(3)] * 2)
    assert found[theory.GAP].tolist() == pytest.approx([0.0, -0.5])
    assert found["± gap"].tolist() == pytest.approx([4.302653 * 0.1 / math.sqrt(3), 0.0], abs=1e-6)
    assert found["gap inside ±"].tolist() == [True, False]


def test_recordings_are_every_seeds_own_sentences_and_directions(embedded):
    one, other = clip.recordings(embedded, [3, 4], 5, 2)
    assert one.key != other.key and one.delta.shape == (2, 5)
    assert [r["sentence"] for r in one.records] != [r["sentence"] for r in other.records]
    assert np.array_equal(one.delta, clip.probe(embedded, one.records, 2, one.key))


def test_curvature_is_read_off_a_quadratic(bowl):
    from paclab.zo.probe import Weights

    weights = Weights(bowl.live)
    at = theory._curve(weights, bowl.losses)
    z = {"w": torch.tensor([1.0, 0, 0, 0, 0, 2.0])}
    assert at(z, 0.05) == pytest.approx(bowl.scale[0] + 4 * bowl.scale[-1], rel=1e-3)
    assert (bowl.live["w"] == 0).all()


# ---------------------------------------------------------------- figures


def test_figures_draw():
    import matplotlib.pyplot as plt
    import pandas as pd

    r, rng = made(), np.random.default_rng(4)
    steps = rng.standard_normal((3, 16, 60))
    errors = clip.error_table([steps[0]], [1, 4, 16], [0.5, 1.0])
    later = clip.error_over_training([steps], [1, 4, 16], 1.0, 1)
    adam = pd.DataFrame({"forwards": [0, 3, 6], "seconds": [0.0, 1.0, 2.0],
                         "dev_loss": [0.6, 0.5, 0.4], "dev_score": [0.5, 0.6, 0.6]})
    bounds = pd.DataFrame({"method": ["a", "b"], "lr over the best": [1.0, 1.0], "predicted change": [-1e-3, -2e-3],
                           "measured change": [-1e-3, -1e-3], "± measured": [1e-4, 1e-4],
                           "Lemma 4 at most": [np.nan, 1e-3]})
    heat = table.heat_table([c for c in r.cells["2-16"] for _ in range(4)], r.zero["embedded"], [0.5, 1.0], [1.0, 2.0])
    heat["clip"], heat["lr"] = [1, 1, 2, 2], [1, 2, 1, 2]
    with plots.style():
        for figure in (figures.headline(r), figures.tails([steps[0]], 1.0), figures.errors(errors, later),
                       figures.by_directions(r), figures.bounds(bounds),
                       figures.compute(r, adam, dict.fromkeys(table.kinds(r), 0.1)),
                       figures.heat(heat), figures.explorer(steps, {2.0: 1.0}, 64, 4, 0.0, 2.0)):
            figure.canvas.draw()
            plt.close(figure)
    assert figures.explorer_numbers(steps, {2.0: 1.0}, 64, 16, 10.0, 2.0)["clipped records"] == "0.0 %"
