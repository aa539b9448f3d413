"""Checks on a recorded run: weights from the transcript, public arithmetic, and with the pool every charge.

Without the pool only public files and the base model are read; `pool=True` is the curator's audit:
it probes the pool again at every step and recomputes votes, released values and charges. What is promised follows
from the settings alone: run.json's own word for it decides no check, and is compared.
"""

import json
import math
import stat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paclab import finetune, releases
from paclab.errors import InputError
from paclab.files import PRIVATE_DIR, PRIVATE_FILE
from paclab.releases import dp
from paclab.releases.secret import Secret
from paclab.zo import rules, transcript
from paclab.zo.directions import Directions
from paclab.zo.train import Folder, ledger_lines, probe
from paclab.zo.update import Follower

PUBLIC_FILES = ("run.json", "transcript.txt", "metrics.jsonl", "test.npy")
PRIVATE_WORDS = ("votes", "q_plus", "charged", "realised", "posterior", "secret_index", "pool_mean", "seen", "free",
                 "batch", "clipped", "signal", "unanimous")


class Finding(NamedTuple):
    """One check: whether it held, and what was compared."""

    ok: bool
    text: str


def verify(out: Path | str, *, pool: bool = False) -> list[Finding]:
    """All findings about a run; a transcript that is no transcript raises InputError."""
    folder, run, config = finetune.read_run(out)
    lines = transcript.read(folder.transcript, config.k)
    promised = _promised(run, config)
    findings = [*_arithmetic(run, config, lines), *_promise(promised, run, config, len(lines)), *_separation(folder)]
    if pool:
        secret, bound_to = Secret.load(folder.secret)
        prepared = finetune.prepare(config, secret, run["keys"], run["device"])
        findings.append(Finding(finetune.binding(prepared) == bound_to,
                                "settings and records are those the secret was drawn for"))
        findings.append(_record(prepared.record, run))
        weights, directions = prepared.job.weights, prepared.job.directions
    else:
        _, weights, directions = finetune.base(config, run["keys"], run["device"])
    same = weights.digest() == run["base_sha256"]
    findings.append(Finding(same, "base weights have the recorded hash"))
    if not same:
        return findings
    if pool:
        findings += _pool_audit(prepared, folder, lines)
    else:
        transcript.replay(weights, directions, lines, rules.open_rule(config, promised.public or {}))
    if run["status"] == "complete":
        rebuilt = weights.digest() == run.get("weights_sha256")
        findings.append(Finding(rebuilt, f"weights rebuilt from {len(lines)} public steps have the recorded hash"))
    else:
        findings.append(Finding(True, f"run not finished: {len(lines)} of {config.steps} steps"))
    return findings


def _arithmetic(run: dict, config: finetune.Config, lines: list[transcript.Line]) -> list[Finding]:
    lr_at = finetune.schedule(config.schedule, config.learning_rate(), config.steps)
    rates = all(line.lr == lr_at(line.t) for line in lines)
    values = [v for line in lines for v in line.values]
    real = releases.METHODS[config.method].real
    right = all(map(math.isfinite, values)) if real else all(v in (-1.0, 0.0, 1.0) for v in values)
    complete = run["status"] != "complete" or len(lines) == config.steps
    stated = run["mode"] == (finetune.REPRODUCIBLE if config.study else "private")
    stated = stated and run.get("learning_rate") == config.learning_rate()
    return [Finding(stated, "stated mode and learning rate follow from the settings"),
            Finding(rates, f"learning rates follow the {config.schedule} schedule from {config.learning_rate():g}"),
            Finding(right, "released values are finite numbers" if real else "every released value is a sign"),
            Finding(complete, f"{len(lines)} of {config.steps} steps are recorded")]


