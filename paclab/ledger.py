"""The curator's ledger of queries: how often a universe of records was asked, by what, and what that adds up to.

It is private (file mode 0600). A universe is named by a keyed hash of its records, in any order; the key stands in the
ledger's first line, so a name found elsewhere cannot be checked against a guessed pool. Pools that share only some
records have different names: their common records are exposed to all of them, which no total here shows.

What composes:
    nats      every run draws its own secret half. About any one of them nothing beyond its own run's budget is told;
              about all halves together at most the sum. Budgets of different runs never add up on one secret half.
              Runs that look at the whole pool (all with an epsilon, mezo) look at no half: they add nothing here.
    epsilon   all runs look at the same records, so they compose, each adjacency for itself and every run in both: the
              sums of epsilons and of deltas always hold; the composed privacy losses are smaller, and hold when no
              run's settings depended on an earlier result. Where all halves agree PACZero releases a fixed function of
              the pool, which no finite epsilon bounds: after such a run, or one that is not private, none holds.
    neither   a run without a promise has no price: after one no total says anything.
A run is charged whole before it draws anything, since a run that was killed may have released; once, however often it
is resumed; and a run that cannot be charged does not go on. Study-mode runs are not recorded.
"""

import fcntl
import hashlib
import json
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from paclab.errors import InputError
from paclab.files import sha256_json
from paclab.privacy import dp

VARIABLE = "PACLAB_LEDGER"
OFF = ("off", "0", "no")
RECORDLESS = ("random-sign",)  # looks at no record, so every epsilon and every budget bounds it
TINY = 1e-300
UNCOUNTED = f"name a file that can be written in {VARIABLE}, or say {VARIABLE}=off: then nobody counts"


class Total(NamedTuple):
    """What the runs of one universe add up to."""

    queries: int
    without_promise: int
    largest_nats: float  # about any one secret half
    sum_nats: float  # about all of them together
    nominal: int  # runs whose nats the published, uncertified calibration can exceed
    outside_nats: dict[str, int]  # method -> its runs that have no part in the nats
    outside_epsilon: dict[str, int]  # method -> its runs that no epsilon bounds: if there are any, epsilons is empty
    epsilons: dict[str, dict[str, float]]  # adjacency that some run promised -> basic, delta, composed, of all runs


def place() -> Path | None:
    """The ledger's file: PACLAB_LEDGER (a path; `off`: None), else paclab/queries.jsonl in the state folder."""
    given = os.environ.get(VARIABLE, "").strip()
    if given.lower() in OFF:
        return None
    path = Path(given or f"{os.environ.get('XDG_STATE_HOME') or '~/.local/state'}/paclab/queries.jsonl")
    try:
        return path.expanduser()
    except RuntimeError:
        raise InputError(VARIABLE, "there is no home folder to keep the ledger of queries in", UNCOUNTED) from None


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
    nominal = bool(config.compat and config.mi)  # zero nats are zero by the published rules too
    return entry | ({"nats": config.mi or 0.0, "nominal": nominal} if release.private else {})


