"""Drawings and tables of chapter 12: what one released bit costs, in nats, in noise and in correlation.

Knows the exact channels, the published calibration and the risk conversions. Runs no model and no release;
the attack on simulated releases is in `paclab.chapters.known_pool`.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from paclab.notebook import plots
from paclab.privacy import channels, risk
from paclab.releases import published

SHARES = ((0.5, "1/2"), (0.1, "1/10"), (1 / 128, "1/128"))
SMALL_GAIN = math.sqrt(math.pi / 2)  # RR over Gaussian-then-sign as beta -> 0: 1.2533
SMALL_SHARE = 2 / math.pi  # part of beta that the sign of the Gaussian release carries as beta -> 0: 0.6366
DRAWS = 4  # random pools averaged in the table of vector releases
HEADROOM = channels.ENTROPY_SHARE_CAP


def betas_below(q: float, lowest: float, points: int = 90) -> np.ndarray:
    """Budgets from `lowest` to the cap 0.999 h(q), evenly spaced on a logarithmic axis, in nats."""
    return np.geomspace(lowest, HEADROOM * channels.entropy(q), points)


def correlations(q: float, betas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[Y xi] of the released bit at budget beta: (Gaussian then sign, randomized response)."""
    gaussian = channels.gaussian_sign_correlation(channels.gaussian_sigma(q, betas))
    return np.asarray(gaussian), np.asarray(channels.rr_correlation(channels.rr_flip(q, betas)))


def price_figure(total: float, steps: int) -> Any:
    """Correlation of the released bit with the true vote against nats per bit, q_plus = 1/2."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    betas = betas_below(0.5, 1e-6)
    for i, (name, values) in enumerate(zip(("Gaussian noise, then sign", "randomized response"),
                                           correlations(0.5, betas), strict=True)):
        ax.semilogx(betas, values, label=name, **plots.line(i, 12))
    ax.axhline(0, color=plots.INK, linewidth=0.8)
    marks = {total / steps: f"{total:g} nats over\n{steps} steps", total: f"{total:g} nats\non one bit"}
    for beta, text in marks.items():
        ax.axvline(beta, color="#555555", linewidth=1.2, linestyle=":")
        ax.text(beta / 1.15, 0.72, text, fontsize=9, ha="right")
    ax.axvline(math.log(2), color="#555555", linewidth=1.2)
    ax.text(math.log(2) * 1.08, 0.3, "log 2: the bit in clear", fontsize=9, rotation=90)
    ax.set(xlabel="β, nats paid for one split vote", ylabel="correlation E[Y ξ] with the true vote",
           ylim=(-0.03, 1.03), xlim=(1e-6, 1.4))
    ax.legend(loc="upper left")
    return figure


def bounds_figure() -> Any:
    """Left: exact MI and its two bounds against sigma. Right: how much the bounds overstate, against MI."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.1))
    sigma = np.geomspace(0.1, 30, 120)
    for i, (name, rule) in enumerate((("exact", channels.gaussian_mi), ("variance bound",
                                      channels.gaussian_variance_bound), ("log-det bound",
                                      channels.gaussian_logdet_bound))):
        for q, _ in SHARES[::2]:
            left.loglog(sigma, rule(q, sigma), label=name if q == 0.5 else None, **plots.line(i, 20))
    for q, label in SHARES[::2]:
        left.text(28, channels.gaussian_mi(q, 28) * 12, f"q = {label}", fontsize=9.5, ha="right")
    left.set(xlabel="noise σ", ylabel="mutual information, nats", ylim=(1e-5, 30))
    left.legend(loc="lower left")
    for i, (q, label) in enumerate(SHARES):
        betas = betas_below(q, 1e-5)
        at = channels.gaussian_sigma(q, betas)
        right.loglog(betas, channels.gaussian_variance_bound(q, at) / betas, label=f"variance, q = {label}",
                     **plots.line(i, 15))
        right.loglog(betas, channels.gaussian_logdet_bound(q, at) / betas, color=plots.PALETTE[i],
                     linestyle=":", label=f"log-det, q = {label}")
    right.set(xlabel="exact mutual information, nats", ylabel="bound / exact", ylim=(0.93, 12))
    right.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    right.legend(loc="upper left", fontsize=8.5)
    return figure


def inverse_table(qs: list[float], betas: list[float]) -> pd.DataFrame:
    """For each share and budget: certified sigma, what it spends, and what the published rule would spend."""
    rows = []
    for q in qs:
        for beta in betas:
            if beta >= channels.entropy(q):
                continue
            sigma, theirs = channels.gaussian_sigma(q, beta), published.gaussian_sigma(q, beta)
            rows.append({"q_plus": q, "beta, nats": beta, "sigma": sigma,
                         "spent / beta": channels.gaussian_mi(q, sigma) / beta, "published sigma": theirs,
                         "published spent / beta": channels.gaussian_mi(q, theirs) / beta})
    return pd.DataFrame(rows)


