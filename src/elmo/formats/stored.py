"""The parts of a model as arrays, as files have them, from which torch's modules are made only where they are needed.

Embedding with the native kernels needs arrays alone, and importing torch takes four times as long as embedding a
sentence. So readers give arrays, by the names and with the shapes that the parameters of our modules have, and each
kind of part says here what these are and how to `build` the module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmo.config import CLUSTER_DIVISOR, BiLMConfig, CharCNNConfig
from elmo.formats.renames import Shape
from elmo.formats.safetensors import checksum_of_weights

if TYPE_CHECKING:
    from torch import nn

    from elmo.nn.bilm import BiLM, BiLMState
    from elmo.nn.scalar_mix import ScalarMix
    from elmo.nn.softmax import AnySoftmax

M = TypeVar("M", bound="nn.Module")

Weights = dict[str, NDArray[Any]]
"""Arrays by the names that a module's state dict has for them; float32 if they were read from a file, and otherwise in
the type of the module."""

CHARACTER_ROWS, WORD_ROWS = "char_encoder.embedding.weight", "char_encoder.words.weight"
"""The names of the character vectors, and of the word vectors of ELMoForManyLangs."""

JOINT = "char_encoder.joint_projection.weight"
"""A tensor that only ELMoForManyLangs' token encoder has, `WordCharEncoder`."""


@dataclass(frozen=True)
class StoredBiLM:
    """A biLM as arrays; `bilm_shapes` lists those of most models."""

    config: BiLMConfig
    weights: Weights

    @cached_property
    def checksum(self) -> str:
        """The checksum that other files of the model folder record (see `checksum_of_weights`)."""
        # Several files ask for it when a model is read, and it takes time for a large model. The arrays don't change.
        return checksum_of_weights(self.weights)

    def build(self) -> BiLM:
        """Make the module. It takes over copies of the arrays, as it may be trained."""
        from elmo.nn.bilm import BiLM
        from elmo.nn.char_encoder import WordCharEncoder

        def make() -> BiLM:
            char_cnn, joint = self.config.char_cnn, self.weights.get(JOINT)
            if char_cnn is None or joint is None:
                return BiLM(self.config)
            num_words, word_dim = self.weights[WORD_ROWS].shape if WORD_ROWS in self.weights else (0, 0)
            num_characters, out_dim = len(self.weights[CHARACTER_ROWS]), len(joint)
            return BiLM(self.config, WordCharEncoder(char_cnn, num_characters, num_words, word_dim, out_dim))

        return _filled(make, self.weights)


@dataclass(frozen=True)
class StoredSoftmax:
    """A softmax as arrays: full, or adaptive, which has a head. `dim` is the width of the biLM's outputs, P."""

    dim: int
    weights: Weights

    @property
    def num_words(self) -> int:
        """The size of the vocabulary, V."""
        if self.is_adaptive:
            return sum(self._tails, self._first_cutoff)
        return self._num_rows("bias") or self._num_rows("weight")  # the bias may be what is missing

    @property
    def is_adaptive(self) -> bool:
        """Whether rare words have clusters of their own (see `elmo.nn.softmax`)."""
        return "head.weight" in self.weights

    @property
    def cutoffs(self) -> list[int]:
        """The words at which the clusters of an adaptive softmax begin."""
        return list(accumulate(self._tails, initial=self._first_cutoff))[:-1]

    @property
    def shapes(self) -> dict[str, Shape] | None:
        """The shapes that all its tensors must have, or None if those of the matrices fit no softmax."""
        if not self.is_adaptive:
            return softmax_shapes(self.num_words, self.dim)
        bounds = [0, *self.cutoffs, self.num_words]
        rise = bounds == sorted(set(bounds)) and len(bounds) > 2
        return _adaptive_shapes(bounds, self.dim) if rise and self.dim >= CLUSTER_DIVISOR ** (len(bounds) - 2) else None

    def build(self) -> AnySoftmax:
        """Make the module. It takes over copies of the arrays, as it may be trained."""
        from elmo.nn.softmax import AdaptiveSoftmax, Softmax

        if not self.is_adaptive:
            return _filled(lambda: Softmax(self.num_words, self.dim), self.weights)
        return _filled(lambda: AdaptiveSoftmax(self.num_words, self.dim, self.cutoffs), self.weights)

    # The head has a row for each frequent word and one for each cluster; a tail has a row for each of its words.

    @property
    def _tails(self) -> list[int]:
        return list(takewhile(bool, (self._num_rows(f"tail.{i}.1.weight") for i in count())))

    @property
    def _first_cutoff(self) -> int:
        return self._num_rows("head.weight") - len(self._tails)

    def _num_rows(self, name: str) -> int:
        return len(self.weights[name]) if name in self.weights and self.weights[name].ndim else 0


