"""The curator's ledger of queries: how often a universe of records was asked, by what, and what that adds up to.

It is private (file mode 0600). A universe is named by a keyed hash of its records, in any order; the key stands in the
ledger's first line, so a name found elsewhere cannot be checked against a guessed pool. Pools that share only some
records have different names: their common records are exposed to all of them, which no total here shows.

What composes:
    nats      every run draws its own secret half. About any one of them nothing beyond its own run's budget is told;
              about all halves together at most the sum. Budgets of different runs never add up on one secret half.
    epsilon   all runs look at the same records, so they compose: the sums of epsilons and of deltas always hold; the
              composed privacy losses are smaller, and hold when no run's settings depended on an earlier result.
    neither   a run without a promise has no price: after one no total says anything.
A run is charged whole when it starts, since a run that was killed may have released. Study-mode runs are not recorded.
"""

import fcntl
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from paclab.errors import InputError
from paclab.privacy import dp

VARIABLE = "PACLAB_LEDGER"
OFF = ("off", "0", "no")


class Total(NamedTuple):
    """What the runs of one universe add up to; epsilons are None where no run of that kind was made."""

    queries: int
    without_promise: int
    largest_nats: float  # about any one secret half
    sum_nats: float  # about all of them together
    epsilons: dict[str, dict[str, float]]  # adjacency -> basic, delta, composed


def place() -> Path | None:
    """The ledger's file: PACLAB_LEDGER (a path; `off`: None), else paclab/queries.jsonl in the state folder."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return None if given.strip().lower() in ("", *OFF) else Path(given).expanduser()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "paclab" / "queries.jsonl"


def universe(records: Iterable[dict], key: str) -> str:
    """A keyed name of a set of records, whatever their order: 32 hexadecimal digits."""
    each = sorted(hashlib.sha256(json.dumps(record, sort_keys=True).encode()).digest() for record in records)
    return hashlib.blake2b(b"".join(each), key=bytes.fromhex(key), digest_size=16).hexdigest()


def query(config, release, folder: Path) -> dict:
    """What one run asks: its method and its whole promise, from its settings and the release's public constants."""
    entry = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "method": config.method,
             "steps": config.steps, "k": config.k, "records": config.pool, "private": release.private,
             "run": str(Path(folder).resolve())}
    if release.private and config.epsilon is not None:
        pure = config.noise == "laplace"
        extra = dp.NORMALISER_SHARE * config.epsilon if config.normaliser == "private" else 0.0
        return entry | {"epsilon": config.epsilon, "delta": 0.0 if pure else config.delta, "noise": config.noise,
                        "adjacency": config.adjacency, "extra": extra, "sampling": release.public["sampling"],
                        "multiplier": release.public["noise_multiplier"]}
    return entry | ({"nats": config.mi or 0.0, "nominal": bool(config.compat)} if release.private else {})


def charge(config, release, records: list[dict], folder: Path) -> bool:
    """Write a run's whole charge, durably, before it releases anything; False, and one line, if that failed."""
    path = place()
    if path is None or config.study:
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(fd, "r+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            data = handle.read()
            whole = data.rfind(b"\n") + 1  # a line that a crash left torn is cut
            handle.truncate(whole)
            key = json.loads(data.split(b"\n")[0])["key"] if whole else secrets.token_hex(32)
            lines = [] if whole else [{"format": 1, "key": key}]
            lines.append({"universe": universe(records, key)} | query(config, release, folder))
            handle.write("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode())
            handle.flush()
            os.fsync(handle.fileno())
        return True
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"paclab: this run is not in the ledger {path} ({error}); {VARIABLE} moves it, or switches it off",
              file=sys.stderr)
        return False


def read(path: Path) -> tuple[str, list[dict]]:
    """The key and the queries, oldest first; a torn last line is left out."""
    try:
        data = path.read_bytes()
        first, *rest = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].decode().splitlines()] or [{}]
        if first and not all({"universe", "method"} <= set(entry) for entry in rest):
            raise ValueError
        return (first["key"], rest) if first else ("", [])
    except FileNotFoundError:
        return "", []
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError("file", f"{path} is no ledger", "give the file that paclab wrote, or restore it") from None


def total(queries: list[dict]) -> Total:
    """What these queries of one universe add up to; seconds where epsilons are composed."""
    nats = [q["nats"] for q in queries if "nats" in q]
    by = {name: [q for q in queries if q.get("adjacency") == name] for name in dp.ADJACENCIES}
    return Total(len(queries), sum(not q["private"] for q in queries), max(nats, default=0.0), sum(nats),
                 {name: _composed(runs, name) for name, runs in by.items() if runs})


def _composed(runs: list[dict], adjacency: str) -> dict[str, float]:
    """Basic sums, and epsilon at the summed delta by composed privacy losses (pessimistic; never above the sum)."""
    basic, delta = sum(q["epsilon"] for q in runs), sum(q["delta"] for q in runs)
    if delta == 0 or delta >= 1:
        return {"basic": basic, "delta": delta, "composed": basic}
    steps = [dp.Run(q["multiplier"], q["sampling"], q["steps"], q["noise"]) for q in runs]
    composed = dp.composed_epsilon(steps, delta, adjacency) + sum(q["extra"] for q in runs)
    return {"basic": basic, "delta": delta, "composed": min(basic, composed)}
