"""Runs a biLM with weights that are packed once, for inference on a processor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from elmo._native import empty
from elmo.embed.batching import PackedBatch
from elmo.embed.kernels import Kernels, kernels_for
from elmo.embed.type_cache import TypeCache
from elmo.embed.type_encoder import make_encode, numbers
from elmo.formats.model import ToIds
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.devices import run_together
from elmo.nn.lstm import FORGET_BIAS, LSTMLayer, LSTMStack, LSTMState

Array = NDArray[np.float32]

GATE_ROWS = 128
"""Maximum number of tokens whose gates are computed at a time: enough for the product of their inputs to run at full
speed, and few enough for the gates to be in the processor's cache still when the recurrence reads them."""

CPU = torch.device("cpu")


class PackedEngine:
    """Runs a biLM as it was when the engine was made. Implements `elmo.embed.engine.Engine`.

    Both directions run at the same time if torch has at least two threads. The engine holds only the packed weights,
    so the biLM's own weights need not stay in memory.

    Args:
        bilm: The biLM.
        to_ids: Converts words to the ids that the biLM's encoder takes.
        precision: `"float32"`, `"bf16"` or `"int8"`.
    """

    def __init__(self, bilm: BiLM, to_ids: ToIds, precision: str) -> None:
        self.precision = precision
        self._config = bilm.config
        # Each distinct word is encoded only once, so int8 would save hardly any time here, and cost accuracy.
        of_types = "bf16" if precision == "int8" else precision
        encode = make_encode(bilm.token_encoder, to_ids, of_types)
        self._cache = TypeCache(encode, bilm.config.lstm.projection_dim)
        self._directions = [_Direction(stack, kernels_for(precision), precision) for stack in bilm.directions]

    def token_vectors(self, words: Sequence[str]) -> Array:
        """Return the vectors (N, P) of N distinct words: layer 0, which both directions share."""
        return self._cache.vectors(words)

    def run(
        self, vectors: Array, batch: PackedBatch, weights: Sequence[float] | None, before: BiLMState | None
    ) -> tuple[Array, BiLMState | None]:
        """Run a batch.

        Args:
            vectors: (N, P) vectors of distinct words, as `token_vectors` returns them.
            batch: Sentences as indices into `vectors`.
            weights: One weight per layer, or None to keep the layers apart.
            before: The LSTM state that each sentence starts from; None stands for zeros.

        Returns:
            The weighted sum (tokens, D), or all layers (L+1, tokens, D), in the order of the batch's sentences and
            without boundaries; and the state after each sentence, which is None if `before` is None.
        """
        config = self._config
        P = config.lstm.projection_dim
        result = np.empty((1 if weights else config.num_layers, int(batch.ends[-1]), config.width), np.float32)

        def work(number: int) -> tuple[Array, Array]:
            hidden, cell = self._own_state(batch.batch_sizes[0], None if before is None else before[number])
            layers = self._directions[number].run(vectors[batch.packed(number)], batch.batch_sizes, hidden, cell)
            rows = batch.rows[number][batch.inner]
            for out, layer in zip(result, [_weighted_sum(layers, weights)] if weights else layers, strict=True):
                out[:, number * P : (number + 1) * P] = layer[rows]
            return hidden, cell

        states = run_together(work, len(self._directions), CPU)
        after = before and tuple(LSTMState(*map(torch.from_numpy, state)) for state in states)
        return result[0] if weights else result, after

    def _own_state(self, num_sentences: int, before: LSTMState | None) -> tuple[Array, Array]:
        """Copy a direction's hidden (L, B, P) and cell (L, B, H), which the run then replaces in place."""
        lstm = self._config.lstm
        hidden, cell = (empty(lstm.n_layers, num_sentences, width) for width in (lstm.projection_dim, lstm.dim))
        hidden[:], cell[:] = (0, 0) if before is None else (part.numpy() for part in before)
        return hidden, cell


class _Direction:
    """An `LSTMStack` with packed weights."""

    def __init__(self, stack: LSTMStack, kernels: Kernels, precision: str) -> None:
        config = stack.config
        self._config = config
        self._layers = [
            (
                kernels.linear(numbers(layer.weight_ih), _bias(layer), precision),
                kernels.recurrence(
                    numbers(layer.weight_hh),
                    None if layer.weight_hr is None else numbers(layer.weight_hr),
                    config.cell_clip,
                    config.proj_clip if config.has_projection else None,
                    precision,
                ),
            )
            for layer in stack.layers
            if isinstance(layer, LSTMLayer)
        ]

    def run(self, inputs: Array, batch_sizes: Sequence[int], hidden: Array, cell: Array) -> list[Array]:
        """Compute L+1 layers (N, P), of which `inputs` (N, P) are the first, and replace the state in place."""
        num_threads = torch.get_num_threads()
        chunks = list(_chunks(batch_sizes))
        gates = empty(max(rows.stop - rows.start for rows, _ in chunks), 4 * self._config.dim)
        layers = [inputs]
        for number, (linear, recurrence) in enumerate(self._layers):
            outputs = empty(*inputs.shape)
            for rows, sizes in chunks:
                h, c, part = hidden[number, : sizes[0]], cell[number, : sizes[0]], gates[: rows.stop - rows.start]
                linear.run(inputs[rows], part, num_threads)
                recurrence.run(part, sizes, h, c, outputs[rows], num_threads)
            if number > 0 and self._config.use_skip_connections:
                outputs += inputs
            layers.append(outputs)
            inputs = outputs
        return layers


def _bias(layer: LSTMLayer) -> Array:
    """Return the bias of the gates, including the constant that is added to the forget gate."""
    bias, size = numbers(layer.bias).copy(), layer.config.dim
    bias[2 * size : 3 * size] += FORGET_BIAS
    return bias


def _chunks(batch_sizes: Sequence[int]) -> Iterator[tuple[slice, Sequence[int]]]:
    """Yield packed rows and batch sizes of consecutive steps: up to `GATE_ROWS` tokens, but at least one step."""
    first = start = stop = 0
    for step, size in enumerate(batch_sizes):
        if step > first and stop + size - start > GATE_ROWS:
            yield slice(start, stop), batch_sizes[first:step]
            first, start = step, stop
        stop += size
    yield slice(start, stop), batch_sizes[first:]


def _weighted_sum(layers: Sequence[Array], weights: Sequence[float]) -> Array:
    """Return the weighted sum of `layers` (N, P). At least one of the weights must not be zero."""
    used = [(layer, np.float32(weight)) for layer, weight in zip(layers, weights, strict=True) if weight != 0]
    total = used[0][0] * used[0][1]
    for layer, weight in used[1:]:
        total += layer * weight
    return total
