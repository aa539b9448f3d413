"""The strict runner: which notebooks to execute, in which order, side by side, and what counts as green.

Knows the book, processes and the ledger of time and memory. Does not know what a notebook computes.
"""

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from paclab.errors import InputError
from paclab.files import sha256_file, write_json
from paclab.notebook import publish
from paclab.notebook.book import Book, Chapter, differing, resolve
from paclab.notebook.cell import artefact_folder, run_key
from paclab.notebook.provenance import free_memory_gb
from paclab.notebook.widgets import clock
from paclab.notebook.worker import Job, Outcome, execute, read_record
from paclab.processes import leave_with_parent

HEARTBEAT = 30.0
MIN_TIMEOUT = {"quick": 120, "desk": 3600, "paper": 6 * 3600}
SHIPPED_MODELS = ("embedded", "masked")  # of paclab.models, not imported here: it brings torch, seconds of start
Say = Callable[[str], None]


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_jobs() -> int:
    """One notebook per two cores, so that each computes with two threads wherever it runs."""
    return max(1, cores() // 2)


def make_job(book: Book, chapter: Chapter, given: Mapping[str, Any], jobs: int) -> Job:
    """Check the given parameters (InputError) and describe the execution."""
    given = {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
    profile, values = resolve(chapter, given)
    for name in ("model", "models"):
        check_models(name, values.get(name), book.root)
    if not book.notebook(chapter).is_file():
        raise InputError(
            "chapter", f"notebooks/{chapter.id}.ipynb does not exist", "write it or mend book.toml"
        )
    folder = artefact_folder(book, chapter, values)
    label = chapter.id if not differing(chapter, values) else f"{chapter.id} {_words(chapter, values)}"
    executed = book.root / "runs" / profile / "executed" / f"{_stem(book, chapter, values)}.ipynb"
    past = read_ledger(book.root, profile).get(executed.stem, {}).get("seconds", 0.0)
    expected = max(past, 0.0) or 60.0 * chapter.minutes[profile]
    slowest = max(expected, 60.0 * chapter.minutes[profile])
    timeout = int(max(MIN_TIMEOUT[profile], 5 * slowest))
    return Job(
        chapter.id,
        label,
        book.root,
        book.notebook(chapter),
        executed,
        folder,
        {**given, "profile": profile},
        chapter.artefacts,
        timeout,
        max(1, cores() // jobs),
        chapter.memory_gb,
        expected,
        chapter.after,
    )


def check_models(name: str, value: str | list[str] | None, root: Path) -> None:
    """Refuse a mistyped model before any worker starts: neither shipped, nor a folder here, nor with a / in its name.

    A name with a / is left to the loader: a path, or a model on the hub.
    """
    for model in [value] if isinstance(value, str) else value or ():
        if model in SHIPPED_MODELS or "/" in model or model.startswith("hub:"):
            continue
        if not model or not any((place / model).is_dir() for place in (Path.cwd(), root, root / "notebooks")):
            fix = f"give {', '.join(SHIPPED_MODELS)}, a folder, or hub:OWNER/NAME"
            raise InputError(name, f"no model {model!r}", fix)


def _make_folder(folder: Path) -> None:
    """Make the folder that was asked for now, so that one that cannot be had is told before any worker starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("out_dir", f"cannot make {folder} ({error.strerror})", "name another folder") from None


def _stem(book: Book, chapter: Chapter, values: Mapping[str, Any]) -> str:
    """Name of a run's executed copy and ledger entry; one with a folder of its own does not pass for the chapter's."""
    name = artefact_folder(book, chapter, {**values, "out_dir": None}).name
    return f"{name}-elsewhere" if values["out_dir"] else name


def _words(chapter: Chapter, values: Mapping[str, Any]) -> str:
    return " ".join(f"{n}={v}" for n, v in differing(chapter, values).items())


def up_to_date(book: Book, chapter: Chapter, given: Mapping[str, Any]) -> bool:
    """Whether a green headless run with the same inputs exists and its files are as it wrote them."""
    _, values = resolve(chapter, given)
    folder = artefact_folder(book, chapter, values)
    record = read_record(folder)
    if not (
        record.get("green") and record.get("headless") and record["key"] == run_key(book, chapter, values)
    ):
        return False
    return all(
        (folder / name).is_file() and sha256_file(folder / name) == digest
        for name, digest in record["artefacts"].items()
    )


def status(book: Book, chapter: Chapter, profile: str) -> str:
    """up to date, stale, failed, shipped (made elsewhere, unchanged since), shipped, older, never run, or
    `no <profile>`."""
    if profile not in chapter.minutes:
        return f"no {profile} profile"
    if not book.notebook(chapter).is_file():
        return "not written"
    last = read_ledger(book.root, profile).get(chapter.id)
    if last and last["status"] == "RED":
        return "failed"
    if up_to_date(book, chapter, {"profile": profile}):
        return "up to date"
    return "stale" if last else publish.shipped(book, chapter, profile) or "never run"


def ledger_path(root: Path, profile: str) -> Path:
    """Where time and memory of past runs are kept."""
    return root / "runs" / profile / "ledger.json"


def read_ledger(root: Path, profile: str) -> dict[str, dict[str, Any]]:
    """Seconds, peak memory and status of the last run per artefact folder."""
    path = ledger_path(root, profile)
    return json.loads(path.read_text()) if path.is_file() else {}


def write_ledger(job: Job, outcome: Outcome) -> None:
    """Remember what a run cost."""
    profile = job.given["profile"]
    entries = read_ledger(job.root, profile)
    entries[job.executed.stem] = {
        "status": outcome.status,
        "seconds": round(outcome.seconds, 1),
        "peak_mb": outcome.peak_mb,
    }
    write_json(ledger_path(job.root, profile), entries)


def run_book(
    book: Book,
    names: Iterable[str] = (),
    *,
    profile: str = "quick",
    given: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    force: bool = False,
    say: Say = print,
) -> list[Outcome]:
    """Execute the named chapters (all that offer the profile by default), skipping what is up to date.

    Raises InputError for an unknown chapter, parameter or value before anything starts.
    """
    chosen = [book.chapter(name) for name in names]
    if not chosen:
        chosen = [c for c in book.chapters.values() if profile in c.minutes]
    tasks = [
        (chapter, {**(given or {}), "profile": profile})
        for chapter in dict.fromkeys(c.id for c in chosen)
        for chapter in [book.chapters[chapter]]
    ]
    return run_tasks(book, tasks, jobs=jobs, force=force, say=say)


def run_tasks(
    book: Book,
    tasks: list[tuple[Chapter, dict[str, Any]]],
    *,
    jobs: int | None = None,
    force: bool = False,
    say: Say = print,
) -> list[Outcome]:
    """Execute (chapter, parameters) pairs in worker processes; a chapter waits for those that it reads."""
    if jobs is not None and jobs < 1:
        raise InputError("jobs", f"{jobs} is not a number of processes", "give 1 or more")
    jobs = min(jobs or default_jobs(), max(1, len(tasks)))
    queue = [(chapter, given, make_job(book, chapter, given, jobs)) for chapter, given in tasks]
    for _, given, job in queue:
        if given.get("out_dir"):
            _make_folder(job.folder)
    return _Schedule(book, queue, jobs, force, say).run()


class _Schedule:
    """The queue of one call: what waits, what runs since when, what is done."""

    def __init__(self, book: Book, queue: list, jobs: int, force: bool, say: Say):
        self.book, self.waiting, self.jobs, self.force, self.say = book, queue, jobs, force, say
        self.total, self.done = len(queue), []
        self.running: dict[Future, tuple[Chapter, dict, Job, float]] = {}

    def run(self) -> list[Outcome]:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.jobs, mp_context=context, max_tasks_per_child=1,
                                 initializer=leave_with_parent) as pool:
            while self.waiting or self.running:
                self._start(pool)
                if not self.running:
                    continue
                ended, _ = wait(self.running, timeout=HEARTBEAT, return_when=FIRST_COMPLETED)
                if not ended:
                    self._heartbeat()
                for future in ended:
                    self._finish(future)
        return self.done

    def _start(self, pool: ProcessPoolExecutor) -> None:
        pending = {c.id for c, _, _ in self.waiting} | {c.id for c, _, _, _ in self.running.values()}
        for item in list(self.waiting):
            chapter, given, job = item
            blocked = any(name in pending and name != chapter.id for name in chapter.after)
            if blocked or len(self.running) >= self.jobs:
                continue
            self.waiting.remove(item)
            if not self.force and up_to_date(self.book, chapter, given):
                self._publish(chapter, given, job)
                self._report(Outcome(job.label, "up to date"))
                continue
            if free_memory_gb() < chapter.memory_gb:
                self.say(
                    f"note: {job.label} wants {chapter.memory_gb:g} GB, {free_memory_gb():.1f} GB are free"
                )
            self.running[pool.submit(execute, job)] = (chapter, given, job, time.time())

    def _finish(self, future: Future) -> None:
        chapter, given, job, since = self.running.pop(future)
        try:
            outcome = future.result()
        except Exception as error:
            story = [
                f"{job.label}: its process ended abruptly ({error})",
                "  fix: free memory, then run it again",
            ]
            outcome = Outcome(job.label, "RED", time.time() - since, story=story)
        if outcome.status == "OK":
            large = publish.oversized(job.folder, read_record(job.folder))
            if large:
                outcome.status = "RED"
                outcome.story.append(
                    f"{job.label}: {', '.join(large)} over 300 kB; save fewer points or rows"
                )
            else:
                self._publish(chapter, given, job)
        write_ledger(job, outcome)
        self._report(outcome)

    def _publish(self, chapter: Chapter, given: dict[str, Any], job: Job) -> None:
        profile, values = resolve(chapter, given)
        plain = not differing(chapter, values) and not values["out_dir"]
        if plain and not publish.is_published(self.book, chapter, profile, job.folder):
            publish.publish(self.book, chapter, profile, job.folder)

    def _report(self, outcome: Outcome) -> None:
        self.done.append(outcome)
        left = self._seconds_left()
        cost = f"{clock(outcome.seconds):>12}  {outcome.peak_mb:5.0f} MB" if outcome.seconds else ""
        tail = f"   about {clock(left)} left" if left > 1 else ""
        self.say(f"[{len(self.done)}/{self.total}] {outcome.label:<28} {outcome.status:<10}{cost}{tail}")
        for line in outcome.story:
            self.say(f"      {line}")

    def _seconds_left(self) -> float:
        now = time.time()
        rest = sum(job.expected for _, _, job in self.waiting)
        rest += sum(max(0.0, job.expected - (now - since)) for _, _, job, since in self.running.values())
        return rest / self.jobs

    def _heartbeat(self) -> None:
        for _, _, job, since in self.running.values():
            self.say(
                f"      {job.label}: {_cell_count(job)}running {clock(time.time() - since)} of about "
                f"{clock(job.expected)}"
            )


def _cell_count(job: Job) -> str:
    """`cell 7 of 24, ` from the partial notebook that papermill keeps; empty while it is being written."""
    try:
        cells = json.loads(job.executed.read_text())["cells"]
    except (OSError, ValueError):
        return ""
    done = sum(c["metadata"].get("papermill", {}).get("status") == "completed" for c in cells)
    return f"cell {min(done + 1, len(cells))} of {len(cells)}, "
