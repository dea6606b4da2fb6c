"""Describes a published format as data that works in both directions, for reading and for writing.

A format is a list of `Rename`s, which pair its tensors with ours. This module knows no particular format, and the
formats need no loops of their own. For example,

    Rename("CNN_high_{k}/W_carry", "char_encoder.highways.{k}.gate.weight", TRANSPOSED)

says that a biLM with two highways has the tensors `CNN_high_0/W_carry` and `CNN_high_1/W_carry`, and how each of them
becomes one of ours. The names on our side decide: every tensor of a module is matched against the list (`_matches`),
which gives the name to look for in the file, and the shape that it must have there. So the same list reads, writes, and
notices what is missing or superfluous.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from elmo.errors import ElmoError

Numbers = Any
"""A NumPy array, as readers have them, or a torch tensor, as the state dicts of modules have them."""

Shape = tuple[int, ...]

Read = Callable[[str, Shape], Numbers]
"""Reads the published tensor of a name and makes sure that it has the given shape."""


@dataclass(frozen=True)
class TensorLayout:
    """How a published tensor is converted to one or more of our tensors and back.

    The functions use only what arrays and torch's tensors have in common, so that they convert both. The shape is given
    apart from `split`, so that it can be compared with the file before anything is read.

    Attributes:
        split: Converts the published tensor to ours, given our shapes.
        join: The inverse of `split`.
        shape: The shape of the published tensor, given the shapes of ours.
    """

    split: Callable[[Numbers, Sequence[Shape]], list[Numbers]]
    join: Callable[[Sequence[Numbers]], Numbers]
    shape: Callable[[Sequence[Shape]], Shape]


def concatenate(parts: Sequence[Numbers]) -> Numbers:
    """Join arrays, or tensors, along their first axis."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def _contiguous(numbers: Numbers) -> Numbers:
    return np.asarray(numbers, order="C") if isinstance(numbers, np.ndarray) else numbers.contiguous()


def _split_rows(numbers: Numbers, shapes: Sequence[Shape]) -> list[Numbers]:
    """Cut a published matrix into the transposed matrices of which it is stacked."""
    ends = accumulate((shape[1] for shape in shapes), initial=0)
    return [numbers[start:end].T for start, end in pairwise(ends)]


SAME = TensorLayout(
    split=lambda numbers, _: [numbers],
    join=lambda parts: parts[0],
    shape=lambda shapes: shapes[0],
)
# TensorFlow multiplies from the right, `x W`, so its matrices are (in, out). Those of torch are (out, in).
TRANSPOSED = TensorLayout(
    split=lambda numbers, _: [numbers.T],
    join=lambda parts: parts[0].T,
    shape=lambda shapes: (shapes[0][1], shapes[0][0]),
)
ZERO_ROW_FIRST = TensorLayout(
    split=lambda numbers, _: [concatenate([abs(0 * numbers[:1]), numbers])],
    join=lambda parts: parts[0][1:],
    shape=lambda shapes: (shapes[0][0] - 1, shapes[0][1]),
)
"""Ours has a first row of zeros, for the mask, that the files do not have."""
CONVOLUTION = TensorLayout(
    split=lambda numbers, _: [numbers[0].swapaxes(0, 2)],
    join=lambda parts: parts[0].swapaxes(0, 2)[None],
    shape=lambda shapes: (1, *reversed(shapes[0])),
)
"""Theirs is (1, width, in, out), ours is (out, in, width)."""
TRANSPOSED_ROWS = TensorLayout(
    split=_split_rows,
    join=lambda parts: concatenate([part.T for part in parts]),
    shape=lambda shapes: (sum(shape[1] for shape in shapes), shapes[0][0]),
)
"""One of their matrices contains several of ours, transposed and stacked."""


@dataclass(frozen=True)
class Rename:
    """Pairs a published tensor with the tensor or tensors of ours that it becomes.

    In the names, `{i}`, `{k}` and so on stand for the same number on both sides.

    Attributes:
        theirs: The published name.
        ours: Our name or names.
        layout: How the values are converted.
    """

    theirs: str
    ours: str | tuple[str, ...]
    layout: TensorLayout = SAME

    @property
    def our_names(self) -> tuple[str, ...]:
        """Our names, always as a tuple."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


def rename_to_ours(renames: Sequence[Rename], shapes: Mapping[str, Shape], read: Read) -> dict[str, Numbers]:
    """Convert published tensors to ours.

    Args:
        renames: The format. Every name in `shapes` must fit exactly one of its renames.
        shapes: The shapes of our tensors by name.
        read: Reads a published tensor by name and shape.

    Returns:
        Our tensors by name.
    """
    ours: dict[str, Numbers] = {}
    for their_name, our_names, layout in _matches(renames, shapes):
        our_shapes = [tuple(shapes[name]) for name in our_names]
        parts = layout.split(read(their_name, layout.shape(our_shapes)), our_shapes)
        # Contiguous, as the native kernels need them, instead of a transposed view of what was read.
        ours.update({name: _contiguous(part) for name, part in zip(our_names, parts, strict=True)})
    return ours


def rename_to_theirs(renames: Sequence[Rename], ours: Mapping[str, Numbers]) -> Iterator[tuple[str, Numbers]]:
    """Yield the published names and tensors for ours: the inverse of `rename_to_ours`."""
    for their_name, our_names, layout in _matches(renames, ours):
        yield their_name, _contiguous(layout.join([ours[name] for name in our_names]))


def published_names(renames: Sequence[Rename], our_names: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return our names for each published name that ours stand for."""
    return {their_name: names for their_name, names, _ in _matches(renames, our_names)}


def superfluous(renames: Sequence[Rename], shapes: Mapping[str, object], their_names: Sequence[str]) -> list[str]:
    """Return the published names that fit a rename but no tensor of ours: the file has more than its options say."""
    wanted = {their_name for their_name, _, _ in _matches(renames, shapes)}
    patterns = [_pattern(rename.theirs) for rename in renames]
    return [name for name in their_names if name not in wanted and any(p.fullmatch(name) for p in patterns)]


def _matches(
    renames: Sequence[Rename], our_names: Mapping[str, object]
) -> Iterator[tuple[str, tuple[str, ...], TensorLayout]]:
    """Yield each published name with our names for it. It is a bug in the format if one of ours is left over."""
    left = set(our_names)
    for rename in renames:
        # The first of our names is enough to find the numbers; the others are then formed with the same ones.
        pattern = _pattern(rename.our_names[0])
        for match in filter(None, map(pattern.fullmatch, our_names)):
            names = tuple(name.format_map(match.groupdict()) for name in rename.our_names)
            left -= set(names)
            yield rename.theirs.format_map(match.groupdict()), names, rename.layout
    assert not left, f"no rename for {sorted(left)}"


def _pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of the names that a template such as `CNN_high_{k}/W_carry` stands for."""
    return re.compile(re.sub(r"\\\{(\w)\\\}", r"(?P<\1>\\d+)", re.escape(template)))


def require_shape(where: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse a tensor whose shape is not the one that the options ask for; `where` names the tensor."""
    if found != wanted:
        raise ElmoError(f"{where}: has shape {found}, but the options ask for {wanted}")
