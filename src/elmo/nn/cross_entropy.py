"""The cross-entropy of training: each row's target against many words, with its gradients made on the way."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo import _native
from elmo.nn.precision import add_product, as_array, product_dtype, uses_native

CACHED_NUMBERS, CACHED_NUMBERS_ON_GPU = 1 << 21, 1 << 26
"""Scores held at once, in numbers: 8 MB of float32, which fits the cache that cores share, or 256 MB."""


def cross_entropy(
    hidden: Tensor, target_scores: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, words: Tensor
) -> Tensor:
    """Mean cross-entropy of each row's target against the K `words` other than it, scored by `weight` and `bias`.

    `hidden` (N, P), `target_scores` (N,), `weight` (K, P), `bias` (K,), ids (N,) and (K,) to a scalar, in nats.
    """
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
        """As `cross_entropy`, summed."""
        losses, shares = torch.empty_like(target_scores), torch.empty_like(target_scores)
        d_hidden, d_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        own = _own_columns(targets, words)
        rounded = weight.to(product_dtype(hidden))
        d_bias = bias.new_zeros(torch.get_num_threads() if uses_native(bias, rounded.dtype) else 1, len(bias))
        size = max(1, (CACHED_NUMBERS if hidden.is_cpu else CACHED_NUMBERS_ON_GPU) // len(words))
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            h = hidden[rows].to(rounded.dtype)
            scores = h @ rounded.t()
            _to_probabilities(scores, bias, target_scores[rows], own[rows], losses[rows], shares[rows], d_bias)
            if any(ctx.needs_input_grad):  # a probability is the gradient of its score
                d_hidden[rows] = scores @ rounded
                add_product(d_weight, scores.t(), h)
        ctx.save_for_backward(d_hidden, shares - 1, d_weight, d_bias.sum(dim=0))
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """The gradients made in `forward`, scaled."""
        return *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors), None, None


def _to_probabilities(
    scores: Tensor, bias: Tensor, target_scores: Tensor, own: Tensor, losses: Tensor, shares: Tensor, d_bias: Tensor
) -> None:
    """Turn `scores` (N, K), products without the `bias`, into the words' probabilities, in place.

    Writes each row's loss, and its target's probability to `shares`; adds the words' to the first rows of `d_bias`,
    whose sum counts. A row's column `own` is its own target once more, and doesn't count; -1 for none.
    """
    if uses_native(bias, scores.dtype):
        _native.softmax(
            *(as_array(scores), as_array(bias), as_array(target_scores), as_array(own)),
            *(as_array(losses), as_array(shares), as_array(d_bias)),
        )
        return
    sums = scores + bias  # float32, where the scores are bfloat16
    rows = (own >= 0).nonzero().squeeze(1)
    sums[rows, own[rows]] = -math.inf
    highest = torch.maximum(sums.amax(dim=1), target_scores)
    sums.sub_(highest.unsqueeze(1)).exp_()
    share = (target_scores - highest).exp_()
    total = sums.sum(dim=1).add_(share)
    losses.copy_(total.log() + highest - target_scores)
    shares.copy_(share / total)
    sums.div_(total.unsqueeze(1))
    d_bias[0] += sums.sum(dim=0)
    scores.copy_(sums)


def _own_columns(targets: Tensor, words: Tensor) -> Tensor:
    """The column of `words` (K,) that is the row's own target, or -1: (N,)."""
    ordered, columns = words.sort()
    place = torch.searchsorted(ordered, targets).clamp(max=len(ordered) - 1)
    return torch.where(ordered[place] == targets, columns[place], -1)
