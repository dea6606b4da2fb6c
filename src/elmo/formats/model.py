"""`Model`: a biLM with everything that belongs to it, whichever format it was read from."""

from __future__ import annotations

import copy
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray

from elmo.config import BiLMConfig, CharCNNConfig, TextConfig
from elmo.errors import ElmoError
from elmo.formats.safetensors import checksum_of_weights, to_array
from elmo.formats.stored import StateArrays, States, StoredBiLM, StoredMixes, StoredSoftmax, StoredState, Weights
from elmo.formats.stored_types import StoredTypes
from elmo.schema import from_mapping, shown
from elmo.text.characters import encode_words, number_types
from elmo.text.reading import TEXTS
from elmo.text.vocabulary import Lexicon, Vocabulary

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from elmo.nn.bilm import BiLM, BiLMState
    from elmo.nn.scalar_mix import ScalarMix
    from elmo.nn.softmax import AnySoftmax

T = TypeVar("T")
S = TypeVar("S")

_WEIGHT = re.compile(
    r"(char|word)_encoder\.(\w+|convolutions\.\d+|highways\.\d+\.\w+)\.(weight|bias)"
    r"|(forward|backward)_lstm\.layers\.\d+\.(weight_ih|weight_hh|weight_hr|bias)"
)
"""The names of a biLM's weights in its state dict."""

_STORED = (StoredBiLM, StoredSoftmax, StoredMixes, StoredState)

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


class _Built(Generic[T, S]):
    """An attribute that is built from the arrays of a file when it is first asked for, by one thread alone."""

    _building = threading.RLock()

    @staticmethod
    def renew_lock() -> None:
        """Replace the lock that all these attributes share."""
        _Built._building = threading.RLock()

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    @overload
    def __get__(self, model: None, owner: type) -> Self: ...
    @overload
    def __get__(self, model: Model, owner: type) -> T: ...
    def __get__(self, model: Model | None, owner: type) -> Self | T:
        if model is None:
            return self
        if isinstance(getattr(model, self._name), _STORED):
            with _Built._building:
                # Another thread may have built it meanwhile. Two modules of one model would not be trained together.
                if isinstance(stored := getattr(model, self._name), _STORED):
                    setattr(model, self._name, stored.build())
        return getattr(model, self._name)

    def __set__(self, model: Model, value: T | S) -> None:
        setattr(model, self._name, value)


if hasattr(os, "register_at_fork"):
    # A thread that held the lock is not in the child, which would wait for it forever.
    os.register_at_fork(after_in_child=_Built.renew_lock)


