"""Training of the small public language model that ships with paclab: corpus, recipe and loop."""

from paclab.pretraining.loop import Progress, pretrain
from paclab.pretraining.recipe import Recipe

__all__ = ["Progress", "Recipe", "pretrain"]
