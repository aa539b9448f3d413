"""Posteriors against exact enumeration, and leakage against the mutual information it must average to."""

import itertools

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from paclab.errors import InputError
from paclab.privacy import budget as bu
from paclab.privacy import channels as ch
from paclab.privacy import consensus as co
from paclab.privacy import posterior as po

VOTES = np.array([[1, 1, -1, 1, -1, -1], [1, -1, -1, -1, -1, -1], [-1, -1, -1, 1, 1, 1]])
FLIPS = (0.3, 0.1, 0.45)


def enumerate_rr(votes, flips, belief=None, chance=1.0):
    """Yield (probability, posterior) over all transcripts of randomised-response steps."""
    belief = po.uniform(votes.shape[1]) if belief is None else belief
    if not len(votes):
        yield chance, belief
        return
    for bit in (1, -1):
        like = np.where(votes[0] == bit, 1 - flips[0], flips[0])
        p_bit = float(po.weights(belief) @ like)
        after = po.update(belief, po.rr_log_likelihood(votes[0], bit, flips[0]))
        yield from enumerate_rr(votes[1:], flips[1:], after, chance * p_bit)


def test_expected_leakage_of_one_rr_step_is_its_mutual_information():
    for row, flip in itertools.product(VOTES, FLIPS):
        expected = sum(p * po.leakage(b) for p, b in enumerate_rr(row[None], (flip,)))
        assert expected == pytest.approx(ch.rr_mi(np.mean(row == 1), flip), rel=1e-12)


def test_chain_rule_over_three_steps():
    """E[leakage] after all steps = sum of the expected conditional informations under the posterior then."""
    total = sum(p * po.leakage(b) for p, b in enumerate_rr(VOTES, FLIPS))
    spent = sum(p * ch.rr_mi(po.q_plus(b, VOTES[k]), FLIPS[k])
                for k in range(3) for p, b in enumerate_rr(VOTES[:k], FLIPS[:k]))
    assert total == pytest.approx(spent, rel=1e-12)
    # and it is the entropy difference of the joint law, written down without any posterior
    joint = np.array([np.prod([np.where(VOTES[k] == y, 1 - FLIPS[k], FLIPS[k])
                               for k, y in enumerate(bits)], axis=0) / 6
                      for bits in itertools.product((1, -1), repeat=3)])
    assert joint.sum() == pytest.approx(1)
    information = (special.entr(joint.sum(axis=0)).sum() + special.entr(joint.sum(axis=1)).sum()
                   - special.entr(joint).sum())
    assert total == pytest.approx(information, rel=1e-12)


def test_posterior_is_bayes_rule_by_enumeration():
    belief, plain = po.uniform(6), np.full(6, 1 / 6)
    for votes, flip, bit in zip(VOTES, FLIPS, (1, -1, -1), strict=True):
        belief = po.update(belief, po.rr_log_likelihood(votes, bit, flip))
        plain = plain * np.where(votes == bit, 1 - flip, flip)
        plain /= plain.sum()
        np.testing.assert_allclose(po.weights(belief), plain, rtol=1e-14)
        assert po.q_plus(belief, VOTES[0]) == pytest.approx(plain[VOTES[0] == 1].sum(), rel=1e-14)
        assert po.leakage(belief) == pytest.approx(np.log(6) - special.entr(plain).sum(), rel=1e-12)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 20.0, 1e4])
def test_expected_leakage_of_one_gaussian_step_is_its_mutual_information(sigma):
    votes = np.array([1, 1, -1, 1, -1, 1, 1, 1])
    z, w = np.polynomial.legendre.leggauss(400)
    half = 1 + 10 * sigma
    y, w = z * half, w * half
    density = sum(np.exp(-0.5 * ((y - v) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi)) for v in votes) / 8
    leak = [po.leakage(po.update(po.uniform(8), po.gaussian_log_likelihood(votes, x, sigma))) for x in y]
    assert float(w @ (density * leak)) == pytest.approx(ch.gaussian_mi(6 / 8, sigma), rel=1e-7)


def test_expected_leakage_of_the_gaussian_sign():
    votes, sigma = np.array([1, 1, -1, 1]), 1.3
    expected = 0.0
    for bit in (1, -1):
        like = special.ndtr(votes * bit / sigma)
        belief = po.update(po.uniform(4), po.gaussian_sign_log_likelihood(votes, bit, sigma))
        np.testing.assert_allclose(po.weights(belief), like / like.sum(), rtol=1e-14)
        expected += like.mean() * po.leakage(belief)
    assert expected == pytest.approx(ch.gaussian_sign_mi(0.75, sigma), rel=1e-12)


def test_gaussian_likelihood_is_the_papers_up_to_a_constant():
    votes, released, sigma = np.array([1.0, -1.0, 1.0]), 0.37, 2.2
    ours = po.gaussian_log_likelihood(votes, released, sigma)
    papers = -((votes - released) ** 2) / (2 * sigma**2)
    np.testing.assert_allclose(ours - ours[0], papers - papers[0], atol=1e-15)


def test_tiny_updates_keep_their_digits():
    """A thousand steps of size 1e-9: leakage near 1e-14 nats agrees with 50 digits."""
    rng = np.random.default_rng(0)
    steps = 1e-9 * rng.choice([-1.0, 1.0], (1000, 16))
    belief = po.uniform(16)
    for step in steps:
        belief = po.update(belief, step + 3.0)  # a constant shift must not matter
    with mp.workdps(50):
        logs = [mp.fsum(mp.mpf(float(x)) for x in column) for column in steps.T]
        top = mp.fsum(mp.exp(x) for x in logs)
        truth = mp.log(16) + mp.fsum(mp.exp(x) / top * mp.log(mp.exp(x) / top) for x in logs)
    assert float(truth) < 1e-14
    assert po.leakage(belief) == pytest.approx(float(truth), rel=2e-3)  # the shift costs digits
    belief = po.uniform(16)
    for step in steps:
        belief = po.update(belief, step)
    assert po.leakage(belief) == pytest.approx(float(truth), rel=1e-9)


