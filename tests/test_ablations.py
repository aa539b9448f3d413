"""Chapter 14's rows and arithmetic on synthetic runs (real releases, invented accuracies), and the plateau's law."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from paclab.chapters import ablations as ab
from paclab.chapters import ablations_figures as figures
from paclab.chapters import ablations_model as law
from paclab.chapters import ablations_paper as paper
from paclab.chapters import ablations_results as read
from paclab.chapters.rows import Reference
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.notebook.book import load_book
from paclab.privacy import channels, consensus
from paclab.releases import default_lr
from paclab.releases.paczero import Settings, paczero
from paclab.releases.secret import Secret

TEST = 200


def plan(**changed):
    given = {"seed": 0, "seeds": 2, "few_seeds": 1, "studies": list(ab.STUDIES), "tracks": ["ft", "lora"], "steps": 8,
             "pool": 40, "held_out": TEST, "dev": 10, "model": "embedded", "budgets": [1e-4, 0.33, 3.0],
             "clips": [10.0], "ranks": [4, 8], "rates": [0.5, 1.0], "directions": [1, 4], "ladder": [1.0, 2.0],
             "halves": [16, 128]}
    return ab.plan_of(**(given | changed))


def cell(config, folder):
    """A run whose releases are real and whose held-out results are drawn."""
    rng = np.random.default_rng([config.seed, config.steps, config.candidates])
    values = rng.standard_normal((config.steps, config.k, config.pool)) * 5
    values += 3 * rng.standard_normal((config.steps, config.k, 1))
    infos = []
    if config.method.startswith("paczero"):
        stream = np.random.Generator(np.random.Philox(config.seed))
        membership = consensus.complementary_halves(config.pool, config.candidates, stream)
        release = paczero(Settings(config.method.removeprefix("paczero-"), membership, Secret.from_seed(config.seed),
                                   lambda t, k: 1, config.steps, k=config.k, total=config.mi or 0.0, clip=config.clip,
                                   on_disagreement=config.on_disagreement))
        private = release.init()
        for t in range(config.steps):
            private, released, info = release.step(private, t, values[t])
            infos.append(json.loads(json.dumps(info | {"released": released.values})))
    else:
        infos = [{"pool_mean": v.mean(axis=1).tolist(), "released": np.sign(v.mean(axis=1)).tolist()} for v in values]
    kept = folder / f"{abs(hash(config))}" / "statistic"
    kept.mkdir(parents=True, exist_ok=True)
    for t, v in enumerate(values):
        np.save(kept / f"{t:05d}.npy", v.astype(np.float32))
    score = (rng.random(TEST) < 0.6).astype(float)
    metrics = [{"step": s, "dev_loss": 0.7, "dev_score": 0.6} for s in (0, config.steps)]
    return Cell(config, {"keys": {"subsets": config.seed}}, rng.random(TEST), score, infos, metrics, kept.parent)


def made(folder, p):
    grouped: dict = {}
    of = {c: cell(c, folder) for c in ab.settings(p)}
    for seed, v in p.runs():
        grouped.setdefault(v.name, []).append(of[ab.config(p, seed, v)])
    zero = [Reference(np.full(TEST, 0.69), (np.random.default_rng(s).random(TEST) < 0.55).astype(float), 0.5,
                      np.arange(TEST) % 2, np.zeros(TEST)) for s in p.seeds]
    return read.Results(p, grouped, zero)


@pytest.fixture(scope="module")
def r(tmp_path_factory):
    return made(tmp_path_factory.mktemp("cells"), plan())


# ---------------------------------------------------------------- rows


def test_every_row_of_the_desk_profile_is_accepted_and_named_once():
    desk = ab.desk_plan(load_book(Path(__file__).parents[1]).chapter("14_paczero_ablations"))
    names = [v.name for v in desk.variants()]
    assert len(names) == len(set(names)) and {v.study for v in desk.variants()} == set(ab.STUDIES)
    assert len(ab.settings(desk)) == len(set(ab.settings(desk)))
    keys = [v.key for v in desk.variants() if v.key]
    assert len(keys) == len(set(keys))
    for study in ab.STUDIES:
        for track in desk.tracks:
            rows = [v for v in desk.variants() if (v.study, v.track) == (study, track)]
            assert not rows or sum(v.base for v in rows) == 1


def test_rows_differ_from_their_base_in_what_they_say():
    p = plan()
    for v in p.variants():
        settings = {k: x for k, x in v.setting.items() if k not in ("method", "mi", "steps", "lr")}
        assert set(settings) <= {"clip", "rank", "k", "candidates", "on_disagreement"}
        if v.study in ("clip", "rank", "rate", "halves"):
            base = next(w for w in p.variants() if (w.study, w.track, w.base) == (v.study, v.track, True))
            assert v.setting["method"] == base.setting["method"]


def test_the_papers_clips_and_half_lengths_stand_beside_the_same_run_without_them():
    p = plan(rates=[0.1, 0.5, 1.0, 2.0, 5.0], steps=40, tracks=["ft", "lora"])
    of = {v.name: v for v in p.variants()}
    clipped = [v for v in p.variants() if v.study == "clipped-rate" and "clip" in v.setting]
    assert {(v.track, v.setting["clip"]) for v in clipped} == {("lora", 25.0), ("ft", 1000.0)}
    assert {v.key[1] for v in clipped} == set(ab.CLIPPED_RATES.values())
    for v in clipped:
        plain = of["rate", v.track, v.label.partition(",")[0]]
        assert v.setting == plain.setting | {"clip": v.setting["clip"]}
    short = [v for v in p.variants() if v.key and v.key[1].endswith("T 1000") and v.study == "mechanism"]
    assert [v.setting for v in short] == [{"method": m, "steps": 20} for m in ab.SHORT]


def test_directions_keep_the_number_of_directions_and_the_length_of_the_walk():
    p = plan(steps=40, directions=[1, 4, 8])
    for v in (v for v in p.variants() if v.study == "directions"):
        c = ab.config(p, 0, v)
        assert c.k * c.steps == 40
        assert c.learning_rate() / c.k == pytest.approx(default_lr("paczero-mi", v.track))


def test_a_plan_needs_its_base_rows():
    for name, value in (("rates", [2.0]), ("halves", [16]), ("budgets", [0.1]), ("studies", ["clip"]),
                        ("directions", [4]), ("ladder", [2.0]), ("ranks", [4])):
        with pytest.raises(InputError, match=name):
            plan(**{name: value})


def test_what_is_left_out_is_said():
    said = ab.left_out(plan(tracks=["ft"], seeds=1, budgets=[0.33]), plan())
    assert "budgets: 0.0001, 3" in said and "tracks: lora" in said and "seeds: 1 of 2" in said
    assert ab.left_out(plan(), plan()) == "Nothing left out."


# ---------------------------------------------------------------- prices


@pytest.mark.parametrize("clip", [None, 100.0, 10.0, 1.0, 1e-3])
@pytest.mark.parametrize("total", [0.05, 0.33])
def test_no_clip_makes_a_run_exceed_its_promise(clip, total):
    values = np.random.default_rng(3).standard_normal((30, 60)) * 20 + 2
    done = read.replayed_charges(values, clip, 16, total, 5)
    assert done[-1]["paid"] <= total
    assert sum(b["charged"] for b in done) == pytest.approx(done[-1]["paid"])
    assert any(b["charged"] > 0 for b in done)


def test_same_votes_same_charge_whatever_the_clip():
    """Values in {-1, +1} times a step's factor: every clip below the factor keeps the votes, and so the charges."""
    rng = np.random.default_rng(1)
    signs = np.where(rng.random((25, 60)) < 0.55, 1.0, -1.0)
    values = signs * rng.uniform(5, 50, size=(25, 1))
    plain = read.replayed_charges(values, None, 16, 0.3, 2)
    for clip in (4.0, 0.5, 1e-3):
        other = read.replayed_charges(values, clip, 16, 0.3, 2)
        assert [b["votes"] for b in other] == [b["votes"] for b in plain]
        assert [b["charged"] for b in other] == [b["charged"] for b in plain]


