"""ELMo inside a task model: the layers of a biLM, and a scalar mix for each place that they go to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from elmo.embed.embedder import Embedder
from elmo.formats.model import Model, ToIds, require_warm_state
from elmo.nn.bilm import BiLM, BiLMState, repeat_row, to_device
from elmo.nn.precision import own_products
from elmo.nn.scalar_mix import ScalarMix
from elmo.tasks.common.batches import cut, lengths_of, pad_ids, padding_mask
from elmo.tasks.elmo.cache import LiveLayers, as_read, reads_lower_case
from elmo.tasks.recipe import ElmoConfig
from elmo.text.characters import number_types

Sentences = Sequence[Sequence[str]]
FrozenLayers = Callable[[Sentences], Sequence[NDArray[np.floating]]]
"""The source of the layers of a biLM that is not trained: it returns an array (L+1, T, D) for each sentence."""

SENTENCES_AT_ONCE = 16
"""The number of sentences of a text that are padded together.

If all were, a single sentence ten times as long as the others would turn nearly everything into padding.
"""


class ElmoVectors(NamedTuple):
    """The vectors that go to the input and to the output of a task's RNN: (B, T, D) each, zeros at padding.

    D is 0 at a place that ELMo does not go to (see `ElmoConfig.at`).
    """

    input: Tensor
    output: Tensor


class TrainedLayers(nn.Module):
    """The layers of a biLM that is trained along with the task.

    Args:
        bilm: The biLM.
        to_ids: Turns words into what the biLM reads.
        state: The LSTM state that every sentence starts from, with one row. None starts from zeros.
    """

    def __init__(self, bilm: BiLM, to_ids: ToIds, state: BiLMState | None = None) -> None:
        super().__init__()
        self.bilm = bilm.requires_grad_(True)
        self._to_ids, self._state = to_ids, state

    def forward(self, sentences: Sentences) -> Tensor:
        """Return the layers (L+1, B, T, D), zeros at padding."""
        device = self.bilm.token_encoder.embedding.weight.device
        types, rows = number_types(sentences)
        lengths = lengths_of(rows)
        state = None if self._state is None else to_device(repeat_row(self._state, len(rows)), device)
        # Unlike an embedder's, these layers have the sentence boundaries at both ends, which the task must not see.
        layers, _ = self.bilm(torch.from_numpy(self._to_ids(types)).to(device), pad_ids(rows, device), lengths, state)
        return layers[:, :, 1:-1] * padding_mask(lengths - 2, device).unsqueeze(2)


class ElmoInput(nn.Module):
    """Turns a batch of sentences into ELMo vectors: layers, mixed, with dropout.

    Mixes see tokens only, without sentence boundaries, wherever the layers come from. This makes a difference only with
    layer norm.

    In prediction, the layers of a sentence that occurs several times in a batch are computed once. Frozen layers are
    also kept from the two batches before, for instance those of a paragraph that many questions are about: with
    `elmo.vectors=live`, the biLM would otherwise run once for each question.

    Args:
        bilm: The model, which has L+1 layers of width D. None without ELMo: vectors then have a width of 0.
        config: How the task uses ELMo.
        layers: The source of the layers (see `make_elmo_layers`). None without ELMo.
    """

    def __init__(self, bilm: Model | None, config: ElmoConfig, layers: FrozenLayers | TrainedLayers | None) -> None:
        super().__init__()
        self.config, self.layers = config, layers
        self._lowercase = bilm is not None and reads_lower_case(config, bilm.text)
        self._width = 0 if bilm is None else bilm.config.width
        # Only the places that ELMo goes to have a mix. A baseline has none, so it has no unused weights.
        places = ("input", "output") if config.at == "both" else (config.at,)
        self.mixes = nn.ModuleDict(
            {
                place: ScalarMix(
                    bilm.config.num_layers,
                    top_only=config.layers == "top",
                    layer_norm=config.layer_norm,
                    scaled=config.gamma,
                )
                for place in places
                if bilm is not None
            }
        )
        # An empty tensor that says which device the module is on: without ELMo, it has no parameter that would.
        self.register_buffer("_here", torch.zeros(0), persistent=False)
        # The layers of the sentences of the last two batches. A tuple, so that threads can predict at the same time.
        self._latest: tuple[dict[tuple[str, ...], NDArray[np.floating]], ...] = ()

    def read_from(self, layers: FrozenLayers | TrainedLayers | None) -> None:
        """Exchange the source of the layers for another one of the same biLM, and keep nothing of the old one."""
        self.layers = layers
        self._latest = ()

    @property
    def input_width(self) -> int:
        """The width of the vectors for the task's input."""
        return self._width if "input" in self.mixes else 0

    @property
    def output_width(self) -> int:
        """The width of the vectors for the task's output."""
        return self._width if "output" in self.mixes else 0

    def forward(self, sentences: Sentences) -> ElmoVectors:
        """Return the vectors of B sentences; T is the length of the longest.

        Tokens of CoNLL-U may contain spaces. The biLM reads `_` in their place, as it did in its training text.
        """
        device = self.get_buffer("_here").device
        mask = padding_mask(lengths_of(sentences), device)
        layers = self._run(list(as_read(sentences, lowercase=self._lowercase)), mask)
        return ElmoVectors(*(self._mix(place, layers, mask) for place in ("input", "output")))

    def of_tokens(self, sentences: Sentences) -> ElmoVectors:
        """Return the vectors of all tokens of many sentences, one after the other: (N, D) for each place.

        Sentences of similar length are padded together, a few at a time, so that little is computed for padding.

        Args:
            sentences: The sentences, at least one.
        """
        by_length = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        parts: list[Tensor] = []
        for group in cut(by_length, SENTENCES_AT_ONCE):
            batch = [sentences[number] for number in group]
            vectors = torch.cat(self(batch), dim=2)
            parts.append(vectors[padding_mask(lengths_of(batch), vectors.device)])
        # The rows are now in order of length. `tokens` says which token each belongs to, counted over all sentences.
        starts = [0, *accumulate(map(len, sentences))]
        tokens = torch.tensor([token for number in by_length for token in range(starts[number], starts[number + 1])])
        rows = tokens.argsort().to(parts[0].device)
        return ElmoVectors(*torch.cat(parts)[rows].split([self.input_width, self.output_width], dim=1))

    def penalty(self) -> Tensor:
        """Return what the weights of the mixes add to the loss, a scalar."""
        strength = self.config.penalty
        # Without a mix, the sum of nothing: a zero on the right device.
        terms = [mix.penalty(strength) for mix in self.mixes.values() if isinstance(mix, ScalarMix)]
        return torch.stack(terms).sum() if terms else self.get_buffer("_here").sum()

    def _run(self, sentences: Sequence[tuple[str, ...]], mask: Tensor) -> Tensor:
        """Return the layers (L+1, B, T, D) of the sentences, zeros at padding."""
        if self.layers is None:
            return mask.new_zeros(0, *mask.shape, 0, dtype=torch.float32)
        if isinstance(self.layers, TrainedLayers):
            rows = {sentence: row for row, sentence in enumerate(dict.fromkeys(sentences))}
            if self.training or len(rows) == len(sentences):
                return self.layers(sentences)
            return self.layers(list(rows))[:, [rows[sentence] for sentence in sentences]]
        # A task may train with bf16 products, but a biLM that is not trained gives the same vectors in training and in
        # prediction, and the same as the cache.
        with own_products(None):
            layers = self.layers(sentences) if self.training else self._repeated(sentences, self.layers)
        return pad_layers(layers, mask.shape[1]).to(mask.device)

    def _repeated(self, sentences: Sequence[tuple[str, ...]], layers: FrozenLayers) -> list[NDArray[np.floating]]:
        """Return the layers of each sentence, computing only those that are not known yet."""
        known = {key: array for batch in self._latest for key, array in batch.items()}
        new = [key for key in dict.fromkeys(sentences) if key not in known]
        known.update(zip(new, layers(new), strict=True))
        self._latest = (*self._latest[-1:], {key: known[key] for key in sentences})
        return [known[key] for key in sentences]

    def _mix(self, place: str, layers: Tensor, mask: Tensor) -> Tensor:
        if place not in self.mixes:
            return layers.new_zeros(*mask.shape, 0)
        # Equation 1 of the paper, then dropout (sec. 3.3).
        return F.dropout(self.mixes[place](layers, mask), self.config.dropout, self.training)


def pad_layers(arrays: Sequence[NDArray[np.floating]], longest: int) -> Tensor:
    """Put arrays (L+1, T, D) of sentences into one float32 tensor (L+1, B, `longest`, D), with zeros at padding."""
    # Put together on the CPU and moved as one tensor. A cache may be in float16; from here on all is float32.
    num_layers, _, width = arrays[0].shape
    padded = np.zeros((num_layers, len(arrays), longest, width), np.float32)
    for row, array in enumerate(arrays):
        padded[:, row, : array.shape[1]] = array
    return torch.from_numpy(padded)


def make_elmo_layers(
    bilm: Model | None, config: ElmoConfig, device: torch.device | str
) -> LiveLayers | TrainedLayers | None:
    """Make the source of a task's ELMo layers, without a cache.

    A biLM that will be trained is a copy of the one in `bilm`.
    """
    if bilm is None:
        return None
    state = require_warm_state(bilm.warm_state) if config.state == "warm" else None
    if config.vectors == "trained":
        return TrainedLayers(deepcopy(bilm.bilm), bilm.to_ids, state)
    return LiveLayers(Embedder(bilm, device=device), config)
