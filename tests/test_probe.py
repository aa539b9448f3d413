"""Probes and updates: weights restored exactly, no update lost, the step goes downhill."""

import numpy as np
import pytest
import torch

from paclab.zo.directions import Directions
from paclab.zo.probe import Copy, Weights, all_differences, differences
from paclab.zo.update import descend, linear, schedule


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_hundred_probes_leave_every_bit(dtype):
    torch.manual_seed(0)
    live = {"ones": torch.ones(257, dtype=dtype), "small": (torch.randn(31, 9) * 0.02).to(dtype)}
    before = {name: tensor.clone() for name, tensor in live.items()}
    weights, d = Weights(live), Directions(1)
    for t in range(200):
        differences(lambda: np.array([float(live["ones"].float().sum())]), weights, d, t, 0, 1e-3)
    assert all(torch.equal(live[name], before[name]) for name in live)


def test_a_failing_loss_leaves_the_weights_restored():
    live = {"w": torch.ones(5)}
    weights = Weights(live)
    with pytest.raises(ZeroDivisionError):
        differences(lambda: np.array([1 / 0]), weights, Directions(1), 0, 0, 1e-3)
    assert torch.equal(live["w"], torch.ones(5))


def test_small_updates_add_up_in_bfloat16():
    live = {"w": torch.ones(64, dtype=torch.bfloat16)}
    weights, d = Weights(live), Directions(3)
    total = torch.zeros(64, dtype=torch.float64)
    for t in range(400):  # each step alone is far below bfloat16's spacing of 2^-7 near one
        descend(weights, d, t, [1.0], 1e-4)
        total -= 1e-4 * d.normal(t, 0, "w", (64,)).double()
    assert torch.allclose(weights.master["w"].double(), 1 + total, atol=1e-5)
    assert torch.equal(live["w"], weights.master["w"].bfloat16())


def test_differences_are_directional_derivatives():
    torch.manual_seed(1)
    live, a = {"w": torch.randn(40)}, torch.randn(6, 40)
    weights, d = Weights(live), Directions(8)
    g = differences(lambda: (a @ live["w"].double().float()).pow(2).double().numpy(), weights, d, 5, 2, 1e-3)
    exact = 2 * (a @ live["w"]) * (a @ d.normal(5, 2, "w", (40,)))
    assert np.allclose(g, exact.numpy(), rtol=2e-2, atol=2e-2)


def test_steps_go_downhill():
    live = {"w": torch.full((30,), 2.0)}
    weights, d = Weights(live), Directions(4)
    losses = lambda: live["w"].double().pow(2).sum().view(1).numpy()  # noqa: E731
    start = losses()[0]
    for t in range(60):
        g = differences(losses, weights, d, t, 0, 1e-3)
        descend(weights, d, t, [float(np.sign(g[0]))], 0.05)
    assert losses()[0] < 0.7 * start


def test_zero_is_no_update_and_k_bits_are_averaged():
    live = {"w": torch.zeros(10)}
    weights, d = Weights(live), Directions(6)
    descend(weights, d, 0, [0.0], 1.0)
    assert torch.equal(live["w"], torch.zeros(10))
    descend(weights, d, 1, [1.0, -1.0], 0.5)
    z = [d.normal(1, k, "w", (10,)) for k in (0, 1)]
    assert torch.allclose(live["w"], -0.25 * (z[0] - z[1]), atol=1e-7)


def test_schedules():
    lr = linear(1e-3, 10)
    assert lr(0) == 1e-3 and abs(lr(10) - 1e-7) < 1e-18 and abs(lr(5) - (1e-3 + 1e-7) / 2) < 1e-12
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        schedule("liner", 1.0, 1)


def quadratic(records=9):
    """A toy with live tensors of its own at every call: (losses, live)."""
    targets = torch.from_numpy(np.random.default_rng(5).normal(0, 1, (records, 6))).float()
    live = {"a": torch.full((2,), 0.5), "b": torch.full((4,), -0.25)}

    def losses(batch=None):
        picked = targets if batch is None else targets[torch.from_numpy(batch)]
        return (picked - torch.cat([live["a"], live["b"]])).pow(2).sum(1).double().numpy()

    return losses, live


@pytest.mark.parametrize("batch", [None, np.array([1, 4, 7])])
def test_directions_side_by_side_give_the_same_bits(batch):
    """On copies, in any order and by any number of threads, as one after another; the live tensors stay untouched."""
    losses, live = quadratic()
    weights, d = Weights(live), Directions(9)
    plain = all_differences(losses, batch, weights, d, 2, 7, 1e-3)
    assert plain.shape == (7, 9 if batch is None else 3)
    made = []

    def copies(count):
        while len(made) < count:
            made.append(Copy(*quadratic()))
        return made[:count]

    before = {name: tensor.clone() for name, tensor in live.items()}
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        assert np.array_equal(all_differences(losses, batch, weights, d, 2, 7, 1e-3, copies), plain)
    assert len(made) == 5 and all(torch.equal(live[name], before[name]) for name in live)


def test_directions_beyond_the_cache_are_drawn_again(monkeypatch):
    losses, live = quadratic()
    kept = all_differences(losses, None, Weights(live), Directions(9), 0, 5, 1e-3)
    monkeypatch.setattr("paclab.zo.probe.CACHED_NUMBERS", 7)
    weights = Weights(live)
    for t in (0, 1, 0):
        again = all_differences(losses, None, weights, Directions(9), t, 5, 1e-3)
        assert sum(z.numel() for z in weights._kept.values()) <= 7
    assert np.array_equal(again, kept)
