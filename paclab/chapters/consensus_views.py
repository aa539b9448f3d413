"""What chapter 11 computes and draws: when all candidate halves of a pool agree, on recorded per-record values.

Knows recorded differences [T, N] of a public pool and the consensus law. Runs no model and no release. Halves drawn
here come from public seeds; nothing here knows a secret index. `runs` only names the settings to record.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import integrate, optimize, stats

from paclab.experiments import Cell
from paclab.finetune import Config
from paclab.notebook import plots, tables
from paclab.privacy import consensus

DRAWS = ("complementary", "independent")


class View(NamedTuple):
    """One reading of recorded steps: everything the explorer shows, arrays over the steps of the window."""

    steps: np.ndarray  # step numbers
    t: np.ndarray  # pool t-statistic of each step
    plus: np.ndarray  # share of the M candidates voting +1
    means: np.ndarray  # candidate means [steps, M] in units of sd / sqrt(N): t plus a deviation near N(0, 1)

    @property
    def free(self) -> np.ndarray:
        """Steps on which all candidates agree."""
        return (self.plus == 0) | (self.plus == 1)


@lru_cache(maxsize=64)
def halves(size: int, candidates: int, draw: str = "complementary", seed: int = 0) -> np.ndarray:
    """Public membership [size, candidates]; the same arguments give the same halves."""
    rng = np.random.Generator(np.random.Philox(key=[seed, size]))
    make = {"complementary": consensus.complementary_halves, "independent": consensus.independent_halves}[draw]
    membership = make(size, candidates, rng)
    membership.setflags(write=False)
    return membership


def read(differences: np.ndarray, candidates: int, size: int | None = None, clip: float = np.inf,
         window: tuple[int, int] | None = None, draw: str = "complementary", seed: int = 0) -> View:
    """Votes of `candidates` halves of the first `size` records on the steps of `window` (first, last; inclusive).

    differences: [T, N] projected gradients. clip: bound on |g| as a multiple of its median over the window.
    """
    first, last = window or (0, len(differences) - 1)
    values = np.asarray(differences[first:last + 1, :size], dtype=np.float64)
    if np.isfinite(clip):
        bound = clip * np.median(np.abs(values))
        values = np.clip(values, -bound, bound)
    return _view(values, halves(values.shape[1], candidates, draw, seed), first)


def _view(values: np.ndarray, membership: np.ndarray, first: int = 0) -> View:
    means = consensus.candidate_means(values, membership)
    unit = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    return View(first + np.arange(len(values)), consensus.pool_t_statistic(values), np.mean(means > 0, axis=1),
                means / unit[:, None])


# ---------------------------------------------------------------- the recorded runs


def runs(*, seed: int, seeds: int, steps: int, lora_steps: int, pool: int, candidates: int, model: str,
         **_: Any) -> dict[str, list[Config]]:
    """Settings of the runs to record: `seeds` of full fine-tuning and as many of LoRA, zero-leakage coin."""
    def one(track: str, count: int, i: int) -> Config:
        return Config(method="paczero-zpl", track=track, steps=count, pool=pool, candidates=candidates, model=model,
                      seed=seed + i, test=100, dev=100, study=True)

    return {"full fine-tuning": [one("ft", steps, i) for i in range(seeds)],
            "LoRA": [one("lora", lora_steps, i) for i in range(seeds)]}


def own(cell: Cell, differences: np.ndarray) -> View:
    """A run's recorded differences [T, N] read with the run's own candidate halves."""
    stream = np.random.Generator(np.random.Philox(cell.run["keys"]["subsets"]))
    return _view(np.asarray(differences, dtype=np.float64),
                 consensus.complementary_halves(differences.shape[1], cell.config.candidates, stream))


# ---------------------------------------------------------------- the law against simulation


def simulate(ts: np.ndarray, candidates: int, draw: str, repeats: int, seed: int, records: int = 400) -> np.ndarray:
    """How many of `repeats` fresh draws of halves are unanimous at each pool t [len(ts)].

    A synthetic normal pool of mean t sd / sqrt(N). One draw serves all t: shifting the pool shifts every half alike.
    """
    rng = np.random.Generator(np.random.Philox(key=[seed, candidates]))
    count = np.zeros(len(ts), dtype=int)
    for _ in range(repeats):
        pool = rng.standard_normal(records)
        pool = (pool - pool.mean()) / pool.std(ddof=1)
        if draw == "complementary":
            order = rng.permuted(np.broadcast_to(pool, (candidates // 2, records)), axis=1)
            means = order[:, : records // 2].mean(axis=1)
            low, high = -np.abs(means).max(), np.abs(means).max()
        else:
            member = consensus.independent_halves(records, candidates, rng)
            means = pool @ member / member.sum(axis=0)
            low, high = means.min(), means.max()
        shift = ts / np.sqrt(records)
        count += (shift + low > 0) | (shift + high < 0)
    return count


def law_table(ts: np.ndarray, candidates: list[int], repeats: int, seed: int) -> pd.DataFrame:
    """Simulated unanimity with exact 95 % binomial intervals, beside the law of the same draw."""
    rows = []
    for m in candidates:
        for draw in DRAWS:
            counts = simulate(ts, m, draw, repeats, seed)
            law = consensus.free_step_probability(ts, m, draw)
            for t, k, p in zip(ts, counts, law, strict=True):
                low, high = binomial_interval(int(k), repeats)
                rows.append({"M": m, "draw": draw, "t": t, "simulated": k / repeats, "low": low, "high": high,
                             "law": p, "law minus simulated": p - k / repeats, "inside": low <= p <= high})
    return pd.DataFrame(rows)


def binomial_interval(hits: int, trials: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval."""
    interval = stats.binomtest(hits, trials).proportion_ci(0.95, "exact")
    return float(interval.low), float(interval.high)


