"""What AllenNLP's `Elmo` is made of, around a biLM of ours: `ScalarMix`, the character encoder, the LSTMs, `_ElmoBiLm`.

Modules, their results and the names in their state dicts are those of AllenNLP. The parameters themselves are ours:
where AllenNLP lays numbers out otherwise (the LSTMs' gates, the highways), `state_dict` makes copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import BEGIN_SENTENCE, END_SENTENCE
from elmo.errors import ElmoError
from elmo.formats import allennlp_layout
from elmo.formats.elmo import ids_of_words, load_pair
from elmo.formats.model import Model, without_softmax
from elmo.formats.renames import Rename, rename_to_ours, rename_to_theirs, require_shape
from elmo.integrations.allennlp.boundaries import add_sentence_boundary_token_ids
from elmo.nn import scalar_mix
from elmo.nn.bilm import BiLM, BiLMState, detach, first_rows, replace_rows, run_directions, to_device
from elmo.nn.char_encoder import CharEncoder
from elmo.nn.elmo import WordCache, add_boundaries, boundary_word, mask_of
from elmo.nn.lstm import LSTMState, run_layers
from elmo.nn.scalar_mix import normalize_layers

ENCODER = allennlp_layout.encoder("", "encoder.")
LSTM = allennlp_layout.lstm("", "{direction}_layer_{{l}}")


class ScalarMix(scalar_mix.ScalarMix):
    """gamma times the sum of tensors by weights s, a softmax of `scalar_parameters` (Peters et al. 2018, eq. 1).

    `scalar_parameters` holds `mixture_size` parameters of shape (1,), `gamma` is (1,); both are frozen unless
    `trainable`. With `do_layer_norm`, each tensor is first normalized by one mean and one variance of all its unmasked
    numbers.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        nn.Module.__init__(self)  # the parent's scores are one parameter
        scores = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(scores) != mixture_size:
            raise ElmoError(
                f"initial_scalar_parameters: {len(scores)} for a mixture of {mixture_size} tensors; give one for each"
            )
        self.mixture_size, self.top_only, self.layer_norm = mixture_size, False, bool(do_layer_norm)
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(score)]), requires_grad=trainable) for score in scores
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    @property
    def scores(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The `scalar_parameters` as one tensor (L,)."""
        return torch.cat(list(self.scalar_parameters))

    @property
    def do_layer_norm(self) -> bool:
        """Whether tensors are normalized first."""
        return self.layer_norm

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - the names are AllenNLP's
        self, tensors: Sequence[Tensor] | Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Mix `mixture_size` tensors of one shape (…, D) into one of that shape.

        `mask` (…) bool is needed for layer norm, which shifts padding too, and else not looked at.
        """
        if len(tensors) != self.mixture_size:
            raise ElmoError(f"tensors: {len(tensors)} were given to a mixture of {self.mixture_size}")
        layers = tensors if isinstance(tensors, Tensor) else torch.stack(list(tensors))
        if self.layer_norm:
            if mask is None:
                raise ElmoError("mask: layer norm needs one, which says what numbers its mean and variance are of")
            flat = layers.flatten(1, -2).unsqueeze(1)
            layers = normalize_layers(flat, mask.flatten().unsqueeze(0).bool()).view_as(layers)
        return self.gamma * (layers[-1] if self.top_only else torch.tensordot(self.scores.softmax(0), layers, 1))

    def plain(self) -> scalar_mix.ScalarMix:
        """The same mix as the rest of the package has it."""
        mix = scalar_mix.ScalarMix(self.mixture_size, top_only=self.top_only, layer_norm=self.layer_norm)
        mix.start_from(self)
        return mix

    @torch.no_grad()
    def start_from(self, other: scalar_mix.ScalarMix) -> None:
        """Take the numbers of another mix of as many layers."""
        for parameter, score in zip(self.scalar_parameters, other.scores, strict=True):
            parameter.fill_(score)
        self.gamma.fill_(float(other.gamma))


class _Renamed(nn.Module):
    """Modules of ours whose state dict, both ways, has the names and layouts of AllenNLP's, where `renames` has them.

    What `state_dict` gives under another layout is a copy: to change it doesn't change the module.
    """

    def __init__(self, renames: Sequence[Rename]) -> None:
        super().__init__()
        self._renames = renames

    def state_dict(  # pyright: ignore[reportIncompatibleMethodOverride] - torch has three signatures for it
        self, *args: Any, prefix: str = "", **options: Any
    ) -> dict[str, Any]:
        state: dict[str, Any] = super().state_dict(*args, prefix=prefix, **options)
        if self._renames:
            own = {name.removeprefix(prefix): state.pop(name) for name in list(state) if name.startswith(prefix)}
            state.update((prefix + name, tensor) for name, tensor in rename_to_theirs(self._renames, own))
        return state

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride] - torch passes all by position
        self, state_dict: dict[str, Tensor], prefix: str, *others: Any
    ) -> None:
        """Torch calls it for each module within a larger one, before the modules inside."""
        shapes = {name: parameter.shape for name, parameter in self.named_parameters()}
        given = {name for name in state_dict if name.startswith(prefix)}
        if self._renames and given and not given & {prefix + name for name in shapes}:

            def take(name: str, shape: tuple[int, ...]) -> Tensor:
                where = f"state dict: '{prefix}{name}'"
                if prefix + name not in state_dict:
                    raise ElmoError(f"{where} is missing; is this the state of another model?")
                require_shape(where, tuple(state_dict[prefix + name].shape), shape)
                return state_dict.pop(prefix + name)

            ours = rename_to_ours(self._renames, shapes, take)
            state_dict.update((prefix + name, tensor) for name, tensor in ours.items())
        super()._load_from_state_dict(state_dict, prefix, *others)


