"""Toys and drawings of chapter 10: the two-point estimator, its variance, its rounding errors, its drift.

Knows small made-up losses and floating-point formats. Trains no language model; that part of the chapter is in
`paclab.chapters.zeroth_order_model`.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from paclab.notebook import plots

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


# ---------------------------------------------------------------- the estimator


def bowl(theta: np.ndarray) -> float:
    """The chapter's toy loss (a^2 + 4 b^2) / 2 of theta = (a, b); its gradient is (a, 4 b)."""
    return float((theta[0] ** 2 + 4 * theta[1] ** 2) / 2)


def two_point(loss, theta: np.ndarray, z: np.ndarray, mu: float) -> float:
    """The projected gradient g = (L(theta + mu z) - L(theta - mu z)) / (2 mu) (SPSA; MeZO, equation 1)."""
    return (loss(theta + mu * z) - loss(theta - mu * z)) / (2 * mu)


def descent_paths(steps: int, lr: float, seed: int, start=(2.0, 1.0)) -> dict[str, np.ndarray]:
    """Paths [steps + 1, 2] over the bowl of gradient descent, two-point descent and sign descent."""
    rng = np.random.Generator(np.random.Philox(seed))
    directions = rng.standard_normal((steps, 2))
    paths = {"gradient": [np.array(start)], "two-point": [np.array(start)], "sign only": [np.array(start)]}
    for t, z in enumerate(directions):
        a, b = paths["gradient"][-1]
        paths["gradient"].append(np.array([a - lr * a, b - lr * 4 * b]))
        for name, path in paths.items():
            if name == "gradient":
                continue
            g = two_point(bowl, path[-1], z, 1e-3)
            path.append(path[-1] - (lr * g if name == "two-point" else lr * 2 * (1 - t / steps) * np.sign(g)) * z)
    return {name: np.stack(path) for name, path in paths.items()}


def paths_figure(paths: dict[str, np.ndarray]) -> Any:
    """The three descents over the bowl's contours, and their losses step by step."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9))
    a, b = np.meshgrid(np.linspace(-1.2, 2.4, 120), np.linspace(-0.9, 1.4, 100))
    left.contour(a, b, (a**2 + 4 * b**2) / 2, levels=[0.05, 0.2, 0.6, 1.4, 2.6, 4.2], colors=plots.GRID)
    for i, (name, path) in enumerate(paths.items()):
        left.plot(path[:, 0], path[:, 1], label=name, **plots.line(i))
        right.semilogy([max(bowl(p), 1e-6) for p in path], label=name, **plots.line(i, 5))
    left.plot(0, 0, marker="*", color=plots.INK, markersize=13)
    left.set(xlabel="a", ylabel="b")
    right.set(xlabel="step", ylabel="loss")
    right.legend()
    return figure


def cosine_law(d: int, k: int) -> float:
    """Root mean square cosine of the K-direction estimate with the gradient, sqrt(K / (d + K - 1)).

    Exact for normal directions and a linear loss: the squared cosine is Beta(K/2, (d - 1)/2) distributed.
    """
    return math.sqrt(k / (d + k - 1))


def variance_table(dims: list[int], directions: list[int], repeats: int, seed: int) -> pd.DataFrame:
    """Relative squared error E|ghat - grad|^2 / |grad|^2 of the K-direction estimate, measured, beside (d + 1)/K.

    The loss is linear, so mu plays no part: ghat = (1/K) sum_k (grad . z_k) z_k with standard normal z_k, and
    only the component along the gradient and the length across it matter.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    rows = []
    for d in dims:
        for k in directions:
            errors, squares = np.empty(repeats), np.empty(repeats)
            for r in range(repeats):
                along = rng.standard_normal(k)
                kept, across = np.mean(along**2), rng.standard_normal((k, d - 1)).T @ along / k
                errors[r] = (kept - 1) ** 2 + across @ across
                squares[r] = kept**2 / (kept**2 + across @ across)
            rows.append({"d": d, "K": k, "error, measured": errors.mean(), "error, (d + 1)/K": (d + 1) / k,
                         "standard error": errors.std(ddof=1) / math.sqrt(repeats),
                         "cosine (rms), measured": math.sqrt(squares.mean()), "cosine, law": cosine_law(d, k)})
    return pd.DataFrame(rows)


