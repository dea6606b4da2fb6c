"""`Model`: a biLM with everything that belongs to it, whichever format it was read from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray

from elmo.config import BiLMConfig, CharCNNConfig, TextConfig
from elmo.errors import ElmoError
from elmo.formats.files import checksum_of_weights, to_array
from elmo.formats.stored import StateArrays, StoredBiLM, StoredMixes, StoredSoftmax, StoredState, Weights
from elmo.formats.stored_types import StoredTypes
from elmo.text.characters import encode_words, number_types
from elmo.text.vocabulary import Lexicon, Vocabulary

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from elmo.nn.bilm import BiLM, BiLMState
    from elmo.nn.scalar_mix import ScalarMix
    from elmo.nn.softmax import AnySoftmax

T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)

ToIds = Callable[[Sequence[str]], NDArray[Any]]
"""Converts N words to the ids (N, C) that a token encoder takes."""

State = Literal["zero", "carry", "warm"]
"""The LSTM state before a sentence: zeros, the state at the end of its row in the last batch, or the warm state."""

STATES: tuple[str, ...] = get_args(State)


@dataclass(frozen=True)
class TokenVectors:
    """The vectors (V, P) that the char encoder gives for V words, which may contain duplicates."""

    words: tuple[str, ...]
    vectors: NDArray[np.float32]


class _Stored(Protocol[S_co]):
    """A part of a model as arrays (see `elmo.formats.stored`)."""

    def build(self) -> S_co: ...


class _Part(Generic[T]):
    """A part of a model that may be given as arrays, of which it is built when it is first read.

    `_Part(default)` describes a field of a dataclass. `default` makes the value of a model that is made without one.
    """

    def __init__(self, default: Callable[[], T] | None = None) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, model: None, owner: type) -> Self: ...
    @overload
    def __get__(self, model: Model, owner: type) -> T: ...
    def __get__(self, model: Model | None, owner: type) -> Self | T:
        if model is None:
            # What dataclasses ask for the default of a field: this, or nothing if it must be given.
            if self._default is None:
                raise AttributeError(self._name)
            return self
        value = model.__dict__[self._name]
        if isinstance(value, StoredBiLM | StoredSoftmax | StoredMixes | StoredState):
            model.__dict__[self._name] = value.build()
        return model.__dict__[self._name]

    def __set__(self, model: Model, value: T | _Stored[T] | Self) -> None:
        model.__dict__[self._name] = self._default() if value is self and self._default else value


@dataclass
class Model:
    """A biLM together with whatever else was stored with it.

    Only the biLM is always there. Words are converted to ids by the `lexicon` if there is one, otherwise by the
    `vocabulary` if the biLM reads whole words, and otherwise from their UTF-8 bytes (see `to_ids`).

    Modules and tensors may be given as arrays (see `elmo.formats.stored`), as readers of files do. They are then built
    when they are first asked for, which imports torch. Embedding with the native kernels needs only `weights` and
    `warm_arrays`.

    Attributes:
        bilm: The bidirectional (or forward-only) language model.
        softmax: The output layer it was trained with, full or adaptive.
        vocabulary: The words of the softmax, or the words that a biLM without characters reads.
        origin: What was recognised and by which signs, for messages and `elmo info`.
        mixes: Scalar mixes that a task learned. Embedding does not need them.
        token_vectors: Cached layer-0 vectors of some words. Embedding does not need them.
        lexicon: The word and character lists of an ELMoForManyLangs model.
        warm_state: An LSTM state of one row that sentences can start from instead of zeros (see `elmo.embed.warm`).
        types: Token vectors that were stored to be looked up instead of computed (see `current_types`).
        card: The text of the model card, for people.
        figures: Facts about the training, name to value, for programs.
        text: How the training text was cut, if that is known.
        vocabulary_file: The words of the training text, which may be read to compare another text with them.
    """

    bilm: _Part[BiLM] = _Part()
    softmax: _Part[AnySoftmax | None] = _Part(lambda: None)
    vocabulary: Vocabulary | None = None
    origin: str = "made in memory"
    mixes: _Part[list[ScalarMix]] = _Part(lambda: [])
    token_vectors: TokenVectors | None = None
    lexicon: Lexicon | None = None
    warm_state: _Part[BiLMState | None] = _Part(lambda: None)
    types: StoredTypes | None = None
    card: str | None = None
    figures: Mapping[str, str] = field(default_factory=dict[str, str])
    text: TextConfig | None = None
    vocabulary_file: Path | None = None

    def __repr__(self) -> str:
        """Tell what this is, without its weights."""
        config = self.config
        return f"Model({self.origin!r}, num_layers={config.num_layers}, width={config.width})"

    @property
    def config(self) -> BiLMConfig:
        """The sizes of the biLM."""
        bilm: BiLM | StoredBiLM = self.__dict__["bilm"]
        return bilm.config

    @property
    def weights(self) -> Weights:
        """The biLM's weights as arrays, by the names of its state dict, in their own type.

        If the biLM was built, they share its memory where they can.
        """
        bilm: BiLM | StoredBiLM = self.__dict__["bilm"]
        if isinstance(bilm, StoredBiLM):
            return bilm.weights
        return {name: to_array(tensor) for name, tensor in bilm.state_dict().items()}

    @property
    def stored_softmax(self) -> StoredSoftmax | None:
        """The softmax as arrays, which are like those of `weights`, or None if there is no softmax."""
        softmax: AnySoftmax | StoredSoftmax | None = self.__dict__["softmax"]
        if softmax is None or isinstance(softmax, StoredSoftmax):
            return softmax
        arrays = {name: to_array(tensor) for name, tensor in softmax.state_dict().items()}
        return StoredSoftmax(self.config.lstm.projection_dim, arrays)

    @property
    def warm_arrays(self) -> tuple[StateArrays, ...] | None:
        """The warm state as arrays of one row for each direction, or None if there is none."""
        state: BiLMState | StoredState | None = self.__dict__["warm_state"]
        if state is None or isinstance(state, StoredState):
            return state and state.directions
        return tuple(StateArrays(*map(to_array, direction)) for direction in state)

    @property
    def num_mixes(self) -> int:
        """The number of scalar mixes, which need not be built for it."""
        mixes: list[ScalarMix] | StoredMixes = self.__dict__["mixes"]
        return len(mixes.mixes if isinstance(mixes, StoredMixes) else mixes)

    @property
    def current_types(self) -> StoredTypes | None:
        """The stored token vectors, or None if there are none, or the weights have changed since."""
        types = self.types
        # Arrays from files stay as they were read. A module may have been trained, so its weights are compared.
        if types is None or isinstance(self.__dict__["bilm"], StoredBiLM):
            return types
        return types if types.bilm == checksum_of_weights(self.weights) else None

    def to(self, device: torch.device) -> Self:
        """Move the biLM and the softmax to `device` in place, and return the model."""
        self.bilm.to(device)
        if self.softmax is not None:
            self.softmax.to(device)
        return self

    @property
    def to_ids(self) -> ToIds:
        """The function that converts words to the ids this model reads.

        It does not keep the weights alive: an engine keeps it, but may have packed the weights into its own layout.
        """
        if self.lexicon is not None:
            return self.lexicon.encode
        if self.config.char_cnn is None:
            return require_vocabulary(self).encode
        return partial(encode_words, max_characters=self.config.char_cnn.max_characters_per_token)


def without_softmax(model: Model) -> Model:
    """Return the biLM without its softmax, keeping what it needs to read words, its card and its figures."""
    # A vocabulary belongs to the softmax, unless the biLM reads whole words by it.
    words = model.vocabulary if model.config.char_cnn is None else None
    # The biLM as it is, built or not.
    kept = Model(model.__dict__["bilm"], None, words, model.origin, lexicon=model.lexicon, card=model.card)
    kept.figures, kept.text, kept.vocabulary_file = model.figures, model.text, model.vocabulary_file
    return kept


def predictor_inputs(
    model: Model, sentences: Sequence[Sequence[str]], device: torch.device
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """Prepare the arguments of `BiLM.predictors` that predict every token of `sentences`.

    As in training, the forward direction reads everything except `</S>` and predicts everything except `<S>`; the
    backward direction does the opposite.

    Args:
        model: The model whose ids are wanted.
        sentences: B tokenized sentences, without `<S>` and `</S>`.
        device: Where the ids are put; the lengths stay on the CPU.

    Returns:
        The ids (N, C) of the N distinct words, the word numbers that the forward and the backward direction read
        (B, T-1 each, T with both boundaries), and the lengths (B,) of their rows.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    types, numbered = number_types(sentences)
    tokens = pad_sequence([torch.tensor(row) for row in numbered], batch_first=True).to(device)
    lengths = torch.tensor([len(row) - 1 for row in numbered])  # each direction leaves out one boundary
    return torch.from_numpy(model.to_ids(types)).to(device), (tokens[:, :-1], tokens[:, 1:]), lengths


