"""Tasks: prompts turned into token rows, and a loss for every record. Knows no privacy and no optimiser.

    sentiment   one row a record; loss = cross-entropy over the label words' logits after the prompt, or at the
                prompt's mask when the model is a masked one
    qa          loss = -F1 of the greedy answer (as published), in units of F1
    qa-ce       loss = cross-entropy of the first gold answer (what the DP baselines train on), nats a token
    lm          loss = cross-entropy of the text, nats a token
"""

from typing import NamedTuple

import numpy as np
import torch

from paclab import masked, metrics, prompts
from paclab.errors import InputError, nearest
from paclab.models import LanguageModel
from paclab.scoring import TOKEN_BUDGET, Scorer

TASKS = ("sentiment", "qa", "qa-ce", "lm")
ANSWER_TOKENS = 50  # the papers' limit on generated answers


class Outcome(NamedTuple):
    """Per-record results on held-out data: loss [n] and score [n] (accuracy, F1, or NaN for language modelling)."""

    loss: np.ndarray
    score: np.ndarray


def encode(model: LanguageModel, text: str, bos: int | str | None = "tokenizer") -> list[int]:
    """Token ids; bos = "tokenizer" (its own habit), None (none), or an id (the papers force 0 on OPT)."""
    ids = model.tokenizer(text, add_special_tokens=bos == "tokenizer")["input_ids"]
    return [bos, *ids] if isinstance(bos, int) else list(ids)


def fit(ids: list[int], room: int) -> list[int]:
    """Cut a prompt from the left to `room` tokens, keeping its first token (the papers' rule)."""
    return ids if len(ids) <= room else [ids[0], *ids[len(ids) - room + 1:]]


class LabelWords:
    """Losses and scores over label words, from `scores` and `labels` of a subclass."""

    labels: torch.Tensor

    def scores(self, batch: np.ndarray | None = None) -> torch.Tensor:
        """Log-probability of each label word up to a constant a record: float64 [n, words]."""
        raise NotImplementedError

    def losses(self, batch: np.ndarray | None = None) -> np.ndarray:
        """Cross-entropy of the gold label over the label words: float64 [N], or of the records in `batch`; nats."""
        labels = self.labels if batch is None else self.labels[torch.from_numpy(np.asarray(batch))]
        return torch.nn.functional.cross_entropy(self.scores(batch), labels, reduction="none").numpy()

    def outcome(self) -> Outcome:
        """Held-out loss and 0/1 correctness."""
        scores = self.scores()
        loss = torch.nn.functional.cross_entropy(scores, self.labels, reduction="none")
        return Outcome(loss.numpy(), (scores.argmax(1) == self.labels).double().numpy())


class Choice(LabelWords):
    """Losses over label words: one row a record when each word is one token, else one row a record and word."""

    def __init__(self, scorer: Scorer, records: list[dict], words=prompts.SENTIMENT_WORDS, bos="tokenizer"):
        model, self.scorer = scorer.model, scorer
        self.labels = torch.tensor([int(record["label"]) for record in records])
        texts = [prompts.sentiment(record["sentence"]) for record in records]
        heads = [encode(model, text, bos) for text in texts]
        stems = [len(encode(model, texts[0] + word, bos)) - len(heads[0]) for word in words]
        joined = [encode(model, texts[0] + word, bos) for word in words]
        plain = all(row[: len(heads[0])] == heads[0] for row in joined)
        self.columns = [row[-1] for row in joined] if plain and set(stems) == {1} else None
        room = model.context - max(1, *stems)
        if self.columns is not None:
            self.rows, self.starts = [fit(head, room) for head in heads], None
            self.batches = scorer.batches(self.rows)
            return
        rows, starts = [], []
        for text, head in zip(texts, heads, strict=True):
            for word in words:
                row = encode(model, text + word, bos)
                shared = next((i for i, (a, b) in enumerate(zip(row, head, strict=False)) if a != b), len(head))
                cut = fit(row, model.context)
                rows.append(cut)
                starts.append(max(1, min(shared, len(row) - 1) - (len(row) - len(cut))))
        self.rows, self.starts, self.batches = rows, np.array(starts), scorer.batches(rows)

    def scores(self, batch: np.ndarray | None = None) -> torch.Tensor:
        """Mean log-probability of each label word up to a constant a record: float64 [n, words]."""
        if self.columns is not None:
            batches = self.batches if batch is None else self.scorer.batches([self.rows[i] for i in batch])
            return self.scorer.last_logits(batches, self.columns).double()
        words = len(self.rows) // len(self.labels)
        lines = None if batch is None else (np.asarray(batch)[:, None] * words + np.arange(words)).ravel()
        return -_span_nll(self, lines).view(-1, words)


