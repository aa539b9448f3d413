"""SAGE (our reading of the abstract) against its pure-noise law, toy problems by hand, and replay."""

import inspect
import math
import warnings

import numpy as np
import pytest
import torch

from paclab import releases
from paclab.errors import InputError
from paclab.finetune import Config
from paclab.releases.base import Release, Released
from paclab.releases.oracle import oracle
from paclab.releases.secret import Secret
from paclab.zo import rules, sage, update
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights
from paclab.zo.sage import Settings, UndetectableSignal, detection_floor
from paclab.zo.train import Folder, Job, train

FLOORS = [(1, .9, .32), (1, .99, .10), (16, .9, .081), (16, .99, .025), (64, .9, .041), (64, .99, .0125),
          (256, .9, .020), (256, .99, .006)]


def tracked(k, tracking, steps, seed=0, runs=400):
    """Corrected A_t / s^2 under pure noise, from the definition: float64 [runs]."""
    rng, s, out = np.random.default_rng(seed), 3.0, np.zeros(runs)
    for _ in range(steps):
        out = tracking * out + (1 - tracking) * ((s**2 * rng.chisquare(k, runs)) / k - s**2)
    return out / (1 - tracking**steps) / s**2


@pytest.mark.parametrize(("k", "tracking", "value"), FLOORS)
def test_pure_noise_law(k, tracking, value):
    """The formula gives the dossier's table; simulation agrees within 5 %, in the limit and after a short warm-up."""
    assert detection_floor(k, tracking) == pytest.approx(value, rel=0.05)
    long = math.ceil(5 / (1 - tracking))
    assert tracked(k, tracking, long, runs=6000).std() == pytest.approx(detection_floor(k, tracking), rel=0.05)
    assert tracked(k, tracking, 20, runs=6000).std() == pytest.approx(detection_floor(k, tracking, 20), rel=0.05)


def test_the_estimate_is_unbiased_and_never_clamped_before_averaging():
    given = Settings(2.0, 4, 0.99, 10)
    rng, state = np.random.default_rng(1), sage.init()
    signal = np.array([1.0, -1.0, 0.5, 0.0])
    averages = []
    for _ in range(6000):
        state, rho = sage.observe(given, state, signal + 2.0 * rng.standard_normal(4))
        averages.append(state.average)
        assert rho >= 0
    assert np.mean(averages[1000:]) == pytest.approx(float(signal @ signal) / 4, abs=0.06)
    assert min(averages) < 0  # negative averages survive: a clamp would bias the energy upward


