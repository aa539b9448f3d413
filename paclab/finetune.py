"""One fine-tuning run from its settings: text, model, candidates, secret and release put together.

Threat model of every PACZero run: the pool U, the M candidate halves, the model and the code are public to the
attacker; the secret is which half j* was used. Nothing is claimed about membership in the pool itself.
"""

import copy
import dataclasses
import hashlib
import io
import json
import math
import platform
import secrets
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from paclab import __version__, ledger, lora, models, releases, sources, tasks
from paclab.errors import InputError, nearest
from paclab.files import PRIVATE_FILE, sha256_json, write_atomic, write_json
from paclab.privacy import consensus
from paclab.releases.secret import REPRODUCIBLE, Secret
from paclab.scoring import TOKEN_BUDGET, Scorer
from paclab.sources import Splits, load_splits
from paclab.zo import rules, transcript
from paclab.zo.directions import Directions
from paclab.zo.probe import Copy, Weights
from paclab.zo.train import Folder, Job, ledger_lines, train
from paclab.zo.update import schedule

TRACKS = ("ft", "lora")
KEYS = ("directions", "subsets", "adapter")  # public 64-bit numbers of a run
COPIED_NUMBERS = 1 << 26  # a larger model is not copied for each thread (256 MiB each)
MOST_STEPS, MOST_DIRECTIONS = 10**7, 1 << 16  # more is a slip of the keyboard
LARGEST = 1e6  # no step or probe of this size leaves finite weights


@dataclass(frozen=True)
class Config:
    """Settings of one run; every field is public. Defaults suit the embedded model (see the model card)."""

    task: str = "sentiment"
    method: str = "paczero-zpl"
    steps: int = 100
    pool: int = 1000
    candidates: int = 126
    lr: float | None = None  # None: the tuned default (`releases.learning_rate`)
    clip: float | None = None  # None: no clipping; methods that promise epsilon need one
    mi: float | None = None  # total budget in nats, MI variants only
    epsilon: float | None = None  # the whole run's promise, differentially private methods only
    delta: float = 1e-5
    sampling: float | None = None  # Poisson rate of a record a step; None: 64 expected records (DP methods)
    accountant: str = "pld"
    adjacency: str = "add-remove"
    noise: str = "gaussian"
    normaliser: str = "expected"  # rate times N; or private: N is noised first, as DP-AggZO does
    rule: str = "plain"  # right of the door: what an update makes of the released values
    gain: str = "wiener"
    tracking: float | None = None
    warmup: int | None = None
    reference: str = "end"
    alpha_min: float = 0.1
    factor: float | None = None
    k: int = 1
    track: str = "ft"
    model: str = models.EMBEDDED
    source: str = "embedded"
    seed: int = 0  # public: which records form the pool; in study mode also everything else
    mu: float = 1e-3
    schedule: str = "linear"
    budget: str = "adaptive"
    on_disagreement: str = "coin"
    compat: str | None = None
    dev: int = 500
    test: int | None = None  # held-out records; None: all there are
    eval_every: int = 0
    max_new_tokens: int | None = None
    rank: int = 8
    alpha: float = 16.0
    bos: int | str | None = "tokenizer"
    padding: str = "right"
    token_budget: int = TOKEN_BUDGET
    study: bool = False  # reproducible secrets: not private

    def __post_init__(self):
        check(self)

    def learning_rate(self) -> float:
        """The given learning rate, or the tuned default."""
        return releases.learning_rate(self)


def check(config: Config) -> None:
    """Refuse settings that cannot work, before anything is written."""
    known = {"task": tasks.TASKS, "method": releases.METHODS, "track": TRACKS}
    for name, choices in known.items():
        value = getattr(config, name)
        if value not in choices:
            raise InputError(name, f"{value!r} is unknown", nearest(str(value), choices))
    for name in ("steps", "pool", "k", "rank", "token_budget", "dev", "test", "max_new_tokens"):
        value = getattr(config, name)
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise InputError(name, f"{value} is not positive", "give a whole number of at least 1")
    for name, limit in (("seed", 2**32 - 1), ("eval_every", 2**31)):
        if not (isinstance(getattr(config, name), int) and 0 <= getattr(config, name) <= limit):
            raise InputError(name, f"{getattr(config, name)} is out of range", f"give a whole number from 0 to {limit}")
    for name in ("mu", "alpha", "lr", "clip"):
        value = getattr(config, name)
        if value is not None and not (0 < value < float("inf")):
            raise InputError(name, f"{value} is not a positive number", "give a finite value above 0")
    for name, limit in (("steps", MOST_STEPS), ("k", MOST_DIRECTIONS)):
        if getattr(config, name) > limit:
            raise InputError(name, f"{getattr(config, name)} is out of range", f"give a whole number up to {limit}")
    for name in ("mu", "lr", "clip", "factor"):
        if (getattr(config, name) or 0) > LARGEST:
            raise InputError(name, f"{getattr(config, name)} is larger than {LARGEST:g}", "give a smaller value")
    releases.check(config)
    rules.check(config)


