"""Choosing examples at random, to train on a part of a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from elmo.errors import ElmoError
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.task import Task

E = TypeVar("E")


def choose(examples: Sequence[E], number: int) -> Sequence[E]:
    """Return `number` examples, or all if there are fewer, in a random order that is always the same.

    A larger number gives the same examples and more.
    """
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0)).tolist()
    return [examples[index] for index in order[:number]]


def share_of(train: Sequence[Any], task: Task[Any, Any, Any], recipe: TaskRecipe) -> Sequence[Any]:
    """Return the share of a training set that the recipe asks for. A larger share contains a smaller one.

    If the task cannot be trained on so few examples, for instance because no sentence has a name in it, examples are
    added until it can.
    """
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
