"""Expected one-step changes against simulation on quadratics, and the bound against measured DP-AggZO steps."""

import math

import numpy as np
import pytest

from paclab.errors import InputError
from paclab.privacy import consensus
from paclab.rates import training
from paclab.rates.training import Step

D, L = 40, 1.7  # isotropic: effective rank D, smoothness L


def quadratic_change(move, theta):
    return L / 2 * (((theta - move) ** 2).sum(-1) - (theta**2).sum())


def mean_and_error(x):
    return x.mean(), 4.5 * x.std() / math.sqrt(len(x))


@pytest.mark.parametrize(("k", "noise_std"), [(1, 0.0), (1, 3.0), (8, 3.0), (64, 0.5)])
def test_plain_steps_are_exact(k, noise_std):
    rng, lr, theta = np.random.default_rng(0), 0.02, np.full(D, 0.3)
    gradient, runs = L * theta, 20_000 if k < 64 else 3000
    z = rng.standard_normal((runs, k, D))
    released = z @ gradient + noise_std * rng.standard_normal((runs, k))
    move = lr / k * np.einsum("rk,rkd->rd", released, z)
    step = training.zeroth_order_step(lr, float(np.linalg.norm(gradient)), L, D, k, noise_std)
    mean, error = mean_and_error(quadratic_change(move, theta))
    assert step.change == pytest.approx(mean, abs=error) and error < 0.2 * abs(mean)
    assert step.descent == pytest.approx(mean_and_error(move @ gradient)[0], rel=0.05)


def aggzo_moves(records, k, clip, sigma, lr, runs, rng):
    """DP-AggZO from its definition: per-record gradients [n, D] -> moves [runs, D]."""
    moves = np.empty((runs, D))
    for i in range(runs):
        z = rng.standard_normal((k, D))
        v = records @ z.T / k
        v *= np.minimum(1, clip / np.linalg.norm(v, axis=1))[:, None]
        e = v.mean(axis=0) + sigma * clip / len(records) * rng.standard_normal(k)
        moves[i] = lr * e @ z
    return moves


@pytest.mark.parametrize("k", [1, 4, 32, 128])
@pytest.mark.parametrize("beta_clip", [2.0, 6.0, 40.0])
@pytest.mark.parametrize("sigma", [0.0, 5.0])
def test_lemma_4_bounds_measured_steps(k, beta_clip, sigma):
    """Clipped per-record vectors and noise, simulated: the measured change never exceeds the bound."""
    rng, lr, theta = np.random.default_rng(k), 0.05, np.full(D, 0.3)
    records = L * theta + rng.normal(0, 0.5, (50, D))
    records += L * theta - records.mean(axis=0)  # the mean gradient is exactly that of the quadratic
    measured = quadratic_change(aggzo_moves(records, k, beta_clip / math.sqrt(k), sigma, lr, 300, rng), theta)
    bound = training.lemma_4(lr, float(np.linalg.norm(L * theta)), L, D, k=k, beta_clip=beta_clip,
                             noise_multiplier=sigma, batch=50, mean_norm=float(np.linalg.norm(records, axis=1).mean()))
    mean, error = mean_and_error(measured)
    assert mean <= bound.change + error
    if beta_clip == 40.0 and sigma == 5.0 and k >= 32:  # where noise dominates the bound is not empty words
        assert bound.noise == pytest.approx(mean + bound.descent, rel=0.6)


def test_the_summary_without_our_term_would_fail():
    """Many directions, a step that overshoots: only the added l |g|^2 term keeps Lemma 4 above the truth."""
    g, lr, k, beta = 3.0, 1.1 / L, 4096, 300.0
    bound = training.lemma_4(lr, g, L, D, k=k, beta_clip=beta, noise_multiplier=0.0, batch=10, mean_norm=g)
    truth = training.zeroth_order_step(lr, g, L, D, k)
    assert truth.change <= bound.change
    assert truth.curvature > lr**2 / 2 * L * D * (g / math.sqrt(k)) ** 2 * 20


def test_more_directions_help_as_the_lemma_says():
    steps = [training.lemma_4(0.01, 2.0, L, D, k=k, beta_clip=20.0, noise_multiplier=1.0, batch=64, mean_norm=2.5)
             for k in (1, 4, 16, 64)]
    assert [s.descent for s in steps] == sorted(s.descent for s in steps)
    assert [s.curvature for s in steps] == sorted((s.curvature for s in steps), reverse=True)
    assert len({round(s.noise, 12) for s in steps}) == 1  # c = beta / sqrt K: the noise term does not grow with K


@pytest.mark.parametrize(("tau", "candidates"), [(2.9, 128), (1.5, 126), (6.0, 16)])
def test_free_share_is_the_dossiers_integral(tau, candidates):
    table = {(2.9, 128): .376, (6.0, 16): .769}
    x = np.abs(np.random.default_rng(3).standard_normal(40_000))
    sampled = np.array([(0.5 * (1 + math.erf(tau * v / math.sqrt(2)))) ** candidates for v in x])
    assert training.free_share(tau, candidates) == pytest.approx(sampled.mean(), abs=0.01)
    if (tau, candidates) in table:
        assert training.free_share(tau, candidates) == pytest.approx(table[tau, candidates], abs=6e-4)


