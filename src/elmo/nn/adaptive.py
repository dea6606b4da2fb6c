"""The adaptive softmax: rare words are scored in clusters of few dimensions (Grave et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn import softmax as full

DIVISOR = 4
"""Each cluster of rarer words has this many times fewer dimensions than the one before, as published."""


class AdaptiveSoftmax(nn.AdaptiveLogSoftmaxWithLoss):
    """Probabilities of V words for a biLM output of width P; ids are sorted by falling count.

    The head scores the words below the first of `cutoffs` and one entry per cluster; cluster i scores the words from
    `cutoffs[i]` to the next cutoff, or to V, through a projection to P // 4 ** (i + 1). A word's probability is its
    cluster's times its own in there, so that they sum to one over the vocabulary.
    """

    def __init__(self, num_words: int, dim: int, cutoffs: Sequence[int]) -> None:
        super().__init__(dim, num_words, list(cutoffs), DIVISOR, head_bias=True)

    @property
    def num_words(self) -> int:
        """V."""
        return self.n_classes

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy: `hidden` (N, P), `targets` (N,). Returns a scalar, in nats.

        In float32 on a processor, even under autocast: there torch computes the logarithms of clusters in bfloat16,
        and can't put these into its result.
        """
        device = hidden.device.type
        with torch.autocast(device, enabled=device != "cpu" and torch.is_autocast_enabled(device)):
            return self(hidden.to(self.head.weight.dtype), targets).loss

    @torch.inference_mode()
    def log_probabilities(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Log probability of each target among all V words: `hidden` (N, P), `targets` (N,) to (N,), in nats.

        Works in blocks of rows, so that memory doesn't grow with N.
        """
        rows = max(1, full.BLOCK_NUMBERS // self.num_words)
        blocks = zip(hidden.split(rows), targets.split(rows), strict=True)
        return torch.cat([self(h, t).output for h, t in blocks])


AnySoftmax = full.Softmax | AdaptiveSoftmax
"""What gives words their probabilities: both have `num_words`, `loss`, `log_prob` and `log_probabilities`."""


def choose_cutoffs(num_words: int, dim: int, wanted: Sequence[int] | None = None) -> tuple[int, ...]:
    """The cutoffs `wanted`, or a tenth and half of the vocabulary.

    Raises ElmoError where they aren't rising numbers from 1 to V - 1, or leave a cluster without dimensions.
    """
    cutoffs = tuple(wanted or (max(1, num_words // 10), max(2, num_words // 2)))
    bounds = (0, *cutoffs, num_words)
    if list(bounds) != sorted(set(bounds)):
        raise ElmoError(
            f"training.adaptive_cutoffs: {list(cutoffs)} do not rise between 0 and the {num_words} words of the "
            "vocabulary"
        )
    if dim < DIVISOR ** len(cutoffs):
        raise ElmoError(
            f"training.adaptive_cutoffs: {len(cutoffs)} cutoffs need a projection_dim of {DIVISOR ** len(cutoffs)} "
            f"at least, not {dim}; name fewer"
        )
    return cutoffs
