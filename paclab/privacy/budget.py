"""Budgets over steps: how much a step may spend, and the ledger that records what was spent, in nats.

Knows: totals, targets and achieved mutual information. Does not know: channels, votes or models. Charges
depend on the data (a unanimous step is free), so a ledger is private state; only its total is public.
"""

import json
import math
from decimal import ROUND_CEILING, Context
from typing import NamedTuple

import numpy as np

from paclab.errors import InputError
from paclab.privacy.channels import ENTROPY_SHARE_CAP, entropy

SCHEDULES = ("uniform", "adaptive")


class BudgetExhausted(InputError):
    """A charge would take the ledger above its total; nothing was charged."""


def step_budget(total: float, used: float, step: int, steps: int, schedule: str = "adaptive") -> float:
    """Nats that step `step` (from 0) of `steps` may spend.

    uniform: total / steps. adaptive: max(total - used, 0) / max(steps - step, 1), which passes on what free
    steps saved. Raises InputError for a total that is not positive. Source: PACZero step 6.
    """
    _check_total(total)
    if steps < 1 or step < 0:
        raise InputError("steps", f"step {step} of {steps}", "count steps from 0 to steps - 1")
    if schedule == "uniform":
        return total / steps
    if schedule == "adaptive":
        return max(total - used, 0.0) / max(steps - step, 1)
    raise InputError("schedule", f"unknown schedule {schedule!r}", f"choose one of: {', '.join(SCHEDULES)}")


def capped(beta: float, q_plus: float) -> float:
    """The step budget cut to 0.999 h(q_plus): no channel carries more than h; 0 when q_plus is 0 or 1."""
    return min(beta, ENTROPY_SHARE_CAP * entropy(q_plus))


class Ledger(NamedTuple):
    """Three meters in nats; immutable. charged <= total on every path."""

    total: float  # the promise: I(S; releases) <= total
    charged: float = 0.0  # sum of achieved, certified mutual information, rounded up
    calibrated: float = 0.0  # sum of the targets the noise was calibrated to
    realised: float = 0.0  # log M - H(posterior) now: what this transcript taught the best attacker
    noisy: int = 0  # steps that were charged
    free: int = 0  # steps that cost nothing

    @property
    def remaining(self) -> float:
        """Nats that may still be charged."""
        return max(self.total - self.charged, 0.0)


def stated(value: float, digits: int = 6) -> str:
    """A promise or bound as printed: rounded up at `digits` significant digits, never below the value."""
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(up):.{digits}g}"


def open_ledger(total: float) -> Ledger:
    """An empty ledger; a total of 0 admits only free steps (ZPL). Raises InputError for a negative one."""
    if not (total >= 0 and math.isfinite(total)):
        raise InputError("mi", f"must be zero or more nats, got {total}", "give 0.33, say, or 0 for ZPL")
    return Ledger(float(total))


def charge(ledger: Ledger, achieved: float, target: float, realised: float) -> Ledger:
    """The ledger after one release: `achieved` nats (0 = free) against a calibration `target` >= achieved.

    `realised` is the posterior's leakage now. Sums are rounded up. Raises BudgetExhausted, charging nothing,
    when the total would be exceeded, and InputError for values that are negative or not finite.
    """
    for name, value in (("achieved", achieved), ("target", target), ("realised", realised)):
        if not (value >= 0 and math.isfinite(value)):
            raise InputError(name, f"must be zero or more nats, got {value}", "pass a mutual information")
    if achieved > target:
        raise InputError("achieved", f"{achieved} nats exceed the target {target}",
                         "calibrate with a certified inverse")
    if achieved == 0:
        return ledger._replace(realised=float(realised), free=ledger.free + 1)
    charged = float(np.nextafter(ledger.charged + achieved, np.inf))
    if charged > ledger.total:
        left = f"{ledger.remaining:.3g} of {ledger.total:.3g}"
        raise BudgetExhausted("mi", f"{achieved:.3g} nats do not fit into the {left} that are left",
                              "stop, raise the total, or release only unanimous steps")
    return ledger._replace(charged=charged, calibrated=ledger.calibrated + float(target),
                           realised=float(realised), noisy=ledger.noisy + 1)


def to_json(ledger: Ledger) -> str:
    """One line of JSON; floats keep every bit."""
    return json.dumps(ledger._asdict(), allow_nan=False)


def from_json(text: str) -> Ledger:
    """The ledger that `to_json` wrote, bit for bit. Raises InputError when the text is not one."""
    try:
        fields = json.loads(text)
        ledger = Ledger(**{k: (int if k in ("noisy", "free") else float)(v) for k, v in fields.items()})
    except (TypeError, ValueError, AttributeError):
        raise InputError("ledger", "cannot be read", "restore the file that the run wrote") from None
    if not 0 <= ledger.charged <= ledger.total or ledger.noisy < 0 or ledger.free < 0:
        raise InputError("ledger", f"charges {ledger.charged} of {ledger.total}",
                         "restore the file that the run wrote")
    return ledger


def _check_total(total: float) -> None:
    if not (total > 0 and math.isfinite(total)):
        raise InputError("mi", f"must be positive nats, got {total}",
                         "use method paczero-zpl for a zero budget, which releases only unanimous steps")