def by_hand(given, released):
    """E1 line by line, with the sums written out."""
    alphas, early, reference = [], [], None
    for t in range(len(released)):
        weights = [given.tracking ** (t - i) * (1 - given.tracking) for i in range(t + 1)]
        energy = [sum(v * v for v in row) / given.k - given.noise_std**2 for row in released[: t + 1]]
        corrected = sum(w * e for w, e in zip(weights, energy, strict=True)) / (1 - given.tracking ** (t + 1))
        rho = max(corrected, 0) / given.noise_std**2
        if t < given.warmup:
            alphas.append(1.0)
            early.append(rho)
            reference = rho if given.reference == "end" else np.mean(early[given.warmup // 2:] or [rho])
            continue
        gain = {"wiener": lambda x: x / (1 + x), "linear": lambda x: x, "sqrt": lambda x: x**0.5}[given.gain]
        alphas.append(min(max(gain(rho) / gain(reference), given.alpha_min), 1))
    return alphas


@pytest.mark.parametrize("reference", sage.REFERENCES)
@pytest.mark.parametrize("gain", sage.GAINS)
def test_alpha_by_hand(gain, reference):
    given = Settings(1.0, 3, 0.8, 4, 0.15, gain, reference)
    rng = np.random.default_rng(2)
    released = [tuple(rng.normal(3 * 0.8**t, 1, 3)) for t in range(25)]
    trace = sage.trace(given, released)
    assert trace["alpha"].tolist() == pytest.approx(by_hand(given, released), rel=1e-9)
    assert (trace["alpha"][:4] == 1).all() and trace["alpha"].min() == 0.15 and trace["alpha"].max() == 1
    assert np.unique(trace["alpha"]).size > 4


@pytest.mark.parametrize("gain", sage.GAINS)
def test_the_factor_is_bounded_whatever_is_released(gain):
    rng = np.random.default_rng(3)
    for scale in (0.0, 1e-200, 1e-3, 1.0, 1e3, 1e100):
        given = Settings(1.0, 4, 0.9, 3, 0.2, gain)
        released = np.concatenate([np.full((3, 4), 5.0), scale * rng.standard_normal((40, 4)), np.zeros((5, 4))])
        alpha = sage.trace(given, released.tolist())["alpha"]
        assert (alpha[:3] == 1).all() and ((alpha >= 0.2) & (alpha <= 1)).all()
        assert scale >= 1 or alpha[-1] == 0.2  # the signal is gone
        assert scale <= 1 or alpha.min() == 1


def test_the_reference_is_frozen_at_the_end_of_the_warmup():
    given = Settings(1.0, 2, 0.5, 4)
    rule, state, references = sage.sage(given), sage.init(), []
    for t in range(12):
        before = state
        state, _ = rule.step(state, t, (3.0 + t, 1.0))
        references.append(state.reference)
        if t == 3:
            assert state.reference == sage.observe(given, before, (6.0, 1.0))[1]
    assert references[:3] == [None] * 3 and len(set(references[3:])) == 1


@pytest.mark.parametrize("warmup", [1, 5, 20])
def test_a_mean_reference_is_that_of_the_last_half_and_its_floor_bounds_its_spread(warmup):
    given = Settings(1.0, 4, 0.9, warmup, reference="mean")
    rho = np.maximum([tracked(4, 0.9, t, runs=4000, seed=7) for t in range(warmup // 2 + 1, warmup + 1)], 0)
    assert rho.mean(axis=0).std() < sage.reference_floor(given)
    rule, state, seen = sage.sage(given), sage.init(), []
    for t in range(warmup + 3):
        before, (state, _) = state, rule.step(state, t, (9.0 - t, 1.0, 4.0, 2.0))
        seen.append(sage.observe(given, before, (9.0 - t, 1.0, 4.0, 2.0))[1])
    assert state.reference == pytest.approx(np.mean(seen[warmup // 2:warmup]))
    assert sage.reference_floor(given._replace(reference="end")) == detection_floor(4, 0.9, warmup)


def test_below_the_detection_floor_nothing_is_inferred_and_it_says_so():
    given = Settings(1.0, 16, 0.9, 20)
    rule, state = sage.sage(given), sage.init()
    quiet = [(1.0, -1.0) * 8] * 40  # mean square exactly the noise variance: no signal
    with pytest.warns(UndetectableSignal, match="detection floor"):
        factors = []
        for t, values in enumerate(quiet):
            state, alpha = rule.step(state, t, values)
            factors.append(alpha)
    assert set(factors) == {1.0}
    loud = [(2.0,) * 16] * 20 + [(1.0,) * 16] * 60
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sage.trace(given, loud)["alpha"][-1] == given.alpha_min
        state = sage.init()
        for t, values in enumerate(loud):
            state, alpha = rule.step(state, t, values)
    assert alpha == given.alpha_min


def test_state_is_constant_and_no_query_is_possible():
    """Three numbers after any number of steps; the rule's arguments are state, step and released values."""
    given = Settings(1.0, 2, 0.9, 2)
    rule, state = sage.sage(given), sage.init()
    for t in range(50):
        state, _ = rule.step(state, t, (5.0, 5.0))
    assert len(state) == 3 and all(isinstance(v, int | float) for v in state)
    assert list(inspect.signature(rule.step).parameters) == ["state", "t", "values"]
    with pytest.raises(AttributeError):
        state.average = 0.0  # and it is never changed in place


def test_no_loss_is_evaluated_for_it(tmp_path):
    """2 K evaluations a step with and without the rule, and the same noise: it costs no query and no budget."""
    counts, released = {}, {}
    for name in ("plain", "sage"):
        given = Config(method="dp-aggzo", k=3, epsilon=2.0, clip=1.0, steps=6, pool=20, sampling=0.5, rule=name,
                       accountant="rdp-published", study=True, warmup=None if name == "plain" else 2)
        live, calls = {"a": torch.zeros(3)}, []

        def losses(batch, live=live, calls=calls):
            calls.append(1)
            return np.full(20 if batch is None else len(batch), float((live["a"] - 1).square().sum()))

        release, rule = rules.attach(given, releases.open_release(given, None, Secret.from_seed(0), None))
        job = Job(losses, Weights(live), Directions(5), release, update.constant(0.01, 6), 6, 3, 1e-3, rule)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndetectableSignal)
            train(job, Folder(tmp_path / name))
        counts[name], released[name] = len(calls), (release.public["noise_std"], release.guarantee)
    assert counts["plain"] == counts["sage"] == 6 * 2 * 3 and released["plain"] == released["sage"]


@pytest.mark.parametrize("gain", sage.GAINS)
def test_the_oracle_twin_is_the_same_formula_on_the_true_energy(gain):
    """E1 with ahat_t replaced by (1/K)|signal|^2, through the release that knows it."""
    given, rng = Settings(0.5, 3, 0.8, 2, 0.15, gain), np.random.default_rng(4)
    signals = [list(3 * 0.7**t * rng.standard_normal(3)) for t in range(15)]

    def step(private, t, statistic):
        return private, Released((1.0, 1.0, 1.0)), {"signal": signals[t]}

    inner = Release("inner", "", True, lambda: None, step, lambda private, t, info: private)
    twin = oracle(inner, sage.sage(given).step, sage.init, 0.5)
    private, alphas = twin.init(), []
    for t in range(15):
        private, released, info = twin.step(private, t, None)
        assert released.values == (info["alpha"],) * 3
        alphas.append(info["alpha"])
    levels = [math.sqrt(sum(v * v for v in row) / 3 + 0.25) for row in signals]
    assert alphas == pytest.approx(by_hand(given, [[level] * 3 for level in levels]), rel=1e-9)
    assert 0.15 <= min(alphas) < 0.5 and not twin.private


def test_defaults():
    assert [sage.default_tracking(k) for k in (1, 4, 16, 64)] == [.99, .99, .9, .9]
    assert sage.default_warmup(0.9, 1000) == 20 and sage.default_warmup(0.99, 10_000) == 200
    assert sage.default_warmup(0.99, 1000) == 50 and sage.default_warmup(0.9, 10) == 1
    given = sage.settings(Config(method="dp-aggzo", k=64, epsilon=2.0, clip=1.0, steps=1000, rule="sage"), 4.0)
    assert given == Settings(4.0, 64, 0.9, 20, 0.1, "wiener", "end")


# ---------------------------------------------------------------- toy quadratics


def descend(rule, *, lr, std, steps, d=200, k=16, curvature=1.0, start=1.0, seed=0):
    """f = curvature |theta|^2 / 2 with K noisy directional derivatives a step; the final |theta|^2."""
    rng, theta, state, factors = np.random.default_rng(seed), np.full(d, start), rule.init(), []
    for t in range(steps):
        z = rng.standard_normal((k, d))
        released = curvature * z @ theta + std * rng.standard_normal(k)
        state, alpha = rule.step(state, t, released.tolist())
        theta = theta - lr * alpha / k * released @ z
        factors.append(alpha)
    return float(theta @ theta), factors


def compare(lr, std, steps=300):
    given = Settings(std, 16, 0.9, 15)
    plain, shrunk = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndetectableSignal)
        for seed in range(6):
            plain.append(descend(update.PLAIN, lr=lr, std=std, steps=steps, seed=seed)[0])
            shrunk.append(descend(sage.sage(given), lr=lr, std=std, steps=steps, seed=seed)[0])
    return np.array(plain), np.array(shrunk)


@pytest.mark.parametrize(("lr", "std"), [(0.03, 10.0), (0.06, 4.0)])
def test_it_helps_when_noise_dominates_or_the_rate_is_too_large(lr, std):
    plain, shrunk = compare(lr, std)
    assert (shrunk < plain).all() and shrunk.mean() < 0.8 * plain.mean()


def test_it_hurts_when_the_signal_is_clear_and_the_rate_is_small():
    plain, shrunk = compare(0.004, 3.0)
    assert (shrunk > plain).all() and shrunk.mean() > 1.1 * plain.mean()


def test_the_control_with_the_same_mean_factor():
    """rule=fixed takes SAGE's mean alpha: the same total learning rate, constant in time."""
    given = Settings(10.0, 16, 0.9, 15)
    _, factors = descend(sage.sage(given), lr=0.03, std=10.0, steps=300)
    mean = float(np.mean(factors))
    control = rules.open_rule(Config(method="dp-aggzo", k=16, epsilon=2.0, clip=1.0, rule="fixed", factor=mean), {})
    _, same = descend(control, lr=0.03, std=10.0, steps=300)
    assert same == [mean] * 300 and 0.1 <= mean < 1 and sum(same) == pytest.approx(sum(factors))
    hidden, _ = descend(update.PLAIN, lr=0.03 * mean, std=10.0, steps=300)
    assert descend(control, lr=0.03, std=10.0, steps=300)[0] == pytest.approx(hidden)


def test_rules_by_name():
    base = {"method": "dp-aggzo", "k": 2, "epsilon": 2.0, "clip": 1.0}
    assert rules.open_rule(Config(**base), {}) is update.PLAIN
    assert rules.open_rule(Config(**base, rule="sage"), {"noise_std": 1.0}).name == "sage"
    assert rules.open_rule(Config(**base, rule="sage-oracle"), {}) is update.PLAIN  # its release is the oracle
    with pytest.raises(InputError, match="rule"):
        Config(method="dp-zo", epsilon=2.0, clip=1.0, noise="laplace", rule="sage")
    with pytest.raises(InputError, match="reference"):
        Config(**base, rule="sage", reference="start")
    with pytest.raises(InputError, match="factor"):
        Config(**base, factor=0.5)
    with pytest.raises(InputError, match="factor"):
        Config(**base, rule="fixed", factor=-0.5)
