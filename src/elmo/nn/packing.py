"""The packed order of a batch of sentences (see `elmo.nn.lstm`), and the way back."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """How the tokens of a (B, T) batch stand in packed order.

    `rows` are the rows that hold tokens, by falling length; `batch_sizes[t]` of them still run at step t.
    `orders` are the flat positions b * T + t of the packed tokens, first as the forward direction reads them (from
    the first token on), then as the backward direction does (from the last token on).
    """

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
            rows=rows.to(device),
            batch_sizes=running.sum(dim=1).tolist(),
            orders=(
                (start + steps)[running].to(device),
                (start + sorted_lengths - 1 - steps)[running].to(device),
            ),
        )


def step_slices(batch_sizes: Sequence[int]) -> list[slice]:
    """Where the tokens of each step stand in a packed tensor."""
    return [slice(*ends) for ends in pairwise(accumulate(batch_sizes, initial=0))]
