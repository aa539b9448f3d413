"""The differentially private releases: sensitivity by search, noise by its law, batches, equivalences, whole runs."""

import dataclasses
import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from paclab import cli, experiments, finetune, releases
from paclab.errors import InputError
from paclab.finetune import Config
from paclab.privacy import dp as accounting
from paclab.privacy.budget import BudgetExhausted
from paclab.releases import dp
from paclab.releases.oracle import oracle
from paclab.releases.secret import Secret
from paclab.verify import verify
from paclab.zo import sage, transcript
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights
from paclab.zo.train import Folder, Job, ledger_lines, probe, train
from paclab.zo.update import constant, descend

pytestmark = pytest.mark.filterwarnings("ignore::paclab.zo.sage.UndetectableSignal")
STEPS, N = 6, 40
KS = {"dpzero": 1, "dp-aggzo": 8, "dp-zo": 1, "geodpzo-sc": 8, "geodpzo-lc": 7}


def config(method="dp-aggzo", **options):
    base = {"method": method, "k": KS[method], "epsilon": 3.0, "clip": 0.5, "steps": STEPS, "pool": N, "sampling": 0.3,
            "accountant": "rdp-published"}
    return Config(**base | options)


def made(method, **options):
    given = config(method, **options)
    return dp.plan(given, dp.rate(given) * given.pool)


class Silent(Secret):
    """A secret whose noise is zero, to see the signal."""

    def normal(self, purpose, step, k=0, count=1):
        return np.zeros(count)


# ---------------------------------------------------------------- sensitivity


@pytest.mark.parametrize("method", KS)
def test_one_record_moves_the_sum_by_at_most_the_clip(method):
    """Random and extreme records: every contribution has norm <= c, some reach it, and clipping keeps direction."""
    plan, rng = made(method), np.random.default_rng(0)
    records = rng.standard_t(1.5, (plan.k, 4000)) * 10.0 ** rng.uniform(-4, 6, 4000) / plan.unit
    records[:, :3] = np.array([[1e300, 0.0, -1e-300]])
    records[0, 3], records[1:, 3] = 1e9, 0
    out, share = dp.bounded(plan, records)
    norms = np.linalg.norm(out, axis=0)
    assert (norms <= plan.clip * (1 + 1e-12)).all() and norms.max() == pytest.approx(plan.clip)
    assert 0.2 < share < 0.9
    small = records[:, 4:] * (1e-9 / plan.unit / np.abs(records[:, 4:]).max(axis=0))
    assert dp.bounded(plan, small)[1] == 0


@pytest.mark.parametrize("method", KS)
def test_a_record_more_or_another_one_moves_the_release_as_claimed(method):
    """Through `step` with zero noise: add/remove moves by <= c, replacing by <= 2c, in units of noise / multiplier."""
    given = config(method)
    release, rng = dp.differential(given, Silent(b"k" * 32)), np.random.default_rng(1)
    unit = release.public["noise_std"] / release.public["noise_multiplier"]  # the clip in released units
    moved = []
    for _ in range(200):
        records = rng.normal(0, 10 ** rng.uniform(-3, 5), (given.k, 12))
        whole = np.array(release.step(release.init(), 0, records)[1].values)
        less = np.array(release.step(release.init(), 0, records[:, 1:])[1].values)
        other = records.copy()
        other[:, 0] = -records[:, 0]
        swapped = np.array(release.step(release.init(), 0, other)[1].values)
        moved.append((np.linalg.norm(whole - less) / unit, np.linalg.norm(whole - swapped) / unit))
    moved = np.array(moved).max(axis=0)
    assert 0.99 < moved[0] <= 1 + 1e-9 and 1.98 < moved[1] <= 2 + 1e-9


