"""PACZero taken apart: each ablation releases what it says, says that it is not private, and runs whole."""

import numpy as np
import pytest

from paclab import finetune, releases
from paclab.finetune import Config
from paclab.privacy import consensus
from paclab.releases import half
from paclab.releases.paczero import Settings, paczero
from paclab.releases.secret import Secret
from paclab.verify import verify
from paclab.zo.directions import Directions
from paclab.zo.train import ledger_lines

N, M, SECRET = 40, 8, Secret.from_seed(3)
MEMBERSHIP = consensus.complementary_halves(N, M, np.random.default_rng(0))
MINE = MEMBERSHIP[:, SECRET.index(M)]


def settings(variant="quant-half", **options):
    return Settings(variant, MEMBERSHIP, SECRET, Directions(1).coin, 10, **options)


def test_raw_half_is_the_mean_over_the_secret_half():
    g = np.random.default_rng(1).normal(0, 30, (3, N))
    release = half.raw_half(MEMBERSHIP, SECRET, clip=25.0)
    values = release.step(None, 0, g)[1].values
    assert values == pytest.approx(np.clip(g, -25, 25)[:, MINE].mean(axis=1))
    assert not release.private and release.guarantee.startswith("not private")
    other = g.copy()
    other[:, ~MINE] = -7.0
    assert release.step(None, 0, other)[1].values == values


def test_quant_half_is_the_secret_vote_with_and_without_consensus():
    rng, release, split = np.random.default_rng(2), half.quant_half(settings()), 0
    for t in range(60):
        g = rng.normal(0.1, 1, (2, N))
        _, released, info = release.step(None, t, g)
        assert released.values == tuple(np.sign(g[:, MINE].mean(axis=1)))
        split += not all(info["unanimous"])
    assert split > 10 and not release.private and release.guarantee.startswith("not private")


def test_quant_half_and_paczero_agree_on_free_steps_and_ties():
    zpl, release = paczero(settings("zpl", on_disagreement="skip")), half.quant_half(settings())
    for g in (np.full((1, N), 2.0), np.zeros((1, N)), np.full((1, N), -1e-9)):
        assert release.step(None, 0, g)[1] == zpl.step(zpl.init(), 0, g)[1]
    compat = half.quant_half(settings(compat=True))
    assert compat.step(None, 0, np.zeros((1, N)))[1].values == (1.0,)  # the published sign(0)


def test_random_sign_looks_at_nothing():
    release = half.random_sign(3, SECRET)
    draws = [release.step(None, t, np.full((3, 5), t - 7.0))[1].values for t in range(400)]
    assert release.select(5).size == 0 and {len(d) for d in draws} == {3}
    assert draws == [release.step(None, t, np.zeros((3, 0)))[1].values for t in range(400)]
    assert set(np.ravel(draws)) == {-1.0, 1.0} and abs(np.mean(draws)) < 5 / np.sqrt(1200)


@pytest.mark.parametrize("method", ["raw-half", "quant-half", "random-sign"])
def test_ablations_run_and_verify(method, tmp_path):
    config = Config(method=method, pool=40, candidates=8, steps=3, k=2, dev=10, test=20, study=True)
    run = finetune.start(config, tmp_path / "run", device="cpu")
    assert run["status"] == "complete" and run["private"] is False
    assert run["guarantee"].startswith("not private") == (method != "random-sign")
    findings = verify(tmp_path / "run", pool=True)
    assert all(f.ok for f in findings), [f.text for f in findings if not f.ok]
    assert len(ledger_lines(finetune.Folder(tmp_path / "run"))) == 3
    assert releases.needs_candidates(method) == (method != "random-sign")


def test_private_coins_differ_between_runs(tmp_path):
    config = Config(method="random-sign", pool=40, steps=40, dev=10, test=10)
    for name in ("a", "b"):
        finetune.start(config, tmp_path / name, device="cpu")
    one, two = ((tmp_path / name / "transcript.txt").read_text() for name in ("a", "b"))
    assert one != two
