"""Sources: the embedded text, local files, published splits and the errors of each."""

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from paclab import reviews
from paclab.errors import InputError
from paclab.sources import checked, load_splits, permutation, rotten_tomatoes

RECORDS = [{"sentence": f"sentence number {i}", "label": i % 2} for i in range(40)]


@pytest.fixture
def real_data():
    folder = os.environ.get("PACLAB_REAL_DATA")
    if not folder:
        pytest.skip("PACLAB_REAL_DATA is unset: no folder of published data sets")
    return Path(folder)


def texts(records):
    return [r["sentence"] for r in records]


# --- embedded


def test_embedded_sentiment_is_balanced_disjoint_and_large():
    splits = load_splits("sentiment", seed=4)
    assert (len(splits.pool), len(splits.dev)) == (1000, 500)
    assert len(splits.test) >= 4000
    every = [reviews.key(t) for part in splits[:3] for t in texts(part)]
    assert len(set(every)) == len(every)
    assert splits.provenance["classes"]["pool"] == {
        str(k): v for k, v in Counter(r["label"] for r in splits.pool).items()
    }
    for part in splits[:3]:
        assert 0.45 < np.mean([r["label"] for r in part]) < 0.55


def test_embedded_draw_is_the_seeded_permutation():
    universe, splits = rotten_tomatoes(), load_splits("sentiment", seed=2, pool=30, dev=10, test=20)
    order = np.random.RandomState(2).permutation(len(universe))
    drawn = [*splits.pool, *splits.dev, *splits.test]
    assert drawn == [universe[i] for i in order[:60]]
    assert load_splits("sentiment", seed=3, pool=30).pool != splits.pool


def test_legacy_permutation_of_numpy():
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(11)  # noqa: NPY002  the papers' code calls exactly this
    expected = np.random.permutation(100)  # noqa: NPY002
    np.random.set_state(state)  # noqa: NPY002
    assert (permutation(100, 11) == expected).all()


def test_embedded_private_text_never_enters_the_public_corpus():
    from paclab.pretraining.corpus import documents

    private = {reviews.key(r["sentence"]) for r in rotten_tomatoes()}
    public = {reviews.key(s) for d in documents(1500, 0) for s in d.snippets}
    assert not private & public
    raw = {reviews.key(s) for r in reviews.reviews(reviews.PUBLIC)[:1500] for s in reviews.snippets(r.text)}
    assert private & raw  # the overlap exists: leaving it out does something


def test_embedded_qa_and_lm():
    qa = load_splits("qa", pool=50, dev=20)
    assert len(qa.test) == 1000
    assert all(a in r["context"] for r in qa.pool for a in r["answers"])
    assert len({r["context"] for part in qa[:3] for r in part}) == 1070
    lm = load_splits("lm", pool=50, dev=20, test=30)
    assert [len(part) for part in lm[:3]] == [50, 20, 30]
    assert set(lm.pool[0]) == {"text"}


def test_spacing_matches_the_published_typography():
    assert (
        reviews.spaced("It's \"Great\" (really), 3.5 stars... Isn't it?")
        == "it's \" great \" ( really ) , 3.5 stars ... isn't it ?"
    )
    assert reviews.snippets("I saw it twice today.<br /><br />What a film it was! No.") == [
        "i saw it twice today .",
        "what a film it was !",
    ]


# --- files


def write(path, kind):
    if kind == "jsonl":
        path.write_text("\n".join(json.dumps(r) for r in RECORDS))
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress("\n".join(json.dumps(r) for r in RECORDS).encode()))
    elif kind == "json":
        path.write_text(json.dumps(RECORDS))
    elif kind == "csv":
        pd.DataFrame(RECORDS).to_csv(path, index=False)
    else:
        pd.DataFrame(RECORDS).to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "json", "csv", "parquet"])
def test_every_file_format_gives_the_same_splits(tmp_path, kind):
    path = write(tmp_path / f"data.{kind}", kind)
    splits = load_splits("sentiment", path, seed=1, pool=20, dev=10)
    expected = [RECORDS[i] for i in np.random.RandomState(1).permutation(40)]
    assert [*splits.pool, *splits.dev, *splits.test] == expected
    assert len(splits.provenance["sha256"]) == 64


def test_answers_in_every_usual_shape(tmp_path):
    rows = [
        {"context": "red fox", "question": "what?", "answers": a}
        for a in ("fox", ["fox"], {"text": ["fox"], "answer_start": [4]}, '["fox"]')
    ]
    (tmp_path / "qa.json").write_text(json.dumps(rows))
    splits = load_splits("qa", tmp_path / "qa.json", pool=4, dev=0, test=0)
    assert all(r["answers"] == ["fox"] and r["title"] == "" for r in splits.pool)


def test_published_splits_from_a_folder(tmp_path):
    held = [{"sentence": f"held {i}", "label": i % 2} for i in range(12)]
    write(tmp_path / "sst2_train.jsonl", "jsonl")
    (tmp_path / "sst2_validation.json").write_text(json.dumps(held))
    splits = load_splits("sentiment", f"files:{tmp_path}", seed=5, pool=20, dev=10)
    order = np.random.RandomState(5).permutation(40)
    assert splits.pool + splits.dev == [RECORDS[i] for i in order[:30]]
    assert splits.test == [held[i] for i in np.random.RandomState(5).permutation(12)]


