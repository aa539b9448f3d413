"""What chapter 41 draws and lists: the pointer's jump, counters by hand, the pair search, the novelty term.

Knows figures and the calculator. Does not know chapters' parameters or profiles. All laws are synthetic and
public.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import special, stats

from paclab.chapters.identification_views import new_figure, quick_figure
from paclab.languages import Family, GenerationExample, generate
from paclab.notebook import plots
from paclab.rates import generation as gen
from paclab.rates.logs import LN10, power10
from paclab.rates.lower import exponent_lower, lower_gen
from paclab.releases import selection


def languages_table(law: Family, window: int) -> pd.DataFrame:
    """The class at a glance: language, good or bad, witness, strings in the window and their masses."""
    rows = []
    for i in range(1, law.languages + 1):
        inside = law.window(i, window)
        rows.append(
            {
                "i": i,
                "language": law.language(i),
                "bad": law.bad(i),
                "witness": str(law.witness(i) or "-"),
                f"strings in u_1..u_{window}": ", ".join(str(law.string(k)) for k in inside),
                "smallest mass": min(law.window_masses(i, window), default=math.nan),
            }
        )
    return pd.DataFrame(rows)


def by_hand(law: Family, sample: Sequence, window: int, g: int, eps: float) -> pd.DataFrame:
    """Pointers, counters, deficits, scores and the released law of one small sample."""
    n, k = len(sample), law.languages
    members = generate.window_members(law, k, window)
    counts = generate.window_counts(law, sample, window)
    a = generate.minima(counts, members, n)
    q = generate.scores(counts, members, n, g)
    pointer = generate.pointer_rule(law, sample, k)
    return pd.DataFrame(
        {
            "i": range(1, k + 1),
            "language": [law.language(i) for i in range(1, k + 1)],
            "bad": [law.bad(i) for i in range(1, k + 1)],
            "pointer": pointer.ranks,
            "a": a,
            "d": generate.deficits(a, g),
            "score": q,
            "P(released)": np.exp(selection.exponential_log_law(q, 1.0, eps)),
        }
    )


def jump_table(law: Family, sizes: Sequence[int], g_share: float, eps: float) -> pd.DataFrame:
    """One copy of one string goes: how far the farthest pointer falls, how far the private scores move.

    The sample holds each of the first n even numbers once; the only copy of 12, which every good language
    contains, is replaced by a second copy of the largest. The private columns are the worst over replaced
    2, 4, 6 and 12.
    """
    rows = []
    for n in sizes:
        sample = [law.member(5, j) for j in range(1, n + 1)]
        before = generate.pointer_rule(law, sample, 7)
        after = generate.pointer_rule(law, _replaced(sample, 12), 7)
        g, members = max(1, int(g_share * n)), generate.window_members(law, 7, 7)
        moved = ratio = 0.0
        start = generate.scores(generate.window_counts(law, sample, 7), members, n, g)
        for u in (2, 4, 6, 12):
            end = generate.scores(generate.window_counts(law, _replaced(sample, u), 7), members, n, g)
            moved = max(moved, float(np.abs(end - start).max()))
            laws = [selection.exponential_log_law(q, 1.0, eps) for q in (start, end)]
            ratio = max(ratio, selection.worst_log_ratio(*laws))
        rows.append(
            {
                "n": n,
                "pointer of the even numbers": before.ranks[4],
                "after": after.ranks[4],
                "printed before": str(before.string),
                "printed after": str(after.string),
                "largest score change": moved,
                "log ratio of the private law": ratio,
            }
        )
    return pd.DataFrame(rows)


def _replaced(sample: Sequence, u: int) -> list:
    """The sample with its only copy of u replaced by a second copy of the last string."""
    return [x for x in sample if x != u] + [sample[-1]]


def jump_figure(law: Family, n: int, g: int):
    """Pointers and private scores of the seven languages before and after one replaced string."""
    sample = [law.member(5, j) for j in range(1, n + 1)]
    changed = _replaced(sample, 12)
    members = generate.window_members(law, 7, 7)
    figure, (left, right) = new_figure(1, 2, (9.5, 3.8))
    x = np.arange(1, 8)
    for at, (name, s) in enumerate((("all strings seen once", sample), ("the only “12” replaced", changed))):
        ranks = generate.pointer_rule(law, s, 7).ranks
        q = generate.scores(generate.window_counts(law, s, 7), members, n, g)
        left.bar(x + 0.38 * at - 0.19, ranks, 0.36, label=name, **plots.bar(at))
        right.bar(x + 0.38 * at - 0.19, q + g, 0.36, label=name, **plots.bar(at))
    left.set(title="pointer (first unseen string)", xlabel="language i", ylabel="rank in the universe", xticks=x)
    right.set(
        title="private score, counted from its minimum",
        xlabel="language i",
        ylabel="g − deficit",
        xticks=x,
        ylim=(0, g + 1.2),
    )
    right.legend(loc="upper left")
    return figure


def error_curves(
    masses: Sequence[float], ns: Sequence[int], bad: int, eps: Sequence[float], delta: float
) -> pd.DataFrame:
    """Exact P(a bad language is selected): threshold g = floor(n p/2), no threshold, Gaussian, no noise."""
    p, rows = min(masses), []
    for n in map(int, ns):
        g = max(1, int(n * p / 2))
        cases = [("no noise", math.nan, g, {"mechanism": "argmax"})]
        cases += [("threshold", e, g, {"eps": e}) for e in eps] + [("no threshold", e, n, {"eps": e}) for e in eps]
        cases += [("Gaussian", e, g, {"eps": e, "mechanism": "gaussian", "delta": delta}) for e in eps]
        for rule, e, level, options in cases:
            log10 = gen.gen_exact(n, masses, level, bad, **options).log10
            rows.append({"n": n, "rule": rule, "eps": e, "g": level, "log10_error": log10, "error": power10(log10)})
    return pd.DataFrame(rows)


def curves_figure(curves: pd.DataFrame, points: pd.DataFrame | None = None, floor: float = 1e-12):
    """P(bad language) against n; simulated points carry Clopper-Pearson bars."""
    figure, ax = new_figure(size=(9.0, 4.2))
    for at, ((rule, eps), part) in enumerate(curves.fillna({"eps": -1}).groupby(["rule", "eps"], sort=False)):
        label = rule if eps < 0 else f"{rule}, ε = {eps:g}"
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
    ax.set(yscale="log", ylim=(floor, 2), xlabel="strings in the sample, n", ylabel="P(bad language released)")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def simulate(law: Family, n: int, window: int, g: int, eps: float, runs: int, seed: int) -> dict:
    """Strings in, string out, `runs` times: bad selections, invalid or repeated outputs, and the pointer
    rule's."""
    rng = np.random.default_rng([seed, n])
    members = generate.window_members(law, law.languages, window)
    door = selection.exponential_selection(1.0, eps, "replace", rng)
    bad = failed = pointer = 0
    for t in range(runs):
        sample = law.sample(n, rng)
        q = generate.scores(generate.window_counts(law, sample, window), members, n, g)
        i = int(door.step(t, t, q)[1].values[0])
        x = generate.novel_string(law, i, window, generate.public_index(n, rng))
        bad += law.bad(i)
        failed += (law.witness(i) is not None and not law.supports(x)) or x in set(sample)
        pointer += not law.supports(generate.pointer_rule(law, sample, law.languages).string)
    low, high = stats.binomtest(bad, runs).proportion_ci(0.99)
    return {
        "n": n,
        "eps": eps,
        "runs": runs,
        "error": bad / runs,
        "low": float(low),
        "high": float(high),
        "invalid or repeated string": failed / runs,
        "pointer rule, invalid string": pointer / runs,
    }


