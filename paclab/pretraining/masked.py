"""The masked kind: a small RoBERTa-shaped model, its text, its batches and their loss; knows no training loop.

Rows are `<s> text </s>` of public snippets with a share of their tokens hidden; prompted rows are public snippets
with the masked sentiment prompt, the review's label word as the only target. Within a batch every length holds each
label equally often, so that neither word is favoured by anything but the text.
"""

from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

from paclab import prompts
from paclab.pretraining import corpus as causal
from paclab.pretraining.recipe import Recipe

BEGIN, PAD, END, UNKNOWN, MASK = 0, 1, 2, 3, 4  # RoBERTa's order; the mask follows
TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SHARE = 0.2  # of a text row's tokens are predicted: 80 % of them hidden, 10 % replaced, 10 % left (BERT's rule)
DEFAULTS = {"kind": "masked", "steps": 5000, "prompted_steps": 100, "text_rows": 32, "prompted_rows": 64,
            "positions": 128}  # where a masked recipe differs from the causal one


class Batch(NamedTuple):
    """Token ids, attention mask and targets (-100: not predicted), each [rows, length], right padded."""

    ids: np.ndarray
    seen: np.ndarray
    targets: np.ndarray


def train_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE with RoBERTa's special tokens; the mask takes the space before it."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    mask = AddedToken(TOKENS[MASK], lstrip=True, special=True)
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[*TOKENS[:MASK], mask],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BEGIN), ("</s>", END)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token=mask, clean_up_tokenization_spaces=False,
    )


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


def build_corpus(recipe: Recipe) -> causal.Corpus:
    """Read, normalise and tokenise the public text; a function of the recipe alone."""
    found = causal.documents(recipe.reviews, recipe.seed)
    cut = len(found) - max(1, len(found) // causal.HELD_OUT)
    train, held = found[:cut], found[cut:]
    words = [prompts.masked_sentiment(s, prompts.SENTIMENT_WORDS[d.label].strip()) for d in train for s in d.snippets]
    tokenizer = train_tokenizer(words, recipe.vocabulary)
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


@lru_cache(maxsize=2)
def _by_length(lengths: tuple[int, ...], labels: tuple[int, ...]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Numbers of the negative and the positive snippets of every length that has both."""
    groups = defaultdict(lambda: ([], []))
    for index, (length, label) in enumerate(zip(lengths, labels, strict=True)):
        groups[length][label].append(index)
    return {k: (np.array(v[0]), np.array(v[1])) for k, v in sorted(groups.items()) if v[0] and v[1]}


def prompted_batch(corpus: causal.Corpus, size: int, seed: int) -> Batch:
    """Pairs of equally long public snippets of opposite labels with the prompt; the word at the mask is the target."""
    rng = np.random.default_rng([20_243, seed])
    groups = _by_length(tuple(len(ids) for ids, _ in corpus.snippets), tuple(label for _, label in corpus.snippets))
    lengths = np.array(list(groups))
    share = np.array([len(a) + len(b) for a, b in groups.values()], float)
    drawn = rng.choice(lengths, size=size // 2, p=share / share.sum())
    chosen = [int(rng.choice(groups[int(length)][label])) for length in drawn for label in (0, 1)]
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
    return hide(rows, recipe.vocabulary, [20_244, recipe.seed, step])


def batches(corpus: causal.Corpus, text: causal.Stream, recipe: Recipe, step: int) -> dict[str, Batch]:
    """What a step trains on, by name."""
    found = {"masked text": text_batch(corpus, text, recipe, step)}
    if step >= recipe.steps - recipe.prompted_steps:
        found["prompted"] = prompted_batch(corpus, recipe.prompted_rows, step)
    return found


def batch_loss(model: RobertaForMaskedLM, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the targets (nats); the head runs at their positions only."""
    ids, seen, targets = (torch.from_numpy(part) for part in batch)
    hidden = model.base_model(ids, attention_mask=seen)[0]
    chosen = targets >= 0
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[chosen]), targets[chosen])


def build_model(recipe: Recipe) -> RobertaForMaskedLM:
    """A RoBERTa-shaped model with random weights from the seed (float32, tied embeddings, no dropout)."""
    torch.manual_seed(recipe.seed)
    config = RobertaConfig(
        vocab_size=recipe.vocabulary, max_position_embeddings=recipe.positions + PAD + 1, hidden_size=recipe.width,
        num_hidden_layers=recipe.depth, num_attention_heads=recipe.heads, intermediate_size=4 * recipe.width,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, type_vocab_size=1, layer_norm_eps=1e-5,
        bos_token_id=BEGIN, pad_token_id=PAD, eos_token_id=END,
    )
    return RobertaForMaskedLM(config)