def located(config: Config) -> Config:
    """The settings with local files named by absolute paths: the run can be resumed and verified from anywhere."""
    folder = Path(config.model)
    model = str(folder.resolve()) if folder.is_dir() and not models.shipped(config.model) else config.model
    return dataclasses.replace(config, model=model, source=sources.located(config.source))


def public_number(label: str, config: Config) -> int:
    """A public 64-bit number: derived from the seed in study mode, else fresh from the operating system."""
    if not config.study:
        return secrets.randbits(64)
    return int.from_bytes(hashlib.sha256(f"paclab public {label} {config.seed}".encode()).digest()[:8], "little")


class Base(NamedTuple):
    """The public half of a run: enough to replay its transcript."""

    model: models.LanguageModel
    weights: Weights
    directions: Directions


def base(config: Config, keys: dict, device: str = "auto") -> Base:
    """The model with its trainable tensors as they were before the first step; reads no record."""
    model = models.load(config.model, device)
    if config.track == "lora":
        live = lora.attach(model, config.rank, config.alpha, keys["adapter"] % (1 << 63))
    else:
        live = models.trainable(model.module)
    return Base(model, Weights(live), Directions(keys["directions"], tuple(live)))


class Prepared(NamedTuple):
    """A run that is ready to go: the job, its held-out scorers, and what it was built from."""

    config: Config
    job: Job
    splits: Splits
    dev: Callable[[], tasks.Outcome]
    test: Callable[[], tasks.Outcome]
    record: dict  # public facts for run.json
    model: models.LanguageModel


def prepare(config: Config, secret: Secret, keys: dict | None = None, device: str = "auto") -> Prepared:
    """Load text and model, draw the public candidates, and open the release; `keys` are those of a resumed run."""
    splits = load_splits(tasks.source_task(config.task), config.source, seed=config.seed, pool=config.pool,
                         dev=config.dev, test=config.test)
    keys = keys or {name: public_number(name, config) for name in KEYS}
    model, weights, directions = base(config, keys, device)
    options = {"bos": config.bos, "padding": config.padding, "token_budget": config.token_budget,
               "max_new_tokens": config.max_new_tokens}
    objective = tasks.objective(config.task, model, splits.pool, **options)
    draw = consensus.independent_halves if config.compat else consensus.complementary_halves
    membership = None
    if releases.needs_candidates(config.method):
        membership = draw(len(splits.pool), config.candidates, np.random.Generator(np.random.Philox(keys["subsets"])))
    settle(objective)
    release, rule = rules.attach(config, releases.open_release(config, membership, secret, directions))
    job = Job(objective.losses, weights, directions, release, schedule(config.schedule, config.learning_rate(),
              config.steps), config.steps, config.k, config.mu, rule, copier(objective, weights),
              stacker(objective) if config.track == "lora" else None)
    held_out = {name: _lazy(config.task, model, getattr(splits, name), options) for name in ("dev", "test")}
    guarantee, private = promise(config, release)
    record = {"keys": keys, "base_sha256": weights.digest(), "trainable": weights.count,
              "device": model.device.type, "guarantee": guarantee, "private": private,
              "release": release.public or {},
              "micro_batches": {"rule": "rows sorted by length, filled up to a token budget",
                                "token_budget": config.token_budget}}
    return Prepared(config, job, splits, held_out["dev"], held_out["test"], record, model)


def promise(config: Config, release: releases.Release) -> tuple[str, bool]:
    """What run.json says: guarantee in one sentence, and whether the run is private. Study mode promises nothing."""
    if not (config.study and release.private):
        return release.guarantee, release.private
    return f"none, {REPRODUCIBLE}; with secret randomness it would be: {release.guarantee}", False


def settle(objective) -> None:
    """Let the scorer prove its shortcuts on the base weights, so that nothing hangs on the step that comes first."""
    if hasattr(objective, "batches"):
        objective.losses(np.arange(min(8, len(objective.rows))))


def copier(objective, weights: Weights) -> Callable[[int], list[Copy]] | None:
    """Copies of model and losses for probes side by side; None where there is one device or too little room."""
    model = objective.scorer.model
    if model.device.type != "cpu" or sum(p.numel() for p in model.module.parameters()) > COPIED_NUMBERS:
        return None
    made: list[Copy] = []

    def copies(count: int) -> list[Copy]:
        while len(made) < count:
            twin = copy.deepcopy(objective, {id(model.tokenizer): model.tokenizer})
            live = dict(twin.scorer.model.module.named_parameters())
            made.append(Copy(twin.losses, {name: live[name].detach() for name in weights.live}))
        return made[:count]

    return copies


