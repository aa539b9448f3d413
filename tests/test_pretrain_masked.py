"""The masked kind: text, batches, loss, resumption and the command; and the shipped masked model itself."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from paclab import models, prompts, tasks
from paclab.errors import InputError
from paclab.pretraining import Recipe, masked, masked_card, pretrain, turn
from paclab.pretraining import corpus as corpora
from paclab.pretraining.card import export
from paclab.pretraining.loop import CHECKPOINT
from paclab.reviews import PRIVATE, key, reviews

TINY = Recipe(**masked.DEFAULTS | {
    "start": None, "width": 16, "depth": 1, "heads": 2, "vocabulary": 400, "steps": 9, "prompted_steps": 3,
    "text_rows": 4, "prompted_rows": 8, "warmup": 2, "reviews": 60})
SHIPPED = Path(__file__).parent.parent / "data" / "masked-model"


@pytest.fixture(scope="module")
def corpus():
    return masked.build_corpus(TINY)


def test_rows_are_whole_public_snippets_between_begin_and_end(corpus):
    private = {key(review.text) for review in reviews(PRIVATE)}
    joined = " ".join(" ".join(d.snippets) for d in corpora.documents(TINY.reviews, TINY.seed)[:5])
    assert all(row[0] == masked.BEGIN and row[-1] == masked.END and len(row) <= TINY.row_tokens for row in corpus.text)
    assert corpus.tokenizer.decode(corpus.text[0][1:-1]) in joined
    texts = [corpus.tokenizer.decode(ids) for ids, _ in corpus.snippets] + [text for text, _ in corpus.held_snippets]
    assert not {key(text) for text in texts} & private


def test_the_tokenizer_has_one_token_a_label_word_and_a_mask_that_takes_its_space(corpus):
    tokenizer = corpus.tokenizer
    for word in prompts.SENTIMENT_WORDS:
        assert len(tokenizer(word, add_special_tokens=False)["input_ids"]) == 1
    assert len(tokenizer) == TINY.vocabulary
    ids = tokenizer(prompts.masked_sentiment("fine", tokenizer.mask_token))["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids)[-5:] == ["ĠIt", "Ġwas", "<mask>", ".", "</s>"]


def test_hidden_tokens_follow_the_published_shares(corpus):
    rows = corpus.text[:400]
    batch = masked.hide(rows, TINY.vocabulary, 3)
    assert np.array_equal(batch.ids, masked.hide(rows, TINY.vocabulary, 3).ids)
    truth, _ = masked.padded(rows)
    chosen = batch.targets >= 0
    assert np.array_equal(batch.targets[chosen], truth[chosen])
    assert np.array_equal(batch.ids[~chosen], truth[~chosen])
    assert not chosen[truth <= masked.MASK].any() and not chosen[batch.seen == 0].any()
    count = chosen.sum()
    assert count / (truth > masked.MASK).sum() == pytest.approx(masked.SHARE, abs=4 * 0.5 / count**0.5)
    hidden, kept = (batch.ids[chosen] == masked.MASK).mean(), (batch.ids[chosen] == truth[chosen]).mean()
    assert hidden == pytest.approx(0.8, abs=4 * 0.4 / count**0.5)
    assert kept == pytest.approx(0.1, abs=4 * 0.3 / count**0.5 + 0.01)


def test_prompted_rows_are_the_tasks_own_and_both_labels_are_equally_frequent(corpus):
    batch = masked.prompted_batch(corpus, Recipe(**vars(TINY) | {"prompted_rows": 200, "tilt": 0.0}), 5)
    words = {corpus.tokenizer(w, add_special_tokens=False)["input_ids"][0]: i
             for i, w in enumerate(prompts.SENTIMENT_WORDS)}
    assert ((batch.targets >= 0).sum(1) == 1).all() and ((batch.ids == masked.MASK) == (batch.targets >= 0)).all()
    labels = np.array([words[t] for t in batch.targets[batch.targets >= 0]])
    assert labels.tolist() == [0, 1] * 100
    row = batch.ids[0][batch.seen[0] == 1].tolist()
    sentence = corpus.tokenizer.decode(row[1 : row.index(masked.MASK)])
    assert sentence.endswith(" It was")
    whole = corpus.tokenizer(prompts.masked_sentiment(sentence.removesuffix(" It was"), "<mask>"))["input_ids"]
    assert whole == row
    tilted = masked.prompted_batch(corpus, Recipe(**vars(TINY) | {"prompted_rows": 200, "tilt": 1.0}), 5)
    longer = (tilted.seen.sum(1)[1::2] - tilted.seen.sum(1)[::2]).mean()
    assert longer > 3 > abs((batch.seen.sum(1)[1::2] - batch.seen.sum(1)[::2]).mean())


def test_batch_loss_is_the_models_own(corpus):
    model = masked.build_model(TINY)
    batch = masked.hide(corpus.text[:9], TINY.vocabulary, 1)
    ids, seen, targets = (torch.from_numpy(part) for part in batch)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=seen, labels=targets).loss.item()
        assert masked.batch_loss(model, batch).item() == pytest.approx(expected, rel=1e-5)


def test_a_killed_run_resumes_to_the_same_weights_and_learns(tmp_path, corpus, monkeypatch):
    lines = []
    whole, done = pretrain(TINY, corpus, tmp_path / "whole", report=lambda p: lines.append(p.line()))
    assert done == TINY.steps and "masked text" in lines[-1] and "prompted" in lines[-1]
    hide, calls = masked.hide, []

    def dies(*given):
        calls.append(given)
        if len(calls) == 7:  # two steps after the last checkpoint
            raise KeyboardInterrupt
        return hide(*given)

    monkeypatch.setattr(masked, "hide", dies)
    with pytest.raises(KeyboardInterrupt):
        pretrain(TINY, corpus, tmp_path / "stopped", every=4)
    monkeypatch.undo()
    assert torch.load(tmp_path / "stopped" / CHECKPOINT, weights_only=True)["step"] == 4
    resumed, _ = pretrain(TINY, corpus, tmp_path / "stopped", every=4)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    longer, _ = pretrain(Recipe(**vars(TINY) | {"steps": 60, "lr": 1e-2}), corpus, tmp_path / "longer")
    before, after = (masked_card.hidden_nats(m, corpus.held_text[:40], TINY.vocabulary) for m in (whole, longer))
    assert after < before - 0.2


def test_export_loads_as_a_masked_model_with_the_same_scores(tmp_path, corpus):
    model = masked.build_model(TINY)
    export(model, corpus.tokenizer, tmp_path)
    loaded = models.load(str(tmp_path), "cpu")
    assert loaded.masked and loaded.context == TINY.positions
    assert loaded.module.get_input_embeddings().weight is loaded.module.get_output_embeddings().weight
    for name, value in model.named_parameters():
        assert torch.equal(dict(loaded.module.named_parameters())[name], value.detach().half().float()), name
    prompt = prompts.masked_sentiment("a fine film", loaded.tokenizer.mask_token)
    assert loaded.tokenizer(prompt)["input_ids"] == corpus.tokenizer(prompt)["input_ids"]


def test_command_trains_scores_and_recognises_itself(tmp_path, monkeypatch):
    from paclab.cli import build

    monkeypatch.setattr(masked_card, "rotten_tomatoes",
                        lambda: [{"sentence": "fine", "label": 1}, {"sentence": "bad", "label": 0}])
    command = ["pretrain", "--kind", "masked", "--start", "none", "--out", str(tmp_path), "--steps", "3",
               "--prompted-steps", "1", "--width", "16", "--depth", "1", "--vocabulary", "400", "--reviews", "60",
               "--threads", "1"]
    finished = CliRunner().invoke(build(), command)
    assert finished.exit_code == 0, finished.output
    assert "fill-mask" in finished.output and not (tmp_path / CHECKPOINT).exists()
    assert "already holds this model" in CliRunner().invoke(build(), command).output
    with pytest.raises(InputError, match="kind: 'maskd' is unknown; did you mean 'masked'"):
        Recipe(kind="maskd")
    with pytest.raises(InputError, match="start: a causal model begins with random weights"):
        Recipe(start="embedded")


# --- beginning with a causal model


@pytest.fixture(scope="module")
def started(embedded):
    """A masked model made of the embedded causal one, untrained, with its vocabulary."""
    width, depth, heads = (getattr(embedded.module.config, name) for name in ("n_embd", "n_layer", "n_head"))
    recipe = Recipe(**masked.DEFAULTS | {"width": width, "depth": depth, "heads": heads, "start": "embedded"})
    return masked.build_model(recipe).eval(), turn.vocabulary(embedded.tokenizer)


def test_the_vocabulary_is_the_causal_one_behind_five_special_tokens(started, embedded):
    _, tokenizer = started
    text = "a fine film , \"naïve\" – it was great ."
    old, new = (t(text, add_special_tokens=False)["input_ids"] for t in (embedded.tokenizer, tokenizer))
    assert new == [token + 4 for token in old] and tokenizer.decode(new) == text
    assert len(tokenizer) == len(embedded.tokenizer) + 4
    assert tokenizer("great")["input_ids"][0] == masked.BEGIN and tokenizer("great")["input_ids"][-1] == masked.END


def test_blocks_do_the_causal_models_arithmetic_when_made_to_look_left_only(started, embedded):
    """The same states through the blocks of both, with a causal mask: carried-over weights, nothing transposed."""
    model, _ = started
    states = torch.randn(2, 7, embedded.module.config.n_embd, generator=torch.Generator().manual_seed(0))
    hidden = torch.full((7, 7), float("-inf")).triu(1)[None, None]
    theirs, ours = states, states
    with torch.no_grad():
        for block, layer in zip(embedded.module.transformer.h, model.base_model.encoder.layer, strict=True):
            theirs, ours = block(theirs, attention_mask=hidden), layer(ours, attention_mask=hidden)
            theirs, ours = (x[0] if isinstance(x, tuple) else x for x in (theirs, ours))
        theirs, ours = embedded.module.transformer.ln_f(theirs), model.base_model.LayerNorm(ours)
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_another_shape_is_refused():
    with pytest.raises(InputError, match="start: width, depth, heads, vocabulary"):
        masked.build_model(Recipe(**masked.DEFAULTS | {"width": 16, "start": "embedded"}))


# --- the shipped model


def test_shipped_folder_is_small_and_its_scores_are_those_of_the_weights():
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 4_000_000
    stated = json.loads((SHIPPED / "scores.json").read_text())["scores"]
    assert 0.58 <= stated["sentiment_private_zero_shot"]["mean"] <= 0.65
    assert 0.40 <= stated["sentiment_private_share_great"] <= 0.60
    from paclab.sources import rotten_tomatoes

    model = models.load("masked", "cpu")
    objective = tasks.objective("sentiment", model, rotten_tomatoes()[::8])
    share = (np.diff(objective.scores().numpy())[:, 0] > 0).mean()
    margin = 4 * 0.5 / len(objective.rows) ** 0.5
    assert objective.outcome().score.mean() == pytest.approx(stated["sentiment_private_zero_shot"]["mean"], abs=margin)
    assert share == pytest.approx(stated["sentiment_private_share_great"], abs=margin)
