"""Memory for the large tensors of a layer, which a training keeps from one batch to the next."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class LayerMemory:
    """The large tensors of one layer, kept from one batch to the next.

    Asking the system for fresh memory at every step of a training took a twelfth of the time of `small`. Code that
    keeps such a memory must finish the backward pass of a batch before the forward pass of the next, which overwrites
    all that the last one left, including the outputs of the layer and the gradients of its weights. For the same
    reason, a batch can have only one backward pass. A layer that is given no memory takes fresh memory in each pass.
    """

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return the tensor `name` of a shape, on the device and of the type of `like` unless `dtype` is given.

        It is a view of a kept tensor that may be larger, since batches differ in their number of words, and holds
        whatever was last written there.
        """
        wanted, kept, size = dtype or like.dtype, self._tensors.get(name), math.prod(shape)
        if kept is None or kept.numel() < size or (kept.dtype, kept.device) != (wanted, like.device):
            # An eighth more than is asked for, so that a batch with a few words more finds room. As long as nothing is
            # written there, it takes no memory from the system. On a GPU it would.
            spare = size // 8 if like.is_cpu else 0
            kept = self._tensors[name] = like.new_empty(size + spare, dtype=wanted)
        # A tensor of its own, since autograd notes in it where it came from.
        return kept.detach()[:size].view(shape)
