"""Provides AllenNLP's `Elmo` and `ElmoTokenEmbedder` for task models."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.formats import elmo as plain
from elmo.formats.model import Model
from elmo.formats.renames import require_shape
from elmo.integrations.allennlp.modules import ElmoBiLm, ScalarMix
from elmo.nn.bilm import BiLM
from elmo.nn.elmo import WordCache, require_batch, require_numbers
from elmo.schema import require_count, require_share, shown

M = TypeVar("M", bound=nn.Module)


class Elmo(plain.Elmo):
    """`elmo.Elmo` with AllenNLP's arguments, submodules and state dict.

    The LSTM state is carried from batch to batch, also in training. `elmo._elmo_lstm._elmo_lstm.stateful = False`
    turns this off, and `elmo._elmo_lstm._elmo_lstm.reset_states()` forgets the state. `elmo.scalar_mix_0` has
    `scalar_parameters` and `gamma`.

    `state_dict` has AllenNLP's names. `load_state_dict` takes it, alone or as part of a task model's, and also what
    earlier versions of this class stored.

    Args:
        options_file: The model's options, or None with `module`.
        weight_file: The model's weights, or None with `module`.
        num_output_representations: Number of representations, each with a mix of its own.
        requires_grad: Train the biLM, too. Ignored with `module`.
        do_layer_norm: Normalize each layer before it is mixed.
        dropout: Dropout of the representations.
        vocab_to_cache: Words whose token vectors are computed only once, if the biLM is not trained.
        keep_sentence_boundaries: Keep the vectors of `<S>` and `</S>`.
        scalar_mix_parameters: Fixed weights of the layers before the softmax. By default they are trained.
        module: Takes the place of both files: an `_ElmoBiLm`; any module with `num_layers` that returns `activations`
            and `mask` as that does; or a biLM or `Elmo` of this package, whose biLM is then shared.

    Raises:
        ElmoError: If the files cannot be read, or both they and `module` are given; if there is no mix, or `dropout` is
            no probability.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
    ) -> None:
        if module is None:
            part = ElmoBiLm.of(plain.load_pair(options_file, weight_file), requires_grad, vocab_to_cache)
        elif options_file is not None or weight_file is not None:
            raise ElmoError("`module`: takes the place of both files; pass None for options_file and weight_file")
        elif hasattr(module, "num_layers"):
            part = module
        else:
            part = ElmoBiLm.of(plain.shared_model(module), None, vocab_to_cache)
        self._hold(
            part,
            num_output_representations,
            has_words=vocab_to_cache is not None,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            keep_sentence_boundaries=keep_sentence_boundaries,
            scalar_mix_parameters=scalar_mix_parameters,
        )

    def _hold(
        self,
        part: Any,
        num_output_representations: int,
        *,
        has_words: bool,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        top_only: bool = False,
        stateful: bool = True,
    ) -> None:
        require_count("`num_output_representations`", num_output_representations)
        require_share("`dropout`", dropout)
        # The parent's constructor is left out, since it would make submodules under other names. So all attributes that
        # its methods use are set here, or are properties below.
        nn.Module.__init__(self)
        self._elmo_lstm = part
        self._has_cached_vocab = has_words
        self.dropout, self.keep_sentence_boundaries = dropout, keep_sentence_boundaries
        for number in range(num_output_representations):
            trainable = scalar_mix_parameters is None
            mix = ScalarMix(part.num_layers, do_layer_norm, scalar_mix_parameters, trainable)
            if top_only:
                mix.top_only = top_only
                mix.scalar_parameters.requires_grad_(False)  # they have no effect, so they would get no gradient
            self.add_module(f"scalar_mix_{number}", mix)
        self._num_mixes = num_output_representations
        if isinstance(part, ElmoBiLm):
            self._model = part.model
        if not stateful:
            self.stateful = False

    def _set_up(
        self,
        model: Model,
        num_output_representations: int,
        vocab_to_cache: Sequence[str] | None,
        requires_grad: bool | None = False,
        **options: Any,
    ) -> None:
        part = ElmoBiLm.of(model, requires_grad, vocab_to_cache)
        self._hold(part, num_output_representations, has_words=vocab_to_cache is not None, **options)

    @property
    def bilm(self) -> BiLM:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The biLM, as in `elmo.Elmo`. It is absent if `module` is a module of another kind."""
        return self._model.bilm

    @property
    def mixes(self) -> list[ScalarMix]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The mixes `scalar_mix_0`, `scalar_mix_1`, …."""
        return [self.get_submodule(f"scalar_mix_{number}") for number in range(self._num_mixes)]  # pyright: ignore[reportReturnType]

    @property
    def words(self) -> WordCache | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The cached words, or None."""
        return self._elmo_lstm.words

    @property
    def stateful(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether a batch starts from the state that the previous batch left."""
        return self._elmo_lstm._elmo_lstm.stateful

    @stateful.setter
    def stateful(self, value: bool) -> None:
        self._elmo_lstm._elmo_lstm.stateful = value

    def reset_state(self) -> None:
        """Forget the carried state."""
        self._elmo_lstm._elmo_lstm.reset_states()

    @property
    def output_dim(self) -> int:
        """Width of every representation (D)."""
        return self._elmo_lstm.get_output_dim()

    def get_output_dim(self) -> int:
        """Width of every representation (D)."""
        return self.output_dim

    def as_model(self) -> Model:
        """Return the biLM and the mixes as a model, as `elmo.Elmo.as_model` does."""
        model = super().as_model()
        model.mixes = [mix.plain() for mix in self.mixes]
        return model

    @classmethod
    def from_params(cls, params: Mapping[str, Any], vocab: object = None) -> Self:
        """Make the layer from a mapping of its arguments, as AllenNLP's settings have them.

        `vocab` is needed only for the key `namespace_to_cache` (see `from_params` of this module).
        """
        return from_params(cls, params, vocab)

    def _layers(self, inputs: Tensor | None, word_inputs: Tensor | None) -> tuple[Tensor, Tensor, Sequence[int]]:
        if word_inputs is not None:
            require_numbers(word_inputs)
        if word_inputs is None or not self._has_cached_vocab:
            inputs = require_batch(inputs)
            leading, numbers = inputs.shape[:-2], None
        else:
            leading, numbers = word_inputs.shape[:-1], word_inputs.flatten(0, -2)
        characters = inputs if inputs is None or inputs.dim() <= 3 else inputs.flatten(0, -3)
        output = self._elmo_lstm(characters, numbers)
        return torch.stack(list(output["activations"])), output["mask"].sum(dim=1), leading

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride] - torch passes all by position
        self, state_dict: dict[str, Tensor], prefix: str, *others: Any
    ) -> None:
        """Translate older names. Torch calls this for each module of a larger one, before its submodules."""
        for name in [name for name in state_dict if name.startswith(prefix)]:
            for new, tensor in _renamed(name.removeprefix(prefix), state_dict[name]):
                state_dict.pop(name, None)
                state_dict[prefix + new] = tensor
        # The parts of the biLM check the shapes of their own tensors, and raise ElmoError. Mixes are checked here.
        for name, parameter in self.named_parameters():
            if name.startswith("scalar_mix_") and (given := state_dict.get(prefix + name)) is not None:
                require_shape(f"state dict: '{prefix}{name}'", tuple(given.shape), tuple(parameter.shape))
        super()._load_from_state_dict(state_dict, prefix, *others)


