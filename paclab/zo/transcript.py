"""The minimal public transcript: one line a step with the learning rate and the released values.

    <t> <lr> <Y_1> [... <Y_K>]

Numbers are written so that reading them back gives the same floats. Together with the base weights and the
direction key of run.json it rebuilds the trained weights bit for bit; nothing else left the private side.
"""

import errno
import math
import os
from pathlib import Path
from typing import NamedTuple

from paclab.errors import InputError
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights
from paclab.zo.update import PLAIN, Follower, Rule


class Line(NamedTuple):
    """One public step."""

    t: int
    lr: float
    values: tuple[float, ...]

    def text(self) -> str:
        return " ".join([str(self.t), repr(self.lr), *(format_value(v) for v in self.values)]) + "\n"


def format_value(value: float) -> str:
    """Whole numbers without a point, others in full precision."""
    whole = math.isfinite(value) and value == int(value) and abs(value) < 1e15
    return str(int(value)) if whole else repr(float(value))


def append(path: Path, text: str, mode: int = 0o644) -> None:
    """Append one line and wait until it is on the disk."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
        try:
            before, data = os.fstat(fd).st_size, text.encode()
            if os.write(fd, data) != len(data):
                os.ftruncate(fd, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise InputError("folder", f"cannot write {path} ({error.strerror})",
                         "free some space and go on with `paclab resume`: no step was lost") from None


def cut_torn_line(path: Path) -> None:
    """Cut a last line that a kill left half-written; only the process that holds the run's lock may do so."""
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(path, whole)


def whole_lines(path: Path) -> list[str]:
    """The complete lines of an append-only file; a torn last line is left out. Changes nothing."""
    if not path.exists():
        return []
    data = path.read_bytes()
    try:
        return data[: data.rfind(b"\n") + 1].decode().splitlines()
    except UnicodeDecodeError:
        raise InputError("folder", f"{path.name} is not text", "restore the file") from None


def read(path: Path, directions: int | None = None) -> list[Line]:
    """The transcript as lines; anything that is not one is refused with its place."""
    lines = []
    for number, text in enumerate(whole_lines(path)):
        parts = text.split(" ")
        try:
            line = Line(int(parts[0]), float(parts[1]), tuple(float(v) for v in parts[2:]))
        except (ValueError, IndexError):
            raise InputError("transcript", f"line {number + 1} is not `t lr Y...`", "restore the file") from None
        wrong_count = not line.values or (directions is not None and len(line.values) != directions)
        finite = math.isfinite(line.lr) and all(math.isfinite(v) for v in line.values)
        if line.t != number or wrong_count or not finite or line.text().rstrip("\n") != text:
            raise InputError("transcript", f"line {number + 1} is out of place or altered", "restore the file")
        lines.append(line)
    return lines


def replay(weights: Weights, directions: Directions, lines: list[Line], rule: Rule = PLAIN) -> Follower:
    """Apply a transcript's steps to the base weights; the same arithmetic as in training."""
    follower = Follower(weights, directions, rule)
    for line in lines:
        follower.apply(line.t, line.lr, line.values)
    return follower
