"""The command `paclab`: builds the command tree and turns bad input into one line and exit status 2."""

import importlib
import sys

import typer

from paclab.errors import InputError

GROUPS = ("train", "pretrain", "book", "risk", "rates")

app = typer.Typer(name="paclab", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Private language learning, measured: train, verify, price and reproduce.")


@app.callback()
def about() -> None:
    """Keep sub-commands even while there is a single one."""


def build() -> typer.Typer:
    """The whole command tree; each group file registers its own commands."""
    for group in GROUPS:
        importlib.import_module(f"paclab.cli.{group}").register(app)
    return app


def main() -> None:
    """Entry point of the console command."""
    try:
        build()()
    except InputError as error:
        print(f"paclab: {error}", file=sys.stderr)
        raise SystemExit(2) from None