def overspend(q: float, betas: np.ndarray) -> np.ndarray:
    """True MI of the published calibration divided by its target beta, one value per budget."""
    return np.array([channels.gaussian_mi(q, published.gaussian_sigma(q, b)) / b for b in betas])


def overspend_figure() -> Any:
    """What the published calibration really spends, as a multiple of its target."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    betas = np.geomspace(5e-8, 1e-3, 240)
    for i, (q, label) in enumerate(SHARES):
        ax.loglog(betas, overspend(q, betas), label=f"published, q = {label}", **plots.line(i, 24))
    ax.axhline(1, color=plots.INK, linewidth=2.2)
    ax.text(1e-3, 1.06, "certified inverse: never above 1", fontsize=9, ha="right")
    marks = ((1e-4, 2000, "right"), (1e-4, 1000, "left"), (1e-3, 1000, "left"), (0.33, 1000, "left"))
    for total, steps, side in marks:
        ax.axvline(total / steps, color="#777777", linewidth=1, linestyle=":")
        place = total / steps * (1.07 if side == "left" else 0.94)
        ax.text(place, 13.0, f"{total:g} nats,\nT = {steps}", fontsize=8.5, ha=side)
    ax.set(xlabel="target β of one step, nats", ylabel="nats spent / nats claimed", ylim=(0.3, 22),
           xlim=(1.3e-8, 1.6e-3))
    ax.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    ax.legend(loc="center right", bbox_to_anchor=(1.0, 0.66))
    return figure


def rivals_figure() -> Any:
    """Left: signal of randomized response over Gaussian-then-sign. Right: part of beta in the sign."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0))
    for i, (q, label) in enumerate(SHARES):
        betas = betas_below(q, 1e-6)
        gaussian, rr = correlations(q, betas)
        left.semilogx(betas, rr / gaussian, label=f"q = {label}", **plots.line(i, 15))
        carried = channels.gaussian_sign_mi(q, channels.gaussian_sigma(q, betas)) / betas
        right.semilogx(betas, carried, label=f"q = {label}", **plots.line(i, 15))
    for ax, level, text in ((left, SMALL_GAIN, "√(π/2) = 1.253"), (right, SMALL_SHARE, "2/π = 0.637")):
        ax.axhline(level, color="#555555", linewidth=1, linestyle=":")
        ax.text(1.2e-6, level + 0.012, text, fontsize=9)
        ax.set(xlabel="β, nats for the bit")
    left.set(ylabel="correlation, RR / Gaussian-then-sign", ylim=(0.98, 1.32))
    right.set(ylabel="nats in the sign / nats paid", ylim=(0.55, 1.02))
    left.legend(loc="lower left")
    return figure


def rivals_table(betas: list[float]) -> pd.DataFrame:
    """Both channels at q_plus = 1/2: noise, flip probability, correlation, their ratio, nats in the sign."""
    b = np.asarray(betas)
    sigma, flip = channels.gaussian_sigma(0.5, b), channels.rr_flip(0.5, b)
    gaussian, rr = correlations(0.5, b)
    return pd.DataFrame({"beta, nats": b, "sigma": sigma, "correlation, Gaussian then sign": gaussian,
                         "flip": flip, "correlation, RR": rr, "RR / Gaussian": rr / gaussian,
                         "nats in the sign / beta": channels.gaussian_sign_mi(0.5, sigma) / b})


def to_zero_figure(steps: int) -> Any:
    """Correlation against the total budget spread over `steps` split votes: the road from MI to ZPL."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    totals = np.geomspace(1e-4, 10, 90)
    for i, (q, label) in enumerate(SHARES):
        betas = np.minimum(totals / steps, HEADROOM * channels.entropy(q))
        gaussian, rr = correlations(q, betas)
        ax.fill_between(totals, gaussian, rr, color=plots.PALETTE[i], alpha=0.25, linewidth=0)
        ax.loglog(totals, gaussian, label=f"q = {label}", **plots.line(i, 12))
    for total in (1e-4, 1e-2, 0.33, 0.68):
        ax.axvline(total, color="#777777", linewidth=1, linestyle=":")
        ax.text(total, 1.35, f"{total:g}", fontsize=9, ha="right" if total == 0.33 else "left")
    ax.axhspan(0.02, 0.04, color="#bbbbbb", alpha=0.45, linewidth=0)
    ax.text(1.15e-4, 0.0245, "0.02 to 0.04", fontsize=9)
    ax.set(xlabel=f"total budget over {steps} split votes, nats", ylim=(2e-4, 1.2),
           ylabel="correlation E[Y ξ]; ZPL's coin: 0")
    ax.legend(loc="lower right", title="line: Gaussian; band up to RR", title_fontsize=9)
    return figure


def spreads(d: int, decay: float, membership: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Spread of candidate means of random per-record gradients along their principal axes.

    Coordinate j of a record's gradient has standard deviation j**-decay; membership bool [N, M]. Returns the
    singular standard deviations (population, uniform over candidates), at most min(d, M) of them.
    """
    gradients = rng.standard_normal((len(membership), d)) * np.arange(1.0, d + 1) ** -decay
    means = membership.T.astype(float) @ gradients / membership.sum(axis=0)[:, None]
    sd = np.linalg.svd(means - means.mean(axis=0), compute_uv=False) / math.sqrt(membership.shape[1])
    return sd[sd > 1e-9 * sd[0]]


