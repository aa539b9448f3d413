"""Differential privacy of a run: events over dp-accounting, noise from a promise, a promise from the noise.

Knows noise multipliers, Poisson rates, steps. Does not know records, statistics or models. Conventions:
    noise_multiplier   noise standard deviation over the clip, i.e. over the largest change one record can make
    sampling           Poisson rate q in (0, 1]: each record joins a step independently, in secret
    adjacency          add-remove (one record more or less), or replace-one (one record becomes another)
Accountants, all of them upper bounds (their floating point apart):
    rdp             Renyi orders 1.1 .. 4096
    rdp-published   the orders of DP-AggZO's code, 1.1 .. 10.9 and 12 .. 63: use it to reproduce, not to spend
    pld             privacy-loss distributions, pessimistic discretisation; 6 to 9 % less noise than rdp at rate 0.064
"""

import functools
import logging
import math
from collections.abc import Sequence
from typing import NamedTuple

import dp_accounting
import numpy as np
from dp_accounting import pld, rdp
from scipy import special

from paclab.errors import InputError, nearest

ACCOUNTANTS = ("pld", "rdp", "rdp-published")
ADJACENCIES = ("add-remove", "replace-one")
PUBLISHED_ORDERS = tuple(1 + x / 10 for x in range(1, 100)) + tuple(range(12, 64))
WIDE_ORDERS = PUBLISHED_ORDERS + tuple(range(64, 129, 4)) + (160, 192, 256, 384, 512, 768, 1024, 2048, 4096)
NORMALISER_SHARE = 0.05  # DP-AggZO's share of epsilon for the noisy number of records
GRID = 1e-4  # privacy-loss discretisation; 1e-3 is 10 % off at T = 20,000
COARSE = 10 * GRID  # where a calibration begins its search; nothing is certified on it
SPAN = (5e-2, 1e6)  # multipliers searched by a calibration
SMALLEST = 1e-6  # epsilon and Poisson rate: below it differences drown in rounding
TIGHT = 1e-4  # relative width of a calibrated multiplier's bracket; the safe side is returned


def check(epsilon: float | None = None, delta: float | None = None, sampling: float | None = None,
          steps: int | None = None, accountant: str = "pld", adjacency: str = "add-remove") -> None:
    """Refuse parameters that mean nothing, one line each; None skips a check."""
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError("epsilon", f"{epsilon} is no promise", "give a finite number above 0, say epsilon=2")
    if epsilon is not None and epsilon < SMALLEST:
        raise InputError("epsilon", f"{epsilon} is below what the accountants resolve", f"give at least {SMALLEST:g}")
    if delta is not None and not 0 < delta < 1:
        raise InputError("delta", f"{delta} is not in (0, 1)", "use 1e-5, or less than one over the records")
    if sampling is not None and not 0 < sampling <= 1:
        raise InputError("sampling", f"{sampling} is no Poisson rate", "give 0 < sampling <= 1, such as 0.064")
    if sampling is not None and sampling < SMALLEST:
        raise InputError("sampling", f"{sampling} is below what the accountants resolve", f"give at least {SMALLEST:g}")
    if steps is not None and (steps < 1 or steps != int(steps)):
        raise InputError("steps", f"{steps} is not positive", "give a whole number of at least 1")
    if accountant not in ACCOUNTANTS:
        raise InputError("accountant", f"{accountant!r} is unknown", nearest(accountant, ACCOUNTANTS))
    if adjacency not in ADJACENCIES:
        raise InputError("adjacency", f"{adjacency!r} is unknown", nearest(adjacency, ADJACENCIES))


def gaussian_event(noise_multiplier: float, sampling: float, steps: int) -> dp_accounting.DpEvent:
    """What a run of Poisson-sampled Gaussian sums is, in dp-accounting's words."""
    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(noise_multiplier)
    if sampling < 1:
        event = dp_accounting.PoissonSampledDpEvent(sampling, event)
    return dp_accounting.SelfComposedDpEvent(event, steps)


