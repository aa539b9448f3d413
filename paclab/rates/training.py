"""What one zeroth-order step is expected to do to the loss: descent, curvature and noise, method by method.

Setting: loss with Hessian below H, trace(H) = l r (smoothness l, effective rank r), gradient g, z ~ N(0, I):

    E f(theta') <= f(theta) - descent + curvature + noise         (an equality when f is quadratic with Hessian H)

Knows norms, traces, clips and noise. Does not know models, records or accountants. Ours unless marked: Lemma 4 of
DP-AggZO (Bao et al., USENIX Security 2025) is reconstructed from a summary and says so.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import integrate, special

from paclab.errors import InputError


class Step(NamedTuple):
    """Expected change of the loss in one step, in loss units: three parts, all >= 0."""

    descent: float  # linear in the learning rate
    curvature: float  # quadratic in it: the signal's own overshoot
    noise: float  # quadratic in it: privacy noise and coins

    @property
    def change(self) -> float:
        """E f(theta') - f(theta), or its upper bound."""
        return self.curvature + self.noise - self.descent


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(name, f"{value} is not a positive number", "give a finite value above 0")


def zeroth_order_step(lr: float, gradient: float, smoothness: float, effective_rank: float, k: int = 1,
                      noise_std: float = 0.0) -> Step:
    """theta - (lr/K) sum_k (z_k . g + noise) z_k, no clipping: MeZO, DPZero, DP-AggZO and DP-ZO below their clip.

    gradient: norm |g|. noise_std: of one released value (`noise_std` of run.json). From E (z.g)^2 z'Hz =
    |g|^2 tr H + 2 g'Hg and g'Hg <= l |g|^2; exact for isotropic H.
    """
    _positive(lr=lr, gradient=gradient, smoothness=smoothness, effective_rank=effective_rank, k=k)
    trace, square = smoothness * effective_rank, gradient**2
    curvature = lr**2 / 2 * (square * trace / k + smoothness * square * (k + 1) / k)
    return Step(lr * square, curvature, lr**2 / 2 * trace * noise_std**2 / k)


def clipped_share(mean_norm: float, beta_clip: float) -> float:
    """Markov's bound E[sigma_x] / beta_clip, at most 1, on the share of records whose vector is clipped.

    sigma_x: norm of a record's gradient; beta_clip = sqrt(K) c. [our reading of Lemma 4's bias term]
    """
    _positive(beta_clip=beta_clip)
    return min(1.0, mean_norm / beta_clip)


def lemma_4(lr: float, gradient: float, smoothness: float, effective_rank: float, *, k: int, beta_clip: float,
            noise_multiplier: float, batch: float, mean_norm: float) -> Step:
    """DP-AggZO's bound, Lemma 4 [our reading: the constants of its 1/sqrt K term were not available].

    descent     lr |g|^2 (1 - E[sigma_x] / beta_clip), less lr |g| E[sigma_x] / sqrt(2 K): how far a chi of K
                degrees of freedom strays from its mean, the part of the bias that more directions remove
    curvature   (lr^2 l r / 2) beta_clip^2 / K, plus (lr^2 l / 2) |g|^2 (K + 1) / K [ours]: the summary's formula
                leaves this out, and without it the bound fails for large K
    noise       (lr^2 l r / 2) (sigma_m beta_clip / batch)^2; the paper writes sigma_m for noise over the sum
    """
    _positive(lr=lr, gradient=gradient, smoothness=smoothness, effective_rank=effective_rank, k=k,
              beta_clip=beta_clip, batch=batch, mean_norm=mean_norm)
    trace = smoothness * effective_rank
    kept = 1 - clipped_share(mean_norm, beta_clip)
    descent = lr * max(0.0, gradient**2 * kept - gradient * mean_norm / math.sqrt(2 * k))
    curvature = lr**2 / 2 * (trace * beta_clip**2 / k + smoothness * gradient**2 * (k + 1) / k)
    return Step(descent, curvature, lr**2 / 2 * trace * (noise_multiplier * beta_clip / batch) ** 2)


def free_share(tau: float, candidates: int, weight: Callable[[float], float] = lambda x: 1.0) -> float:
    """E[weight(x) Phi(tau x)^M] for x = |N(0, 1)|: the free-step share, or what free steps carry.

    tau = |g| sqrt(N) / s, s the per-record spread of projected gradients; Phi(|t|)^M is dossier A10's law [ours].
    """
    def density(x: float) -> float:
        return 2 * weight(x) * math.exp(candidates * special.log_ndtr(tau * x) - x * x / 2) / math.sqrt(2 * math.pi)

    return float(integrate.quad(density, 0, 12, limit=200, points=[min(11.0, 3 / max(tau, 0.3))])[0])


def paczero_step(lr: float, gradient: float, smoothness: float, effective_rank: float, *, tau: float,
                 candidates: int, on_disagreement: str = "coin", correlation: float = 0.0) -> Step:
    """theta - lr Y z with Y = sign(z.g) on free steps and, else, right with probability (1 + correlation) / 2.

    A coin (correlation 0, PACZero-ZPL) has no descent but the full curvature, which is booked as noise; `skip`
    moves nothing there. correlation is E[Y sign(z.g)] on split votes: 2/pi-type numbers of paczero-mi and -rr.
    Exact for isotropic H and the law Phi(|t|)^M.
    """
    _positive(lr=lr, gradient=gradient, smoothness=smoothness, effective_rank=effective_rank)
    if on_disagreement not in ("coin", "skip"):
        raise InputError("on_disagreement", f"{on_disagreement!r} is not modelled", "use coin or skip")
    if not -1 <= correlation <= 1 or (on_disagreement == "skip" and correlation):
        raise InputError("correlation", f"{correlation} with {on_disagreement}", "use coin and a value in [-1, 1]")
    free, carried = free_share(tau, candidates), free_share(tau, candidates, lambda x: x)
    missed = math.sqrt(2 / math.pi) - carried
    share = free_share(tau, candidates, lambda x: x * x)
    on_free = smoothness * effective_rank * free + smoothness * max(share - free, 0.0)
    rest = 0.0 if on_disagreement == "skip" else max(smoothness * effective_rank - on_free, 0.0)
    return Step(lr * gradient * max(carried + correlation * missed, 0.0), lr**2 / 2 * on_free, lr**2 / 2 * rest)


def shrunk(step: Step, alpha: float) -> Step:
    """The same step with lr alpha: descent scales with alpha, both risks with alpha^2 (SAGE, our reading)."""
    return Step(alpha * step.descent, alpha**2 * step.curvature, alpha**2 * step.noise)


def best_alpha(step: Step) -> float:
    """The alpha that minimises the expected change, descent / (2 (curvature + noise)); above 1: lr was too small.

    With the constant absorbed in lr it is proportional to signal / (signal + noise), the Wiener gain. [our reading]
    """
    return step.descent / (2 * (step.curvature + step.noise))


def best_lr(unit: Step) -> float:
    """The learning rate that minimises the change, from a step at lr = 1."""
    return best_alpha(unit)


def quadratic_path(step_at: Callable[[int, float], Step], loss: float, smoothness: float, steps: int) -> np.ndarray:
    """Expected loss over steps on an isotropic quadratic, where |g|^2 = 2 l f: float64 [steps + 1].

    step_at(t, |g|) -> Step. Exact in expectation where the step is linear in |g|^2 (zeroth_order_step); elsewhere
    the gradient norm is taken at the mean loss. Stops falling at 1e-300.
    """
    out = [loss]
    for t in range(steps):
        out.append(max(out[-1] + step_at(t, math.sqrt(2 * smoothness * out[-1])).change, 1e-300))
    return np.array(out)
