"""Converts batches of sentences to packed order (see `elmo.nn.lstm`) and back.

Unlike torch's `pack_padded_sequence`, it allows rows without tokens, and has an order for each direction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from elmo.errors import ElmoError


@dataclass(frozen=True)
class Packing:
    """The packed order of the tokens of a batch, for both directions.

    Attributes:
        shape: The shape of the batch, (B, T).
        rows: The indices of the rows that have tokens, by falling length.
        batch_sizes: For each step t the number of those rows that have a token at it.
        orders: The flat positions b * T + t of the packed tokens, (N,), in the order of the forward direction, which
            starts at each row's first token, and of the backward direction, which starts at its last.
    """

    shape: tuple[int, int]
    rows: Tensor
    batch_sizes: list[int]
    orders: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, lengths: Tensor, longest: int, device: torch.device) -> "Packing":
        """Compute the packing of a batch (B, T).

        Args:
            lengths: The number of tokens of each row, (B,), on the CPU. Zero is allowed.
            longest: The width of the batch, T.
            device: Where to put the tensors of the packing.

        Raises:
            ElmoError: If a row has more tokens than the batch is wide: the others would be those of the next row.
        """
        # Everything is computed on the CPU, where the lengths are, so that only the results are copied to a GPU.
        sorted_lengths, rows = lengths.sort(descending=True, stable=True)
        if len(lengths) and (most := int(sorted_lengths[0])) > longest:
            raise ElmoError(f"`lengths`: a row has {most} tokens, but the batch is {longest} wide")
        # Rows without tokens take no part; callers keep their state.
        used = int((sorted_lengths > 0).sum())
        sorted_lengths, rows = sorted_lengths[:used], rows[:used]
        steps = torch.arange(int(sorted_lengths[0]) if used else 0, device=lengths.device).unsqueeze(1)
        running = steps < sorted_lengths  # (steps, rows): selecting by it takes step after step, as packed order has it
        start = rows * longest
        return cls(
            shape=(len(lengths), longest),
            rows=rows.to(device),
            batch_sizes=running.sum(dim=1).tolist(),
            orders=(
                (start + steps)[running].to(device),
                (start + sorted_lengths - 1 - steps)[running].to(device),
            ),
        )

    def pack(self, x: Tensor, direction: int) -> Tensor:
        """Return the tokens of `x` (B, T, D) in the packed order of a direction (0 forward, 1 backward), (N, D)."""
        return x.flatten(0, 1)[self.orders[direction]]

    def unpack(self, packed: Tensor, direction: int) -> Tensor:
        """Return a direction's `packed` (…, N, D) in the order of the batch, (…, B, T, D), with zeros at padding."""
        flat = packed.new_zeros(*packed.shape[:-2], math.prod(self.shape), packed.shape[-1])
        return flat.index_copy(-2, self.orders[direction], packed).unflatten(-2, self.shape)


def step_slices(batch_sizes: Sequence[int]) -> list[slice]:
    """Return the slice of each step's tokens in a packed tensor."""
    return [slice(*ends) for ends in pairwise(accumulate(batch_sizes, initial=0))]
