"""Tables of chapter 21: Table 3 beside ours, what each promise buys, what accounting saves, who is protected.

Knows the chapter's results, the published numbers and the calculators of risk. Draws nothing. Accuracies in per cent.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from paclab.chapters import known_pool, rows
from paclab.chapters import sentiment_table as sentiment
from paclab.chapters.dp_cliff import (
    AS_PUBLISHED,
    DELTA,
    HOWS,
    SEARCHED,
    ZPL,
    Plan,
    Results,
    forwards,
    matched,
    signal_to_noise,
    trials,
)
from paclab.chapters.dp_cliff_equal import NAMES, Equal
from paclab.chapters.rows import Interval
from paclab.experiments import Cell
from paclab.notebook import tables
from paclab.privacy import dp, risk
from paclab.releases import dp as dp_release

TABLE_3 = "Table 3 (DP cliff, SST-2 FT 1.3B)"
RECORD = "one record, against every neighbour"
HALF = "which half of a known pool"
ZPL_SEARCHED = "searched (no clip)"
GRID_NAMES = {"epsilon": "ε", "dev_loss": "dev loss", "dev_loss s.e.": "dev loss s.e.",
              "dev_loss before": "dev loss, untrained", "dev_score": "dev accuracy",
              "dev_score s.e.": "dev accuracy s.e."}


def said(value: Interval) -> str:
    """mean ± half-width, in per cent; no half-width where there is none."""
    return f"{100 * value.mean:.1f} ± {100 * value.shown:.1f}"


def _accuracy(cells: list[Cell]) -> Interval:
    return rows.interval(c.score for c in cells)


def table_3(r: Results, side: Equal | None = None) -> pd.DataFrame:
    """The paper's layout: accuracy by method and epsilon, ± 95 %; a budget in nats stands under its matched epsilon.

    A promise of 0 nats stands in every column, as in the paper. `side`: PACZero searched at the DP rows' forwards.
    """
    columns = [f"ε = {e:g}" for e in r.plan.epsilons]
    lines = []
    for family in r.plan.families:
        for how in family.hows:
            line = {"method": family.name, "learning rate and clip": how, "trials": _trials(r, how)}
            shown = {f"ε = {e:g}": said(_accuracy(r.cells[how, family.key, e])) for e in family.epsilons}
            lines.append(line | {c: shown.get(c, "-") for c in columns})
    for key, cells in r.paczero.items():
        row, value = sentiment.ROWS[key], said(_accuracy(cells))
        at = [e for e in r.plan.epsilons if row.total and abs(matched(e) - row.total) < 0.01]
        everywhere = row.method == "paczero-zpl"
        lines.append({"method": row.name, "learning rate and clip": "the package's", "trials": "-"} | {
            f"ε = {e:g}": value if everywhere or e in at else "-" for e in r.plan.epsilons})
        if row.method == "mezo":
            lines[-1] |= {"method": f"{row.name}, not private: {value}"}
    if r.zpl_tuned:
        value = said(_accuracy(r.zpl[SEARCHED]))
        lines.append({"method": sentiment.ROWS[ZPL].name, "learning rate and clip": ZPL_SEARCHED,
                      "trials": f"{r.plan.zpl_trials} once"} | dict.fromkeys(columns, value))
    for method in dict.fromkeys(kind.method for kind in side.cells) if side else ():
        own = {kind.epsilon: said(_accuracy(cells)) for kind, cells in side.cells.items() if kind.method == method}
        steps = next(cells for kind, cells in side.cells.items() if kind.method == method)[0].config.steps
        lines.append({"method": f"{NAMES[method]}, T = {steps}: the DP rows' forwards",
                      "learning rate and clip": ZPL_SEARCHED, "trials": _trials(r, SEARCHED if any(own) else "")} | {
            f"ε = {e:g}": own.get(e, own.get(None, "-")) for e in r.plan.epsilons})
    zero = said(rows.interval(z.score for z in r.zero))
    lines.append({"method": f"zero-shot: {zero}", "learning rate and clip": "-", "trials": "-"} | dict.fromkeys(
        columns, "-"))
    return pd.DataFrame(lines)


def _trials(r: Results, how: str) -> str:
    return f"{r.plan.trials} per ε" if how == SEARCHED else f"{r.plan.trials} once"


def runs(r: Results) -> pd.DataFrame:
    """One line per family, way of setting and epsilon: settings, noise, what was learnt, and what is promised."""
    lines = []
    for family in r.plan.families:
        for how in family.hows:
            for e in family.epsilons:
                lines.append(_run_line(r, how, family, e))
    others = [(key, "the package's", cells) for key, cells in r.paczero.items()]
    others += [(ZPL, ZPL_SEARCHED, r.zpl[SEARCHED])] if r.zpl_tuned else []
    for key, setting, cells in others:
        c, row = cells[0].config, sentiment.ROWS[key]
        promise = (f"{row.budget(c.steps) or 0:g} nats about the half" if row.halves else "nothing promised")
        lines.append({"method": row.name, "setting": setting, "T": c.steps, "K": c.k,
                      "forwards": forwards(c), "lr": c.learning_rate(), "promise": promise,
                      "protects": HALF if row.halves else "nobody"} | rows.line(cells, r.zero))
    return pd.DataFrame(lines)


def _run_line(r: Results, how: str, family: Any, epsilon: float) -> dict:
    cells = r.cells[how, family.key, epsilon]
    c, release = cells[0].config, cells[0].run["release"]
    delta = 0 if c.noise == "laplace" else c.delta
    return {"method": family.name, "setting": how, "ε": epsilon, "T": c.steps, "K": c.k, "forwards": forwards(c),
            "lr": c.lr, "clip": c.clip, "noise / clip": release["noise_multiplier"],
            "noise in a released number": release["noise_std"], "signal / noise, power": signal_to_noise(cells),
            "clipped": float(np.mean([i["clipped"] for x in cells for i in x.infos])),
            "promise": f"({epsilon:g}, {delta:g})-DP", "protects": f"{RECORD} ({dp_release.UNIT[c.adjacency]})",
            } | rows.line(cells, r.zero)


def grid(r: Results) -> pd.DataFrame:
    """The whole search, best trial of each group marked, with the family's name."""
    names = {(f.method, f.k): f.name for f in r.plan.families}
    frame = trials(r)
    method = [names[m, k] for m, k in zip(frame["method"], frame["k"], strict=True)]
    frame = frame.drop(columns=["method", "k", "steps", "noise", "dev_score before"], errors="ignore")
    frame = frame.rename(columns=GRID_NAMES)
    frame.insert(0, "method", method)
    return pd.concat([frame, _zpl_grid(r, frame.columns)], ignore_index=True) if r.zpl_tuned else frame


