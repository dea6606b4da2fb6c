"""One checkpoint: a safetensors file with all tensors of a training, and its progress as JSON in the metadata.

What the tensors are, how many checkpoints are kept and what happens to a damaged one is for each training to decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.formats.files import write_all
from elmo.formats.safetensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P", bound="DataclassInstance")


class CheckpointVersionError(ElmoError):
    """A checkpoint is intact, but another version of the package, or another training, wrote it."""


_PROGRESS = "progress"
"""The key of the progress in a file's metadata."""


def optimizer_tensors(module: nn.Module, state: Mapping[Tensor, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return what an optimizer keeps for the parameters of a module, under the names that checkpoints have for it.

    Args:
        module: The module that is trained.
        state: The tensors that the optimizer keeps, by parameter and key. Parameters may be missing.

    Returns:
        The tensors themselves, not copies, under `optimizer/KEY/PARAMETER`. Parameters have their names there, and not
        PyTorch's numbers for them. So a checkpoint says what its tensors are, and their order may change.
    """
    return {
        f"optimizer/{key}/{name}": value
        for name, parameter in module.named_parameters()
        for key, value in state.get(parameter, {}).items()
    }


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], progress: DataclassInstance) -> None:
    """Write a checkpoint, which gets its name only when it is complete.

    Args:
        path: The file, which is replaced if it exists.
        tensors: All tensors of the training, by name.
        progress: A dataclass of plain values that says how far the training has come.
    """
    metadata = {_PROGRESS: json.dumps(asdict(progress))}
    write_all({path: lambda temporary: write_tensors(temporary, tensors, metadata)})


def require_shapes(shapes: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse the tensors of a file unless they have exactly these names and shapes."""
    for name in sorted(shapes.keys() | tensors.keys()):
        if name not in tensors or name not in shapes or tensors[name].shape != shapes[name]:
            raise ElmoError(
                f"{path}: tensor {name!r} does not match the settings next to it; is it of another model, or of "
                "another version of elmo?"
            )


def read_checkpoint(path: Path, kind: type[P]) -> tuple[dict[str, Tensor], P]:
    """Read a checkpoint.

    Args:
        path: The file.
        kind: The dataclass of its progress.

    Returns:
        The tensors by name, and the progress.

    Raises:
        CheckpointVersionError: If the file is intact, but its progress is not a `kind`.
        ElmoError: If the file is missing, incomplete or damaged.
    """
    tensors, metadata = read_tensors(path)
    try:
        return tensors, kind(**json.loads(metadata[_PROGRESS]))
    except (KeyError, TypeError, ValueError):
        raise CheckpointVersionError(
            f"{path}: is no checkpoint of this training, or was written by another version of elmo"
        ) from None
