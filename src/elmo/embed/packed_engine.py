"""Runs a biLM with weights that are packed once, for inference on a processor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from elmo._native import empty
from elmo.config import FORGET_BIAS, LSTMConfig
from elmo.embed.batching import PackedBatch
from elmo.embed.kernels import Kernels, kernels_for
from elmo.embed.type_cache import TypeCache
from elmo.embed.type_encoder import make_encode
from elmo.formats.model import Model
from elmo.formats.safetensors import as_float32
from elmo.formats.stored import StateArrays, States, Weights

Array = NDArray[np.float32]

GATE_ROWS = 128
"""Maximum number of tokens whose gates are computed at a time: enough for the product of their inputs to run at full
speed, and few enough for the gates to be in the processor's cache still when the recurrence reads them."""


class PackedEngine:
    """Runs a biLM as it was when the engine was made.

    Both directions run at the same time if there are at least two threads. The engine holds only the packed weights,
    so the model's own weights need not stay in memory.

    Args:
        model: The model.
        precision: `"float32"`, `"bf16"` or `"int8"`.

    Attributes:
        precision: The precision that was given.
        cache: The vectors of words: layer 0, which both directions share.
    """

    def __init__(self, model: Model, precision: str) -> None:
        self.precision = precision
        self._config = model.config
        # Each distinct word is encoded only once, so int8 would save hardly any time here, and cost accuracy.
        of_types = "bf16" if precision == "int8" else precision
        self.cache = TypeCache(
            make_encode(model, of_types), model.config.lstm.projection_dim, stored=model.current_types
        )
        self._kernels, weights, lstm = kernels_for(precision), model.weights, model.config.lstm
        self._directions = [
            _Direction(lstm, weights, f"{name}_lstm", self._kernels, precision) for name in model.config.directions
        ]

    def run(
        self, vectors: Array, batch: PackedBatch, weights: Sequence[float] | None, before: States | None
    ) -> tuple[Array, States | None]:
        """Run a batch.

        Args:
            vectors: (N, P) vectors of distinct words, as `cache.vectors` returns them.
            batch: Sentences as indices into `vectors`.
            weights: One weight per layer, or None to keep the layers apart.
            before: The LSTM state that each sentence starts from, or one row from which all do; None stands for zeros.

        Returns:
            The weighted sum (tokens, D), or all layers (L+1, tokens, D), in the order of the batch's sentences and
            without boundaries; and the state after each sentence, which is None if `before` is None.
        """
        config = self._config
        P = config.lstm.projection_dim
        result = np.empty((1 if weights else config.num_layers, int(batch.ends[-1]), config.width), np.float32)

        def work(number: int, num_threads: int) -> StateArrays:
            state = self._own_state(batch.batch_sizes[0], None if before is None else before[number])
            inputs = vectors[batch.packed(number)]
            layers = self._directions[number].run(inputs, batch.batch_sizes, state, num_threads)
            rows = batch.rows[number][batch.inner]
            for out, layer in zip(result, [_weighted_sum(layers, weights)] if weights else layers, strict=True):
                out[:, number * P : (number + 1) * P] = layer[rows]
            return state

        states = self._kernels.run_in_threads(work, len(self._directions))
        return result[0] if weights else result, before and tuple(states)

    def _own_state(self, num_sentences: int, before: StateArrays | None) -> StateArrays:
        """Copy a direction's state for B sentences, which the run then replaces in place."""
        lstm = self._config.lstm
        hidden, cell = (empty(lstm.n_layers, num_sentences, width) for width in (lstm.projection_dim, lstm.dim))
        hidden[:], cell[:] = (0, 0) if before is None else before
        return StateArrays(hidden, cell)


class _Direction:
    """An `LSTMStack` with packed weights, which are those under its `name` in the biLM's state dict."""

    def __init__(self, config: LSTMConfig, weights: Weights, name: str, kernels: Kernels, precision: str) -> None:
        self._config = config
        proj_clip = config.proj_clip if config.has_projection else None

        def pack(layer: str):
            weight_ih, weight_hh, bias = (
                as_float32(weights[f"{layer}.{part}"]) for part in ("weight_ih", "weight_hh", "bias")
            )
            weight_hr = as_float32(weights[f"{layer}.weight_hr"]) if config.has_projection else None
            return (
                kernels.linear(weight_ih, _with_forget_bias(bias), precision),
                kernels.recurrence(weight_hh, weight_hr, config.cell_clip, proj_clip, precision),
            )

        self._layers = [pack(f"{name}.layers.{number}") for number in range(config.n_layers)]

    def run(self, inputs: Array, batch_sizes: Sequence[int], state: StateArrays, num_threads: int) -> list[Array]:
        """Compute L+1 layers (N, P), of which `inputs` (N, P) are the first, and replace the state in place."""
        hidden, cell = state
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


def _with_forget_bias(bias: Array) -> Array:
    """Return the bias of the gates (4H,) including the constant that is added to the forget gate."""
    bias, size = bias.copy(), len(bias) // 4
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
    """Return the weighted sum of `layers` (N, P). It is infinite where it is too large for float32."""
    used = [(layer, np.float32(weight)) for layer, weight in zip(layers, weights, strict=True) if weight != 0]
    if not used:
        return np.zeros_like(layers[0])
    with np.errstate(over="ignore", invalid="ignore"):  # the embedder refuses such vectors
        total = used[0][0] * used[0][1]
        for layer, weight in used[1:]:
            total += layer * weight
    return total
