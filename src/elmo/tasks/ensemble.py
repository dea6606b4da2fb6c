"""Ensembles: several trained models of one task that predict together (Peters et al. 2018, tables 8 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from elmo.errors import ElmoError
from elmo.tasks.elmo.cache import LiveLayers
from elmo.tasks.prediction import predict
from elmo.tasks.run_folder import load_run
from elmo.tasks.task import Task
from elmo.tasks.trained import TrainedTask

Members = Sequence[TrainedTask[Any, Any]]


def load_ensemble(folders: Sequence[Path], device: torch.device | str = "cpu") -> list[TrainedTask[Any, Any]]:
    """Load the models of several run folders that are to predict together.

    Args:
        folders: The run folders, at least one.
        device: The device to put the models on.

    Raises:
        ElmoError: If a folder is named twice, or the models are of different tasks, have different labels, tokenizers
            or other settings that an ensemble shares, or are of a task whose predictions cannot be combined.
    """
    for number, folder in enumerate(folders):
        if any(folder.resolve() == other.resolve() for other in folders[:number]):
            raise ElmoError(f"{folder}: is named twice; name each run folder once")
    members = [load_run(folder, device) for folder in folders]
    task = members[0].task
    # A task without ensembles inherits a method that raises NotImplementedError. It is called when all members have
    # predicted, which is too late.
    if type(task).combine is Task.combine:
        raise ElmoError(
            f"{folders[0]}: models of the task {task.name} cannot form an ensemble; evaluate them one by one"
        )
    for name, own in {
        "task": [member.task.name for member in members],
        # Sorted, because the order of labels may differ: predictions are combined by label.
        "labels": [", ".join(sorted(member.model.labels)) for member in members],
        "tokenizer": [member.task.tokenizer(member.recipe) for member in members],
        "setting": [", ".join(f"{key}={getattr(m.recipe, key)}" for key in m.task.shared) for m in members],
    }.items():
        for folder, value in zip(folders, own, strict=True):
            if value != own[0]:
                raise ElmoError(
                    f"{folder}: has the {name} {value}, but {folders[0]} has {own[0]}; the models of an ensemble need "
                    f"the same {name}"
                )
    return members


def predict_together(
    members: Members,
    examples: Sequence[Any],
    batch_size: int | None = None,
    advance: Callable[[int], object] | None = None,
) -> list[Any]:
    """Return the combined predictions for examples.

    Members with the same biLM share its vectors, which are on disk in a temporary folder until all have predicted.

    Args:
        members: The models.
        examples: The examples.
        batch_size: The largest number of examples in a batch. None takes the size that each member was trained with, on
            which its predictions depend a little with `elmo.layer_norm`.
        advance: See `prediction.predict`.
    """
    task, recipe = members[0].task, members[0].recipe
    sentences = list(task.all_sentences(examples))
    found: list[list[Any]] = []
    with TemporaryDirectory(prefix="elmo-") as folder:
        for member in members:
            # One cache for all members that have the same biLM: its name is a checksum of the biLM and the sentences.
            # The member gets its own source back at the end, since the caller may use it alone again.
            elmo, layers = member.model.elmo, member.model.elmo.layers
            if isinstance(layers, LiveLayers) and member.recipe.elmo.vectors == "cached":
                elmo.read_from(layers.cached(sentences, Path(folder), "set TMPDIR to a folder with more room"))
            try:
                found.append(predict(task, member.model, examples, batch_size or member.batch_size, advance))
            finally:
                elmo.read_from(layers)
    return [task.combine(recipe, predictions) for predictions in zip(*found, strict=True)]
