"""Public directions: the published generator, pure in its counter, standard normal."""

import numpy as np
import pytest
import torch
from scipy import stats

from paclab.errors import InputError
from paclab.zo.directions import CHUNK, MASK, Directions, device_words, philox, tensor_id, words

VECTORS = [  # Random123 known answers for philox4x64-10: counter, key, output
    ((0, 0, 0, 0), (0, 0), (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)),
    ((MASK,) * 4, (MASK, MASK), (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0)),
    ((0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
     (0x452821E638D01377, 0xBE5466CF34E90C6C),
     (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6)),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter, key, expected):
    signed = np.array(counter, dtype=np.uint64).view(np.int64)
    out = philox(tuple(torch.tensor([int(c)]) for c in signed), key)
    assert tuple(int(w) & MASK for w in out) == expected


@pytest.mark.parametrize("key", [0, 5, MASK])
def test_every_device_draws_the_same_integers(key, monkeypatch):
    """NumPy's generator and the one for other devices agree, also past one chunk."""
    monkeypatch.setattr("paclab.zo.directions.DEVICE_CHUNK", 100)
    for step, k, count in ((0, 0, 1009), (70_000, 63, 1), (3, 1, 400)):
        name = tensor_id(f"h.{step}.weight")
        assert torch.equal(words(key, name, step, k, count), device_words(key, name, step, k, count, "cpu"))


def test_pure_in_key_step_direction_name_and_element():
    d = Directions(11)
    whole = d.normal(3, 1, "w", (4 * CHUNK + 7,))
    assert torch.equal(whole[:1000], d.normal(3, 1, "w", (1000,)))  # no dependence on size or chunks
    assert torch.equal(whole, Directions(11).normal(3, 1, "w", (4 * CHUNK + 7,)))
    for other in (d.normal(4, 1, "w", (64,)), d.normal(3, 0, "w", (64,)), d.normal(3, 1, "v", (64,)),
                  Directions(12).normal(3, 1, "w", (64,))):
        assert abs(np.corrcoef(whole[:64], other)[0, 1]) < 0.6 and not torch.equal(whole[:64], other)


def test_threads_do_not_matter():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = Directions(5).normal(0, 0, "w", (300_001,))
        torch.set_num_threads(2)
        two = Directions(5).normal(0, 0, "w", (300_001,))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, two)


def test_standard_normal_with_independent_neighbours():
    z = Directions(2026).normal(0, 0, "weights", (1 << 20,)).double().numpy()
    assert stats.kstest(z, "norm").pvalue > 1e-3
    for lag in (1, 2, 3, 4):
        assert abs(np.mean(z[:-lag] * z[lag:])) < 5 / np.sqrt(z.size)
    assert abs(np.mean(z**4) - 3) < 5 * np.sqrt(96 / z.size)


def test_public_coin_is_fair_and_fixed():
    coins = [Directions(9).coin(t, 0) for t in range(2000)]
    assert coins == [Directions(9).coin(t, 0) for t in range(2000)]
    assert set(coins) == {-1, 1} and stats.binomtest(coins.count(1), 2000).pvalue > 1e-3


def test_bad_key():
    with pytest.raises(InputError, match="key"):
        Directions(1 << 64)
