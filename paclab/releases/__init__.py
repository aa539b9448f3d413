"""The door: every way in which private data may leave a computation. To audit privacy, read this folder.

`METHODS` names them all; `open_release` builds one from a run's settings.
"""

import math
from typing import NamedTuple

from paclab.errors import InputError, nearest
from paclab.releases import batch, dp, half, pool
from paclab.releases.base import Release as Release
from paclab.releases.base import Released as Released
from paclab.releases.paczero import Settings, paczero
from paclab.releases.recipes import MEZO_LR, SIGN_LR, recipe_of
from paclab.releases.secret import Secret as Secret
from paclab.releases.summary import free_steps as free_steps
from paclab.releases.summary import summarise as summarise


class Method(NamedTuple):
    """A method's name for the command line, what it needs, and its learning rates on the embedded model (those of the
    differentially private methods come with their clips, from `recipes`)."""

    summary: str
    candidates: bool  # votes of candidate halves
    spends: bool  # needs a budget in nats
    lr: dict[str, float]  # track -> tuned default, embedded model
    modules: tuple[str, ...]  # files that define it
    real: bool = False  # releases real numbers, not signs
    differential: bool = False  # promises epsilon at delta


DP = ("releases/dp", "privacy/dp")
PACZERO = ("releases/paczero", "releases/published")
HALF = (*PACZERO, "releases/half")
METHODS = {
    "mezo": Method("pool mean, not private", False, False, MEZO_LR, ("releases/pool",), True),
    "sign": Method("sign of the pool mean, not private", False, False, SIGN_LR, ("releases/pool",)),
    "aggzo": Method("clipped mean of a random batch over K directions, not private", False, False, MEZO_LR,
                    ("releases/batch", "releases/dp"), True),
    "raw-half": Method("mean over the secret half, not private", True, False, MEZO_LR, HALF, True),
    "quant-half": Method("sign of the secret half's mean, not private", True, False, SIGN_LR, HALF),
    "random-sign": Method("a coin that looks at no record: I = 0 trivially", False, False, SIGN_LR, HALF),
    "paczero-mi": Method("Gaussian channel on disagreement (as published)", True, True, SIGN_LR, PACZERO),
    "paczero-rr": Method("randomized response on disagreement", True, True, SIGN_LR, PACZERO),
    "paczero-zpl": Method("coin, skip or majority on disagreement: I = 0", True, False, SIGN_LR, PACZERO),
    "dpzero": Method("one clipped number plus noise", False, False, MEZO_LR, DP, True, True),
    "dp-aggzo": Method("K clipped numbers a record plus noise", False, False, MEZO_LR, DP, True, True),
    "dp-zo": Method("clipped loss difference plus Gaussian or Laplace noise", False, False, MEZO_LR, DP, True, True),
    "geodpzo-sc": Method("dp-aggzo, mirrored before the clip", False, False, MEZO_LR, DP, True, True),
    "geodpzo-lc": Method("dp-aggzo, outermost pairs centred before the clip", False, False, MEZO_LR, DP, True, True),
}
LARGEST_EPSILON = 100.0
DP_ONLY = {"epsilon": None, "delta": 1e-5, "sampling": None, "accountant": "pld", "adjacency": "add-remove",
           "noise": "gaussian", "normaliser": "expected"}  # settings that only DP methods read, and their defaults
SAMPLED = ("aggzo",)  # not private, but their batches are drawn as those of DP methods
ON_DISAGREEMENT = ("coin", "skip", "majority")


def needs_candidates(method: str) -> bool:
    """Whether a method counts votes of candidate halves."""
    return METHODS[method].candidates


def default_lr(method: str, track: str) -> float:
    """The learning rate that was tuned on the embedded model, of a method without a clip."""
    return METHODS[method].lr[track]


def learning_rate(config) -> float:
    """The given learning rate, or the tuned default: with a promise of epsilon that of method, model, track and K."""
    if config.lr is not None:
        return config.lr
    differential = METHODS[config.method].differential
    return recipe_of(config).lr if differential else default_lr(config.method, config.track)


def check(config) -> None:
    """Refuse settings a release cannot honour; `config` carries the fields of `paclab.finetune.Config`."""
    method = METHODS[config.method]
    if config.on_disagreement not in ON_DISAGREEMENT:
        raise InputError("on_disagreement", f"{config.on_disagreement!r} is unknown",
                         nearest(config.on_disagreement, ON_DISAGREEMENT))
    if config.on_disagreement != "coin" and config.method != "paczero-zpl":
        raise InputError("on_disagreement", f"{config.method} answers a split vote with its own channel",
                         "give method=paczero-zpl, or leave on_disagreement=coin")
    if method.spends and config.mi is None:
        raise InputError("mi", f"{config.method} needs a total budget in nats",
                         "give mi=0.33, say, or method=paczero-zpl for I = 0")
    if method.spends and not (math.isfinite(config.mi) and config.mi > 0):
        raise InputError("mi", f"{config.mi} is no budget in nats",
                         "give a finite number above 0, or method=paczero-zpl for I = 0")
    if not method.spends and config.mi is not None:
        raise InputError("mi", f"{config.method} spends no budget in nats",
                         "leave `mi` out, or give method=paczero-mi or method=paczero-rr")
    if config.budget not in ("adaptive", "uniform"):
        raise InputError("budget", f"{config.budget!r} is unknown", nearest(config.budget, ("adaptive", "uniform")))
    if config.compat not in (None, "paczero"):
        raise InputError("compat", f"{config.compat!r} is unknown", "leave it out, or give compat=paczero")
    if method.candidates and (config.candidates < 2 or config.candidates % 2):
        raise InputError("candidates", f"{config.candidates} is not an even number of halves", "use an even M >= 2")
    if method.differential:
        dp.check(config)
        if config.epsilon > LARGEST_EPSILON:
            raise InputError("epsilon", f"{config.epsilon:g} is no privacy",
                             f"give epsilon={LARGEST_EPSILON:g} at most, or method=mezo")
        return
    if config.method in SAMPLED:
        dp.check_rate(config)
    for name in DP_ONLY:
        if getattr(config, name) != DP_ONLY[name] and not (name == "sampling" and config.method in SAMPLED):
            raise InputError(name, f"{config.method} promises no epsilon and ignores it",
                             "leave it out, or give method=dpzero or method=dp-aggzo")


def open_release(config, membership, secret: Secret, directions) -> Release:
    """The release of one run. membership: bool [N, M] or None; `directions.coin` breaks ties in public."""
    if config.method == "mezo":
        return pool.mezo(config.clip)
    if config.method == "sign":
        return pool.sign(config.clip)
    if config.method == "aggzo":
        return batch.aggzo(config, secret)
    if METHODS[config.method].differential:
        return dp.differential(config, secret)
    if config.method == "raw-half":
        return half.raw_half(membership, secret, config.clip)
    if config.method == "random-sign":
        return half.random_sign(config.k, secret)
    settings = Settings(
        variant=config.method.removeprefix("paczero-"), membership=membership, secret=secret,
        public_coin=directions.coin, steps=config.steps, k=config.k, total=config.mi or 0.0, clip=config.clip,
        schedule=config.budget, on_disagreement=config.on_disagreement, compat=config.compat is not None)
    return half.quant_half(settings) if config.method == "quant-half" else paczero(settings)
