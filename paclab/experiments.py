"""Many study-mode runs, cached by content: a cell is one Config, done once, resumed when it was interrupted.

A cell's name hashes its settings, the model's files, the code that decides its numbers (comments and docstrings
aside) and the versions of the libraries that do the arithmetic, so an edit of the mathematics or another torch runs
it again and an edit of prose or a bug-fix release does not. Settings count only where they
differ from their defaults and Config's declarations do not count as code: a new setting renames no older cell, and
a cell whose recorded settings are not the wanted ones (a default was changed) is made again.
"""

import ast
import dataclasses
import functools
import hashlib
import io
import json
import os
from collections.abc import Iterable
from concurrent.futures import as_completed
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paclab import finetune, processes
from paclab.errors import InputError
from paclab.files import sha256_file, sha256_json, write_atomic
from paclab.finetune import Config
from paclab.releases import METHODS
from paclab.reviews import PACKAGE as TEXT

NUMBERS = ("finetune", "tasks", "scoring", "masked", "shortcut", "threads", "prompts", "metrics", "models", "lora",
           "sources", "reviews", "qa_family", "releases/base", "releases/secret", "zo/directions", "zo/probe",
           "zo/update", "zo/train", "privacy/channels", "privacy/consensus", "privacy/posterior", "privacy/budget")
RULE_NUMBERS = ("zo/rules", "zo/sage", "releases/oracle")  # for runs whose update rule is not the plain one

SOURCES = {path: path.read_text() for path in Path(__file__).parent.rglob("*.py")}  # as imported, not as edited since
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "dp-accounting")  # their arithmetic is ours


class Cell(NamedTuple):
    """A finished run of a public pool: settings, held-out results [n], and its private curves (study mode)."""

    config: Config
    run: dict
    loss: np.ndarray
    score: np.ndarray
    infos: list[dict]
    metrics: list[dict]
    folder: Path


def _meaning(path: Path) -> str:
    """A source file's syntax tree without docstrings: what it does, not how it is told."""
    tree = ast.parse(SOURCES[path])
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(
                body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
            node.body = body[1:] or [ast.Pass()]
        if isinstance(node, ast.ClassDef) and node.name == "Config":
            node.body = [part for part in node.body if not isinstance(part, ast.AnnAssign)]
    return ast.dump(tree)


@functools.cache
def code_hash(method: str, rule: str = "plain") -> str:
    """SHA-256 of the code that decides the numbers of a method's runs."""
    root, state = Path(__file__).parent, hashlib.sha256()
    for pattern in (*NUMBERS, *METHODS[method].modules, *(RULE_NUMBERS if rule != "plain" else ())):
        for path in sorted(p for p in SOURCES if p.match(f"{root}/{pattern}.py")):
            state.update(f"{path.relative_to(root)}\n{_meaning(path)}\n".encode())
    return state.hexdigest()


@functools.cache
def _model_hash(model: str) -> str:
    from paclab.models import shipped

    folder = shipped(model) or Path(model)
    files = sorted(p for p in folder.glob("*") if p.suffix in (".json", ".safetensors")) if folder.is_dir() else []
    return hashlib.sha256(b"".join(p.name.encode() + p.read_bytes() for p in files)).hexdigest() if files else model


def _source_hash(source: str) -> str:
    path = Path(source.removeprefix("files:"))
    files = [p for p in (sorted(path.glob("*")) if path.is_dir() else [path]) if p.is_file()]
    return sha256_json([(p.name, sha256_file(p)) for p in files]) if files else source


PATHS = {"model": _model_hash, "source": _source_hash}


def library_versions() -> dict[str, str]:
    """Major and minor version of every library that decides numbers, and the exact one of the embedded text."""
    minor = {name: ".".join(metadata.version(name).split(".")[:2]) for name in LIBRARIES}
    return minor | {TEXT: metadata.version(TEXT)}


def cell_name(config: Config, record: bool = False) -> str:
    """The folder name of a cell: readable, and unique to its content."""
    given = {field.name: value for field in dataclasses.fields(config)
             if (value := getattr(config, field.name)) != field.default}
    given |= {name: hashed(given[name]) for name, hashed in PATHS.items() if name in given}  # contents, not places
    content = sha256_json([given, config.learning_rate(), code_hash(config.method, config.rule),
                           _model_hash(config.model), library_versions(), record])
    return f"{config.task}-{config.method}-{config.track}-s{config.seed}-{content[:16]}"


def load_cell(folder: Path) -> Cell:
    """Read a finished cell."""
    from paclab.zo.train import ledger_lines

    paths, run, config = finetune.read_run(folder)
    loss, score = np.load(folder / "test.npy")
    metrics = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
    return Cell(config, run, loss, score, ledger_lines(paths), metrics, folder)


def _work(config: Config, folder: Path, record: bool, code: str) -> Path:
    """Run or resume one cell in a worker process, which must have read the same code as its parent."""
    if code_hash(config.method, config.rule) != code:
        raise InputError("code", "the package's sources changed while this process ran", "start it again")
    try:
        return _make(config, folder, record)
    finally:
        processes.release_memory()


def _make(config: Config, folder: Path, record: bool) -> Path:
    import shutil

    import torch

    from paclab.zo.train import Busy

    torch.set_num_threads(1)
    if (folder / "run.json").exists():
        try:
            if finetune.read_run(folder)[2] != config:
                raise InputError("out", f"{folder.name} holds other settings", "make it again")
            finetune.resume(folder, record_statistic=_recorder(folder) if record else None)
            return folder
        except Busy:
            raise
        except InputError:  # a cell is a cache entry: a torn one is made again
            shutil.rmtree(folder)
    elif folder.exists():
        shutil.rmtree(folder)
    finetune.start(config, folder, device="cpu", record_statistic=_recorder(folder) if record else None)
    return folder


def _recorder(folder: Path):
    """Keep the per-record statistic of every step as float32 files; study mode only (the run refuses otherwise)."""
    kept = folder / "statistic"

    def record(t: int, statistic: np.ndarray) -> None:
        data = io.BytesIO()
        np.save(data, statistic.astype(np.float32))
        write_atomic(kept / f"{t:05d}.npy", data.getvalue())

    return record


def statistics(cell: Cell) -> np.ndarray:
    """The recorded statistic of a cell: float32 [steps, K, N]; sampled batches are filled up with NaN."""
    files = sorted((cell.folder / "statistic").glob("*.npy"))
    if not files:
        raise InputError("record", f"{cell.folder.name} recorded no per-record values", "run it with record=True")
    steps = [np.load(path) for path in files]
    widest = max(step.shape[1] for step in steps)
    return np.stack([np.pad(step, ((0, 0), (0, widest - step.shape[1])), constant_values=np.nan) for step in steps])


def workers() -> int:
    """Processes to use: what the thread cap allows (one thread each), else the cores of this machine."""
    cap = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(cap)) if cap.isdigit() else os.cpu_count() or 1


