"""Tasks and scoring against the models' own full logits, on three model families and on the papers' conventions."""

import numpy as np
import pytest
import torch
from transformers import OPTConfig, OPTForCausalLM

from paclab import metrics, models, prompts, tasks
from paclab.errors import InputError
from paclab.scoring import Scorer, micro_batches

SENTENCES = [{"sentence": s, "label": i % 2} for i, s in enumerate([
    "a gorgeous , witty , seductive movie .", "it never rises above the ordinary", "good .",
    "the plot is thin and the jokes are old , but the two leads are a joy to watch together", "dull",
    "an honest film about small people"])]
QUESTIONS = [{"title": "Boats", "context": "The Mira was built in Porto in 1901 by Ana Reis.",
              "question": "Who built the Mira?", "answers": ["Ana Reis", "Reis"]},
             {"title": "Boats", "context": "The Vela sank near Faro.", "question": "Where did the Vela sink?",
              "answers": ["near Faro"]}]


def random_opt(tokenizer):
    torch.manual_seed(3)
    config = OPTConfig(vocab_size=len(tokenizer), hidden_size=32, ffn_dim=64, num_hidden_layers=2, pad_token_id=1,
                       bos_token_id=2, eos_token_id=2, num_attention_heads=4, word_embed_proj_dim=16,
                       max_position_embeddings=128)
    return models.wrap(OPTForCausalLM(config), tokenizer, "cpu", "random OPT")


@pytest.fixture(scope="module", params=["embedded", "opt", "llama"])
def model(request, embedded):
    if request.param == "embedded":
        return embedded
    if request.param == "opt":
        return random_opt(embedded.tokenizer)
    return models.load(str(request.getfixturevalue("real_data") / "models" / "stories260k"), "cpu")


def reference_losses(model, records, bos="tokenizer"):
    """The papers' rule, one unpadded sequence at a time: mean log-probability of each label word, then softmax."""
    losses = []
    for record in records:
        scores = []
        for word in prompts.SENTIMENT_WORDS:
            prompt = prompts.sentiment(record["sentence"])
            row, head = tasks.encode(model, prompt + word, bos), tasks.encode(model, prompt, bos)
            with torch.no_grad():
                logits = model.module(input_ids=torch.tensor([row])).logits[0].double()
            scores.append(logits.log_softmax(-1)[torch.arange(len(head) - 1, len(row) - 1), row[len(head):]].mean())
        losses.append(-torch.stack(scores).log_softmax(0)[record["label"]].item())
    return np.array(losses)


def test_sentiment_losses_are_the_published_ones(model):
    objective = tasks.objective("sentiment", model, SENTENCES)
    assert np.allclose(objective.losses(), reference_losses(model, SENTENCES), atol=2e-5)
    outcome = objective.outcome()
    assert np.array_equal(outcome.loss, objective.losses()) and set(outcome.score) <= {0.0, 1.0}


@pytest.mark.parametrize("task", ["sentiment", "qa-ce", "lm"])
def test_padding_side_and_token_budget_do_not_matter(model, task):
    records = SENTENCES if task == "sentiment" else QUESTIONS
    if task == "lm":
        records = [{"text": r["sentence"]} for r in SENTENCES if len(r["sentence"]) > 8]
    right = tasks.objective(task, model, records).losses()
    for options in ({"padding": "left"}, {"token_budget": 1}, {"token_budget": 40, "padding": "left"}):
        assert np.allclose(tasks.objective(task, model, records, **options).losses(), right, atol=2e-5), options


def test_answer_loss_is_the_models_own(model):
    record = QUESTIONS[0]
    prompt = prompts.question(record["title"], record["context"], record["question"])
    head, row = tasks.encode(model, prompt), tasks.encode(model, prompt + prompts.answer("Ana Reis"))
    labels = torch.tensor([[-100] * len(head) + row[len(head):]])
    if len(row) > model.context:
        pytest.skip("the prompt does not fit into this model's context")
    with torch.no_grad():
        expected = model.module(input_ids=torch.tensor([row]), labels=labels).loss.item()
    assert tasks.objective("qa-ce", model, [record]).losses()[0] == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("task", ["sentiment", "qa-ce", "qa"])
def test_batches_are_rows_of_the_whole(model, task):
    records = SENTENCES if task == "sentiment" else QUESTIONS
    if model.context < 200 and task != "sentiment":
        pytest.skip("the prompt does not fit into this model's context")
    objective = tasks.objective(task, model, records, max_new_tokens=4)
    picked = np.array([1, 0]) if task != "sentiment" else np.array([4, 0, 3])
    assert np.allclose(objective.losses(picked), objective.losses()[picked], atol=2e-5)


