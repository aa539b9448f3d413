"""The public text as token rows: review sentences, single snippets, templated questions; knows no model.

Nothing of the private universe enters: snippets whose letters and digits equal those of a private sentence
are left out, and the last twentieth of the public reviews is held out to measure the loss.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from paclab import prompts, qa_family
from paclab.errors import InputError
from paclab.pretraining.recipe import Recipe
from paclab.reviews import PRIVATE, PUBLIC, key, reviews, snippets

END = "<|endoftext|>"
HELD_OUT = 20  # one review in so many is never trained on
QUESTION_WEIGHT = 0.25  # of a question's tokens in the loss; an answer's tokens count 1, the passage's 0


class Document(NamedTuple):
    """One public review: its snippets in order and its polarity."""

    snippets: tuple[str, ...]
    label: int


class Batch(NamedTuple):
    """Token ids [rows, length], right padded with 0, and the loss weight of every token as a target."""

    ids: np.ndarray
    weights: np.ndarray


class Corpus(NamedTuple):
    """Tokenised public text: rows of text, single snippets with labels, and held-out parts of both."""

    tokenizer: PreTrainedTokenizerFast
    text: list[list[int]]
    snippets: list[tuple[list[int], int]]
    held_text: list[list[int]]
    held_snippets: list[tuple[str, int]]
    characters: int  # of the held-out text rows


def documents(limit: int | None, seed: int) -> list[Document]:
    """The public reviews as snippets, permuted by `seed`, without any that is also a private sentence."""
    private = {key(review.text) for review in reviews(PRIVATE)}
    public = reviews(PUBLIC)
    order = np.random.default_rng(seed).permutation(len(public))[:limit]
    found = []
    for index in order:
        text, label = public[int(index)]
        kept = tuple(s for s in snippets(text) if key(s) not in private)
        if kept:
            found.append(Document(kept, label))
    return found


def trained(found: list[Document]) -> int:
    """How many of the reviews, from the first, are trained on; the others are held out."""
    cut = len(found) - max(1, len(found) // HELD_OUT)
    if len({d.label for d in found[: max(0, cut)]}) < 2:  # sentiment is taught in pairs of both labels
        raise InputError("reviews", "so few leave no praise or no blame to train on", "read more")
    return cut


def train_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE in GPT-2's style with one special token, used to begin, to end and to pad."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=END, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[list[int]]:
    return [e.ids for e in tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def _rows(first: list[list[list[int]]], later: list[list[list[int]]], size: int) -> list[list[int]]:
    """Consecutive whole snippets of a review up to `size` tokens; every third row starts with `END`.

    `first` holds each review's snippets as they begin a row, `later` as they follow another (with a leading
    space).
    """
    rows: list[list[int]] = []
    for begins, follows in zip(first, later, strict=True):
        row: list[int] = []
        for ids, piece in zip(begins, follows, strict=True):
            if row and len(row) + len(piece) > size:
                rows.append(row)
                row = []
            lead = [0] if len(rows) % 3 == 0 else []
            row = row + piece if row else (lead + ids)[:size]
        rows.append([*row, 0][:size])
    return rows


def _encode_documents(
    tokenizer: PreTrainedTokenizerFast, found: list[Document], lead: str
) -> list[list[list[int]]]:
    flat = iter(encode(tokenizer, [lead + s for d in found for s in d.snippets]))
    return [[next(flat) for _ in d.snippets] for d in found]


def build_corpus(recipe: Recipe) -> Corpus:
    """Read, normalise and tokenise everything the recipe needs; a function of the recipe alone."""
    found = documents(recipe.reviews, recipe.seed)
    cut = trained(found)
    train, held = found[:cut], found[cut:]
    passages = qa_family.passages("public", max(50, len(train) // 5), seed=2**31 - 1)
    frames = [
        prompts.question(p.title, p.context, q) + prompts.answer(a) for p in passages for q, a in p.pairs
    ]
    words = [f"{prompts.sentiment(s)}{prompts.SENTIMENT_WORDS[d.label]}" for d in train for s in d.snippets]
    tokenizer = train_tokenizer(words + frames, recipe.vocabulary)
    first, later = (_encode_documents(tokenizer, found, lead) for lead in ("", " "))
    room, size = recipe.row_tokens - 4, recipe.row_tokens
    singles = [(ids[:room], d.label) for d, begins in zip(train, first[:cut], strict=True) for ids in begins]
    held_rows = _rows(first[cut:], later[cut:], size)
    return Corpus(
        tokenizer,
        _rows(first[:cut], later[:cut], size),
        singles,
        held_rows,
        [(s, d.label) for d in held for s in d.snippets],
        sum(len(tokenizer.decode([i for i in row[1:] if i])) for row in held_rows),
    )


def padded(rows: list[list[int]], weights: list[list[float]]) -> Batch:
    """Right-pad rows and weights with zeros; a row's first token is never a target."""
    length = max(len(row) for row in rows)
    ids, loss = np.zeros((len(rows), length), np.int64), np.zeros((len(rows), length), np.float32)
    for index, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        ids[index, : len(row)], loss[index, : len(row)] = row, weight
    loss[:, 0] = 0
    return Batch(ids, loss)


