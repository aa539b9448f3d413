"""What chapter 40 draws and lists: scores by hand, error curves with simulated points, audits, a replayed
run.

Knows figures and the calculator. Does not know chapters' parameters or profiles. All laws are synthetic and
public.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from paclab.languages import CoSingletons, Family, Multiples, Prefixes, Regular, Residues, TwoAtoms, identify
from paclab.notebook import plots
from paclab.rates import identification as ident
from paclab.rates.logs import power10
from paclab.rates.lower import lower_two_point_sharp
from paclab.releases import selection

RULES = {"margin": "margin rule, not private", "em": "exponential, pure DP", "gaussian": "Gaussian, approximate DP"}


def new_figure(rows: int = 1, columns: int = 1, size: tuple[float, float] = (7.0, 4.2), **options):
    """A figure that pyplot does not keep (several sliders leave none behind) and its axes."""
    figure = Figure(figsize=size)
    return figure, figure.subplots(rows, columns, **options)


def quick_figure(size: tuple[float, float] = (7.0, 4.0)):
    """One pair of axes that redraws fast for a slider: fixed margins, no layout passes (see `settle`)."""
    figure = Figure(figsize=size, layout="none")
    return figure, figure.add_axes((0.1, 0.13, 0.87, 0.78))


def settle(ax) -> None:
    """Drop the minor ticks of logarithmic axes: most of a redraw's time, nothing of its message."""
    ax.minorticks_off()


def error_curves(law: TwoAtoms, f: float, ns: Sequence[int], eps: Sequence[float], delta: float) -> pd.DataFrame:
    """Exact P(wrong) of every rule: columns n, rule, eps, log10_error, error."""
    rows = []
    for n in ns:
        cases = [("margin", math.nan, {"mechanism": "margin"})]
        cases += [("em", e, {"eps": e}) for e in eps]
        cases += [("gaussian", e, {"eps": e, "mechanism": "gaussian", "delta": delta}) for e in eps]
        for rule, e, options in cases:
            log10 = ident.id_exact(int(n), law.alpha, law.beta, f, **options).log10
            rows.append({"n": int(n), "rule": rule, "eps": e, "log10_error": log10, "error": power10(log10)})
    return pd.DataFrame(rows)


