"""The cross-entropy of training, each target against many words, which computes its gradients along the way.

Row n has the score s of its own target and the scores W h + b of K words, without its target if that is among them:

    loss_n = log(exp(s_n) + sum_k exp(W_k h_n + b_k)) - s_n

The full softmax passes all words, the sampled one those that were drawn (`elmo.nn.softmax`). The score of the target is
an argument of its own, because in a sample it must count once whether or not it was drawn (an accidental hit).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo._native import training_kernels
from elmo.nn.precision import add_product, as_arrays, product_dtype, uses_native

CACHED_NUMBERS, CACHED_NUMBERS_ON_GPU = 1 << 20, 1 << 26
"""How many scores are held at a time: on a CPU 4 MB of float32, which leaves room in the shared cache for the weights
and for the other direction's scores; on a GPU 256 MB."""

FEWEST_ROWS = 128
"""If fewer rows than this fit into a block, it may hold up to twice as many scores: each block reads all weights."""


def cross_entropy(
    hidden: Tensor, target_scores: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, words: Tensor
) -> Tensor:
    """Compute the mean cross-entropy of each row's target against K words.

    Args:
        hidden: The outputs of the biLM, (N, P).
        target_scores: The score of each row's own target, (N,).
        weight: The weights of the words, (K, P).
        bias: The biases of the words, (K,).
        targets: The ids of the targets, (N,).
        words: The ids of the words, (K,), each at most once. In a row whose own target is among them, that word is left
            out.

    Returns:
        A scalar, in nats.
    """
    return _CrossEntropy.apply(hidden, target_scores, weight, bias, targets, words) / len(targets)  # pyright: ignore[reportReturnType]


class _CrossEntropy(torch.autograd.Function):
    """The summed cross-entropy, which holds its (N, K) scores for only one block of rows at a time.

    On a CPU a block stays in the cache from its product to its gradients. These are computed already in the forward
    pass, because the loss is a sum, so the gradient that the backward pass receives can only scale them.
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
        """Compute the sum of what `cross_entropy` averages, and the gradients."""
        losses, target_probs = torch.empty_like(target_scores), torch.empty_like(target_scores)
        d_hidden, d_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        own = _own_columns(targets, words)
        rounded = weight.to(product_dtype(hidden))
        # A row for each thread of the native kernel, so that no two threads add to the same number.
        d_bias = bias.new_zeros(torch.get_num_threads() if uses_native(bias, rounded.dtype) else 1, len(bias))
        fitting = (CACHED_NUMBERS if hidden.is_cpu else CACHED_NUMBERS_ON_GPU) // len(words)
        size = max(1, fitting, min(FEWEST_ROWS, 2 * fitting))
        # One block of memory for all rows: fresh memory for each would cost page faults.
        room = rounded.new_empty(min(size, len(hidden)), len(words))
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            h = hidden[rows].to(rounded.dtype)
            scores = torch.mm(h, rounded.t(), out=room[: len(h)])
            _to_probabilities(scores, bias, target_scores[rows], own[rows], losses[rows], target_probs[rows], d_bias)
            # The derivative of the loss by a word's score is the word's probability.
            if any(ctx.needs_input_grad):
                d_hidden[rows] = scores @ rounded
                add_product(d_weight, scores.t(), h)
        # The derivative by the target's own score is lower by 1, since the loss also has the negative of that score.
        ctx.save_for_backward(d_hidden, target_probs - 1, d_weight, d_bias.sum(dim=0))
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Scale the gradients that `forward` computed."""
        return *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors), None, None


def _to_probabilities(
    scores: Tensor,
    bias: Tensor,
    target_scores: Tensor,
    own: Tensor,
    losses: Tensor,
    target_probs: Tensor,
    d_bias: Tensor,
) -> None:
    """Turn scores into probabilities, in place.

    Args:
        scores: The products of hidden states and weights, without the bias, (N, K). They become probabilities.
        bias: The biases of the words, (K,).
        target_scores: The score of each row's target, (N,).
        own: The column of each row that is its own target, which is left out, or -1, (N,).
        losses: Where to write each row's loss, (N,).
        target_probs: Where to write the probability of each row's target, (N,).
        d_bias: Where to add the probabilities of each word, (threads, K). Only the sum of the rows is meaningful.
    """
    if uses_native(bias, scores.dtype):
        arrays = as_arrays(
            products=scores,
            bias=bias,
            target_scores=target_scores,
            own=own,
            losses=losses,
            target_probs=target_probs,
            d_bias=d_bias,
        )
        training_kernels.softmax(**arrays)
        return
    # float32 from here on, even if the scores are bfloat16: a sum of thousands of probabilities of 8 bits would be
    # far off. The highest score is subtracted first, so that no exponential overflows and at least one is 1.
    sums = scores + bias
    rows = (own >= 0).nonzero().squeeze(1)
    sums[rows, own[rows]] = -math.inf
    highest = torch.maximum(sums.amax(dim=1), target_scores)
    sums.sub_(highest.unsqueeze(1)).exp_()
    target = (target_scores - highest).exp_()
    total = sums.sum(dim=1).add_(target)
    losses.copy_(total.log() + highest - target_scores)
    target_probs.copy_(target / total)
    sums.div_(total.unsqueeze(1))
    d_bias[0] += sums.sum(dim=0)
    scores.copy_(sums)


def _own_columns(targets: Tensor, words: Tensor) -> Tensor:
    """Return for each row the column of `words` (K,) that is its own target, or -1, (N,)."""
    # A binary search in the sorted words: comparing all pairs would take a table as large as the scores.
    ordered, columns = words.sort()
    place = torch.searchsorted(ordered, targets).clamp(max=len(ordered) - 1)
    return torch.where(ordered[place] == targets, columns[place], -1)
