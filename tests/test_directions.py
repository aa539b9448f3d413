"""Public directions: the published generator, pure in its counter, standard normal."""

import numpy as np
import pytest
import torch
from scipy import stats

from paclab.errors import InputError
from paclab.zo.directions import CHUNK, MASK, Directions, philox

VECTORS = [  # Random123 known answers for philox4x32-10: counter, key, output
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK,) * 4, (MASK, MASK), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter, key, expected):
    words = philox(tuple(torch.tensor([c]) for c in counter), key)
    assert tuple(int(w) for w in words) == expected


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
