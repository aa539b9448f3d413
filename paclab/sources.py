"""Where records come from: the embedded text, a local file, a folder of published splits, or the hub.

Knows file formats, columns and the papers' way of drawing splits; knows no prompt, no model and no metric.
Records are dictionaries: sentiment {"sentence", "label"}, qa {"title", "context", "question", "answers"},
lm {"text"}.
"""

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paclab import qa_family
from paclab.errors import InputError, nearest
from paclab.files import sha256_file
from paclab.reviews import PACKAGE, PRIVATE, key, reviews

Record = dict[str, Any]

COLUMNS = {"sentiment": ("sentence", "label"), "qa": ("context", "question", "answers"), "lm": ("text",)}
PUBLISHED = {"sentiment": "sst2", "qa": "squad", "lm": "wikitext"}
HUB = {
    "sst2": ("nyu-mll/glue", "sst2"),
    "squad": ("rajpurkar/squad", "plain_text"),
    "wikitext": ("Salesforce/wikitext", "wikitext-2-raw-v1"),
}
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".txt")
QA_UNIVERSE = 4000  # records of the embedded question-answering universe
PUBLISHED_TEST = 1000  # test records taken from a published validation split (SST-2 has only 872)


class Splits(NamedTuple):
    """Pool (the private universe), dev (public by declaration) and test records, and where they come from."""

    pool: list[Record]
    dev: list[Record]
    test: list[Record]
    provenance: dict[str, Any]


def load_splits(
    task: str,
    source: str | Path = "embedded",
    seed: int = 0,
    pool: int = 1000,
    dev: int = 500,
    test: int | None = None,
) -> Splits:
    """Draw disjoint pool, dev and test records of a task, a function of the source and the seed.

    `source` is `embedded`, a path (JSON, JSON lines, CSV or Parquet, gzip allowed; text lines for lm),
    `files:FOLDER` (published splits by file name) or `hub:sst2 | hub:squad | hub:wikitext`. One table is
    permuted with `numpy.random.RandomState(seed)`: first `pool`, next `dev`, then `test` records (None: all
    that are left, at most 1,000 for qa). Published splits follow PACZero: pool and dev from the permuted
    training split, test from the validation split permuted with the same seed (None: the first 1,000, or
    all if fewer). Raises InputError for an unknown task or source, wrong columns, too few records, an empty
    or single-class pool, or a missing hub.
    """
    if task not in COLUMNS:
        raise InputError("task", f"unknown task {task!r}", nearest(task, COLUMNS))
    for name, value, least in (("pool", pool, 1), ("dev", dev, 0), ("test", test, 0), ("seed", seed, 0)):
        if value is not None and value < least:
            raise InputError(name, f"{value} is too small", f"give at least {least}")
    kind, _, rest = str(source).partition(":")
    if kind == "files" and rest:
        train, held, origin = _folder(task, Path(rest))
        splits = _published(train, held, seed, pool, dev, test)
    elif kind == "hub":
        train, held, origin = _hub(task, rest)
        splits = _published(train, held, seed, pool, dev, test)
    else:
        records, origin = _embedded(task) if str(source) == "embedded" else _file(task, source)
        splits = _one_table(
            records, seed, pool, dev, PUBLISHED_TEST if task == "qa" and test is None else test
        )
    _check_pool(task, splits[0])
    provenance = {
        "task": task,
        "source": str(source),
        "seed": seed,
        **origin,
        "sizes": {n: len(s) for n, s in zip(("pool", "dev", "test"), splits, strict=True)},
    }
    if task == "sentiment":
        provenance["classes"] = {
            n: class_counts(s) for n, s in zip(("pool", "dev", "test"), splits, strict=True)
        }
    return Splits(*splits, provenance)


def located(source: str) -> str:
    """The source with an existing file or folder named by its absolute path: it is found from any other folder."""
    kind, _, rest = source.partition(":")
    prefix, path = ("files:", rest) if kind == "files" and rest else ("", source)
    return prefix + str(Path(path).resolve()) if source != "embedded" and Path(path).exists() else source


def class_counts(records: Iterable[Record]) -> dict[str, int]:
    """How many records carry each label, by the label's name as text."""
    return {str(label): n for label, n in sorted(Counter(r["label"] for r in records).items())}


def permutation(n: int, seed: int) -> np.ndarray:
    """The papers' permutation of n indices: NumPy's legacy generator with the data seed (MeZO, PACZero)."""
    return np.random.RandomState(seed).permutation(n)


