"""Token vectors that are stored with a model: what the file holds, when it is used, and how it is refused."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import elmo
from bridge import make_config, make_model
from comparing import count_calls
from elmo import formats
from elmo.embed.type_encoder import encode_types
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from elmo.formats import stored as stored_parts
from elmo.formats.files import versions
from elmo.formats.model import Model
from elmo.formats.native import save_types, save_warm_state
from elmo.formats.safetensors import AnyArray, checksum, read_arrays, write_arrays
from elmo.formats.stored_types import StoredTypes
from elmo.nn.bilm import BiLM
from refusing import assert_refused

WORDS = ["<S>", "</S>", "play", "a", "", "Fußball", "潮水", "pl", "players"]
Arrays = dict[str, AnyArray]


def store(folder: Path, storage: str = "float32", words: list[str] = WORDS) -> Model:
    """Write a model folder with the vectors of words; return the model as it was before."""
    model = make_model()
    formats.save_native(model, folder)
    save_types(encode_types(model, words, storage), folder)  # pyright: ignore[reportArgumentType]
    return model


def stored(folder: Path) -> StoredTypes:
    types = formats.load(folder).types
    assert types is not None
    return types


@pytest.mark.parametrize(("storage", "tolerance"), [("float32", 0), ("float16", 1e-3)])
def test_stored_vectors_are_found_by_their_words(storage: str, tolerance: float, tmp_path: Path) -> None:
    """Every stored word is found, in any order, and no other, not even the beginning of one."""
    model = store(tmp_path, storage)
    with torch.inference_mode():
        expected = model.bilm.token_encoder(torch.from_numpy(model.to_ids(WORDS))).numpy()
    types = stored(tmp_path)
    assert len(types) == len(WORDS)
    assert types.is_exact is (storage == "float32")
    words = ["play", "playe", "zzz", "\ud800", "\0", *reversed(WORDS)]
    found, unknown = types.read(words)
    assert unknown == [1, 2, 3, 4]
    np.testing.assert_allclose(found[0], expected[2], rtol=0, atol=tolerance + 1e-6)
    np.testing.assert_allclose(found[5:], expected[::-1], rtol=0, atol=tolerance + 1e-6)
    assert types.read([])[0].shape == (0, expected.shape[1])


def test_rounding_is_all_that_float16_changes(tmp_path: Path) -> None:
    store(tmp_path, "float32")
    exact = stored(tmp_path).read(WORDS)[0]
    store(tmp_path, "float16")
    rounded = stored(tmp_path).read(WORDS)[0]
    np.testing.assert_array_equal(rounded, exact.astype(np.float16))
    assert (rounded != exact).any()


def test_vectors_stay_on_the_disk(tmp_path: Path) -> None:
    store(tmp_path)
    base: object = stored(tmp_path).vectors
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)


def test_words_with_one_key() -> None:
    """ "plumless" and "buckeroo" have the same CRC-32."""
    words, vectors = ["a", "plumless", "buckeroo"], np.arange(6, dtype=np.float32).reshape(3, 2)
    types = StoredTypes.of(words, vectors, "", "float32")
    assert len(set(types.keys.tolist())) == 2
    np.testing.assert_array_equal(types.read(words)[0], vectors)
    assert StoredTypes.of(words[:2], vectors[:2], "", "float32").read(words)[1] == [2]


def test_no_word_at_all(tmp_path: Path) -> None:
    store(tmp_path, words=[])
    assert stored(tmp_path).read(["play"])[1] == [0]


@pytest.mark.parametrize("width", [6, 12])
def test_vectors_of_other_weights_are_left_out(width: int, tmp_path: Path) -> None:
    """Vectors of other weights stay in a folder if another model, perhaps of another width, is copied into it."""
    store(tmp_path / "model")
    torch.manual_seed(5)
    config = make_config("base")
    other = Model(BiLM(replace(config, lstm=replace(config.lstm, projection_dim=width))))
    formats.save_native(other, tmp_path / "other")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "other" / name).replace(tmp_path / "model" / name)
    loaded = formats.load(tmp_path / "model")
    assert loaded.types is None
    assert loaded.config == other.config


def test_vectors_of_a_model_that_is_trained_further_are_no_longer_used(tmp_path: Path) -> None:
    """If its weights have changed, a model no longer uses its stored vectors and is saved without them."""
    store(tmp_path / "model")
    model = formats.load(tmp_path / "model")
    assert model.current_types is model.types is not None
    torch.nn.init.normal_(model.bilm.forward_lstm.layers[0].bias)  # pyright: ignore
    assert model.current_types is None
    formats.save_native(model, tmp_path / "trained")
    assert not (tmp_path / "trained" / "types.safetensors").exists()


def test_the_weights_are_read_once_to_see_what_belongs_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever files a folder has, the checksum of its weights is computed once, since that takes time."""
    model = store(tmp_path)
    save_warm_state(mean_state(model, [["a", "play"]]), tmp_path, model.bilm)
    calls = count_calls(monkeypatch, stored_parts, "checksum_of_weights")
    loaded = formats.load(tmp_path)
    assert loaded.types is not None
    assert loaded.warm_arrays is not None
    assert len(calls) == 1


