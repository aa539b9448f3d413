"""The masked-model track against the plain forward pass of random RoBERTa, BERT and DistilBERT shaped models."""

import copy
import json

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors, trainers
from tokenizers import models as bpe_models
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForCausalLM,
    RobertaForMaskedLM,
)

from paclab import finetune, lora, models, prompts, tasks
from paclab.errors import InputError
from paclab.masked import MaskedScorer

SENTENCES = [{"sentence": s, "label": i % 2} for i, s in enumerate([
    "a gorgeous , witty , seductive movie .", "it never rises above the ordinary", "good .",
    "the plot is thin and the jokes are old , but the two leads are a joy to watch together", "dull",
    "an honest film about small people"])]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)]


def small_tokenizer() -> PreTrainedTokenizerFast:
    """RoBERTa's conventions on a vocabulary of these sentences: <s> text </s>, a mask that takes its left space."""
    words = Tokenizer(bpe_models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [r["sentence"] + " It was terrible great." for r in SENTENCES] * 3
    words.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token=AddedToken("<mask>", lstrip=True, special=True))


def random_module(kind: str, size: int, seed: int = 0):
    torch.manual_seed(seed)
    if kind == "distilbert":
        config = DistilBertConfig(vocab_size=size, dim=16, hidden_dim=32, n_layers=2, n_heads=2, pad_token_id=1,
                                  max_position_embeddings=64, initializer_range=0.3)
        return DistilBertForMaskedLM(config)
    shape = {"vocab_size": size, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 2, "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1,
             "bos_token_id": 0, "eos_token_id": 2, "initializer_range": 0.3}
    if kind == "bert":
        return BertForMaskedLM(BertConfig(**shape))
    if kind == "causal":
        return RobertaForCausalLM(RobertaConfig(**shape, is_decoder=True))
    return RobertaForMaskedLM(RobertaConfig(**shape))


