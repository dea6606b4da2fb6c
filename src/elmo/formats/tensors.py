"""Reads the tensors of a file as arrays by the names that our modules have for them, in any format.

A file from a stranger may claim any size. So the sizes that it claims are looked at first (`require_sizes`), and every
tensor's shape is compared with the one that they ask for, and with the size of the file, before the tensor is read
(`read_weights`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo.config import BiLMConfig
from elmo.errors import ElmoError
from elmo.formats import renames
from elmo.formats.renames import Rename, Shape

LARGEST_WEIGHT = 1e9
"""No weight of a working model comes near this, but numbers of the wrong byte order or type soon exceed it."""

MOST_MIXES = 4_096
"""Far more scalar mixes than any task has."""

MOST_LAYERS, WIDEST, MOST_WORDS = 256, 1 << 20, 1 << 28
"""Far beyond any real model. Options that ask for more would cost time and memory before any tensor is looked at."""

_COMPRESSION, _ALLOWANCE = 8, 1 << 26
"""A file may unpack to this many times its size, and to 64 MB more, so that small files of empty tensors pass."""


@dataclass(frozen=True)
class TensorInFile:
    """A tensor in a file: its shape, and a function that reads it as float32."""

    shape: Shape
    read: Callable[[], NDArray[np.float32]]


class Source(NamedTuple):
    """The tensors of a file.

    Attributes:
        stored: The tensors by their names in the file.
        path: The file, for messages.
        num_bytes: The size of the file or files, which bounds what may come out of them.
        noun: What messages call an entry of such a file.
    """

    stored: Mapping[str, TensorInFile]
    path: Path
    num_bytes: int
    noun: str = "data set"


def room(num_bytes: int) -> int:
    """Return how many bytes a file of `num_bytes` may unpack to.

    This keeps small files from filling the memory or the disk. It is generous, because weights hardly compress.
    """
    return _COMPRESSION * num_bytes + _ALLOWANCE


def require_sizes(config: BiLMConfig, where: Path) -> None:
    """Refuse sizes beyond any real model, whose tensors could not even be listed.

    Args:
        config: The sizes of a biLM.
        where: The file that the sizes come from, for messages.
    """
    cnn, lstm = config.char_cnn, config.lstm
    sizes = [("lstm.n_layers", lstm.n_layers, MOST_LAYERS), ("lstm.dim", lstm.dim, WIDEST)]
    if cnn is not None:
        sizes += [
            ("char_cnn.n_highway", cnn.n_highway, MOST_LAYERS),
            ("number of char_cnn.filters", len(cnn.filters), MOST_LAYERS),
            ("char_cnn.embedding.dim", cnn.embedding.dim, WIDEST),
            ("sum of char_cnn.filters", cnn.num_filters, WIDEST),
        ]
    if config.n_tokens_vocab is not None:
        sizes.append(("n_tokens_vocab", config.n_tokens_vocab, MOST_WORDS))
    for name, size, most in sizes:
        if size > most:
            raise ElmoError(f"{where}: {name}: {size} is beyond any real model (at most {most})")


def read_weights(
    shapes: Mapping[str, Shape], format: Sequence[Rename], source: Source
) -> dict[str, NDArray[np.float32]]:
    """Read the tensors of a file that a module is made of.

    Args:
        shapes: The shapes of the module's tensors by name (see `elmo.formats.stored`).
        format: The layout of the file's tensors.
        source: The file's tensors.

    Returns:
        The weights by the module's names.

    Raises:
        ElmoError: If a tensor is missing, has the wrong shape or has no place in the module, if the tensors are larger
            than the file could contain, or if their numbers can't be weights.
    """
    stored, path, num_bytes, noun = source
    # Tensors of other parts, such as a softmax next to the biLM, fit no rename and are ignored. Those that fit one but
    # have no place show that the options describe a smaller model: its vectors would be wrong.
    extra = renames.superfluous(format, shapes, list(stored))
    if extra:
        raise ElmoError(f"{path}: {noun} '{extra[0]}' has no place in the options; are they from another model?")
    asked = sum(math.prod(shape) * 4 for shape in shapes.values())

    def read(name: str, shape: Shape) -> NDArray[np.float32]:
        if name not in stored:
            raise ElmoError(f"{path}: {noun} '{name}' is missing")
        renames.require_shape(f"{path}: {noun} '{name}'", stored[name].shape, shape)
        if asked > room(num_bytes):
            raise ElmoError(f"{path}: can't hold the {asked:,} bytes of tensors that it claims in {num_bytes:,} bytes")
        array = stored[name].read()
        require_weights(f"{path}: {noun} '{name}'", array)
        return array

    return renames.rename_to_ours(format, shapes, read)


def require_few_mixes(path: Path, num_mixes: int) -> None:
    """Refuse more scalar mixes than any task has, because each of them would become a module."""
    if num_mixes > MOST_MIXES:
        raise ElmoError(f"{path}: {num_mixes:,} scalar mixes are beyond any real model (at most {MOST_MIXES:,})")


def require_mix(where: str, array: NDArray[np.float32]) -> None:
    """Refuse scores and scales of mixes that are not finite. `where` names the tensor.

    Finite ones may have any size: with scores of -9e10 for all layers but one, AllenNLP's documentation chooses that.
    """
    if not np.isfinite(array).all():
        raise ElmoError(f"{where}: contains a number that is not finite; the file is damaged")


def require_weights(where: str, array: NDArray[np.float32]) -> None:
    """Refuse NaN, infinity, and numbers too large for weights. `where` names the tensor."""
    if array.size:
        low, high = float(array.min()), float(array.max())
        if not -LARGEST_WEIGHT < low <= high < LARGEST_WEIGHT:
            raise ElmoError(
                f"{where}: contains {low if abs(low) > abs(high) else high}, not a weight; the file is damaged"
            )