def test_greedy_answers_are_stepwise_argmax(embedded):
    objective = tasks.objective("qa", embedded, QUESTIONS, max_new_tokens=8)
    for text, row in zip(objective.texts(), objective.rows, strict=True):
        tokens = list(row)
        for _ in range(8):
            with torch.no_grad():
                token = int(embedded.module(input_ids=torch.tensor([tokens])).logits[0, -1].argmax())
            if token in objective.stop:
                break
            tokens.append(token)
        assert embedded.tokenizer.decode(tokens[len(row):], skip_special_tokens=True).strip() == text
    assert np.array_equal(objective.losses(), -objective.outcome().score)


def test_forced_bos(embedded):
    opt = random_opt(embedded.tokenizer)
    plain, forced = (tasks.objective("sentiment", opt, SENTENCES, bos=bos) for bos in (None, 0))
    assert forced.batches[0].ids[0, 0] == 0 and forced.batches[0].ids.shape[1] == plain.batches[0].ids.shape[1] + 1
    assert np.allclose(forced.losses(), reference_losses(opt, SENTENCES, bos=0), atol=2e-5)
    assert not np.allclose(forced.losses(), plain.losses(), atol=1e-4)


def test_unknown_head_falls_back_to_full_logits(embedded):
    """A model whose logits are not its output embedding applied to the hidden states (softcapping, scaling)."""
    opt = random_opt(embedded.tokenizer)

    class Scaled(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.config = inner, inner.config

        def get_decoder(self):
            return self.inner.get_decoder()

        def get_output_embeddings(self):
            return self.inner.get_output_embeddings()

        def forward(self, input_ids, attention_mask=None, use_cache=False, labels=None):
            out = self.inner(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
            out.logits = 5 * torch.tanh(3 * out.logits / 5)
            return out

    scaled = models.wrap(Scaled(opt.module), embedded.tokenizer, "cpu", "scaled")
    objective = tasks.objective("sentiment", scaled, SENTENCES)
    assert np.allclose(objective.losses(), reference_losses(scaled, SENTENCES), atol=2e-5)
    assert objective.scorer.head_is_plain is False


def test_long_prompts_keep_their_first_token_and_their_end():
    assert tasks.fit(list(range(10)), 4) == [0, 7, 8, 9] and tasks.fit([1, 2], 4) == [1, 2]


def test_micro_batches_cover_once_and_keep_the_budget():
    lengths = np.random.default_rng(0).integers(1, 60, 500).tolist()
    groups = micro_batches(lengths, 300)
    assert sorted(np.concatenate(groups).tolist()) == list(range(500))
    assert all(len(g) * max(lengths[i] for i in g) <= 300 for g in groups)
    assert [g.tolist() for g in micro_batches([400, 2], 300)] == [[1], [0]]


def test_f1_agrees_with_torchmetrics():
    from torchmetrics.functional.text import squad

    answers = ["the Eiffel Tower", "Paris, France", "1889", "an old bridge"]
    for prediction in ["Eiffel tower!", "Paris", "in 1889", "", "bridge old bridge", "the"]:
        theirs = squad([{"prediction_text": prediction, "id": "0"}],
                       [{"answers": {"answer_start": [0] * 4, "text": answers}, "id": "0"}])
        assert 100 * metrics.f1(prediction, answers) == pytest.approx(float(theirs["f1"]), abs=1e-4)
        assert 100 * metrics.exact_match(prediction, answers) == float(theirs["exact_match"])


def test_bad_requests(embedded):
    with pytest.raises(InputError, match="did you mean 'sentiment'"):
        tasks.objective("sentimnt", embedded, SENTENCES)
    with pytest.raises(InputError, match="padding"):
        Scorer(embedded, padding="middle")
    with pytest.raises(InputError, match=r"no config\.json"):
        models.load("nowhere/at/all")
    with pytest.raises(InputError, match="device"):
        models.choose_device("tpu9")


def test_published_prompts_on_the_real_files(real_data):
    """SST-2 and SQuAD as PACZero reads them, through the same loader a user calls."""
    from paclab.sources import load_splits

    llama = models.load(str(real_data / "models" / "stories260k"), "cpu")
    sst = load_splits("sentiment", f"files:{real_data}", seed=0)
    assert (len(sst.pool), len(sst.dev), len(sst.test)) == (1000, 500, 872)
    losses = tasks.objective("sentiment", llama, sst.pool[:8]).losses()
    assert np.allclose(losses, reference_losses(llama, sst.pool[:8]), atol=2e-5)
    squad_splits = load_splits("qa", f"files:{real_data}", seed=0)
    record = squad_splits.test[0]
    text = prompts.question(record["title"], record["context"], record["question"])
    assert [line.split(":")[0] for line in text.split("\n")][-1] == "Answer" and text.startswith("Title:")
