"""A grid file: one chapter, lists of parameter values, and the runs that their product makes.

Knows TOML and products. Does not execute anything.

    chapter = "13_paczero"
    profile = "quick"
    seeds = [0, 1, 2]
    [parameters]
    lr = [1e-4, 1e-3]          # a parameter that is itself a list takes a list of lists
"""

import itertools
import tomllib
from pathlib import Path
from typing import Any

from paclab.errors import InputError, nearest
from paclab.notebook.book import Book, Chapter, resolve

FIELDS = ("chapter", "profile", "seeds", "parameters")
KINDS = (  # what a field must be (seeds are checked as lists of values are), and how it is written
    ("chapter", str, 'write one name: chapter = "13_paczero"'),
    ("profile", str, 'write one name: profile = "quick"'),
    ("parameters", dict, "write [parameters] and one list a line"),
)


def read_grid(book: Book, path: Path) -> list[tuple[Chapter, dict[str, Any]]]:
    """The product of a grid file's lists as (chapter, parameters) pairs, every one checked."""
    try:
        raw = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise InputError("grid", f"cannot read {path} ({error.strerror})", "give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError("grid", f"{path} is not valid TOML ({error})", "mend that line") from None
    for key in raw:
        if key not in FIELDS:
            raise InputError("grid", f"unknown field {key!r}", nearest(key, FIELDS))
    if "chapter" not in raw:
        raise InputError("grid", "names no chapter", 'add chapter = "13_paczero"')
    for key, kind, fix in KINDS:
        if not isinstance(raw.get(key, kind()), kind):
            raise InputError(key, f"{raw[key]!r} does not fit a grid", fix)
    chapter = book.chapter(raw["chapter"])
    axes = dict(raw.get("parameters", {}))
    if "seeds" in raw:
        axes["seed"] = raw["seeds"]
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise InputError(name, "must be a list of values in a grid", f"write {name} = [{values!r}]")
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    tasks = [(chapter, {**point, "profile": raw.get("profile", "quick")}) for point in points]
    for _, given in tasks:
        resolve(chapter, given)
    return tasks
