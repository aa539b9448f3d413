"""Schedules and the ledger: no path overspends, nothing is lost on disk."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paclab.errors import InputError
from paclab.privacy import budget as bu
from paclab.privacy import channels as ch

positive = st.floats(1e-9, 0.69)


def test_schedules():
    assert bu.step_budget(0.33, 0.1, 7, 1000, "uniform") == 0.33 / 1000
    assert bu.step_budget(0.33, 0.0, 0, 1000) == 0.33 / 1000
    assert bu.step_budget(0.33, 0.03, 900, 1000) == pytest.approx(0.3 / 100)
    assert bu.step_budget(0.33, 0.1, 999, 1000) == pytest.approx(0.23)
    assert bu.step_budget(0.33, 0.34, 5, 10) == 0.0
    assert bu.step_budget(0.33, 0.1, 1500, 1000) == pytest.approx(0.23)  # past the end: what is left


def test_cap_is_0999_of_the_entropy():
    assert bu.capped(0.5, 1 / 128) == 0.999 * ch.entropy(1 / 128)
    assert bu.capped(1e-3, 0.5) == 1e-3 and bu.capped(0.1, 0.0) == 0.0


@settings(max_examples=60, deadline=None)
@given(positive, st.lists(st.one_of(st.none(), st.floats(1e-6, 0.5)), min_size=1, max_size=25), st.booleans(),
       st.sampled_from(bu.SCHEDULES))
def test_charges_never_exceed_the_total_on_any_path(total, path, gaussian, schedule):
    """A path is a list of minority shares; None is a unanimous step."""
    ledger = bu.open_ledger(total)
    for t, q in enumerate(path):
        if q is None:
            ledger = bu.charge(ledger, 0.0, 0.0, 0.0)
            continue
        beta = bu.capped(bu.step_budget(total, ledger.charged, t, len(path), schedule), q)
        if gaussian:
            achieved = ch.gaussian_mi(q, ch.gaussian_sigma(q, beta))
        else:
            achieved = ch.rr_mi(q, ch.rr_flip(q, beta))
        ledger = bu.charge(ledger, ch.certified(achieved), beta, 0.0)  # must never be refused
        assert ledger.charged <= total
    assert ledger.noisy + ledger.free == len(path)
    assert ledger.charged <= ledger.calibrated * (1 + 1e-12)


def test_adaptive_budget_passes_on_what_free_steps_saved():
    ledger = bu.open_ledger(0.1)
    for t in range(10):
        beta = bu.step_budget(0.1, ledger.charged, t, 10)
        ledger = bu.charge(ledger, beta * (1 - 1e-9) * (t % 2), beta, 0.0)
    assert ledger.charged == pytest.approx(0.1, rel=1e-6) and ledger.free == ledger.noisy == 5


def test_refusal_charges_nothing_and_says_what_to_do():
    ledger = bu.charge(bu.open_ledger(0.1), 0.09, 0.09, 0.2)
    with pytest.raises(bu.BudgetExhausted) as error:
        bu.charge(ledger, 0.02, 0.02, 0.0)
    assert isinstance(error.value, InputError) and error.value.parameter == "mi"
    assert ledger.charged == pytest.approx(0.09) and ledger.realised == 0.2 and ledger.noisy == 1
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    with pytest.raises(bu.BudgetExhausted):
        bu.charge(bu.open_ledger(0.0), 1e-300, 1e-300, 0.0)
    assert bu.charge(bu.open_ledger(0.0), 0.0, 0.0, 0.0).free == 1


def test_sums_are_rounded_up():
    ledger = bu.open_ledger(1.0)
    for _ in range(1000):
        ledger = bu.charge(ledger, 1e-4, 1e-4, 0.0)
    assert 0.1 <= ledger.charged < 0.1 + 1e-12
    tiny = bu.charge(bu.charge(bu.open_ledger(1.0), 0.5, 0.5, 0.0), 1e-20, 1e-20, 0.0)
    assert tiny.charged > 0.5


@settings(max_examples=100, deadline=None)
@given(positive, st.floats(0, 1), st.floats(0, 5), st.floats(0, 4.8), st.integers(0, 10**6),
       st.integers(0, 10**6))
def test_json_round_trip_is_exact(total, share, calibrated, realised, noisy, free):
    ledger = bu.Ledger(total, min(total, share * total), calibrated, realised, noisy, free)
    assert bu.from_json(bu.to_json(ledger)) == ledger
    assert json.loads(bu.to_json(ledger))["noisy"] == noisy


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"total": 1, "spent": 2}',
                                  '{"total": 0.1, "charged": 0.2}',
                                  '{"total": 0.1, "charged": NaN}', '{"total": 0.1, "charged": -0.1}'])
def test_a_damaged_ledger_is_refused(text):
    with pytest.raises(InputError) as error:
        bu.from_json(text)
    assert error.value.parameter == "ledger"


@pytest.mark.parametrize(("call", "parameter"), [
    (lambda: bu.step_budget(0.0, 0.0, 0, 10), "mi"), (lambda: bu.step_budget(-0.1, 0.0, 0, 10), "mi"),
    (lambda: bu.step_budget(np.inf, 0.0, 0, 10), "mi"), (lambda: bu.step_budget(0.1, 0.0, 0, 0), "steps"),
    (lambda: bu.step_budget(0.1, 0.0, 0, 10, "greedy"), "schedule"), (lambda: bu.open_ledger(-1.0), "mi"),
    (lambda: bu.open_ledger(float("nan")), "mi"),
    (lambda: bu.charge(bu.open_ledger(1.0), -0.1, 0.1, 0.0), "achieved"),
    (lambda: bu.charge(bu.open_ledger(1.0), 0.2, 0.1, 0.0), "achieved"),
    (lambda: bu.charge(bu.open_ledger(1.0), 0.1, 0.1, float("nan")), "realised"),
    (lambda: bu.charge(bu.open_ledger(1.0), 0.1, float("inf"), 0.0), "target")])
def test_bad_values_name_the_parameter(call, parameter):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.parameter == parameter


def test_zero_total_is_routed_to_zpl():
    with pytest.raises(InputError, match="zpl"):
        bu.step_budget(0.0, 0.0, 0, 10)


def test_a_printed_promise_is_never_below_the_true_one():
    for value in (0.1234564, 2.0000001, 1e-5, 0.33, 0.0, 7.25e-13, 0.8818875762):
        assert float(bu.stated(value)) >= value and float(bu.stated(value, 3)) >= value
        assert float(bu.stated(value)) == pytest.approx(value, rel=1e-5)
    assert (bu.stated(2.0), bu.stated(1e-5), bu.stated(0.33)) == ("2", "1e-05", "0.33")
