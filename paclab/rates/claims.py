"""Paper 4's claims measured one by one: 1 holds, 0.5 holds only as we read it, 0 fails.

Knows the calculator and the keys of data/papers/language-price.csv. Does not know the claims' wording:
that, our status and the reason stand in the table. Every number here is computed when asked for.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from paclab.languages import GenerationExample, generate, identify
from paclab.rates import generation as gen
from paclab.rates import identification as ident
from paclab.rates import lower
from paclab.rates.horizons import growth, regime
from paclab.rates.logs import LN10, show, slope

P, GAMMA, F, ALPHA, BETA = 0.25, 0.25, 6.0, 0.1, 0.6  # the worked laws of chapters 40 to 42


class Measured(NamedTuple):
    """holds: 1, 0.5 or 0; text: the numbers behind it."""

    holds: float
    text: str


def _grade(whole: bool, part: bool = False) -> float:
    return 1.0 if whole else 0.5 if part else 0.0


def _id(n: int, eps: float = 1.0, **options) -> float:
    return ident.id_exact(n, ALPHA, BETA, F, eps, **options).log10


def _id_slope(eps: float, **options) -> float:
    return float(slope([8000, 16_000], [_id(n, eps, **options) for n in (8000, 16_000)])[0])


def _gen(n: int, eps: float = 1.0, share: int = 8, **options) -> float:
    return gen.gen_exact(n, [P], n // share, 9, eps, **options).log10


def _gen_slope(eps: float, **options) -> float:
    return float(slope([8000, 16_000], [_gen(n, eps, **options) for n in (8000, 16_000)])[0])


def identification_plain() -> Measured:
    """exp(-r(n)) for r = n^0.5 and n^0.9, with a slow horizon and no privacy."""
    rate = _id_slope(1.0, mechanism="margin")
    later = [rate * n / n**0.9 for n in (1e6, 1e12)]
    return Measured(_grade(rate > 0 and later[1] > later[0]), f"exponent {rate:.5f} n at fixed f = {F:g}")


def identification_pure() -> Measured:
    """Is the factor min{1, eps}? The exponent goes on growing with eps beyond 1."""
    slopes = {eps: _id_slope(eps) for eps in (0.5, 1.0, 2.0)}
    linear = abs(slopes[0.5] / slopes[1.0] - 0.5) < 0.01
    capped = abs(slopes[2.0] / slopes[1.0] - 1) < 0.01
    return Measured(
        _grade(linear and capped, linear),
        f"exponents {slopes[0.5]:.5f}, {slopes[1.0]:.5f}, {slopes[2.0]:.5f} n at eps = 0.5, 1, 2",
    )


def identification_approximate() -> Measured:
    """Gaussian selection at fixed delta, and at delta = exp(-n/10)."""
    free = _id_slope(1.0, mechanism="margin")
    logs = [_id(n, 0.5, mechanism="gaussian", delta=1e-6) for n in (100_000, 200_000)]
    fixed = float(slope([100_000, 200_000], logs)[0])
    tiny = 10 ** _id(1600, mechanism="gaussian", log_delta=-160.0)
    return Measured(
        _grade(fixed > 0.9 * free and tiny < 1e-4, fixed > 0.9 * free),
        f"exponent {fixed:.5f} n at delta = 1e-6 and large n (margin rule {free:.5f} n); at n = 1600 and delta = "
        f"exp(-n/10) the error is {tiny:.2f}",
    )


def identification_lower(eps: float | None, mechanism: str = "em") -> Measured:
    """The worse of two mirrored laws against the two-point bound (eps = None: bound without privacy)."""
    gamma, rows = BETA - ALPHA, []
    for n in (50, 400, 3200):
        floor = n * math.log10(1 - gamma) - math.log10(2) if eps is None else lower.lower_two_point(n, gamma, eps)
        noise = {"delta": 1e-6} if mechanism == "gaussian" else {}
        rows.append((floor, _id(n, eps or 0.5, mechanism=mechanism, **noise)))
    return Measured(
        _grade(all(low <= high for low, high in rows)), "; ".join(f"{show(low)} <= {show(high)}" for low, high in rows)
    )


def pure_factor() -> Measured:
    """1 - e^-eps against min{1, eps}: within a factor 1 - 1/e of each other."""
    ratios = [-math.expm1(-eps) / min(1.0, eps) for eps in np.geomspace(1e-4, 50, 200)]
    return Measured(
        _grade(0.63 < min(ratios) and max(ratios) <= 1),
        f"(1 - e^-eps)/min(1, eps) lies in [{min(ratios):.3f}, {max(ratios):.3f}]",
    )


def tight_identification() -> Measured:
    """Upper exponent per string falls to 0 with f, the lower bound's does not."""
    horizon = growth("sqrt_log", 4.0)
    up = [1 / (4 * horizon(n) ** 2) for n in (1e4, 1e40)]
    return Measured(
        _grade(up[1] > 0.5 * up[0], True),
        f"upper exponent per string {up[0]:.4f} at n = 1e4, "
        f"{up[1]:.4f} at 1e40; lower bound {lower.exponent_lower(0.5, 1.0):.3f} at every n",
    )


