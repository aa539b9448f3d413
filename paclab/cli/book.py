"""Commands about the book: list, run, lint, report."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from paclab.errors import InputError

Profile = Annotated[
    str, typer.Option(help="quick (offline, minutes), desk (all rows, hours), paper (hub, GPU)")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the tree."""
    app.command("list")(list_chapters)
    app.command("run")(run)
    app.command("lint")(lint)
    app.command("report")(report)


def list_chapters() -> None:
    """Every chapter: its question, minutes per profile (declared, and measured here), its state."""
    from paclab.notebook.book import PROFILES, load_book
    from paclab.notebook.runner import read_ledger, status

    book = load_book()
    print(
        f"{'chapter':<22} {'quick min':>10} {'here':>6} {'MB':>6} {'desk min':>9}  "
        f"{'quick':<12} {'desk':<16} question"
    )
    ledgers = {profile: read_ledger(book.root, profile) for profile in PROFILES}
    for chapter in book.chapters.values():
        here = ledgers["quick"].get(chapter.id, {})
        spent = f"{here['seconds'] / 60:.1f}" if here else "-"
        peak = f"{here['peak_mb']:.0f}" if here else "-"
        declared = [f"{chapter.minutes[p]:g}" if p in chapter.minutes else "-" for p in ("quick", "desk")]
        states = [status(book, chapter, p) for p in ("quick", "desk")]
        print(
            f"{chapter.id:<22} {declared[0]:>10} {spent:>6} {peak:>6} {declared[1]:>9}  "
            f"{states[0]:<12} {states[1]:<16} {chapter.question}"
        )


def run(
    ids: Annotated[
        list[str] | None, typer.Argument(help="chapters, by id or number; all when left out")
    ] = None,
    profile: Profile = "quick",
    jobs: Annotated[
        int | None, typer.Option(help="notebooks side by side; default one per two cores")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, a parameter; may be repeated")
    ] = None,
    grid: Annotated[
        Path | None, typer.Option(help="TOML file with lists of values; runs their product")
    ] = None,
    force: Annotated[bool, typer.Option(help="run again what is up to date")] = False,
) -> None:
    """Execute chapters headlessly, skip what is up to date, publish figures and tables of default runs."""
    from paclab.notebook.book import PROFILES, load_book
    from paclab.notebook.grid import read_grid
    from paclab.notebook.runner import run_book, run_tasks

    if profile not in PROFILES:
        raise InputError("profile", f"{profile!r} is not a profile", f"choose one of: {', '.join(PROFILES)}")
    book, given = load_book(), parse_settings(set_ or [])
    if grid is not None:
        if ids or given:
            raise InputError("grid", "chapters and --set do not go with it", "write both into the grid file")
        outcomes = run_tasks(book, read_grid(book, grid), jobs=jobs, force=force)
    else:
        outcomes = run_book(book, ids or (), profile=profile, given=given, jobs=jobs, force=force)
    red = [outcome.label for outcome in outcomes if outcome.status == "RED"]
    print(
        f"{len(outcomes) - len(red)} of {len(outcomes)} green" + (f"; red: {', '.join(red)}" if red else "")
    )
    if red:
        raise typer.Exit(1)


def lint(ids: Annotated[list[str] | None, typer.Argument(help="chapters; all when left out")] = None) -> None:
    """Check the notebooks' sources without running them."""
    from paclab.notebook.book import load_book
    from paclab.notebook.lint import lint_book

    found = lint_book(load_book(), ids or ())
    for line in found:
        print(line)
    if found:
        raise typer.Exit(1)
    print("notebooks: clean")


def report(profile: Profile = "desk") -> None:
    """The papers' numbers beside ours, failing rows first; also as CSV, Markdown and LaTeX under figures/."""
    from paclab.notebook.book import PROFILES, load_book
    from paclab.notebook.report import write_report

    if profile not in PROFILES:
        raise InputError("profile", f"{profile!r} is not a profile", f"choose one of: {', '.join(PROFILES)}")
    print(write_report(load_book(), profile))


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE texts as parameters; a value is TOML (3, 1e-3, true, [1, 2], "text") or else plain text."""
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise InputError("set", f"{pair!r} has no value", "write --set name=value")
        try:
            given[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            given[name.strip()] = text.strip()
        if name.strip() == "profile":
            raise InputError("set", "profile has an option of its own", f"write --profile {text.strip()}")
        if name.strip() == "out_dir":
            given["out_dir"] = str(Path(text.strip().strip('"')).expanduser().resolve())
    return given