class ElmoCharacterEncoder(_Renamed):
    """The token vectors of a model, from characters: AllenNLP's `_ElmoCharacterEncoder`."""

    def __init__(self, options_file: str | Path, weight_file: str | Path, requires_grad: bool = False) -> None:
        self._hold(load_pair(options_file, weight_file).bilm.requires_grad_(requires_grad))

    @classmethod
    def of(cls, bilm: BiLM) -> Self:
        """That of a biLM, which is shared."""
        encoder = cls.__new__(cls)
        encoder._hold(bilm)
        return encoder

    def _hold(self, bilm: BiLM) -> None:
        super().__init__(ENCODER if type(bilm.token_encoder) is CharEncoder else [])
        self.encoder = bilm.token_encoder
        self.output_dim = bilm.config.lstm.projection_dim

    def get_output_dim(self) -> int:
        """Width of a token vector (P)."""
        return self.output_dim

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Encode characters (B, T, C), zeros at padding.

        Returns `token_embedding` (B, T+2, P), of `<S>` and `</S>` too, and `mask` (B, T+2) bool. Padding has the vector
        of a word of zeros.
        """
        begin, end = (boundary_word(boundary, inputs) for boundary in (BEGIN_SENTENCE, END_SENTENCE))
        bounded, mask = add_sentence_boundary_token_ids(inputs, (inputs > 0).any(dim=2), begin, end)
        types, tokens = bounded.flatten(0, 1).unique(dim=0, return_inverse=True)
        return {"mask": mask, "token_embedding": F.embedding(tokens.view(bounded.shape[:2]), self.encoder(types))}


class ElmoLstm(_Renamed):
    """The LSTMs of a biLM, which is shared, under AllenNLP's names: `forward_layer_0`, `backward_layer_0`, ….

    A batch starts from the state that the one before left, unless `stateful` is false. `_states` holds it, None before
    the first batch: hidden (L, B, D) and cell (L, B, 2H), both directions side by side.
    """

    def __init__(self, bilm: BiLM) -> None:
        super().__init__(LSTM)
        self._config, lstm = bilm.config.lstm, bilm.config.lstm
        self.input_size = self.hidden_size = lstm.projection_dim
        self.cell_size, self.num_layers = lstm.dim, lstm.n_layers
        self._directions = ["forward", "backward"][: len(bilm.directions)]
        for name, stack in zip(self._directions, bilm.directions, strict=True):
            for number, part in enumerate(stack.layers):
                self.add_module(f"{name}_layer_{number}", part)
        self.stateful = True
        self._states: tuple[Tensor, ...] | None = None

    @property
    def forward_layers(self) -> list[nn.Module]:
        """The layers of the forward direction, the lowest first."""
        return self._layers("forward")

    @property
    def backward_layers(self) -> list[nn.Module]:
        """The layers of the backward direction, the lowest first; none in a model of one direction."""
        return self._layers("backward") if "backward" in self._directions else []

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """The outputs of all layers, (L, B, T, D), zeros at padding, for token vectors (B, T, P) and their mask (B, T).

        Sentences are padded on the right.
        """
        tokens = torch.arange(mask.numel(), device=inputs.device).view(mask.shape)
        stacks = [
            lambda *given, name=name: run_layers(self._layers(name), self._config, *given) for name in self._directions
        ]
        carried = self._carried(inputs.device)
        before = self._zeros(inputs, len(inputs))
        if carried is not None and self.stateful:
            before = first_rows(carried, len(inputs))
        layers, after = run_directions(stacks, inputs.flatten(0, 1), tokens, mask.sum(dim=1).cpu(), before)
        state = replace_rows(carried, detach(after))
        self._states = tuple(torch.cat(parts, dim=2) for parts in zip(*state, strict=True))
        return layers[1:]

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Forget the carried state, of the rows alone where `mask` (B,) bool is true if there is one."""
        if mask is None or self._states is None:
            self._states = None
            return
        if len(mask) != (num_rows := self._states[0].shape[1]):
            raise ElmoError(f"mask: of {len(mask)} rows, but the state is of {num_rows}")
        self._states = tuple(state.masked_fill(mask.bool().view(1, -1, 1), 0) for state in self._states)

    def _layers(self, direction: str) -> list[nn.Module]:
        return [self.get_submodule(f"{direction}_layer_{number}") for number in range(self.num_layers)]

    def _carried(self, device: torch.device) -> BiLMState | None:
        if self._states is None:
            return None
        halves = (state.chunk(len(self._directions), dim=2) for state in self._states)
        return to_device(tuple(LSTMState(*parts) for parts in zip(*halves, strict=True)), device)

    def _zeros(self, inputs: Tensor, num_rows: int) -> BiLMState:
        hidden, cell = (inputs.new_zeros(self.num_layers, num_rows, n) for n in (self.hidden_size, self.cell_size))
        return tuple(LSTMState(hidden, cell) for _ in self._directions)


