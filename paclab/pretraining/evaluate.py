"""Scores of the pretrained model for its card: loss, zero-shot sentiment, questions; changes nothing."""

import math
import re
import string
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from paclab import prompts
from paclab.pretraining.corpus import text_batch
from paclab.pretraining.loop import batch_loss


class Score(NamedTuple):
    """A mean with its 95 % half-width (normal approximation) and the number of records behind it."""

    mean: float
    half_width: float
    n: int

    def percent(self) -> str:
        """As `61.2 ± 1.1 % (n = 4000)`."""
        return f"{100 * self.mean:.1f} ± {100 * self.half_width:.1f} % (n = {self.n:,})"


def score(values) -> Score:
    """Mean and 95 % half-width of a value a record."""
    array = np.asarray(values, np.float64)
    return Score(float(array.mean()), 1.96 * float(array.std()) / math.sqrt(len(array)), len(array))


@torch.no_grad()
def text_nats(model: GPT2LMHeadModel, rows: list[list[int]]) -> float:
    """Mean loss (nats a token) over rows of text."""
    total = count = 0.0
    for start in range(0, len(rows), 128):
        batch = text_batch(sorted(rows[start : start + 128], key=len))
        tokens = float(batch.weights.sum())
        total, count = total + batch_loss(model, batch).item() * tokens, count + tokens
    return total / count


@torch.no_grad()
def sentiment_margins(
    model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, sentences: list[str]
) -> np.ndarray:
    """Log-odds of ` great` against ` terrible` after the prompt, one per sentence."""
    terrible, great = (tokenizer.encode(w, add_special_tokens=False)[0] for w in prompts.SENTIMENT_WORDS)
    rows = tokenizer([prompts.sentiment(s) for s in sentences], add_special_tokens=False)["input_ids"]
    order, out = sorted(range(len(rows)), key=lambda i: len(rows[i])), np.zeros(len(rows))
    direction = model.transformer.wte.weight[great] - model.transformer.wte.weight[terrible]
    for start in range(0, len(order), 256):
        chosen = order[start : start + 256]
        lengths = torch.tensor([len(rows[i]) for i in chosen])
        ids = torch.zeros((len(chosen), int(lengths.max())), dtype=torch.long)
        for row, index in enumerate(chosen):
            ids[row, : len(rows[index])] = torch.tensor(rows[index])
        hidden = model.transformer(ids, use_cache=False).last_hidden_state
        out[chosen] = (hidden[torch.arange(len(chosen)), lengths - 1] @ direction).numpy()
    return out


def sentiment_score(
    model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, records: list[tuple[str, int]]
) -> Score:
    """Zero-shot accuracy: the more likely of the two label words against the label."""
    margins = sentiment_margins(model, tokenizer, [text for text, _ in records])
    return score([float((m > 0) == bool(label)) for m, (_, label) in zip(margins, records, strict=True)])


def _words(text: str) -> list[str]:
    plain = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def token_f1(prediction: str, gold: str) -> float:
    """SQuAD's F1 of the normalised words of one prediction and one answer."""
    ours, theirs = _words(prediction), _words(gold)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs)) if common else float(ours == theirs)


@torch.no_grad()
def greedy(model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, prompt: str, limit: int = 16) -> str:
    """The greedy continuation up to the end of the line or `limit` tokens."""
    prefix = tokenizer.encode(prompt, add_special_tokens=False)
    stop = (tokenizer.eos_token_id, *tokenizer.encode("\n", add_special_tokens=False))
    out: list[int] = []
    for _ in range(limit):  # prompts are short: running the whole prefix again costs less than a cache
        hidden = model.transformer(torch.tensor([prefix + out]), use_cache=False).last_hidden_state
        token = int((model.transformer.wte.weight @ hidden[0, -1]).argmax())
        if token in stop:
            break
        out.append(token)
    return tokenizer.decode(out).strip()


def question_scores(
    model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, records: list[dict]
) -> tuple[Score, Score]:
    """F1 and exact match of greedy answers, best over the reference answers."""
    f1, exact = [], []
    for record in records:
        text = greedy(
            model, tokenizer, prompts.question(record["title"], record["context"], record["question"])
        )
        f1.append(max(token_f1(text, gold) for gold in record["answers"]))
        exact.append(max(float(_words(text) == _words(gold)) for gold in record["answers"]))
    return score(f1), score(exact)