def bounds_table(gamma: float, ns: Sequence[int], eps: float) -> pd.DataFrame:
    """log10 of lower <= exact <= upper for two laws with a common core of mass 1 - gamma (B = 1)."""
    rows = []
    for n in map(int, ns):
        masses, g = [1 - gamma, gamma], max(1, int(n * min(gamma, 1 - gamma) / 2))
        top = gen.gen_upper(n, 2, min(masses), g, 1, eps)
        rows.append(
            {
                "n": n,
                "g": g,
                "lower": lower_gen(n, gamma, eps),
                "exact, no threshold": gen.gen_exact(n, masses, n, 1, eps).log10,
                "exact": gen.gen_exact(n, masses, g, 1, eps).log10,
                "upper": top.log10,
                "coverage term": top.terms["coverage"],
                "privacy term": top.terms["privacy"],
                "novelty term": top.terms["novelty"],
            }
        )
    return pd.DataFrame(rows)


def threshold_table(p: float, eps: Sequence[float]) -> pd.DataFrame:
    """Exponents with threshold p/2, without, and of the lower bound, and the ratio of the first two."""
    rows = []
    for e in map(float, eps):
        held, free = gen.exponent_gen(p, e), gen.exponent_gen_free(p, e)
        rows.append(
            {
                "eps": e,
                "threshold": held,
                "no threshold": free,
                "lower bound": exponent_lower(p, e),
                "gain without threshold": free / held,
            }
        )
    return pd.DataFrame(rows)