def variance_figure(table: pd.DataFrame) -> Any:
    """Relative squared error against K for each dimension: points measured, lines (d + 1)/K."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0))
    for i, (d, part) in enumerate(table.groupby("d")):
        look = {"color": plots.PALETTE[i], "marker": plots.MARKERS[i], "linestyle": "none"}
        left.loglog(part["K"], part["error, measured"], label=f"d = {d}", **look)
        left.loglog(part["K"], part["error, (d + 1)/K"], color=plots.PALETTE[i], linestyle=plots.LINESTYLES[i])
        right.semilogx(part["K"], part["cosine (rms), measured"], **look)
        right.semilogx(part["K"], part["cosine, law"], color=plots.PALETTE[i], linestyle=plots.LINESTYLES[i])
    left.axhline(1, color=plots.INK, linewidth=0.8)
    left.set(xlabel="directions per step, K", ylabel="squared error / squared gradient")
    left.legend(title="points measured, lines law", title_fontsize=9)
    right.set(xlabel="directions per step, K", ylabel="cosine with the gradient", ylim=(0, 1.02))
    return figure


# ---------------------------------------------------------------- truncation against rounding


class Curve(NamedTuple):
    """Relative error of one projected gradient against mu, for one number format."""

    mu: np.ndarray
    error: np.ndarray


@functools.cache
def error_curves(width: int = 64, probes: int = 24, seed: int = 0) -> dict[str, Curve]:
    """Median |g - exact| / typical |g| over random directions, against mu, for a curved loss in each format.

    The loss is a mean of softplus(x . theta) over 64 rows; weights, sums and losses live in the named format.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(64, width, generator=generator, dtype=torch.float64)
    theta = torch.randn(width, generator=generator, dtype=torch.float64) * 0.2
    z = torch.randn(probes, width, generator=generator, dtype=torch.float64)
    exact = z @ (torch.sigmoid(rows @ theta) @ rows) / len(rows)
    scale = exact.square().mean().sqrt()
    mus = np.geomspace(1e-6, 1, 49)

    def loss(points: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        low = points.to(dtype)
        return torch.nn.functional.softplus(low @ rows.to(dtype).T).mean(1).double()

    curves = {}
    for name, dtype in {"fp64": torch.float64, **DTYPES}.items():
        errors = []
        for mu in mus:
            g = (loss(theta + mu * z, dtype) - loss(theta - mu * z, dtype)) / (2 * mu)
            errors.append(float(((g - exact).abs() / scale).median()))
        curves[name] = Curve(mus, np.array(errors))
    return curves


def curve_error(name: str, mu: float) -> float:
    """The relative error of one projected gradient at mu, read off `error_curves`."""
    curve = error_curves()[name]
    return float(np.exp(np.interp(math.log(mu), np.log(curve.mu), np.log(np.maximum(curve.error, 1e-16)))))


def explorer_figure(log10_mu: float, k: int, log10_d: float) -> Any:
    """Left: error of one two-point difference against mu. Right: what it adds to the error of an estimate."""
    import matplotlib.pyplot as plt

    mu, d = 10.0**log10_mu, 10.0**log10_d
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.8, 3.8))
    for i, (name, curve) in enumerate(error_curves().items()):
        left.loglog(curve.mu, np.maximum(curve.error, 1e-13), label=name, **plots.line(i, 8))
    left.axvline(mu, color=plots.INK, linewidth=1.2)
    left.axvline(1e-3, color="#777777", linewidth=1, linestyle=":")
    left.set(xlabel="μ (dotted: the papers' 0.001)", ylabel="relative error of g", ylim=(1e-11, 1e3))
    left.legend(fontsize=9)
    ks = np.geomspace(1, 4096, 40)
    right.loglog(ks, np.sqrt((d + 1) / ks), label="random directions", **plots.line(6, 8))
    for i, name in ((1, "fp32"), (2, "fp16"), (3, "bf16")):
        # independent errors of the K differences also average, and are spread over all d coordinates
        right.loglog(ks, curve_error(name, mu) * np.sqrt(d / ks), label=f"arithmetic, {name}", **plots.line(i, 8))
    right.axvline(k, color=plots.INK, linewidth=1.2)
    right.set(xlabel="directions per step, K", ylabel="error of the estimate / |gradient|", ylim=(1e-6, 1e6))
    right.legend(fontsize=9)
    return figure