def _zpl_grid(r: Results, columns: pd.Index) -> pd.DataFrame:
    """ZPL's trials in the columns of the families'; its step length is the learning rate, of the package's."""
    frame = r.zpl_tuned.grid.rename(columns=GRID_NAMES)
    own = r.paczero[ZPL][0].config.learning_rate()
    frame = frame.assign(**{"method": sentiment.ROWS[ZPL].name, "step length": frame["lr"] / own})
    return frame[[name for name in columns if name in frame]]


def equal_compute(pool: int, runs: dict[int, list[int]], epsilons: list[float]) -> pd.DataFrame:
    """The noise of one released number at each K when every run costs the same forwards.

    runs: directions of a whole run (T times K) -> values of K. The noise is relative to K = 1 of the same run length,
    with the clip 1 / sqrt K; certified by pld.
    """
    lines, q = [], min(1.0, dp_release.EXPECTED_BATCH / pool)
    for probes, directions in runs.items():
        for e in epsilons:
            first = None
            for k in directions:
                steps = rows.equal_steps(probes, k)
                noise = dp.noise_multiplier(e, q, steps, DELTA)
                first = first or noise * math.sqrt(k)
                lines.append({"ε": e, "T K": probes, "K": k, "T": steps, "noise / clip": noise,
                              "noise of one number, against the first K": noise * math.sqrt(k) / first})
    return pd.DataFrame(lines)


def accounting(epsilons: list[float], schedules: list[tuple[float, int]]) -> pd.DataFrame:
    """Noise over clip by accountant at each (rate, steps), what pld saves, and what the published noise really costs.

    Add/remove adjacency, delta 1e-5, the full epsilon.
    """
    lines = []
    for q, steps in schedules:
        for e in epsilons:
            s = dp.savings(e, q, steps, DELTA)
            lines.append({"rate": q, "T": steps, "ε promised": e, "published rule (RDP)": s.published,
                          "wide RDP": s.rdp, "PLD": s.pld, "noise saved, %": 100 * s.saved,
                          "ε of the published noise, by PLD": dp.epsilon(s.published, q, steps, DELTA)})
    return pd.DataFrame(lines)


