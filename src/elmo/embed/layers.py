"""Defines which layers of a biLM become a token's vector, and the array shapes that follow from the choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo.embed.batching import Sentence
from elmo.errors import ElmoError
from elmo.wording import counted

Layers = Literal["all", "top", "mean", "token"] | int | Sequence[float]
"""Which layers become a token's vector. All choices except `"all"` give one vector per token:

- `"all"`: every layer, kept apart;
- `"top"`: the last layer;
- `"mean"`: the average of all layers (eq. 1 of Peters et al. 2018 with equal weights, from which a task's mix starts);
- `"token"`: layer 0, which does not depend on the context;
- an integer: the layer of that number, where 0 is the token layer, and -1 the last one;
- a sequence of L+1 numbers: the sum of the layers with these weights, which are not normalized.
"""

LAYER_NAMES = ("all", "top", "mean", "token")


def layer_weights(layers: Layers, num_layers: int, name: str = "layers") -> list[float] | None:
    """Translate a choice of layers into one weight per layer.

    Args:
        layers: The choice; see `Layers`.
        num_layers: Number of layers of the model, including layer 0 (L+1).
        name: The name of the argument that the choice is from, for errors.

    Returns:
        `num_layers` weights, or None if the layers are kept apart.

    Raises:
        ElmoError: If there is no such choice or layer, or if the weights are not `num_layers` finite numbers.
    """
    if isinstance(layers, bool) or (isinstance(layers, str) and layers not in LAYER_NAMES):
        raise _unknown(layers, name)
    if isinstance(layers, str):
        if layers == "all":
            return None
        if layers == "mean":
            return [1 / num_layers] * num_layers
        layers = 0 if layers == "token" else num_layers - 1
    if isinstance(layers, int | np.integer):
        if not -num_layers <= layers < num_layers:
            raise ElmoError(f"`{name}`: there is no layer {layers}; this model has layers 0 to {num_layers - 1}")
        return [float(number == layers % num_layers) for number in range(num_layers)]
    given: Any = layers
    try:
        found = np.asarray([_number(weight) for weight in given] if isinstance(given, list | tuple) else _number(given))
        if found.dtype.kind in "bSU":  # NumPy would turn truth values and texts into numbers
            raise _unknown(layers, name)
        weights = np.asarray(found, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise _unknown(layers, name) from None
    if weights.ndim != 1:
        raise _unknown(layers, name)
    if len(weights) != num_layers:
        raise ElmoError(
            f"`{name}`: {len(weights)} weights for {num_layers} layers (including layer 0); give one for each layer"
        )
    if not (np.abs(weights) <= np.finfo(np.float32).max).all():
        raise ElmoError(
            f"`{name}`: {weights.tolist()} holds a number that is not finite in float32; give finite weights"
        )
    return weights.tolist()


def _number(given: Any) -> Any:
    """Return the numbers of a tensor; anything else as it is. Torch isn't imported only to know a tensor."""
    # The weights of a trained mix may have a gradient, or a type that NumPy doesn't know, such as bfloat16.
    return given.tolist() if hasattr(given, "detach") else given


def _unknown(layers: object, name: str) -> ElmoError:
    return ElmoError(f"`{name}`: {layers!r} is none of {', '.join(LAYER_NAMES)}, a layer's number or a list of weights")


def single_layer_weights(layer: Layers, num_layers: int) -> list[float]:
    """Translate a choice that gives one vector per token into one weight per layer.

    Raises:
        ElmoError: If the choice is `"all"`, or is not valid (see `layer_weights`).
    """
    if (weights := layer_weights(layer, num_layers, "layer")) is None:
        raise ElmoError("`layer`: 'all' gives several vectors per token; choose one layer, 'mean' or weights")
    return weights


def layer_name(layers: Layers) -> str:
    """Return the name of a choice of layers for use in tables, such as "layer 1" or "mean"."""
    return f"layer {layers}" if isinstance(layers, int | np.integer) else str(layers)


class Entry(NamedTuple):
    """A sentence and its array, whose shape a `VectorLayout` describes."""

    tokens: Sentence
    vectors: NDArray[np.float32]


@dataclass(frozen=True, eq=False)  # == of two arrays is an array, not a bool
class EmbeddedText:
    """The tokens of a raw text with their vectors.

    Attributes:
        tokens: T tokens.
        spans: The start and the end (exclusive) of each token in the text, in characters. `text[start:end]` is the
            token, or what the tokenizer wrote it for.
        sentences: The number of the sentence that each token is in, from 0.
        vectors: The vectors, (T, D), or (L+1, T, D) with `layers="all"`.
    """

    tokens: list[str]
    spans: list[tuple[int, int]]
    sentences: list[int]
    vectors: NDArray[np.float32]

    def __repr__(self) -> str:
        """Tell how much text this is, since all tokens and vectors would fill the screen."""
        sentences = counted(self.sentences[-1] + 1 if self.sentences else 0, "sentence")
        return f"EmbeddedText({counted(len(self.tokens), 'token')}, {sentences}, vectors={self.vectors.shape})"


@dataclass(frozen=True)
class VectorLayout:
    """The shape of one sentence's array: (T, D), or (L+1, T, D) if `num_layers` is set.

    `num_layers` is None if a token has one vector, and L+1 if the layers are kept apart. If `pooled`, the axis T is
    absent. If `located`, the sentences know where they are from (`LocatedSentence`), which is to be stored, too.
    """

    width: int
    num_layers: int | None = None
    pooled: bool = False
    located: bool = False

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        """The shape of one sentence's array without the axis of its tokens: (D,) or (L+1, D)."""
        return (self.width,) if self.num_layers is None else (self.num_layers, self.width)


def rounded(vectors: NDArray[np.float32], dtype: np.dtype[Any], name: str = "`dtype`") -> NDArray[Any]:
    """Convert vectors to the type of a file, in the order of C.

    `name` is the setting that chooses the type. The error begins with it.

    Raises:
        ElmoError: If a number is too large for float16, which would store infinity.
    """
    try:
        with np.errstate(over="raise"):
            return np.ascontiguousarray(vectors, dtype)
    except FloatingPointError:
        raise ElmoError(f"{name}: a number is above 65,504, the largest of float16; store vectors as float32") from None
