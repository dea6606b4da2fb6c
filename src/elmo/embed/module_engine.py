"""Runs the biLM's own modules under autocast, for inference on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo.embed.batching import PackedBatch
from elmo.embed.type_cache import TypeCache
from elmo.formats.model import ToIds
from elmo.formats.stored import StateArrays, States
from elmo.formats.stored_types import StoredTypes
from elmo.nn.bilm import BiLM, TokenEncoder
from elmo.nn.devices import run_together
from elmo.nn.lstm import LSTMState
from elmo.nn.precision import TORCH_TYPES

Array = NDArray[np.float32]

TYPES_AT_ONCE = 4096
"""Number of words that are encoded together: more than with packed tables, as a module makes its tables each time."""


@torch.inference_mode()
def run_module(encoder: TokenEncoder, ids: NDArray[Any]) -> Array:
    """Compute the vectors (N, P) of ids (N, C) with the module, on the device where it is."""
    device = encoder.embedding.weight.device
    blocks = [encoder(block.to(device)) for block in torch.from_numpy(ids).split(TYPES_AT_ONCE)]
    return torch.cat(blocks).float().cpu().numpy()


class ModuleEngine:
    """Runs a biLM on its device, each direction on a stream of its own, as `PackedEngine` does on a processor.

    Args:
        bilm: The biLM, on the device.
        to_ids: Converts words to the ids that it reads.
        precision: `"float32"`, `"bf16"` or `"float16"`.
        device: The device.
        types: Token vectors that are stored with the model.
    """

    def __init__(
        self,
        bilm: BiLM,
        to_ids: ToIds,
        precision: str,
        device: torch.device,
        types: StoredTypes | None = None,
    ) -> None:
        self.precision = precision
        self._bilm, self._to_ids, self._device, self._dtype = bilm, to_ids, device, TORCH_TYPES[precision]
        self.cache = TypeCache(self._encode, bilm.config.lstm.projection_dim, stored=types)

    @torch.inference_mode()
    def run(
        self, vectors: Array, batch: PackedBatch, weights: Sequence[float] | None, before: States | None
    ) -> tuple[Array, States | None]:
        """Run a batch, as `PackedEngine.run` describes."""
        on_device = torch.from_numpy(vectors).to(self._device)
        mix = on_device.new_tensor(weights) if weights else None
        num_sentences = batch.batch_sizes[0]
        state = self._bilm.initial_state(num_sentences)
        if before is not None:  # if it is a single row, only that is copied to the device
            copies = [[torch.from_numpy(part).to(self._device) for part in direction] for direction in before]
            state = tuple(LSTMState(*(part.expand(-1, num_sentences, -1) for part in parts)) for parts in copies)

        @torch.inference_mode()  # again, because it holds for one thread only
        def work(number: int) -> tuple[Tensor, LSTMState]:
            # Copy both to the device before computing: the host waits for its stream at each copy.
            inputs = on_device[torch.from_numpy(batch.packed(number)).to(self._device)]
            rows = torch.from_numpy(batch.rows[number][batch.inner]).to(self._device)
            with self._autocast():
                outputs, after = self._bilm.directions[number](inputs, batch.batch_sizes, state[number])
            layers = torch.stack([inputs, *outputs])
            mixed = layers if mix is None else torch.tensordot(mix, layers, 1)
            return mixed.index_select(-2, rows), after

        halves, after = zip(*run_together(work, len(self._bilm.directions), self._device), strict=True)
        kept = before and tuple(StateArrays(*(part.float().cpu().numpy() for part in direction)) for direction in after)
        return torch.cat(halves, dim=-1).float().cpu().numpy(), kept

    def _encode(self, words: Sequence[str]) -> Array:
        with self._autocast():
            return run_module(self._bilm.token_encoder, self._to_ids(words))

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._device.type, self._dtype, enabled=self._dtype != torch.float32)