def attack_matched(success: float) -> float:
    """The epsilon (delta 1e-5) of the exactly Gaussian mechanism whose best attack has this success; 0 at 1/2."""
    from scipy import optimize, special

    mu = 2 * float(special.ndtri(success))
    if mu <= 1e-6 or risk.gdp_delta(mu, 0.0) <= DELTA:
        return 0.0
    return float(optimize.brentq(lambda e: risk.gdp_delta(mu, e) - DELTA, 0.0, 50.0, xtol=1e-10))


def risks(plan: Plan, attack_runs: int, steps: int = 200) -> pd.DataFrame:
    """Bound and attack, both sides, by epsilon: what the two promises allow and what anyone can do with them.

    PACZero's side is randomized response of the matched nats on a simulated pool of 1,000 with 128 halves; its
    attacker knows the pool, the halves and every vote.
    """
    q, probes = min(1.0, dp_release.EXPECTED_BATCH / plan.pool), plan.probes
    lines = []
    for e in plan.epsilons:
        nats = matched(e)
        attacks = [known_pool.simulate(known_pool.Setting("rr", nats), steps, plan.seeds[0] + i)
                   for i in range(attack_runs)]
        mean, exposed = (float(np.mean([a[name] for a in attacks])) for name in ("success", "exposed"))
        noise = dp.noise_multiplier(e, q, probes, DELTA)
        lines.append({"ε": e, "bound-matched nats": nats, "bound on any guess, both": risk.success_from_mi(nats),
                      "best attack, Gaussian DP": risk.gdp_success(risk.gdp_mu(e, DELTA)),
                      "at most, DPZero here": 0.5 + dp.advantage(noise, q, probes) / 2,
                      "attack on PACZero, mean record": mean, "attack on PACZero, most exposed": exposed,
                      "attack-matched ε, mean record": attack_matched(mean),
                      "attack-matched ε, most exposed": attack_matched(exposed),
                      "DP protects": RECORD, "PACZero protects": HALF})
    return pd.DataFrame(lines)


def exposures(r: Results) -> pd.DataFrame:
    """Where each PACZero row stands on the DP axis: by its bound, and by the attack on these very runs."""
    lines = []
    for key, cells in r.paczero.items():
        row = sentiment.ROWS[key]
        if not row.halves:
            continue
        attacks = [sentiment.attack(c) for c in cells]
        mean = float(np.mean([a.success[-1] for a in attacks]))
        exposed = float(np.mean([a.exposed for a in attacks]))
        nats = row.budget(cells[0].config.steps) or 0.0
        lines.append({"key": key, "method": row.name, "promised, nats": nats,
                      "bound-matched ε": float(risk.epsilon_from_mi(nats, DELTA)) if nats else 0.0,
                      "attack, mean record": mean, "attack, most exposed": exposed,
                      "attack-matched ε, mean record": attack_matched(mean),
                      "attack-matched ε, most exposed": attack_matched(exposed), "protects": HALF})
    return pd.DataFrame(lines)


# ---------------------------------------------------------------- beside the papers


def small_epsilons() -> pd.DataFrame:
    """What two papers print at small epsilon: one setting for all (PACZero's in-house runs), and its authors' own."""
    frame = tables.load_published("dp-aggzo")
    frame = frame[frame["table"] == "Table 4"]
    parts = frame["row"].str.partition(" / ")
    own = pd.DataFrame({"printed by": "DP-AggZO's authors (RoBERTa-large, searched)", "method": parts[2],
                        "task": frame["column"], "epsilon": parts[0].str.removeprefix("eps "),
                        "accuracy": frame["value"]})
    theirs = tables.load_published("paczero")
    theirs = theirs[(theirs["table"] == TABLE_3) & ~theirs["row"].str.contains("T 2000$")]
    house = pd.DataFrame({"printed by": "PACZero, Table 3 (OPT-1.3B, one setting for all)",
                          "method": theirs["row"].str.partition(", T ")[0], "task": "SST-2",
                          "epsilon": theirs["column"].str.removeprefix("eps "), "accuracy": theirs["value"]})
    both = pd.concat([house, own])
    both["epsilon"] = "ε = " + both["epsilon"].astype(float).map("{:g}".format)
    wide = both.pivot_table(index=["printed by", "method", "task"], columns="epsilon", values="accuracy", sort=False)
    return wide.reset_index().rename_axis(columns=None)


