"""Batched forward passes of a masked model, read at each row's mask only; knows no task and no privacy.

A masked model looks both ways, so padding is always hidden by an attention mask (on the right: a masked model's
numbers do not depend on the side). Whether the prediction head may be applied to the read positions alone is proved
on the first batch against the model's own logits, as are the narrowed parts of the last block.
"""

import numpy as np
import torch

from paclab.errors import InputError
from paclab.models import LanguageModel
from paclab.scoring import TOKEN_BUDGET, micro_batches
from paclab.shortcut import Narrow, Reading
from paclab.threads import side_by_side


class MaskedBatch:
    """A right-padded group of rows on the device, its attention mask, and where each row's mask token stands."""

    def __init__(self, rows: list[list[int]], group: np.ndarray, model: LanguageModel):
        tokenizer = model.tokenizer
        width = max(len(rows[i]) for i in group)
        ids = torch.full((len(group), width), tokenizer.pad_token_id, dtype=torch.int64)
        seen = torch.zeros_like(ids)
        for line, i in enumerate(group):
            ids[line, : len(rows[i])], seen[line, : len(rows[i])] = torch.tensor(rows[i]), 1
        holes = ids == tokenizer.mask_token_id
        if not bool((holes.sum(1) == 1).all()):
            raise InputError("records", "a row does not hold exactly one mask", "shorten or clean its text")
        self.rows = torch.from_numpy(np.asarray(group))
        self.ids, self.seen = ids.to(model.device), seen.to(model.device)
        self.mask_at = holes.long().argmax(1).to(model.device)


class Cut(Reading):
    """A hook on the body: the head gets the states at the masks only, as rows of length 1. Asleep without `reading`."""

    def __reduce__(self):
        return Cut, ()  # hooks of a copied model stay asleep

    def __call__(self, module, args, output):
        positions = self.positions
        if positions is None:
            return None
        states = output[0]
        picked = states[torch.arange(len(states), device=states.device), positions][:, None]
        return type(output)(last_hidden_state=picked) if hasattr(output, "last_hidden_state") else (picked,)


class MaskedScorer:
    """Scores token rows at their masks; the weights are read at each call, so they may be perturbed in between."""

    def __init__(self, model: LanguageModel, token_budget: int = TOKEN_BUDGET):
        if token_budget < 1:
            raise InputError("token_budget", f"{token_budget} holds no token", "give at least 1")
        self.model, self.token_budget = model, token_budget
        self.body = model.module.base_model
        self.narrow: Narrow | None = None  # proved on the first batch
        self.cut: Cut | None = None  # likewise
        self._padded: tuple[list, list] | None = None

    def batches(self, rows: list[list[int]]) -> list[MaskedBatch]:
        """Pad once; the result is reused at every step, and by all probes of a step that share their rows."""
        if self._padded is None or self._padded[0] != rows:
            groups = micro_batches([len(row) for row in rows], self.token_budget)
            self._padded = rows, [MaskedBatch(rows, group, self.model) for group in groups]
        return self._padded[1]

    def _forward(self, batch: MaskedBatch) -> torch.Tensor:
        return self.model.module(input_ids=batch.ids, attention_mask=batch.seen).logits

    def _at_mask(self, values: torch.Tensor, batch: MaskedBatch) -> torch.Tensor:
        return values[torch.arange(len(batch.ids), device=values.device), batch.mask_at]

    def _logits(self, batch: MaskedBatch) -> torch.Tensor:
        """Logits at the masks [rows, vocabulary]: the head at one position a row where that was proved exact."""
        with self.narrow.reading(batch.mask_at):
            if self.cut is None:
                return self._at_mask(self._forward(batch), batch)
            with self.cut.reading(batch.mask_at):
                return self._forward(batch)[:, 0]

    @torch.no_grad()
    def _prove(self, batch: MaskedBatch) -> None:
        """Keep each shortcut only if the first batch's logits at the masks come out unchanged."""
        whole = self._at_mask(self._forward(batch), batch)
        self.narrow = Narrow(self.body)
        self.narrow.prove(lambda: self._forward(batch), batch.mask_at)
        self.cut = Cut()
        hook = self.body.register_forward_hook(self.cut)
        try:
            same = torch.allclose(self._logits(batch), whole, rtol=1e-4, atol=1e-5)
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
            same = False
        if not same:
            hook.remove()
            self.cut = None

    def mask_logits(self, batches: list[MaskedBatch], columns: list[int]) -> torch.Tensor:
        """Logits of a few columns at every row's mask: float32 [rows, columns]."""
        if self.narrow is None and batches:
            self._prove(batches[0])

        @torch.no_grad()
        def score(batch: MaskedBatch) -> torch.Tensor:
            return self._logits(batch)[:, columns].float().cpu()

        out = torch.empty(sum(len(batch.rows) for batch in batches), len(columns))
        for batch, value in zip(batches, side_by_side(score, batches, self.model.device), strict=True):
            out[batch.rows] = value
        return out
