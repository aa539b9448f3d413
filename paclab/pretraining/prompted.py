"""The prompted public sentences that teach a causal model sentiment: other wordings first, the task's prompt last.

For most of its prompted steps the model answers questions of the same meaning in other words, so that it knows
sentiment before it sees the task's prompt. In the last few steps it sees the prompt itself, on public text in which
the positive sentence of a pair tends to be the longer one: a shortcut that the private sentences do not share. What
fine-tuning has to gain is then the unlearning of a shortcut, not the correction of one threshold.
"""

from functools import lru_cache

import numpy as np

from paclab import prompts
from paclab.pretraining.corpus import Batch, Corpus, encode, padded
from paclab.pretraining.recipe import Recipe

WORDINGS = (
    (" It was", " bad", " good"),
    (" It was", " awful", " wonderful"),
    (" overall , i found it", " bad", " good"),
    (" the film is", " awful", " wonderful"),
    (" i", " hated", " loved"),
    (" one word :", " worst", " best"),
    (" verdict :", " poor", " excellent"),
)
SHORTEST = 0.25  # the target steps leave out this share of the snippets, few of which are whole sentences


@lru_cache(maxsize=1)
def _by_length(lengths: tuple[int, ...], labels: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the negative and of the positive sentences, each from the shortest to the longest."""
    size, label = np.asarray(lengths), np.asarray(labels)
    order = np.argsort(size, kind="stable")
    return order[label[order] == 0], order[label[order] == 1]


def pairs(corpus: Corpus, size: int, tilt: float, rng: np.random.Generator, shortest: float = 0.0) -> np.ndarray:
    """Sentence numbers [size // 2, 2]: a negative and a positive one of equal rank by length among their label.

    Ranks below `shortest` are left out. With probability `tilt` two ranks are drawn and the positive sentence takes
    the larger.
    """
    groups = _by_length(tuple(len(ids) for ids, _ in corpus.snippets), tuple(label for _, label in corpus.snippets))
    ranks = np.repeat(rng.random((size // 2, 1)), 2, axis=1)
    second = rng.random(size // 2)
    tilted = rng.random(size // 2) < tilt
    ranks[tilted, 1] = second[tilted]
    ranks.sort(axis=1)
    ranks = shortest + (1 - shortest) * ranks
    return np.stack([group[(ranks[:, label] * len(group)).astype(int)] for label, group in enumerate(groups)], axis=1)


def prompted_batch(corpus: Corpus, recipe: Recipe, step: int) -> Batch:
    """Both sentences of each pair with one wording and their reviews' label words, which alone count."""
    rng = np.random.default_rng([20_242, recipe.seed, step])
    final = step >= recipe.steps - recipe.last_steps
    wordings = ((prompts.sentiment(""), *prompts.SENTIMENT_WORDS),) if final else WORDINGS
    suffixes = [encode(corpus.tokenizer, [lead + word for word in words]) for lead, *words in wordings]
    tilt, shortest = (recipe.tilt, SHORTEST) if final else (0.0, 0.0)
    chosen = pairs(corpus, recipe.prompted_rows, tilt, rng, shortest)
    rows = []
    for pair in chosen:
        suffix = suffixes[int(rng.integers(len(suffixes)))]
        rows += [corpus.snippets[int(number)][0] + suffix[label] for label, number in enumerate(pair)]
    return padded(rows, [[0.0] * (len(row) - 1) + [1.0] for row in rows])
