"""Files of far more things than any model has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import make_tensorflow
from bounded import MEMORY, RESET, assert_refused, bounded_memory
from bridge import make_model
from elmo import formats
from make_bilm_hdf5 import WEIGHTS_FILE, make


@pytest.mark.skipif(not RESET.exists(), reason="only Linux tells the highest use of memory")
@pytest.mark.parametrize("take", [bytearray, lambda size: torch.ones(size // 4)], ids=["Python", "torch"])
def test_too_much_memory_is_noticed(take: Callable[[int], object]) -> None:
    """Memory of torch and HDF5 isn't Python's, which would be blind to the largest arrays."""
    with pytest.raises(AssertionError), bounded_memory():
        take(2 * MEMORY)


@pytest.mark.parametrize("rows", [1 << 20, 1 << 60])
def test_an_absurd_number_of_words(rows: int, folder: Path) -> None:
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        file.create_dataset("softmax/b", (rows,), "f4", chunks=(64,))
        file.create_dataset("softmax/W", (rows, 1 << 10), "f4", chunks=(64, 64))
    assert_refused(folder, WEIGHTS_FILE, "'softmax/")


def test_an_absurd_number_of_cached_vectors(folder: Path) -> None:
    with h5py.File(folder / "cached.hdf5", "w") as file:
        file.create_dataset("embedding", (1 << 23, 6), "f4", chunks=(1 << 10, 6))
    assert_refused(folder / "cached.hdf5", "'embedding'", "more than a file of this size can contain")


def test_an_absurd_alphabet(folder: Path) -> None:
    """No file could hold that many rows; the chunks hold only a few each."""
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (1 << 40, 4), "f4", chunks=(64, 4))
    assert_refused(folder, WEIGHTS_FILE, "'char_embed'", "1099511627776")


@pytest.mark.parametrize("padding", [0, 1 << 23], ids=["names", "space"])
def test_a_safetensors_file_of_very_many_tensors(padding: int, tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path / "native")
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"{number}": entry for number in range(20_000)}, separators=(",", ":")).encode()
    header += b" " * (padding + -len(header) % 8)
    path = tmp_path / "native" / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert_refused(tmp_path / "native", "model.safetensors", "more")


def test_very_many_scalar_mixes(tmp_path: Path) -> None:
    """Each takes a few bytes in the file but some thousand in memory."""
    model = make_model()
    formats.save_native(model, tmp_path / "native")
    count, layers = 100_000, model.config.num_layers
    flags = torch.zeros(count, dtype=torch.bool)
    tensors = {"scores": torch.zeros(count, layers), "gamma": torch.ones(count), "layer_norm": flags}
    save_file({**tensors, "top_only": flags.clone()}, tmp_path / "native" / "mixes.safetensors")
    assert_refused(tmp_path / "native", "mixes.safetensors", "100,000 scalar mixes are beyond any real model")


def test_a_word_list_of_far_more_words(tmp_path: Path) -> None:
    """The lines are counted before they become words."""
    source = make(tmp_path / "model", "softmax")[0]
    with (source / "vocab.txt").open("wb") as file:
        file.writelines(b"%d\n" % number for number in range(1_000_000))
    assert_refused(source, "vocab.txt", "1000000 words")


def test_a_checkpoint_of_very_many_variables(tmp_path: Path) -> None:
    make_tensorflow.make(tmp_path / "model")
    prefix = tmp_path / "model" / make_tensorflow.PREFIX
    make_tensorflow.write_bundle(prefix, {f"{number}": np.zeros(0, np.float32) for number in range(10_001)})
    assert_refused(tmp_path / "model", ".index", "more than 10,000 variables")
