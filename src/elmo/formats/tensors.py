"""Tensors that lie in a file of any kind, and modules filled from them: checked before they take up memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.formats import renames
from elmo.formats.renames import Rename

LARGEST_WEIGHT = 1e9
"""No weight of a working model comes near; numbers in another byte order, or of another type, soon pass it."""

MOST_MIXES = 4_096
"""Far more scalar mixes than any task has."""

_COMPRESSION, _ALLOWANCE = 8, 1 << 26


@dataclass(frozen=True)
class Stored:
    """A tensor that lies in a file: its shape, and how to read it as float32."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


def room(num_bytes: int) -> int:
    """How many bytes may come out of a file of `num_bytes`. Weights hardly compress, whatever packs them."""
    return _COMPRESSION * num_bytes + _ALLOWANCE


def fill(
    module: nn.Module, format: Sequence[Rename], stored: Mapping[str, Stored], path: Path, noun: str, num_bytes: int
) -> None:
    """Put a file's tensors into `module`, which was made without memory of its own.

    `path`, of `num_bytes`, and `noun` ("data set") name them in errors. Refused are missing tensors, other shapes,
    tensors that fit the format but no place in the module, more numbers than such a file can hold, and numbers that
    are no weights.
    """
    shapes = {name: tensor.shape for name, tensor in module.state_dict().items()}
    extra = renames.superfluous(format, shapes, list(stored))
    if extra:
        raise ElmoError(f"{path}: {noun} '{extra[0]}' is more than the options say; are they of another model?")
    asked = sum(shape.numel() * 4 for shape in shapes.values())

    def read(name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in stored:
            raise ElmoError(f"{path}: {noun} '{name}' is missing")
        renames.require_shape(f"{path}: {noun} '{name}'", stored[name].shape, shape)
        if asked > room(num_bytes):
            raise ElmoError(f"{path}: can't hold the {asked:,} bytes of tensors that it claims in {num_bytes:,} bytes")
        tensor = stored[name].read()
        require_weights(f"{path}: {noun} '{name}'", tensor)
        return tensor

    module.load_state_dict(renames.rename_to_ours(format, shapes, read), assign=True)
    module.requires_grad_(True)


def require_few_mixes(path: Path, num_mixes: int) -> None:
    """Refuse more scalar mixes than any task has, each of which would be a module."""
    if num_mixes > MOST_MIXES:
        raise ElmoError(f"{path}: {num_mixes:,} scalar mixes are beyond any real model (at most {MOST_MIXES:,})")


def require_weights(where: str, tensor: Tensor) -> None:
    """Refuse NaN, infinity, and numbers too large for weights."""
    if tensor.numel():
        low, high = (float(bound) for bound in tensor.aminmax())
        if not -LARGEST_WEIGHT < low <= high < LARGEST_WEIGHT:
            raise ElmoError(f"{where}: holds {low if abs(low) > abs(high) else high}, no weight; the file is damaged")
