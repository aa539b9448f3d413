"""Rows of the masked track, where DPZero, DP-AggZO and SAGE use RoBERTa-large: settings only, trains nothing."""

from collections.abc import Sequence

from paclab import models
from paclab.chapters import rows
from paclab.finetune import Config
from paclab.releases.dp import EXPECTED_BATCH

EPSILONS = (0.5, 1.0, 2.0, 6.0)  # those of DP-AggZO's tables
MEZO_LR = 5e-4  # on the masked model: 1e-3 jitters (one seed, 40 steps, 500 records)


def masked_configs(epsilons: Sequence[float] = EPSILONS, *, directions: int = 16, probes: int = 640, seed: int = 0,
                   pool: int = 1000, **settings) -> dict[str, Config]:
    """Study-mode settings by row name: MeZO on the pool, and DPZero and DP-AggZO at every epsilon.

    Every row costs `probes` probes of the expected batch (MeZO's are of the whole pool, `pool` / 64 of them each).
    The zero-shot row is `rows.zero_shot` of any of them.
    """
    shared = {"model": models.MASKED, "seed": seed, "pool": pool} | settings
    steps = max(1, round(probes * EXPECTED_BATCH / pool))
    found = {"MeZO": Config(**{"method": "mezo", "steps": steps, "lr": MEZO_LR, "study": True} | shared)}
    for epsilon in epsilons:
        for name, method, k in (("DPZero", "dpzero", 1), (f"DP-AggZO, K = {directions}", "dp-aggzo", directions)):
            lr, clip = rows.recipe(method, "masked", k)
            config = {"method": method, "epsilon": epsilon, "k": k, "lr": lr, "clip": clip, "study": True,
                      "steps": rows.equal_steps(probes, k)}
            found[f"{name}, ε = {epsilon:g}"] = Config(**config | shared)
    return found