def covariance_table(dims: list[int], decays: list[float], membership: np.ndarray, beta: float,
                     rng: np.random.Generator) -> pd.DataFrame:
    """Noise that a vector needs at budget beta, per unit of spread, in units of what one number needs."""
    one = channels.vector_noise_power(np.ones(1), beta)
    rows = []
    for decay in decays:
        for d in dims:
            drawn = [spreads(d, decay, membership, rng) for _ in range(DRAWS)]
            power = float(np.mean([channels.vector_noise_power(sd, beta) / np.sum(sd**2) for sd in drawn]))
            rows.append({"decay": decay, "d": d, "rank": len(drawn[0]), "noise / spread": power,
                         "in units of one number": power / one, "isotropic noise": float(d)})
    return pd.DataFrame(rows)


def covariance_figure(table: pd.DataFrame) -> Any:
    """Price of a d-dimensional release over the price of one number, for flat and decaying spectra."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for i, (decay, part) in enumerate(table.groupby("decay")):
        name = "flat spectrum" if decay == 0 else f"spread falls like j^-{decay:g}"
        ax.loglog(part["d"], part["in units of one number"], label=f"best noise, {name}", **plots.line(i + 1))
    dims = np.sort(table["d"].unique())
    ax.loglog(dims, dims, color=plots.INK, linewidth=1.3, label="same noise in every coordinate")
    ax.axhline(1, color=plots.PALETTE[0], linewidth=2.4)
    ax.text(dims[-1], 0.74, "one number: a projection, or its sign", fontsize=9.5, ha="right",
            color=plots.PALETTE[0])
    ax.set(xlabel="coordinates released, d", ylabel="noise power per unit of spread,\nin units of one number",
           ylim=(0.55, None))
    ax.legend(loc="upper left")
    return figure


def explorer_budget(q_plus: float, log10_beta: float) -> float:
    """The slider's budget, cut to what a vote with this share can carry, in nats."""
    return min(10.0**log10_beta, HEADROOM * channels.entropy(q_plus))


def explorer_figure(q_plus: float, log10_beta: float) -> Any:
    """Left: the two noisy values, weighted by their shares. Right: what each channel's bit is worth."""
    import matplotlib.pyplot as plt

    beta = explorer_budget(q_plus, log10_beta)
    sigma = channels.gaussian_sigma(q_plus, beta)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.2), width_ratios=(3, 2))
    y = np.linspace(-1 - 3.5 * sigma, 1 + 3.5 * sigma, 400)
    for i, (centre, share, name) in enumerate(((1, q_plus, "ξ = +1"), (-1, 1 - q_plus, "ξ = -1"))):
        density = share * np.exp(-((y - centre) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
        left.plot(y, density, label=name, color=plots.PALETTE[i], linestyle=plots.LINESTYLES[i])
        wrong = y * centre < 0
        left.fill_between(y, density, where=wrong, color=plots.PALETTE[i], alpha=0.3, linewidth=0)
    left.axvline(0, color=plots.INK, linewidth=0.8)
    left.set(xlabel="ξ + σ noise (shaded: the sign comes out wrong)", ylabel="share × density")
    left.legend(loc="upper right")
    gaussian, rr = (float(v) for v in correlations(q_plus, np.array(beta)))
    for i, value in enumerate((gaussian, rr, 0.0)):
        right.barh(i, value, height=0.6, **plots.bar(i))
        right.text(value + 0.02, i, f"{value:.3g}", va="center", fontsize=10)
    right.set_yticks(range(3), ["Gaussian, sign", "RR", "ZPL coin"])
    right.invert_yaxis()
    right.grid(axis="y", visible=False)
    right.set(xlabel="correlation with the true vote", xlim=(0, 1.15))
    return figure


def explorer_numbers(q_plus: float, log10_beta: float) -> dict:
    """The numbers behind `explorer_figure`, with units."""
    beta = explorer_budget(q_plus, log10_beta)
    sigma, flip = channels.gaussian_sigma(q_plus, beta), channels.rr_flip(q_plus, beta)
    return {"beta": f"{beta:.4g} nats (h(q_plus) = {channels.entropy(q_plus):.4g})",
            "noise": f"sigma = {sigma:.4g}", "randomized response": f"flip = {flip:.4g}",
            "correlation, Gaussian then sign": f"{channels.gaussian_sign_correlation(sigma):.4g}",
            "correlation, randomized response": f"{channels.rr_correlation(flip):.4g}",
            "nats in the Gaussian's sign": f"{channels.gaussian_sign_mi(q_plus, sigma):.4g}",
            "membership guess after this bit": f"at most {risk.success_from_mi(beta):.4%}"}