def explorer_numbers(log10_mu: float, k: int, log10_d: float) -> dict:
    """The numbers behind `explorer_figure`."""
    mu, d = 10.0**log10_mu, 10.0**log10_d
    return {"mu": f"{mu:.3g}", "error of one difference, fp32": f"{curve_error('fp32', mu):.2g}",
            "error of one difference, fp16": f"{curve_error('fp16', mu):.2g}",
            "error of one difference, bf16": f"{curve_error('bf16', mu):.2g}",
            "error of the estimate from random directions": f"{math.sqrt((d + 1) / k):.3g} times the gradient",
            "cosine with the gradient": f"{cosine_law(int(d), k):.3g}"}


# ---------------------------------------------------------------- drift


def drift(dtype: torch.dtype, probes: int, *, size: int = 1 << 16, sd: float = 0.02, mu: float = 1e-3,
          seed: int = 0, every: int = 10) -> pd.DataFrame:
    """Walk of weights under +mu z, -2 mu z, +mu z in place with no update: relative RMS and largest change.

    As in MeZO, z is drawn in the parameters' own format and the products are rounded to it.
    """
    generator = torch.Generator().manual_seed(seed)
    base = (torch.randn(size, generator=generator) * sd).to(dtype)
    live, scale = base.clone(), float(base.double().square().mean().sqrt())
    rows = []
    for probe in range(1, probes + 1):
        z = torch.randn(size, generator=generator).to(dtype)
        for factor in (1.0, -2.0, 1.0):
            live = live + (factor * mu) * z
        if probe % every == 0 or probe == 1:
            gap = (live.double() - base.double()).abs()
            rows.append({"probes": probe, "drift": float(gap.square().mean().sqrt()) / scale,
                         "largest": float(gap.max())})
    return pd.DataFrame(rows)


def lost_updates(dtype: torch.dtype, sd: float, lr: float, *, size: int = 1 << 16, seed: int = 0) -> float:
    """Share of sign updates lr z that change nothing, for weights N(0, sd) (sd = 0: weights equal to one)."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(size, generator=generator) * sd if sd else torch.ones(size)
    weights = base.to(dtype)
    return float((weights - lr * torch.randn(size, generator=generator).to(dtype) == weights).float().mean())


def drift_figure(curves: dict[str, pd.DataFrame]) -> Any:
    """Relative drift against probes for each number format, restored in place; exact restore is zero."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for i, (name, curve) in enumerate(curves.items()):
        ax.loglog(curve["probes"], curve["drift"], label=f"{name}, +μ -2μ +μ in place", **plots.line(i, 3))
    ax.axhline(1e-8, color=plots.INK, linewidth=2.2)
    ax.text(1.1, 1.25e-8, "write back a kept copy: exactly zero, in every format", fontsize=9)
    ax.set(xlabel="probes, no update in between", ylabel="change of the weights / their size", ylim=(5e-9, 1))
    ax.legend(loc="center left", bbox_to_anchor=(0.0, 0.42))
    return figure
