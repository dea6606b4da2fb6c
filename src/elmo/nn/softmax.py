"""The softmax over the vocabulary that both directions share (Peters et al. 2018, sec. 3.1), and its losses.

For a biLM output h of width P, word w has the score W_w h + b_w, and the loss is the cross-entropy of the word that
follows (or precedes). A full softmax over the 793,471 words of the published training would be most of a step's work.
There are two ways around that:

- `Softmax.sampled_loss` compares each target with a few thousand words drawn for the whole batch, as published. The
  weights stay those of a full softmax, so that perplexity is computed over all words (`log_probabilities`).
- `AdaptiveSoftmax` has fewer dimensions for rare words (Grave et al. 2017), and its loss is exact.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from elmo.config import CLUSTER_DIVISOR
from elmo.errors import ElmoError
from elmo.nn.cross_entropy import cross_entropy

BLOCK_NUMBERS = 1 << 25
"""How many scores `log_probabilities` holds at a time (128 MB of float32)."""


class Negatives(NamedTuple):
    """The words drawn as negatives for a whole batch.

    Attributes:
        ids: The ids of K distinct words, (K,).
        num_tries: The number of draws, with repetition, that it took to find them.
    """

    ids: Tensor
    num_tries: int


class Softmax(nn.Module):
    """Probabilities of V words given a biLM output of width P.

    Args:
        num_words: The size of the vocabulary, V.
        dim: The width of the biLM's output, P.
    """

    def __init__(self, num_words: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_words, dim))
        nn.init.normal_(self.weight, std=1 / math.sqrt(dim))
        self.bias = nn.Parameter(torch.zeros(num_words))

    @property
    def num_words(self) -> int:
        """The size of the vocabulary, V."""
        return len(self.bias)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of `targets` (N,) given `hidden` (N, P) over all words, a scalar in nats."""
        target_scores = _target_scores(hidden, F.embedding(targets, self.weight), self.bias.index_select(0, targets))
        everything = torch.arange(len(self.bias), device=targets.device)
        return cross_entropy(hidden, target_scores, self.weight, self.bias, targets, everything)

    def sampled_loss(self, hidden: Tensor, targets: Tensor, negatives: Negatives) -> Tensor:
        """Compute the mean cross-entropy of each target against the batch's negatives.

        Each score is lowered by the log of its word's expected count among the draws, and a negative that is the row's
        own target is left out. Both are as in TensorFlow's `sampled_softmax_loss`, which trained the published models.
        The gradient of the weight is sparse: it has only the rows of targets and negatives.

        Args:
            hidden: The biLM's outputs, (N, P).
            targets: The ids of the words to predict, (N,).
            negatives: The negatives, which all rows share.

        Returns:
            A scalar, in nats.

        Source:
            Jean et al. 2015, eq. 10.
        """
        # Each word is looked up once, though it may be the target of several rows and a negative too. The sparse
        # gradient then has one row per word, not one per occurrence.
        words, where = torch.cat([targets, negatives.ids]).unique(return_inverse=True)
        weight = F.embedding(words, self.weight, sparse=True)
        bias = self.bias[words] - log_expected_count(words, len(self.bias), negatives.num_tries).to(hidden.dtype)
        # `embedding` and `index_select` instead of indexing: on a CPU the backward pass of indexing adds in any order,
        # so that a resumed run would not be bit-equal.
        own, drawn = where.split([len(targets), len(negatives.ids)])
        target_scores = _target_scores(hidden, F.embedding(own, weight), bias.index_select(0, own))
        negative_weight, negative_bias = F.embedding(drawn, weight), bias.index_select(0, drawn)
        return cross_entropy(hidden, target_scores, negative_weight, negative_bias, targets, negatives.ids)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return the log probabilities (N, V), in nats, of all words given `hidden` (N, P)."""
        return F.linear(hidden, self.weight, self.bias).log_softmax(dim=1)

    @torch.inference_mode()
    def log_probabilities(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the log probabilities (N,), in nats, of `targets` (N,) given `hidden` (N, P).

        They are computed in blocks of rows, so that the scores need the same memory however large N is.
        """
        rows = max(1, BLOCK_NUMBERS // len(self.bias))
        blocks = zip(hidden.split(rows), targets.split(rows), strict=True)
        losses = [F.cross_entropy(F.linear(h, self.weight, self.bias), t, reduction="none") for h, t in blocks]
        return -torch.cat(losses)


def _target_scores(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the score of each row's own target, (N,), given the targets' `weight` (N, P) and `bias` (N,)."""
    return (hidden * weight).sum(dim=1) + bias


def log_expected_count(ids: Tensor, num_words: int, num_tries: int) -> Tensor:
    """Return the log of the probability that each of `ids` is drawn at least once in `num_tries` log-uniform draws.

    The words of a sample are distinct, so this is also the log of a word's expected count in it. It is computed in
    float64.
    """
    # For rare words of a large vocabulary the probability is near 1e-7, where `1 - (1 - p) ** n` in float32 is mostly
    # rounding. `log1p` and `expm1` keep its digits.
    x = ids.double()
    probability = torch.log1p(1 / (x + 1)) / math.log(num_words + 1)
    return torch.log(-torch.expm1(num_tries * torch.log1p(-probability)))


def draw_negatives(num_words: int, num_negatives: int, generator: np.random.Generator) -> Negatives:
    """Draw distinct words from the log-uniform distribution over ids, P(id) ~ log(1 + 1 / (id + 1)).

    This distribution fits a vocabulary sorted by falling count (Zipf's law).

    Raises:
        ValueError: If `num_negatives` is not below `num_words`.
    """
    if num_negatives >= num_words:
        raise ValueError(f"cannot draw {num_negatives} distinct negatives from {num_words} words; draw fewer")
    seen = np.zeros(num_words, dtype=bool)
    kept: list[NDArray[np.int64]] = []
    num_kept = num_tries = 0
    while num_kept < num_negatives:
        # By inverting the distribution function. The exponential may round up to num_words + 1.
        draws = np.exp(generator.random(num_negatives) * math.log(num_words + 1)).astype(np.int64) - 1
        draws = np.minimum(draws, num_words - 1)
        # Blocks of draws give the same sample as single draws: of each word only its first occurrence counts, in the
        # order of drawing, until there are enough. `num_tries` then counts the draws up to the last one that was kept.
        unique, first = np.unique(draws, return_index=True)
        new = np.sort(first[~seen[unique]])[: num_negatives - num_kept]
        kept.append(draws[new])
        seen[draws[new]] = True
        num_kept += len(new)
        num_tries += int(new[-1]) + 1 if num_kept == num_negatives else len(draws)
    return Negatives(torch.from_numpy(np.concatenate(kept)), num_tries)


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
        super().__init__(dim, num_words, list(cutoffs), CLUSTER_DIVISOR, head_bias=True)

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
        rows = max(1, BLOCK_NUMBERS // self.num_words)
        blocks = zip(hidden.split(rows), targets.split(rows), strict=True)
        return torch.cat([self(h, t).output for h, t in blocks])


AnySoftmax = Softmax | AdaptiveSoftmax
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
    if dim < (least := CLUSTER_DIVISOR ** len(cutoffs)):
        raise ElmoError(
            f"training.adaptive_cutoffs: {len(cutoffs)} cutoffs need a projection_dim of {least} "
            f"at least, not {dim}; give fewer cutoffs"
        )
    return cutoffs