def generation_plain() -> Measured:
    """Selection without noise fails only when a window string was never seen."""
    rate = _gen_slope(1.0, mechanism="argmax")
    return Measured(_grade(abs(rate / -math.log1p(-P) - 1) < 0.01), f"exponent {rate:.4f} n = -log(1 - p) n")


def generation_pure() -> Measured:
    """Slope against the closed formula at five eps."""
    pairs = [(eps, _gen_slope(eps), gen.exponent_gen(P, eps)) for eps in (0.1, 0.5, 1.0, 4.0)]
    worst = max(abs(a / b - 1) for _, a, b in pairs)
    return Measured(
        _grade(worst < 0.01 and all(b > 0 for *_, b in pairs)),
        ", ".join(f"{a:.5f} n at eps = {eps:g}" for eps, a, _ in pairs),
    )


def generation_approximate() -> Measured:
    """Gaussian exponent at fixed delta against the exponent without privacy."""
    fixed = _gen_slope(1.0, mechanism="gaussian", delta=1e-6)
    free = gen.gen_upper(10_000, 1, P, 1250, 9, 1.0).terms["coverage"] * -LN10 / 10_000
    linear = [-_gen(n, 1.0, mechanism="gaussian", log_delta=-n / 10.0) * LN10 / n for n in (4000, 16_000)]
    return Measured(
        _grade(False, fixed >= free),
        f"exponent {fixed:.4f} n at delta = 1e-6 (coverage bound "
        f"{free:.4f} n); {linear[1]:.5f} n at delta = exp(-n/10)",
    )