def law_figure(table: pd.DataFrame) -> Any:
    """One panel per draw: the law as a line, simulation as points with intervals, one series per M."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), sharey=True)
    t = np.linspace(0, float(table["t"].max()), 200)
    titles = {"complementary": "complementary halves (ours)", "independent": "the papers' draw"}
    names = {"complementary": "(2Φ(t) - 1)^(M/2)", "independent": "Φ(t)^M"}
    for ax, draw in zip(axes, DRAWS, strict=True):
        for i, (m, part) in enumerate(table[table["draw"] == draw].groupby("M", sort=False)):
            ax.plot(t, consensus.free_step_probability(t, m, draw), color=plots.PALETTE[i],
                    linestyle=plots.LINESTYLES[i])
            plots.intervals(ax, part["t"], part["low"], part["simulated"], part["high"], index=i, label=f"M = {m}")
        ax.set(xlabel="pool's t", title=titles[draw])
        ax.text(0.98, 0.04, f"lines: {names[draw]}", transform=ax.transAxes, ha="right", fontsize=9.5)
    axes[0].set_ylabel("P(all M halves agree)")
    axes[0].legend(loc="upper left")
    return figure


# ---------------------------------------------------------------- f by tau, M and N


def free_fraction_table(taus: list[float], candidates: list[int], draw: str = "independent") -> pd.DataFrame:
    """f for t ~ N(0, tau^2): rows M, columns tau (the reference table of the free-step model)."""
    values = {f"tau {tau:g}": [consensus.expected_free_fraction(tau, m, draw) for m in candidates] for tau in taus}
    return pd.DataFrame({"M": candidates, **values})


def by_quadrature(tau: float, candidates: int, draw: str = "independent") -> float:
    """The same integral by adaptive quadrature: an independent check of `expected_free_fraction`."""
    def integrand(t: float) -> float:
        return 2 * stats.norm.pdf(t, scale=tau) * consensus.free_step_probability(t, candidates, draw)

    parts = [integrate.quad(integrand, a, b, epsabs=1e-11, epsrel=1e-11)[0]
             for a, b in ((0, 2), (2, 4), (4, 8), (8, max(40.0, 12 * tau)))]
    return float(sum(parts))


def tau_for(f: float, candidates: int, draw: str = "independent") -> float:
    """The tau at which the free fraction is f."""
    return float(optimize.brentq(lambda tau: consensus.expected_free_fraction(tau, candidates, draw) - f, 0.05, 200))


def beside_the_paper(recorded: dict[str, list[View]], candidates: int) -> pd.DataFrame:
    """The paper's whole-run f with the tau that explains it at M = 128, and ours; keys of the published claims."""
    published = tables.load_published("paczero")
    lines = []
    for row in published[published["row"].str.startswith("unanimity f")].to_dict("records"):
        low, mid, high = (tau_for((row["value"] + k * row["half_width"]) / 100, 128) for k in (-1, 0, 1))
        lines.append({"where": f"paper, {row['row'].removeprefix('unanimity f, ')}", "M": 128, "steps": 1000,
                      "f, %": row["value"], "± f": row["half_width"], "tau": mid, "tau low": low, "tau high": high,
                      "status": "published f; tau by the law [our reading]"})
    for name, views in recorded.items():
        t = np.concatenate([v.t for v in views])
        lines.append({"where": f"here, sentiment, {name}", "M": candidates, "steps": len(views[0].t),
                      "f, %": 100 * np.mean([v.free.mean() for v in views]), "tau": np.sqrt(np.mean(t**2)),
                      "status": "not comparable (0.9 M model, other text, fewer steps)"})
    return pd.DataFrame(lines)


