"""Secret randomness: fresh from the system, repeatable at a step, unrelated to anything public."""

import stat

import numpy as np
import pytest
from scipy import stats

from paclab.errors import InputError
from paclab.releases.secret import Secret
from paclab.zo.directions import Directions


def test_fresh_secrets_differ_and_draws_repeat():
    one, two = Secret.fresh(), Secret.fresh()
    assert one.key != two.key and not one.reproducible and Secret.from_seed(0).reproducible
    assert one.normal("noise", 7)[0] == one.normal("noise", 7)[0]
    draws = {one.normal(p, t, k)[0] for p in ("noise", "flip") for t in range(20) for k in range(3)}
    assert len(draws) == 120
    assert one.key.hex() not in repr(one)


def test_distributions():
    secret = Secret.from_seed(1)
    u = secret.uniform("u", 0, count=200_000)
    assert u.min() > 0 and u.max() < 1 and stats.kstest(u, "uniform").pvalue > 1e-3
    assert stats.kstest(secret.normal("z", 0, count=200_000), "norm").pvalue > 1e-3
    heads = sum(secret.coin("c", t) == 1 for t in range(4000))
    assert stats.binomtest(heads, 4000).pvalue > 1e-3
    index = np.bincount([Secret.from_seed(s).index(8) for s in range(4000)], minlength=8)
    assert stats.chisquare(index).pvalue > 1e-3


def test_noise_does_not_move_with_the_public_key():
    """Zeroth-order dossier D2, D3: in published code the noise is a function of the public seed."""
    secret = Secret.from_seed(3)
    before = [secret.normal("noise", t)[0] for t in range(50)]
    for key in range(50):
        Directions(key).normal(0, 0, "w", (8,))
    assert before == [secret.normal("noise", t)[0] for t in range(50)]
    z = Directions(3).normal(0, 0, "noise", (50,)).numpy()
    assert abs(np.corrcoef(before, z)[0, 1]) < 0.5


def test_file_modes_and_loss(tmp_path):
    secret = Secret.fresh()
    secret.save(tmp_path / "secret", "a hash")
    assert Secret.load(tmp_path / "secret") == (secret, "a hash")
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "secret" / "secret.json").stat().st_mode) == 0o600
    with pytest.raises(InputError, match="secret"):
        Secret.load(tmp_path / "nowhere")


def test_the_published_secret_index_is_a_constant():
    """The published code draws j* from a generator re-seeded with 42: index 102, always. Never used here."""
    for candidates in (126, 128):
        assert np.random.RandomState(42).randint(candidates) == 102
