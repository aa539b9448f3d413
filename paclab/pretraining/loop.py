"""The training loop: deterministic, resumable after a kill, with progress; knows no evaluation."""

import io
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import GPT2LMHeadModel

from paclab.errors import InputError
from paclab.files import write_atomic
from paclab.pretraining import masked
from paclab.pretraining.corpus import Batch, Corpus, Stream, question_batch
from paclab.pretraining.prompted import prompted_batch
from paclab.pretraining.recipe import Recipe, build_model, learning_rate

CHECKPOINT = "checkpoint.pt"


class Progress(NamedTuple):
    """What a caller may print: losses are nats a token, speed counts every token of the step."""

    step: int
    steps: int
    losses: dict[str, float]
    tokens_per_second: float
    seconds_left: float

    def line(self) -> str:
        """One line for a terminal or a log."""
        losses = "".join(f"  {name} {loss:.3f}" for name, loss in self.losses.items())
        return (
            f"step {self.step}/{self.steps}{losses}  {self.tokens_per_second:,.0f} tokens/s  "
            f"{self.seconds_left / 60:.1f} min left"
        )


class Kind(NamedTuple):
    """What the loop needs to know of a kind of model: its weights, a step's batches by name, and their loss."""

    build: Callable
    batches: Callable
    loss: Callable


def batch_loss(model: GPT2LMHeadModel, batch: Batch) -> torch.Tensor:
    """Weighted mean cross-entropy (nats); logits are computed only where the weight is positive."""
    ids, weights = torch.from_numpy(batch.ids), torch.from_numpy(batch.weights)
    hidden = model.transformer(ids, use_cache=False).last_hidden_state[:, :-1]
    target, weight = ids[:, 1:], weights[:, 1:]
    chosen = weight > 0
    logits = hidden[chosen] @ model.transformer.wte.weight.T
    losses = torch.nn.functional.cross_entropy(logits, target[chosen], reduction="none")
    return (losses * weight[chosen]).sum() / weight[chosen].sum()


def causal_batches(corpus: Corpus, text: Stream, recipe: Recipe, step: int) -> dict[str, Batch]:
    """What a causal model's step trains on, by name."""
    batches = {"text": text.at(step), "questions": question_batch(corpus.tokenizer, recipe.question_rows, step)}
    if step >= recipe.steps - recipe.prompted_steps:
        batches["prompted"] = prompted_batch(corpus, recipe, step)
    return batches


KINDS = {
    "causal": Kind(build_model, causal_batches, batch_loss),
    "masked": Kind(masked.build_model, masked.batches, masked.batch_loss),
}


def _optimizer(model: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.98), foreach=True)


def _save(
    path: Path, recipe: Recipe, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    buffer = io.BytesIO()
    torch.save(
        {
            "recipe": asdict(recipe),
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        },
        buffer,
    )
    write_atomic(path, buffer.getvalue())


def _restore(path: Path, recipe: Recipe, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    stored = asdict(Recipe()) | state["recipe"]  # a setting that is newer than the checkpoint had its default
    if stored != asdict(recipe):
        changed = sorted(k for k, v in asdict(recipe).items() if stored.get(k) != v)
        raise InputError(
            "out",
            f"holds a checkpoint of another recipe (differs in {', '.join(changed)})",
            "choose another folder or repeat the recipe",
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    corpus: Corpus,
    text: Stream,
    step: int,
) -> tuple[dict[str, float], int]:
    kind = KINDS[recipe.kind]
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(recipe, step)
    batches = kind.batches(corpus, text, recipe, step)
    losses = {}
    for name, batch in batches.items():
        loss = kind.loss(model, batch)
        loss.backward()
        losses[name] = loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return losses, sum(b.ids.size for b in batches.values())


def pretrain(
    recipe: Recipe,
    corpus: Corpus,
    folder: Path,
    *,
    minutes: float | None = None,
    every: int = 200,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[torch.nn.Module, int]:
    """Train until the recipe's last step or the time limit; returns the model and the number of steps done.

    A checkpoint is written every `every` steps and at the end; a later call with the same recipe and folder
    goes on from it and ends with the same weights as an uninterrupted run on the same machine and thread
    count. Raises InputError when the folder holds another recipe's checkpoint.
    """
    model = KINDS[recipe.kind].build(recipe)
    optimizer = _optimizer(model, recipe)
    path = folder / CHECKPOINT
    begin = step = _restore(path, recipe, model, optimizer)
    text = Stream(corpus.text, recipe.text_rows, recipe.seed)
    started = since = time.monotonic()
    tokens = 0
    while step < recipe.steps and (minutes is None or time.monotonic() - started < 60 * minutes):
        losses, count = _step(model, optimizer, recipe, corpus, text, step)
        step, tokens = step + 1, tokens + count
        if step % every == 0 or step == recipe.steps:
            _save(path, recipe, step, model, optimizer)
        if step % 50 == 0 or step == recipe.steps:
            now = time.monotonic()
            left = (now - started) / (step - begin) * (recipe.steps - step)
            report(Progress(step, recipe.steps, losses, tokens / (now - since), left))
            since, tokens = now, 0
    if step > begin:
        _save(path, recipe, step, model, optimizer)
    return model, step
