"""Chooses the engine that runs a biLM for inference, by device and precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from elmo import _native
from elmo.embed.packed_engine import PackedEngine
from elmo.errors import ElmoError
from elmo.formats.model import Model
from elmo.schema import require_choice

if TYPE_CHECKING:
    import torch

    from elmo.embed.module_engine import ModuleEngine

Precision = Literal["float32", "bf16", "float16", "int8", "auto"]
"""The precision of matrix products. Their sums, LSTM states and activations are float32 in every precision, except that
torch, which computes on GPUs and where there are no native kernels, rounds the sums like the operands.

- `"float32"`: differs from other float32 code only by rounding.
- `"bf16"`: rounds the operands of products to bfloat16.
- `"float16"`: rounds the operands of products to float16. GPUs only.
- `"int8"`: rounds weights to 8 bits with one scale per output, and the inputs of LSTM layers and their recurrences to
  8 bits with one scale per row. On x86 processors without VNNI, both are rounded half a bit more coarsely. Processors
  with the native module only. The char encoder runs in bf16.
- `"auto"`: bf16 if that is faster in bulk; otherwise float32. It is faster on GPUs that have it and, with the native
  module, on processors with AMX and on AMD's with AVX-512 BF16.
"""

PRECISIONS: tuple[str, ...] = get_args(Precision)


def make_engine(model: Model, precision: str, device: torch.device | None) -> PackedEngine | ModuleEngine:
    """Make the engine for a model.

    Args:
        model: The model. On a GPU, its biLM is moved there.
        precision: The precision of matrix products.
        device: The GPU, or None for the processor.

    Raises:
        ElmoError: If the precision is unknown, or not available on this device.
    """
    require_choice("`precision`", precision, PRECISIONS)
    if device is not None:
        return _make_module_engine(model, precision, device)
    if precision == "auto":
        precision = "bf16" if _native.gains_by_bf16() else "float32"
    if precision == "float16":
        raise ElmoError("`precision`: float16 is for GPUs; use bf16 on a processor")
    if precision == "int8" and "int8" not in _native.available():
        raise ElmoError(
            "`precision`: int8 needs the native module, which is not built, or does not support this processor; use "
            "bf16"
        )
    return PackedEngine(model, precision)


def _make_module_engine(model: Model, precision: str, device: torch.device) -> ModuleEngine:
    from elmo.embed.module_engine import ModuleEngine
    from elmo.nn.precision import device_multiplies_bf16

    if precision == "auto":
        precision = "bf16" if device_multiplies_bf16(device) else "float32"
    if precision == "int8":
        raise ElmoError(f"`precision`: int8 is for processors; use bf16 on {device}")
    types = model.current_types  # before the weights are on the device, from where they would be copied
    return ModuleEngine(model.bilm.to(device).eval(), model.to_ids, precision, device, types)
