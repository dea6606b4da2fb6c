"""What runs a biLM for inference, chosen by device and precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from elmo import _native
from elmo.embed.batching import PackedBatch
from elmo.embed.module_engine import ModuleEngine
from elmo.embed.packed_engine import PackedEngine
from elmo.errors import ElmoError
from elmo.formats.model import Model
from elmo.nn.bilm import BiLMState
from elmo.nn.precision import device_multiplies_bf16
from elmo.schema import require_choice

Array = NDArray[np.float32]

Precision = Literal["float32", "bf16", "float16", "int8", "auto"]
"""The precision of products of matrices; sums, states and activations are float32 in all of them.

`"float32"` is exact but for rounding. `"bf16"` rounds the operands of products to bfloat16. `"float16"` rounds them
to float16, on a GPU. `"int8"`, on a processor with the native module, rounds weights to 8 bits by output and the
recurrent and layer inputs to 8 bits by row; the char encoder, which each type passes but once, is in bf16.
`"auto"` is bf16 where that is faster in bulk, and less exact: on GPUs that have it, and on AMD's processors that have
instructions for it (AVX-512 BF16) which the native module uses. Elsewhere it is float32.
"""

PRECISIONS: tuple[str, ...] = get_args(Precision)


class Engine(Protocol):
    """A biLM, ready to run (see `PackedEngine`), in a precision that isn't "auto"."""

    precision: str

    def token_vectors(self, words: Sequence[str]) -> Array:
        """Layer 0 of distinct `words` in one direction: (N, P)."""
        ...

    def run(
        self, vectors: Array, batch: PackedBatch, weights: Sequence[float] | None, before: BiLMState | None
    ) -> tuple[Array, BiLMState | None]:
        """Run a batch of indices into `vectors`; the layers' weighted sum or all of them, and the state after."""
        ...


def make_engine(model: Model, precision: str, device: torch.device) -> Engine:
    """The engine for a model that is on `device`."""
    require_choice("precision", precision, PRECISIONS)
    if precision == "auto":
        gains = _native.gains_by_bf16() if device.type == "cpu" else device_multiplies_bf16(device)
        precision = "bf16" if gains else "float32"
    if device.type != "cpu":
        if precision == "int8":
            raise ElmoError(f"precision: int8 is for processors; use bf16 on {device}")
        return ModuleEngine(model.bilm, model.to_ids, precision, device)
    if precision == "float16":
        raise ElmoError("precision: float16 is for GPUs; use bf16 on a processor")
    if precision == "int8" and "int8" not in _native.available():
        raise ElmoError(
            "precision: int8 needs the native module, which isn't built here or not for this processor; use bf16"
        )
    return PackedEngine(model.bilm, model.to_ids, precision)
