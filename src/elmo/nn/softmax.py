"""The softmax over the vocabulary that both directions share, whole or sampled."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo.nn.precision import multiply, product_dtype

BLOCK_NUMBERS = 1 << 25
"""Logits held at once by the full softmax, in numbers (128 MB of float32)."""


CACHED_NUMBERS, CACHED_NUMBERS_ON_GPU = 1 << 21, 1 << 26
"""Scores held at once in training, in numbers: 8 MB of float32, which fits the cache that cores share, or 256 MB."""


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
        return _cross_entropy(hidden, target_scores, self.weight, self.bias, targets, everything)

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
        return _cross_entropy(hidden, target_scores, negative_weight, negative_bias, targets, negatives.ids)

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


def _cross_entropy(
    hidden: Tensor, target_scores: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, words: Tensor
) -> Tensor:
    """Mean cross-entropy of each row's target against the K `words` other than it, scored by `weight` and `bias`."""
    return _CrossEntropy.apply(hidden, target_scores, weight, bias, targets, words) / len(targets)  # pyright: ignore[reportReturnType]


class _CrossEntropy(torch.autograd.Function):
    """The summed cross-entropy, whose (N, K) scores exist only a block of rows at a time.

    A block stays in the processor's cache from its product to its gradients, which are made at once: the loss is a
    sum, so that what comes from above can only scale them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        target_scores: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        words: Tensor,
    ) -> Tensor:
        """`hidden` (N, P), `target_scores` (N,), `weight` (K, P), `bias` (K,), ids (N,) and (K,) to a scalar."""
        loss = hidden.new_zeros(())
        d_hidden, d_target_scores = torch.empty_like(hidden), torch.empty_like(target_scores)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        ordered, columns = words.sort()
        rounded = weight.to(product_dtype(hidden))
        size = max(1, (CACHED_NUMBERS if hidden.is_cpu else CACHED_NUMBERS_ON_GPU) // len(words))
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            h, target = hidden[rows], target_scores[rows]
            scores = multiply(h, rounded.t(), onto=bias)
            scores[_own_target(targets[rows], ordered, columns)] = -math.inf
            highest = torch.maximum(scores.amax(dim=1), target)
            scores.sub_(highest.unsqueeze(1)).exp_()
            target_share = (target - highest).exp_()
            total = scores.sum(dim=1).add_(target_share)
            loss += (total.log() + highest - target).sum()
            if any(ctx.needs_input_grad):
                scores.div_(total.unsqueeze(1))  # now each word's probability, which is the gradient of its score
                multiply(scores, rounded, out=d_hidden[rows])
                multiply(scores.t(), h.to(rounded.dtype), onto=d_weight, out=d_weight)
                d_bias += scores.sum(dim=0)
                d_target_scores[rows] = target_share / total - 1
        ctx.save_for_backward(d_hidden, d_target_scores, d_weight, d_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """The gradients made in `forward`, scaled."""
        return *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors), None, None


def _own_target(targets: Tensor, ordered: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the scores where the word is the row's own target; words are `ordered`, at `columns`."""
    place = torch.searchsorted(ordered, targets).clamp(max=len(ordered) - 1)
    rows = (ordered[place] == targets).nonzero().squeeze(1)
    return rows, columns[place[rows]]


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
