"""Small recipes, examples, models and trainers of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from elmo.formats.model import Model
from elmo.tasks.elmo.input import ElmoInput, make_elmo_layers
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.trainer import Trainer
from elmo.training.recipes import read_recipe

Recipe = TypeVar("Recipe", bound=TaskRecipe)

SENTENCES = ["Ann w1 w2", "w3 w1 Bo w2 w2", "w0 in Espoo w4", "Ghent w5", "w3 Ann Bo w1", "w2 w2 w5", "to Espoo", "w1"]
TAGS = {"Ann": "B-PER", "Bo": "B-PER", "Espoo": "B-LOC", "Ghent": "B-LOC"}


def write_names(path: Path, sentences: Sequence[str] = SENTENCES) -> Path:
    """Write the sentences with the tags of their names, a token in every line, and return the path."""
    lines = ("".join(f"{word}\t{TAGS.get(word, 'O')}\n" for word in sentence.split()) for sentence in sentences)
    path.write_text("\n".join(lines))
    return path


def recipe_maker(kind: type[Recipe], task: str, small: Mapping[str, object]) -> Callable[..., Recipe]:
    """Return a function that makes the package's recipe of a task with the `small` sizes and further changes.

    Changes are keywords, in which two underscores stand for a dot: `training__seed=1` changes `training.seed`.
    """

    def make_recipe(**overrides: Any) -> Recipe:
        changes = {key.replace("__", "."): value for key, value in overrides.items()}
        return read_recipe(kind, task, (task,), {**small, **changes})

    return make_recipe


def make_task_model(task: Any, recipe: TaskRecipe, examples: Sequence[Any], bilm: Model | None = None) -> Any:
    """Make a model of a task as a run with the recipe's seed does, with the vocabularies of `examples`."""
    torch.manual_seed(recipe.training.seed)
    elmo = ElmoInput(bilm, recipe.elmo, make_elmo_layers(bilm, recipe.elmo, "cpu"))
    return task.model(recipe, task.vocabularies(examples, recipe), elmo)


def make_trainer(
    task: Any, folder: Path, recipe: TaskRecipe, examples: Sequence[Any], bilm: Model | None = None, **options: Any
) -> Trainer[Any, Any]:
    """Make a trainer of such a model, with the first eight examples as the dev set and all others to train on."""
    model = make_task_model(task, recipe, examples, bilm)
    return Trainer(task, model, recipe.training, folder, examples[8:], examples[:8], **options)


def stop_after(trainer: Trainer[Any, Any], step: int) -> None:
    """Train, and stop after that step as a signal would."""
    make_step = trainer.step

    def until(examples: Sequence[Any]) -> None:
        make_step(examples)
        trainer.stopped = trainer.progress.step == step

    trainer.step = until
    trainer.train()