class ElmoBiLm(nn.Module):
    """A biLM as AllenNLP's `_ElmoBiLm`: all layers of a batch, boundaries included, with the state carried on.

    `vocab_to_cache` are words whose token vectors are computed but once, if the biLM isn't trained (`requires_grad`).
    `num_layers` counts layer 0 too; `_token_embedder` and `_elmo_lstm` are the parts.
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
        """That of a model, whose biLM is shared; `requires_grad` None leaves that as it is."""
        bilm = cls.__new__(cls)
        bilm._hold(model, requires_grad, vocab_to_cache)
        return bilm

    def _hold(self, model: Model, requires_grad: bool | None, vocab_to_cache: Sequence[str] | None) -> None:
        super().__init__()
        bilm = model.bilm if requires_grad is None else model.bilm.requires_grad_(requires_grad)
        self.model = without_softmax(model)
        """The biLM as it is here, with what it reads words by."""
        self._token_embedder = ElmoCharacterEncoder.of(bilm)
        self._elmo_lstm = ElmoLstm(bilm)
        self.num_layers = bilm.config.num_layers
        self.words: WordCache | None = None
        if vocab_to_cache:
            self.create_cached_cnn_embeddings(vocab_to_cache)

    def get_output_dim(self) -> int:
        """Width of every layer (D)."""
        return self.model.config.width

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """All layers of characters (B, T, C), zeros at padding.

        `word_inputs` (B, T), zeros at padding, may tell the same tokens by their numbers among the cached words, and
        `inputs` isn't looked at then; if a number is none of theirs, or there are no cached words, only `inputs` is.

        Returns `activations`, a list of L+1 tensors (B, T+2, D), zeros at padding, and `mask` (B, T+2) bool.
        """
        if word_inputs is not None and self.words is not None and self.words.holds(word_inputs):
            numbers, lengths = add_boundaries(word_inputs.long(), word_inputs > 0, *self.words.boundaries)
            vectors = self.words.embed(numbers, self._token_embedder.encoder)
            mask = mask_of(lengths, numbers.shape[1])
        else:
            embedded = self._token_embedder(inputs)
            vectors, mask = embedded["token_embedding"], embedded["mask"]
        num_directions = 2 if self.model.config.bidirectional else 1
        first = torch.cat([vectors] * num_directions, dim=2) * mask.unsqueeze(2)
        return {"activations": [first, *self._elmo_lstm(vectors, mask)], "mask": mask}

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Cache the token vectors of words: `forward` then takes their numbers in this list, of which 0 is padding."""
        device = next(self.parameters()).device
        self.words = WordCache(ids_of_words(self.model, tokens).to(device))

    @property
    def _word_embedding(self) -> nn.Embedding | None:
        """The cached vectors (V, P) as they are now, zeros in row 0; None where there are none."""
        if self.words is None:
            return None
        vectors = self._cached()[:-2].clone()
        vectors[0] = 0.0
        return nn.Embedding.from_pretrained(vectors, padding_idx=0)

    @property
    def _bos_embedding(self) -> Tensor | None:
        """The vector (P,) of `<S>`, where words are cached."""
        return None if self.words is None else self._cached()[-2]

    @property
    def _eos_embedding(self) -> Tensor | None:
        """The vector (P,) of `</S>`, where words are cached."""
        return None if self.words is None else self._cached()[-1]

    def _cached(self) -> Tensor:
        assert self.words is not None
        return self.words.vectors(self._token_embedder.encoder)

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride] - torch passes all by position
        self, state_dict: dict[str, Tensor], prefix: str, *others: Any
    ) -> None:
        state_dict.pop(f"{prefix}_word_embedding.weight", None)  # cached vectors, which we make ourselves
        super()._load_from_state_dict(state_dict, prefix, *others)
