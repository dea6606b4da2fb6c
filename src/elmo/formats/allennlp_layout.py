"""The tensor layout of AllenNLP's ELMo modules, which ELMoForManyLangs also uses, as lists of `Rename`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats.renames import Rename, TensorLayout
from elmo.formats.tensors import Stored
from elmo.nn.lstm import FORGET_BIAS

CHARACTERS = "_char_embedding_weights"
"""The character vectors, including the row of the mask."""

NOUN = "tensor"
"""What error messages call an entry of the file."""


def _swap_gates(tensor: Tensor) -> Tensor:
    """Reorder gates between their order i, f, j, o and our order i, j, f, o. The swap is its own inverse."""
    first, second, third, last = tensor.chunk(4)
    return torch.cat([first, third, second, last])


def _split_bias(tensor: Tensor, _: Sequence[torch.Size]) -> list[Tensor]:
    """Convert a stored bias, which includes the constant of the forget gate that we add at run time."""
    i, j, f, o = _swap_gates(tensor).chunk(4)
    return [torch.cat([i, j, f - FORGET_BIAS, o])]


def _join_bias(parts: Sequence[Tensor]) -> Tensor:
    i, j, f, o = parts[0].chunk(4)
    return _swap_gates(torch.cat([i, j, f + FORGET_BIAS, o]))


GATES = TensorLayout(
    split=lambda tensor, _: [_swap_gates(tensor)],
    join=lambda parts: _swap_gates(parts[0]),
    shape=lambda shapes: tuple(shapes[0]),
)
BIAS = TensorLayout(split=_split_bias, join=_join_bias, shape=lambda shapes: tuple(shapes[0]))
TRANSFORM_AND_GATE = TensorLayout(
    split=lambda tensor, shapes: [tensor[: shapes[0][0]], -tensor[shapes[0][0] :]],
    join=lambda parts: torch.cat([parts[0], -parts[1]]),
    shape=lambda shapes: (shapes[0][0] + shapes[1][0], *shapes[0][1:]),
)
"""Their matrix holds a highway's transform above its gate. Their gate lets the input through; ours is its negative."""


def highway(theirs: str, ours: str) -> list[Rename]:
    """Return the renames of a highway layer, with `{k}` as its number in both names."""
    return [
        Rename(f"{theirs}.{part}", (f"{ours}.transform.{part}", f"{ours}.gate.{part}"), TRANSFORM_AND_GATE)
        for part in ("weight", "bias")
    ]


def encoder(theirs: str, ours: str) -> list[Rename]:
    """Return the renames of the char encoder, whose names begin with `theirs` in the file and `ours` in our module."""
    return [
        Rename(f"{theirs}{CHARACTERS}", f"{ours}embedding.weight"),
        Rename(f"{theirs}char_conv_{{i}}.weight", f"{ours}convolutions.{{i}}.weight"),
        Rename(f"{theirs}char_conv_{{i}}.bias", f"{ours}convolutions.{{i}}.bias"),
        *highway(f"{theirs}_highways._layers.{{k}}", f"{ours}highways.{{k}}"),
        Rename(f"{theirs}_projection.weight", f"{ours}projection.weight"),
        Rename(f"{theirs}_projection.bias", f"{ours}projection.bias"),
    ]


def lstm(prefix: str, our_layer: str = "{direction}_lstm.layers.{{l}}") -> list[Rename]:
    """Return the renames of the LSTM layers of both directions.

    Args:
        prefix: What precedes `forward_layer_0` in the file's names.
        our_layer: The name of a layer in our module, with `{direction}` and the doubled braces of `{{l}}`.
    """
    renames: list[Rename] = []
    for direction in ("forward", "backward"):
        theirs, ours = f"{prefix}{direction}_layer_{{l}}", our_layer.format(direction=direction)
        renames += [
            Rename(f"{theirs}.input_linearity.weight", f"{ours}.weight_ih", GATES),
            Rename(f"{theirs}.state_linearity.weight", f"{ours}.weight_hh", GATES),
            Rename(f"{theirs}.state_linearity.bias", f"{ours}.bias", BIAS),
            Rename(f"{theirs}.state_projection.weight", f"{ours}.weight_hr"),
        ]
    return renames


def require_dimensions(path: Path, stored: Mapping[str, Stored], name: str, dimensions: int) -> tuple[int, ...]:
    """Return the shape of a tensor of the file `path`, and refuse one that is missing or has other dimensions."""
    if name not in stored:
        raise ElmoError(f"{path}: {NOUN} '{name}' is missing")
    shape = stored[name].shape
    if len(shape) != dimensions:
        raise ElmoError(f"{path}: {NOUN} '{name}' has shape {shape}, but {dimensions} dimensions are expected")
    return shape


def infer_sizes(
    path: Path, stored: Mapping[str, Stored], convolution: str, highway: str, stack: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Infer the sizes of a model from the shapes of its tensors.

    Args:
        path: The file, for messages.
        stored: The tensors by their names in the file.
        convolution: The name of a convolution's weight, with `{}` for its number.
        highway: The name of a highway layer's weight, with `{}` for its number.
        stack: What precedes `forward_layer_0` in the names of the LSTM.

    Returns:
        The keys of `char_cnn` and of `lstm` that the shapes determine.
    """

    def number(template: str) -> int:
        return sum(1 for _ in takewhile(lambda i: template.format(i) in stored, count()))

    kernels = [require_dimensions(path, stored, convolution.format(i), 3) for i in range(number(convolution))]
    projection = require_dimensions(path, stored, f"{stack}forward_layer_0.state_projection.weight", 2)
    return (
        {"filters": [[width, num_filters] for num_filters, _, width in kernels], "n_highway": number(highway)},
        {
            "dim": projection[1],
            "projection_dim": projection[0],
            "n_layers": number(stack + "forward_layer_{}.state_projection.weight"),
        },
    )
