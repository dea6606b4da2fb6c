"""The sizes of a biLM under the keys of the published `options.json`, and the special words and characters."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass

from elmo.errors import ElmoError
from elmo.schema import from_mapping, require_positive, shown

BOS, EOS, UNK = SPECIAL_WORDS = "<S>", "</S>", "<UNK>"
"""The first three words of every vocabulary, as in the published models: the boundaries of sentences, and the word for
unknown ones."""

BOS_ID, EOS_ID, UNK_ID = range(3)

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260
"""The ids of special characters, after those of the 256 bytes, as in the published code.

Models read every id plus 1, since 0 is the mask of padded tokens.
"""

DIRECTIONS = ("forward", "backward")
"""The names of a biLM's directions. One of a single direction has the first."""

FORGET_BIAS = 1.0
"""Added to the forget gate of LSTMs at run time. The stored bias does not include it."""

CLUSTER_DIVISOR = 4
"""The factor by which the dimensions of an adaptive softmax fall from one cluster of words to the next, rarer one, as
published."""

SHORTEST = 3
"""The number of characters of the shortest word, of one byte: begin of word, byte, end of word."""

MAX_CHARACTERS = 255
"""The largest number of characters of a word, since `elmo.nn.char_encoder` stores their places as bytes."""


@dataclass(frozen=True)
class CharEmbeddingConfig:
    """The embedding of characters.

    Attributes:
        dim: The width of a character's vector.
    """

    dim: int


@dataclass(frozen=True)
class CharCNNConfig:
    """The char encoder: convolutions over a word's characters, then highways and a projection.

    Attributes:
        embedding: The embedding of characters.
        filters: A pair for each convolution: the width of its filters in characters, and their number.
        n_highway: The number of highway layers.
        activation: The activation after the convolutions, "relu" or "tanh".
        max_characters_per_token: The most bytes (C) that are read of a word, including two marks for its boundaries.
        n_characters: The number of rows of the embedding. Files state 262, or 261 without the zero row of the mask,
            which means the same and becomes 262. A model with another number was trained on something other than UTF-8
            bytes, and would give wrong vectors.
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
        object.__setattr__(self, "n_characters", 262)  # a frozen dataclass has no other way to set a field
        if not self.filters:
            raise ElmoError(
                "char_cnn.filters: there are none; give the width and the number of some filters, as in [[3, 64]]"
            )
        if self.n_highway < 0:
            raise ElmoError(f"char_cnn.n_highway: {self.n_highway} is negative")
        widest = max(width for width, _ in self.filters)
        if not self.max_characters_per_token >= SHORTEST or widest > self.max_characters_per_token:
            raise ElmoError(
                f"char_cnn.max_characters_per_token: {self.max_characters_per_token} is too small; "
                f"it must be at least {SHORTEST}, and at least {widest}, the width of the widest filter"
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
        """The number of features after the convolutions of all widths."""
        return sum(count for _, count in self.filters)


@dataclass(frozen=True)
class LSTMConfig:
    """The LSTM layers of each direction.

    Attributes:
        dim: The width of the cell.
        projection_dim: The width of the output. If it equals `dim`, there is no projection.
        n_layers: The number of layers.
        cell_clip: The largest absolute value of the cell. None does not clip.
        proj_clip: The largest absolute value of the output. None does not clip.
        use_skip_connections: Whether the input of each layer except the first is added to its output.
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
                f"lstm.projection_dim: {self.projection_dim} is wider than the cell; give at most lstm.dim, {self.dim}"
            )

    @property
    def has_projection(self) -> bool:
        """Whether outputs are projected, and so narrower than the cell."""
        return self.projection_dim < self.dim


@dataclass(frozen=True)
class BiLMConfig:
    """The sizes of a biLM.

    Attributes:
        char_cnn: The char encoder. None for a model of whole words, which has a vector for each word instead.
        lstm: The LSTM layers.
        bidirectional: Whether there is a backward direction as well as the forward one.
        n_tokens_vocab: The number of words of a model of whole words; None for a model that reads characters. In
            published options of the latter it is the size of the softmax, which is left out here.
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
        """The number of layers L + 1 of a token, including the token layer (layer 0)."""
        return self.lstm.n_layers + 1

    @property
    def directions(self) -> tuple[str, ...]:
        """The names of the directions, "forward" and, if there is one, "backward"."""
        return DIRECTIONS if self.bidirectional else DIRECTIONS[:1]

    @property
    def width(self) -> int:
        """The width D of every layer, which is that of all directions together."""
        return self.lstm.projection_dim * len(self.directions)


@dataclass(frozen=True)
class TextConfig:
    """How the training text of a model was cut. Other text for the model is cut in the same way.

    Attributes:
        tokenizer: The name of the tokenizer (see `elmo.get_tokenizer`); "whitespace" for text that had been tokenized.
        text: What a line held: "sentences", "paragraphs", "wrapped" or "conllu" (see `elmo.text.reading`).
        lowercase: Whether the text was converted to lower case.
        language: The code of its language, which also decides how paragraphs are split into sentences.
        oov_rate: The share of its tokens that are not in the vocabulary, or None if that is not known.
    """

    tokenizer: str = "whitespace"
    text: str = "sentences"
    lowercase: bool = False
    language: str | None = None
    oov_rate: float | None = None

    def __str__(self) -> str:
        """Describe it in a few words."""
        language = f", language {self.language}" if self.language else ""
        case = "in lower case" if self.lowercase else "case kept"
        return f"tokenizer {self.tokenizer}, {self.text}{language}, {case}"


def bilm_config(values: object, where: str, *, ignore_unknown: bool = False) -> BiLMConfig:
    """Build the sizes of a biLM as `from_mapping` does, from options that may have no `char_cnn`.

    Args:
        values: The options, for instance those of a published model.
        where: The name of their source, with which error messages begin.
        ignore_unknown: Whether to leave out keys that are not sizes of a biLM, such as the settings of its training.

    Raises:
        ElmoError: If a size is missing, or is not one that a biLM can have.
    """
    if isinstance(values, Mapping) and "n_tokens_vocab" in values:
        found = typing.cast("Mapping[str, object]", values)
        if "char_cnn" not in found:
            values = {**found, "char_cnn": None}
        elif ignore_unknown:  # with `char_cnn`, it is the size of the softmax, which the biLM does not need
            values = {key: value for key, value in found.items() if key != "n_tokens_vocab"}
    return from_mapping(BiLMConfig, values, where, ignore_unknown=ignore_unknown)