def require_warm_state(state: T | None) -> T:
    """Return the warm state `state` (tensors or arrays), or raise an `ElmoError` if there is none."""
    if state is None:
        raise ElmoError(
            "state: this model has no warm state, or one that belongs to other weights; add one to the model folder "
            "with 'elmo warm MODEL TEXT'"
        )
    return state


def require_bytes(model: Model, done: str) -> None:
    """Refuse a model with a lexicon, which no format that we write can store; `done` says what it was to be."""
    if model.lexicon is not None:
        raise ElmoError(f"an ELMoForManyLangs model cannot be {done}: it has word lists of its own ({model.origin})")


def require_characters(model: Model, done: str) -> CharCNNConfig:
    """Return the sizes of the char encoder, and refuse a model that does not read UTF-8 bytes.

    Args:
        model: The model to check.
        done: What was to be done to the model, for the message: "trained", "converted".
    """
    require_bytes(model, done)
    if model.config.char_cnn is None:
        raise ElmoError(f"a model that reads whole words, not characters, cannot be {done} ({model.origin})")
    return model.config.char_cnn


def require_vocabulary(model: Model) -> Vocabulary:
    """Return the vocabulary that a model reads whole words by, or raise an `ElmoError` if it has none."""
    if model.vocabulary is None:
        raise ElmoError(f"the model reads whole words, but it has no vocabulary to number them ({model.origin})")
    return model.vocabulary


def require_softmax(model: Model, otherwise: str = "") -> tuple[AnySoftmax, Vocabulary]:
    """Return the softmax of a model and its words, and refuse a model that lacks either.

    Args:
        model: The model to check.
        otherwise: A sentence for the message that says what to do if there is no softmax.
    """
    if model.softmax is None:
        raise ElmoError(
            f"the model has no softmax, which published models keep in a separate file, if at all ({model.origin}). "
            f"{otherwise}"
        )
    if model.vocabulary is None:
        raise ElmoError(
            f"the model has a softmax, but no vocabulary for it ({model.origin}); put the words next to it as "
            "vocab.txt (as vocabulary.txt in a folder that elmo made)"
        )
    return model.softmax, model.vocabulary