def test_the_clip_changes_votes_and_then_charges_may_differ():
    values = np.random.default_rng(2).standard_t(1.5, size=(25, 60)) * 10 + 1
    plain, cut = (read.replayed_charges(values, c, 16, 0.3, 2) for c in (None, 1.0))
    assert [b["votes"] for b in cut] != [b["votes"] for b in plain]
    first = next(t for t, (a, b) in enumerate(zip(cut, plain, strict=True)) if a["votes"] != b["votes"])
    assert all(a["charged"] == b["charged"] for a, b in zip(cut[:first], plain[:first], strict=True))


def test_a_first_charge_follows_from_its_votes():
    votes = np.array([1] * 5 + [-1] * 11)
    beta = 0.3 / 20
    paid = read.charge_by_hand(votes, 0.3, 20)
    assert beta * (1 - 1e-6) <= paid <= beta
    assert read.charge_by_hand(np.ones(16), 0.3, 20) == 0
    rare = read.charge_by_hand(np.array([1] + [-1] * 15), 10.0, 1)  # more than a vote can carry: cut to its entropy
    assert 0.99 * channels.entropy(1 / 16) < rare < channels.entropy(1 / 16)


def test_verdicts_on_finished_runs(r):
    assert read.first_charges(r).equal and read.same_votes_same_charge(r, 0).equal
    table = read.clip_table(r, 0).set_index("clip")
    assert table.loc["none", "steps with other votes"] == 0 and table.loc["none", "values cut, %"] == 0
    assert table["charges equal before it"].all() and (table["charged, nats"] <= 0.33).all()
    assert table["values cut, %"].is_monotonic_increasing


