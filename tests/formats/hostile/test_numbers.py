"""Numbers that are no weights, and shapes that are no shapes."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import elmo
from bounded import assert_refused
from bridge import make_model
from elmo import formats
from elmo.embed.layers import Layers
from elmo.errors import ElmoError
from elmo.formats.hdf5 import open_hdf5
from elmo.formats.safetensors import map_arrays, read_arrays
from make_bilm_hdf5 import WEIGHTS_FILE, make_options, make_weights, write


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("name", ["char_embed", "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B", "softmax/b"])
def test_numbers_that_are_no_weights(value: float, name: str, tmp_path: Path) -> None:
    """One such number is enough, because it would spread to every vector."""
    options = make_options("softmax")
    weights = make_weights(options)
    weights[name].flat[3] = value
    assert_refused(write(tmp_path / "model", options, weights), WEIGHTS_FILE, f"'{name}'", "not a weight")


@pytest.mark.parametrize("layers", ["token", "top", "all"])
def test_weights_so_large_that_vectors_are_infinite(layers: Layers, tmp_path: Path) -> None:
    """Each number alone could be a weight. Only the products are infinite."""
    options = make_options()
    weights = {name: np.full_like(w, 9e8) if "CNN" in name else w for name, w in make_weights(options).items()}
    model = elmo.load(write(tmp_path / "model", options, weights))
    with pytest.raises(ElmoError, match=r"^the model's vectors are not finite: its weights are damaged"):
        model.embed([["A", "play"]], layers=layers)


def test_numbers_that_are_no_weights_in_our_own_files(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path / "native")
    path = tmp_path / "native" / "model.safetensors"
    tensors = load_file(path)
    tensors["forward_lstm.layers.0.bias"][2] = torch.nan
    save_file(tensors, path)
    assert_refused(tmp_path / "native", "model.safetensors", "'forward_lstm.layers.0.bias'", "not a weight")


def test_another_byte_order_is_read_where_the_file_tells_it(tmp_path: Path) -> None:
    """HDF5 declares the byte order with each data set."""
    options, weights = make_options(), make_weights(make_options())
    swapped = {name: array.astype(">f4") for name, array in weights.items()}
    source = write(tmp_path / "model", options, swapped)
    with h5py.File(source / WEIGHTS_FILE) as file:
        assert file["char_embed"].dtype.byteorder == ">"
    with open_hdf5(source / WEIGHTS_FILE) as stored:
        np.testing.assert_array_equal(stored["char_embed"].read(), weights["char_embed"])


def test_a_wrong_byte_order_is_noticed(tmp_path: Path) -> None:
    """Nothing says that the bytes are swapped, but the numbers have all magnitudes."""
    options, weights = make_options(), make_weights(make_options())
    swapped = {name: array.byteswap() for name, array in weights.items()}
    assert_refused(write(tmp_path / "model", options, swapped), WEIGHTS_FILE, "not a weight")


@pytest.mark.parametrize("shape", [[0, 1 << 63], [0, 1 << 40, 1 << 40], [1] * 70], ids=["long", "large", "deep"])
def test_shapes_that_no_array_can_have(shape: list[int], tmp_path: Path) -> None:
    """Tensors without numbers may be of any size in safetensors files."""
    path, num_bytes = tmp_path / "x.safetensors", 4 * int(0 not in shape)
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, num_bytes]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(num_bytes))
    for read in (read_arrays, map_arrays):
        with pytest.raises(ElmoError, match=r"x\.safetensors: tensor 'x' has a shape that no array can have"):
            read(path)
