"""The adaptive softmax, which scores rare words in clusters of few dimensions (Grave et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn import softmax as full

DIVISOR = 4
"""Each cluster has this many times fewer dimensions than the cluster of more frequent words before it, as published."""


class AdaptiveSoftmax(nn.AdaptiveLogSoftmaxWithLoss):
    """Probabilities of V words, whose ids are sorted by falling count, given a biLM output of width P.

    The head scores the words before the first cutoff and one entry per cluster. Cluster i scores the words from
    `cutoffs[i]` to the next cutoff (or to V) through a projection to P // 4 ** (i + 1) dimensions. The probability of
    a word in a cluster is that of the cluster times that of the word within it, so all words' probabilities sum to 1.

    Args:
        num_words: The size of the vocabulary, V.
        dim: The width of the biLM's output, P.
        cutoffs: The ids at which the clusters begin, rising, from 1 to V - 1 (see `choose_cutoffs`).

    Source:
        Grave et al. 2017, "Efficient softmax approximation for GPUs".
    """

    def __init__(self, num_words: int, dim: int, cutoffs: Sequence[int]) -> None:
        super().__init__(dim, num_words, list(cutoffs), DIVISOR, head_bias=True)

    @property
    def num_words(self) -> int:
        """The size of the vocabulary, V."""
        return self.n_classes

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of `targets` (N,) given `hidden` (N, P), a scalar in nats.

        On a CPU it is computed in float32 even under autocast, where torch computes the logarithms of clusters in
        bfloat16 but then cannot store them in its result.
        """
        device = hidden.device.type
        with torch.autocast(device, enabled=device != "cpu" and torch.is_autocast_enabled(device)):
            return self(hidden.to(self.head.weight.dtype), targets).loss

    @torch.inference_mode()
    def log_probabilities(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the log probabilities (N,), in nats, of `targets` (N,) given `hidden` (N, P).

        They are computed in blocks of rows, so that the scores need the same memory however large N is.
        """
        rows = max(1, full.BLOCK_NUMBERS // self.num_words)
        blocks = zip(hidden.split(rows), targets.split(rows), strict=True)
        return torch.cat([self(h, t).output for h, t in blocks])


AnySoftmax = full.Softmax | AdaptiveSoftmax
"""Either softmax: both have `num_words`, `loss`, `log_prob` and `log_probabilities`."""


def choose_cutoffs(num_words: int, dim: int, wanted: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the cutoffs `wanted`, or a tenth and half of the vocabulary by default.

    Raises:
        ElmoError: If the cutoffs are not rising numbers from 1 to V - 1, or `dim` (P) is too small for so many
            clusters.
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
            f"at least, not {dim}; give fewer cutoffs"
        )
    return cutoffs
