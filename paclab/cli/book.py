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
    """Every chapter: minutes declared and of the last run here, its state and its question.

    States: up to date, stale (something changed since), failed, shipped (its figures and tables came with paclab
    and were made elsewhere), shipped, older (by an earlier edition of the notebook: a text may differ), never run.
    """
    from paclab.notebook.book import load_book
    from paclab.notebook.runner import read_ledger, status

    book, profiles = load_book(), ("quick", "desk")
    ledgers = {profile: read_ledger(book.root, profile) for profile in profiles}
    columns = "".join(f"  {profile + ' min':>9} {'here':>6}  {'state':<15}" for profile in profiles)
    print(f"{'chapter':<22}{columns}{'MB':>5}  question")
    for chapter in book.chapters.values():
        line = f"{chapter.id:<22}"
        for profile in profiles:
            declared = f"{chapter.minutes[profile]:g}" if profile in chapter.minutes else "-"
            here = ledgers[profile].get(chapter.id, {})
            spent = f"{here['seconds'] / 60:.1f}" if here else "-"
            line += f"  {declared:>9} {spent:>6}  {status(book, chapter, profile):<15}"
        peaks = [ledgers[profile][chapter.id]["peak_mb"] for profile in profiles if chapter.id in ledgers[profile]]
        print(line + (f"{max(peaks):5.0f}" if peaks else f"{'-':>5}") + f"  {chapter.question}")


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


def report(
    profile: Profile = "desk",
    paper: Annotated[list[str] | None, typer.Option(help="only these papers; may be repeated")] = None,
    table: Annotated[str, typer.Option(help="only tables whose name has this in it")] = "",
    chapter: Annotated[str, typer.Option(help="only the papers' tables this chapter gives numbers to")] = "",
    status: Annotated[
        list[str] | None, typer.Option(help="differs, close, match, 'not run', 'not comparable'; may be repeated")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="list every row, not the counts and failing rows only")] = False,
    csv: Annotated[Path | None, typer.Option(help="write the chosen rows, every digit")] = None,
    latex: Annotated[Path | None, typer.Option(help="write the chosen rows as a booktabs table")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write the chosen rows as a Markdown table")] = None,
) -> None:
    """The papers' numbers beside ours: counts of every status first, then the failing rows."""
    from paclab.files import write_atomic
    from paclab.notebook import formats
    from paclab.notebook import report as made
    from paclab.notebook.book import PROFILES, load_book

    if profile not in PROFILES:
        raise InputError("profile", f"{profile!r} is not a profile", f"choose one of: {', '.join(PROFILES)}")
    book, words = load_book(), tuple(word.replace("-", " ") for word in status or ())
    filters = made.Filters(tuple(paper or ()), table, chapter, words)
    chosen = made.select(made.build_report(book, profile), book, filters)
    print(made.text(chosen, profile, everything=every, narrowed=any(filters)))
    shown, title = made.as_shown(chosen), f"Published and measured numbers, {profile} profile"
    for path, content in ((csv, formats.to_csv(chosen)), (latex, formats.to_latex(shown, title)),
                          (markdown, formats.to_markdown(shown))):
        if path is not None:
            write_atomic(path, content)
            print(f"{len(chosen)} rows written to {path}")


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
