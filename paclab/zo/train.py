"""The training loop: probe -> release -> update, one durable step at a time. Knows "parameters + per-record loss".

Order within a step, so that a kill at any point resumes to the identical result:
    1. private ledger line (with the value already drawn)   2. public transcript line   3. weights
A value that was drawn is never drawn again: a resumed run publishes it from the ledger.
"""

import fcntl
import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paclab.errors import InputError
from paclab.files import PRIVATE_FILE, private_dir, write_atomic
from paclab.releases.base import Release
from paclab.zo import transcript
from paclab.zo.directions import Directions
from paclab.zo.probe import Copy, Weights, all_differences, stacked_differences
from paclab.zo.update import PLAIN, Rule


class Job(NamedTuple):
    """Everything a run needs; `losses(batch)` reads the live weights: float64 [N], or [n] of the given records."""

    losses: Callable[[np.ndarray | None], np.ndarray]
    weights: Weights
    directions: Directions
    release: Release
    lr_at: Callable[[int], float]
    steps: int
    k: int = 1
    mu: float = 1e-3
    rule: Rule = PLAIN
    copies: Callable[[int], list[Copy]] | None = None  # independent models for probes side by side, on a CPU
    stacked: Callable[[dict, np.ndarray], np.ndarray] | None = None  # losses of stacked adapters on a sampled batch


class Busy(InputError):
    """Another process is advancing this run."""


class Folder(NamedTuple):
    """Where a run lives: public files at the top, private and secret ones in folders of mode 0700."""

    path: Path

    @property
    def run(self) -> Path:
        return self.path / "run.json"

    @property
    def transcript(self) -> Path:
        return self.path / "transcript.txt"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def private(self) -> Path:
        return self.path / "private"

    @property
    def ledger(self) -> Path:
        return self.private / "ledger.jsonl"

    @property
    def secret(self) -> Path:
        return self.path / "secret"

    def refuse_used(self) -> None:
        """A new run may not start where any part of an older one lies."""
        for path in (self.run, self.transcript, self.ledger, self.secret / "secret.json"):
            if path.exists():
                raise InputError("out", f"{self.path} already holds a run ({path.name})",
                                 "name a new folder, or go on with `paclab resume`")

    @contextmanager
    def locked(self):
        """Only one process may advance a run."""
        lock = private_dir(self.private) / "lock"
        try:
            handle = open(lock, "w")
        except OSError as error:
            raise InputError("folder", f"cannot write {lock} ({error.strerror})", "make it writable") from None
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Busy("out", f"{self.path} is being trained by another process", "wait for it") from None
            yield


class Progress(NamedTuple):
    """What a caller may watch: step, seconds are the caller's own; info is private, so it is shown in study mode."""

    t: int
    info: dict


def ledger_lines(folder: Folder) -> list[dict]:
    """The private diagnostics of every released step, in order."""
    lines = json_lines(folder.ledger, {"t": int, "released": list})
    if [line["t"] for line in lines] != list(range(len(lines))):
        raise InputError("folder", f"{folder.ledger.name} does not count its steps from 0", "restore the file")
    return lines


def json_lines(path: Path, fields: dict[str, type]) -> list[dict]:
    """The whole lines of an append-only JSON file, each an object with at least these fields."""
    try:
        lines = [json.loads(line) for line in transcript.whole_lines(path)]
        if all(isinstance(line[name], kind) for line in lines for name, kind in fields.items()):
            return lines
    except (ValueError, TypeError, KeyError):
        pass
    raise InputError("folder", f"{path.name} holds a line that this run did not write", "restore the file")


def recover(job: Job, folder: Folder):
    """Bring weights and private state to the last released step; returns (private state, follower, next step)."""
    for path in (folder.transcript, folder.ledger, folder.metrics):
        transcript.cut_torn_line(path)
    lines, infos = transcript.read(folder.transcript, job.k), ledger_lines(folder)
    if len(infos) == len(lines) + 1:  # drawn but not yet published when the run was killed
        t = len(lines)
        line = transcript.Line(t, job.lr_at(t), tuple(infos[t]["released"]))
        transcript.append(folder.transcript, line.text())
        lines.append(line)
    if len(infos) != len(lines):
        raise InputError("folder", f"{len(lines)} public steps but {len(infos)} private ones in {folder.path}",
                         "restore the run's files: a released step cannot be drawn again")
    private = job.release.init()
    for t, (line, info) in enumerate(zip(lines, infos, strict=True)):
        if tuple(info["released"]) != line.values:
            raise InputError("transcript", f"step {t} differs from the private ledger", "restore the file")
        try:
            private = job.release.replay(private, t, info)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            if isinstance(problem, InputError):
                raise
            raise InputError("folder", f"{folder.ledger.name} does not hold step {t} as it was written",
                             "restore the file") from None
    return private, transcript.replay(job.weights, job.directions, lines, job.rule), len(lines)


def probe(job: Job, t: int) -> np.ndarray:
    """The private statistic of step t: projected gradients of the selected records, float64 [K, n]."""
    batch = job.release.select(t)
    if batch is not None and len(batch) == 0:
        return np.zeros((job.k, 0))
    if job.stacked and batch is not None:
        return stacked_differences(job.stacked, batch, job.weights, job.directions, t, job.k, job.mu)
    return all_differences(job.losses, batch, job.weights, job.directions, t, job.k, job.mu, job.copies)


def train(job: Job, folder: Folder, *, evaluate: Callable[[], dict] | None = None, eval_every: int = 0,
          watch: Callable[[Progress], None] | None = None, record: Callable[[int, np.ndarray], None] | None = None,
          stop_at: int | None = None) -> int:
    """Run, or go on with, a job until `steps` (or `stop_at`); returns the number of steps that are done.

    `evaluate()` scores public held-out records before step 0, every `eval_every` steps and at the end; `record`
    receives the private statistic [K, N] and is for studies of public pools only.
    """
    with folder.locked():
        private, follower, begin = recover(job, folder)
        kept = [line for line in json_lines(folder.metrics, {"step": int}) if line["step"] <= begin]
        scored = {line["step"] for line in kept}
        write_atomic(folder.metrics, "".join(json.dumps(line) + "\n" for line in kept))

        def score(step: int) -> None:
            due = step in (0, job.steps) or (eval_every and step % eval_every == 0)
            if evaluate and due and step not in scored:
                transcript.append(folder.metrics, json.dumps({"step": step, **evaluate()}) + "\n")

        score(begin)
        end = min(job.steps, job.steps if stop_at is None else stop_at)
        for t in range(begin, end):
            statistic = probe(job, t)
            if record:
                record(t, statistic)
            private, released, info = job.release.step(private, t, statistic)
            line = transcript.Line(t, job.lr_at(t), released.values)
            transcript.append(folder.ledger, json.dumps({"t": t, "released": released.values, **info}) + "\n",
                              PRIVATE_FILE)
            transcript.append(folder.transcript, line.text())
            follower.apply(t, line.lr, line.values)
            score(t + 1)
            if watch:
                watch(Progress(t + 1, info))
    return end