# --- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "sentimant"}, "task: unknown task 'sentimant'; did you mean 'sentiment'"),
        ({"task": "sentiment", "source": "embeded"}, "source: unknown source 'embeded'"),
        ({"task": "sentiment", "source": "hub:sst3"}, "source: unknown hub set 'sst3'; did you mean 'sst2'"),
        (
            {"task": "qa", "source": "hub:sst2"},
            "source: hub:sst2 does not serve the task 'qa'; use hub:squad",
        ),
        ({"task": "sentiment", "pool": 0}, "pool: 0 is too small"),
        ({"task": "sentiment", "pool": 9000},
         "pool: 9000 is too many: the source has 8528 records, 500 for dev, 1 for test; give pool=8026 or fewer"),
        ({"task": "sentiment", "source": "no/such.csv"}, "source: no file no/such.csv"),
        ({"task": "sentiment", "source": "files:no/such"}, "source: no folder no/such"),
    ],
)
def test_bad_arguments_are_one_line(arguments, message):
    with pytest.raises(InputError) as caught:
        load_splits(**arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\nfine,1\n", "a.csv lacks the column 'sentence' (it has text, label)"),
        ("a.csv", "sentence,label\nfine,2\n", "a.csv, record 1: label '2' is neither 0 nor 1"),
        ("a.csv", "sentence,label\n,1\n", "a.csv, record 1: sentence is not a text"),
        ("a.csv", "sentence,label\n", "a.csv has no records"),
        ("a.jsonl", '{"sentence": "x"', "cannot read a.jsonl (JSONDecodeError"),
        ("a.jsonl", "[1, 2]", "a.jsonl holds rows that are not objects"),
        ("a.jsonl.gz", "not gzip", "cannot read a.jsonl.gz (BadGzipFile"),
        ("a.xlsx", "?", "cannot read files ending in '.xlsx'"),
        ("a.csv", "sentence,label\nfine,1\ngood,1\n", "all 2 records have the label 1"),
        ("a.csv", f"sentence,label\n{'x' * 131_073},1\n", "cannot read a.csv (Error: field larger than field limit"),
        ("a.json", "[" * 100_000, "cannot read a.json (RecursionError"),
        ("a.jsonl", '{"sentence": "fine", "label": 1}\n{"sentence": "\\ud800", "label": 0}',
         "a.jsonl, record 2: sentence holds half a character"),
    ],
)
def test_bad_files_are_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as caught:
        load_splits("sentiment", tmp_path / name, pool=2, dev=0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"title": "\ud800"}, "title holds half a character"),
        ({"context": "\ud800"}, "context holds half a character"),
        ({"answers": ["fox", "\udc00"]}, "answers holds half a character"),
        ({"answers": "[" * 100_000}, "maximum recursion depth"),
    ],
)
def test_bad_questions_name_their_record(change, says):
    good = {"title": "t", "context": "red fox", "question": "what?", "answers": ["fox"]}
    with pytest.raises(InputError, match=f"source: a.json, record 2: {says}"):
        checked("qa", [good, good | change], "a.json")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_the_mark_that_excel_begins_a_file_with_is_no_text(tmp_path, name):
    plain = write(tmp_path / f"plain{name}", name.partition(".")[2]).read_bytes()
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + plain)
    assert load_splits("sentiment", tmp_path / name, pool=20, dev=10).pool == load_splits(
        "sentiment", tmp_path / f"plain{name}", pool=20, dev=10).pool


def test_missing_hub_names_the_way_out(monkeypatch):
    import datasets

    def unreachable(*_):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(InputError, match=r"source: cannot load nyu-mll/glue from the hub .*; use `embedded`"):
        load_splits("sentiment", "hub:sst2")


def test_hub_rows_pass_through_the_same_checks(monkeypatch):
    import datasets

    monkeypatch.setattr(
        datasets,
        "load_dataset",
        lambda *_: {"train": [{**r, "idx": i} for i, r in enumerate(RECORDS)], "validation": RECORDS[:6]},
    )
    splits = load_splits("sentiment", "hub:sst2", pool=20, dev=10)
    assert set(splits.pool[0]) == {"sentence", "label"}
    assert len(splits.test) == 6


# --- the published files


def test_real_sst2(real_data):
    splits = load_splits("sentiment", f"files:{real_data}", seed=0)
    assert [len(part) for part in splits[:3]] == [1000, 500, 872]
    assert splits.provenance["classes"]["test"] == {"0": 428, "1": 444}  # a collapsed model scores 444/872
    from paclab.sources import read_table

    train = read_table(real_data / "sst2_train.jsonl.gz")
    order = np.random.RandomState(0).permutation(67_349)
    assert [r["label"] for r in splits.pool] == [train[i]["label"] for i in order[:1000]]
    assert texts(splits.dev) == [train[i]["sentence"] for i in order[1000:1500]]


def test_real_squad(real_data):
    splits = load_splits("qa", f"files:{real_data}", seed=1)
    assert [len(part) for part in splits[:3]] == [1000, 500, 1000]
    for record in [*splits.pool, *splits.test]:
        assert all(answer in record["context"] for answer in record["answers"])


def test_real_wikitext(real_data):
    splits = load_splits("lm", f"files:{real_data}", pool=500, dev=100)
    assert len(splits.pool) == 500
    assert not any(r["text"].startswith("= ") or not r["text"] for r in splits.pool)