def curves_figure(curves: pd.DataFrame, points: pd.DataFrame | None = None, floor: float = 1e-12):
    """P(wrong) against n on a log scale, one line per rule and eps; points carry Clopper-Pearson bars."""
    figure, ax = new_figure(size=(9.0, 4.2))
    shown = curves.fillna({"eps": -1})
    for at, ((rule, eps), part) in enumerate(shown.groupby(["rule", "eps"], sort=False)):
        label = RULES[rule] if eps < 0 else f"{RULES[rule].split(',')[0]}, ε = {eps:g}"
        ax.plot(part["n"], part["error"].clip(lower=floor / 10), label=label, **plots.line(at, max(1, len(part) // 6)))
    if points is not None:
        ax.errorbar(
            points["n"],
            points["error"],
            yerr=[points["error"] - points["low"], points["high"] - points["error"]],
            fmt="ko",
            markersize=6,
            zorder=5,
            capsize=3,
            label="simulated, 99 % interval",
        )
    ax.set(yscale="log", ylim=(floor, 2), xlabel="strings in the sample, n", ylabel="P(wrong language)")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def simulate(law: Family, f: float, n: int, eps: float, runs: int, seed: int) -> dict:
    """Draw strings, score them, select an index `runs` times: error rate with its Clopper-Pearson
    interval."""
    rng = np.random.default_rng([seed, n])
    k = identify.horizon(f, law.languages).k
    scale = identify.horizon(f, k)
    door = selection.exponential_selection(identify.sensitivity(scale, n, "replace"), eps, "replace", rng)
    wrong = 0
    for t in range(runs):
        misses = identify.miss_counts(law, law.sample(n, rng), k)
        wrong += int(door.step(t, t, identify.scores(misses, n, scale))[1].values[0]) != law.i_star
    low, high = stats.binomtest(wrong, runs).proportion_ci(0.99)
    return {"n": n, "eps": eps, "runs": runs, "error": wrong / runs, "low": float(low), "high": float(high)}


def bounds_table(law: TwoAtoms, f: float, ns: Sequence[int], eps: float) -> pd.DataFrame:
    """lower <= exact <= upper of P(wrong) of the exponential mechanism, in log10, with the bound's terms."""
    rows = []
    for n in ns:
        n = int(n)
        top = ident.id_upper(n, f, eps, i_star=law.i_star, gap=law.gap, k=2)
        mirrored = ident.id_exact(n, law.beta, law.alpha, f, eps).log10
        exact = ident.id_exact(n, law.alpha, law.beta, f, eps).log10
        rows.append(
            {
                "n": n,
                "lower": lower_two_point_sharp(n, abs(law.beta - law.alpha), eps),
                "exact, worse of two laws": max(exact, mirrored),
                "exact": exact,
                "upper": top.log10,
                "statistics term": top.terms["statistics"],
                "privacy term": top.terms["privacy"],
            }
        )
    return pd.DataFrame(rows)


def by_hand(law: Family, counts: dict, f: float, eps: float) -> pd.DataFrame:
    """Everything the algorithm computes from a small sample: one row per language."""
    sample = [u for u, times in counts.items() for _ in range(times)]
    n, k = len(sample), identify.horizon(f, law.languages).k
    scale = identify.horizon(f, k)
    misses = identify.miss_counts(law, sample, k)
    margin = identify.margins(misses, n)
    pure = np.exp(identify.exponential_law(misses, n, scale, eps, "replace"))
    return pd.DataFrame(
        {
            "i": range(1, k + 1),
            "language": [law.language(i) for i in range(1, k + 1)],
            "misses": misses,
            "err_S": misses / n,
            "M_S": margin,
            "d_S": identify.deficits(margin, scale),
            "q": identify.scores(misses, n, scale),
            "P(released)": pure,
        }
    )


def by_hand_figure(table: pd.DataFrame, scale: identify.Horizon):
    """Margins against the threshold, deficits, scores and the released law, language by language."""
    figure, axes = new_figure(1, 4, (10.5, 3.1))
    x = np.arange(len(table)) + 1
    for at, (ax, column, title) in enumerate(
        zip(axes, ["M_S", "d_S", "q", "P(released)"], ["margin M", "deficit d", "score q", "P(released)"], strict=True)
    ):
        ax.bar(x, table[column], width=0.7, **plots.bar(at))
        ax.set(title=title, xticks=x, xlabel="language i")
        ax.axhline(0, color=plots.INK, linewidth=0.8)
    axes[0].axhline(scale.tau, color=plots.PALETTE[5], linestyle="--")
    axes[0].text(len(table) + 0.45, scale.tau, " 2/f", color=plots.PALETTE[5], va="bottom", ha="right")
    return figure


def one_string_figure(n: int, f: float, eps: float, delta: float):
    """P(release 2) against the count difference: a step for the margin rule, smooth for the private rules."""
    scale = identify.horizon(f, 2)
    x = np.arange(-n, n + 1)
    misses = np.stack([np.maximum(x, 0), np.maximum(-x, 0)], axis=-1)
    sigma = identify.score_noise(scale, n, eps, "replace", delta)
    laws = [
        (identify.margin_rule(misses, n, scale) == 2).astype(float),
        np.exp(identify.exponential_law(misses, n, scale, eps, "replace")[:, 1]),
        np.exp(identify.gaussian_law(misses, n, scale, sigma)[:, 1]),
    ]
    figure, ax = new_figure()
    for at, (law, rule) in enumerate(zip(laws, RULES.values(), strict=True)):
        ax.plot(x, law, label=rule, drawstyle="steps-mid" if at == 0 else "default", **plots.line(at, n // 5))
    edge = int(np.argmax(laws[0] > 0))
    ax.axvspan(x[edge] - 2, x[edge], color=plots.GRID, alpha=0.8, linewidth=0)
    ax.annotate(
        "one replaced string\nmoves the count by 2",
        (x[edge] - 1, 0.5),
        (x[edge] - 1 - 0.9 * n, 0.45),
        arrowprops={"arrowstyle": "->", "color": plots.INK},
    )
    ax.set(xlabel="(strings b) - (strings a)", ylabel="P(release index 2)", ylim=(-0.03, 1.03))
    ax.legend(loc="upper left")
    return figure


def audit(sizes: Sequence[int], f: float, eps: Sequence[float], delta: float) -> pd.DataFrame:
    """Exact output laws on all neighbouring samples over every membership pattern of three languages.

    worst: largest |log ratio| (pure) or the delta needed at eps (Gaussian); claimed: what it must not exceed;
    log ratio: the largest |log ratio| of the released index in either case.
    """
    from itertools import combinations_with_replacement, product

    patterns = np.array(list(product((0, 1), repeat=3)))
    scale, rows = identify.horizon(f, 3), []
    for n in sizes:
        bases = [patterns[list(c)].sum(axis=0) for c in combinations_with_replacement(range(8), n - 1)]
        left = np.array([b + x for b in bases for x in patterns for _ in patterns])
        right = np.array([b + y for b in bases for _ in patterns for y in patterns])
        for e in eps:
            p, q = (identify.exponential_law(side, n, scale, e, "replace") for side in (left, right))
            rows.append(
                {
                    "rule": "exponential",
                    "n": n,
                    "pairs": len(left),
                    "eps": e,
                    "claimed": e,
                    "worst": selection.worst_log_ratio(p, q),
                }
            )
            sigma = identify.score_noise(scale, n, e, "replace", delta)
            found, at = np.unique(np.concatenate([left, right]), axis=0, return_inverse=True)
            law = np.exp(identify.gaussian_law(found, n, scale, sigma))[at.ravel()]
            a, b = law[: len(left)], law[len(left) :]
            need = max(float(np.maximum(u - math.exp(e) * v, 0).sum(axis=1).max()) for u, v in ((a, b), (b, a)))
            rows.append(
                {
                    "rule": "Gaussian",
                    "n": n,
                    "pairs": len(left),
                    "eps": e,
                    "claimed": delta,
                    "worst": need,
                    "log ratio": selection.worst_log_ratio(np.log(a), np.log(b)),
                }
            )
    return pd.DataFrame(rows)


def families_table(n: int, eps: float, samples: int, seed: int) -> pd.DataFrame:
    """Six families: best index, gap, the horizon that the theorem needs, and the excess risk of two rules
    at n."""
    rows = []
    for law in (TwoAtoms(), Multiples(), Residues(), Prefixes(), Regular(), CoSingletons()):
        need = math.inf if law.gap == 0 else max(law.i_star, 3 / law.gap, 2.0)
        f = min(max(need, 6.0), 30.0 if law.languages else 7.0)
        k = identify.horizon(f, law.languages).k
        row = {"family": law.name, "i*": law.i_star, "gap c": law.gap, "f needed": need, "f used": f, "k": k}
        for rule, title in (("margin", "not private"), ("em", "pure DP")):
            found = ident.id_error(law, n, f, eps, mechanism=rule, samples=samples, rng=np.random.default_rng(seed))
            row |= {title: found.value, f"{title}, by": found.method.split(",")[0]}
        rows.append(row)
    return pd.DataFrame(rows)


def unattained(rho: float, horizons: Sequence[float], n: int, samples: int, seed: int) -> pd.DataFrame:
    """Co-singletons: excess risk of the margin rule and the best error inside the horizon, for large n."""
    law, rows = CoSingletons(rho), []
    for f in horizons:
        k = identify.horizon(f).k
        found = ident.id_error(law, n, f, mechanism="margin", samples=samples, rng=np.random.default_rng(seed))
        rows.append({"f": f, "k": k, "excess risk": found.value, "best in the horizon": law.error(k), "2/f": 2 / f})
    return pd.DataFrame(rows)


def unattained_figure(table: pd.DataFrame, n: int):
    """The excess risk falls like 1/f, far above what the horizon contains."""
    figure, ax = new_figure()
    for at, (column, label) in enumerate(
        (
            ("excess risk", f"margin rule at n = {n}"),
            ("2/f", "threshold 2/f"),
            ("best in the horizon", "best language within the horizon"),
        )
    ):
        ax.plot(table["f"], table[column], label=label, **plots.line(at, 1))
    ax.set(yscale="log", xlabel="horizon value f", ylabel="error of the chosen language", ylim=(1e-8, 1))
    ax.legend(loc="lower left")
    return figure


class Replay:
    """One fixed stream of strings, read as far as the slider says: the run is replayed, nothing is drawn
    again."""

    def __init__(self, law: TwoAtoms, longest: int, seed: int):
        self.law = law
        drawn = law.sample(longest, np.random.default_rng(seed))
        self.misses = np.cumsum(~law.patterns(drawn, 2), axis=0)

    def draw(self, n: int, eps: float, f: float, delta_power: int = 6):
        """P(release 2) of the three rules, and the margin of language 2, after 1..n strings of the stream."""
        scale = identify.horizon(f, 2)
        steps = np.unique(np.geomspace(5, n, 40).astype(int))
        right = {rule: [] for rule in RULES}
        for m in steps:
            misses = self.misses[m - 1]
            right["margin"].append(float(identify.margin_rule(misses, m, scale) == 2))
            right["em"].append(math.exp(identify.exponential_law(misses, m, scale, eps, "replace")[1]))
            sigma = identify.score_noise(scale, m, eps, "replace", 10.0**-delta_power)
            right["gaussian"].append(math.exp(identify.gaussian_law(misses, m, scale, sigma)[1]))
        figure, ax = quick_figure()
        margin = (self.misses[steps - 1, 0] - self.misses[steps - 1, 1]) / steps
        ax.plot(steps, margin, color=plots.PALETTE[7], linewidth=1.2, label="margin of L2 (same scale)")
        ax.axhline(scale.tau, color=plots.PALETTE[5], linewidth=1.2, linestyle=":", label="threshold 2/f")
        for at, (rule, values) in enumerate(right.items()):
            ax.plot(steps, values, label=RULES[rule], **plots.line(at, 10))
        ax.set(
            xscale="log",
            xlabel="strings read",
            ylabel="P(release 2)",
            ylim=(-0.3, 1.05),
            title=f"n = {n}, ε = {eps:g}, f = {f:g}, δ = 1e-{delta_power}",
        )
        ax.legend(loc="lower right")
        settle(ax)
        return figure

    def describe(self, n: int, eps: float, f: float, delta_power: int = 6) -> dict:
        """The numbers at the right end of the figure."""
        scale = identify.horizon(f, 2)
        misses = self.misses[n - 1]
        law = np.exp(identify.exponential_law(misses, n, scale, eps, "replace"))
        return {
            "margin of L2": float(identify.margins(misses, n)[1]),
            "threshold 2/f": scale.tau,
            "score of L1": float(identify.scores(misses, n, scale)[0]),
            "score of L2": float(identify.scores(misses, n, scale)[1]),
            "sensitivity 2 f²/n": identify.sensitivity(scale, n, "replace"),
            "P(release 2), pure": float(law[1]),
        }
