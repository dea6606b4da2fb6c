"""The softmax over the vocabulary that both directions share, whole or sampled."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from elmo.nn.cross_entropy import cross_entropy

BLOCK_NUMBERS = 1 << 25
"""Logits held at once by the full softmax, in numbers (128 MB of float32)."""


class Negatives(NamedTuple):
    """Words drawn as negatives for a whole batch: `ids` (K,), each once, and the number of draws that took."""

    ids: Tensor
    num_tries: int


class Softmax(nn.Module):
    """Scores of V words for a biLM output of width P: `weight` (V, P), `bias` (V,)."""

    def __init__(self, num_words: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_words, dim))
        nn.init.normal_(self.weight, std=1 / math.sqrt(dim))
        self.bias = nn.Parameter(torch.zeros(num_words))

    @property
    def num_words(self) -> int:
        """V."""
        return len(self.bias)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the full softmax: `hidden` (N, P), `targets` (N,). Returns a scalar, in nats."""
        target_scores = _target_scores(hidden, F.embedding(targets, self.weight), self.bias.index_select(0, targets))
        everything = torch.arange(len(self.bias), device=targets.device)
        return cross_entropy(hidden, target_scores, self.weight, self.bias, targets, everything)

    def sampled_loss(self, hidden: Tensor, targets: Tensor, negatives: Negatives) -> Tensor:
        """Mean cross-entropy of the target among the batch's negatives (Jean et al. 2015, eq. 10).

        `hidden` (N, P), `targets` (N,). Each score is lowered by the log of its word's expected count among the
        draws, and a negative that is the row's own target is left out; both as in TensorFlow's
        `sampled_softmax_loss`, which trained the published models. The weight's gradient is sparse: only the rows
        of targets and negatives. Returns a scalar, in nats.
        """
        words, where = torch.cat([targets, negatives.ids]).unique(return_inverse=True)
        weight = F.embedding(words, self.weight, sparse=True)
        bias = self.bias[words] - log_expected_count(words, len(self.bias), negatives.num_tries).to(hidden.dtype)
        # Look-ups by `embedding` and `index_select`, not by indexing, whose backward on CPU adds in any order.
        (target_weight, negative_weight), (target_bias, negative_bias) = (
            [F.embedding(rows, weight) for rows in where.split([len(targets), len(negatives.ids)])],
            [bias.index_select(0, rows) for rows in where.split([len(targets), len(negatives.ids)])],
        )
        target_scores = _target_scores(hidden, target_weight, target_bias)
        return cross_entropy(hidden, target_scores, negative_weight, negative_bias, targets, negatives.ids)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Log probability of every word under the full softmax: `hidden` (N, P) to (N, V), in nats."""
        return F.linear(hidden, self.weight, self.bias).log_softmax(dim=1)

    @torch.inference_mode()
    def log_probabilities(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Log probability of each target under the full softmax: `hidden` (N, P), `targets` (N,) to (N,), in nats.

        Works in blocks of rows, so that memory doesn't grow with N.
        """
        rows = max(1, BLOCK_NUMBERS // len(self.bias))
        blocks = zip(hidden.split(rows), targets.split(rows), strict=True)
        losses = [F.cross_entropy(F.linear(h, self.weight, self.bias), t, reduction="none") for h, t in blocks]
        return -torch.cat(losses)


def _target_scores(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The score of each row's own target: (N, P), (N, P), (N,) to (N,)."""
    return (hidden * weight).sum(dim=1) + bias


def log_expected_count(ids: Tensor, num_words: int, num_tries: int) -> Tensor:
    """Log of the chance that each of `ids` is among the distinct words of `num_tries` log-uniform draws, float64."""
    x = ids.double()
    probability = torch.log1p(1 / (x + 1)) / math.log(num_words + 1)
    return torch.log(-torch.expm1(num_tries * torch.log1p(-probability)))


def draw_negatives(num_words: int, num_negatives: int, generator: np.random.Generator) -> Negatives:
    """Draw distinct words from the log-uniform distribution over ids, P(id) ~ log(1 + 1 / (id + 1)).

    It fits a vocabulary sorted by falling count (Zipf's law). `num_negatives` must be below `num_words`.
    """
    if num_negatives >= num_words:
        raise ValueError(f"can't draw {num_negatives} distinct negatives from {num_words} words")
    seen = np.zeros(num_words, dtype=bool)
    kept: list[NDArray[np.int64]] = []
    num_kept = num_tries = 0
    for draws in _log_uniform_draws(num_words, num_negatives, generator):
        unique, first = np.unique(draws, return_index=True)
        new = np.sort(first[~seen[unique]])[: num_negatives - num_kept]
        kept.append(draws[new])
        seen[draws[new]] = True
        num_kept += len(new)
        if num_kept == num_negatives:
            num_tries += int(new[-1]) + 1 if len(new) else 0
            break
        num_tries += len(draws)
    return Negatives(torch.from_numpy(np.concatenate(kept)), num_tries)


def _log_uniform_draws(num_words: int, size: int, generator: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Endless blocks of draws with repetition, by the inverse of the distribution function."""
    while True:
        draws = np.exp(generator.random(size) * math.log(num_words + 1)).astype(np.int64) - 1
        yield np.minimum(draws, num_words - 1)