def laplace_event(scale: float, sampling: float, steps: int) -> dp_accounting.DpEvent:
    """The same for Laplace noise of `scale` times the clip."""
    event: dp_accounting.DpEvent = dp_accounting.LaplaceDpEvent(scale)
    if sampling < 1:
        event = dp_accounting.PoissonSampledDpEvent(sampling, event)
    return dp_accounting.SelfComposedDpEvent(event, steps)


def _loss_epsilon(noise_multiplier: float, sampling: float, steps: int, delta: float, adjacency: str,
                  grid: float) -> float:
    """Epsilon by privacy losses on a grid of this width; an upper bound on any, tighter on a finer one."""
    if adjacency == "replace-one":
        return float(_replace_one(noise_multiplier, sampling, grid).self_compose(steps).get_epsilon_for_delta(delta))
    event = gaussian_event(noise_multiplier, sampling, steps)
    return float(pld.PLDAccountant(value_discretization_interval=grid).compose(event).get_epsilon(delta))


@functools.lru_cache(maxsize=4096)
def epsilon(noise_multiplier: float, sampling: float, steps: int, delta: float, accountant: str = "pld",
            adjacency: str = "add-remove") -> float:
    """Epsilon at `delta` after `steps` Poisson-sampled Gaussian releases; an upper bound.

    Under replace-one one record moves the sum by up to twice the clip; only `pld` accounts for it. Raises
    InputError.
    """
    check(None, delta, sampling, steps, accountant, adjacency)
    if not noise_multiplier > 0:
        raise InputError("noise_multiplier", f"{noise_multiplier} is no noise", "give a number above 0")
    if adjacency == "replace-one" and accountant != "pld":
        raise InputError("accountant", f"{accountant} does not account for replace-one here", "use pld")
    if sampling * steps <= delta:
        return 0.0  # the record is never drawn but with probability delta
    if accountant == "pld":
        return _loss_epsilon(noise_multiplier, sampling, steps, delta, adjacency, GRID)
    event = gaussian_event(noise_multiplier, sampling, steps)
    orders = PUBLISHED_ORDERS if accountant == "rdp-published" else WIDE_ORDERS
    level = logging.getLogger("absl").level
    logging.getLogger("absl").setLevel(logging.ERROR)  # an order whose series does not converge is left out: safe
    try:
        return float(rdp.RdpAccountant(list(orders)).compose(event).get_epsilon(delta))
    finally:
        logging.getLogger("absl").setLevel(level)


class Run(NamedTuple):
    """One finished or running query of a universe, as the accountant sees it."""

    multiplier: float  # noise scale over the clip
    sampling: float
    steps: int
    noise: str = "gaussian"  # gaussian, laplace


def composed_epsilon(runs: Sequence[Run], delta: float, adjacency: str = "add-remove") -> float:
    """Epsilon at `delta` of several runs on the same records, by their composed privacy losses; an upper bound.

    Holds when no run's settings depended on another's result. Laplace runs under replace-one add their pure epsilon.
    """
    check(None, delta, None, None, "pld", adjacency)
    if adjacency == "add-remove":
        events = [(laplace_event if run.noise == "laplace" else gaussian_event)(*run[:3]) for run in runs]
        event = dp_accounting.ComposedDpEvent(events)
        return float(pld.PLDAccountant(value_discretization_interval=GRID).compose(event).get_epsilon(delta))
    pure = [laplace_epsilon(*run[:3], adjacency=adjacency) for run in runs if run.noise == "laplace"]
    losses = [_replace_one(run.multiplier, run.sampling).self_compose(run.steps)
              for run in runs if run.noise != "laplace"]
    if not losses:
        return sum(pure)
    return sum(pure) + float(functools.reduce(lambda a, b: a.compose(b), losses).get_epsilon_for_delta(delta))


