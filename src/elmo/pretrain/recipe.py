"""The recipes of pretraining."""

from __future__ import annotations

from collections.abc import Mapping

from elmo.config import Recipe
from elmo.training.recipes import read_recipe

NAMES = ("paper", "small", "en", "mini", "tiny")
"""Recipes that come with the package."""


def load_pretraining_recipe(name: str, overrides: Mapping[str, object] | None = None) -> Recipe:
    """The recipe of this name, or in this YAML file; `overrides` are dotted keys, as `training.batch_size`."""
    return read_recipe(Recipe, name, NAMES, overrides)
