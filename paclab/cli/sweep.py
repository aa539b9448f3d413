"""`paclab sweep`: hyper-parameter search on a public pool, from a grid file, with the whole grid as its result."""

import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated

import typer

from paclab.errors import InputError
from paclab.sweep import EXAMPLE

HELP = ("Search settings on a public pool: every trial's dev numbers, the best per group marked.\n\n"
        "Study mode only: each trial on a private pool would spend a budget of its own. Done trials are kept under "
        "runs/cells, so an interrupted sweep goes on where it stopped. A grid file:\n\n"
        + "\n\n".join("\b\n" + part for part in EXAMPLE.replace("[", r"\[").split("\n\n")))


class Meter:
    """Lines of progress: trials done and time left, at most every ten seconds."""

    def __init__(self, every: float = 10.0):
        self.every, self.began, self.shown, self.first = every, time.monotonic(), 0.0, None

    def __call__(self, done: int, total: int) -> None:
        from paclab.notebook.widgets import clock

        now = time.monotonic()
        if self.first is None:
            self.first = done
            typer.echo(f"{total} runs, {done} of them on disk already")
        elif done == total or now - self.shown >= self.every:
            spent = now - self.began
            left = spent / max(1, done - self.first) * (total - done)
            typer.echo(f"{done}/{total} runs, {clock(spent)} so far, about {clock(left)} left")
            self.shown = now


def sweep_command(
    file: Annotated[Path | None, typer.Argument(help="TOML grid file")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the tables; default: runs/sweeps/FILE'S NAME")] = None,
    metric: Annotated[str | None, typer.Option(help="dev_loss or dev_score; wins over the file")] = None,
    jobs: Annotated[int | None, typer.Option(help="worker processes of one thread; default: one a core", min=1)] = None,
    dry_run: Annotated[bool, typer.Option(help="only count the trials")] = False,
    example: Annotated[bool, typer.Option(help="print an example file and stop")] = False,
) -> None:
    if example:
        typer.echo(EXAMPLE, nl=False)
        return
    from paclab import sweep

    if file is None:
        raise InputError("file", "is missing", "give a grid file; `paclab sweep --example` prints one")
    plan = sweep.read_sweep(file)
    plan = plan._replace(metric=metric or plan.metric)
    sweep.check(plan.configs, plan.per, plan.metric, plan.unequal)
    seeds = sorted({c.seed for c in plan.configs})
    typer.echo(f"{len(plan.configs)} runs: {len(plan.configs) // len(seeds)} trials on seeds "
               f"{', '.join(map(str, seeds))}; {plan.metric} picks the best per {', '.join(plan.per) or 'sweep'}")
    if dry_run:
        return
    place = _root()
    tuned = sweep.tune(plan.configs, place / "runs" / "cells", per=plan.per, metric=plan.metric, jobs=jobs,
                       watch=Meter(), unequal=plan.unequal)
    folder = out or place / "runs" / "sweeps" / file.stem
    write(tuned, folder)
    _print(tuned, folder)


def _root() -> Path:
    """The project's folder when there is one, else the current one."""
    from paclab.notebook.book import find_root

    try:
        return find_root()
    except InputError:
        return Path.cwd()


def write(tuned, folder: Path) -> None:
    """grid.csv and grid.tex hold every trial; best.json the winners' settings."""
    from paclab.files import write_atomic, write_json
    from paclab.notebook.formats import formatted, to_csv, to_latex

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("out", f"cannot create {folder} ({error.strerror})", "choose another folder") from None
    write_atomic(folder / "grid.csv", to_csv(tuned.grid))
    write_atomic(folder / "grid.tex", to_latex(formatted(tuned.grid), f"Every trial, best per "
                                               f"{', '.join(tuned.per) or 'sweep'} marked", tuned.note()))
    winners = [{"group": dict(zip(tuned.per, group, strict=True)), "config": dataclasses.asdict(config)}
               for group, config in tuned.best.items()]
    write_json(folder / "best.json", json.loads(json.dumps(winners)))


def _print(tuned, folder: Path) -> None:
    from paclab.notebook.formats import formatted

    typer.echo(formatted(tuned.grid).to_string(index=False))
    typer.echo(tuned.note())
    counts = tuned.grid.groupby(list(tuned.per) or (lambda _: 0), sort=False, dropna=False)["trials"].first()
    typer.echo(f"Trials per group: {', '.join(map(str, sorted(set(counts))))}. Tables: {folder}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sweep", help=HELP)(sweep_command)
