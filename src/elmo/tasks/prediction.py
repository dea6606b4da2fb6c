"""Predicting the examples of a set in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from elmo.tasks.common.batches import cut_to_fit, plan_evaluation
from elmo.tasks.task import Task, TaskModel

E = TypeVar("E")
P = TypeVar("P")

MOST_PAIRS = 1 << 25
"""The largest number of token pairs that are predicted on together, unless a single example has more.

Tokens attend to one another, which takes an array of 128 MB for this number of pairs; there are about five such arrays.
"""


@torch.no_grad()
def predict(
    task: Task[Any, E, P],
    model: TaskModel[E, P],
    examples: Sequence[E],
    batch_size: int = 32,
    advance: Callable[[int], object] | None = None,
) -> list[P]:
    """Predict examples in batches, and return the predictions in the order of the examples.

    Batches follow the task's own order (see `Task.order`). They have at most `batch_size` examples, and fewer where
    examples are long.

    Args:
        task: The task.
        model: The model.
        examples: The examples.
        batch_size: The largest number of examples in a batch.
        advance: A callback that receives the number of examples that were predicted since its last call.
    """
    model.eval()
    found: dict[int, P] = {}
    lengths = [task.length(example) for example in examples]
    for batch in plan_evaluation([task.order(example) for example in examples], batch_size):
        for piece in cut_to_fit([lengths[index] ** 2 for index in batch], MOST_PAIRS):
            part = batch[piece]
            found.update(zip(part, model.predict([examples[index] for index in part]), strict=True))
            if advance is not None:
                advance(len(part))
    return [found[index] for index in range(len(examples))]