def threshold_figure(table: pd.DataFrame):
    """Exponents per string against eps."""
    figure, ax = new_figure()
    for at, (column, label) in enumerate(
        (
            ("lower bound", "no rule can be faster (lower bound)"),
            ("no threshold", "score = smallest count"),
            ("threshold", "threshold at half the mass"),
        )
    ):
        ax.plot(table["eps"], table[column], label=label, **plots.line(at, max(1, len(table) // 7)))
    ax.set(xscale="log", yscale="log", xlabel="privacy loss ε", ylabel="exponent per string, −log(error)/n")
    ax.legend(loc="lower right")
    return figure


def pair_figure(law: Family, n: int, h: int, g: int, eps: float, seed: int):
    """Scores q(i, t) of one sample and the law of the released pair: language against assumed window."""
    sample = law.sample(n, np.random.default_rng(seed))
    members = generate.window_members(law, law.languages, h)
    q = generate.pair_scores(generate.window_counts(law, sample, h), members, n, g)
    logs = selection.exponential_log_law(q.reshape(1, -1), generate.pair_sensitivity(h, g), eps)
    figure, axes = new_figure(1, 2, (9.5, 3.8))
    names = [f"{'bad' if law.bad(i) else 'good'} {i}" for i in range(1, law.languages + 1)]
    panels = ((q.clip(min=-h), f"score q(i, t), below −{h} cut"), (np.exp(logs).reshape(q.shape), "P(release (i, t))"))
    for ax, (values, title) in zip(axes, panels, strict=True):
        shown = ax.imshow(values, aspect="auto", cmap="cividis", extent=(0.5, h + 0.5, law.languages + 0.5, 0.5))
        ax.set(title=title, xlabel="window t", yticks=range(1, law.languages + 1), yticklabels=names)
        ax.grid(False)
        figure.colorbar(shown, ax=ax, shrink=0.85)
    return figure


def novelty_figure(ns: Sequence[int]):
    """n 2^-n against exp(-n/2), the simplification that fails in the middle."""
    ns = np.asarray(ns)
    figure, ax = new_figure()
    ax.plot(ns, [10 ** gen.novelty_bound(int(n)) for n in ns], label="n 2⁻ⁿ, what the argument gives", **plots.line(0))
    ax.plot(ns, np.exp(-ns / 2), label="exp(−n/2), what the paper writes", **plots.line(1))
    wrong = [int(n) for n in ns if gen.novelty_bound(int(n)) > -n / 2 / LN10]
    ax.axvspan(wrong[0] - 0.5, wrong[-1] + 0.5, color=plots.GRID, alpha=0.7, linewidth=0)
    ax.text((wrong[0] + wrong[-1]) / 2, 1.15, f"false for n = {wrong[0]}..{wrong[-1]}", ha="center", va="top")
    ax.set(yscale="log", xlabel="strings in the sample, n", ylabel="bound on P(the output is an old string)")
    ax.legend(loc="lower left")
    return figure


def audit(n: int, g: int, eps: Sequence[float]) -> pd.DataFrame:
    """Exact output-law ratios on all neighbouring samples of n strings from 2, 4, 6, 7 and the rest of the
    numbers."""
    from itertools import combinations_with_replacement

    kinds = np.zeros((5, 7), dtype=int)
    for row, u in enumerate((2, 4, 6, 7)):
        kinds[row, u - 1] = 1
    members, rows = generate.window_members(GenerationExample(), 7, 7), []
    for adjacency, size in (("replace", n - 1), ("add_remove", n)):
        bases = [kinds[list(c)].sum(axis=0) for c in combinations_with_replacement(range(5), size)]
        moves = [(x, y) for x in kinds for y in (kinds if adjacency == "replace" else [np.zeros(7, dtype=int)])]
        left, right = (np.array([b + move[side] for b in bases for move in moves]) for side in (0, 1))
        for e in eps:
            single = [selection.exponential_log_law(generate.scores(s, members, n, g), 1.0, e) for s in (left, right)]
            pairs = [
                selection.exponential_log_law(
                    generate.pair_scores(s, members, n, g).reshape(len(s), -1), generate.pair_sensitivity(7, g), e
                )
                for s in (left, right)
            ]
            rows += [
                {
                    "rule": rule,
                    "adjacency": adjacency,
                    "pairs": len(left),
                    "eps": e,
                    "worst log ratio": selection.worst_log_ratio(*laws),
                }
                for rule, laws in (("known window", single), ("pair search", pairs))
            ]
    return pd.DataFrame(rows)


class Replay:
    """One fixed stream of strings of the example family, read as far as the slider says."""

    def __init__(self, law: GenerationExample, longest: int, seed: int):
        self.law, self.members = law, generate.window_members(law, 7, 7)
        drawn = law.sample(longest, np.random.default_rng(seed))
        hits = np.array([[u == k for k in range(1, 8)] for u in drawn])
        self.counts = np.cumsum(hits, axis=0)
        self.bad = np.array([law.bad(i) for i in range(1, 8)])

    def state(self, n: int, eps: float, share: float) -> tuple[int, np.ndarray, np.ndarray]:
        """Threshold, scores and released law after n strings."""
        g = max(1, int(share * n))
        q = generate.scores(self.counts[n - 1], self.members, n, g)
        return g, q, np.exp(selection.exponential_log_law(q, 1.0, eps))

    def draw(self, n: int, eps: float, share: float):
        """P(a bad language) after 1..n strings, with the threshold and with the smallest count itself."""
        figure, ax = quick_figure()
        steps = np.unique(np.geomspace(4, n, 40).astype(int))
        for at, (name, part) in enumerate((("threshold g", share), ("no threshold", 1.0))):
            chance = [self.state(int(m), eps, part)[2][self.bad].sum() for m in steps]
            ax.plot(steps, np.log10(np.maximum(chance, 1e-300)), label=name, **plots.line(at, 8))
        ax.set(
            xlabel="strings read",
            ylabel="log₁₀ P(bad language)",
            title=f"n = {n}, ε = {eps:g}, g = {max(1, int(share * n))}",
        )
        ax.legend(loc="lower left")
        return figure

    def describe(self, n: int, eps: float, share: float) -> dict:
        """The numbers of the figure."""
        g, q, law = self.state(n, eps, share)
        return {
            "threshold g": g,
            "counts of 2, 4, 6": str(self.counts[n - 1][[1, 3, 5]].tolist()),
            "scores": str(q.astype(int).tolist()),
            "P(bad language)": float(law[self.bad].sum()),
        }


def coverage(n: int, p: float, g: int) -> float:
    """P(a window string of mass p is seen fewer than g times): the coverage term exactly."""
    return float(special.betaincc(g, n - g + 1, p)) if g >= 1 else 0.0