def generation_lower(eps: float | None, mechanism: str = "em") -> Measured:
    """Two laws with a common core of mass 1 - gamma: the same exact error under both."""
    rows = []
    for n in (50, 400, 3200):
        floor = n * math.log10(1 - GAMMA) - math.log10(2) if eps is None else lower.lower_gen(n, GAMMA, eps)
        noise = {"delta": 1e-6} if mechanism == "gaussian" else {}
        found = gen.gen_exact(n, [1 - GAMMA, GAMMA], n // 8, 1, eps or 0.5, mechanism=mechanism, **noise).log10
        rows.append((floor, found))
    return Measured(
        _grade(all(low <= high for low, high in rows)), "; ".join(f"{show(low)} <= {show(high)}" for low, high in rows)
    )


def no_horizon_penalty() -> Measured:
    """Ten or a thousand bad languages: the exponent is the same."""
    few, many = (
        float(slope([8000, 16_000], [gen.gen_exact(n, [P], n // 8, b, 1.0).log10 for n in (8000, 16_000)])[0])
        for b in (9, 999)
    )
    return Measured(
        _grade(abs(few / many - 1) < 1e-3), f"exponent {few:.5f} n with 9 bad languages, {many:.5f} n with 999"
    )


def constants_match() -> Measured:
    """Lower-bound exponent over the algorithm's, smallest and largest over eps."""
    ratios = [lower.exponent_lower(P, eps) / gen.exponent_gen(P, eps) for eps in np.geomspace(0.01, 20, 60)]
    return Measured(_grade(max(ratios) < 10), f"ratio of exponents between {min(ratios):.2f} and {max(ratios):.2f}")


def sensitivity_of(kind: str, c: float, order: Callable[[float], float]) -> Measured:
    """Sensitivity of the horizon divided by the claimed order at two n: a constant."""
    horizon = growth(kind, c)
    ratios = [2 * horizon(n) ** 2 / n / order(n) for n in (1e4, 1e12)]
    return Measured(_grade(abs(ratios[1] / ratios[0] - 1) < 0.01), f"2 f^2/n = {ratios[1]:.3g} times the order")


def horizon_rate(kind: str, c: float, order: Callable[[float], float]) -> Measured:
    """Exponent of the privacy term over the claimed order at two n: a constant."""
    horizon = growth(kind, c)
    rates = []
    for n in (10**8, 10**14):
        term = ident.id_upper(n, horizon(n), 1.0, i_star=2, gap=0.5).terms["privacy"]
        rates.append((math.log10(int(horizon(n)) - 1) - term) * LN10 / order(n))
    return Measured(_grade(abs(rates[1] / rates[0] - 1) < 0.01), f"exponent = {rates[1]:.3g} eps times the order")


def best_horizon() -> Measured:
    """A slower horizon has the larger exponent n/f^2 at every large n."""
    slow, fast = growth("log_log", 4.0), growth("sqrt_log", 4.0)
    ratio = [(fast(n) / slow(n)) ** 2 for n in (1e6, 1e30)]
    return Measured(
        _grade(ratio[1] < 1),
        f"sqrt(4 log log n) has {ratio[0]:.1f} (n = 1e6) and {ratio[1]:.1f} (1e30) times the exponent",
    )


def known_window_sensitivity() -> Measured:
    """Largest score change over random neighbouring counts of the example family."""
    rng, worst = np.random.default_rng(0), 0.0
    members = generate.window_members(GenerationExample(), 7, 7)
    for _ in range(300):
        counts = rng.multinomial(20, np.full(8, 1 / 8))
        moved = counts.copy()
        moved[np.flatnonzero(counts)[0]] -= 1
        moved[rng.integers(8)] += 1
        q = [generate.scores(c[:7], members, 20, 3) for c in (counts, moved)]
        worst = max(worst, float(np.abs(q[0] - q[1]).max()))
    return Measured(_grade(worst <= 1), f"largest change {worst:g} over 300 replaced strings")


def printed_privacy_term() -> Measured:
    """f exp(-eps n p_0/8) against the mechanism's f exp(-eps g/2)."""
    ours = -gen.gen_upper(40_000, 1, P, 5000, 9, 0.2).terms["privacy"] * LN10 + math.log(9)
    return Measured(
        _grade(abs(ours / (0.2 * 40_000 * P / 8) - 1) < 0.01, ours >= 0.2 * 40_000 * P / 8),
        f"exponent {ours / (0.2 * 40_000 * P):.3f} eps n p_0, printed 0.125",
    )


def unknown_window() -> Measured:
    """Exponent per string of the pair search's coverage term as the search grows with n."""
    case, rates = GenerationExample(), []
    for n in (10**3, 10**6):
        h = 8 + 2 * int(math.log2(n / 100) / 2)
        p_h = min(case.window_masses(5, h))
        rates.append(-gen.pair_upper(n, h, 7, p_h, int(n * p_h / 2), 7, 1.0).terms["coverage"] * LN10 / n)
    return Measured(
        _grade(rates[1] > 0.5 * rates[0]), f"exponent per string {rates[0]:.2g} at n = 1e3, {rates[1]:.2g} at 1e6"
    )


def no_mass_bound() -> Measured:
    """g = sqrt(n), no p_0: the privacy exponent is eps g/2."""
    n = [10**4, 4 * 10**4]
    logs = [gen.gen_exact(m, [P], int(math.sqrt(m)), 9, 0.5).log10 * LN10 for m in n]
    power = (logs[0] - logs[1]) / (0.5 * (math.sqrt(n[1]) - math.sqrt(n[0])) / 2)
    return Measured(_grade(abs(power - 1) < 0.02), f"-log error grows as {power:.3f} times eps sqrt(n)/2")


def strong_privacy() -> Measured:
    """Power of n in the Gaussian exponent at fixed delta: 2, not 1."""
    n = [10**7, 10**8]
    terms = [-gen.gen_upper_gauss(m, 1, P, m // 8, 1, 0.01, 1e-6).terms["privacy"] for m in n]
    power = math.log10(terms[1] / terms[0])
    return Measured(
        _grade(abs(power - 1) < 0.1, True),
        f"Gaussian exponent grows as n^{power:.2f} at delta = 1e-6: "
        f"pure DP wins below eps = {regime(20_000, P, 8, 1e-6, 0.1).switch:.2f} only (n = 20000, f = 8)",
    )


def poly_delta() -> Measured:
    """Gaussian generation with delta = exp(-n^2.2): no decay at all."""
    errors = [10 ** _gen(n, mechanism="gaussian", log_delta=-(float(n) ** 2.2)) for n in (200, 3200)]
    return Measured(_grade(errors[1] < 0.1 * errors[0]), f"error {errors[0]:.2f} at n = 200, {errors[1]:.2f} at 3200")


def every_dp_rule_pays() -> Measured:
    """Exact Gaussian error against the bound for pure rules, same two laws."""
    n, eps = 20_000, 0.1
    floor = lower.lower_gen(n, GAMMA, eps)
    found = gen.gen_exact(n, [1 - GAMMA, GAMMA], n, 1, eps, mechanism="gaussian", delta=1e-6).log10
    return Measured(_grade(found >= floor), f"Gaussian {show(found)}, lower bound for pure rules {show(floor)}")


def cost_vanishes_at_one() -> Measured:
    """eps = 1 against no privacy at n = 1600."""
    pure, plain = _id(1600, 1.0), _id(1600, mechanism="margin")
    return Measured(_grade(abs(pure - plain) < 1), f"error {show(pure)} at eps = 1, {show(plain)} without privacy")


def novelty_simplified() -> Measured:
    """n 2^-n <= exp(-n/2)?"""
    fails = [n for n in range(1, 60) if gen.novelty_bound(n) > -n / 2 / LN10]
    return Measured(_grade(not fails), f"false for n = {fails[0]}..{fails[-1]}")


def replace_one_sensitivity() -> Measured:
    """2 f^2/n for replace-one is attained by one string; add/remove needs half."""
    scale, n = identify.horizon(3.0, 2), 4
    one, other = (identify.scores(np.array(m), n, scale) for m in ((0, 1), (1, 0)))
    moved = float(np.abs(one - other).max()) / identify.sensitivity(scale, n, "replace")
    return Measured(_grade(abs(moved - 1) < 1e-9), f"largest move {moved:.3f} times 2 f^2/n")


def power_horizon_gaussian() -> Measured:
    """f = n^a with 1/3 < a < 1/2: the Gaussian rule's exponent n^(2 - 5a) against n^(1 - 2a)."""
    n, a = 10**18, 0.4
    gauss = ident.id_upper_gauss(n, float(n) ** a, 0.5, 1e-6, i_star=2, gap=0.5).terms["privacy"]
    pure = ident.id_upper(n, float(n) ** a, 0.5, i_star=2, gap=0.5).terms["privacy"]
    return Measured(
        _grade(gauss < pure), f"log10 of the privacy term at n = 1e18, a = 0.4: Gaussian {gauss:.3g}, pure {pure:.3g}"
    )


_ID, _GEN = "Identification", "Generation"
CLAIMS: dict[tuple[str, str, str], Callable[[], Measured]] = {
    ("Table 1", f"{_ID} / upper", "non-private"): identification_plain,
    ("Table 1", f"{_ID} / upper", "pure"): identification_pure,
    ("Table 1", f"{_ID} / upper", "approximate"): identification_approximate,
    ("Table 1", f"{_ID} / lower", "non-private"): lambda: identification_lower(None, "argmax"),
    ("Table 1", f"{_ID} / lower", "pure"): lambda: identification_lower(0.5),
    ("Table 1", f"{_ID} / lower", "approximate"): lambda: identification_lower(None, "gaussian"),
    ("Table 1", f"{_ID} / lower", "price: factor tight"): tight_identification,
    ("Table 1", f"{_GEN} / upper", "non-private"): generation_plain,
    ("Table 1", f"{_GEN} / upper", "pure"): generation_pure,
    ("Table 1", f"{_GEN} / upper", "approximate"): generation_approximate,
    ("Table 1", f"{_GEN} / upper", "price: no horizon penalty"): no_horizon_penalty,
    ("Table 1", f"{_GEN} / lower", "non-private"): lambda: generation_lower(None, "argmax"),
    ("Table 1", f"{_GEN} / lower", "pure"): lambda: generation_lower(0.5),
    ("Table 1", f"{_GEN} / lower", "approximate"): lambda: generation_lower(None, "gaussian"),
    ("Table 1", f"{_GEN} / lower", "price: matches up to constants"): constants_match,
    ("Table 2", f"{_ID}, f = sqrt(c log n)", "sensitivity"): lambda: sensitivity_of(
        "sqrt_log", 4.0, lambda n: math.log(n) / n
    ),
    ("Table 2", f"{_ID}, f = sqrt(c log n)", "rate"): lambda: horizon_rate("sqrt_log", 4.0, lambda n: n / math.log(n)),
    ("Table 2", f"{_ID}, f = sqrt(c log n)", "note: best choice"): best_horizon,
    ("Table 2", f"{_ID}, f = n^a", "sensitivity"): lambda: sensitivity_of("power", 0.2, lambda n: n**-0.6),
    ("Table 2", f"{_ID}, f = n^a", "rate"): lambda: horizon_rate("power", 0.2, lambda n: n**0.6),
    ("Table 2", f"{_GEN}, known W and p_0", "sensitivity"): known_window_sensitivity,
    ("Table 2", f"{_GEN}, known W and p_0", "rate"): generation_pure,
    ("Table 2", f"{_GEN}, known W and p_0", "dominant term"): printed_privacy_term,
    ("Table 2", f"{_GEN}, unknown W", "rate"): unknown_window,
    ("Table 2", f"{_GEN}, no p_0", "rate"): no_mass_bound,
    ("Table 2", "Strong privacy", "rate"): strong_privacy,
    ("Text", "Design 1", "sensitivity 2 f^2/n"): replace_one_sensitivity,
    ("Text", "Design 4", "n 2^-n <= exp(-n/2)"): novelty_simplified,
    ("Text", "Finding 1", "approximate DP free for delta >= exp(-poly(n))"): poly_delta,
    ("Text", "Finding 2", "cost vanishes at eps >= 1"): cost_vanishes_at_one,
    ("Text", "Finding 2", "every DP rule loses the factor"): every_dp_rule_pays,
    ("Text", "Finding 2", "factor min{1, eps}"): pure_factor,
    ("Text", "Strategy 1", "any f = o(sqrt n), approximate DP"): power_horizon_gaussian,
}


def measure(rows: list[tuple[str, str, str]] | None = None) -> list[dict]:
    """table, row, column, value (1, 0.5, 0) and what was measured, for the given keys or all of them."""
    out = []
    for key in rows or CLAIMS:
        found = CLAIMS[key]()
        out.append(dict(zip(("table", "row", "column"), key, strict=True), value=found.holds, measured=found.text))
    return out
