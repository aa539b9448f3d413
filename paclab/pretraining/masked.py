"""The masked kind: a small RoBERTa-shaped model, its text, its batches and their loss; knows no training loop.

Rows are `<s> text </s>` of public snippets with a share of their tokens hidden; prompted rows are public snippets
with the masked sentiment prompt, the review's label word as the only target. Snippets come in pairs of both labels,
drawn as for the causal model's last steps.
"""

from typing import NamedTuple

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaPreLayerNormConfig, RobertaPreLayerNormForMaskedLM

from paclab import prompts
from paclab.models import load as load_model
from paclab.pretraining import corpus as causal
from paclab.pretraining.prompted import SHORTEST, pairs
from paclab.pretraining.recipe import Recipe

BEGIN, PAD, END, UNKNOWN, MASK = 0, 1, 2, 3, 4  # RoBERTa's order; the mask follows
TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SHARE = 0.2  # of a text row's tokens are predicted: 80 % of them hidden, 10 % replaced, 10 % left (BERT's rule)
DEFAULTS = {"kind": "masked", "start": "embedded", "steps": 1000, "prompted_steps": 60, "tilt": 0.3, "text_rows": 24,
            "prompted_rows": 96, "positions": 128, "reviews": 8000, "lr": 1e-3, "warmup": 50}


class Batch(NamedTuple):
    """Token ids, attention mask and targets (-100: not predicted), each [rows, length], right padded."""

    ids: np.ndarray
    seen: np.ndarray
    targets: np.ndarray


def finish(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    """Byte-level typography and RoBERTa's special tokens around byte pairs; the mask takes the space before it."""
    mask = AddedToken(TOKENS[MASK], lstrip=True, special=True)
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BEGIN), ("</s>", END)]
    )
    bpe.add_special_tokens([*TOKENS[:MASK], mask])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token=mask, clean_up_tokenization_spaces=False,
    )


def train_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE with RoBERTa's special tokens, learnt from these texts."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(TOKENS), initial_alphabet=alphabet, show_progress=False))
    return finish(bpe)


