"""What chapter 42 draws and lists: exponents, bands, regimes, horizons, delta, users, and both tables of
paper 4.

Knows figures and the calculator. Does not know chapters' parameters or profiles. All laws are synthetic and
public.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from paclab.chapters.identification_views import new_figure, quick_figure
from paclab.notebook import plots
from paclab.rates import generation as gen
from paclab.rates import identification as ident
from paclab.rates.claims import measure
from paclab.rates.horizons import Growth, regime, user_level
from paclab.rates.logs import LN10, slope
from paclab.rates.lower import exponent_lower, lower_gen, lower_two_point_sharp
from paclab.releases.selection import gaussian_sigma

P, BAD, ALPHA, BETA = 0.25, 7, 0.1, 0.6
STATUS = {1.0: "holds", 0.5: "holds as read here", 0.0: "fails"}


def exponents_table(eps: Sequence[float], n: int, f: float, delta: float) -> pd.DataFrame:
    """Slopes of the exact log error between n and 2n, the closed formulas, and the lower bounds, per
    string."""
    rows, grid = [], (n, 2 * n)
    for e in map(float, eps):
        held = [gen.gen_exact(m, [P], int(m * P / 2), BAD, e).log10 for m in grid]
        noisy = [gen.gen_exact(m, [P], int(m * P / 2), BAD, e, mechanism="gaussian", delta=delta).log10 for m in grid]
        pure = [ident.id_exact(m, ALPHA, BETA, f, e).log10 for m in grid]
        rows.append(
            {
                "eps": e,
                "generation, slope": float(slope(grid, held)[0]),
                "generation, formula": gen.exponent_gen(P, e),
                "generation, lower bound": exponent_lower(P, e),
                "generation, Gaussian slope": float(slope(grid, noisy)[0]),
                "identification, slope": float(slope(grid, pure)[0]),
                "identification, formula": ident.exponent_id(ALPHA, BETA, f, e),
                "identification, lower bound": exponent_lower(BETA - ALPHA, e),
            }
        )
    return pd.DataFrame(rows)


def exponents_figure(table: pd.DataFrame):
    """Generation left, identification right: slope points on the formula's line, the lower bound's line
    above."""
    figure, axes = new_figure(1, 2, (9.5, 3.9))
    for ax, task in zip(axes, ("generation", "identification"), strict=True):
        ax.plot(
            table["eps"],
            table[f"{task}, lower bound"],
            label="lower bound, any pure DP rule",
            color=plots.INK,
            linestyle=":",
        )
        ax.plot(table["eps"], table[f"{task}, formula"], label="formula", color=plots.PALETTE[0])
        ax.plot(table["eps"], table[f"{task}, slope"], "o", label="slope of the exact error", color=plots.PALETTE[1])
        ax.set(xscale="log", yscale="log", title=task, xlabel="privacy loss ε", ylabel="exponent per string")
        ax.axvline(1.0, color=plots.GRID, linewidth=3, zorder=0)
    axes[0].plot(
        table["eps"],
        table["generation, Gaussian slope"].clip(lower=1e-6),
        label="Gaussian, fixed δ, same n",
        **plots.line(2, 3),
    )
    axes[0].set_ylim(table["generation, slope"].min() / 3, 1)
    axes[0].legend(loc="lower right", fontsize=8.5)
    return figure


def bands_table(ns: Sequence[int], eps: float, f: float, gamma: float) -> pd.DataFrame:
    """log10 of lower, exact (worse of the coupled laws) and upper for both tasks, and the n_0 condition."""
    rows = []
    for n in map(int, ns):
        exact = max(ident.id_exact(n, a, b, f, eps).log10 for a, b in ((ALPHA, BETA), (BETA, ALPHA)))
        top = ident.id_upper(n, f, eps, i_star=2, gap=BETA - ALPHA, k=2)
        rows.append(
            {
                "task": "identification",
                "n": n,
                "lower": lower_two_point_sharp(n, BETA - ALPHA, eps),
                "exact": exact,
                "upper": top.log10,
                **{f"{k} term": v for k, v in top.terms.items()},
            }
        )
        masses, g = [1 - gamma, gamma], max(1, int(n * gamma / 2))
        top = gen.gen_upper(n, 2, gamma, g, 1, eps)
        rows.append(
            {
                "task": "generation",
                "n": n,
                "lower": lower_gen(n, gamma, eps),
                "exact": gen.gen_exact(n, masses, g, 1, eps).log10,
                "upper": top.log10,
                **{f"{k} term": v for k, v in top.terms.items()},
            }
        )
    return pd.DataFrame(rows)


def bands_figure(table: pd.DataFrame, eps: float):
    """The band between lower and upper bound with the exact error inside, and the upper bound's terms."""
    figure, axes = new_figure(1, 2, (9.5, 3.9))
    for ax, task in zip(axes, ("identification", "generation"), strict=True):
        part = table[table["task"] == task].dropna(axis=1, how="all")
        ax.fill_between(part["n"], part["lower"], part["upper"], color=plots.GRID, alpha=0.6, linewidth=0)
        for at, name in enumerate(("upper", "exact", "lower")):
            ax.plot(part["n"], part[name], label=name, **plots.line(at, max(1, len(part) // 5)))
        for at, name in enumerate(c for c in part.columns if c.endswith("term") and c != "novelty term"):
            ax.plot(
                part["n"],
                part[name],
                label=name,
                color=plots.PALETTE[7],
                linestyle=plots.LINESTYLES[at + 2],
                linewidth=1.1,
            )
        ax.set(title=f"{task}, ε = {eps:g}", xlabel="n", ylabel="log₁₀ error", ylim=(1.6 * part["exact"].min() - 1, 1))
        ax.legend(loc="lower left", fontsize=8.5)
    return figure


def regime_grid(ns: Sequence[int], eps: Sequence[float], f: int, delta: float) -> pd.DataFrame:
    """Exact log10 errors of both mechanisms and of noiseless selection on a grid of (n, eps), g = floor(n
    p/2)."""
    rows = []
    for n in map(int, ns):
        g = max(1, int(n * P / 2))
        plain = gen.gen_exact(n, [P], g, f - 1, mechanism="argmax").log10
        cover = gen.gen_upper(n, 1, P, g, f - 1, 1.0).terms["coverage"]
        for e in map(float, eps):
            pure = gen.gen_exact(n, [P], g, f - 1, e).log10
            noisy = gen.gen_exact(n, [P], g, f - 1, e, mechanism="gaussian", f=f, delta=delta).log10
            spot = regime(n, P, f, delta, e)
            rows.append(
                {
                    "n": n,
                    "eps": e,
                    "exponential": pure,
                    "Gaussian": noisy,
                    "no noise": plain,
                    "coverage term": cover,
                    "formula": spot.name,
                    "switch": spot.switch,
                    "free": spot.free,
                }
            )
    return pd.DataFrame(rows)


def regime_figure(table: pd.DataFrame, f: int, delta: float):
    """Which mechanism has the smaller exact error, with the two lines of the formulas."""
    ns, eps = np.unique(table["n"]), np.unique(table["eps"])
    lead = (table["exponential"] - table["Gaussian"]).to_numpy().reshape(len(ns), len(eps)).T
    figure, ax = new_figure()
    reach = 3.0
    shown = ax.pcolormesh(
        ns,
        eps,
        np.clip(np.sign(lead) * np.log10(1 + np.abs(lead)), -reach, reach),
        cmap="PuOr",
        vmin=-reach,
        vmax=reach,
        shading="nearest",
    )
    ax.contour(ns, eps, lead, levels=[0], colors=plots.INK, linewidths=1.6)
    tail = f * math.log(1.25 / delta)
    ax.plot(ns, 8 * tail / (ns * P), color=plots.PALETTE[5], linestyle="--", label="ε = 8 f L/(n p)")
    ax.plot(ns, 2 * np.sqrt(tail / (ns * P)), color=plots.PALETTE[0], linestyle="-.", label="ε = 2 √(f L/(n p))")
    ax.plot([], [], color=plots.INK, label="exact errors equal")
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="privacy loss ε", ylim=(eps[0], eps[-1]))
    bar = figure.colorbar(shown, ax=ax)
    bar.set_ticks([-2, 0, 2], labels=["pure better\nby 10¹⁰⁰", "equal", "Gaussian better\nby 10¹⁰⁰"])
    ax.grid(False)
    ax.legend(loc="lower left")
    return figure


def horizons_table(growths: dict[str, Growth], ns: Sequence[float], eps: float, gap: float) -> pd.DataFrame:
    """f(n), k, sensitivity, pure exponent eps n/(4 f^2), Gaussian exponent, log10 n_0 of several horizons."""
    rows = []
    for name, growth in growths.items():
        for n in map(float, ns):
            f, whole = growth(n), int(n)
            known = {"i_star": 2, "gap": gap}
            noisy = ident.id_upper_gauss(whole, f, eps, 1e-6, **known).terms["privacy"]
            rows.append(
                {
                    "horizon": name,
                    "n": n,
                    "f": f,
                    "k": int(f),
                    "sensitivity": 2 * f * f / n,
                    "pure exponent": eps * n / (4 * f * f),
                    "Gaussian exponent": (math.log10(max(int(f) - 1, 1)) - noisy) * LN10,
                    "log10 n0": growth.log10_n0(2, gap),
                    "theorem speaks": f >= max(2, 3 / gap),
                }
            )
    return pd.DataFrame(rows)


def horizons_figure(table: pd.DataFrame):
    """Pure exponent against n; dotted where the theorem does not speak yet."""
    figure, ax = new_figure()
    for at, (name, part) in enumerate(table.groupby("horizon", sort=False)):
        look = plots.line(at, max(1, len(part) // 6))
        spoken = part["theorem speaks"].to_numpy()
        ax.plot(part["n"], part["pure exponent"].where(spoken), label=name, **look)
        ax.plot(part["n"], part["pure exponent"].where(~spoken), color=look["color"], linestyle=":", alpha=0.55)
        zero = part["log10 n0"].iloc[0]
        if math.log10(part["n"].min()) < zero < math.log10(part["n"].max()):
            ax.axvline(10**zero, color=look["color"], linewidth=0.9, linestyle=(0, (2, 2)))
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="n (dashed rule: n₀; dotted: theorem silent)",
        ylabel="privacy exponent ε n/(4 f²)",
    )
    ax.legend(loc="lower right", ncols=2)
    return figure


def delta_table(n: int, powers: Sequence[float], eps: float) -> pd.DataFrame:
    """Gaussian generation and identification at delta = exp(-n^power), against the pure mechanism."""
    rows = []
    for power in map(float, powers):
        log_delta = -(float(n) ** power)
        noisy = gen.gen_exact(n, [P], int(n * P / 2), BAD, eps, mechanism="gaussian", log_delta=log_delta).log10
        found = ident.id_exact(n, ALPHA, BETA, 6.0, eps, mechanism="gaussian", log_delta=log_delta).log10
        rows.append(
            {
                "power a": power,
                "log10 delta": log_delta / LN10,
                "generation, Gaussian": noisy,
                "generation, pure": gen.gen_exact(n, [P], int(n * P / 2), BAD, eps).log10,
                "identification, Gaussian": found,
                "identification, pure": ident.id_exact(n, ALPHA, BETA, 6.0, eps).log10,
            }
        )
    return pd.DataFrame(rows)


def delta_figure(table: pd.DataFrame, n: int, eps: float):
    """log10 error against the power a in delta = exp(-n^a)."""
    figure, axes = new_figure(1, 2, (9.5, 3.6))
    for ax, task in zip(axes, ("generation", "identification"), strict=True):
        for at, rule in enumerate(("Gaussian", "pure")):
            ax.plot(table["power a"], table[f"{task}, {rule}"], label=rule, **plots.line(at, max(1, len(table) // 6)))
        ax.set(title=f"{task}, n = {n}, ε = {eps:g}", xlabel="a in δ = exp(−nᵃ)", ylabel="log₁₀ error")
        ax.legend(loc="best")
    return figure


def users_table(n_users: int, group: Sequence[int], eps_user: float, delta_user: float) -> pd.DataFrame:
    """m strings per user: run at eps/m per string on n m strings; error exponents then count users, not
    strings."""
    rows = []
    for m in map(int, group):
        n, eps = n_users * m, eps_user / m
        g = max(1, int(n * P / 2))
        per_string = delta_user * math.expm1(eps) / math.expm1(eps_user)
        level = user_level(eps, m, per_string)
        rows.append(
            {
                "strings per user": m,
                "strings": n,
                "eps per string": eps,
                "delta per string": per_string,
                "eps per user": level.eps,
                "delta per user": level.delta,
                "pure, log10": gen.gen_exact(n, [P], g, BAD, eps).log10,
                "Gaussian, log10": gen.gen_exact(n, [P], g, BAD, eps, mechanism="gaussian", delta=per_string).log10,
                "no privacy, log10": gen.gen_exact(n, [P], g, BAD, mechanism="argmax").log10,
            }
        )
    return pd.DataFrame(rows)


def _exact_errors(n: int, eps: float, f: float, delta: float) -> tuple[dict[str, float], dict[str, float]]:
    """log10 of the exact excess risk and of the exact generation error, by mechanism."""
    noise = {"delta": delta}
    naming = {
        m: ident.id_exact(n, ALPHA, BETA, f, eps, mechanism=m, **d).log10 + math.log10(BETA - ALPHA)
        for m, d in (("margin", {}), ("em", {}), ("gaussian", noise))
    }
    speaking = {
        m: gen.gen_exact(n, [P], int(n * P / 2), BAD, eps, mechanism=m, **d).log10
        for m, d in (("argmax", {}), ("em", {}), ("gaussian", noise))
    }
    return naming, speaking


def table1(n: int, eps: float, f: float, delta: float) -> pd.DataFrame:
    """Table 1 with constants: the paper's order, our formula, and its log10 at n."""
    gap, g = BETA - ALPHA, int(n * P / 2)
    upper = ident.id_upper(n, f, eps, i_star=2, gap=gap, k=2, excess=gap)
    noisy = ident.id_upper_gauss(n, f, eps, delta, i_star=2, gap=gap, k=2, excess=gap)
    top, top_noisy = gen.gen_upper(n, 1, P, g, BAD, eps), gen.gen_upper_gauss(n, 1, P, g, BAD, eps, delta)
    shift = math.log10(gap)
    exact_id, exact_gen = _exact_errors(n, eps, f, delta)
    two = (n * math.log10(1 - gap) - math.log10(2) + shift, lower_two_point_sharp(n, gap, eps) + shift)
    core = (n * math.log10(1 - P) - math.log10(2), lower_gen(n, P, eps))
    rows = [
        (
            "identification",
            "upper",
            "not private",
            "exp(-r(n))",
            "2k e^(-n/(2f²))",
            upper.terms["statistics"],
            exact_id["margin"],
        ),
        (
            "identification",
            "upper",
            "pure",
            "exp(-min{1,ε} r(n))",
            "… + (k-1) e^(-εn/(4f²))",
            upper.log10,
            exact_id["em"],
        ),
        (
            "identification",
            "upper",
            "approximate",
            "exp(-r(n))",
            "… + (k-1) Φ̄(1/(√2 σ))",
            noisy.log10,
            exact_id["gaussian"],
        ),
        ("identification", "lower", "not private", "exp(-O(n))", "γ (1-γ)ⁿ/2", two[0], None),
        ("identification", "lower", "pure", "exp(-min{1,ε} O(n))", "γ E[1/(1+e^(εK))]", two[1], None),
        ("identification", "lower", "approximate", "exp(-O(n))", "γ (1-γ)ⁿ/2", two[0], None),
        ("generation", "upper", "not private", "exp(-Ω(n))", "W e^(-np/8)", top.terms["coverage"], exact_gen["argmax"]),
        ("generation", "upper", "pure", "exp(-min{1,ε} Ω(n))", "… + B e^(-εg/2) + n 2⁻ⁿ", top.log10, exact_gen["em"]),
        (
            "generation",
            "upper",
            "approximate",
            "exp(-Ω(n))",
            "… + B Φ̄(g/(√2 σ)) + n 2⁻ⁿ",
            top_noisy.log10,
            exact_gen["gaussian"],
        ),
        ("generation", "lower", "not private", "exp(-O(n))", "(1-γ)ⁿ/2", core[0], None),
        ("generation", "lower", "pure", "exp(-min{1,ε} O(n))", "½[(1-γ(1-e^-ε))ⁿ - γⁿ]", core[1], None),
        ("generation", "lower", "approximate", "exp(-O(n))", "(1-γ)ⁿ/2", core[0], None),
    ]
    names = ["task", "bound", "privacy", "paper's order", "with constants", "log10 bound", "log10 exact error"]
    return pd.DataFrame(rows, columns=names).astype({"log10 exact error": float})


def table2(n: int, eps: float, delta: float) -> pd.DataFrame:
    """Table 2 with constants: sensitivity, privacy exponent by formula and its value at n."""
    log_f2, power_f2, g = 4 * math.log(n), n**0.4, int(n * P / 2)
    p_h, h = P / 2**6, 14
    tail = math.log(1.25 / delta)
    rows = [
        ("identification, f = √(4 log n)", "8 log n/n", 2 * log_f2 / n, "ε n/(16 log n)", eps * n / (4 * log_f2)),
        ("identification, f = n^0.2", "2 n^-0.6", 2 * power_f2 / n, "ε n^0.6/4", eps * n / (4 * power_f2)),
        ("generation, known W and p₀", "1", 1.0, "ε g/2, g = ⌊n p₀/2⌋", eps * g / 2),
        (
            "generation, unknown W (h = 14, w = 7)",
            "h/g",
            h / max(1, int(n * p_h / 2)),
            "ε g (h-w+1)/(2h), g = ⌊n p_h/2⌋",
            eps * int(n * p_h / 2) * (h - 6) / (2 * h),
        ),
        ("generation, no p₀ (g = √n)", "1", 1.0, "ε √n/2", eps * math.sqrt(n) / 2),
        ("strong privacy, pure", "1", 1.0, "ε n p/4", eps * n * P / 4),
        ("strong privacy, Gaussian, fixed δ", "1", 1.0, "ε² n² p²/(32 f L)", (eps * n * P) ** 2 / (32 * 8 * tail)),
    ]
    names = ["configuration", "sensitivity", "value", "privacy exponent", "exponent at n"]
    return pd.DataFrame(rows, columns=names)


def claims_table(published: pd.DataFrame) -> pd.DataFrame:
    """Every claim with what we measured, our status and the reason; failing claims first."""
    notes = published.set_index(["table", "row", "column"])["note"]
    rows = []
    for row in measure(list(map(tuple, published[["table", "row", "column"]].itertuples(index=False)))):
        claim, _, reason = notes[row["table"], row["row"], row["column"]].split(" | ")
        rows.append(
            {
                "where": f"{row['table']}: {row['row']} / {row['column']}",
                "claim": claim.removeprefix("claim: "),
                "status": STATUS[row["value"]],
                "measured": row["measured"],
                "reason": reason,
                "value": row["value"],
            }
        )
    return pd.DataFrame(rows).sort_values("value", kind="stable").drop(columns="value").reset_index(drop=True)


def accounting_table(steps: Sequence[int], eps: float, delta: float) -> pd.DataFrame:
    """One clipped scalar of sensitivity 1 released per step: noise of Gaussian and of pure (Laplace)
    releases.

    Gaussian: T steps compose to one Gaussian of sigma/sqrt(T), calibrated exactly. Pure: eps/T per step.
    """
    rows = []
    one = gaussian_sigma(eps, 1.0, delta, calibration="analytic")
    for t in map(int, steps):
        noisy, laplace = one * math.sqrt(t), math.sqrt(2) * t / eps
        rows.append(
            {
                "steps": t,
                "eps": eps,
                "delta": delta,
                "Gaussian noise": noisy,
                "Laplace noise": laplace,
                "pure over Gaussian": laplace / noisy,
            }
        )
    return pd.DataFrame(rows)


def explorer(n: int, eps: float, delta_power: int, bad: int, p: float):
    """Lower bound, exact errors of three rules and the upper bound of generation up to n."""
    figure, ax = quick_figure()
    ns = np.unique(np.geomspace(max(20, n / 40), n, 12).astype(int))
    lines: dict[str, list[float]] = {}
    for m in map(int, ns):
        g = max(1, int(m * p / 2))
        row = {
            "upper bound, pure": gen.gen_upper(m, 1, p, g, bad, eps).log10,
            "exponential": gen.gen_exact(m, [p], g, bad, eps).log10,
            "Gaussian": gen.gen_exact(
                m, [p], g, 1, eps, mechanism="gaussian", f=bad + 1, delta=10.0**-delta_power
            ).log10,
            "no noise": gen.gen_exact(m, [p], g, bad, mechanism="argmax").log10,
            "lower bound, pure": lower_gen(m, p, eps),
        }
        for name, value in row.items():
            lines.setdefault(name, []).append(value)
    for at, (name, values) in enumerate(lines.items()):
        ax.plot(ns, np.maximum(values, -400), label=name, **plots.line(at, 3))
    ax.set(xlabel="n", ylabel="log₁₀ error", title=f"ε = {eps:g}, δ = 1e-{delta_power}, B = {bad}, p = {p:g}")
    ax.legend(loc="lower left")
    return figure


def explorer_numbers(n: int, eps: float, delta_power: int, bad: int, p: float) -> dict:
    """The regime and the thresholds behind the explorer's figure."""
    found = regime(n, p, bad + 1, 10.0**-delta_power, eps)
    return {
        "regime": found.name,
        "Gaussian better above eps": found.switch,
        "Gaussian free above eps": found.free,
        "exponent per string": gen.exponent_gen(p, eps),
        "lower bound's exponent": exponent_lower(p, eps),
    }
