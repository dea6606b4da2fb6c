"""The kernel of Adam compared with plain NumPy in float64, for every instruction set that this machine has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elmo._native.optimizer import adam_rows
from levels import needs_native

pytestmark = needs_native


def problem(width: int) -> dict[str, Any]:
    random = np.random.default_rng(width)
    weight, average, square = random.standard_normal((3, 9, width)).astype(np.float32)
    rows, gradient = np.array([7, 0, 3, 8]), random.standard_normal((4, width)).astype(np.float32)
    return {"weight": weight, "average": average, "average_square": square**2, "rows": rows, "gradient": gradient}


@pytest.mark.parametrize("width", [1, 16, 37])
def test_adam_moves_the_rows_that_have_a_gradient(level: str, width: int) -> None:
    for num_threads in (1, 3):
        given = problem(width)
        before = {name: array.astype(np.float64) for name, array in given.items()}
        adam_rows(**given, betas=(0.9, 0.99), step_size=0.1, epsilon=1e-3, num_threads=num_threads)
        rows, gradient = given["rows"], before["gradient"]
        average = before["average"][rows] * 0.9 + gradient * 0.1
        square = before["average_square"][rows] * 0.99 + gradient**2 * 0.01
        step = 0.1 * average / (np.sqrt(square) + 1e-3)
        wanted = {"average": average, "average_square": square, "weight": before["weight"][rows] - step}
        for name, array in wanted.items():
            np.testing.assert_allclose(given[name][rows], array, rtol=1e-5, atol=1e-6, err_msg=name)
            np.testing.assert_array_equal(np.delete(given[name], rows, axis=0), np.delete(before[name], rows, axis=0))


def test_shares_of_new_gradients_keep_their_digits(level: str) -> None:
    """As float32, 1 - 0.9999 would be off by one part in ten thousand."""
    given = problem(16) | {"average": np.zeros((9, 16), np.float32), "average_square": np.zeros((9, 16), np.float32)}
    adam_rows(**given, betas=(0.9999, 0.9999), step_size=0.1, epsilon=1e-3)
    rows, gradient = given["rows"], given["gradient"].astype(np.float64)
    np.testing.assert_allclose(given["average"][rows], gradient * 1e-4, rtol=1e-6)
    np.testing.assert_allclose(given["average_square"][rows], gradient**2 * 1e-4, rtol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": np.array([7, 0, 3, 9])}, "rows holds 0 to 9, but weight has 9 rows"),
        ({"rows": np.array([7, 0, -1, 8])}, "rows holds -1 to 8, but weight has 9 rows"),
        ({"gradient": np.zeros((3, 16), np.float32)}, r"gradient is \(3, 16\), but must be \(4, 16\)"),
        ({"average": np.zeros((9, 15), np.float32)}, r"average is \(9, 15\), but must be \(9, 16\)"),
        ({"weight": np.zeros((9, 16, 2), np.float32)}, r"weight is \(9, 16, 2\), but must have two dimensions"),
    ],
    ids=["above", "below", "gradient", "average", "weight"],
)
def test_adam_refuses_what_it_would_write_elsewhere(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adam_rows(**(problem(16) | changed), betas=(0.9, 0.99), step_size=0.1, epsilon=1e-3)
