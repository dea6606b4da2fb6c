"""Which layers of a biLM become a token's vector, and the shapes that follow from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo.embed.batching import Sentence
from elmo.errors import ElmoError

Layers = Literal["all", "top", "mean", "token"] | int | Sequence[float]
"""`"all"` keeps the layers apart; the others give one vector per token: `"top"` is the last layer, `"mean"` the plain
average of all (eq. 1 of the paper with equal weights: what a task's scalar mix starts from), `"token"` layer 0 (no
context), a number that layer, and a list of L+1 numbers their weighted sum, weights taken as they are."""

NAMES = ("all", "top", "mean", "token")


def layer_weights(layers: Layers, num_layers: int) -> list[float] | None:
    """The weight of each of `num_layers` layers (layer 0 included), None where they are kept apart."""
    is_number = isinstance(layers, int | np.integer)
    if layers not in NAMES if isinstance(layers, str) else not (is_number or hasattr(layers, "__len__")):
        raise ElmoError(f"layers: {layers!r} is none of {', '.join(NAMES)}, a layer's number or a list of weights")
    if isinstance(layers, str):
        if layers == "all":
            return None
        if layers == "mean":
            return [1 / num_layers] * num_layers
        layers = 0 if layers == "token" else num_layers - 1
    if isinstance(layers, int | np.integer):
        if not 0 <= layers < num_layers:
            raise ElmoError(f"layers: there is no layer {layers}; this model has layers 0 to {num_layers - 1}")
        return [float(number == layers) for number in range(num_layers)]
    if len(layers) != num_layers:
        raise ElmoError(
            f"layers: {len(layers)} weights for {num_layers} layers (layer 0 is one of them); give one for each"
        )
    if not np.isfinite(layers).all():
        raise ElmoError(f"layers: {', '.join(map(str, layers))}: a weight is no finite number")
    return [float(weight) for weight in layers]


def single_layer_weights(layer: Layers, num_layers: int) -> list[float]:
    """The weight of each layer in the one vector that a token has; refuses `"all"`."""
    if (weights := layer_weights(layer, num_layers)) is None:
        raise ElmoError("layer: 'all' gives several vectors per token; choose one layer, 'mean' or weights")
    return weights


def layer_name(layers: Layers) -> str:
    """What tables call a choice of layers: "layer 1", "mean"."""
    return f"layer {layers}" if isinstance(layers, int | np.integer) else str(layers)


class Entry(NamedTuple):
    """A sentence and its array, whose shape a `VectorLayout` tells."""

    tokens: Sentence
    vectors: NDArray[np.float32]


@dataclass(frozen=True)
class VectorLayout:
    """The shape of one sentence's array.

    (T, D); (L+1, T, D) where `num_layers` is set, that is, layers are kept apart; without T where `pooled`.
    """

    width: int
    num_layers: int | None = None
    pooled: bool = False

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        """(D,) or (L+1, D): one sentence's shape without the tokens' axis."""
        return (self.width,) if self.num_layers is None else (self.num_layers, self.width)