def _take(records: list[Record], seed: int) -> list[Record]:
    return [records[int(i)] for i in permutation(len(records), seed)]


def _enough(records: list[Record], pool: int, dev: int, test: int) -> None:
    have, room = len(records), (len(records) - dev - test) // 2 * 2  # an even pool can be cut into halves
    if pool + dev + test > have:
        fix = f"give pool={room} or fewer" if room > 0 else (
            "lower `dev` or `test`, or name a larger `source`" if have >= 4 else "name a larger `source`")
        apart = "".join(f", {n} for {name}" for name, n in (("dev", dev), ("test", test)) if n)
        raise InputError("pool", f"{pool} is too many: the source has {have} records{apart}", fix)


def _one_table(
    records: list[Record], seed: int, pool: int, dev: int, test: int | None
) -> tuple[list[Record], list[Record], list[Record]]:
    _enough(records, pool, dev, int(dev > 0) if test is None else test)  # what is scored on dev is tested too
    drawn = _take(records, seed)
    end = None if test is None else pool + dev + test
    return drawn[:pool], drawn[pool : pool + dev], drawn[pool + dev : end]


def _published(
    train: list[Record], held: list[Record], seed: int, pool: int, dev: int, test: int | None
) -> tuple[list[Record], list[Record], list[Record]]:
    _enough(train, pool, dev, 0)  # the test has a split of its own
    if len(held) < (test or 0):
        raise InputError("test", f"{test} is too many: the source has {len(held)} for testing", "give fewer")
    drawn = _take(train, seed)
    return (
        drawn[:pool],
        drawn[pool : pool + dev],
        _take(held, seed)[: PUBLISHED_TEST if test is None else test],
    )


def _check_pool(task: str, pool: list[Record]) -> None:
    if task == "sentiment" and len({r["label"] for r in pool}) < 2:
        raise InputError(
            "pool",
            f"all {len(pool)} records have the label {pool[0]['label']}",
            "use a larger pool or a source with both classes",
        )


# --- the embedded text


def rotten_tomatoes() -> list[Record]:
    """The embedded private sentences with labels, each text once (letters and digits compared), in order."""
    found: dict[str, Record] = {}
    for text, label in reviews(PRIVATE):
        found.setdefault(key(text), {"sentence": text.strip(), "label": label})
    return list(found.values())


def _embedded(task: str) -> tuple[list[Record], dict[str, Any]]:
    if task == "qa":
        return (
            qa_family.records("private", QA_UNIVERSE, seed=0),
            {"origin": "templated passages, private family", "licence": "MIT"},
        )
    records = rotten_tomatoes()
    origin = {"origin": f"rotten-tomatoes sentences of the package {PACKAGE}, deduplicated", "licence": "MIT"}
    return (records if task == "sentiment" else [{"text": r["sentence"]} for r in records]), origin


# --- files


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.name.endswith(".gz") else data


def read_table(path: Path | str) -> list[Record]:
    """The rows of a local file by its ending; a text file gives one {"text"} a paragraph (`text_records`)."""
    path = Path(path)
    if not path.is_file():
        raise InputError(
            "source", f"no file {path}", "name an existing file, `embedded`, `files:FOLDER` or `hub:NAME`"
        )
    suffix = _suffix(path)
    try:
        if suffix == ".parquet":
            import pandas

            return pandas.read_parquet(path).to_dict("records")
        if suffix not in SUFFIXES:
            raise InputError(
                "source",
                f"cannot read files ending in {suffix or path.name!r}",
                f"use one of {', '.join(SUFFIXES)} (all but Parquet also with .gz)",
            )
        text = _bytes(path).decode("utf-8-sig")  # Excel begins a file with a byte-order mark
        if suffix == ".csv":
            return list(csv.DictReader(io.StringIO(text, newline="")))
        if suffix == ".txt":
            return text_records(text.split("\n"))
        rows = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.split("\n") if line.strip()]
        )
    except (OSError, EOFError, ValueError, RecursionError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "source",
            f"cannot read {path.name} ({type(error).__name__}: {error})".replace("\n", " "),
            "repair the file or name another",
        ) from None
    if not all(isinstance(row, dict) for row in rows):
        raise InputError(
            "source", f"{path.name} holds rows that are not objects", "write one JSON object a record"
        )
    return rows


def text_records(lines: Iterable[str]) -> list[Record]:
    """One record per paragraph: blank lines and `= headings =` are left out."""
    kept = (line.strip() for line in lines)
    return [{"text": line} for line in kept if line and not (line.startswith("= ") and line.endswith(" ="))]