class ElmoTokenEmbedder(nn.Module):
    """One ELMo representation, projected to `projection_dim` if that is given. `Elmo` explains the other arguments.

    Without both files the model is `allennlp:original`, downloaded on first use.
    """

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        options_file, weight_file = plain.or_default(options_file, weight_file)
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad,
            do_layer_norm,
            dropout,
            vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
        )
        width = self._elmo.get_output_dim()
        self._projection = nn.Linear(width, projection_dim) if projection_dim else None
        self.output_dim = projection_dim or width

    def get_output_dim(self) -> int:
        """Return the width of a vector."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """Return the vectors (…, T, D) of character ids (…, T, C). `Elmo.forward` explains `word_inputs`."""
        vectors = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)

    @classmethod
    def from_params(cls, params: Mapping[str, Any], vocab: Any = None) -> Self:
        """Make the embedder from a mapping of its arguments, as AllenNLP's settings have them.

        The key `namespace_to_cache` (AllenNLP 0.9) names those words of `vocab`, a vocabulary of AllenNLP, to cache.
        """
        return from_params(cls, params, vocab)


def from_params(kind: type[M], params: Any, vocab: Any) -> M:
    """Make an instance of `kind` from a mapping of its arguments.

    Args:
        kind: The class.
        params: Its arguments by name. The key `type`, by which AllenNLP finds the class, is ignored.
        vocab: A vocabulary of AllenNLP, needed only for the key `namespace_to_cache`. AllenNLP 0.9 passed it first, and
            the mapping second, which is understood, too.

    Raises:
        ElmoError: If an argument is unknown or missing.
    """
    name = f"{kind.__name__}.from_params"
    in_order: list[Any] = [params, vocab]
    if isinstance(vocab, Mapping) and not isinstance(params, Mapping):
        in_order.reverse()
    given, words = in_order
    if not isinstance(given, Mapping):
        raise ElmoError(f"{name}: params must be a mapping of arguments, not {type(params).__name__}")
    arguments = {key: value for key, value in given.items() if key != "type"}
    namespace = arguments.pop("namespace_to_cache", None)
    if namespace is not None:
        if words is None:
            raise ElmoError("`namespace_to_cache`: needs the vocabulary whose words it names; pass `vocab=...`")
        arguments["vocab_to_cache"] = list(words.get_token_to_index_vocabulary(namespace))
    known = inspect.signature(kind).parameters
    unknown = next((key for key in arguments if key not in known), None)
    if unknown is not None:
        raise ElmoError(f"{name}: unknown key {unknown!r}; known keys are {', '.join(known)}")
    missing = next((key for key, p in known.items() if p.default is p.empty and key not in arguments), None)
    if missing is not None:
        raise ElmoError(f"{name}: key {missing!r} is missing")
    return kind(**{key: _converted(name, key, value, known[key].default) for key, value in arguments.items()})


_BOOLEANS: dict[object, bool] = {"true": True, True: True, "false": False, False: False}
_KINDS = {
    "requires_grad": bool,
    "do_layer_norm": bool,
    "keep_sentence_boundaries": bool,
    "num_output_representations": int,
    "projection_dim": int,
    "dropout": float,
}
"""The types of the arguments that Jsonnet and environment variables may give as strings, as AllenNLP converts them."""


def _converted(name: str, key: str, value: object, default: object) -> object:
    """Return the value of a setting, converted from a string if its argument is a number or a bool."""
    kind = _KINDS.get(key)
    if kind is None or (value is None and default is None):
        return value
    if kind is bool and isinstance(value, str | int) and value in _BOOLEANS:
        return _BOOLEANS[value]
    if kind is not bool and isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # of "many", or infinity
            if (number := kind(value)) == value or isinstance(value, str):
                return number
    raise ElmoError(f"{name}: {key}: expected {kind.__name__}, found {shown(value)}")


def _renamed(name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    """Translate a tensor that an earlier version stored under `name`. Returns nothing for a name of another kind."""
    part, _, rest = name.partition(".")
    if part == "bilm":
        encoder, stacks = "_elmo_lstm._token_embedder.encoder.", "_elmo_lstm._elmo_lstm."
        if rest.startswith("char_encoder."):
            return [(rest.replace("char_encoder.", encoder, 1), tensor)]
        return [(stacks + rest.replace("_lstm.layers.", "_layer_", 1), tensor)]
    if part == "mixes":
        number, _, kind = rest.partition(".")
        mix = f"scalar_mix_{number}"
        if kind == "scores":
            return [(f"{mix}.scalar_parameters.{layer}", score.view(1)) for layer, score in enumerate(tensor)]
        return [(f"{mix}.{kind}", tensor.view(1))]
    return []