def _promised(run: dict, config: finetune.Config) -> releases.Release:
    """The release as its settings make it: neither records nor secret have a say in what it promises.

    A noised number of records is a released value: it is taken as recorded, and all else must follow from it.
    """
    membership = np.zeros((config.pool, config.candidates), dtype=bool)
    directions = Directions(run["keys"]["directions"], ())
    release, _ = rules.attach(config, releases.open_release(config, membership, Secret.from_seed(0), directions))
    recorded = run.get("release")
    normaliser = recorded.get("normaliser") if isinstance(recorded, dict) else None
    if "normaliser" in (release.public or {}) and config.normaliser == "private":
        if isinstance(normaliser, float) and math.isfinite(normaliser) and normaliser > 0:
            return release._replace(public=dp.public(config, normaliser))
    return release


def _promise(promised: releases.Release, run: dict, config: finetune.Config, steps: int) -> list[Finding]:
    """What run.json says is promised, and the differential-privacy spend: a function of public constants."""
    said = _text([run["guarantee"], run.get("private")]) == _text(list(finetune.promise(config, promised)))
    findings = [Finding(said, "guarantee and privacy are those that the settings give")]
    constant = _text(run.get("release")) == _text(promised.public or {})
    if not (releases.METHODS[config.method].differential and promised.private):
        return [*findings, Finding(constant, "the release's constants are those that the settings give")]
    delta, spent = 0 if config.noise == "laplace" else config.delta, dp.spent(config, steps)
    return [*findings, Finding(constant and spent <= config.epsilon * (1 + 1e-12) and steps <= config.steps,
                               f"{steps} steps cost epsilon {spent:.6g} of {config.epsilon:g} at delta {delta:g}")]


def _record(record: dict, run: dict) -> Finding:
    """The curator's own word for every public fact of a run, against run.json's."""
    differs = [name for name, value in record.items() if _text(run.get(name)) != _text(value)]
    text = "run.json says of the run what settings, records and secret give"
    return Finding(not differs, f"{text}, but for: {', '.join(differs)}" if differs else text)


def _text(value) -> str:
    """One spelling of a value: to Python true equals 1."""
    return json.dumps(value, sort_keys=True)


def _separation(folder: Folder) -> list[Finding]:
    findings = []
    for name in PUBLIC_FILES:
        path = folder.path / name
        if path.exists() and path.suffix != ".npy":
            found = [word for word in PRIVATE_WORDS if f'"{word}"' in path.read_text()]
            text = f"{name} carries none of the known private field names"
            findings.append(Finding(not found, f"{text}: {found}" if found else text))
    for path in (folder.private, folder.secret):
        if path.exists():
            closed = stat.S_IMODE(path.stat().st_mode) == PRIVATE_DIR and all(
                stat.S_IMODE(p.stat().st_mode) == PRIVATE_FILE for p in path.iterdir() if p.name != "lock")
            findings.append(Finding(closed, f"{path.name}/ is open to its owner only"))
    return findings


def _pool_audit(prepared: finetune.Prepared, folder: Folder, lines: list[transcript.Line]) -> list[Finding]:
    """Recompute every step from the pool and the secret: votes, values, charges, to the last digit."""
    infos, job = ledger_lines(folder), prepared.job
    if len(infos) < len(lines):
        raise InputError("folder", "the private ledger is shorter than the transcript", "restore the private folder")
    private, wrong, follower = job.release.init(), [], Follower(job.weights, job.directions, job.rule)
    for line, info in zip(lines, infos, strict=False):
        private, released, again = job.release.step(private, line.t, probe(job, line.t))
        again = json.loads(json.dumps(again))
        if released.values != line.values or any(again[key] != info[key] for key in again):
            wrong.append(line.t)
        follower.apply(line.t, line.lr, line.values)
    spent = infos[len(lines) - 1].get("charged", 0.0) if lines else 0.0
    total = prepared.config.mi or 0.0
    note = f": first at step {wrong[0]}" if wrong else ""
    agree = Finding(not wrong, f"votes, values and charges recomputed from the pool agree at every step{note}")
    if releases.METHODS[prepared.config.method].differential:  # its charge is public arithmetic: see _promise
        return [agree._replace(text=f"batches, clipped sums and noise recomputed from the pool agree{note}")]
    return [agree, Finding(spent <= total, f"charged {spent:.6g} of {total:g} nats")]