# ---------------------------------------------------------------- captured signal


def test_captured_signal_by_hand():
    def run(method, released, means):
        infos = [{"released": [y], "pool_mean": [g]} for y, g in zip(released, means, strict=True)]
        return Cell(ab.Config(method=method, study=True), {}, np.zeros(1), np.zeros(1), infos, [], Path("."))

    assert read.captured(run("sign", [1, -1], [2.0, -3.0])) == 1
    assert read.captured(run("sign", [1, 1], [2.0, -3.0])) == pytest.approx(-0.2)
    assert np.isnan(read.captured(run("mezo", [2.0, -3.0], [2.0, -3.0])))
    blind = run("random-sign", [1, 1], [0.0, 0.0])
    assert np.isnan(read.captured(blind._replace(infos=[{"released": [1]}, {"released": [1]}])))


def test_prediction_ends_at_the_free_share_and_grows():
    means = np.array([4.0, -3.0, 1.0, 0.5])
    free = np.array([True, True, False, False])
    weight = np.array([1, 1, 0.75, 0.5])
    bits = read.Bits(np.ones(4), means, free, np.zeros((4, 8)), weight, np.full(4, np.nan))
    assert read.carried_free(bits) == pytest.approx(7 / 8.5)
    low, mid, high = read.predicted(bits, np.array([1e-9, 0.1, 2.0]))
    assert low == pytest.approx(7 / 8.5, abs=1e-4) and low < mid < high
    c = float(channels.gaussian_sign_correlation(channels.gaussian_sigma(0.25, 0.05)))  # two split steps share 0.1
    assert mid == pytest.approx((7 + c * 0.5 * 1.0) / 8.5)


def test_prediction_agrees_with_simulated_bits():
    """Mean captured signal of many coin draws through the exact channel against `predicted`."""
    rng = np.random.default_rng(0)
    weight, means = np.array([0.9, 0.7, 0.6]), np.array([2.0, -1.0, 1.5])
    bits = read.Bits(np.ones(3), means, np.zeros(3, bool), np.zeros((3, 10)), weight, np.zeros(3))
    expected = float(read.predicted(bits, np.array([0.9]))[0])
    draws = []
    for w, g in zip(weight, means, strict=True):
        sigma = float(channels.gaussian_sigma(1 - w, 0.3))
        vote = np.where(rng.random(40000) < w, 1, -1) * np.sign(g)
        draws.append(np.where(vote + sigma * rng.standard_normal(40000) >= 0, 1, -1) * g)
    got = np.sum(draws, axis=0) / np.abs(means).sum()
    c = channels.gaussian_sign_correlation(channels.gaussian_sigma(1 - weight, 0.3))
    assert read.expected(bits._replace(correlation=c)) == pytest.approx(expected)
    assert expected == pytest.approx(got.mean(), abs=4 * got.std() / 200)


def test_bits_in_common():
    def run(*released):
        return Cell(ab.Config(study=True), {}, np.zeros(1), np.zeros(1), [{"released": [y]} for y in released], [],
                    Path("."))

    assert read.same_bits(run(1, -1, 1), run(1, -1, 1)) == 3
    assert read.same_bits(run(1, -1, 1), run(1, 1, 1)) == 1


# ---------------------------------------------------------------- the law


@pytest.mark.parametrize(("tau", "m"), [(1.0, 2), (2.9, 128), (8.0, 16)])
def test_signal_shares_agree_with_adaptive_quadrature(tau, m):
    def agreed(t):
        return (2 * stats.norm.cdf(t) - 1) ** (m / 2)

    def over(f):
        return integrate.quad(lambda t: f(t) * t * stats.norm.pdf(t, scale=tau), 0, 14 * tau, limit=400,
                              points=[1, 2, 3, 5])[0]

    whole = over(lambda t: 1.0)
    free, split = law.signal_shares(tau, m)
    assert free == pytest.approx(over(agreed) / whole, abs=1e-8)
    assert split == pytest.approx(over(lambda t: 2 * stats.norm.cdf(t) - 1 - agreed(t)) / whole, abs=1e-8)