def agreement_ladder(differences: np.ndarray, candidates: list[int]) -> pd.DataFrame:
    """f and the largest t that still splits, by M, on the same recorded steps; zero nats on every line."""
    lines = []
    for m in candidates:
        view = read(differences, m)
        split = np.abs(view.t[~view.free])
        lines.append({"M": m, "f": view.free.mean(), "prior of each half": 1 / m,
                      "half-way |t| of the law": half_way(m),
                      "largest |t| that was split": split.max() if split.size else np.nan,
                      "I(half; ZPL releases), nats": 0})
    return pd.DataFrame(lines)


def half_way(candidates: int) -> float:
    """The |t| at which agreement of complementary halves is as likely as not."""
    return float(stats.norm.ppf((1 + 0.5 ** (2 / candidates)) / 2))


def by_size(differences: np.ndarray, candidates: list[int], sizes: list[int], repeats: int, seed: int) -> pd.DataFrame:
    """Measured f of recorded steps against the law at their own t, for random sub-pools and fresh halves."""
    rows = []
    for size in sizes:
        for m in candidates:
            for draw in DRAWS:
                seen, law = [], []
                for r in range(repeats):
                    rng = np.random.Generator(np.random.Philox(key=[seed, r]))
                    chosen = rng.permutation(differences.shape[1])[:size]
                    view = read(differences[:, chosen], m, draw=draw, seed=1000 * seed + r + 1)
                    seen.append(view.free.mean())
                    law.append(np.mean(consensus.free_step_probability(view.t, m, draw)))
                rows.append({"N": size, "M": m, "draw": draw, "f": np.mean(seen), "f by the law": np.mean(law),
                             "law minus f": np.mean(law) - np.mean(seen), "draws": repeats})
    return pd.DataFrame(rows)


def size_figure(table: pd.DataFrame) -> Any:
    """f against M, one series per pool size: points measured, lines the law (complementary halves)."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.2, 4.3))
    for i, (size, part) in enumerate(table[table["draw"] == "complementary"].groupby("N")):
        look = plots.line(i)
        ax.plot(part["M"], part["f by the law"], color=look["color"], linestyle=look["linestyle"])
        ax.plot(part["M"], part["f"], linestyle="none", color=look["color"], marker=look["marker"], markersize=7,
                label=f"N = {size}")
    ax.set_xscale("log", base=2)
    ticks = sorted(table["M"].unique())
    ax.set_xticks(ticks, [str(m) for m in ticks])
    ax.minorticks_off()
    ax.set(xlabel="candidate halves M", ylabel="share of free steps f", ylim=(0, 1))
    ax.legend(title="points: counted, lines: law", loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


# ---------------------------------------------------------------- over training


def rolling(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over the last `window` steps (fewer at the beginning)."""
    total = np.cumsum(np.concatenate([[0.0], np.asarray(values, dtype=np.float64)]))
    end = np.arange(1, len(total))
    begin = np.maximum(end - window, 0)
    return (total[end] - total[begin]) / (end - begin)


def training_figure(runs: dict[str, list[View]], window: int, candidates: int) -> Any:
    """tau (left) and f (right) over training: running means over `window` steps, averaged over each run's seeds."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9))
    for i, (name, views) in enumerate(runs.items()):
        steps, look = views[0].steps, plots.line(i, 10)
        tau = np.sqrt(np.mean([rolling(v.t ** 2, window) for v in views], axis=0))
        left.plot(steps, tau, label=name, **look)
        right.plot(steps, np.mean([rolling(v.free, window) for v in views], axis=0), label=name, **look)
        law = np.mean([rolling(consensus.free_step_probability(v.t, candidates, "complementary"), window)
                       for v in views], axis=0)
        right.plot(steps, law, color=look["color"], linewidth=1, alpha=0.8)
    left.set(xlabel="step", ylabel=f"τ over {window} steps", ylim=(0, None))
    right.set(xlabel="step (thin lines: the law)", ylabel=f"f over {window} steps", ylim=(0, 1.02))
    left.legend(loc="best")
    return figure