def charge(config, release, records: list[dict], folder: Path, keys: dict) -> bool:
    """Count a run, durably, before it draws anything; once, however often it is asked. False: nobody counts.

    `keys` are the run's public numbers, drawn anew for every run. Raises InputError when the run cannot be counted.
    """
    path = None if config.study else place()
    if path is None:
        return False
    entry = {"id": sha256_json(keys)[:32]} | query(config, release, folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(fd, "r+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            data = handle.read()
            key, queries = _parsed(data)
            handle.truncate(data.rfind(b"\n") + 1)  # a line that a crash left torn is cut
            lines = [] if key else [{"format": 1, "key": (key := secrets.token_hex(32))}]
            if not any(q.get("id") == entry["id"] for q in queries):
                lines.append(entry | {"universe": universe(records, key)})
            handle.write("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode())
            handle.flush()
            os.fsync(handle.fileno())
        _sync(path.parent)
        return True
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no ledger"
        raise InputError(VARIABLE, f"this run cannot be counted in {path} ({why})", UNCOUNTED) from None


def _sync(folder: Path) -> None:
    """Wait until a new file's name is on the disk too."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path: Path) -> tuple[str, list[dict]]:
    """The key and the queries, oldest first; a torn last line is left out."""
    try:
        return _parsed(path.read_bytes())
    except FileNotFoundError:
        return "", []
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError("file", f"{path} is no ledger", "give the file that paclab wrote, or restore it") from None


def _parsed(data: bytes) -> tuple[str, list[dict]]:
    if data and not data.startswith(b"{"):
        raise ValueError  # another file, and no torn first line
    first, *rest = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].decode().splitlines()] or [None]
    if first is None:
        return "", []
    if not (bytes.fromhex(first["key"]) and all(map(_is_query, rest))):
        raise ValueError
    return first["key"], rest


def _is_query(entry: dict) -> bool:
    """Whether a line says all that the totals need, in numbers that can be added."""
    def number(name: str, low: float = 0.0, high: float = math.inf) -> bool:
        value = entry[name]
        return type(value) in (int, float) and math.isfinite(value) and low <= value <= high

    whole = all(isinstance(entry[name], str) for name in ("universe", "method", "time", "run"))
    whole = whole and type(entry["private"]) is bool and all(type(entry[n]) is int and number(n, 1) for n in (
        "steps", "records"))
    if "epsilon" in entry:
        return (whole and entry["noise"] in ("gaussian", "laplace") and entry["adjacency"] in dp.ADJACENCIES
                and number("epsilon") and number("delta", 0, 1) and number("extra")
                and number("multiplier", TINY) and number("sampling", TINY, 1))
    if "nats" in entry:
        return whole and number("nats") and type(entry["nominal"]) is bool
    return whole and not entry["private"]


def total(queries: list[dict]) -> Total:
    """What these queries of one universe add up to; seconds where epsilons are composed."""
    nats = [q["nats"] for q in queries if "nats" in q]
    runs = [q for q in queries if "epsilon" in q]
    unbounded = Counter(q["method"] for q in queries if "epsilon" not in q and q["method"] not in RECORDLESS)
    promised = [name for name in dp.ADJACENCIES if any(q["adjacency"] == name for q in runs) and not unbounded]
    return Total(len(queries), sum(not q["private"] for q in queries), max(nats, default=0.0), sum(nats),
                 sum(q.get("nominal", False) for q in queries), dict(Counter(q["method"] for q in queries
                 if "nats" not in q)), dict(unbounded), {name: _composed(runs, name) for name in promised})


def _composed(runs: list[dict], adjacency: str) -> dict[str, float]:
    """Basic sums, and epsilon at the summed delta by composed privacy losses (pessimistic; never above the sum)."""
    basic, delta = sum(_alone(q, adjacency) for q in runs), sum(q["delta"] for q in runs)
    if delta == 0 or delta >= 1:
        return {"basic": basic, "delta": delta, "composed": basic}
    composed = dp.composed_epsilon([_run(q) for q in runs], delta, adjacency) + sum(q["extra"] for q in runs)
    return {"basic": basic, "delta": delta, "composed": min(basic, composed)}


def _alone(q: dict, adjacency: str) -> float:
    """Epsilon of one run at its own delta: its promise, or what its noise comes to under the other adjacency.

    A Gaussian promise under replace-one may be the published factor 2, which is not certified: its noise counts.
    """
    own = q["adjacency"] == adjacency
    if q["noise"] == "laplace":
        return q["epsilon"] if own else dp.laplace_epsilon(*_run(q)[:3], adjacency=adjacency)
    if own and adjacency == "add-remove":
        return q["epsilon"]
    certified = dp.epsilon(*_run(q)[:3], q["delta"], "pld", adjacency) + q["extra"]
    return max(certified, q["epsilon"]) if own else certified


def _run(q: dict) -> dp.Run:
    return dp.Run(q["multiplier"], q["sampling"], q["steps"], q["noise"])
