"""What a task's training keeps: one checkpoint, to continue as if never stopped, and the weights of the best epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.formats.files import write_all
from elmo.formats.safetensors import read_tensors, write_tensors
from elmo.training.checkpoint import optimizer_tensors, read_checkpoint, require_shapes, write_checkpoint

CHECKPOINT, WEIGHTS = "checkpoint.safetensors", "weights.safetensors"


@dataclass
class TaskProgress:
    """How far a training has come.

    Attributes:
        epoch: The number of finished epochs.
        batch: The number of finished batches in the current epoch.
        step: The number of finished batches in all epochs.
        loss_sum: The sum of the losses of the current epoch's batches.
        num_examples: The number of examples in these batches.
        num_trained: The number of examples in the batches of all epochs.
        learning_rate: The learning rate of the last batch.
        epoch_seconds: The time that the batches of the current epoch took.
        seconds: The time of the whole training, evaluations included.
        best_score: The best dev score so far.
        best_epoch: The epoch after which it was reached, counted from 1; 0 if there is none.
        rate: The factor on the learning rate that plateaus have led to.
        waited: The number of epochs since the last plateau or the last best score, whichever came later.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    num_examples: int = 0
    num_trained: int = 0
    learning_rate: float = 0.0
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    best_score: float | None = None
    best_epoch: int = 0
    rate: float = 1.0
    waited: int = 0


def save_task_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: TaskProgress,
    averages: Mapping[str, Tensor],
) -> None:
    """Replace the folder's checkpoint, either completely or not at all.

    `averages` are the moving averages of the parameters, by name.
    """
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"average/{name}": tensor for name, tensor in averages.items()}
    write_checkpoint(folder / CHECKPOINT, tensors | optimizer_tensors(model, optimizer.state), progress)


def resume_task(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, averages: Mapping[str, Tensor]
) -> TaskProgress:
    """Load the folder's checkpoint into the model, the optimizer and `averages`.

    Returns:
        How far the training has come. Without a checkpoint, this is the beginning.

    Raises:
        ElmoError: If the checkpoint is damaged or belongs to another model.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        return TaskProgress()
    try:
        tensors, progress = read_checkpoint(path, TaskProgress)
    except ElmoError as error:
        raise ElmoError(f"{error}; remove it to start from the beginning") from None
    for kind, wanted in (("model/", model.state_dict()), ("average/", averages)):
        fill(wanted, {name.removeprefix(kind): t for name, t in tensors.items() if name.startswith(kind)}, path)
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "optimizer":
            key, _, owner = rest.partition("/")
            # A new optimizer has no tensors yet that could be filled: it makes them in its first step.
            # PyTorch keeps the number of steps on the CPU, unless a fused optimizer reads it on the GPU.
            belongs_there = key != "step" or optimizer.defaults.get("fused")
            device = parameters[owner].device if belongs_there else tensor.device
            optimizer.state[parameters[owner]][key] = tensor.to(device, copy=True)
    return progress


def save_weights(folder: Path, model: nn.Module) -> None:
    """Replace the folder's weights."""
    write_all({folder / WEIGHTS: lambda path: write_tensors(path, model.state_dict())})


def load_weights(folder: Path, model: nn.Module) -> None:
    """Load the folder's weights into a model of the same shape."""
    fill(model.state_dict(), read_tensors(folder / WEIGHTS)[0], folder / WEIGHTS)


def fill(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy `tensors`, which were read from `path`, into `wanted`, which must have the same names and shapes."""
    require_shapes({name: tensor.shape for name, tensor in wanted.items()}, tensors, path)
    for name, tensor in wanted.items():
        tensor.copy_(tensors[name])
