"""Executes one notebook in a process of its own and says, in a line or two, what went wrong if anything did.

Knows papermill and its quirks. Does not know which notebooks to run, or in which order.
"""

import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paclab.files import sha256_file, write_atomic
from paclab.notebook.cell import RECORD

START_FAILURES = (
    "Kernel didn't respond",
    "Kernel died before replying",
    "Address already in use",
    "Invalid Signature",
)


@dataclass(frozen=True)
class Job:
    """One notebook to execute: where it is, what to inject, where results go, and its limits."""

    chapter: str
    label: str
    root: Path
    source: Path
    executed: Path
    folder: Path
    given: dict[str, Any]
    artefacts: tuple[str, ...]
    cell_timeout: int
    threads: int
    memory_gb: float
    expected: float = 60.0
    after: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What came of a job: status `OK`, `RED` or `up to date`, with time, memory and what went wrong."""

    label: str
    status: str
    seconds: float = 0.0
    peak_mb: float = 0.0
    story: list[str] = field(default_factory=list)


def execute(job: Job) -> Outcome:
    """Run the notebook in a fresh kernel; one second try, and only when the kernel failed to start."""
    os.environ.update(
        OMP_NUM_THREADS=str(job.threads),
        OMP_WAIT_POLICY="PASSIVE",  # idle threads sleep: a shared machine would otherwise crawl
        PACLAB_ROOT=str(job.root),
        PACLAB_HEADLESS="1",
        JUPYTER_PREFER_ENV_PATH="1",
        TOKENIZERS_PARALLELISM="false",
    )
    if job.given.get("profile") != "paper":
        os.environ["HF_HUB_OFFLINE"] = "1"
    start = time.time()
    story: list[str] = []
    _own_log(job)
    for attempt in (1, 2):
        error = _papermill(job)
        if attempt == 1 and error is not None and _never_started(error):
            story.append(f"kernel did not start ({_first_line(error)}); tried once more")
            continue
        break
    scrub(job.executed, job.root)
    story += explain(error, job) if error is not None else problems(job, start)
    record = read_record(job.folder)
    status = "RED" if error is not None or problems(job, start) else "OK"
    return Outcome(job.label, status, time.time() - start, record.get("peak_mb", 0.0), story)


def _own_log(job: Job) -> None:
    """What the processes themselves say goes to a log beside the executed copy."""
    job.executed.parent.mkdir(parents=True, exist_ok=True)
    with open(job.executed.with_suffix(".log"), "wb", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _papermill(job: Job) -> Exception | None:
    import logging

    import papermill
    from traitlets.config import Config

    logging.getLogger("papermill").setLevel(logging.ERROR)
    secure = Config({"KernelManager": {"transport_encryption": "required"}})
    try:
        papermill.execute_notebook(
            str(job.source),
            str(job.executed),
            parameters=job.given,
            kernel_name="python3",
            cwd=str(job.source.parent),
            progress_bar=False,
            log_output=False,
            coalesce_streams=True,
            start_timeout=120,
            execution_timeout=job.cell_timeout,
            config=secure,
        )
    except Exception as error:
        return error
    return None


def _never_started(error: Exception) -> bool:
    return any(sign in str(error) for sign in START_FAILURES)


def read_record(folder: Path) -> dict[str, Any]:
    """The run.json of an artefact folder; empty when there is none."""
    path = folder / RECORD
    return json.loads(path.read_text()) if path.is_file() else {}


def problems(job: Job, start: float) -> list[str]:
    """Why a notebook that ran to its end is still not green; empty when it is."""
    record = read_record(job.folder)
    if not record or record["started"] < start - 1:
        return [f"{job.label}: it ended without run.stamp(); make `run.stamp()` the last code cell"]
    found = [f"check failed: {c['text']} {c['detail']}".rstrip() for c in record["checks"] if not c["passed"]]
    for name in job.artefacts:
        digest, path = record["artefacts"].get(name), job.folder / name
        if not digest or not path.is_file():
            found.append(f"declared artefact {name} was not written; save it with run.figure or run.table")
        elif sha256_file(path) != digest:
            found.append(f"artefact {name} changed after the run wrote it; run the chapter again")
    return [f"{job.label}: {text}" for text in found]


def explain(error: Exception, job: Job) -> list[str]:
    """A failure in words: chapter, cell, first line, what happened, and what to do."""
    from papermill.exceptions import PapermillExecutionError

    where = f"{job.label}: cell {{}} (`{{}}`)"
    kept = f"see {_short(job.executed, job.root)}"
    if isinstance(error, PapermillExecutionError):
        first = next((ln for ln in error.source.splitlines() if ln.strip()), "").strip()[:80]
        lines = [where.format(error.cell_index + 1, first) + f": {error.ename}: {_clean(error.evalue)}"]
        fix = "correct that parameter" if error.ename == "InputError" else f"{kept} at that cell"
        return [*lines, f"  fix: {fix}, then `paclab run {job.chapter}`"]
    text = _clean(str(error))
    name = type(error).__name__
    if name == "DeadKernelError" or "Kernel died" in text:
        return [
            f"{job.label}: {_running_cell(job)}: the kernel died, most likely for want of memory",
            f"  fix: the chapter needs about {job.memory_gb:g} GB; close programs, use --jobs 1 or smaller "
            f"parameters; {kept}",
        ]
    if name in ("CellTimeoutError", "TimeoutError"):
        return [
            f"{job.label}: {_running_cell(job)}: took longer than {job.cell_timeout} s",
            f"  fix: smaller parameters, an idle machine, or more minutes in book.toml; {kept}",
        ]
    return [f"{job.label}: {name}: {text[:300]}", f"  fix: {kept}"]


def _running_cell(job: Job) -> str:
    """The last cell that was begun, from the partial notebook."""
    try:
        cells = json.loads(job.executed.read_text())["cells"]
    except (OSError, ValueError):
        return "before the first cell"
    started = [i for i, cell in enumerate(cells) if cell["metadata"].get("papermill", {}).get("start_time")]
    if not started:
        return "before the first cell"
    first = next((ln for ln in "".join(cells[started[-1]]["source"]).splitlines() if ln.strip()), "")
    return f"cell {started[-1] + 1} (`{first.strip()[:80]}`)"


def scrub(path: Path, root: Path) -> None:
    """Take every absolute path out of an executed copy: the project becomes `.`, the home folder `~`."""
    if not path.is_file():
        return
    notebook = json.loads(path.read_text())
    meta = notebook["metadata"].get("papermill", {})
    for name in ("input_path", "output_path"):
        if name in meta:
            meta[name] = Path(meta[name]).name
    meta.pop("environment_variables", None)
    write_atomic(path, clean_paths(json.dumps(notebook, indent=1, ensure_ascii=False), root) + "\n")


def clean_paths(text: str, root: Path) -> str:
    """`text` without the project's, the interpreter's and the home folder, and kernels' scratch names."""
    for folder, stand_in in (
        (root, "."),
        (Path(__file__).resolve().parents[2], "."),
        (Path(sys.prefix), "<environment>"),
        (Path(sys.base_prefix), "<python>"),
        (Path.home(), "~"),
    ):
        if len(folder.parts) > 1:
            text = re.sub(re.escape(str(folder)) + r"(?=[/\"'\\\s:]|$)", stand_in, text)
    return re.sub(r"/[\w/.-]*?ipykernel_\d+/", "<cell>/", text)


def _clean(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())


def _first_line(error: Exception) -> str:
    return _clean(str(error))[:80]


def _short(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name
