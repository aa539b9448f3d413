"""What every release is: the only door through which private data may leave a computation.

    probe -> release -> update        statistic [K, N]: one number per direction and record

A release is a few pure functions. Left of the door all is private; what `step` returns as `Released` is public.
Public, private and secret state never share an object:
    public   the step number t and the released values
    private  `PrivateState` (posterior, ledger) and `Info` (diagnostics of one step)
    secret   `paclab.releases.secret.Secret` (secret index, noise, coins)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from paclab.errors import InputError


class Released(NamedTuple):
    """Values that left the private side, one per direction: float64 [K]. Zero means `no update`."""

    values: tuple[float, ...]


class Release(NamedTuple):
    """One method. `init() -> private state`; `step(private, t, statistic) -> (private, Released, info)`.

    `select(t) -> indices or None`: which records are probed at step t (None: all; secret, drawn before the probe).
    info is a JSON-ready dictionary of private diagnostics; `replay(private, t, info) -> private` advances the
    private state past a step that was already released, without drawing anything again. `public` holds the constants
    an update rule may read beside the released values (noise, normaliser, promise); run.json records them.
    """

    name: str
    guarantee: str  # protected unit and threat model, in one sentence
    private: bool
    init: Callable[[], Any]
    step: Callable[[Any, int, np.ndarray], tuple[Any, Released, dict]]
    replay: Callable[[Any, int, dict], Any]
    select: Callable[[int], np.ndarray | None] = lambda t: None
    public: dict | None = None


def clip_records(statistic: np.ndarray, clip: float | None) -> np.ndarray:
    """Bound every record's value to [-clip, clip]: a stabiliser, not part of any PAC guarantee."""
    return statistic if clip is None else np.clip(statistic, -clip, clip)


def checked(statistic: np.ndarray, t: int) -> np.ndarray:
    """The statistic as float64 [K, N]; a value that is not finite stops the run instead of becoming a vote."""
    statistic = np.atleast_2d(np.asarray(statistic, dtype=np.float64))
    bad = np.flatnonzero(~np.isfinite(statistic).all(axis=0))
    if bad.size:
        raise InputError("loss", f"{bad.size} record(s) have a loss that is not finite at step {t}",
                         "lower `lr` or `mu`, or remove these records: nothing of this step was released")
    return statistic


def stateless() -> None:
    """The private state of a release that keeps none."""
    return None
