"""Small recipes of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

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