def _encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[list[int]]:
    return [e.ids for e in tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def _rows(pieces: list[list[list[int]]], size: int) -> list[list[int]]:
    """Consecutive whole snippets of a review, at most `size` tokens with begin and end."""
    rows: list[list[int]] = []
    for snippets in pieces:
        row: list[int] = []
        for ids in snippets:
            if row and len(row) + len(ids) > size - 2:
                rows.append([BEGIN, *row, END])
                row = []
            row = (row + ids)[: size - 2]
        rows.append([BEGIN, *row, END])
    return rows


def _tokenizer(recipe: Recipe, train: list[causal.Document]) -> PreTrainedTokenizerFast:
    """The vocabulary of the model the recipe starts from, else one learnt from its text."""
    if recipe.start:
        from paclab.pretraining import turn

        return turn.vocabulary(load_model(recipe.start, "cpu").tokenizer)
    return train_tokenizer([prompts.masked_sentiment(s, prompts.SENTIMENT_WORDS[d.label].strip())
                            for d in train for s in d.snippets], recipe.vocabulary)


def build_corpus(recipe: Recipe) -> causal.Corpus:
    """Read, normalise and tokenise the public text; a function of the recipe alone."""
    found = causal.documents(recipe.reviews, recipe.seed)
    cut = causal.trained(found)
    train, held = found[:cut], found[cut:]
    tokenizer = _tokenizer(recipe, train)
    flat = iter(_encode(tokenizer, [s if i == 0 else " " + s for d in found for i, s in enumerate(d.snippets)]))
    pieces = [[next(flat) for _ in d.snippets] for d in found]
    singles = iter(_encode(tokenizer, [s for d in train for s in d.snippets]))
    room = recipe.row_tokens - 8
    held_rows = _rows(pieces[cut:], recipe.row_tokens)
    return causal.Corpus(
        tokenizer,
        _rows(pieces[:cut], recipe.row_tokens),
        [(next(singles)[:room], d.label) for d in train for _ in d.snippets],
        held_rows,
        [(s, d.label) for d in held for s in d.snippets],
        sum(len(tokenizer.decode(row[1:-1])) for row in held_rows),
    )


def padded(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Right-padded ids and their attention mask, [rows, length] each."""
    ids = np.full((len(rows), max(len(row) for row in rows)), PAD, np.int64)
    seen = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)], seen[index, : len(row)] = row, 1
    return ids, seen


def hide(rows: list[list[int]], vocabulary: int, seed: int | list[int]) -> Batch:
    """A masked-language-modelling batch: a share of the text's tokens become targets; the same for a seed."""
    rng = np.random.default_rng(seed)
    ids, seen = padded(rows)
    chosen = (rng.random(ids.shape) < SHARE) & (ids > MASK)
    fate = rng.random(ids.shape)
    random = rng.integers(MASK + 1, vocabulary, ids.shape)
    targets = np.where(chosen, ids, -100)
    shown = np.where(chosen & (fate < 0.8), MASK, np.where(chosen & (fate >= 0.9), random, ids))
    return Batch(shown, seen, targets)


def prompted_batch(corpus: causal.Corpus, recipe: Recipe, step: int) -> Batch:
    """Public snippets of both labels with the prompt; their reviews' label words at the mask are the targets."""
    rng = np.random.default_rng([20_243, recipe.seed, step])
    chosen = pairs(corpus, recipe.prompted_rows, recipe.tilt, rng, SHORTEST).ravel()
    before, after = _encode(corpus.tokenizer, [" It was", "."])
    words = [ids[0] for ids in _encode(corpus.tokenizer, list(prompts.SENTIMENT_WORDS))]
    rows = [[BEGIN, *corpus.snippets[i][0], *before, MASK, *after, END] for i in chosen]
    ids, seen = padded(rows)
    labels = np.array([words[corpus.snippets[i][1]] for i in chosen])
    return Batch(ids, seen, np.where(ids == MASK, labels[:, None], -100))


def text_batch(corpus: causal.Corpus, text: causal.Stream, recipe: Recipe, step: int) -> Batch:
    """The step's review text with hidden tokens."""
    plain = text.at(step)
    rows = [row[: int((weight > 0).sum()) + 1].tolist() for row, weight in zip(plain.ids, plain.weights, strict=True)]
    return hide(rows, len(corpus.tokenizer), [20_244, recipe.seed, step])


def batches(corpus: causal.Corpus, text: causal.Stream, recipe: Recipe, step: int) -> dict[str, Batch]:
    """What a step trains on, by name."""
    found = {"masked text": text_batch(corpus, text, recipe, step)}
    if step >= recipe.steps - recipe.prompted_steps:
        found["prompted"] = prompted_batch(corpus, recipe, step)
    return found


def batch_loss(model: RobertaPreLayerNormForMaskedLM, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the targets (nats); the head runs at their positions only."""
    ids, seen, targets = (torch.from_numpy(part) for part in batch)
    hidden = model.base_model(ids, attention_mask=seen)[0]
    chosen = targets >= 0
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[chosen]), targets[chosen])


def build_model(recipe: Recipe) -> RobertaPreLayerNormForMaskedLM:
    """A RoBERTa-shaped model with layer norms before each part (float32, tied embeddings, no dropout).

    Its weights are random from the seed, or those of the causal model the recipe starts from.
    """
    torch.manual_seed(recipe.seed)
    extra = len(TOKENS) - 1 if recipe.start else 0
    config = RobertaPreLayerNormConfig(
        vocab_size=recipe.vocabulary + extra, max_position_embeddings=recipe.positions + PAD + 1,
        hidden_size=recipe.width, num_hidden_layers=recipe.depth, num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.width, hidden_act="gelu_pytorch_tanh", hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, type_vocab_size=1, layer_norm_eps=1e-5,
        bos_token_id=BEGIN, pad_token_id=PAD, eos_token_id=END,
    )
    model = RobertaPreLayerNormForMaskedLM(config)
    if recipe.start:
        from paclab.pretraining import turn

        turn.weights(model, load_model(recipe.start, "cpu").module)
    return model