def test_the_plateaus_numbers():
    assert float(law.gaussian_correlation(0.5, 3.3e-4)) == pytest.approx(0.0205, abs=5e-5)
    assert float(law.rr_correlation(0.5, 3.3e-4)) == pytest.approx(0.0257, abs=5e-5)
    assert float(law.gaussian_correlation(0.5, 5.0)) <= 1  # cut to the entropy of a vote
    assert float(law.per_split_step(0.33, 1000, 0.4)) == pytest.approx(5.5e-4)
    assert float(law.gaussian_correlation(1 / 128, 3.3e-4)) == pytest.approx(0.116, abs=5e-4)


@pytest.mark.parametrize(("tau", "m", "beta"), [(2.9, 128, 5.5e-4), (1.5, 16, 0.05)])
def test_paid_share_against_simulated_steps(tau, m, beta):
    """Draw t and each half's error, release through the channel at the law's q: mean captured signal of split steps."""
    rng = np.random.default_rng(7)
    t = np.abs(rng.normal(0, tau, 60000))
    error = np.abs(rng.standard_normal((60000, m // 2)))
    split = (error > t[:, None]).any(axis=1)
    balance = 1 - np.mean(error > t[:, None], axis=1)  # 2a - 1: one half of each torn pair errs, a torn pair adds 0
    c = law.gaussian_correlation(np.maximum(stats.norm.cdf(-t), 1 / m), beta)
    got = np.mean(t * split * balance * c) / np.mean(t)
    assert law.paid_share(tau, m, beta) == pytest.approx(got, rel=0.04)
    free, paid = law.captured(tau, m, 0.33, 1000)
    assert free == law.signal_shares(tau, m)[0] and 0 < paid < law.signal_shares(tau, m)[1]


def test_explorer_numbers_are_those_of_the_law():
    numbers = law.explorer_numbers(np.log10(0.33), 0.5, 128, 2.9, 1000)
    f = consensus.expected_free_fraction(2.9, 128, "complementary")
    assert numbers["free fraction f"] == f"{f:.3f}"
    for tau, m in ((0.7, 16), (2.9, 128), (9.0, 512)):
        exact = consensus.expected_free_fraction(tau, m, "complementary")
        assert law.free_fraction(tau, m) == pytest.approx(exact, abs=1e-8)
    assert float(numbers["nats of a split step"]) == pytest.approx(0.33 / 1000 / (1 - f), rel=1e-2)


# ---------------------------------------------------------------- tables and figures


def test_tables_are_paired_and_keep_their_promises(r):
    for study in ab.STUDIES:
        table = read.table(r, study)
        assert len(table) == len(r.variants(study))
        for v, line in zip(r.variants(study), table.to_dict("records"), strict=True):
            assert line["seeds"] == (1 if study in ab.FEW else 2)
            if v.base:
                assert line["over base, points"] == 0 and (line["± over base"] == 0 or line["seeds"] == 1)
        spent = table["charged, nats"] <= table["promised, nats"]
        assert spent[table["charged, nats"].notna()].all()
    v = r.variants("clip")[1]
    by_hand = np.mean([a.score.mean() - b.score.mean() for a, b in zip(r.of(v), r.of(r.base(v)), strict=True)])
    assert r.over_base(v).mean == pytest.approx(by_hand)


@pytest.mark.parametrize("profile", ["quick", "desk"])
def test_no_number_is_called_a_match(r, profile):
    ours = paper.our_rows(r)
    assert not ours.duplicated(["table", "row", "column"]).any()
    shown = paper.beside_the_paper(ours, profile)
    here = shown[shown["ours"].notna()]
    assert len(here) == len(ours) and here["status"].str.startswith("not comparable").all()
    assert paper.summary(shown)["numbers"].sum() == len(shown)
    recipes = shown[shown["table"] == paper.RECIPES].set_index(["row", "column"])
    mine = r.of(next(v for v in r.variants("plateau", "ft") if v.base))[0].config
    assert recipes.loc[("FT, SST-2 1.3B, ZPL", "T")][["published", "ours"]].tolist() == [1000, mine.steps]
    assert recipes.loc[("FT, SST-2 1.3B, ZPL", "clip"), "ours"] == np.inf  # none
    assert recipes.loc[("FT, SQuAD 1.3B, ZPL", "T"), "status"] == "not run (questions: chapter 15)"
    assert shown[shown["table"].str.contains("67b-ladder")]["status"].str.contains("6.7B").all()


def test_figures_draw(r):
    import matplotlib.pyplot as plt

    for figure in (figures.what_matters(r), figures.plateau(r), figures.captured_figure(r), figures.halves_law(r),
                   figures.study(r, "clip"), figures.studies(r, ["rate", "rank"]),
                   law.explorer_figure(-0.5, 0.5, 100, 2.9, 1000)):
        figure.canvas.draw()
        plt.close(figure)
    assert "of the signal" in figures.sentence(r, "ft")
