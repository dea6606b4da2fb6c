"""Adds sentence boundaries to padded batches and removes them, as AllenNLP's `nn.util` does."""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.nn.elmo import mask_of


def add_sentence_boundary_token_ids(
    tensor: Tensor, mask: Tensor, sentence_begin_token: Tensor | float, sentence_end_token: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Put a begin token before each sentence and an end token after it.

    Args:
        tensor: (B, T) ids, or (B, T, D) character ids or vectors, padded on the right.
        mask: (B, T) true at tokens.
        sentence_begin_token: The id, or the (D,) ids or vector, of the begin token.
        sentence_end_token: The same for the end token.

    Returns:
        (B, T+2) or (B, T+2, D) with zeros at padding, and its bool mask (B, T+2). As in AllenNLP, the mask is true
        where an id is not 0, or where any of D numbers is above 0.

    Raises:
        ElmoError: If `tensor` has another number of dimensions.
    """
    if tensor.dim() not in (2, 3):
        raise ElmoError(f"`tensor`: expected (B, T) or (B, T, D), found {tuple(tensor.shape)}")
    rows, ends = torch.arange(len(tensor), device=tensor.device), mask.sum(dim=1).long() + 1
    bounded = tensor.new_zeros(len(tensor), tensor.shape[1] + 2, *tensor.shape[2:])
    bounded[:, 1:-1] = tensor
    for places, token in ((torch.zeros_like(ends), sentence_begin_token), (ends, sentence_end_token)):
        bounded[rows, places] = torch.as_tensor(token).detach().to(bounded)
    return bounded, bounded != 0 if tensor.dim() == 2 else (bounded > 0).any(dim=2)


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Remove the first and the last token of each sentence.

    Args:
        tensor: (B, T, D) vectors, padded on the right.
        mask: (B, T) true at tokens.

    Returns:
        (B, T-2, D) with zeros at padding, and its bool mask (B, T-2).
    """
    inside = mask_of(mask.sum(dim=1) - 2, tensor.shape[1] - 2)
    return tensor[:, 1:-1].masked_fill(~inside.unsqueeze(-1), 0), inside
