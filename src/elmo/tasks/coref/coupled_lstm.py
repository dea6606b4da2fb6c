"""The bidirectional LSTM of Lee et al. 2017, in which the input gate and the forget gate add up to 1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.nn.packing import Packing
from elmo.nn.precision import product_dtype


class CoupledLSTM(nn.Module):
    """One direction: c = (1 - i) * c_prev + i * tanh(j), h = sigmoid(o) * tanh(c), with a learned initial state.

    `dropout` is on the state that the gates see, with the same mask at all words of a sentence. The weights of each
    gate start orthonormal, separately for the input and the state; biases start at zero.

    Source: Lee et al. 2017, sec. 4 and 7 ("the LSTM weights were initialized with random orthonormal matrices"). Their
    code of 2017 does so for the state only, and initializes the weights of the input as Glorot and Bengio 2010 do.
    Their code of 2018 has one orthonormal matrix for each gate, over input and state together.
    """

    def __init__(self, in_width: int, size: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.input = nn.Linear(in_width, 3 * size)
        self.recurrent = nn.Parameter(torch.cat([nn.init.orthogonal_(torch.empty(size, size)) for _ in range(3)], 1))
        self.hidden, self.cell = (nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, size))) for _ in range(2))
        with torch.no_grad():
            for gate in self.input.weight.split(size):
                nn.init.orthogonal_(gate)
        nn.init.zeros_(self.input.bias)

    def forward(self, x: Tensor, batch_sizes: Sequence[int]) -> Tensor:
        """Return packed outputs (N, H) of packed words (N, D), see `elmo.nn.lstm`."""
        mask = F.dropout(self.hidden.new_ones(batch_sizes[0], self.hidden.shape[1]), self.dropout, self.training)
        hidden, cell = self.hidden.expand_as(mask), self.cell.expand_as(mask)
        dtype, outputs = product_dtype(x), list[Tensor]()
        from_words = F.linear(x.to(dtype), self.input.weight.to(dtype)).to(x.dtype) + self.input.bias
        for gates in from_words.split(batch_sizes):
            rows = len(gates)
            gates = gates + (hidden[:rows] * mask[:rows]).to(dtype) @ self.recurrent.to(dtype)
            i, j, o = gates.chunk(3, dim=1)
            cell = torch.lerp(cell[:rows], j.tanh(), i.sigmoid())
            hidden = o.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.cat(outputs)


class CoupledBiLSTM(nn.Module):
    """A forward and a backward `CoupledLSTM` of `size` units each, over the sentences of a document."""

    def __init__(self, in_width: int, size: int, dropout: float) -> None:
        super().__init__()
        self.directions = nn.ModuleList(CoupledLSTM(in_width, size, dropout) for _ in range(2))
        self.width = 2 * size

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (N, 2H) for the words of all sentences.

        Args:
            x: The words (N, D), sentence after sentence.
            lengths: The lengths of the sentences, a tensor on the CPU.
        """
        longest = int(lengths.max())
        packing = Packing.of(lengths, longest, x.device)
        starts = (lengths.cumsum(0) - lengths).to(x.device)
        halves: list[Tensor] = []
        for direction, order in zip(self.directions, packing.orders, strict=True):
            words = starts[order // longest] + order % longest
            outputs = direction(x[words], packing.batch_sizes)
            halves.append(outputs.new_zeros(outputs.shape).index_copy(0, words, outputs))
        return torch.cat(halves, dim=1)
