"""Sentence boundaries around padded batches, and off again, as in AllenNLP's `nn.util`."""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.errors import ElmoError


def add_sentence_boundary_token_ids(
    tensor: Tensor, mask: Tensor, sentence_begin_token: Tensor | float, sentence_end_token: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Put a begin before each sentence and an end after it.

    `tensor` is (B, T), ids, or (B, T, D), ids of characters or vectors, padded on the right; `mask` (B, T) says where
    tokens are. Returns (B, T+2) or (B, T+2, D), zeros at padding, and its mask (B, T+2) bool: of ids, what isn't 0; of
    (B, T+2, D), where any number is above 0, as AllenNLP has it.
    """
    if tensor.dim() not in (2, 3):
        raise ElmoError(f"tensor: expected (B, T) or (B, T, D), found {tuple(tensor.shape)}")
    rows, ends = torch.arange(len(tensor), device=tensor.device), mask.sum(dim=1).long() + 1
    bounded = tensor.new_zeros(len(tensor), tensor.shape[1] + 2, *tensor.shape[2:])
    bounded[:, 1:-1] = tensor
    for places, token in ((torch.zeros_like(ends), sentence_begin_token), (ends, sentence_end_token)):
        bounded[rows, places] = torch.as_tensor(token).detach().to(bounded)
    return bounded, bounded != 0 if tensor.dim() == 2 else (bounded > 0).any(dim=2)


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Take the first and the last token off each sentence.

    `tensor` is (B, T, D), padded on the right, `mask` (B, T) its mask. Returns (B, T-2, D), zeros at padding, and its
    mask (B, T-2) bool.
    """
    lengths = mask.sum(dim=1, keepdim=True) - 2
    inside = torch.arange(tensor.shape[1] - 2, device=tensor.device) < lengths
    return tensor[:, 1:-1].masked_fill(~inside.unsqueeze(-1), 0), inside
