"""The command `paclab`: builds the command tree and turns bad input into one line and exit status 2."""

import importlib
import os
import sys

import typer

from paclab.errors import InputError

GROUPS = {  # file -> its commands, in the order of the help page
    "train": ("train", "resume", "export", "verify"), "pretrain": ("pretrain",),
    "book": ("list", "run", "lint", "report"), "risk": ("risk",), "rates": ("rates",)}

app = typer.Typer(name="paclab", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Private language learning, measured: train, verify, price and reproduce.")


@app.callback()
def about() -> None:
    """Keep sub-commands even while there is a single one."""


def build(command: str | None = None) -> typer.Typer:
    """The command tree: the group of one command when it is known (a quick start), else all groups."""
    wanted = [group for group, commands in GROUPS.items() if command in commands] or GROUPS
    for group in wanted:
        importlib.import_module(f"paclab.cli.{group}").register(app)
    return app


def main() -> None:
    """Entry point of the console command."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads sleep: a shared machine would otherwise crawl
    try:
        build(sys.argv[1] if len(sys.argv) > 1 else None)()
    except InputError as error:
        print(f"paclab: {error}", file=sys.stderr)
        raise SystemExit(2) from None