def our_rows(r: Results) -> pd.DataFrame:
    """Our numbers under the paper's keys: the largest K stands for K = 64, the one setting for all for Table 3."""
    lines: list[dict] = []
    wide = max(r.plan.directions)

    def add(table: str, row: str, column: str, cells: list[Cell]) -> None:
        value, c = _accuracy(cells), cells[0].config
        lines.append({"paper": "paczero", "table": table, "row": row, "column": column, "value": 100 * value.mean,
                      "half_width": 100 * value.shown, "seeds": len(cells), "reason":
                      f"0.9 M model, rotten tomatoes, K {c.k}, T {c.steps}: not OPT-1.3B on SST-2"})

    for e in (e for e in r.plan.epsilons if e in (0.2, 0.3, 0.5, 1.0, 2.0, 6.0)):
        add(TABLE_3, "DPZero K=1, T 20000", f"eps {e:.1f}", r.cells[AS_PUBLISHED, "dpzero", e])
        add(TABLE_3, "DP-AggZO K=64, T 1000", f"eps {e:.1f}", r.cells[AS_PUBLISHED, f"aggzo-{wide}", e])
        add(TABLE_3, "PACZero-ZPL, T 1000", f"eps {e:.1f}", r.paczero[ZPL])
    if r.plan.reference == 2.0:
        add("Controls", "DP-AggZO K=64 tuned per eps", "SST-2 1.3B", r.cells[SEARCHED, f"aggzo-{wide}", 2.0])
    return pd.DataFrame(lines)


def beside_the_paper(ours: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Table 3 and its controls with ours and the status."""
    published = tables.load_published("paczero")
    here = (published["table"] == TABLE_3) | (published["table"] == "Appendix dpaggzo-parity")
    here |= published["row"] == "DP-AggZO K=64 tuned per eps"
    why = {"parity": "needs OPT-1.3B, the hub and a GPU", "T 2000": "twice the steps: not tried here"}
    return rows.beside(ours, published[here], profile, why)


def relations(r: Results) -> pd.DataFrame:
    """What Table 3 says about its own rows, and whether it holds here, at the smallest and the reference epsilon.

    The paper's gap stands beside the rows that are its counterparts: K = 1, and the largest K with one setting for all.
    """
    low, high, wide = r.plan.epsilons[0], r.plan.reference, max(r.plan.directions)
    found = []
    paper = {(row, column): value for row, column, value in tables.load_published("paczero").query(
        "table == @TABLE_3")[["row", "column", "value"]].itertuples(index=False)}
    names = {"dpzero": "DPZero K=1, T 20000", f"aggzo-{wide}": "DP-AggZO K=64, T 1000"}
    zpl_row = "PACZero-ZPL, T 1000"
    for family in (f for f in r.plan.families if AS_PUBLISHED in f.hows):
        for e in dict.fromkeys((low, high)):
            column = f"eps {e:.1f}"
            gap = paper.get((zpl_row, column), math.nan) - paper.get((names.get(family.key), column), math.nan)
            for how in HOWS:
                zpl = "ZPL, searched, is" if r.zpl_tuned and how == SEARCHED else "ZPL is"
                found.append(rows.Relation(f"{zpl} ahead of {family.name}, ε = {e:g}, {how}", gap if how ==
                                           AS_PUBLISHED else math.nan,
                                           rows.behind(r.cells[how, family.key, e], r.zpl[how])))
        for e in dict.fromkeys((low, high)):
            if r.picked[family.key, e] == r.reused:
                continue  # the same runs
            gap = rows.behind(r.cells[AS_PUBLISHED, family.key, e], r.cells[SEARCHED, family.key, e])
            found.append(rows.Relation(f"searching at ε = {e:g} helps {family.name}", math.nan, gap))
        found.append(rows.Relation(f"{family.name}, searched, is ahead of zero-shot at ε = {low:g}", math.nan,
                                   rows.gain(r.cells[SEARCHED, family.key, low], r.zero)))
    if r.zpl[SEARCHED][0].config != r.zpl[AS_PUBLISHED][0].config:
        gap = rows.behind(r.zpl[AS_PUBLISHED], r.zpl[SEARCHED])
        found.append(rows.Relation("searching helps ZPL", math.nan, gap))
    return pd.DataFrame([relation.line(len(r.zero)) for relation in found])