def stacker(objective) -> Callable[[dict, np.ndarray], np.ndarray] | None:
    """Losses of several adapters on one sampled batch, in shared passes of the base: float64 [copies, n]."""
    scorer = objective.scorer
    if not (type(scorer) is Scorer and hasattr(objective, "batches")):
        return None

    def losses(stacks: dict, batch: np.ndarray) -> np.ndarray:
        copies = len(next(iter(stacks.values())))
        scorer.copies = copies
        try:
            with lora.stacked(scorer.model, stacks):
                return objective.losses(np.tile(batch, copies)).reshape(copies, len(batch))
        finally:
            scorer.copies = 1

    return losses


def _lazy(task: str, model: models.LanguageModel, records: list[dict], options: dict):
    cache: list = []

    def outcome() -> tasks.Outcome:
        if not cache:
            cache.append(tasks.objective(task, model, records, **options))
        return cache[0].outcome()

    return outcome


def _summary(outcome: tasks.Outcome, name: str) -> dict:
    score = float(outcome.score.mean())
    return {f"{name}_loss": float(outcome.loss.mean()), **({f"{name}_score": score} if score == score else {})}


def _finite(numbers: dict) -> dict:
    """A diverged run's loss is no number, and JSON knows none: it is left out."""
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def start(config: Config, out: Path | str, *, device: str = "auto", watch=None, record_statistic=None,
          stop_at: int | None = None) -> dict:
    """Begin a run in a new folder and train it; returns the finished run.json as a dictionary."""
    if not str(out).strip():
        raise InputError("out", "is empty", "name the folder of the new run")
    folder, config = Folder(Path(out)), located(config)
    _clear_unbegun(folder)
    folder.refuse_used()
    secret = Secret.from_seed(config.seed) if config.study else Secret.fresh()
    prepared = prepare(config, secret, device=device)
    record = json.dumps({
        "format": 1, "paclab": __version__, "torch": torch.__version__, "python": platform.python_version(),
        "status": "running", "mode": REPRODUCIBLE if config.study else "private",
        "config": dataclasses.asdict(config), "learning_rate": config.learning_rate(), **prepared.record},
        indent=1, sort_keys=True, allow_nan=False)
    with folder.locked():
        folder.refuse_used()
        try:
            secret.save(folder.secret, binding(prepared))
            write_atomic(folder.run, record + "\n")
            _charge(prepared, folder)
        except InputError:  # a full disk, say: nothing was drawn yet, so the folder is free for another try
            folder.run.unlink(missing_ok=True)
            (folder.secret / "secret.json").unlink(missing_ok=True)
            raise
    return _go(prepared, folder, watch, record_statistic, stop_at)


def _charge(prepared: Prepared, folder: Folder) -> None:
    """Count the run in the curator's ledger, if it is not there yet; until this is done nothing may be drawn."""
    ledger.charge(prepared.config, prepared.job.release, prepared.splits.pool, folder.path, prepared.record["keys"])


def unbegun(folder: Folder) -> bool:
    """Whether a kill left a secret before run.json was written: then nothing was drawn from it."""
    begun = (folder.run, folder.transcript, folder.ledger, folder.metrics)
    return (folder.secret / "secret.json").exists() and not any(path.exists() for path in begun)


def _clear_unbegun(folder: Folder) -> None:
    """Free a folder whose run never began: a new run draws a new secret."""
    if unbegun(folder):
        with folder.locked():  # a process that is just beginning holds the lock
            if unbegun(folder):
                (folder.secret / "secret.json").unlink()


def refuse_unbegun(out: Path | str) -> None:
    """A run that a kill stopped before its first file was whole cannot be resumed, only begun again."""
    if unbegun(Folder(Path(out))):
        raise InputError("folder", f"the run in {out} was stopped before it began, and nothing was drawn",
                         "begin it again with `paclab train`: the folder is free for it")


def binding(prepared: Prepared) -> str:
    """A hash of all that a run's draws depend on: settings, keys, base weights, release constants and every record.

    It is kept beside the secret and is as private as the records. A secret that was used under one binding is never
    used under another: the same noise on two statistics would give their difference away.
    """
    splits = prepared.splits
    return sha256_json([dataclasses.asdict(prepared.config), prepared.record, splits.pool, splits.dev, splits.test])


