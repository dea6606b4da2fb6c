"""Models with random weights, of the published sizes or another recipe, and the precisions that they embed in."""

from __future__ import annotations

import torch

from elmo import _native
from elmo.embed.engine import Precision
from elmo.formats.model import Model
from elmo.nn.bilm import BiLM
from elmo.pretrain.recipe import load_pretraining_recipe

RECIPES = {"original": "paper", "small": "small"}
"""The recipe of each size, whose published weights are called `allennlp:original` and `allennlp:small`."""


def random_model(recipe: str) -> Model:
    """Make a model of the size of a recipe, with the same random weights each time."""
    torch.manual_seed(0)
    return Model(BiLM(load_pretraining_recipe(recipe).bilm))


def precisions_of(device: str) -> list[Precision]:
    """Return the precisions that a benchmark measures on this machine's `cpu` or `cuda`."""
    if device != "cpu":
        return ["float32", "bf16", "float16"]
    return ["float32", "bf16", *(["int8"] if "int8" in _native.available() else [])]
