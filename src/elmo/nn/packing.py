"""The packed order of a batch of sentences (see `elmo.nn.lstm`), and the way back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """How the tokens of a batch of this `shape`, (B, T), stand in packed order.

    `rows` are the rows that hold tokens, by falling length; `batch_sizes[t]` of them still run at step t.
    `orders` are the flat positions b * T + t of the packed tokens, first as the forward direction reads them (from
    the first token on), then as the backward direction does (from the last token on).
    """

    shape: tuple[int, int]
    rows: Tensor
    batch_sizes: list[int]
    orders: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, lengths: Tensor, longest: int, device: torch.device) -> "Packing":
        """The packing of rows with `lengths` (B,), a CPU tensor that may hold zeros, in a batch (B, `longest`)."""
        sorted_lengths, rows = lengths.sort(descending=True, stable=True)
        used = int((sorted_lengths > 0).sum())
        sorted_lengths, rows = sorted_lengths[:used], rows[:used]
        steps = torch.arange(int(sorted_lengths[0]) if used else 0).unsqueeze(1)
        running = steps < sorted_lengths
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
        """The tokens of `x` (B, T, D) as a direction reads them, (N, D)."""
        return x.flatten(0, 1)[self.orders[direction]]

    def unpack(self, packed: Tensor, direction: int) -> Tensor:
        """What a direction read, (…, N, D), in the order of the batch, (…, B, T, D), zeros at padding."""
        flat = packed.new_zeros(*packed.shape[:-2], math.prod(self.shape), packed.shape[-1])
        return flat.index_copy(-2, self.orders[direction], packed).unflatten(-2, self.shape)


def step_slices(batch_sizes: Sequence[int]) -> list[slice]:
    """Where the tokens of each step stand in a packed tensor."""
    return [slice(*ends) for ends in pairwise(accumulate(batch_sizes, initial=0))]
