"""Provides the parts of AllenNLP's `Elmo`: `ScalarMix`, the char encoder, the LSTMs and `_ElmoBiLm`.

The modules, their results and the names in their state dicts are those of AllenNLP, but the parameters are those of
this package's biLM. Where AllenNLP's layout differs (the gates of the LSTMs, the highways), `state_dict` makes copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.formats.allennlp import encoder_renames, lstm_renames
from elmo.formats.elmo import ids_of_words, load_pair
from elmo.formats.model import Model, without_softmax
from elmo.formats.renames import Rename, published_names, rename_to_ours, rename_to_theirs, require_shape
from elmo.integrations.allennlp.boundaries import add_sentence_boundary_token_ids
from elmo.nn import scalar_mix
from elmo.nn.bilm import BiLM, BiLMState, detach, first_rows, replace_rows, run_directions, to_device
from elmo.nn.char_encoder import CharEncoder
from elmo.nn.elmo import WordCache, add_boundaries, boundary_words, mask_of, require_batch, require_padding_last
from elmo.nn.lstm import LSTMState, run_layers

ENCODER = encoder_renames("", "encoder.")
LSTM = lstm_renames("", "{direction}_layer_{{l}}")


class ScalarMix(scalar_mix.ScalarMix):
    """A weighted sum of tensors, times `gamma`. The weights are the softmax of `scalar_parameters`.

    Args:
        mixture_size: Number of tensors.
        do_layer_norm: First normalize each tensor by a single mean and variance of all its unmasked numbers.
        initial_scalar_parameters: One number per tensor, before the softmax. By default, all are 0.
        trainable: Whether `scalar_parameters` (`mixture_size` parameters of shape (1,)) and `gamma` (1,) are trained.

    Raises:
        ElmoError: If `initial_scalar_parameters` has another length.

    Source:
        Peters et al. 2018, eq. 1.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        nn.Module.__init__(self)  # not the parent's, which has a single parameter for all scores
        scores = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(scores) != mixture_size:
            raise ElmoError(
                f"`initial_scalar_parameters`: {len(scores)} for a mixture of {mixture_size} tensors; give one for each"
            )
        self.mixture_size, self.top_only, self.layer_norm = mixture_size, False, bool(do_layer_norm)
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(score)]), requires_grad=trainable) for score in scores
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    @property
    def scores(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The `scalar_parameters` as one tensor (`mixture_size`,)."""
        return torch.cat(list(self.scalar_parameters))

    @property
    def do_layer_norm(self) -> bool:
        """Whether tensors are normalized before they are mixed."""
        return self.layer_norm

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - the names are AllenNLP's
        self, tensors: Sequence[Tensor] | Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Mix tensors.

        Args:
            tensors: `mixture_size` tensors of the same shape (…, D).
            mask: (…) bool, needed only for layer norm. Padding has no part in the mean and variance, but is normalized.

        Returns:
            A tensor (…, D), of the wider type of the tensors and the parameters.

        Raises:
            ElmoError: If the number of tensors is wrong, or the mask for layer norm is missing.
        """
        if len(tensors) != self.mixture_size:
            raise ElmoError(f"`tensors`: {len(tensors)} were given to a mixture of {self.mixture_size}")
        layers, scores = scalar_mix.in_one_type(tensors, self.scores)
        if self.layer_norm:
            if mask is None:
                raise ElmoError("`mask`: layer norm needs one, to leave padding out of its mean and variance")
            flat = layers.flatten(1, -2).unsqueeze(1)  # as one long sentence: a mix takes tensors of any shape
            layers = scalar_mix.normalize_layers(flat, mask.flatten().unsqueeze(0).bool()).view_as(layers)
        return self.gamma * (layers[-1] if self.top_only else torch.tensordot(scores.softmax(0), layers, 1))

    def plain(self) -> scalar_mix.ScalarMix:
        """Return this mix as the class that the rest of the package uses."""
        mix = scalar_mix.ScalarMix(self.mixture_size, top_only=self.top_only, layer_norm=self.layer_norm)
        mix.start_from(self)
        return mix

    @torch.no_grad()
    def start_from(self, other: scalar_mix.ScalarMix) -> None:
        """Copy the parameters of another mix with the same number of layers."""
        for parameter, score in zip(self.scalar_parameters, other.scores, strict=True):
            parameter.fill_(score)
        self.gamma.fill_(float(other.gamma))


class _Renamed(nn.Module):
    """Base class of modules whose state dict has AllenNLP's names and layouts, both in storing and in loading.

    Where the layout differs, `state_dict` returns a copy, so changing it does not change the module.
    """

    @property
    def _renames(self) -> Sequence[Rename]:
        """The layout. It is no attribute of the module, because its functions can't be pickled."""
        raise NotImplementedError

    def state_dict(  # pyright: ignore[reportIncompatibleMethodOverride] - torch has three signatures for it
        self, *args: Any, prefix: str = "", **options: Any
    ) -> dict[str, Any]:
        state: dict[str, Any] = super().state_dict(*args, prefix=prefix, **options)
        if self._renames:
            own = {name.removeprefix(prefix): state.pop(name) for name in list(state) if name.startswith(prefix)}
            state.update((prefix + name, tensor) for name, tensor in rename_to_theirs(self._renames, own))
        return state

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride] - torch passes all by position
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        *others: Any,
    ) -> None:
        """Translate AllenNLP's names. Torch calls this for each module of a larger one, before its submodules."""
        parameters = dict(self.named_parameters())
        # A state that has any of our own names is not translated: earlier versions stored these.
        if self._renames and not any(prefix + name in state_dict for name in parameters):
            shapes: dict[str, tuple[int, ...]] = {}
            for their_name, names in published_names(self._renames, parameters).items():
                if prefix + their_name in state_dict:
                    shapes.update((name, tuple(parameters[name].shape)) for name in names)
                    continue
                missing_keys.append(prefix + their_name)
                # These parameters stay as they are. Torch, which would report our names of them, finds them here.
                state_dict.update((prefix + name, parameters[name]) for name in names)

            def take(name: str, shape: tuple[int, ...]) -> Tensor:
                require_shape(f"state dict: '{prefix}{name}'", tuple(state_dict[prefix + name].shape), shape)
                return state_dict.pop(prefix + name)

            ours = rename_to_ours(self._renames, shapes, take)
            state_dict.update((prefix + name, tensor) for name, tensor in ours.items())
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *others)


