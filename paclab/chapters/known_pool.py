"""The strongest attacker of the papers' model against simulated PACZero releases; drawings for chapter 12.

Knows the releases and the posterior. Its pools are synthetic: per-record values are normal, and the pool mean
of a direction is t / sqrt(N) with t ~ N(0, tau^2), the law that fits the papers' free-step shares at tau near
2.9 [our reading]. Study mode: secrets come from a seed.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from paclab.notebook import plots
from paclab.privacy import channels, consensus, posterior, risk
from paclab.releases.paczero import Settings, paczero
from paclab.releases.secret import Secret


class Setting(NamedTuple):
    """One simulated release: variant mi or rr, total nats, and whether the published calibration is used."""

    variant: str
    total: float
    compat: bool = False

    @property
    def name(self) -> str:
        kind = {"mi": "Gaussian, certified", "rr": "randomized response"}[self.variant]
        return "Gaussian, as published" if self.compat else kind


def simulate(setting: Setting, steps: int, seed: int, *, records: int = 1000, candidates: int = 128,
             tau: float = 2.9) -> dict:
    """Release `steps` bits of a synthetic pool, then let the attacker guess every record's membership.

    The attacker knows pool, halves, every vote and every released value, so their posterior is the curator's.
    success: mean over records of max(P(in), P(out)); exposed: the largest; spent: exact MI of the noise used.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    draw = consensus.independent_halves if setting.compat else consensus.complementary_halves
    membership = draw(records, candidates, rng)
    release = paczero(Settings(setting.variant, membership, Secret.from_seed(seed), lambda t, k: 1, steps,
                               total=setting.total, compat=setting.compat))
    private, spent, worth = release.init(), 0.0, []
    for t in range(steps):
        values = rng.standard_normal(records)
        values += tau * rng.standard_normal() / np.sqrt(records) - values.mean()
        private, _, info = release.step(private, t, values[None])
        bit = info["bits"][0]
        if bit["channel"]:
            mi, correlation = _worth(bit)
            spent, worth = spent + mi, [*worth, correlation]
    odds = membership @ posterior.weights(private.posterior)
    guess = np.maximum(odds, 1 - odds)
    return {"release": setting.name, "total": setting.total, "seed": seed, "charged": private.ledger.charged,
            "spent": spent, "realised": private.ledger.realised, "free": private.ledger.free / steps,
            "success": float(guess.mean()), "exposed": float(guess.max()),
            "correlation": float(np.median(worth)) if worth else 0.0}


def _worth(bit: dict) -> tuple[float, float]:
    """Exact MI in nats and expected correlation of one noisy bit."""
    q = min(bit["q_plus"], 1 - bit["q_plus"])
    if bit["channel"] == "rr":
        return channels.rr_mi(q, bit["parameter"]), channels.rr_correlation(bit["parameter"])
    return channels.gaussian_mi(q, bit["parameter"]), channels.gaussian_sign_correlation(bit["parameter"])


def attack_table(runs: list[dict]) -> pd.DataFrame:
    """Means over runs of each release, with the bound of its total budget beside the attack."""
    frame = pd.DataFrame(runs)
    grouped = frame.groupby(["release", "total"], sort=False)
    out = grouped[["charged", "spent", "realised", "free", "correlation", "success", "exposed"]].mean()
    out["bound"] = [risk.success_from_mi(total) for _, total in out.index]
    out["runs"] = grouped.size()
    names = {"total": "total, nats", "free": "free steps f", "correlation": "median correlation",
             "exposed": "most exposed record", "success": "success per record", "bound": "bound on success"}
    return out.reset_index().rename(columns=names)


def risk_figure(table: pd.DataFrame) -> Any:
    """Membership success against nats: what cannot be exceeded, and what the best attacks reach."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.6, 4.6))
    nats = np.geomspace(1e-4, np.log(2), 120)
    ax.semilogx(nats, risk.success_from_mi(nats), label="bound from the nats", **plots.line(0, 20))
    epsilons = np.array([0.1, 0.2, 0.3, 0.5, 1, 2, 3, 4, 6])
    best = [risk.gdp_success(risk.gdp_mu(e, 1e-5)) for e in epsilons]
    ax.semilogx(risk.mi_from_epsilon(epsilons), best, label="best attack, Gaussian DP of the matched ε",
                **plots.line(1))
    for e in (0.5, 1, 2, 6):
        ax.annotate(f"ε = {e:g}", (risk.mi_from_epsilon(e), risk.success_from_mi(risk.mi_from_epsilon(e))),
                    xytext=(-6, 4), textcoords="offset points", ha="right", fontsize=9)
    ours = table[table["release"] == "Gaussian, certified"]
    for i, (column, name) in enumerate((("most exposed record", "known-pool attack, most exposed record"),
                                        ("success per record", "known-pool attack, mean record"))):
        ax.plot(ours["total, nats"], ours[column], label=name, color=plots.PALETTE[(6, 2)[i]],
                linestyle="none", marker=plots.MARKERS[(5, 2)[i]], markersize=9)
    ax.set(xlabel="total budget, nats", ylabel="chance of guessing membership (prior 1/2)", ylim=(0.49, 1.01))
    ax.legend(loc="upper left")
    return figure


def published_rows(table: pd.DataFrame, steps: int, candidates: int) -> pd.DataFrame:
    """Nats that the published calibration really spent, keyed as the paper's appendix on actual MI."""
    names = {1e-4: "1e-4", 3e-4: "3e-4", 5e-4: "5e-4", 1e-3: "1e-3", 2e-3: "2e-3", 3e-3: "3e-3", 1e-2: "1e-2",
             3e-2: "3e-2", 5e-2: "5e-2", 0.07: "0.07", 0.11: "0.11", 0.2: "0.20", 0.33: "0.33", 0.5: "0.50",
             0.68: "0.68"}
    rows = table[(table["release"] == "Gaussian, as published") & table["total, nats"].isin(names)]
    same = steps == 1000 and candidates == 128
    return pd.DataFrame({"table": "Appendix FT-plateau-adaptive (FT 1.3B SST-2)",
                         "row": [f"MI {names[total]}" for total in rows["total, nats"]],
                         "column": "actual MI", "value": rows["spent"].to_numpy(),
                         "seeds": rows["runs"].to_numpy(),
                         "reason": "" if same else "other T or M"})