def text_batch(rows: list[list[int]]) -> Batch:
    """A language-modelling batch: every token but the first counts 1."""
    return padded(rows, [[1.0] * len(row) for row in rows])


@lru_cache(maxsize=2)
def _epoch(lengths: tuple[int, ...], rows: int, seed: int, epoch: int) -> tuple[np.ndarray, ...]:
    """The batches of one pass: a permutation sorted by length within windows of 50 batches, then shuffled."""
    rng = np.random.default_rng([seed, epoch])
    order, size = rng.permutation(len(lengths)), np.asarray(lengths)
    batches: list[np.ndarray] = []
    for start in range(0, len(order), 50 * rows):
        window = order[start : start + 50 * rows]
        window = window[np.argsort(size[window], kind="stable")]
        batches += [window[i : i + rows] for i in range(0, len(window), rows)]
    return tuple(batches[int(i)] for i in rng.permutation(len(batches)))


class Stream:
    """Batches of review text in a fixed order: `stream.at(step)` depends on the step and the seed only."""

    def __init__(self, rows: list[list[int]], size: int, seed: int):
        self.rows, self.size, self.seed = rows, size, seed
        self.lengths = tuple(len(row) for row in rows)
        self.per_epoch = sum(
            -(-min(50 * size, len(rows) - s) // size) for s in range(0, len(rows), 50 * size)
        )

    def at(self, step: int) -> Batch:
        """The batch of a step."""
        epoch, index = divmod(step, self.per_epoch)
        chosen = _epoch(self.lengths, self.size, self.seed, epoch)[index]
        return text_batch([self.rows[int(i)] for i in chosen])


def question_batch(tokenizer: PreTrainedTokenizerFast, size: int, seed: int) -> Batch:
    """Fresh public passages, each followed by all its questions and answers in the published layout."""
    rows, weights = [], []
    for drawn in qa_family.passages("public", size, seed):
        pieces, values = [], []
        for number, (query, answer) in enumerate(drawn.pairs):
            prompt = prompts.question(drawn.title, drawn.context, query)
            head, tail = prompt[: prompt.rindex("Question:")], prompt[prompt.rindex("Question:") :]
            pieces += ([head] if number == 0 else []) + [tail, prompts.answer(answer)]
            values += ([0.0] if number == 0 else []) + [QUESTION_WEIGHT, 1.0]
        encoded = encode(tokenizer, pieces)
        rows.append([i for ids in encoded for i in ids])
        weights.append([v for v, ids in zip(values, encoded, strict=True) for _ in ids])
    return padded(rows, weights)