def read_run(out: Path | str) -> tuple[Folder, dict, Config]:
    """A run's folder, its run.json and its settings."""
    folder = Folder(Path(out))
    try:
        run = json.loads(folder.run.read_text())
        config = Config(**_typed(run["config"]))
        whole = all(isinstance(run["keys"][name], int) and 0 <= run["keys"][name] < 1 << 64 for name in KEYS)
        done = {"weights_sha256": str, "steps_done": int, "result": dict} if run["status"] == "complete" else {}
        kinds = dict.fromkeys(("status", "device", "base_sha256", "guarantee", "mode"), str) | {"private": bool} | done
        if not (whole and all(isinstance(run[name], kind) for name, kind in kinds.items())):
            raise KeyError
        return folder, run, config
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError("folder", f"no readable run.json in {out}",
                         "name the folder that `paclab train` wrote") from None


def _typed(given: dict) -> dict:
    """Settings as run.json holds them, if each has a type that `Config` names; TypeError otherwise."""
    for name, kind in typing.get_type_hints(Config).items():
        value = given.get(name, getattr(Config, name, None))
        allowed = typing.get_args(kind) or (kind,)
        right = (type(value) is int and float in allowed) or type(value) in allowed
        if not right:
            raise TypeError(name)
    return given


def reopen(out: Path | str, device: str | None = None) -> tuple[Folder, dict, Prepared]:
    """Rebuild a run's parts and check that text, base model and adapters are those it began with."""
    folder, run, config = read_run(out)
    secret, bound_to = Secret.load(folder.secret)
    prepared = prepare(config, secret, run["keys"], device or run["device"])
    if prepared.record["base_sha256"] != run["base_sha256"]:
        raise InputError("model", "the base weights differ from those the run began with", "restore that model")
    lr = config.learning_rate()
    if run.get("learning_rate", lr) != lr:
        raise InputError("lr", f"was {run['learning_rate']} by default when the run began, now {lr:g}",
                         "finish it with the version of paclab that began it")
    if binding(prepared) != bound_to:
        raise InputError("folder", "the settings or records differ from those the run's secret was drawn for",
                         "restore them: the same noise on other values would give both away")
    return folder, run, prepared


def resume(out: Path | str, *, device: str | None = None, watch=None, record_statistic=None) -> dict:
    """Go on with a run that was stopped anywhere; a finished one is returned as it is."""
    refuse_unbegun(out)
    folder, run, prepared = reopen(out, device)
    if run["status"] == "complete":
        return run
    _charge(prepared, folder)  # a kill may have come before the charge
    return _go(prepared, folder, watch, record_statistic, None)


def _go(prepared: Prepared, folder: Folder, watch, record_statistic, stop_at) -> dict:
    config, job = prepared.config, prepared.job
    if record_statistic and not config.study:
        raise InputError("record", "per-record values are private", "record them in study mode only")
    done = train(job, folder, evaluate=lambda: _summary(prepared.dev(), "dev"), eval_every=config.eval_every,
                 watch=watch, record=record_statistic, stop_at=stop_at)
    run = json.loads(folder.run.read_text())
    if done < job.steps:
        return run
    outcome = prepared.test()
    write_json(folder.private / "summary.json", releases.summarise(ledger_lines(folder)), PRIVATE_FILE)
    scores = io.BytesIO()
    np.save(scores, np.stack([outcome.loss, outcome.score]))
    write_atomic(folder.path / "test.npy", scores.getvalue())
    run |= {"status": "complete", "steps_done": done, "weights_sha256": job.weights.digest(),
            "result": {**_finite(_summary(outcome, "test")), "test_records": len(outcome.loss)}}
    write_json(folder.run, run)
    return run


def transcript_lines(out: Path | str) -> list[transcript.Line]:
    """The public transcript of a run."""
    folder, _, config = read_run(out)
    return transcript.read(folder.transcript, config.k)


def export(out: Path | str, to: Path | str) -> Path:
    """Write a finished run's model from its public files: a peft adapter (lora) or a whole model folder (ft)."""
    _, run, config = read_run(out)
    if run["status"] != "complete":
        raise InputError("folder", f"{out} is not finished", "finish it with `paclab resume`")
    if Path(to).exists() and any(Path(to).iterdir()):
        raise InputError("to", f"{to} is not empty", "choose a new folder")
    model, weights, directions = base(config, run["keys"], run["device"])
    transcript.replay(weights, directions, transcript_lines(out), rules.open_rule(config, run.get("release", {})))
    if weights.digest() != run["weights_sha256"]:
        raise InputError("folder", "the transcript does not rebuild the recorded weights",
                         "see what `paclab verify` finds")
    if config.track == "lora":
        lora.export_peft(model, Path(to))
    else:
        model.module.save_pretrained(to)
        model.tokenizer.save_pretrained(to)
    return Path(to)