def test_vectors_are_saved_with_the_model_but_not_with_rounded_weights(tmp_path: Path) -> None:
    store(tmp_path / "model")
    model = formats.load(tmp_path / "model")
    formats.save_native(model, tmp_path / "copy")
    assert stored(tmp_path / "copy").checksum == stored(tmp_path / "model").checksum
    formats.save_native(model, tmp_path / "copy", storage="float16")
    assert not (tmp_path / "copy" / "types.safetensors").exists()
    with pytest.warns(UserWarning, match="no place for stored token vectors; they are left out"):
        formats.save_bilm(model, tmp_path / "published")


def test_a_file_that_holds_the_same_vectors_is_not_replaced(tmp_path: Path) -> None:
    """Where a mapped file can't be replaced, a model could not be saved to its own folder."""
    store(tmp_path / "model")
    path = tmp_path / "model" / "types.safetensors"
    before = versions([path])
    formats.save_native(formats.load(tmp_path / "model"), tmp_path / "model")
    assert versions([path]) == before
    store(tmp_path / "other")
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    formats.save_native(formats.load(tmp_path / "other"), tmp_path / "model")
    assert path.read_bytes() == data


def test_saving_a_model_without_stored_vectors_removes_those_in_its_folder(tmp_path: Path) -> None:
    formats.save_native(store(tmp_path), tmp_path)
    assert not (tmp_path / "types.safetensors").exists()


def test_a_model_from_an_archive_refers_to_no_file(tmp_path: Path) -> None:
    """What was unpacked is removed once the model is read."""
    store(tmp_path / "model")
    (tmp_path / "model" / "vocabulary.txt").touch()
    model = formats.load(shutil.make_archive(str(tmp_path / "model"), "zip", tmp_path / "model"))
    assert (model.types, model.vocabulary_file) == (None, None)


def test_numbers_too_large_for_float16_are_refused() -> None:
    with pytest.raises(ElmoError, match="do not fit into float16; use float32"):
        StoredTypes.of(["a"], np.full((1, 2), 1e6, np.float32), "", "float16")


# --- damage


def test_a_damaged_vector_is_refused_when_it_is_read(tmp_path: Path) -> None:
    """The vectors of other words can still be used."""
    store(tmp_path)
    path = tmp_path / "types.safetensors"
    data = bytearray(path.read_bytes())
    vector = stored(tmp_path).read(["players"])[0]
    data[bytes(data).index(vector.tobytes())] ^= 1
    path.write_bytes(data)
    model = elmo.load(tmp_path)
    model.embed([["play"]])
    with pytest.raises(ElmoError) as caught:
        model.embed([["play", "players"]])
    assert str(caught.value).startswith(f"{path}: damaged since it was written")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["keys", "words", "ends", "row_checksums"])
def test_a_damaged_index_is_refused(name: str, tmp_path: Path) -> None:
    store(tmp_path)
    path = tmp_path / "types.safetensors"
    arrays, metadata = read_arrays(path)
    arrays[name] = arrays[name].copy()
    arrays[name][1] ^= 1
    write_arrays(path, arrays, {name: text for name, text in metadata.items() if name != "format"})
    assert_refused(tmp_path, "types.safetensors: damaged since it was written")


def _reversed_ends(arrays: Arrays) -> Arrays:
    return arrays | {"ends": arrays["ends"][::-1].copy()}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda arrays: {"vectors": arrays["vectors"]},
            "the tensors vectors, keys, words, ends, row_checksums",
        ),
        (lambda arrays: arrays | {"more": arrays["ends"]}, "and nothing else"),
        (lambda arrays: arrays | {"ends": arrays["ends"].astype(np.int64)}, "has tensors of the types"),
        (lambda arrays: arrays | {"vectors": arrays["vectors"].astype(np.float64)}, "has tensors of the types"),
        (lambda arrays: arrays | {"vectors": arrays["vectors"][:, 1:]}, "tensor 'vectors' has shape"),
        (lambda arrays: arrays | {"vectors": arrays["vectors"][1:]}, "tensor 'vectors' has shape"),
        (lambda arrays: arrays | {"vectors": np.zeros((), np.float32)}, "must hold the tensors"),
        (lambda arrays: arrays | {"keys": np.append(arrays["keys"], arrays["keys"][-1:])}, "has shape"),
        (_reversed_ends, "the places where its words end"),
        (lambda arrays: arrays | {"words": arrays["words"][1:]}, "the places where its words end"),
    ],
)
def test_a_file_that_fits_nothing_is_refused(change: Callable[[Arrays], Arrays], says: str, tmp_path: Path) -> None:
    """The checksums are right, as in a file that a stranger has made on purpose."""
    store(tmp_path)
    path = tmp_path / "types.safetensors"
    arrays, metadata = read_arrays(path)
    arrays = change(arrays)
    index = {name: array for name, array in arrays.items() if name != "vectors"}
    facts = {"bilm": metadata["bilm"], "type": str(arrays["vectors"].dtype)}
    write_arrays(path, arrays, {"bilm": metadata["bilm"], "index": checksum(index, facts)})
    assert_refused(tmp_path, "types.safetensors: ", says)


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    store(tmp_path)
    path = tmp_path / "types.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    assert_refused(tmp_path, "types.safetensors: not a complete safetensors file")
