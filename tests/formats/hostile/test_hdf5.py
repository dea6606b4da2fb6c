"""HDF5 files that lead elsewhere or without end."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from bounded import MEMORY, assert_refused
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats.hdf5 import open_hdf5
from make_bilm_hdf5 import WEIGHTS_FILE, make_options, make_weights, write


@pytest.mark.parametrize("where", ["char_embed", "CNN/b_cnn_0", "softmax", "unused"])
@pytest.mark.parametrize("kind", ["soft", "external"])
def test_links_in_an_hdf5_file_are_not_followed(where: str, kind: str, folder: Path, tmp_path: Path) -> None:
    """A link could make the reader take another file of this machine for weights."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.zeros((261, 4), np.float32)
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        if where in file:
            del file[where]
        file[where] = h5py.SoftLink("/CNN") if kind == "soft" else h5py.ExternalLink("../secret.h5", "/x")
    assert_refused(folder, WEIGHTS_FILE, f"'{where}' is a link")


def test_groups_in_groups_without_end(folder: Path) -> None:
    """Looking up each group by its path takes time that grows with the square of the depth."""
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        group = file
        for _ in range(300):
            group = group.create_group("a")
    assert_refused(folder, WEIGHTS_FILE, "deeper than any model")


@pytest.mark.parametrize("kind", ["groups", "names"])
def test_an_hdf5_file_of_very_many_parts(kind: str, folder: Path) -> None:
    with h5py.File(folder / WEIGHTS_FILE, "a", libver="latest") as file:
        many = file.create_group("many")
        for number in range(4_100):
            if kind == "groups":
                many.create_group(str(number))
            else:
                many[str(number)] = file["char_embed"]
    assert_refused(folder, WEIGHTS_FILE, "contains more groups")


def test_numbers_that_lie_in_another_file(folder: Path, tmp_path: Path) -> None:
    """HDF5 can take raw bytes from any file."""
    (tmp_path / "secret").write_bytes(bytes(261 * 4 * 4))
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, 4), "f4", external=[(str(tmp_path / "secret"), 0, 261 * 4 * 4)])
    assert_refused(folder, WEIGHTS_FILE, "'char_embed'", "another file")


def test_a_data_set_put_together_from_other_files(folder: Path) -> None:
    layout = h5py.VirtualLayout((261, 4), "f4")
    layout[:] = h5py.VirtualSource("secret.h5", "x", shape=(261, 4))
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        file.create_virtual_dataset("char_embed", layout)
    assert_refused(folder, WEIGHTS_FILE, "'char_embed'", "another file")


def endless_data_set(file: h5py.File, name: str, source: Path) -> None:
    """Add a data set of no fixed length, for which HDF5 opens `source` when its shape is asked for."""
    layout = h5py.VirtualLayout((261, 4), "f4", maxshape=(None, 4))
    rows = slice(0, h5py.h5s.UNLIMITED)
    layout[rows, :] = h5py.VirtualSource(str(source), "x", shape=(261, 4), maxshape=(None, 4))[rows, :]
    file.create_virtual_dataset(name, layout)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_a_data_set_from_a_pipe_is_refused_at_once(folder: Path, tmp_path: Path) -> None:
    """Opening the pipe would never return, so this runs in a process that can be ended."""
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        endless_data_set(file, "char_embed", tmp_path / "pipe")
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        endless_data_set(file, "0", tmp_path / "pipe")
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["0"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/x")
    for path, name in ((folder, "char_embed"), (tmp_path / "virtual.h5", "0"), (tmp_path / "link.h5", "0")):
        found = subprocess.run(
            [sys.executable, "-m", "elmo", "info", path], capture_output=True, encoding="utf-8", timeout=60, check=False
        )
        assert found.returncode == 2
        assert f"data set '{name}'" in found.stderr
        assert "which is not opened" in found.stderr


def test_absurd_shapes_that_the_options_agree_with(tmp_path: Path) -> None:
    """A file of a few kilobytes can claim terabytes, in chunks that were never written."""
    options = make_options()
    weights = make_weights(options)
    options["lstm"].update(dim=1 << 19, projection_dim=1 << 18)
    options["char_cnn"].update(filters=[[1, 1 << 18]], n_highway=0)
    source = write(tmp_path / "model", options, {"char_embed": weights["char_embed"]})
    with h5py.File(source / WEIGHTS_FILE, "a") as file:
        file.create_dataset("CNN/W_cnn_0", (1, 1, 4, 1 << 18), "f4", chunks=(1, 1, 1, 64))
        file.create_dataset("CNN/b_cnn_0", (1 << 18,), "f4", chunks=(64,))
        for direction in (0, 1):
            for layer in (0, 1):
                cell = file.create_group(f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell")
                cell.create_dataset("W_0", (1 << 19, 1 << 21), "f4", chunks=(64, 64))
                cell.create_dataset("B", (1 << 21,), "f4", chunks=(64,))
                cell.create_dataset("W_P_0", (1 << 19, 1 << 18), "f4", chunks=(64, 64))
    assert_refused(source, WEIGHTS_FILE, "can't hold the")


def test_pieces_larger_than_their_data_set(folder: Path) -> None:
    """Reading three numbers would unpack a gigabyte."""
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["CNN/b_cnn_0"]
        file.create_dataset("CNN/b_cnn_0", (3,), "f4", chunks=(1 << 28,), maxshape=(None,), compression="gzip")
    assert_refused(folder, WEIGHTS_FILE, "'CNN/b_cnn_0'", "chunks")


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "fletcher32": True}])
def test_a_chunk_that_unpacks_to_more_than_its_shape(options: dict[str, bool], folder: Path) -> None:
    """HDF5 unpacks a chunk to its end, whatever its size should be."""
    with h5py.File(folder / WEIGHTS_FILE, "r+") as file:
        numbers = file["char_embed"][:]
        del file["char_embed"]
        file.create_dataset("char_embed", data=numbers, chunks=numbers.shape, compression="gzip", **options)
    assert formats.load(folder).origin
    with h5py.File(folder / WEIGHTS_FILE, "r+") as file:
        file["char_embed"].id.write_direct_chunk((0, 0), zlib.compress(bytes(4 * MEMORY)))
    assert_refused(folder, WEIGHTS_FILE, "'char_embed': the chunk at (0, 0) unpacks to more than its shape holds")


