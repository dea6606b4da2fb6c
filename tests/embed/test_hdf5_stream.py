"""h5py can read and change HDF5 files that are written without the HDF5 library."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmo.embed.hdf5_stream import DATA_START, INTERNAL_K, LEAF_K, describe_data_sets

LEAF, TREE = 2 * LEAF_K, 2 * INTERNAL_K


def write(path: Path, arrays: list[np.ndarray], name: str = "") -> None:
    with path.open("w+b") as file:
        file.write(bytes(DATA_START) + b"".join(array.tobytes() for array in arrays))
        describe_data_sets(
            file, (array.shape for array in arrays), len(arrays), arrays[0].dtype if arrays else np.dtype("f4"), name
        )


@pytest.mark.parametrize(
    ("count", "dtype"),
    [
        *((count, dtype) for count in (0, 1, 2, 10, 11, LEAF, LEAF + 1, 1001) for dtype in ("float16", "float32")),
        (LEAF * TREE, "float16"),
        (LEAF * TREE + 1, "float32"),
    ],
)
def test_the_library_finds_every_data_set(tmp_path: Path, count: int, dtype: str) -> None:
    """The counts lie around those at which new nodes and levels of the directory begin; some arrays are empty."""
    generator = np.random.default_rng(count)
    arrays = [generator.random((2, length, 3)).astype(dtype) for length in generator.integers(0, 4, count)]
    write(tmp_path / "a.h5", arrays)
    with h5py.File(tmp_path / "a.h5") as file:
        assert list(file) == sorted(map(str, range(count)))
        assert not any(name in file for name in ("-1", str(count), "", "sentence"))
        for number, array in enumerate(arrays):
            found = file[str(number)]
            assert (found.shape, found.dtype) == (array.shape, dtype)
            np.testing.assert_array_equal(found[...], array)


def test_the_library_adds_and_removes_as_it_likes(tmp_path: Path) -> None:
    """Adding and removing splits and merges nodes of the directory, which would fail if one of them were wrong."""
    count = 3 * LEAF * 10
    write(tmp_path / "a.h5", [np.full((2, 3), number, np.float32) for number in range(count)])
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        for number in range(0, count, 2):
            del file[str(number)]
        for number in range(count):
            file[f"{number} more"] = np.full(2, number)
    with h5py.File(tmp_path / "a.h5") as file:
        assert len(file) == count // 2 + count
        assert [file[str(number)][0, 0] for number in range(1, count, 2)] == list(range(1, count, 2))
        assert [file[f"{number} more"][0] for number in range(count)] == list(range(count))


@pytest.mark.parametrize("shape", [(0, 5), (4, 5), (4, 2, 5)])
def test_a_single_data_set_has_a_name_of_its_own(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    write(tmp_path / "a.h5", [array], "sentence_vectors")
    assert b"sentence_vectors\0" in (tmp_path / "a.h5").read_bytes(), "the library may do without the zero"
    with h5py.File(tmp_path / "a.h5") as file:
        assert list(file) == ["sentence_vectors"]
        np.testing.assert_array_equal(file["sentence_vectors"][...], array)


def test_leaves_of_the_directory_know_their_neighbors() -> None:
    """The library needs neither their addresses nor the name at which a leaf begins. Other readers may use them."""
    count = LEAF * TREE + 1
    file = io.BytesIO(bytes(DATA_START + 4 * count))
    file.seek(0, io.SEEK_END)
    describe_data_sets(file, iter([(1, 1)] * count), count, np.dtype("float32"), "")
    data = file.getvalue()
    one, two = [found.start() for found in re.finditer(b"TREE\x00\x00", data)]  # 0 is the level of leaves
    links = [struct.unpack_from("<QQ", data, place + 8) for place in (one, two)]
    nowhere = 2**64 - 1
    assert links == [(nowhere, two), (one, nowhere)]
    last, first = (struct.unpack_from("<Q", data, place)[0] for place in (one + 24 + 16 * TREE, two + 24))
    assert last == first > 0, "the second leaf begins with the name at which the first one ends"