def _replace_one(noise_multiplier: float, sampling: float, step: float = GRID):
    """Privacy loss of one replace-one step, from the dominating pair below with u = 1/sigma.

    (1-q) N(0) + q N(+u)  against  (1-q) N(0) + q N(-u)

    Why no other pair of records is worse [ours]: with advanced joint convexity (Balle, Barthe, Gaboardi 2018) the
    profile is q H(N(x) || (1-b) N(0) + b N(x')); the optimal event is upward closed in <x, y> and <x - x', y>, so
    moving x' straight to -x cannot lower it when <x, x'> <= |x|^2, nor can lengthening x; in the remaining case
    both distances are below the clip, and convexity bounds the profile by that of N(u) against N(0), which is lower.
    """
    u = 1 / noise_multiplier
    rest, weight = 1 - sampling, sampling * math.exp(-u * u / 2)
    edge = u + 10.0  # beyond it lies less than 1e-23
    top = math.ceil((math.log(rest + weight * math.exp(min(u * edge, 700))) - math.log(
        rest + weight * math.exp(-u * edge))) / step) + 1
    losses = np.arange(0, top + 1) * step
    ratio = np.exp(losses)
    half = rest * np.expm1(losses)
    cut = np.log((half + np.sqrt(half**2 + 4 * weight**2 * ratio)) / (2 * weight)) / u
    tail = rest * special.ndtr(-cut)
    upper = np.maximum(tail + sampling * special.ndtr(u - cut)
                       - ratio * (tail + sampling * special.ndtr(-u - cut)), 0.0)
    lower = -np.expm1(-losses) + upper / ratio  # H at the reciprocal, for two neighbours that are mirror images
    grid = np.concatenate([-np.arange(top, 0, -1), np.arange(0, top + 1)])
    deltas = np.concatenate([lower[:0:-1], upper])
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]  # non-increasing, as it is but for rounding; upwards is safe
    pmf = pld.pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, deltas)
    return pld.privacy_loss_distribution.PrivacyLossDistribution(pmf)


@functools.lru_cache(maxsize=1024)
def noise_multiplier(target: float, sampling: float, steps: int, delta: float, accountant: str = "pld",
                     adjacency: str = "add-remove") -> float:
    """The least noise whose epsilon does not exceed `target`, up to a relative 1e-4 and never below.

    Certified with the same accountant: epsilon(result, ...) <= target; that it is the least up to 1e-4 follows from
    a look below it, or (pld) from the local slope of epsilon. Raises InputError when no multiplier in
    [0.05, 1e6] meets the target.
    """
    check(target, delta, sampling, steps, accountant, adjacency)
    if sampling * steps <= delta:
        return SPAN[0]  # any noise at all

    def spent(log_sigma: float) -> float:
        return epsilon(math.exp(log_sigma), sampling, steps, delta, accountant, adjacency)

    guess = math.log(2 if adjacency == "replace-one" else 1) + math.log(
        max(0.5, 4.5 * sampling * math.sqrt(steps) / target + 0.5))
    guess = min(max(guess, math.log(SPAN[0])), math.log(SPAN[1]))
    root = None
    if accountant == "pld":  # a look costs tenfold on the fine grid: search on the coarse one, then look twice
        coarse = functools.cache(lambda log_sigma: _loss_epsilon(math.exp(log_sigma), sampling, steps, delta,
                                                                 adjacency, COARSE))
        guess = _bracketed(coarse, target, guess, 0.25)
        near = (coarse(guess), coarse(guess + 0.01)) if guess is not None else (0.0, 0.0)
        slope = math.log(near[0] / near[1]) / 0.01 if min(near) > 0 else 0.0
        if slope > 0:
            guess += TIGHT / 4 + math.log(max(spent(guess), 1e-300) / target) / slope
            root = guess if 0 <= math.log(target / max(spent(guess), 1e-300)) <= 0.75 * TIGHT * slope else None
    root = _bracketed(spent, target, guess, 0.25) if root is None and guess is not None else root
    if root is None:
        raise InputError("epsilon", f"{target:g} cannot be met at delta {delta:g} by any multiplier up to "
                         f"{SPAN[1]:g} ({accountant})", "raise epsilon or delta, or take fewer steps")
    return math.exp(root)


def _bracketed(spent, target: float, guess: float, width: float) -> float | None:
    """The log multiplier that `_narrow` finds around a guess; None when none in SPAN meets the target."""
    low = high = guess
    while spent(high) > target:
        low, high = high, high + width
        if high > math.log(SPAN[1]):
            return None
    while low == high or spent(low) <= target:
        if low < math.log(SPAN[0]):
            return low
        low, high = low - width, min(high, low)
    return _narrow(spent, target, low, high)


