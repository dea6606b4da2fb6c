"""Pretraining a biLM on your own text: the loop, its objective and optimizers, perplexity, and fine-tuning."""

from elmo.pretrain.finetuning import FineTuning, finetune
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import PretrainingConfig, Recipe, load_pretraining_recipe
from elmo.text.prepare import prepare
from elmo.text.reading import Reading

__all__ = [
    "FineTuning",
    "Pretrainer",
    "PretrainingConfig",
    "Reading",
    "Recipe",
    "finetune",
    "load_pretraining_recipe",
    "prepare",
]
