"""The sizes of a biLM, under the keys of the published `options.json`, and the character ids of the published code."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass

from elmo.errors import ElmoError
from elmo.schema import from_mapping, require_positive, shown

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260
"""Character ids beyond the 256 bytes, as published; models see every id shifted by one, 0 being the mask."""

FORGET_BIAS = 1.0
"""Added to the forget gate of LSTMs at run time. The stored bias does not include it."""

CLUSTER_DIVISOR = 4
"""Each cluster of an adaptive softmax has this many times fewer dimensions than that of more frequent words before it,
as published."""

MAX_CHARACTERS = 255
"""Of a word: their places are counted in bytes (`elmo.nn.char_encoder`)."""


@dataclass(frozen=True)
class CharEmbeddingConfig:
    """`dim`: width of one character's vector."""

    dim: int


@dataclass(frozen=True)
class CharCNNConfig:
    """The char encoder: convolutions over a word's characters, highways, a projection.

    `filters` are (width, count) pairs. `n_characters` counts the embedding's rows: 262, the zero row of the mask
    included, or the 261 that published files store, which means the same. Words are read as their UTF-8 bytes: a model
    with any other number of rows was trained on other characters, and would give wrong vectors here.
    """

    embedding: CharEmbeddingConfig
    filters: tuple[tuple[int, int], ...]
    n_highway: int = 0
    activation: str = "relu"
    max_characters_per_token: int = 50
    n_characters: int = 262

    def __post_init__(self) -> None:
        if self.activation not in ("relu", "tanh"):
            raise ElmoError(f"char_cnn.activation: {shown(self.activation)} is neither 'relu' nor 'tanh'")
        if self.n_characters not in (261, 262):
            raise ElmoError(
                f"char_cnn.n_characters: {self.n_characters} is neither 261 nor 262, the numbers of a model that reads "
                "words as UTF-8 bytes; models of other characters can't be used here"
            )
        object.__setattr__(self, "n_characters", 262)
        if not self.filters:
            raise ElmoError("char_cnn.filters: there are none")
        if self.n_highway < 0:
            raise ElmoError(f"char_cnn.n_highway: {self.n_highway} is negative")
        widest = max(width for width, _ in self.filters)
        if not self.max_characters_per_token >= 3 or widest > self.max_characters_per_token:
            raise ElmoError(
                f"char_cnn.max_characters_per_token: {self.max_characters_per_token} holds no word "
                f"(at least 3, and the widest filter is {widest})"
            )
        if self.max_characters_per_token > MAX_CHARACTERS:
            raise ElmoError(
                f"char_cnn.max_characters_per_token: {self.max_characters_per_token} is more than {MAX_CHARACTERS}"
            )
        require_positive("char_cnn.embedding.dim", self.embedding.dim)
        for width, count in self.filters:
            require_positive("char_cnn.filters", min(width, count))

    @property
    def num_filters(self) -> int:
        """Number of features after the convolutions, all widths together."""
        return sum(count for _, count in self.filters)


@dataclass(frozen=True)
class LSTMConfig:
    """One direction's layers: cell width `dim`, output width `projection_dim`.

    A `projection_dim` equal to `dim` means that there is no projection. A clip of None clips nothing.
    """

    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False

    def __post_init__(self) -> None:
        for name in ("dim", "projection_dim", "n_layers", "cell_clip", "proj_clip"):
            require_positive(f"lstm.{name}", getattr(self, name))
        if self.projection_dim > self.dim:
            raise ElmoError(
                f"lstm.projection_dim: {self.projection_dim} is wider than the cell ({self.dim}); "
                "layers of two widths can't be stacked"
            )

    @property
    def has_projection(self) -> bool:
        """Whether a layer's output is a projection of its cell (else it is as wide as the cell)."""
        return self.projection_dim < self.dim


@dataclass(frozen=True)
class BiLMConfig:
    """A biLM's sizes. `bidirectional: false` means that there is only the forward direction.

    A biLM reads words by their characters, or, if `char_cnn` is None, each of `n_tokens_vocab` words by a vector of its
    own. In published options of the first kind, `n_tokens_vocab` is the size of the softmax; it is left out here.
    """

    char_cnn: CharCNNConfig | None
    lstm: LSTMConfig
    bidirectional: bool = True
    n_tokens_vocab: int | None = None

    def __post_init__(self) -> None:
        if self.char_cnn is not None:
            object.__setattr__(self, "n_tokens_vocab", None)
        elif self.n_tokens_vocab is None:
            raise ElmoError("key 'char_cnn' is missing, and so is 'n_tokens_vocab', which a model of whole words has")
        require_positive("n_tokens_vocab", self.n_tokens_vocab)

    @property
    def num_layers(self) -> int:
        """Number of layers a token gets, the token layer (layer 0) included."""
        return self.lstm.n_layers + 1

    @property
    def width(self) -> int:
        """Width of every layer: both directions side by side."""
        return self.lstm.projection_dim * (2 if self.bidirectional else 1)


def bilm_config(values: object, where: str, *, ignore_unknown: bool = False) -> BiLMConfig:
    """As `from_mapping`, of a biLM, which may have no `char_cnn`."""
    if isinstance(values, Mapping) and "n_tokens_vocab" in values:
        found = typing.cast("Mapping[str, object]", values)
        if "char_cnn" not in found:
            values = {**found, "char_cnn": None}
        elif ignore_unknown:  # the softmax's, and no matter here
            values = {key: value for key, value in found.items() if key != "n_tokens_vocab"}
    return from_mapping(BiLMConfig, values, where, ignore_unknown=ignore_unknown)
