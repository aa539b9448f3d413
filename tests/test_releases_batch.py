"""The noise-free twin of the differentially private methods: same batches, same clip, no noise, no promise."""

import numpy as np
import pytest

from paclab import finetune, releases
from paclab.errors import InputError
from paclab.finetune import Config
from paclab.releases import batch, dp
from paclab.releases.secret import Secret
from paclab.verify import verify

N, STEPS = 40, 6


def twin(**options):
    return Config(**({"method": "aggzo", "k": 8, "clip": 0.5, "steps": STEPS, "pool": N, "sampling": 0.3} | options))


def private(**options):
    return Config(**({"method": "dp-aggzo", "k": 8, "clip": 0.5, "steps": STEPS, "pool": N, "sampling": 0.3,
                      "epsilon": 3.0, "accountant": "rdp-published"} | options))


def test_the_twin_is_dp_aggzo_without_its_noise():
    secret, rng = Secret.from_seed(2), np.random.default_rng(0)
    ours, theirs = batch.aggzo(twin(), secret), dp.differential(private(), secret)
    for t in range(STEPS):
        np.testing.assert_array_equal(ours.select(t), theirs.select(t))
        g = rng.standard_t(2, (8, 11)) * 5
        values = np.array(ours.step(None, t, g)[1].values)
        noisy = np.array(theirs.step(dp.Spent(t), t, g)[1].values)
        noise = theirs.public["noise_std"] * secret.normal("dp noise", t, count=8)
        np.testing.assert_allclose(values, noisy - noise, rtol=1e-9, atol=1e-9)


def test_without_a_clip_the_expected_mean_leaves():
    g = np.random.default_rng(1).normal(0, 100, (1, 12))
    values = batch.aggzo(twin(k=1, clip=None), Secret.from_seed(0)).step(None, 0, g)[1].values
    assert values[0] == pytest.approx(g.sum() / (0.3 * N))


def test_an_empty_batch_moves_nothing():
    assert batch.aggzo(twin(), Secret.from_seed(0)).step(None, 0, np.zeros((8, 0)))[1].values == (0.0,) * 8


def test_it_promises_nothing_and_takes_no_promise():
    assert not batch.aggzo(twin(), Secret.from_seed(0)).private and not releases.METHODS["aggzo"].differential
    with pytest.raises(InputError, match="promises no epsilon"):
        twin(epsilon=2.0)
    with pytest.raises(InputError, match="sampling"):
        twin(sampling=1.5)
    with pytest.raises(InputError, match="sampling"):
        Config(method="mezo", sampling=0.1)


def test_a_run_is_verified_from_its_files_and_its_pool(tmp_path):
    finetune.start(twin(steps=2, k=2, dev=20, test=20, study=True), tmp_path / "run", device="cpu")
    findings = verify(tmp_path / "run", pool=True)
    assert all(f.ok for f in findings), [f.text for f in findings if not f.ok]
