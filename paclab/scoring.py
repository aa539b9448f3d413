"""Batched forward passes that compute logits only where they are needed; knows no task and no privacy.

Micro-batches are formed from the rows' lengths alone, before anything depends on the machine: rows are sorted by
length and filled up to a token budget. A causal model never looks to the right, so right padding needs no mask.
"""

import inspect
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from paclab.errors import InputError
from paclab.models import LanguageModel
from paclab.shortcut import Narrow
from paclab.threads import side_by_side

TOKEN_BUDGET = 1024


def micro_batches(lengths: list[int], token_budget: int = TOKEN_BUDGET) -> list[np.ndarray]:
    """Row numbers grouped so that rows x longest row <= token_budget; sorted by length, ties by row number."""
    order = np.argsort(np.asarray(lengths), kind="stable")
    groups, current = [], []
    for row in order:
        if current and (len(current) + 1) * lengths[row] > token_budget:
            groups.append(np.array(current))
            current = []
        current.append(int(row))
    return [*groups, np.array(current)] if current else groups


class Scorer:
    """Scores token rows with a model; the weights are read at each call, so they may be perturbed in between."""

    def __init__(self, model: LanguageModel, token_budget: int = TOKEN_BUDGET, padding: str = "right"):
        if padding not in ("right", "left"):
            raise InputError("padding", f"{padding!r} is unknown", "choose right or left")
        if token_budget < 1:
            raise InputError("token_budget", f"{token_budget} holds no token", "give at least 1")
        self.model, self.token_budget, self.padding = model, token_budget, padding
        self.decoder = model.module.get_decoder() if hasattr(model.module, "get_decoder") else None
        self.head = model.module.get_output_embeddings()
        self.takes_positions = "position_ids" in inspect.signature(model.module.forward).parameters
        self.head_is_plain: bool | None = None  # proved on the first batch
        self.narrow: Narrow | None = None  # likewise
        self._padded: tuple[tuple, list] | None = None
        self.copies = 1  # the rows are so many repetitions of the same ones; a micro-batch holds the same of each

    def batches(self, rows: list[list[int]]) -> list["Batch"]:
        """Pad once; the result is reused at every step, and by all probes of a step that share their rows."""
        if self._padded and self._padded[0] == (self.copies, rows):
            return self._padded[1]
        if any(len(row) == 0 for row in rows):
            raise InputError("records", "a record has no token", "drop empty texts")
        lengths = [len(row) for row in rows[: len(rows) // self.copies]]
        groups = micro_batches(lengths, max(1, self.token_budget // self.copies))
        count = len(rows) // self.copies
        groups = [np.concatenate([group + c * count for c in range(self.copies)]) for group in groups]
        self._padded = (self.copies, rows), [Batch(rows, group, self.padding, self.model) for group in groups]
        return self._padded[1]

    @torch.no_grad()
    def hidden(self, batch: "Batch") -> torch.Tensor:
        """Hidden states before the output embedding: [rows, length, width]."""
        extra = {}
        if batch.mask is not None:
            extra["attention_mask"] = batch.mask
            if self.takes_positions:
                extra["position_ids"] = (batch.mask.cumsum(-1) - 1).clamp_(min=0)
        states = self.decoder(input_ids=batch.ids, use_cache=False, **extra)[0] if self.decoder else None
        if self.head_is_plain is None:
            self.head_is_plain = self._prove_head(batch, states, extra)
        if self.head_is_plain:
            return states
        return self.model.module(input_ids=batch.ids, use_cache=False, **extra).logits

    def _prove_head(self, batch, states, extra) -> bool:
        if states is None or self.head is None:
            return False
        logits = self.model.module(input_ids=batch.ids[:2], use_cache=False,
                                   **{k: v[:2] for k, v in extra.items()}).logits
        keep = slice(None) if batch.mask is None else batch.mask[:2].bool()
        return torch.allclose(self.head(states[:2])[keep].float(), logits[keep].float(), rtol=1e-3, atol=1e-3)

    def _logits(self, states: torch.Tensor, columns: torch.Tensor | None = None) -> torch.Tensor:
        """float32 logits of gathered states [n, width], all columns or a few."""
        if not self.head_is_plain:
            return (states if columns is None else states[:, columns]).float()
        if columns is None:
            return self.head(states).float()
        bias = getattr(self.head, "bias", None)
        return F.linear(states, self.head.weight[columns], None if bias is None else bias[columns]).float()

    def last_logits(self, batches: list["Batch"], columns: list[int]) -> torch.Tensor:
        """Logits of a few columns at every row's last token: float32 [rows, columns]."""
        wanted = torch.tensor(columns, device=self.model.device)

        @torch.no_grad()
        def score(batch: Batch) -> torch.Tensor:
            with self.narrow.reading(batch.last):
                states = self.hidden(batch)
            picked = states[torch.arange(len(batch.rows), device=states.device), batch.last]
            return self._logits(picked, wanted).cpu()

        if self.narrow is None and batches:
            self.narrow = Narrow(self.decoder)
            self.narrow.prove(lambda: self.hidden(batches[0]), batches[0].last)
        return self._gather(score, batches, torch.empty(sum(len(b.rows) for b in batches), len(columns)))

    def span_nll(self, batches: list["Batch"], starts: np.ndarray) -> torch.Tensor:
        """Mean negative log-likelihood of tokens starts[row].. of every row: float64 [rows], nats a token."""

        @torch.no_grad()
        def score(batch: Batch) -> torch.Tensor:
            states = self.hidden(batch)
            row, column = batch.span(starts[batch.rows.numpy()])
            logits = self._logits(states[row, column - 1])
            nll = F.cross_entropy(logits, batch.ids[row, column], reduction="none").double().cpu()
            row = row.cpu()
            total = torch.zeros(len(batch.rows), dtype=torch.float64).index_add_(0, row, nll)
            return total / torch.bincount(row, minlength=len(batch.rows))

        return self._gather(score, batches, torch.empty(sum(len(b.rows) for b in batches), dtype=torch.float64))

    def _gather(self, score: Callable, batches: list["Batch"], out: torch.Tensor) -> torch.Tensor:
        if self.head_is_plain is None and batches:
            self.hidden(batches[0])  # prove the head once, before threads share it
        for batch, value in zip(batches, side_by_side(score, batches, self.model.device), strict=True):
            out[batch.rows] = value
        return out

    @torch.no_grad()
    def generate(self, rows: list[list[int]], max_new_tokens: int, stop: list[int]) -> list[list[int]]:
        """Greedy continuations, cut before the first stop token."""
        pad = self.model.tokenizer.pad_token_id
        out: list[list[int]] = [[] for _ in rows]
        for group in micro_batches([len(row) + max_new_tokens for row in rows], 4 * self.token_budget):
            batch = Batch(rows, group, "left", self.model)
            tokens = self.model.module.generate(
                input_ids=batch.ids, attention_mask=batch.mask, max_new_tokens=max_new_tokens, do_sample=False,
                eos_token_id=stop, pad_token_id=pad, num_beams=1)[:, batch.ids.shape[1]:].tolist()
            for row, answer in zip(group, tokens, strict=True):
                ends = [i for i, token in enumerate(answer) if token in stop]
                out[row] = answer[: ends[0]] if ends else answer
        return out


class Batch:
    """A padded group of rows on the device; `mask` is None where padding cannot be seen (right padding)."""

    def __init__(self, rows: list[list[int]], group: np.ndarray, padding: str, model: LanguageModel):
        lengths = torch.tensor([len(rows[i]) for i in group])
        width, pad = int(lengths.max()), model.tokenizer.pad_token_id
        ids = torch.full((len(group), width), pad, dtype=torch.int64)
        for line, i in enumerate(group):
            where = slice(0, len(rows[i])) if padding == "right" else slice(width - len(rows[i]), width)
            ids[line, where] = torch.tensor(rows[i])
        self.rows = torch.from_numpy(np.asarray(group))
        self.ids = ids.to(model.device)
        self.lengths = lengths.to(model.device)
        self.offset = torch.zeros_like(self.lengths) if padding == "right" else width - self.lengths
        self.mask = None
        if padding == "left":
            self.mask = (torch.arange(width, device=model.device) >= self.offset[:, None]).long()
        self.last = self.offset + self.lengths - 1

    def span(self, starts: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column numbers of the tokens from `starts` to each row's end."""
        first = self.offset + torch.from_numpy(np.asarray(starts)).to(self.offset)
        columns = torch.arange(self.ids.shape[1], device=self.ids.device)
        return torch.nonzero((columns >= first[:, None]) & (columns <= self.last[:, None]), as_tuple=True)