class MaskedChoice(LabelWords):
    """Losses over label words at the mask of the masked-model prompt: one row a record, one token a word."""

    def __init__(self, scorer: masked.MaskedScorer, records: list[dict], words=prompts.SENTIMENT_WORDS,
                 bos="tokenizer"):
        model, self.scorer = scorer.model, scorer
        self.labels = torch.tensor([int(record["label"]) for record in records])
        pieces = [encode(model, word, None) for word in words]
        long = [word.strip() for word, ids in zip(words, pieces, strict=True) if len(ids) != 1]
        if long:
            raise InputError("model", f"{long[0]!r} is not one token of this model", "one mask holds one token")
        self.columns = [ids[0] for ids in pieces]
        mask = model.tokenizer.mask_token
        texts = [prompts.masked_sentiment(record["sentence"].replace(mask, " "), mask) for record in records]
        self.rows = [fit(encode(model, text, bos), model.context) for text in texts]
        self.batches = scorer.batches(self.rows)

    def scores(self, batch: np.ndarray | None = None) -> torch.Tensor:
        """Logits of the label words at the mask: float64 [n, words]."""
        batches = self.batches if batch is None else self.scorer.batches([self.rows[i] for i in batch])
        return self.scorer.mask_logits(batches, self.columns).double()


def _span_nll(objective, lines: np.ndarray | None) -> torch.Tensor:
    if lines is None:
        return objective.scorer.span_nll(objective.batches, objective.starts)
    return objective.scorer.span_nll(objective.scorer.batches([objective.rows[i] for i in lines]),
                                     objective.starts[lines])


class Span:
    """Losses over a span of given tokens: a gold answer, or a whole text."""

    def __init__(self, scorer: Scorer, pairs: list[tuple[str, str]], bos="tokenizer"):
        model, self.scorer = scorer.model, scorer
        rows, starts = [], []
        for head, tail in pairs:
            prompt, row = encode(model, head, bos) if head else [], encode(model, head + tail, bos)
            first = max(1, min(len(prompt), len(row) - 1))
            cut = fit(row, model.context) if head else row[: model.context]
            rows.append(cut)
            starts.append(max(1, first - (len(row) - len(cut))) if head else 1)
        if min(len(row) for row in rows) < 2:
            raise InputError("records", "a text is shorter than two tokens", "drop such texts")
        self.rows, self.starts, self.batches = rows, np.array(starts), scorer.batches(rows)

    def losses(self, batch: np.ndarray | None = None) -> np.ndarray:
        """Mean cross-entropy over the span: float64 [N], or of the records in `batch`; nats a token."""
        return _span_nll(self, batch).numpy()

    def outcome(self) -> Outcome:
        """Held-out loss; there is no score."""
        loss = self.losses()
        return Outcome(loss, np.full_like(loss, np.nan))


class Answers:
    """Losses of greedy answers: minus the token F1 against the best gold answer, as PACZero trains on SQuAD."""

    def __init__(self, scorer: Scorer, records: list[dict], bos="tokenizer", max_new_tokens: int = ANSWER_TOKENS):
        model, self.scorer, self.limit = scorer.model, scorer, max_new_tokens
        self.answers = [record["answers"] for record in records]
        rows = [encode(model, prompts.question(r["title"], r["context"], r["question"]), bos) for r in records]
        if model.context <= max_new_tokens:
            raise InputError("max_new_tokens", f"{max_new_tokens} leaves no room for the prompt in a context of "
                             f"{model.context}", "lower it")
        self.rows = [fit(row, model.context - max_new_tokens) for row in rows]
        line_end = model.tokenizer("\n", add_special_tokens=False)["input_ids"][-1]
        eos = model.tokenizer.eos_token_id
        self.stop = [line_end] + ([eos] if eos is not None else [])

    def texts(self, batch: np.ndarray | None = None) -> list[str]:
        """The greedy answers, of all records or of those in `batch`."""
        rows = self.rows if batch is None else [self.rows[i] for i in batch]
        tokens = self.scorer.generate(rows, self.limit, self.stop)
        return [self.scorer.model.tokenizer.decode(t, skip_special_tokens=True).strip() for t in tokens]

    def losses(self, batch: np.ndarray | None = None) -> np.ndarray:
        """Minus F1: float64 [N] in [-1, 0], or of the records in `batch`."""
        answers = self.answers if batch is None else [self.answers[i] for i in batch]
        return -np.array([metrics.f1(t, a) for t, a in zip(self.texts(batch), answers, strict=True)])

    def outcome(self) -> Outcome:
        """F1 a record; the loss is its negative."""
        loss = self.losses()
        return Outcome(loss, -loss)


def objective(task: str, model: LanguageModel, records: list[dict], *, bos="tokenizer", padding: str = "right",
              token_budget: int = TOKEN_BUDGET, max_new_tokens: int | None = None):
    """The per-record losses of a task on these records: an object with losses() [N] and outcome()."""
    if task not in TASKS:
        raise InputError("task", f"{task!r} is unknown", nearest(task, TASKS))
    if model.masked:
        if task != "sentiment":
            raise InputError("task", f"{task} needs a causal model, {model.source} is a masked one",
                             "use task=sentiment, or a causal model")
        return MaskedChoice(masked.MaskedScorer(model, token_budget), records, bos=bos)
    scorer = Scorer(model, token_budget, padding)
    if task == "sentiment":
        return Choice(scorer, records, bos=bos)
    if task == "lm":
        return Span(scorer, [("", record["text"]) for record in records], bos)
    if task == "qa-ce":
        pairs = [(prompts.question(r["title"], r["context"], r["question"]), prompts.answer(r["answers"][0]))
                 for r in records]
        return Span(scorer, pairs, bos)
    return Answers(scorer, records, bos, max_new_tokens or ANSWER_TOKENS)


def source_task(task: str) -> str:
    """Which records a task reads: `qa-ce` trains on the records of `qa`."""
    return "qa" if task == "qa-ce" else task