def test_chunks_that_were_never_written_are_zeros(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", (4, 3), "f4", chunks=(2, 3), compression="gzip")[:2] = 1
    with open_hdf5(tmp_path / "a.hdf5") as found:
        np.testing.assert_array_equal(found["x"].read(), [[1] * 3] * 2 + [[0] * 3] * 2)


def test_very_many_chunks_that_are_there(tmp_path: Path) -> None:
    """A file that is large enough for its chunks may have any number of them."""
    numbers = np.arange(10_001, dtype=np.float32)
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", data=numbers, chunks=(1,))
    with open_hdf5(tmp_path / "a.hdf5") as found:
        np.testing.assert_array_equal(found["x"].read(), numbers)


def test_a_checksum_that_is_compressed_with_its_chunk(tmp_path: Path) -> None:
    """h5py computes it behind the compression, but other programs may do so before, which makes the chunk longer."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((6,))
    plan.set_fletcher32()
    plan.set_deflate(4)
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        dataset = h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((6,)), plan)
        h5py.Dataset(dataset)[:] = np.arange(6)
    with open_hdf5(tmp_path / "a.hdf5") as found:
        np.testing.assert_array_equal(found["x"].read(), np.arange(6))


def test_chunks_with_a_rare_filter(tmp_path: Path) -> None:
    """Only for the usual filters is it known how much their data unpack to."""
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", data=np.arange(6), chunks=(6,), scaleoffset=4)
    with (
        open_hdf5(tmp_path / "a.hdf5") as found,
        pytest.raises(ElmoError, match="data set 'x': has a rare compression method; store it with gzip"),
    ):
        found["x"].read()


@pytest.mark.parametrize("lzf", [False, True])
def test_a_data_set_that_is_compressed_twice(lzf: bool, folder: Path) -> None:
    """The outer stage unpacks to little, but HDF5 unpacks the inner one to its end, too."""
    with h5py.File(folder / WEIGHTS_FILE, "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk(shape)
        if lzf:
            plan.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
        else:
            plan.set_deflate(9)
        plan.set_deflate(9)
        space = h5py.h5s.create_simple(shape)
        dataset = h5py.h5d.create(file.id, b"char_embed", h5py.h5t.IEEE_F32LE, space, plan)
        inner = zlib.compress(bytes(4 * MEMORY), 9)
        h5py.Dataset(dataset).id.write_direct_chunk((0, 0), zlib.compress(inner, 9))
    assert_refused(folder, WEIGHTS_FILE, "'char_embed': is compressed twice")


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_very_many_chunks_that_are_not_there(compression: str | None, tmp_path: Path) -> None:
    """They take no space in the file, but each is looked for, which took minutes."""
    with h5py.File(tmp_path / "vectors.hdf5", "w") as file:
        file.create_dataset("embedding", (1 << 24, 1), "f4", chunks=(1, 1), compression=compression)
    assert (tmp_path / "vectors.hdf5").stat().st_size < 10_000
    with (
        open_hdf5(tmp_path / "vectors.hdf5") as found,
        pytest.raises(ElmoError, match="more chunks than this file can"),
    ):
        found["embedding"].read()
