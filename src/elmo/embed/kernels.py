"""Matrix products, LSTM recurrences and convolutions with weights that are packed once.

The native module (`elmo._native`) provides them if it is built and supports the processor. Otherwise those of
`elmo.embed.torch_kernels`, made of torch's operations, take their place. They have the same interface. Their results
differ by rounding, in bf16 by more than in float32, and they have no int8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo import _native
from elmo.nn.processor import run_in_threads

if TYPE_CHECKING:
    from elmo.embed.torch_kernels import TorchConvolution, TorchLinear, TorchRecurrence

Array = NDArray[np.float32]


class Kernels(NamedTuple):
    """The kernels of one precision: functions that pack weights, and those that need none. All arrays are contiguous.

    Attributes:
        linear: Takes a weight (M, K), a bias (M,) or None, and the precision.
        recurrence: Takes `weight_hh` (4H, P), `weight_hr` (P, H) or None without a projection, the bounds to which
            cell and projection are clipped (None to leave them as they are), and the precision.
        convolution: Takes for each width the table of products (width, A, K) and the biases (K,), and the name of the
            activation.
        highway: Takes the products (N, 2F) of a highway layer, transform and gate side by side; its input (N, F), which
            it replaces by the output; and the number of threads.
        run_in_threads: Does as `elmo.nn.processor.run_in_threads`.
    """

    linear: Callable[[Array, Array | None, str], _native.Linear | TorchLinear]
    recurrence: Callable[[Array, Array | None, float | None, float | None, str], _native.Recurrence | TorchRecurrence]
    convolution: Callable[[Sequence[Array], Sequence[Array], str], _native.Convolution | TorchConvolution]
    highway: Callable[[Array, Array, int], None]
    run_in_threads: Callable[[Callable[[int, int], Any], int], list[Any]]


def kernels_for(precision: str) -> Kernels:
    """Return the native functions if they are available for `precision`, else torch's, which have no int8."""
    if precision in _native.available():
        return Kernels(_native.Linear, _native.Recurrence, _native.Convolution, _native.highway, run_in_threads)
    from elmo.embed.torch_kernels import make_torch_kernels  # torch is imported only where it is needed

    return make_torch_kernels()
