"""What is trained and for how long; knows no text and no training loop."""

from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from paclab.errors import InputError, nearest

KINDS = ("causal", "masked")


@dataclass(frozen=True)
class Recipe:
    """Shape, corpus share, batch sizes (rows a step) and schedule of one pretraining run.

    `prompted_steps` final steps add a batch of prompted public sentiment snippets, the last `target_steps` of them
    with the task's own prompt and, with probability `tilt` a pair, the positive snippet the longer one (causal kind);
    `reviews` limits the number of public reviews read (None: all); `lr` is the peak of a warm-up and cosine schedule
    that ends at `lr * floor`, then falls to nothing over the `target_steps`; `kind` is causal or masked (the latter
    reads no questions and has no target steps), and a masked model may `start` from a causal one's weights.
    """

    kind: str = "causal"
    start: str | None = None
    width: int = 128
    depth: int = 2
    heads: int = 4
    vocabulary: int = 4096
    positions: int = 256
    row_tokens: int = 96
    steps: int = 6000
    prompted_steps: int = 1000
    target_steps: int = 200
    tilt: float = 0.85
    text_rows: int = 24
    question_rows: int = 8
    prompted_rows: int = 64
    lr: float = 3e-3
    warmup: int = 100
    floor: float = 0.1
    weight_decay: float = 0.01
    seed: int = 0
    reviews: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError("kind", f"{self.kind!r} is unknown", nearest(self.kind, KINDS))
        if self.start is not None and self.kind != "masked":
            raise InputError("start", "a causal model begins with random weights", "give kind=masked, or no start")
        if self.width % self.heads:
            raise InputError(
                "width", f"{self.width} is not a multiple of {self.heads} heads", "change either"
            )
        if not 0 <= self.prompted_steps <= self.steps:
            raise InputError(
                "prompted_steps", f"{self.prompted_steps} is outside 0..{self.steps}", "give at most `steps`"
            )
        if self.target_steps < 0:
            raise InputError("target_steps", f"{self.target_steps} is negative", "give 0 or more")
        if not 0 <= self.tilt <= 1:
            raise InputError("tilt", f"{self.tilt} is no probability", "give a value from 0 to 1")
        for name in ("steps", "text_rows", "question_rows", "prompted_rows", "depth"):
            if getattr(self, name) < 1:
                raise InputError(name, "must be at least 1", "give a positive whole number")
        if not 0 <= self.seed < 2**31:
            raise InputError("seed", f"{self.seed} is out of range", f"choose between 0 and {2**31 - 1}")
        if self.reviews is not None and self.reviews < 3:
            raise InputError("reviews", f"{self.reviews} is too few", "give at least 3: one is held out")
        if self.vocabulary < 300:
            raise InputError(
                "vocabulary", f"{self.vocabulary} leaves no room beside the 256 bytes", "give at least 300"
            )

    @property
    def last_steps(self) -> int:
        """Steps with the task's own prompt: `target_steps`, as far as there are prompted ones; causal kind only."""
        return min(self.target_steps, self.prompted_steps) if self.kind == "causal" else 0


def build_model(recipe: Recipe) -> GPT2LMHeadModel:
    """A GPT-2 shaped model with random weights from the seed (float32, tied embeddings, no dropout)."""
    torch.manual_seed(recipe.seed)
    config = GPT2Config(
        vocab_size=recipe.vocabulary,
        n_positions=recipe.positions,
        n_embd=recipe.width,
        n_layer=recipe.depth,
        n_head=recipe.heads,
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up to `lr`, then a half cosine down to `lr * floor`, scaled down to nothing over the target steps."""
    if step < recipe.warmup:
        return recipe.lr * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    wave = 0.5 * (1 + torch.cos(torch.tensor(done * torch.pi, dtype=torch.float64)).item())
    left = (recipe.steps - step) / recipe.last_steps if recipe.last_steps else 1.0
    return recipe.lr * (recipe.floor + (1 - recipe.floor) * wave) * min(1.0, left)
