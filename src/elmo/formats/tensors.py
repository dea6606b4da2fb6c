"""Fills modules with the tensors of a file, in any format. Tensors are checked before they take up memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.formats import renames
from elmo.formats.renames import Rename

LARGEST_WEIGHT = 1e9
"""No weight of a working model comes near this, but numbers of the wrong byte order or type soon exceed it."""

MOST_MIXES = 4_096
"""Far more scalar mixes than any task has."""

_COMPRESSION, _ALLOWANCE = 8, 1 << 26


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its shape, and a function that reads it as float32."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


def room(num_bytes: int) -> int:
    """Return how many bytes a file of `num_bytes` may unpack to. The bound is safe because weights hardly compress."""
    return _COMPRESSION * num_bytes + _ALLOWANCE


def fill(
    module: nn.Module, format: Sequence[Rename], stored: Mapping[str, Stored], path: Path, noun: str, num_bytes: int
) -> None:
    """Fill a module with the tensors of a file.

    Args:
        module: A module on the meta device, such as `skeleton` makes.
        format: The layout of the file's tensors.
        stored: The tensors by their names in the file.
        path: The file, for messages.
        noun: What messages call an entry of the file, such as "data set".
        num_bytes: The size of the file, which bounds that of the tensors.

    Raises:
        ElmoError: If a tensor is missing, has the wrong shape or has no place in the module, if the tensors are larger
            than the file could contain, or if their numbers can't be weights.
    """
    shapes = {name: tensor.shape for name, tensor in module.state_dict().items()}
    extra = renames.superfluous(format, shapes, list(stored))
    if extra:
        raise ElmoError(f"{path}: {noun} '{extra[0]}' has no place in the options; are they from another model?")
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
    """Refuse more scalar mixes than any task has, because each of them would become a module."""
    if num_mixes > MOST_MIXES:
        raise ElmoError(f"{path}: {num_mixes:,} scalar mixes are beyond any real model (at most {MOST_MIXES:,})")


def require_weights(where: str, tensor: Tensor) -> None:
    """Refuse NaN, infinity, and numbers too large for weights. `where` names the tensor."""
    if tensor.numel():
        low, high = (float(bound) for bound in tensor.aminmax())
        if not -LARGEST_WEIGHT < low <= high < LARGEST_WEIGHT:
            raise ElmoError(
                f"{where}: contains {low if abs(low) > abs(high) else high}, not a weight; the file is damaged"
            )
