"""Update rules by name: the plain step, a fixed factor, SAGE [our reading], and its oracle twin.

    plain         theta <- theta - (lr / K) sum_k Y_k z_k
    fixed         the same with lr times `factor`: the control with the same mean shrinkage as a SAGE run
    sage          lr times alpha_t, recomputed from the transcript alone (paclab.zo.sage)
    sage-oracle   alpha_t from the true signal: it looks left of the door, so the *release* is replaced (and is not
                  private) and the rule itself is plain
"""

from paclab.errors import InputError, nearest
from paclab.releases.base import Release
from paclab.releases.oracle import oracle
from paclab.zo import sage
from paclab.zo.update import PLAIN, Rule

RULES = ("plain", "fixed", "sage", "sage-oracle")


def fixed(factor: float) -> Rule:
    """The same factor at every step."""
    return Rule("fixed", lambda: None, lambda state, t, values: (state, factor))


def check(config) -> None:
    """Refuse rule settings that cannot work; `config` carries the fields of `paclab.finetune.Config`."""
    if config.rule not in RULES:
        raise InputError("rule", f"{config.rule!r} is unknown", nearest(config.rule, RULES))
    if (config.rule == "fixed") != (config.factor is not None):
        lacks = "needs a factor" if config.factor is None else "has no constant factor"
        raise InputError("factor", f"rule={config.rule} {lacks}", "give rule=fixed with factor=0.5, say, or neither")
    if config.factor is not None and not 0 < config.factor < float("inf"):
        raise InputError("factor", f"{config.factor} is not a positive number", "give a finite value above 0")
    if config.rule.startswith("sage") and (config.epsilon is None or config.noise != "gaussian"):
        raise InputError("rule", f"{config.method} adds no Gaussian noise of public size",
                         "give a method among dpzero, dp-aggzo, dp-zo and geodpzo, with noise=gaussian")
    sage.check(config)


def open_rule(config, public: dict) -> Rule:
    """The rule of a run from its settings and the release's public constants (run.json)."""
    if config.rule == "fixed":
        return fixed(config.factor)
    return sage.sage(sage.settings(config, public["noise_std"])) if config.rule == "sage" else PLAIN


def attach(config, release: Release) -> tuple[Release, Rule]:
    """The release and the rule of a run; `sage-oracle` turns the release into a non-private one."""
    if config.rule != "sage-oracle":
        return release, open_rule(config, release.public or {})
    noise_std = release.public["noise_std"]
    return oracle(release, sage.sage(sage.settings(config, noise_std)).step, sage.init, noise_std), PLAIN