class Model:
    """A biLM together with whatever else was stored with it.

    Only the biLM is always there. Words are converted to ids by the `lexicon` if there is one, otherwise by the
    `vocabulary` if the biLM reads whole words, and otherwise from their UTF-8 bytes (see `to_ids`).

    Modules and tensors may be given as arrays (see `elmo.formats.stored`), as readers of files do. They are then built
    when they are first asked for, which imports torch. Embedding with the native kernels needs only `weights` and
    `warm_arrays`.

    Attributes:
        bilm: The bidirectional (or forward-only) language model.
        softmax: The output layer it was trained with, full or adaptive; None if there is none.
        vocabulary: The words of the softmax, or the words that a biLM without characters reads.
        origin: What was recognized and by which signs, for messages and `elmo info`.
        mixes: Scalar mixes that a task learned. Embedding does not need them.
        token_vectors: Cached layer-0 vectors of some words. Embedding does not need them.
        lexicon: The word and character lists of an ELMoForManyLangs model.
        warm_state: An LSTM state of one row that sentences can start from instead of zeros (see `elmo.embed.warm`);
            None if there is none.
        types: Token vectors that were stored to be looked up instead of computed (see `current_types`).
        card: The text of the model card, for people.
        figures: Facts about the training, name to value, for programs.
        described: The checksum of the weights that card and figures are about. With it, one can tell whether a task
            has trained the biLM since. None if no card is kept or no task trains it.
        text: How the training text was cut, if that is known.
        vocabulary_file: The words of the training text, which may be read to compare another text with them.
    """

    bilm = _Built["BiLM", StoredBiLM]()
    softmax = _Built["AnySoftmax | None", StoredSoftmax]()
    mixes = _Built["list[ScalarMix]", StoredMixes]()
    warm_state = _Built["BiLMState | None", StoredState]()

    def __init__(
        self,
        bilm: BiLM | StoredBiLM,
        softmax: AnySoftmax | StoredSoftmax | None = None,
        vocabulary: Vocabulary | None = None,
        origin: str = "made in memory",
        mixes: list[ScalarMix] | StoredMixes | None = None,
        *,
        lexicon: Lexicon | None = None,
        warm_state: BiLMState | StoredState | None = None,
        text: TextConfig | None = None,
    ) -> None:
        self._bilm, self._softmax, self._warm_state = bilm, softmax, warm_state
        self._mixes: list[ScalarMix] | StoredMixes = [] if mixes is None else mixes
        self.vocabulary, self.origin, self.lexicon, self.text = vocabulary, origin, lexicon, text
        self.token_vectors: TokenVectors | None = None
        self.types: StoredTypes | None = None
        self.card: str | None = None
        self.figures: Mapping[str, str] = {}
        self.described: str | None = None
        self.vocabulary_file: Path | None = None

    @property
    def is_built(self) -> bool:
        """Whether the biLM is a module, which may be trained. Arrays from files stay as they were read."""
        return not isinstance(self._bilm, StoredBiLM)

    def copy_with(self, **changes: Any) -> Model:
        """Return a copy that has other attributes in place of some, and shares the rest. Nothing is built for it.

        Args:
            **changes: Attributes by name.
        """
        made = copy.copy(self)
        for name, value in changes.items():
            if not vars(made).keys() & {name, f"_{name}"}:
                raise TypeError(f"a Model has no {name}")
            setattr(made, name, value)
        return made

    def __repr__(self) -> str:
        """Tell what this is, without its weights."""
        config = self.config
        return f"Model({self.origin!r}, num_layers={config.num_layers}, width={config.width})"

    @property
    def config(self) -> BiLMConfig:
        """The sizes of the biLM."""
        return self._bilm.config

    @property
    def weights(self) -> Weights:
        """The biLM's weights as arrays, by the names of its state dict, in their own type.

        If the biLM was built, they share its memory where they can.

        Raises:
            ElmoError: If the biLM computes one of them from others whenever it is used, as torch's pruning and adapters
                such as LoRA do.
        """
        if isinstance(self._bilm, StoredBiLM):
            return self._bilm.weights
        tensors = self._bilm.state_dict()
        # Pruning, parametrizations and adapters store tensors of other names, which no reader knows.
        if other := next((name for name in tensors if not _WEIGHT.fullmatch(name)), None):
            raise ElmoError(
                f"'{other}': the biLM computes a weight from this tensor; end that first, by prune.remove or "
                "parametrize.remove_parametrizations of torch.nn.utils, or by merging an adapter into its weight"
            )
        return {name: to_array(tensor) for name, tensor in tensors.items()}

    @property
    def stored_softmax(self) -> StoredSoftmax | None:
        """The softmax as arrays, which are like those of `weights`, or None if there is no softmax."""
        if self._softmax is None or isinstance(self._softmax, StoredSoftmax):
            return self._softmax
        arrays = {name: to_array(tensor) for name, tensor in self._softmax.state_dict().items()}
        return StoredSoftmax(self.config.lstm.projection_dim, arrays)

    @property
    def warm_arrays(self) -> States | None:
        """The warm state as arrays of one row for each direction, or None if there is none."""
        if self._warm_state is None:
            return None
        if isinstance(self._warm_state, StoredState):
            return self._warm_state.directions
        return tuple(StateArrays(*map(to_array, direction)) for direction in self._warm_state)

    @property
    def num_mixes(self) -> int:
        """The number of scalar mixes, which need not be built for it."""
        return len(self._mixes.mixes if isinstance(self._mixes, StoredMixes) else self._mixes)

    @property
    def current_types(self) -> StoredTypes | None:
        """The stored token vectors, or None if there are none, or the weights have changed since."""
        types = self.types
        # A module may have been trained, so its weights are compared.
        if types is None or not self.is_built:
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
    """Return the biLM alone, with what it needs to read words, its card and its figures.

    Besides the softmax, it is without mixes, token vectors, a warm state and stored types.
    """
    # A vocabulary belongs to the softmax, unless the biLM reads whole words by it.
    words = model.vocabulary if model.config.char_cnn is None else None
    return model.copy_with(softmax=None, vocabulary=words, mixes=[], token_vectors=None, warm_state=None, types=None)


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
    tokens = pad_sequence([torch.tensor(row, device="cpu") for row in numbered], batch_first=True).to(device)
    lengths = torch.tensor([len(row) - 1 for row in numbered], device="cpu")  # each direction leaves out one boundary
    return torch.from_numpy(model.to_ids(types)).to(device), (tokens[:, :-1], tokens[:, 1:]), lengths