def _file(task: str, source: str | Path) -> tuple[list[Record], dict[str, Any]]:
    path = Path(source)
    if not path.exists() and not path.suffix and "/" not in str(source):
        raise InputError(
            "source",
            f"unknown source {str(source)!r}",
            nearest(str(source), ("embedded", "files:FOLDER", "hub:sst2", "hub:squad", "hub:wikitext")),
        )
    records = checked(task, read_table(path), path.name)
    return records, {"origin": path.name, "sha256": sha256_file(path)}


def _folder(task: str, folder: Path) -> tuple[list[Record], list[Record], dict[str, Any]]:
    if not folder.is_dir():
        raise InputError("source", f"no folder {folder}", "name the folder that holds the published splits")
    name, found = PUBLISHED[task], {}
    for split in ("train", "validation"):
        paths = sorted(p for p in folder.glob(f"{name}_{split}*") if _suffix(p) in SUFFIXES)
        if not paths:
            raise InputError(
                "source",
                f"{folder} has no {name}_{split} file",
                f"add {name}_{split}.jsonl (or .json, .csv, .parquet, .txt; .gz allowed)",
            )
        found[split] = paths[0]
    train, held = (checked(task, read_table(found[s]), found[s].name) for s in ("train", "validation"))
    return train, held, {"origin": name, "files": {p.name: sha256_file(p) for p in found.values()}}


# --- the hub


def _hub(task: str, name: str) -> tuple[list[Record], list[Record], dict[str, Any]]:
    if name not in HUB:
        raise InputError("source", f"unknown hub set {name!r}", nearest(name, HUB))
    if name != PUBLISHED[task]:
        raise InputError(
            "source", f"hub:{name} does not serve the task {task!r}", f"use hub:{PUBLISHED[task]}"
        )
    import datasets

    try:
        loaded = datasets.load_dataset(*HUB[name])
    except Exception as error:  # the hub client raises many unrelated classes when it is unreachable
        raise InputError(
            "source",
            f"cannot load {HUB[name][0]} from the hub ({type(error).__name__})",
            "use `embedded`, or `files:FOLDER` with the published splits",
        ) from None
    train, held = (list(loaded[split]) for split in ("train", "validation"))
    if task == "lm":
        train, held = (text_records(row["text"] for row in rows) for rows in (train, held))
    return checked(task, train, name), checked(task, held, name), {"origin": HUB[name][0]}


# --- columns


def checked(task: str, rows: list[Record], name: str) -> list[Record]:
    """Rows with exactly the task's fields and types; the title of a question may be absent (then empty)."""
    if not rows:
        raise InputError("source", f"{name} has no records", "name a file with records")
    missing = [c for c in COLUMNS[task] if c not in rows[0]]
    if missing:
        raise InputError(
            "source",
            f"{name} lacks the column {missing[0]!r} (it has {', '.join(map(str, rows[0]))})",
            f"the task {task} needs {', '.join(COLUMNS[task])}",
        )
    convert = {"sentiment": _sentiment, "qa": _question, "lm": _text}[task]
    out = []
    for number, row in enumerate(rows):
        try:
            out.append(convert(row))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                "source",
                f"{name}, record {number + 1}: {error}",
                f"the task {task} needs {', '.join(COLUMNS[task])}",
            ) from None
    return out


def _string(row: Record, column: str) -> str:
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{column} is not a text")
    return _encodable(value, column)


def _encodable(text: str, column: str) -> str:
    """The text, unless JSON escapes left half a character in it, which no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{column} holds half a character (a lone surrogate)") from None
    return text


def _sentiment(row: Record) -> Record:
    label = row["label"]
    if isinstance(label, bool) or str(label).strip() not in ("0", "1"):
        raise ValueError(f"label {label!r} is neither 0 nor 1")
    return {"sentence": _string(row, "sentence"), "label": int(label)}


def _question(row: Record) -> Record:
    answers = row["answers"]
    if isinstance(answers, str):
        answers = json.loads(answers) if answers.lstrip().startswith(("[", "{")) else [answers]
    if isinstance(answers, dict):
        answers = answers.get("text")
    answers = list(answers) if answers is not None else []
    if not answers or not all(isinstance(a, str) and a for a in answers):
        raise ValueError("answers is not a non-empty list of texts")
    return {
        "title": _encodable(str(row.get("title") or ""), "title"),
        "context": _string(row, "context"),
        "question": _string(row, "question"),
        "answers": [_encodable(a, "answers") for a in answers],
    }


def _text(row: Record) -> Record:
    return {"text": _string(row, "text")}