def _narrow(spent, target: float, low: float, high: float) -> float:
    """The upper end of a bracket of width TIGHT with spent(low) > target >= spent(high): few, well placed looks."""
    above, below = math.log(spent(low) / target), math.log(max(spent(high), 1e-300) / target)
    while high - low > TIGHT:
        middle = low + (high - low) * above / (above - below) if below > -5 else (low + high) / 2
        middle = min(max(middle + TIGHT / 4, low + TIGHT / 2), high - TIGHT / 2)
        value = math.log(max(spent(middle), 1e-300) / target)
        if value > 0:
            low, above = middle, value
            if high - low > TIGHT and spent(low + TIGHT * 0.9) <= target:
                return low + TIGHT * 0.9
        else:
            high, below = middle, value
            if high - low > TIGHT and spent(high - TIGHT * 0.9) > target:
                return high
    return high


def published_multiplier(target: float, sampling: float, steps: int, delta: float, *, share: float = 1.0) -> float:
    """The exact root that DP-AggZO's and DPZero's codes approximate: Opacus' RDP orders at `share` of epsilon.

    DP-AggZO gives share = 0.95 to the Gaussian part and 0.05 to the number of records. Add/remove adjacency.
    """
    return noise_multiplier(share * target, sampling, steps, delta, "rdp-published")


class Savings(NamedTuple):
    """The noise of one promise by three accountants, and what pld saves against the published rule."""

    published: float
    rdp: float
    pld: float
    saved: float  # 1 - pld / published


def savings(target: float, sampling: float, steps: int, delta: float = 1e-5) -> Savings:
    """Noise multipliers at the full epsilon by accountant; add/remove adjacency."""
    by = [noise_multiplier(target, sampling, steps, delta, name) for name in ("rdp-published", "rdp", "pld")]
    return Savings(*by, 1 - by[2] / by[0])


def advantage(noise_multiplier: float, sampling: float, steps: int) -> float:
    """Attack level: delta at epsilon 0, i.e. 2 p - 1 for the best membership guess at prior 1/2; an upper bound.

    Add/remove adjacency; the attacker knows all other records, the directions and every released value.
    """
    check(None, None, sampling, steps)
    event = gaussian_event(noise_multiplier, sampling, steps)
    return float(pld.PLDAccountant(value_discretization_interval=GRID).compose(event).get_delta(0.0))


def laplace_epsilon(scale: float, sampling: float, steps: int, delta: float = 0.0,
                    adjacency: str = "add-remove") -> float:
    """Epsilon after `steps` Poisson-sampled Laplace releases of noise `scale` times the clip.

    delta = 0: pure, steps * log(1 + q (e^(1/scale) - 1)); 1/scale becomes 2/scale under replace-one. delta > 0:
    by pld, add/remove only.
    """
    check(None, delta or None, sampling, steps, "pld", adjacency)
    if not scale > 0:
        raise InputError("scale", f"{scale} is no noise", "give a number above 0")
    if delta:
        if adjacency != "add-remove":
            raise InputError("adjacency", "approximate Laplace accounting knows add-remove only", "use delta=0")
        event = laplace_event(scale, sampling, steps)
        return float(pld.PLDAccountant(value_discretization_interval=GRID).compose(event).get_epsilon(delta))
    reach = (2 if adjacency == "replace-one" else 1) / scale
    return steps * (math.log1p(sampling * math.expm1(reach)) if reach < 700 else reach + math.log(sampling))


def laplace_scale(target: float, sampling: float, steps: int, adjacency: str = "add-remove") -> float:
    """The least Laplace scale (over the clip) for a pure `target`; rounded up by a relative 1e-12."""
    check(target, None, sampling, steps, "pld", adjacency)
    each = target / steps
    if each < 700:
        reach = math.log1p(math.expm1(each) / sampling)
    else:
        reach = each - math.log(sampling)
    return (2 if adjacency == "replace-one" else 1) / reach * (1 + 1e-12)