def require_model(model: object) -> None:
    """Refuse what is not a model, such as the `Embedder` that `elmo.load` returns."""
    if not isinstance(model, Model):
        if isinstance(model, str | Path):  # ParallelEmbedder takes one
            advice = "; for a path or a name, there is elmo.load"
        else:
            advice = "; pass its as_model()" if hasattr(model, "as_model") else ""
        raise ElmoError(f"`model`: expected what elmo.formats.load returns, found {type(model).__name__}{advice}")


def require_warm_state(state: T | None) -> T:
    """Return the warm state `state` (tensors or arrays), or raise an `ElmoError` if there is none."""
    if state is None:
        raise ElmoError(
            "`state`: this model has no warm state, or one that belongs to other weights; add one to the model folder "
            "with 'elmo warm MODEL TEXT'"
        )
    return state


TEXT = "text"
"""The key of our `config.json` and `options.json` that says how the training text was cut."""


def text_config(value: object, path: Path) -> TextConfig:
    """Read how a model's training text was cut, the value of `TEXT` in a JSON file.

    Raises:
        ElmoError: If it isn't that.
    """
    text = from_mapping(TextConfig, value, f"{path}: {TEXT}")
    if text.text not in TEXTS:
        raise ElmoError(f"{path}: {TEXT}: text: {shown(text.text)} is not one of {', '.join(TEXTS)}")
    if text.oov_rate is not None and not 0 <= text.oov_rate <= 1:
        raise ElmoError(f"{path}: {TEXT}: oov_rate: {text.oov_rate} is not a share, which is a number from 0 to 1")
    return text


def refuse_lexicon(model: Model, done: str) -> None:
    """Refuse what is no model, and one with a lexicon, which no format that we write can store.

    Args:
        model: The model to check.
        done: What was to be done to it, for the message.
    """
    require_model(model)
    if model.lexicon is not None:
        raise ElmoError(f"an ELMoForManyLangs model cannot be {done}: it has word lists of its own ({model.origin})")


def require_characters(model: Model, done: str) -> CharCNNConfig:
    """Return the sizes of the char encoder, and refuse a model that does not read UTF-8 bytes.

    Args:
        model: The model to check.
        done: What was to be done to the model, for the message: "trained", "converted".
    """
    refuse_lexicon(model, done)
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
        otherwise: What to do if there is no softmax, for the end of the message.
    """
    if model.softmax is None:
        advice = f"; {otherwise}" if otherwise else ""
        raise ElmoError(
            f"the model has no softmax, which published models keep in a separate file, if at all ({model.origin})"
            f"{advice}"
        )
    if model.vocabulary is None:
        raise ElmoError(
            f"the model has a softmax, but no vocabulary for it ({model.origin}); put the words next to it as "
            "vocab.txt (as vocabulary.txt in a folder that elmo made)"
        )
    return model.softmax, model.vocabulary
