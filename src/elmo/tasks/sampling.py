"""Examples by chance, for training on a part of a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from elmo.errors import ElmoError
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.task import Task

E = TypeVar("E")


def choose(examples: Sequence[E], number: int) -> Sequence[E]:
    """So many of the examples by chance, or all, in an order by chance: always the same one, whatever the number."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0)).tolist()
    return [examples[index] for index in order[:number]]


def share_of(train: Sequence[Any], task: Task[Any, Any, Any], recipe: TaskRecipe) -> Sequence[Any]:
    """The recipe's share of a training set, which larger ones contain; more, if the task can't be trained on so few:
    on sentences without any name, for instance."""
    share = recipe.training.share
    if share == 1:
        return train
    shuffled = choose(train, len(train))
    for number in range(max(1, round(share * len(train))), len(train)):
        try:
            task.require_gold(shuffled[:number])
        except ElmoError:
            continue
        return shuffled[:number]
    return train