def test_noise_has_the_calibrated_law():
    """The released residual over claimed std is standard normal (or Laplace) over steps and directions."""
    for options, law in (({"method": "dp-aggzo"}, stats.norm), ({"method": "dp-zo", "noise": "laplace"}, None)):
        release = dp.differential(config(**options), Secret.from_seed(3))
        draws = [np.array(release.step(release.init(), t, np.zeros((KS[options["method"]], 5)))[1].values)
                 for t in range(4000 // KS[options["method"]])]
        residual = np.concatenate(draws) / release.public["noise_std"]
        assert stats.kstest(residual, (law or stats.laplace(scale=1 / math.sqrt(2))).cdf).pvalue > 1e-3


def test_published_units():
    """The release equals K times the published e_k: sum of clipped (1/K) vectors over b; dp-zo divides by 2 mu B."""
    rng = np.random.default_rng(2)
    g = rng.normal(0, 3, (8, 20))
    release = dp.differential(config("dp-aggzo"), Silent(b"k" * 32))
    v = g / 8
    e = (v * np.minimum(1, 0.5 / np.linalg.norm(v, axis=0))).sum(axis=1) / (0.3 * N)
    assert np.array(release.step(release.init(), 0, g)[1].values) == pytest.approx(8 * e)
    zo = dp.differential(config("dp-zo", clip=0.004), Silent(b"k" * 32))
    loss = g[:1] * 2e-3
    assert zo.step(zo.init(), 0, g[:1])[1].values[0] == pytest.approx(
        np.clip(loss, -0.004, 0.004).sum() / (2e-3 * 0.3 * N))


def test_single_direction_aggzo_is_dpzero():
    g, secret = np.random.default_rng(3).normal(0, 2, (1, 15)), Secret.from_seed(1)
    one, two = (dp.differential(config(name, k=1), secret).step(dp.Spent(), 2, g)[1] for name in ("dpzero", "dp-aggzo"))
    assert one == two


# ---------------------------------------------------------------- equivalences


def test_symmetric_clipping_is_retuned_aggzo():
    """GeoDPZO-sc(c) = DP-AggZO(c / sqrt 2) with lr sqrt 2, step by step, noise included, to rounding."""
    secret = Secret.from_seed(5)
    sc = dp.differential(config("geodpzo-sc", clip=0.7), secret)
    agg = dp.differential(config("dp-aggzo", clip=0.7 / math.sqrt(2)), secret)
    rng = np.random.default_rng(4)
    for t in range(STEPS):
        g = rng.standard_t(2, (8, 11)) * 5
        a, b = (np.array(r.step(dp.Spent(t), t, g)[1].values) for r in (sc, agg))
        assert a == pytest.approx(math.sqrt(2) * b, rel=1e-12)
    # and therefore the same weights
    digests = []
    for method, clip, lr in (("geodpzo-sc", 0.7, 0.1), ("dp-aggzo", 0.7 / math.sqrt(2), 0.1 * math.sqrt(2))):
        one = job(method, clip=clip)._replace(lr_at=constant(lr, STEPS))
        for t in range(STEPS):
            values = one.release.step(dp.Spent(t), t, probe(one, t))[1].values
            descend(one.weights, one.directions, t, values, lr)
        digests.append(torch.cat([m.reshape(-1) for m in one.weights.master.values()]))
    assert torch.allclose(*digests, rtol=1e-4, atol=1e-5)


def test_localisation_by_hand():
    """Sorted -9 -1 0 2 5: pair sums -4, 1, 0: the largest jump of their sizes follows the outermost pair."""
    got = dp.localised(np.array([[2.0], [-9.0], [5.0], [0.0], [-1.0]]))
    assert got.ravel().tolist() == [2.0, -7.0, 7.0, 0.0, -1.0]
    symmetric = np.array([[-3.0], [3.0], [1.0], [-1.0]])
    assert (dp.localised(symmetric) == symmetric).all()


def test_localisation_against_a_plain_loop():
    rng = np.random.default_rng(6)
    for k in (2, 3, 8, 9):
        vectors = rng.standard_t(2, (k, 30))
        got = dp.localised(vectors)
        for column, mine in zip(vectors.T, got.T, strict=True):
            order = sorted(range(k), key=lambda i, column=column: column[i])
            ranked = [column[i] for i in order]
            sizes = [abs(ranked[i] + ranked[k - 1 - i]) for i in range(k)]
            jumps = [abs(sizes[i + 1] - sizes[i]) for i in range(k - 1)]
            for i in range(jumps.index(max(jumps)) + 1):
                mean = (ranked[i] + ranked[k - 1 - i]) / 2
                ranked[i], ranked[k - 1 - i] = ranked[i] - mean, ranked[k - 1 - i] - mean
            expected = np.empty(k)
            expected[order] = ranked
            assert mine == pytest.approx(expected, abs=1e-12)


# ---------------------------------------------------------------- batches and secrets


def test_batches_are_poisson_and_independent():
    """Sizes are binomial, records join independently of each other and of earlier steps, and the secret decides."""
    q, records, steps = 0.2, 30, 4000
    plan = made("dp-aggzo", sampling=q)
    joined = np.zeros((steps, records))
    for t in range(steps):
        joined[t, dp.select(plan, Secret.from_seed(7), records, t)] = 1
    sizes = np.bincount(joined.sum(axis=1).astype(int), minlength=records + 1)
    law = stats.binom(records, q).pmf(np.arange(records + 1)) * steps
    keep = law > 5
    seen, expected = (np.append(x[keep], x[~keep].sum()) for x in (sizes, law))
    assert stats.chisquare(seen, expected).pvalue > 1e-3
    assert np.abs(joined.mean(axis=0) - q).max() < 5 * math.sqrt(q * (1 - q) / steps)
    pairs = np.corrcoef(joined.T) - np.eye(records)
    assert np.abs(pairs).max() < 5 / math.sqrt(steps)
    lag = np.mean((joined[1:] - q) * (joined[:-1] - q)) / (q * (1 - q))
    assert abs(lag) < 5 / math.sqrt(steps * records)
    others = [dp.select(plan, Secret.from_seed(8), records, t).tolist() for t in range(5)]
    assert others != [np.flatnonzero(joined[t]).tolist() for t in range(5)]
    assert dp.select(made("dp-aggzo", sampling=1.0), Secret.from_seed(7), records, 0) is None


def test_an_empty_batch_releases_noise_and_is_charged():
    release = dp.differential(config(), Secret.from_seed(0))
    private, released, info = release.step(release.init(), 0, np.zeros((8, 0)))
    assert private.steps == 1 and info["batch"] == 0 and info["clipped"] == 0.0
    assert min(map(abs, released.values)) > 0
    full = release.step(release.init(), 0, np.zeros((8, 3)))[1]
    assert full == released  # the same noise: an observer cannot tell an empty batch from a null signal


def test_noise_and_batches_never_come_from_the_direction_stream():
    """Re-seeding the directions (and every global generator) leaves noise and batches as they are."""
    def draws(key, seed):
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        release = releases.open_release(config(), None, Secret.from_seed(9), Directions(key))
        batches = [release.select(t).tolist() for t in range(STEPS)]
        return batches, [release.step(dp.Spent(t), t, np.zeros((8, 4)))[1] for t in range(STEPS)]

    assert draws(1, 1) == draws(2**63 + 5, 77)
    other = releases.open_release(config(), None, Secret.from_seed(10), Directions(1))
    assert other.step(dp.Spent(), 0, np.zeros((8, 4)))[1] != draws(1, 1)[1][0]
    flat = [v for released in draws(1, 1)[1] for v in released.values]
    assert len(set(flat)) == len(flat)


def test_the_promise_stops_after_the_planned_steps():
    release = dp.differential(config(), Secret.from_seed(0))
    private = release.init()
    for t in range(STEPS):
        private, _, _ = release.step(private, t, np.zeros((8, 1)))
    with pytest.raises(BudgetExhausted, match="covers 6 steps"):
        release.step(private, STEPS, np.zeros((8, 1)))
    lost = release.step(release.init(), 0, np.full((8, 2), np.nan))[1]  # an abort would tell of a record
    assert lost == release.step(release.init(), 0, np.zeros((8, 2)))[1]
    with pytest.raises(InputError, match="directions"):
        release.step(release.init(), 0, np.zeros((3, 2)))


# ---------------------------------------------------------------- calibration in a run


def test_calibrations_meet_their_promise():
    q = 0.3
    for options in ({}, {"accountant": "pld"}, {"accountant": "pld", "adjacency": "replace-one"},
                    {"normaliser": "private"}, {"method": "dp-zo", "noise": "laplace"}):
        given = config(**options)
        assert 2.95 < dp.spent(given, STEPS) <= 3 * (1 + 1e-12) and dp.spent(given, 2) < dp.spent(given, STEPS)
        assert dp.spent(given, 0) == 0
    published = config("dpzero", adjacency="replace-one")
    assert dp.multiplier(published) == 2 * dp.multiplier(config("dpzero"))
    assert "published factor 2 (certified for replace-one" in dp.guarantee(published)
    private = config(normaliser="private")
    assert dp.multiplier(private) == accounting.published_multiplier(3.0, q, STEPS, 1e-5, share=0.95)


def test_the_private_normaliser_is_laplace_around_the_pool():
    given = config(normaliser="private", epsilon=2.0)
    draws = np.array([dp.records_normaliser(given, Secret.from_seed(s)) for s in range(3000)]) / 0.3
    law = stats.laplace(N, 1 / (0.05 * 2.0))
    kept = draws > 1.0
    assert kept.mean() == pytest.approx(1 - law.cdf(1), abs=0.02) and draws.min() >= 1.0
    assert stats.kstest(draws[kept], lambda x: (law.cdf(x) - law.cdf(1)) / (1 - law.cdf(1))).pvalue > 1e-3
    assert dp.records_normaliser(config(), Secret.from_seed(0)) == pytest.approx(0.3 * N)


def test_guarantees_name_the_unit():
    for method in KS:
        text = dp.guarantee(config(method))
        assert text.startswith("(3, 1e-05)-differential privacy") and "one record more or less" in text
        assert "replaced by any other" in dp.guarantee(config(method, adjacency="replace-one"))
    assert dp.guarantee(config("dp-zo", noise="laplace")).startswith("(3, 0)-")


# ---------------------------------------------------------------- the loop: kill, resume, replay


def job(method="dp-aggzo", rule=None, **options):
    targets = torch.from_numpy(np.random.default_rng(1).normal(1, 1, (N, 7))).float()
    live = {"b": torch.zeros(3), "a": torch.zeros(4)}

    def losses(batch=None):
        theta = torch.cat([live["a"], live["b"]])
        chosen = targets if batch is None else targets[torch.from_numpy(np.asarray(batch))]
        return (chosen - theta).double().pow(2).sum(1).numpy()

    given = config(method, **options)
    release = dp.differential(given, Secret.from_seed(0))
    if rule is None:
        rule = sage.sage(sage.Settings(release.public["noise_std"], given.k, 0.5, 2, gain="linear"))
    return Job(losses, Weights(live), Directions(77), release, constant(0.2, STEPS), STEPS, given.k, 1e-3, rule)


class Killed(BaseException):
    pass


def contents(folder):
    return {p.relative_to(folder.path).as_posix(): p.read_bytes() for p in folder.path.rglob("*")
            if p.is_file() and p.name != "lock"}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    whole, folder = job(sampling=0.03, epsilon=30.0), Folder(tmp_path_factory.mktemp("whole"))
    train(whole, folder)
    assert 0 in [info["batch"] for info in ledger_lines(folder)]  # an empty batch is among the steps
    lines, state, factors = transcript.read(folder.transcript, 8), whole.rule.init(), []
    for line in lines:
        state, factor = whole.rule.step(state, line.t, line.values)
        factors.append(factor)
    assert min(factors) < 0.9  # and the rule's state matters
    return contents(folder), whole.weights.digest()


@pytest.mark.parametrize("kill_at", range(2 * STEPS))
def test_a_kill_anywhere_restores_accountant_sampler_noise_and_rule(kill_at, tmp_path, monkeypatch, reference):
    folder, count = Folder(tmp_path / "run"), [0]
    honest = transcript.append

    def dying(path, text, mode=0o644):
        if count[0] == kill_at:
            honest(path, text[: len(text) // 2], mode)
            raise Killed
        count[0] += 1
        honest(path, text, mode)

    monkeypatch.setattr(transcript, "append", dying)
    with pytest.raises(Killed):
        train(job(sampling=0.03, epsilon=30.0), folder)
    monkeypatch.setattr(transcript, "append", honest)
    second = job(sampling=0.03, epsilon=30.0)
    train(second, folder)
    assert contents(folder) == reference[0] and second.weights.digest() == reference[1]


def test_a_resumed_run_cannot_go_on_past_its_promise(tmp_path):
    folder = Folder(tmp_path)
    train(job(), folder)
    with pytest.raises(BudgetExhausted):
        train(job()._replace(steps=STEPS + 1), folder)
    assert len(transcript.read(folder.transcript)) == STEPS


def test_replay_recomputes_the_factor(tmp_path):
    """From base weights, direction key and transcript alone; the plain rule would end elsewhere."""
    trained, folder = job(sampling=1.0, epsilon=30.0), Folder(tmp_path)
    train(trained, folder)
    def bare():
        return Weights({"a": torch.zeros(4), "b": torch.zeros(3)})
    lines = transcript.read(folder.transcript, 8)
    assert transcript.replay(bare(), Directions(77), lines, trained.rule).weights.digest() == trained.weights.digest()
    assert transcript.replay(bare(), Directions(77), lines).weights.digest() != trained.weights.digest()


def test_the_oracle_is_no_private_release():
    inner = dp.differential(config(), Secret.from_seed(0))
    std = inner.public["noise_std"]
    given = sage.Settings(std, 8, 0.9, 1)
    twin = oracle(inner, sage.sage(given).step, sage.init, std)
    assert not twin.private and twin.guarantee.startswith("not private") and "sage-oracle" in twin.name
    private, plain = twin.init(), inner.init()
    rng = np.random.default_rng(0)
    for t, scale in enumerate((100.0, 100.0, 1e-6, 1e-6)):
        g = rng.normal(scale, scale, (8, 30))
        before = private
        private, released, info = twin.step(private, t, g)
        plain, unscaled, _ = inner.step(plain, t, g)
        assert released.values == pytest.approx([info["alpha"] * v for v in unscaled.values])
        assert twin.replay(before, t, json.loads(json.dumps(info))) == private
    assert info["alpha"] < 1  # the signal vanished, and the oracle knows at once


# ---------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def tiny(tiny_model):
    """A random GPT-2 of one layer with a byte-level vocabulary, as a model folder."""
    return str(tiny_model)


RUNS = [{"method": "dpzero", "k": 1}, {"method": "dpzero", "k": 1, "adjacency": "replace-one"},
        {"method": "dp-aggzo", "k": 3, "normaliser": "private", "rule": "sage", "warmup": 1},
        {"method": "dp-zo", "k": 1, "noise": "laplace", "clip": 0.01},
        {"method": "geodpzo-sc", "k": 2, "rule": "fixed", "factor": 0.5},
        {"method": "geodpzo-lc", "k": 2, "sampling": 1.0},
        {"method": "dp-aggzo", "k": 2, "rule": "sage-oracle"}]


def small(tiny, **options):
    given = {"pool": 16, "steps": 3, "dev": 4, "test": 6, "epsilon": 8.0, "clip": 5.0, "sampling": 0.2, "model": tiny,
             "source": f"{tiny}/films.csv", "accountant": "rdp-published", "study": True}
    return Config(**given | options)


@pytest.mark.parametrize("options", RUNS, ids=lambda o: "-".join(map(str, o.values())))
def test_every_method_trains_verifies_and_stays_public(options, tiny, tmp_path):
    run = finetune.start(small(tiny, **options), tmp_path / "run", device="cpu")
    promises = options.get("rule") != "sage-oracle"
    assert run["status"] == "complete" and run["guarantee"].startswith("none, reproducible") == promises
    findings = verify(tmp_path / "run", pool=True)
    assert all(f.ok for f in findings), [f.text for f in findings if not f.ok]
    assert any("cost epsilon" in f.text for f in findings) == promises
    shutil.rmtree(tmp_path / "run" / "private")
    shutil.rmtree(tmp_path / "run" / "secret")
    assert all(f.ok for f in verify(tmp_path / "run"))


def test_verify_finds_a_wrong_noise(tiny, tmp_path):
    finetune.start(small(tiny, method="dpzero"), tmp_path / "run", device="cpu")
    path = tmp_path / "run" / "run.json"
    run = json.loads(path.read_text())
    run["release"]["noise_std"] /= 2
    path.write_text(json.dumps(run))
    assert ["cost epsilon" in f.text for f in verify(tmp_path / "run") if not f.ok] == [True]


def test_a_killed_process_resumes_to_the_same_run(tiny, tmp_path):
    given = small(tiny, method="dp-aggzo", k=2, steps=5, rule="fixed", factor=0.5)
    finetune.start(given, tmp_path / "whole", device="cpu")
    code = ("import os, sys\nfrom paclab import finetune\nfrom paclab.finetune import Config\n"
            "stop = lambda progress: os._exit(9) if progress.t == 3 else None\n"
            f"finetune.start(Config(**{dataclasses.asdict(given)!r}), sys.argv[1], device='cpu', watch=stop)")
    broken = tmp_path / "broken"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(broken)]).returncode == 9
    finetune.resume(broken)
    for name in ("run.json", "transcript.txt", "metrics.jsonl", "test.npy", "private/ledger.jsonl"):
        assert (broken / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_cells_are_named_by_what_differs(tiny):
    old, new = Config(study=True), Config(study=True, epsilon=None, rule="plain")
    assert experiments.cell_name(old) == experiments.cell_name(new)
    names = {experiments.cell_name(small(tiny, method="dp-aggzo", k=2, **o)) for o in (
        {}, {"epsilon": 4.0}, {"sampling": 0.3}, {"rule": "sage"}, {"normaliser": "private"}, {"delta": 1e-6})}
    assert len(names) == 6


BAD = [
    ([], "--epsilon: dp-aggzo needs a promise for the whole run; give --epsilon 2, say"),
    (["--epsilon", "0"], "--epsilon: 0.0"), (["--epsilon", "-1"], "--epsilon: -1.0"),
    (["--epsilon", "2", "--delta", "0"], "--delta: 0.0 is not in (0, 1)"),
    (["--epsilon", "2", "--delta", "1"], "--delta: 1.0"),
    (["--epsilon", "2", "--sampling", "0"], "--sampling: 0.0"),
    (["--epsilon", "2", "--sampling", "1.2"], "--sampling: 1.2"),
    (["--epsilon", "2", "--clip", "0"], "--clip: 0.0 is not a positive number"),
    (["--epsilon", "2", "--k", "0"], "--k: 0 is not positive"),
    (["--epsilon", "1e-6", "--steps", "1000", "--sampling", "1", "--delta", "1e-12", "--accountant", "rdp"],
     "--epsilon: 1e-06 cannot be met at delta 1e-12 by any multiplier"),
    (["--epsilon", "2", "--accountant", "prv"], "--accountant: 'prv' is unknown"),
    (["--epsilon", "2", "--adjacency", "swap"], "--adjacency: 'swap' is unknown"),
    (["--epsilon", "2", "--accountant", "rdp", "--adjacency", "replace-one"], "--accountant: rdp does not account"),
    (["--epsilon", "2", "--noise", "laplace"], "--noise: 'laplace' is not offered by dp-aggzo"),
    (["--epsilon", "2", "--normaliser", "n"], "--normaliser: 'n' is unknown"),
    (["--epsilon", "2", "--normaliser", "private", "--adjacency", "replace-one"], "--normaliser: "),
    (["--epsilon", "2", "--method", "dpzero", "--k", "4"], "--k: dpzero releases one number a step"),
    (["--epsilon", "2", "--method", "geodpzo-lc", "--k", "1"], "--k: geodpzo-lc compares"),
    (["--epsilon", "2", "--method", "mezo"], "--epsilon: mezo promises no epsilon"),
    (["--epsilon", "2", "--rule", "sag"], "--rule: 'sag' is unknown; did you mean 'sage'?"),
    (["--epsilon", "2", "--rule", "fixed"], "--factor: --rule fixed needs a factor; give --rule fixed with --factor"),
    (["--epsilon", "2", "--gain", "wierner"], "--gain: 'wierner' is unknown; did you mean 'wiener'?"),
    (["--epsilon", "2", "--tracking", "1"], "--tracking: 1.0 is not in (0, 1)"),
    (["--epsilon", "2", "--warmup", "5"], "--warmup: 5 of 2 steps"),
    (["--epsilon", "2", "--alpha-min", "0"], "--alpha-min: 0.0 is not in (0, 1]"),
    (["--method", "mezo", "--rule", "sage"], "--rule: mezo adds no Gaussian noise"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[" ".join(flags) for flags, _ in BAD])
def test_bad_input_is_one_line_and_status_two(flags, message, tmp_path, monkeypatch, capsys):
    usual = ["--method", "dp-aggzo", "--k", "2", "--clip", "5", "--steps", "2", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["paclab", "train", *usual, *flags])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith(f"paclab: {message}") and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_missing_clip_is_refused():
    with pytest.raises(InputError, match="clip: dpzero bounds every record"):
        Config(method="dpzero", epsilon=1.0)