@dataclass(frozen=True)
class StoredMix:
    """A scalar mix of a biLM's layers, with the arguments of `ScalarMix`."""

    scores: Sequence[float]
    gamma: float
    layer_norm: bool = False
    top_only: bool = False


@dataclass(frozen=True)
class StoredMixes:
    """Scalar mixes as numbers."""

    mixes: Sequence[StoredMix]

    def build(self) -> list[ScalarMix]:
        """Make the modules."""
        from elmo.nn.scalar_mix import ScalarMix

        return [
            ScalarMix(
                len(mix.scores),
                top_only=mix.top_only,
                layer_norm=mix.layer_norm,
                initial_scores=mix.scores,
                initial_gamma=mix.gamma,
            )
            for mix in self.mixes
        ]


class StateArrays(NamedTuple):
    """The LSTM state of one direction as arrays, `hidden` (L, B, P) and `cell` (L, B, H)."""

    hidden: NDArray[np.float32]
    cell: NDArray[np.float32]


States = tuple[StateArrays, ...]
"""The LSTM state of each direction, forward first."""


def take_first_rows(state: States, batch_size: int) -> States:
    """Return a copy of the first rows, with zeros for rows that `state` does not have (as `nn.bilm.first_rows`)."""

    def cut(part: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.pad(part[:, :batch_size], ((0, 0), (0, max(0, batch_size - part.shape[1])), (0, 0)))

    return tuple(StateArrays(*map(cut, direction)) for direction in state)


def with_first_rows(old: States | None, new: States) -> States:
    """Return `old` with as many of its first rows replaced as `new` has (as `nn.bilm.replace_rows`)."""
    if old is None:
        return new
    return tuple(
        StateArrays(*(np.concatenate([n, o[:, n.shape[1] :]], axis=1) for o, n in zip(before, after, strict=True)))
        for before, after in zip(old, new, strict=True)
    )


def take_rows(state: States, rows: Sequence[int]) -> States:
    """Return a copy of some rows."""
    return tuple(StateArrays(*(part[:, list(rows)] for part in direction)) for direction in state)


def put_rows(state: States, rows: Sequence[int], new: States) -> None:
    """Write `new` into some rows of `state`."""
    for before, after in zip(state, new, strict=True):
        for old, part in zip(before, after, strict=True):
            old[:, list(rows)] = part


@dataclass(frozen=True)
class StoredState:
    """The LSTM state of each direction as arrays."""

    directions: States

    def build(self) -> BiLMState:
        """Make the tensors, on the CPU."""
        import torch

        from elmo.nn.lstm import LSTMState

        return tuple(LSTMState(*map(torch.tensor, direction)) for direction in self.directions)


def _filled(make: Callable[[], M], weights: Weights) -> M:
    """Return the module that `make` makes, with these weights."""
    import torch
    from torch.overrides import TorchFunctionMode

    class NoRandomNumbers(TorchFunctionMode):
        """Skips random initial values, which are useless in a module that is about to be filled.

        On the meta device they have no effect either, but they make torch import its compiler, which takes a second.
        """

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if getattr(func, "__name__", None) in ("uniform_", "normal_"):
                return args[0] if args else kwargs["tensor"]
            return func(*args, **kwargs)

    # On the meta device, tensors have shapes without memory.
    with torch.device("meta"), NoRandomNumbers():
        module = make()
    # Copies of the arrays, because rounding in later computations depends on the alignment of a tensor's memory, which
    # NumPy does not promise. `assign`, because parameters on the meta device have no memory to copy into. Parameters
    # that were assigned require no gradient, as the copies don't.
    module.load_state_dict({name: torch.tensor(array, device="cpu") for name, array in weights.items()}, assign=True)
    module.requires_grad_(True)
    return module


# --- the shapes of parameters


def bilm_shapes(config: BiLMConfig) -> dict[str, Shape]:
    """Return the shapes of the parameters of `BiLM(config)` by their names."""
    width = config.lstm.projection_dim
    shapes: dict[str, Shape] = {}
    if config.char_cnn is not None:
        features = config.char_cnn.num_filters
        shapes[CHARACTER_ROWS] = (config.char_cnn.n_characters, config.char_cnn.embedding.dim)
        shapes |= char_cnn_shapes(config.char_cnn)
        if features != width:
            shapes |= linear_shapes("char_encoder.projection", features, width)
    elif config.n_tokens_vocab is not None:
        shapes["word_encoder.embedding.weight"] = (config.n_tokens_vocab, width)
    return shapes | lstm_shapes(config)


def char_cnn_shapes(config: CharCNNConfig) -> dict[str, Shape]:
    """Return the shapes of the convolutions and highways of a biLM's char encoder."""
    shapes: dict[str, Shape] = {}
    for i, (width, num_filters) in enumerate(config.filters):
        shapes[f"char_encoder.convolutions.{i}.weight"] = (num_filters, config.embedding.dim, width)
        shapes[f"char_encoder.convolutions.{i}.bias"] = (num_filters,)
    for k in range(config.n_highway):
        for part in ("transform", "gate"):
            shapes |= linear_shapes(f"char_encoder.highways.{k}.{part}", config.num_filters, config.num_filters)
    return shapes


def lstm_shapes(config: BiLMConfig) -> dict[str, Shape]:
    """Return the shapes of a biLM's LSTM layers, of all directions."""
    lstm = config.lstm
    shapes: dict[str, Shape] = {}
    for direction in config.directions:
        for number in range(lstm.n_layers):
            layer = f"{direction}_lstm.layers.{number}"
            shapes[f"{layer}.weight_ih"] = shapes[f"{layer}.weight_hh"] = (4 * lstm.dim, lstm.projection_dim)
            if lstm.has_projection:
                shapes[f"{layer}.weight_hr"] = (lstm.projection_dim, lstm.dim)
            shapes[f"{layer}.bias"] = (4 * lstm.dim,)
    return shapes


def softmax_shapes(num_words: int, dim: int) -> dict[str, Shape]:
    """Return the shapes of the parameters of `Softmax(num_words, dim)`."""
    return {"weight": (num_words, dim), "bias": (num_words,)}


def _adaptive_shapes(bounds: Sequence[int], dim: int) -> dict[str, Shape]:
    """Return the shapes of an `AdaptiveSoftmax`, whose clusters begin and end at `bounds`."""
    _, first, *ends = bounds
    shapes = linear_shapes("head", dim, first + len(ends))
    for i, (start, end) in enumerate(zip([first, *ends], ends, strict=False)):
        inner = dim // CLUSTER_DIVISOR ** (i + 1)
        shapes |= {f"tail.{i}.0.weight": (inner, dim), f"tail.{i}.1.weight": (end - start, inner)}
    return shapes


def linear_shapes(name: str, num_inputs: int, num_outputs: int) -> dict[str, Shape]:
    """Return the shapes of the parameters of an `nn.Linear` of this name."""
    return {f"{name}.weight": (num_outputs, num_inputs), f"{name}.bias": (num_outputs,)}
