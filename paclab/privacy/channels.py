"""Binary channels: their exact mutual information, certified inverses, and the looser bounds.

Knows: one secret bit xi in {-1, +1} with P(xi = +1) = q_plus, sent through Gaussian noise or randomized
response. Does not know: votes, candidates, budgets over steps, models. All mutual information is in nats.

Every divergence is a sum of non-negative terms `excess(x) = (1 + x) log(1 + x) - x`, so nothing cancels and
the numbers keep a relative accuracy far better than MI_RELATIVE_ERROR from 1e-30 nats to log 2.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from paclab.errors import InputError

MI_RELATIVE_ERROR = 1e-12  # tested ceiling on the relative error of every exact MI below
ENTROPY_SHARE_CAP = 0.999  # a step may be calibrated to at most this share of h(q_plus) (paper 1, step 6)

Q_FLOOR = 1e-290  # a rarer but possible bit counts as this rare: room in float64, error on the private side

_TARGET, _FLOOR = 1 - 5e-10, 1 - 1e-9  # inverses aim at _TARGET, stop in [_FLOOR, _CEILING]
_CEILING = 1 - 2 * MI_RELATIVE_ERROR
_TAIL = 9.5  # standard deviations kept on each side of both Gaussian components
_MAX_NODES = 1 << 18  # array elements per quadrature block


def excess(x: ArrayLike, one_plus_x: ArrayLike | None = None) -> np.ndarray:
    """phi(x) = (1+x) log(1+x) - x >= 0 for x >= -1, without cancellation near 0; pass 1+x if known."""
    x = np.asarray(x, dtype=np.float64)
    whole = 1.0 + x if one_plus_x is None else np.asarray(one_plus_x, dtype=np.float64)
    small = np.abs(x) < 0.1
    if not small.any():
        return special.xlogy(whole, whole) - x
    y = np.where(small, x, 0.0)
    series = np.zeros_like(y)
    for k in range(15, 1, -1):  # sum_k (-1)^k x^k / (k (k-1)); what is left out is below 1e-16
        series = series * y + (1.0 if k % 2 == 0 else -1.0) / (k * (k - 1))
    series = series * y * y
    return series if small.all() else np.where(small, series, special.xlogy(whole, whole) - x)


def entropy(q: ArrayLike):
    """Binary entropy h(q) = -q log q - (1-q) log(1-q) in nats, exact at 0 and 1 and for tiny q."""
    q = _probability("q", q)
    return _plain(-special.xlogy(q, q) - special.xlog1py(1.0 - q, -q))


# ---------------------------------------------------------------- Gaussian channel


def gaussian_mi(q_plus: ArrayLike, sigma: ArrayLike):
    """Exact I(xi; xi + N(0, sigma^2)) in nats for xi = +-1 with P(+1) = q_plus (PACZero, BinaryMI).

    Arguments broadcast. Trapezoidal rule on an analytic integrand: relative error below MI_RELATIVE_ERROR for
    all q_plus and sigma; sigma = 0 gives h(q_plus), sigma = inf and q_plus in {0, 1} give 0.
    Raises InputError for q_plus outside [0, 1] or sigma negative or not a number.
    """
    q, s = np.broadcast_arrays(_probability("q_plus", q_plus), _non_negative("sigma", sigma))
    with np.errstate(divide="ignore", over="ignore"):
        snr = np.square(1.0 / s)
    mi, _ = _gaussian_mi_and_slope(q.ravel(), snr.ravel())
    return _plain(mi.reshape(q.shape))


def gaussian_sigma(q_plus: ArrayLike, beta: ArrayLike):
    """Smallest certified noise: sigma with beta (1 - 1e-6) <= gaussian_mi(q_plus, sigma) <= beta, in nats.

    The larger (private) end of the bracket is returned. Arguments broadcast. Raises InputError unless
    0 < q_plus < 1 and 0 < beta < h(q_plus). Source: PACZero, BinaryMI inverse, with a relative tolerance.
    """
    q, b = _calibration_inputs(q_plus, beta)
    start = b / (2.0 * q * (1.0 - q))  # the variance bound: never spends more than beta
    snr = _largest_within(q, b, start, _gaussian_mi_and_slope)
    return _shaped_like(q_plus, beta, 1.0 / np.sqrt(snr))


def _gaussian_mi_and_slope(q: np.ndarray, snr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """MI and d MI / d snr (= mmse / 2) at snr = 1/sigma^2, for flat arrays of one length."""
    low = _rarer(q)
    a = np.sqrt(snr)
    mi, slope = np.zeros_like(low), np.zeros_like(low)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # H(xi|Y) <= 2 log 2 sqrt(q(1-q)) exp(-snr/2): below this the channel is noiseless in float64
        clear = 1.3863 * np.sqrt((1.0 - low) / low) * np.exp(-snr / 2.0) < 1e-17
    mi[clear] = entropy(low[clear])
    work = np.flatnonzero(~clear & (low > 0) & (snr > 0))
    if work.size:
        # poles at distance pi sigma / 2 from the real axis and unit Gaussians bound the step
        step = np.minimum(0.5, 0.25 / a[work])
        nodes = np.ceil(2 * (a[work] + _TAIL) / step).astype(int) + 1
        order = np.argsort(nodes, kind="stable") if work.size > 1 else np.zeros(1, dtype=int)
        begin = 0
        while begin < work.size:
            end = begin + 1
            while end < work.size and nodes[order[end]] * (end + 1 - begin) <= _MAX_NODES:
                end += 1
            block = work[order[begin:end]]
            mi[block], slope[block] = _trapezoid(low[block], a[block], int(nodes[order[end - 1]]))
            begin = end
    return mi, slope


def _trapezoid(q: np.ndarray, a: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Integrate density x kl(posterior | prior), and density x Var(xi|y)/2, over y/sigma; q <= 1/2."""
    q, a = q[:, None], a[:, None]
    z = (a + _TAIL) * np.linspace(-1.0, 1.0, nodes)
    ratio = np.exp(-2.0 * a * np.abs(z))  # min(f+, f-) / max(f+, f-)
    gap = -np.expm1(-2.0 * a * np.abs(z))
    positive = z >= 0
    mixture = np.where(positive, ratio + q * gap, 1.0 - q * gap)  # f / max(f+, f-)
    signed = np.where(positive, gap, -gap) / mixture  # (f+ - f-) / f
    plus = np.where(positive, 1.0, ratio) / mixture  # f+ / f
    minus = np.where(positive, ratio, 1.0) / mixture  # f- / f
    density = mixture * np.exp(-0.5 * np.square(np.abs(z) - a)) / np.sqrt(2.0 * np.pi)
    kl = q * excess((1.0 - q) * signed, plus) + (1.0 - q) * excess(-q * signed, minus)
    variance = 4.0 * q * (1.0 - q) * plus * minus
    width = (2.0 * (a + _TAIL) / (nodes - 1))[:, 0]
    return width * np.sum(density * kl, axis=1), width * np.sum(density * variance, axis=1) / 2.0