def run_cells(configs: Iterable[Config], root: Path | str, *, record: bool = False, jobs: int | None = None,
              watch=None) -> list[Cell]:
    """Run every cell that is not done yet, in worker processes of one thread each; results in the given order.

    `watch(done, total)` is called after each cell. All configs must be in study mode. A cell that fails raises its
    InputError, with its settings named, after the others are done and kept.
    """
    folders, failed = _run(configs, root, record, jobs, watch)
    for folder, error in failed.items():
        raise InputError(error.parameter, f"{error.problem} ({folder.name}; {len(failed)} of {len(folders)} runs "
                         "failed, the others are kept)", error.fix)
    return [load_cell(folder) for folder in folders]


def run_trials(configs: Iterable[Config], root: Path | str, *, jobs: int | None = None,
               watch=None) -> list[Cell | None]:
    """As `run_cells`, for a search: None stands for a run that diverged until its losses were not finite."""
    folders, failed = _run(configs, root, False, jobs, watch)
    for error in failed.values():
        if error.parameter != "loss":
            raise error
    return [None if folder in failed else load_cell(folder) for folder in folders]


def _run(configs: Iterable[Config], root: Path | str, record: bool, jobs: int | None,
         watch) -> tuple[list[Path], dict[Path, InputError]]:
    """The folder of every config, and what stopped those that failed."""
    configs, root = [finetune.located(config) for config in configs], Path(root)
    if any(not config.study for config in configs):
        raise InputError("study", "a cached experiment reads private curves", "set study=True: a public pool only")
    folders = [root / cell_name(config, record) for config in configs]
    todo = {folder: config for folder, config in zip(folders, configs, strict=True) if not _finished(folder, config)}
    done, failed = len(configs) - len(todo), {}
    if watch:
        watch(done, len(configs))
    if todo:
        with processes.pool(min(jobs or workers(), len(todo)), preload=("paclab.experiments",)) as pool:
            futures = {pool.submit(_work, config, folder, record, code_hash(config.method, config.rule)): folder
                       for folder, config in todo.items()}
            for future in as_completed(futures):
                try:
                    future.result()
                except InputError as error:
                    failed[futures[future]] = error
                done += 1
                if watch:
                    watch(done, len(configs))
    return folders, failed


def _finished(folder: Path, config: Config) -> bool:
    try:
        run = json.loads((folder / "run.json").read_text())
        return run["status"] == "complete" and Config(**run["config"]) == config
    except (OSError, ValueError, KeyError, TypeError):
        return False
