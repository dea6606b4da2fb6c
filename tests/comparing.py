"""Vectors that must be the same, but for rounding."""

from __future__ import annotations

import numpy as np

ROUNDING = 2e-6
"""Other batches mean other shapes of the same matrix products, hence other orders of float32 sums of numbers near 1."""


def assert_same(got: list[np.ndarray], expected: list[np.ndarray], atol: float = ROUNDING) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)
