"""Small recipes and models of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from elmo.formats.model import Model
from elmo.tasks.elmo.input import ElmoInput, make_elmo_layers
from elmo.tasks.recipe import TaskRecipe
from elmo.training.recipes import read_recipe

Recipe = TypeVar("Recipe", bound=TaskRecipe)


def recipe_maker(kind: type[Recipe], task: str, small: Mapping[str, object]) -> Callable[..., Recipe]:
    """Return a function that makes the package's recipe of a task with the `small` sizes and further changes.

    Changes are keywords, in which two underscores stand for a dot: `training__seed=1` changes `training.seed`.
    """

    def make_recipe(**overrides: Any) -> Recipe:
        changes = {key.replace("__", "."): value for key, value in overrides.items()}
        return read_recipe(kind, task, (task,), {**small, **changes})

    return make_recipe


def make_task_model(task: Any, recipe: TaskRecipe, examples: Sequence[Any], bilm: Model | None = None) -> Any:
    """Make a model of a task as the first seed does, with the vocabularies of `examples`."""
    torch.manual_seed(0)
    elmo = ElmoInput(bilm, recipe.elmo, make_elmo_layers(bilm, recipe.elmo, "cpu"))
    return task.model(recipe, task.vocabularies(examples, recipe), elmo)