def small(kind: str) -> models.LanguageModel:
    tokenizer = small_tokenizer()
    return models.wrap(random_module(kind, len(tokenizer)), tokenizer, "cpu", f"random {kind}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved random RoBERTa, as a user would give it to --model."""
    path, tokenizer = tmp_path_factory.mktemp("roberta"), small_tokenizer()
    random_module("roberta", len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=["roberta", "bert", "distilbert"])
def model(request):
    return small(request.param)


def reference_scores(model, records) -> np.ndarray:
    """Label words' logits at the mask, one unpadded sentence at a time through the whole model."""
    tokenizer, out = model.tokenizer, []
    words = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in prompts.SENTIMENT_WORDS]
    for record in records:
        ids = tokenizer(f"{record['sentence']} It was{tokenizer.mask_token}.", return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model.module(input_ids=ids).logits[0, int((ids[0] == tokenizer.mask_token_id).nonzero())]
        out.append([float(logits[word[0]]) for word in words])
    return np.array(out)


def test_the_kind_is_found_by_what_the_model_does(model, embedded):
    assert model.masked and not embedded.masked
    causal = small("causal")
    assert causal.tokenizer.mask_token_id is not None and not causal.masked


def test_folders_are_loaded_as_what_their_configuration_declares(folder, tmp_path):
    assert models.load(str(folder), "cpu").masked
    tokenizer = small_tokenizer()
    random_module("causal", len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    causal = models.load(str(tmp_path), "cpu")
    assert not causal.masked and hasattr(causal.module, "generate")


def test_prompt_is_the_published_one():
    tokenizer = small_tokenizer()
    ids = tokenizer(prompts.masked_sentiment(" dull ", "<mask>"))["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["<s>", "dull", "ĠIt", "Ġwas", "<mask>", ".", "</s>"]


def test_scores_are_the_plain_forward_pass(model):
    objective = tasks.objective("sentiment", model, SENTENCES)
    expected = reference_scores(model, SENTENCES)
    assert np.ptp(expected[:, 1] - expected[:, 0]) > 1e-2  # the sentences do matter
    assert np.allclose(objective.scores().numpy(), expected, atol=1e-5)
    losses = -torch.tensor(expected).log_softmax(1).numpy()[np.arange(6), [r["label"] for r in SENTENCES]]
    assert np.allclose(objective.losses(), losses, atol=1e-5)
    outcome = objective.outcome()
    assert np.array_equal(outcome.loss, objective.losses())
    assert np.array_equal(outcome.score, (expected.argmax(1) == [r["label"] for r in SENTENCES]).astype(float))


def test_padding_batches_and_picked_records_do_not_matter(model):
    whole = tasks.objective("sentiment", model, SENTENCES).losses()
    for budget in (1, 40, 10_000):
        assert np.allclose(tasks.objective("sentiment", model, SENTENCES, token_budget=budget).losses(), whole,
                           atol=1e-5), budget
    picked = np.array([4, 0, 3])
    assert np.allclose(tasks.objective("sentiment", model, SENTENCES).losses(picked), whole[picked], atol=1e-5)


def test_both_shortcuts_are_found_and_read_live_weights(model):
    objective = tasks.objective("sentiment", model, SENTENCES)
    before = objective.losses()
    assert objective.scorer.cut is not None
    weights = models.trainable(model.module)
    kept = {name: tensor.clone() for name, tensor in weights.items()}
    generator = torch.Generator().manual_seed(1)
    for tensor in weights.values():
        tensor.add_(0.05 * torch.randn(tensor.shape, generator=generator))
    try:
        assert np.allclose(objective.scores().numpy(), reference_scores(model, SENTENCES), atol=1e-5)
        assert not np.allclose(objective.losses(), before, atol=1e-3)
        copied = models.wrap(copy.deepcopy(model.module), model.tokenizer, "cpu", "copy")
        assert np.allclose(tasks.objective("sentiment", copied, SENTENCES).losses(), objective.losses(), atol=1e-5)
    finally:
        for name, tensor in weights.items():
            tensor.copy_(kept[name])


def test_the_last_feed_forward_part_runs_at_the_masks_only():
    model = small("roberta")
    objective = tasks.objective("sentiment", model, SENTENCES)
    objective.losses()
    lengths = []
    part = model.module.roberta.encoder.layer[-1].intermediate.dense
    part.register_forward_pre_hook(lambda module, args: lengths.append(args[0].shape[1]))
    objective.losses()
    assert set(lengths) == {1}


def test_threads_do_not_change_the_numbers(model):
    objective = tasks.objective("sentiment", model, SENTENCES, token_budget=30)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = objective.losses()
        torch.set_num_threads(2)
        assert np.array_equal(objective.losses(), one)
    finally:
        torch.set_num_threads(before)


def test_long_sentences_keep_their_mask_and_fit_the_positions(model):
    long = [{"sentence": "good " * 200, "label": 1}]
    objective = tasks.objective("sentiment", model, long)
    assert len(objective.rows[0]) == model.context and objective.rows[0][0] == model.tokenizer.cls_token_id
    assert model.context == (64 if "roberta" in model.source or "distil" in model.source else 66)
    assert np.isfinite(objective.losses()).all()


def test_a_written_mask_in_a_sentence_is_no_second_mask(model):
    objective = tasks.objective("sentiment", model, [{"sentence": "good <mask> film", "label": 1}])
    assert np.isfinite(objective.losses()).all()


def test_other_tasks_and_split_label_words_are_one_line(folder, model):
    for task in ("lm", "qa", "qa-ce"):
        with pytest.raises(InputError, match=f"task: {task} needs a causal model, .* masked one; use task=sentiment"):
            tasks.objective(task, model, [{"text": "a film"}])
    with pytest.raises(InputError, match=r"model: 'good \.' is not one token"):
        tasks.MaskedChoice(MaskedScorer(model), SENTENCES, words=(" good .", " great"))
    with pytest.raises(InputError, match="token_budget"):
        MaskedScorer(model, 0)


@pytest.mark.parametrize("kind", ["roberta", "bert", "distilbert"])
def test_adapters_on_query_and_value_go_through_peft(kind, tmp_path):
    from peft import PeftModel

    model = small(kind)
    ids = torch.arange(5, 25).view(2, 10)
    with torch.no_grad():
        before = model.module(ids).logits
        trainable = lora.attach(model, rank=4, alpha=8)
        assert len(trainable) == 2 * 2 * 2  # layers, q and v, A and B
        assert torch.equal(model.module(ids).logits, before)
        for tensor in trainable.values():
            tensor.add_(torch.randn(tensor.shape) * 0.1)
        after = model.module(ids).logits
        assert np.allclose(tasks.objective("sentiment", model, SENTENCES).scores().numpy(),
                           reference_scores(model, SENTENCES), atol=1e-5)
        lora.export_peft(model, tmp_path / "adapter")
        theirs = PeftModel.from_pretrained(small(kind).module, tmp_path / "adapter")
        assert torch.allclose(theirs(input_ids=ids).logits, after, atol=1e-5)
        again = small(kind)
        lora.attach(again, rank=4, alpha=8, seed=5)
        lora.import_peft(again, tmp_path / "adapter")
        assert torch.equal(again.module(ids).logits, after)


@pytest.fixture
def data(tmp_path):
    """Sixty labelled sentences as a file."""
    rng = np.random.default_rng(0)
    words = [r["sentence"] for r in SENTENCES]
    lines = [json.dumps({"sentence": " ".join(rng.permutation(words)[:2]) + f" {i}", "label": int(i % 2)})
             for i in range(60)]
    path = tmp_path / "sentences.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("track", ["ft", "lora"])
def test_a_private_run_trains_verifies_resumes_and_exports(track, folder, data, tmp_path):
    from paclab.verify import verify

    config = finetune.Config(model=str(folder), source=str(data), method="dp-aggzo", epsilon=2.0, steps=4, k=2,
                             pool=30, dev=5, test=20, clip=1.0, track=track, rank=2, study=True, lr=1e-2)
    whole = finetune.start(config, tmp_path / "whole")
    assert whole["status"] == "complete" and np.isfinite(whole["result"]["test_loss"])
    assert all(finding.ok for finding in verify(tmp_path / "whole", pool=True))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)  # directions side by side, on copies of the model
        finetune.start(config, tmp_path / "stopped", stop_at=2)
    finally:
        torch.set_num_threads(before)
    assert finetune.resume(tmp_path / "stopped")["weights_sha256"] == whole["weights_sha256"]
    exported = finetune.export(tmp_path / "whole", tmp_path / "export")
    records = [json.loads(line) for line in data.read_text().splitlines()]
    if track == "lora":
        model = models.load(str(folder), "cpu")
        lora.attach(model, 2, 16.0)
        lora.import_peft(model, exported)
    else:
        model = models.load(str(exported), "cpu")
    before = tasks.objective("sentiment", models.load(str(folder), "cpu"), records).losses()
    after = tasks.objective("sentiment", model, records).losses()
    assert not np.array_equal(before, after)
    trained = finetune.reopen(tmp_path / "whole")[2]
    assert trained.record["base_sha256"] == whole["base_sha256"]


def test_an_encoder_without_a_prediction_head_is_refused(tmp_path):
    """A sentence encoder's file names no head: one that transformers would fill with random numbers."""
    tokenizer = small_tokenizer()
    random_module("bert", len(tokenizer)).bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"model: .* has no word-prediction head; give a causal or masked"):
        models.load(str(tmp_path), "cpu")