# ---------------------------------------------------------------- randomized response


def rr_mi(q_plus: ArrayLike, flip: ArrayLike):
    """Exact MI h(q(1-phi) + (1-q)phi) - h(phi) in nats of a bit flipped with probability flip = phi.

    Arguments broadcast; relative error below MI_RELATIVE_ERROR for flip near 0 and near 1/2 alike.
    Raises InputError for probabilities outside [0, 1]. Source: zeroth-order dossier A10 [ours].
    """
    q, phi = np.broadcast_arrays(_probability("q_plus", q_plus), _probability("flip", flip))
    return _plain(_symmetric_mi(q, np.minimum(phi, 1.0 - phi), np.abs(1.0 - 2.0 * phi)))


def rr_flip(q_plus: ArrayLike, beta: ArrayLike):
    """Smallest certified flip probability: beta (1 - 1e-6) <= rr_mi(q_plus, flip) <= beta, in nats.

    The larger (private) end of the bracket is returned, at most 1/2. Arguments broadcast. The lower
    bound holds from beta = 1e-12; below, float64 cannot resolve flip near 1/2 and the answer errs on the
    private side. Raises InputError unless 0 < q_plus < 1 and 0 < beta < h(q_plus).
    """
    q, b = _calibration_inputs(q_plus, beta)
    start = np.sqrt(2.0 * b / (q * (1.0 - q)))  # log-odds of an honest answer, small-signal law
    odds = _largest_within(q, b, start, _rr_mi_and_slope)
    return _shaped_like(q_plus, beta, special.expit(-odds))


