"""The kernel of an optimizer: Adam on some rows of a large matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmo import _native
from elmo._native import extension
from elmo._native.arguments import check_array, thread_count, weight_shape

Array = NDArray[np.float32]


def adam_rows(
    weight: Array,
    average: Array,
    average_square: Array,
    rows: NDArray[np.int64],
    gradient: Array,
    betas: tuple[float, float],
    step_size: float,
    epsilon: float,
    num_threads: int = 1,
) -> None:
    """Update some rows of a weight, and of Adam's two averages, in place.

    With the gradient g, the average m becomes m + (1 - beta1) (g - m), and that of the squares, v, becomes
    v + (1 - beta2) (g^2 - v). The weight moves by -step_size m / (sqrt(v) + epsilon).

    Args:
        weight: The weight, (V, P).
        average: The average of its gradients, (V, P).
        average_square: The average of their squares, (V, P).
        rows: Which rows have a gradient, each at most once, (N,).
        gradient: Their gradient, (N, P).
        betas: The decay of both averages.
        step_size: The factor of a step, with the correction of the averages' start from zero.
        epsilon: What keeps the divisor from being zero.
        num_threads: The number of threads, which divide the rows.

    Raises:
        ValueError: If an array is not as described. It is not checked whether a row occurs twice.

    Source:
        Kingma and Ba 2015.
    """
    check_array("weight", weight, weight_shape("weight", weight), written=True)
    check_array("average", average, weight.shape, written=True)
    check_array("average_square", average_square, weight.shape, written=True)
    check_array("rows", rows, (len(rows),), dtype=np.int64)
    check_array("gradient", gradient, (len(rows), weight.shape[1]))
    if not len(rows):
        return
    if not 0 <= rows.min() <= rows.max() < len(weight):
        raise ValueError(f"rows holds {rows.min()} to {rows.max()}, but weight has {len(weight)} rows")
    arrays = weight, average, average_square, rows, gradient
    # 1 - beta is computed here: a float32 close to 1 has too few digits left for its difference from 1.
    settings = 1 - betas[0], 1 - betas[1], step_size, epsilon
    extension().run_adam_rows(
        *arrays, len(rows), weight.shape[1], *settings, thread_count(num_threads), _native.LEVELS[0]
    )
