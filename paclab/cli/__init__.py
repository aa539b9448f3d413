"""The command `paclab`: builds the command tree and turns bad input into one line and exit status 2."""

import errno
import importlib
import os
import sys

import typer

from paclab.cli import messages
from paclab.errors import InputError

GROUPS = {  # file -> its commands, in the order of the help page
    "train": ("train", "resume", "export", "verify"), "sweep": ("sweep",), "pretrain": ("pretrain",),
    "book": ("list", "run", "lint", "report"), "risk": ("risk",), "calibrate": ("calibrate",),
    "rates": ("rates",), "ledger": ("ledger",)}

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

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
    """Entry point of the console command: every mistake is one line on stderr and exit status 2."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads sleep: a shared machine would otherwise crawl
    words = sys.argv[1:]
    command = typer.main.get_command(build(words[0] if words else None))
    try:
        status = command.main(words, prog_name="paclab", standalone_mode=False)
    except InputError as error:
        _stop(messages.input_line(error, messages.leaf(command, words)))
    except messages.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            raise SystemExit(2) from None
        _stop(messages.usage_line(error))
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        _stop(f"{error.filename or 'disk'}: {error.strerror}; check that file, its folder and the free space")
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    if status == 130:
        print("paclab: interrupted", file=sys.stderr)
    if isinstance(status, int) and status:
        raise SystemExit(status)


def _stop(line: str) -> None:
    print(f"paclab: {line}", file=sys.stderr)
    raise SystemExit(2) from None