def _rr_mi_and_slope(q: np.ndarray, odds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """MI and its derivative in odds = log((1-flip)/flip) > 0."""
    phi = special.expit(-odds)
    bias = 1.0 - 2.0 * phi
    low = _rarer(q)
    out = low * (1.0 - phi) + (1.0 - low) * phi
    with np.errstate(divide="ignore", invalid="ignore"):  # a useless slope only costs one bisection
        gap = np.log1p(-low * bias / (out * (1.0 - phi)))  # log-odds of the output minus those of the noise
        falling = (1.0 - 2.0 * low) * gap - 2.0 * low * odds  # d MI / d phi
        return _symmetric_mi(q, phi, bias), -falling * phi * (1.0 - phi)


def _symmetric_mi(q: np.ndarray, phi: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """MI of a symmetric channel, given phi <= 1/2 and bias = 1 - 2 phi to full relative precision."""
    q = _rarer(q)
    out = q * (1.0 - phi) + (1.0 - q) * phi  # P(Y = +1)
    rest = q * phi + (1.0 - q) * (1.0 - phi)
    safe = np.where(out > 0, out, 1.0)
    up, down = (1.0 - q) * bias, q * bias  # P(Y=+1 | xi) - P(Y=+1) is +up or -down
    from_plus = out * excess(up / safe, (1.0 - phi) / safe) + rest * excess(-up / rest, phi / rest)
    from_minus = out * excess(-down / safe, phi / safe) + rest * excess(down / rest, (1.0 - phi) / rest)
    return np.where(q > 0, q * from_plus + (1.0 - q) * from_minus, 0.0)


# ---------------------------------------------------------------- comparisons and looser bounds


def gaussian_sign_mi(q_plus: ArrayLike, sigma: ArrayLike):
    """Exact MI in nats carried by the sign alone of xi + N(0, sigma^2): flip probability Phi(-1/sigma)."""
    q, s = np.broadcast_arrays(_probability("q_plus", q_plus), _non_negative("sigma", sigma))
    with np.errstate(divide="ignore"):
        a = 1.0 / s
    return _plain(_symmetric_mi(q, special.ndtr(-a), special.erf(a / np.sqrt(2.0))))


def gaussian_sign_correlation(sigma: ArrayLike):
    """E[Y xi] = 1 - 2 Phi(-1/sigma), Y the sign of the Gaussian release; the same for every q_plus."""
    with np.errstate(divide="ignore"):
        return _plain(special.erf(1.0 / (_non_negative("sigma", sigma) * np.sqrt(2.0))))


def rr_correlation(flip: ArrayLike):
    """E[Y xi] = 1 - 2 flip for randomized response; the same for every q_plus."""
    return _plain(1.0 - 2.0 * _probability("flip", flip))


def gaussian_variance_bound(q_plus: ArrayLike, sigma: ArrayLike):
    """Upper bound Var(xi) / (2 sigma^2) = 2 q (1-q) / sigma^2 in nats on gaussian_mi (trace form)."""
    q, s = _probability("q_plus", q_plus), _non_negative("sigma", sigma)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = 2.0 * q * (1.0 - q) / np.square(s)
    return _plain(np.where(q * (1.0 - q) == 0, 0.0, bound))


def gaussian_logdet_bound(q_plus: ArrayLike, sigma: ArrayLike):
    """Upper bound log(1 + Var(xi) / sigma^2) / 2 in nats on gaussian_mi, below the variance bound."""
    return _plain(0.5 * np.log1p(2.0 * np.asarray(gaussian_variance_bound(q_plus, sigma))))


def vector_noise_power(singular_sd: ArrayLike, budget: float) -> float:
    """Least total noise variance E|Z|^2 = (sum_k s_k)^2 / (2 budget) that meets the trace bound.

    `singular_sd` [d]: standard deviations of the candidates' statistic along its principal axes (population,
    posterior-weighted); budget in nats. Source: generation dossier A.3, trace-optimal noise.
    """
    sd = _non_negative("singular_sd", singular_sd)
    if not budget > 0:
        raise InputError("budget", f"must be positive nats, got {budget}", "give a budget such as 0.33")
    return float(np.sum(sd) ** 2 / (2.0 * budget))


def certified(mi: float) -> float:
    """An exact MI from this file, rounded up by its error: safe to charge."""
    return mi * (1.0 + MI_RELATIVE_ERROR)


# ---------------------------------------------------------------- solver and checks


class _Bracket(NamedTuple):
    below: np.ndarray  # spends at most beta, certified
    above: np.ndarray  # spends more


def _largest_within(q, beta, start, evaluate) -> np.ndarray:
    """Largest x found with MI(x) <= beta certified, for MI increasing in x > 0; safeguarded Newton."""
    h = entropy(q)
    x = start.copy()
    bracket = _Bracket(np.zeros_like(x), np.full_like(x, np.inf))
    active = np.arange(x.size)
    for _ in range(200):
        qa, ba, xa = q[active], beta[active], x[active]
        mi, slope = evaluate(qa, xa)
        fits = mi <= ba * _CEILING
        bracket.below[active[fits]] = xa[fits]
        bracket.above[active[~fits]] = xa[~fits]
        todo = ~(fits & (mi >= ba * _FLOOR))
        active = active[todo]
        if not active.size:
            break
        ha, ba, xa, mi, slope = h[active], ba[todo], xa[todo], mi[todo], slope[todo]
        x[active] = _next_guess(ha, ba, xa, mi, slope, bracket.below[active], bracket.above[active])
    return bracket.below


def _next_guess(h, beta, x, mi, slope, below, above) -> np.ndarray:
    """Newton on log MI, or on log(h - MI) near saturation; the middle if it leaves the bracket."""
    target = beta * _TARGET
    with np.errstate(all="ignore"):
        power = x * np.exp(np.clip(np.log(target / mi) * mi / (x * slope), -5.0, 5.0))
        saturating = x + np.log((h - mi) / (h - target)) * (h - mi) / slope
        guess = np.where(beta < 0.5 * h, power, saturating)
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isinf(above), 2.0 * x, np.where(below > 0, np.sqrt(below * above), above / 4.0))
        middle = np.where(above < 2.0 * below, 0.5 * (below + above), middle)
        inside = np.isfinite(guess) & (guess > below) & (guess < above)
    return np.where(inside, guess, middle)


def _calibration_inputs(q_plus, beta) -> tuple[np.ndarray, np.ndarray]:
    q, b = np.broadcast_arrays(np.asarray(q_plus, dtype=np.float64), np.asarray(beta, dtype=np.float64))
    q, b = q.ravel(), b.ravel()
    if not np.all((q > 0) & (q < 1)):
        bad = q[~((q > 0) & (q < 1))][0]
        raise InputError("q_plus", f"must lie strictly between 0 and 1 to calibrate noise, got {bad}",
                         "release a unanimous vote without noise")
    if not np.all(b > 0):
        raise InputError("beta", f"must be positive nats, got {b[~(b > 0)][0]}",
                         "route a zero budget to ZPL, which releases nothing on disagreement")
    over = b >= entropy(q)
    if np.any(over):
        raise InputError("beta", f"{b[over][0]:.6g} nats is not below h(q_plus) = {entropy(q[over][0]):.6g}",
                         f"cap the step at {ENTROPY_SHARE_CAP} h(q_plus)")
    return q, b


def _rarer(q: np.ndarray) -> np.ndarray:
    low = np.minimum(q, 1.0 - q)
    return np.where(low > 0, np.maximum(low, Q_FLOOR), 0.0)


def _probability(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if not np.all((array >= 0) & (array <= 1)):
        raise InputError(name, f"must lie in [0, 1], got {array[~((array >= 0) & (array <= 1))].flat[0]}",
                         "pass a probability")
    return array


def _non_negative(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array >= 0):
        raise InputError(name, f"must be zero or more, got {array[~(array >= 0)].flat[0]}",
                         "pass a standard deviation")
    return array


def _shaped_like(first: ArrayLike, second: ArrayLike, flat: np.ndarray):
    return _plain(flat.reshape(np.broadcast_shapes(np.shape(first), np.shape(second))))


def _plain(array: np.ndarray):
    """A Python float for scalar input, the array otherwise."""
    return array.item() if np.ndim(array) == 0 else array