class ElmoCharacterEncoder(_Renamed):
    """AllenNLP's `_ElmoCharacterEncoder`, which computes a model's token vectors from character ids."""

    def __init__(self, options_file: str | Path, weight_file: str | Path, requires_grad: bool = False) -> None:
        self._hold(load_pair(options_file, weight_file).bilm.requires_grad_(requires_grad))

    @classmethod
    def of(cls, bilm: BiLM) -> Self:
        """Return the encoder of a biLM, with which it shares the weights."""
        encoder = cls.__new__(cls)  # the constructor has AllenNLP's arguments, which are files
        encoder._hold(bilm)
        return encoder

    def _hold(self, bilm: BiLM) -> None:
        super().__init__()
        self.encoder = bilm.token_encoder
        self.output_dim = bilm.config.lstm.projection_dim

    @property
    def _renames(self) -> Sequence[Rename]:
        return ENCODER if type(self.encoder) is CharEncoder else []

    def get_output_dim(self) -> int:
        """Return the width of a token vector (P)."""
        return self.output_dim

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Encode character ids (B, T, C), which are zero at padding.

        Returns:
            `token_embedding` (B, T+2, P), including `<S>` and `</S>`, and the bool `mask` (B, T+2). At padding,
            `token_embedding` has the vector of a word whose ids are all zero.

        Raises:
            ElmoError: If a sentence has padding before or between its tokens.
        """
        begin, end = boundary_words(self.encoder, inputs)
        is_token = (inputs > 0).any(dim=2)
        bounded, mask = add_sentence_boundary_token_ids(inputs, is_token, begin, end)
        require_padding_last(is_token)
        # Each distinct word is encoded only once.
        types, tokens = bounded.flatten(0, 1).unique(dim=0, return_inverse=True)
        return {"mask": mask, "token_embedding": F.embedding(tokens.view(bounded.shape[:2]), self.encoder(types))}


class ElmoLstm(_Renamed):
    """The LSTMs of a biLM under AllenNLP's names, `forward_layer_0`, `backward_layer_0`, …, with shared weights.

    A batch starts from the state that the previous batch left, unless `stateful` is false. `_states` holds that state
    for both directions side by side, hidden (L, B, D) and cell (L, B, 2H). It is None before the first batch.
    """

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self._config, lstm = bilm.config.lstm, bilm.config.lstm
        self.input_size = self.hidden_size = lstm.projection_dim
        self.cell_size, self.num_layers = lstm.dim, lstm.n_layers
        self._directions = bilm.config.directions
        for name, stack in zip(self._directions, bilm.directions, strict=True):
            for number, part in enumerate(stack.layers):
                self.add_module(f"{name}_layer_{number}", part)
        self.stateful = True
        self._states: tuple[Tensor, ...] | None = None

    @property
    def _renames(self) -> Sequence[Rename]:
        return LSTM

    @property
    def forward_layers(self) -> list[nn.Module]:
        """The layers of the forward direction, the lowest first."""
        return self._layers("forward")

    @property
    def backward_layers(self) -> list[nn.Module]:
        """The layers of the backward direction, the lowest first; none in a model of one direction."""
        return self._layers("backward") if "backward" in self._directions else []

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Run the LSTMs over a batch.

        Args:
            inputs: (B, T, P) token vectors, padded on the right.
            mask: (B, T) true at tokens.

        Returns:
            The outputs (L, B, T, D) of all layers, with zeros at padding.
        """
        # `run_directions` takes vectors of types and the type of each token. Here every token is a type of its own.
        tokens = torch.arange(mask.numel(), device=inputs.device).view(mask.shape)
        stacks = [
            lambda *given, name=name: run_layers(self._layers(name), self._config, *given) for name in self._directions
        ]
        carried = self._carried(inputs)
        before = self._zeros(inputs, len(inputs))
        if carried is not None and self.stateful:
            before = first_rows(carried, len(inputs))
        layers, after = run_directions(stacks, inputs.flatten(0, 1), tokens, mask.sum(dim=1).cpu(), before)
        state = replace_rows(carried, detach(after))
        self._states = tuple(torch.cat(parts, dim=2) for parts in zip(*state, strict=True))
        return layers[1:]

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Forget the carried state.

        Args:
            mask: (B,) bool; if given, only the rows where it is true are forgotten. B must be that of the state.

        Raises:
            ElmoError: If the mask has another number of rows than the state.
        """
        if mask is None or self._states is None:
            self._states = None
            return
        if len(mask) != (num_rows := self._states[0].shape[1]):
            raise ElmoError(f"`mask`: has {len(mask)} rows, but the state has {num_rows}")
        self._states = tuple(state.masked_fill(mask.bool().view(1, -1, 1), 0) for state in self._states)

    def _layers(self, direction: str) -> list[nn.Module]:
        return [self.get_submodule(f"{direction}_layer_{number}") for number in range(self.num_layers)]

    def _carried(self, inputs: Tensor) -> BiLMState | None:
        if self._states is None:
            return None
        halves = (state.chunk(len(self._directions), dim=2) for state in self._states)
        return to_device(tuple(LSTMState(*parts) for parts in zip(*halves, strict=True)), inputs.device, inputs.dtype)

    def _zeros(self, inputs: Tensor, num_rows: int) -> BiLMState:
        hidden, cell = (inputs.new_zeros(self.num_layers, num_rows, n) for n in (self.hidden_size, self.cell_size))
        return tuple(LSTMState(hidden, cell) for _ in self._directions)


class ElmoBiLm(nn.Module):
    """AllenNLP's `_ElmoBiLm`, which computes all layers of a batch, including boundaries, and carries the LSTM state.

    Args:
        options_file: The model's options.
        weight_file: The model's weights.
        requires_grad: Train the biLM.
        vocab_to_cache: Words whose token vectors are computed only once, if the biLM is not trained.

    Attributes:
        num_layers: Number of layers, including layer 0 (L+1).
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
    ) -> None:
        self._hold(load_pair(options_file, weight_file), requires_grad, vocab_to_cache)

    @classmethod
    def of(cls, model: Model, requires_grad: bool | None = None, vocab_to_cache: Sequence[str] | None = None) -> Self:
        """Return the module of a model, whose weights it shares. If `requires_grad` is None, it is left unchanged."""
        bilm = cls.__new__(cls)  # the constructor has AllenNLP's arguments, which are files
        bilm._hold(model, requires_grad, vocab_to_cache)
        return bilm

    def _hold(self, model: Model, requires_grad: bool | None, vocab_to_cache: Sequence[str] | None) -> None:
        super().__init__()
        bilm = model.bilm if requires_grad is None else model.bilm.requires_grad_(requires_grad)
        self.model = without_softmax(model)
        """The biLM in this package's form, with the lists by which it reads words, if any."""
        self._token_embedder = ElmoCharacterEncoder.of(bilm)
        self._elmo_lstm = ElmoLstm(bilm)
        self.num_layers = bilm.config.num_layers
        self.words: WordCache | None = None
        if vocab_to_cache is not None:
            self.create_cached_cnn_embeddings(vocab_to_cache)

    def get_output_dim(self) -> int:
        """Return the width of every layer (D)."""
        return self.model.config.width

    def forward(self, inputs: Tensor | None, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Compute all layers of a batch.

        Args:
            inputs: (B, T, C) character ids, zero at padding. It may be None if all of `word_inputs` are cached.
            word_inputs: (B, T) the same tokens by their numbers among the cached words, zero at padding. If all are
                cached, `inputs` is not read; if one is not, or no words are cached, only `inputs` is read.

        Returns:
            `activations`, a list of L+1 tensors (B, T+2, D) with zeros at padding, and the bool `mask` (B, T+2).
        """
        if self.words is not None:
            self.words.follow(self._token_embedder.encoder)
        if word_inputs is not None and self.words is not None and self.words.holds(word_inputs):
            numbers, lengths = add_boundaries(word_inputs.long(), word_inputs > 0, *self.words.boundaries)
            vectors = self.words.embed(numbers, self._token_embedder.encoder)
            mask = mask_of(lengths, numbers.shape[1])
        else:
            embedded = self._token_embedder(require_batch(inputs))
            vectors, mask = embedded["token_embedding"], embedded["mask"]
        first = torch.cat([vectors] * len(self.model.config.directions), dim=2) * mask.unsqueeze(2)
        return {"activations": [first, *self._elmo_lstm(vectors, mask)], "mask": mask}

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Cache the token vectors of words. `forward` then takes their positions in this list, where 0 is padding."""
        ids = ids_of_words(self.model, tokens)
        self.words = None if ids is None else WordCache(ids.to(next(self.parameters()).device))

    @property
    def _word_embedding(self) -> nn.Embedding | None:
        """The current cached vectors (V, P) with zeros in row 0, or None if no words are cached."""
        if self.words is None:
            return None
        vectors = self._cached()[:-2].clone()  # the last two are the boundaries
        vectors[0] = 0.0
        return nn.Embedding.from_pretrained(vectors, padding_idx=0)

    @property
    def _bos_embedding(self) -> Tensor | None:
        """The vector (P,) of `<S>`, or None if no words are cached."""
        return None if self.words is None else self._cached()[-2]

    @property
    def _eos_embedding(self) -> Tensor | None:
        """The vector (P,) of `</S>`, or None if no words are cached."""
        return None if self.words is None else self._cached()[-1]

    def _cached(self) -> Tensor:
        assert self.words is not None
        return self.words.vectors(self._token_embedder.encoder)

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride] - torch passes all by position
        self, state_dict: dict[str, Tensor], prefix: str, *others: Any
    ) -> None:
        state_dict.pop(f"{prefix}_word_embedding.weight", None)  # cached vectors, which are computed here instead
        super()._load_from_state_dict(state_dict, prefix, *others)
