from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmo import formats
from elmo.embed import Embedder, pool_tokens
from elmo.errors import ElmoError
from make_bilm_hdf5 import make

VECTORS = np.array([[1, 2, 3, 4], [5, -6, 7, 8], [0, 1, 2, 30]], dtype=np.float32)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [("mean", [2, -1, 4, 14]), ("max", [5, 2, 7, 30]), ("first-last", [0, 1, 3, 4])],
)
def test_pools_by_definition(pool, expected) -> None:
    """`first-last` takes the forward half (0, 1) of the last token and the backward half (3, 4) of the first."""
    np.testing.assert_array_equal(pool_tokens(VECTORS, pool), expected)
    stacked = pool_tokens(np.stack([VECTORS, -VECTORS]), pool)
    np.testing.assert_array_equal(stacked, [pool_tokens(VECTORS, pool), pool_tokens(-VECTORS, pool)])


def test_an_unknown_pool_is_refused() -> None:
    with pytest.raises(ElmoError, match="`pool`: 'sum' is none of mean, max, first-last"):
        pool_tokens(VECTORS, "sum")  # pyright: ignore[reportArgumentType]


def test_first_last_of_one_direction_is_the_last_token() -> None:
    np.testing.assert_array_equal(pool_tokens(VECTORS, "first-last", bidirectional=False), VECTORS[-1])


def test_mean_of_a_long_sentence_is_exact() -> None:
    """Summed in float32, the small numbers would be lost when added to the large ones."""
    vectors = np.tile(np.array([[4096.0], [-4096.0], [0.001]], dtype=np.float32), (2000, 1))
    assert pool_tokens(vectors, "mean")[0] == pytest.approx(0.001 / 3, rel=1e-6)


@pytest.mark.parametrize("pool", ["mean", "max", "first-last"])
@pytest.mark.parametrize("variant", ["base", "one_direction"])
def test_padding_is_never_counted(pool, variant: str, tmp_path: Path) -> None:
    """A short sentence is padded in a batch with a long one, but only its own tokens count. Without tokens: zeros."""
    embedder = Embedder(formats.load(make(tmp_path, variant)[0]))
    sentences = [["a"] * 20, ["b"], [], ["c", "d"]]
    bidirectional = variant == "base"
    for layers, shape in (("top", (embedder.width,)), ("all", (3, embedder.width))):
        pooled = embedder.embed(sentences, layers=layers, pool=pool, batch_size=4)
        assert [array.shape for array in pooled] == [shape] * 4
        assert not pooled[2].any()
        for array, tokens in zip(pooled, embedder.embed(sentences, layers=layers, batch_size=4), strict=True):
            np.testing.assert_array_equal(array, pool_tokens(tokens, pool, bidirectional=bidirectional))