def test_nothing_underflows_to_zero_wrongly():
    votes = np.array([1, 1, -1, 1])
    belief = po.uniform(4)
    for _ in range(2000):
        belief = po.update(belief, np.where(votes == 1, 0.0, -1.0))
    assert belief.log_weights[2] == pytest.approx(-2000 + np.log(4 / 3))
    plus, minus = po.vote_shares(belief, votes)
    assert plus == 1.0 and 0 < minus <= 1e-290
    assert 0 < ch.gaussian_sigma(minus, bu.capped(0.01, minus)) < np.inf
    assert po.leakage(belief) == pytest.approx(np.log(4 / 3))
    for _ in range(2000):  # evidence the other way brings it back
        belief = po.update(belief, np.where(votes == 1, -1.0, 0.0))
    np.testing.assert_allclose(po.weights(belief), 0.25, rtol=1e-9)


def test_excluded_candidates():
    belief = po.update(po.uniform(4), po.rr_log_likelihood([1, 1, -1, -1], 1, 0.0))
    np.testing.assert_allclose(po.weights(belief), [0.5, 0.5, 0, 0])
    assert po.leakage(belief) == pytest.approx(np.log(2))
    assert po.leakage(po.uniform(4)) == 0.0


def test_record_membership_by_enumeration():
    rng = np.random.default_rng(2)
    member = co.complementary_halves(20, 6, rng)
    belief = po.update(po.uniform(6), rng.standard_normal(6))
    np.testing.assert_allclose(po.record_membership(belief, member), member @ po.weights(belief), rtol=1e-13)
    np.testing.assert_allclose(po.record_membership(po.uniform(6), member), 0.5, rtol=0)
    inside = po.record_membership(belief, member)
    np.testing.assert_allclose(po.record_success(belief, member), np.maximum(inside, 1 - inside))


@pytest.mark.parametrize("channel", ["gaussian", "rr"])
def test_accounting_check_mean_leakage_equals_the_charged_budget(channel):
    """Simulated runs, adaptive budget, random secret: mean KL(posterior || uniform) = MI_tot within 4 s.e."""
    total, steps, m, runs = 0.33, 40, 16, 150
    rng = np.random.default_rng(5)
    leaks, charges = [], []
    for _ in range(runs):
        secret, belief, ledger = rng.integers(m), po.uniform(m), bu.open_ledger(total)
        for t in range(steps):
            votes = co.sign_votes(rng.standard_normal(m) + 2.0 * rng.standard_normal())
            beta = bu.step_budget(total, ledger.charged, t, steps)
            if co.unanimity(votes):
                ledger = bu.charge(ledger, 0.0, 0.0, po.leakage(belief))
                continue
            q = min(po.vote_shares(belief, votes))
            beta = bu.capped(beta, q)
            if channel == "gaussian":
                sigma = ch.gaussian_sigma(q, beta)
                y = votes[secret] + sigma * rng.standard_normal()
                achieved, like = ch.gaussian_mi(q, sigma), po.gaussian_log_likelihood(votes, y, sigma)
            else:
                flip = ch.rr_flip(q, beta)
                bit = int(votes[secret]) * (-1 if rng.random() < flip else 1)
                achieved, like = ch.rr_mi(q, flip), po.rr_log_likelihood(votes, bit, flip)
            belief = po.update(belief, like)
            ledger = bu.charge(ledger, ch.certified(achieved), beta, po.leakage(belief))
        leaks.append(po.leakage(belief))
        charges.append(ledger.charged)
        assert ledger.charged <= total and ledger.realised == leaks[-1]
    error = np.std(np.array(leaks) - charges) / np.sqrt(runs)
    assert abs(np.mean(leaks) - np.mean(charges)) < 4 * error
    assert error < 0.03 and np.mean(charges) > 0.3


@pytest.mark.parametrize(("call", "parameter"), [
    (lambda: po.uniform(1), "candidates"),
    (lambda: po.update(po.uniform(3), [0.0, np.nan, 0.0]), "log_likelihood"),
    (lambda: po.update(po.uniform(3), [0.0, 1.0]), "log_likelihood"),
    (lambda: po.update(po.uniform(2), [-np.inf, -np.inf]), "log_likelihood"),
    (lambda: po.q_plus(po.uniform(3), [1, 0, -1]), "votes"),
    (lambda: po.q_plus(po.uniform(3), [1, -1]), "votes"),
    (lambda: po.record_membership(po.uniform(3), np.ones((4, 2))), "membership"),
    (lambda: po.rr_log_likelihood([1, -1], 0, 0.1), "released"),
    (lambda: po.rr_log_likelihood([1, -1], 1, 1.1), "flip"),
    (lambda: po.gaussian_log_likelihood([1, -1], np.inf, 1.0), "sigma"),
    (lambda: po.gaussian_log_likelihood([1, -1], 0.1, 0.0), "sigma"),
    (lambda: po.gaussian_sign_log_likelihood([1, -1], 1, -1.0), "sigma")])
def test_bad_values_name_the_parameter(call, parameter):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.parameter == parameter