@pytest.mark.parametrize("answer", ["coin", "skip"])
@pytest.mark.parametrize("correlation", [0.0, 0.4])
def test_paczero_steps_against_real_votes(answer, correlation):
    """Per-record numbers, complementary halves, votes: the measured change of a quadratic equals the formula."""
    if answer == "skip" and correlation:
        with pytest.raises(InputError, match="correlation"):
            training.paczero_step(0.1, 1.0, L, D, tau=2.0, candidates=8, on_disagreement="skip", correlation=0.4)
        return
    rng, n, m, lr, theta, tau = np.random.default_rng(5), 200, 16, 0.03, np.full(D, 0.3), 2.5
    gradient = L * theta
    norm = float(np.linalg.norm(gradient))
    spread = norm * math.sqrt(n) / tau
    changes, free = [], 0
    for i in range(6000):
        if i % 20 == 0:
            members = consensus.complementary_halves(n, m, rng)
        z = rng.standard_normal(D)
        noise = rng.normal(0, spread, n)
        votes = np.sign(consensus.candidate_means(z @ gradient + noise - noise.mean(), members))
        if abs(votes.sum()) == m:
            y, free = votes[0], free + 1
        elif answer == "skip":
            y = 0
        else:
            y = np.sign(z @ gradient) * (1 if rng.random() < (1 + correlation) / 2 else -1)
        changes.append(quadratic_change(lr * y * z, theta))
    step = training.paczero_step(lr, norm, L, D, tau=tau, candidates=m, on_disagreement=answer, correlation=correlation)
    mean, error = mean_and_error(np.array(changes))
    assert step.change == pytest.approx(mean, abs=error + 0.05 * abs(mean))  # Phi(|t|)^M is itself an approximation
    assert error < 0.3 * step.descent and training.free_share(tau, m) == pytest.approx(free / 6000, abs=0.03)


def test_a_coin_costs_curvature_and_a_skip_does_not():
    coin, skip = (training.paczero_step(0.01, 2.0, L, D, tau=2.0, candidates=126, on_disagreement=a)
                  for a in ("coin", "skip"))
    assert coin.descent == skip.descent and coin.curvature == skip.curvature and coin.noise > skip.noise == 0
    always = training.paczero_step(0.01, 2.0, L, D, tau=1e4, candidates=126)
    assert always.descent == pytest.approx(0.01 * 2 * math.sqrt(2 / math.pi), rel=1e-2)
    assert always.noise < 0.01 * always.curvature


def test_alpha_against_alpha_squared():
    step = training.zeroth_order_step(0.05, 2.0, L, D, 16, 8.0)
    best = training.best_alpha(step)
    grid = np.linspace(0.01, 3, 3000)
    changes = [training.shrunk(step, a).change for a in grid]
    assert best == pytest.approx(grid[int(np.argmin(changes))], abs=2e-3)
    half = training.shrunk(step, 0.5)
    assert half == Step(step.descent / 2, step.curvature / 4, step.noise / 4)
    direct = training.zeroth_order_step(0.025, 2.0, L, D, 16, 8.0)
    assert half == pytest.approx(direct)  # shrinking is a smaller learning rate, no more and no less


def test_best_alpha_is_the_wiener_gain():
    """As the gradient fades, alpha* / alpha*_ref follows w(rho) / w(rho_ref), with rho of one released value."""
    std = 4.0
    steps = [training.zeroth_order_step(0.01, g, L, 1e6, 16, std) for g in (4.0, 1.0, 0.3)]
    gains = [(g / std) ** 2 / (1 + (g / std) ** 2) for g in (4.0, 1.0, 0.3)]
    ratios = [training.best_alpha(s) / training.best_alpha(steps[0]) for s in steps]
    assert ratios == pytest.approx([w / gains[0] for w in gains], rel=1e-4)


def test_paths_against_simulated_runs():
    rng, lr, k, std, steps = np.random.default_rng(7), 0.01, 4, 2.0, 60
    theta = np.full((400, D), 0.5)
    for _ in range(steps):
        z = rng.standard_normal((400, k, D))
        released = np.einsum("rkd,rd->rk", z, L * theta) + std * rng.standard_normal((400, k))
        theta = theta - lr / k * np.einsum("rk,rkd->rd", released, z)
    losses = L / 2 * (theta**2).sum(1)
    def step_at(t, g):
        return training.zeroth_order_step(lr, g, L, D, k, std)

    path = training.quadratic_path(step_at, L / 2 * D * 0.25, L, steps)
    mean, error = mean_and_error(losses)
    assert path[-1] == pytest.approx(mean, abs=error) and len(path) == steps + 1
    assert training.best_lr(training.zeroth_order_step(1.0, 2.0, L, D, k, std)) == pytest.approx(
        4.0 / (2 * (0.5 * (4 * L * D / k + L * 4 * (k + 1) / k) + 0.5 * L * D * 4 / k)))


@pytest.mark.parametrize("call", [
    lambda: training.zeroth_order_step(0.0, 1, 1, 1), lambda: training.zeroth_order_step(0.1, -1, 1, 1),
    lambda: training.lemma_4(0.1, 1, 1, 1, k=0, beta_clip=1, noise_multiplier=1, batch=1, mean_norm=1),
    lambda: training.paczero_step(0.1, 1, 1, 1, tau=1, candidates=8, on_disagreement="majority"),
    lambda: training.clipped_share(1.0, 0.0)])
def test_bad_input(call):
    with pytest.raises(InputError):
        call()
