"""The layer that task models use: a biLM and one or more scalar mixes of its layers (Peters et al. 2018, sec. 3.3)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, PADDING
from elmo.nn.bilm import BiLM, BiLMState, detach, first_rows, replace_rows
from elmo.nn.scalar_mix import ScalarMix


class ElmoModule(nn.Module):
    """A biLM with `num_output_representations` scalar mixes of its layers, from one run of the biLM.

    `requires_grad` says whether the biLM itself is trained. `stateful` carries the LSTM state from batch to batch,
    as the published toolkits do; without it the same sentence always has the same vectors.
    """

    def __init__(
        self,
        bilm: BiLM,
        num_output_representations: int,
        *,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        top_only: bool = False,
        stateful: bool = False,
    ) -> None:
        super().__init__()
        self.bilm = bilm.requires_grad_(requires_grad)
        self.dropout = dropout
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.stateful = stateful
        self.mixes = nn.ModuleList(
            ScalarMix(
                bilm.config.num_layers,
                top_only=top_only,
                layer_norm=do_layer_norm,
                initial_scores=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            for _ in range(num_output_representations)
        )
        self._state: BiLMState | None = None

    @property
    def output_dim(self) -> int:
        """Width of every representation."""
        return self.bilm.config.width

    def forward(self, characters: Tensor) -> dict[str, list[Tensor] | Tensor]:
        """Contextual vectors of a batch of character ids (from `batch_to_ids`).

        `characters` is (…, T, C), zeros at padding. Returns `elmo_representations`, a list of (…, T, D) tensors with
        zeros at padding, and `mask`, (…, T) bool. With `keep_sentence_boundaries`, T grows by two.
        """
        leading = characters.shape[:-2]
        characters, lengths = add_boundaries(characters.flatten(0, -3))
        layers = self._layers(characters, lengths)
        mask = _mask(lengths, layers.shape[2])
        representations = [mix(layers, mask) for mix in self.mixes]
        if not self.keep_sentence_boundaries:
            mask = _mask(lengths - 2, layers.shape[2] - 2)
            representations = [x[:, 1:-1] * mask.unsqueeze(-1) for x in representations]
        dropped = [F.dropout(x, self.dropout, self.training) for x in representations]
        return {
            "elmo_representations": [x.unflatten(0, leading) for x in dropped],
            "mask": mask.unflatten(0, leading),
        }

    def reset_state(self) -> None:
        """Forget the carried state."""
        self._state = None

    def penalty(self, strength: float) -> Tensor:
        """The L2 penalty of all mixes, to add to the task's loss (the paper's lambda)."""
        return torch.stack([mix.penalty(strength) for mix in self.mixes if isinstance(mix, ScalarMix)]).sum()

    def _layers(self, characters: Tensor, lengths: Tensor) -> Tensor:
        types, tokens = characters.flatten(0, 1).unique(dim=0, return_inverse=True)
        batch_size = len(characters)
        before = None if self._state is None else first_rows(self._state, batch_size)
        layers, after = self.bilm(types, tokens.view(characters.shape[:2]), lengths.cpu(), before)
        if self.stateful:
            self._state = replace_rows(self._state, detach(after))
        return layers


def add_boundaries(characters: Tensor) -> tuple[Tensor, Tensor]:
    """Put `<S>` and `</S>` around sentences.

    `characters` is (B, T, C), zeros at padding. Returns (B, T+2, C) and the new lengths (B,).
    """
    B = len(characters)
    lengths = (characters > 0).any(dim=2).sum(dim=1)
    bounded = F.pad(characters, (0, 0, 1, 1))
    bounded[:, 0] = _boundary_word(BEGIN_SENTENCE, characters)
    bounded[torch.arange(B, device=characters.device), lengths + 1] = _boundary_word(END_SENTENCE, characters)
    return bounded, lengths + 2


def _boundary_word(boundary: int, like: Tensor) -> Tensor:
    word = like.new_full(like.shape[-1:], PADDING + 1)
    word[:3] = like.new_tensor([BEGIN_WORD + 1, boundary + 1, END_WORD + 1])
    return word


def _mask(lengths: Tensor, longest: int) -> Tensor:
    """(B, `longest`) bool, true at tokens."""
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
