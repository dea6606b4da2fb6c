"""The projected LSTM of one direction (Sak et al. 2014; Peters et al. 2018, sec. 3.1 and 3.4), over packed sentences.

A step computes from its input x, the hidden state h' and the cells c' before it

    i, j, f, o = W_ih x + W_hh h' + b                      (4H sums, in this order)
    c = clip(sigmoid(f + 1) * c' + sigmoid(i) * tanh(j))   (H cells)
    m = sigmoid(o) * tanh(c)
    h = clip(W_hr m)                                       (P, or m itself if there is no projection)

Everything follows bilm-tf, whose cell is TensorFlow's `LSTMCell`:

- The order of the gates is that of its files, so that its matrices are used as they are. `nn.LSTM` and AllenNLP have
  i, f, j, o.
- The constant 1 of the forget gate is added at run time and is not in the stored bias. It keeps the cells' memory open
  in an untrained network (Jozefowicz et al. 2015).
- The cells are clipped before the output gate reads them, and the projection after its product (both to ±3 in the
  published models). A trained model needs the clips that it was trained with: they change its vectors.

In *packed* order the tokens of step 0 come first, one per row of the batch, then those of step 1, and so on. Rows are
sorted by falling length, so that the first `batch_sizes[t]` rows have a token at step t, and there is no padding to
compute or to mask. N is the number of tokens, the sum of `batch_sizes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmo.config import FORGET_BIAS, LSTMConfig
from elmo.nn.lstm_steps import ProjectedLSTM
from elmo.nn.memory import LayerMemory
from elmo.nn.packing import step_slices


class LSTMState(NamedTuple):
    """The state of all layers of one direction.

    Attributes:
        hidden: The projected outputs, (L, B, P).
        cell: The cells, (L, B, H).
    """

    hidden: Tensor
    cell: Tensor


class LSTMStack(nn.Module):
    """All layers of one direction. With `use_skip_connections`, from layer 2 on a layer's input is added to its output.

    Source:
        Peters et al. 2018, sec. 3.4.
    """

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(LSTMLayer(config.projection_dim, config) for _ in range(config.n_layers))

    def forward(
        self,
        inputs: Tensor,
        batch_sizes: Sequence[int],
        state: LSTMState,
        masks: Sequence[Tensor] = (),
        memory: Sequence[LayerMemory] = (),
    ) -> tuple[list[Tensor], LSTMState]:
        """Run all layers (see `run_layers`), each in its own part of `memory` if that is given."""
        layers = (
            [partial(layer, memory=part) for layer, part in zip(self.layers, memory, strict=True)]
            if memory
            else self.layers
        )
        return run_layers(layers, self.config, inputs, batch_sizes, state, masks)


def run_layers(
    layers: Iterable[Callable[..., tuple[Tensor, Tensor]]],
    config: LSTMConfig,
    inputs: Tensor,
    batch_sizes: Sequence[int],
    state: LSTMState,
    masks: Sequence[Tensor] = (),
) -> tuple[list[Tensor], LSTMState]:
    """Run the layers of one direction, each on the output of the layer before it.

    Args:
        layers: Modules or functions with the arguments and results of `LSTMLayer`.
        config: The configuration of the LSTM.
        inputs: Packed token vectors, (N, P).
        batch_sizes: The number of rows that have a token at each step; B is batch_sizes[0].
        state: The state before each row's first token, rows sorted like the batch.
        masks: For each layer a dropout mask (N, P) that multiplies the layer's input. As in the published training,
            the residual connection adds the masked input.

    Returns:
        Each layer's output, packed (N, P), and the state after each row's last token.
    """
    last = _last_tokens(batch_sizes, inputs.device)
    outputs: list[Tensor] = []
    hidden: list[Tensor] = []
    cell: list[Tensor] = []
    for number, layer in enumerate(layers):
        inputs = inputs * masks[number] if masks else inputs
        h, c = layer(inputs, batch_sizes, state.hidden[number], state.cell[number])
        # The state that is carried is the cell's own output, before the residual connection. It is looked up by
        # `index_select`: the backward pass of indexing adds in any order, so a resumed run would not be bit-equal.
        hidden.append(h.index_select(0, last))
        cell.append(c.index_select(0, last))
        inputs = h + inputs if number > 0 and config.use_skip_connections else h
        outputs.append(inputs)
    return outputs, LSTMState(torch.stack(hidden), torch.stack(cell))


def _last_tokens(batch_sizes: Sequence[int], device: torch.device) -> Tensor:
    """Return the packed index of each row's last token, (batch_sizes[0],).

    It is computed on `device`, because copying it there would wait for the device.
    """
    ended = [*batch_sizes[1:], 0]
    steps = list(zip(step_slices(batch_sizes), ended, strict=True))
    return torch.cat([torch.arange(step.start + after, step.stop, device=device) for step, after in reversed(steps)])


class LSTMLayer(nn.Module):
    """One projected LSTM layer.

    Weights are stored as (gates, inputs) like those of `nn.LSTM`, but with the gates in the order i, j (candidate),
    f, o.

    Args:
        in_dim: The width of the input, I.
        config: The sizes and clips of the LSTM.

    Source:
        Sak et al. 2014.
    """

    def __init__(self, in_dim: int, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.weight_ih = nn.Parameter(torch.empty(4 * config.dim, in_dim))
        self.weight_hh = nn.Parameter(torch.empty(4 * config.dim, config.projection_dim))
        self.weight_hr = nn.Parameter(torch.empty(config.projection_dim, config.dim)) if config.has_projection else None
        self.bias = nn.Parameter(torch.zeros(4 * config.dim))
        # Glorot over both weights together, because TensorFlow's cell has them in one [input; hidden] matrix.
        # `xavier_uniform_` of each by itself would draw from wider ranges.
        bound = (6 / (in_dim + config.projection_dim + 4 * config.dim)) ** 0.5
        nn.init.uniform_(self.weight_ih, -bound, bound)
        nn.init.uniform_(self.weight_hh, -bound, bound)
        if self.weight_hr is not None:
            nn.init.xavier_uniform_(self.weight_hr)

    def extra_repr(self) -> str:
        """Return what `print` shows of the layer."""
        projected = f", projection_dim={self.config.projection_dim}" if self.config.has_projection else ""
        return f"{self.weight_ih.shape[1]}, {self.config.dim}{projected}"

    def torch_weights(self) -> list[Tensor]:
        """Return both weights and both biases as `torch.lstm` takes them. Gradients flow back to the layer's own.

        The gates are in the order i, f, j, o. torch adds two biases: the first is the layer's own, and the second holds
        the forget gate's 1. A projection is left out.
        """

        def in_torch_order(weight: Tensor) -> Tensor:
            i, j, f, o = weight.chunk(4)
            return torch.cat([i, f, j, o])

        bias = in_torch_order(self.bias)
        forget = torch.zeros_like(bias)
        forget[self.config.dim : 2 * self.config.dim] = FORGET_BIAS
        return [in_torch_order(self.weight_ih), in_torch_order(self.weight_hh), bias, forget]

    def forward(
        self,
        inputs: Tensor,
        batch_sizes: Sequence[int],
        hidden: Tensor,
        cell: Tensor,
        memory: LayerMemory | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run the layer over a packed batch.

        Args:
            inputs: Packed, (N, I).
            batch_sizes: The number of rows that have a token at each step.
            hidden: The hidden state before step 0, (batch_sizes[0], P).
            cell: The cells before step 0, (batch_sizes[0], H).
            memory: The memory that the caller keeps from one batch to the next, if any.

        Returns:
            The outputs (N, P) and the cells (N, H), both packed.
        """
        outputs, cells = ProjectedLSTM.apply(  # pyright: ignore[reportUnknownMemberType, reportGeneralTypeIssues]
            inputs,
            self.weight_ih,
            self.weight_hh,
            self.weight_hr,
            self.bias,
            hidden,
            cell,
            batch_sizes,
            self.config.cell_clip,
            self.config.proj_clip if self.config.has_projection else None,
            memory,
        )
        return outputs, cells
