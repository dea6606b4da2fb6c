"""A bad model is refused with one sentence that names the file, and the key or data set if there is one."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bridge import WORDS, assert_equal, make_model
from elmo import formats
from elmo.embed.embedder import lasting_source
from elmo.errors import ElmoError
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import CHANGES, OPTIONS_FILE, WEIGHTS_FILE, make, make_options, make_weights, write
from refusing import assert_refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a sound model, to be damaged."""
    return make(tmp_path / "model")[0]


def change(folder: Path, **changes: Any) -> None:
    """Set keys of the options: `lstm__dim=3` sets lstm.dim, and None removes a key."""
    options = json.loads((folder / OPTIONS_FILE).read_text(encoding="utf-8"))
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        inner = options
        for parent in parents:
            inner = inner[parent]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    (folder / OPTIONS_FILE).write_text(json.dumps(options), encoding="utf-8")


# --- what isn't there


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert_refused(tmp_path / "nowhere", "nowhere", "no such file")


@pytest.mark.parametrize(
    "name", ["x" * 300, "x" * 300 + ".hdf5", "They saw a new play . " * 20, "a\0b"], ids=lambda name: ascii(name[:9])
)
def test_a_name_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    """A text in place of its file is such a name."""
    assert_refused(tmp_path / name, "no such file or folder")
    with pytest.raises(ElmoError, match=r": no such file or folder$"):
        formats.load(name)
    assert lasting_source(name) == name


def test_an_empty_name(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As a path it would be that of the current folder, which may hold a model."""
    monkeypatch.chdir(folder)
    with pytest.raises(ElmoError, match="the name of the model is empty; is it a variable that is not set"):
        formats.load("")
    assert OPTIONS_FILE in formats.load(".").origin


def test_an_empty_folder(tmp_path: Path) -> None:
    assert_refused(tmp_path, str(tmp_path), "no model")


def test_weights_without_options(folder: Path) -> None:
    (folder / OPTIONS_FILE).unlink()
    assert_refused(folder, str(folder), OPTIONS_FILE)
    assert_refused(folder / WEIGHTS_FILE, WEIGHTS_FILE, OPTIONS_FILE)


def test_options_without_weights(folder: Path) -> None:
    (folder / WEIGHTS_FILE).unlink()
    assert_refused(folder, str(folder), ".hdf5")
    assert_refused(folder / OPTIONS_FILE, str(folder), ".hdf5")


def test_a_folder_of_several_weights(folder: Path) -> None:
    (folder / "other_weights.hdf5").write_bytes((folder / WEIGHTS_FILE).read_bytes())
    assert_refused(folder, WEIGHTS_FILE, "other_weights.hdf5")


# --- files of another kind, and damaged ones


@pytest.mark.parametrize("kind", ["text", "zip", "empty"])
def test_weights_of_another_kind(kind: str, folder: Path) -> None:
    path = folder / WEIGHTS_FILE
    path.unlink()
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model.hdf5", b"x" * 1000)
    else:
        path.write_text("I am a text.\n" * 100 if kind == "text" else "", encoding="utf-8")
    assert_refused(path, WEIGHTS_FILE, "not an HDF5 file")
    assert_refused(folder, WEIGHTS_FILE, "not an HDF5 file")


@pytest.mark.parametrize("name", ["model.bin", "model.zip", "model.txt", "no_ending"])
def test_a_file_that_is_no_model(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x80\x00 no model")
    assert_refused(tmp_path / name, name, "not a model")


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 0.9999])
def test_truncated_weights(share: float, folder: Path) -> None:
    """A broken download may leave any part of the file."""
    path = folder / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert_refused(folder, f"{WEIGHTS_FILE}: a truncated HDF5 file (")


def test_weights_that_the_program_has_open(folder: Path) -> None:
    """HDF5 refuses to open a file with locks and without; the file is whole."""
    with h5py.File(folder / WEIGHTS_FILE, "r", locking=True):
        assert_refused(folder, f"{WEIGHTS_FILE}: is open in this program already; close it first")
    formats.load(folder)


def test_weights_that_may_not_be_read_are_not_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(h5py, "File", refuse)
    for source in (folder, folder / WEIGHTS_FILE):
        with pytest.raises(PermissionError):
            formats.load(source)


@pytest.mark.parametrize("mark", [b"HEAP", b"SNOD", b"TREE"])
def test_damaged_weights(mark: bytes, folder: Path) -> None:
    """The file has its full size, but its tables are broken, which h5py reports in many ways and `load` in one."""
    path = folder / WEIGHTS_FILE
    data = path.read_bytes()
    assert mark in data
    path.write_bytes(data.replace(mark, bytes(4)))
    assert_refused(folder, WEIGHTS_FILE)


def test_an_hdf5_file_of_something_else(folder: Path) -> None:
    with h5py.File(folder / WEIGHTS_FILE, "w") as file:
        file["0"] = np.zeros((3, 4, 12))
    assert_refused(folder, WEIGHTS_FILE, "'char_embed'")


def test_a_group_in_place_of_a_data_set(folder: Path) -> None:
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["CNN_proj/W_proj"]
        file.create_group("CNN_proj/W_proj")
    assert_refused(folder, WEIGHTS_FILE, "'CNN_proj/W_proj'")


def test_options_that_are_no_text(folder: Path) -> None:
    (folder / OPTIONS_FILE).write_bytes(b"\x89HDF\xff\xfe")
    assert_refused(folder, OPTIONS_FILE, "not valid JSON")


# --- what does not fit


@pytest.mark.parametrize("name", make_weights(make_options("softmax")))
def test_a_missing_data_set(name: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "model", "softmax")[0]
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file[name]
    assert_refused(folder, WEIGHTS_FILE, f"'{name}'", "missing")


@pytest.mark.parametrize("name", [name for name in make_weights(make_options("softmax")) if name != "softmax/b"])
def test_a_data_set_of_wrong_shape(name: str, tmp_path: Path) -> None:
    """The data set has one column or one dimension more than the options ask for."""
    options = make_options("softmax")
    weights = make_weights(options)
    array = weights[name]
    for number, wrong in enumerate([np.concatenate([array, array[..., :1]], axis=-1), array[None]]):
        folder = write(tmp_path / str(number), options, {**weights, name: wrong})
        assert_refused(folder, WEIGHTS_FILE, f"'{name}'")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"lstm__n_layers": 3}, [WEIGHTS_FILE, "RNN_0/RNN/MultiRNNCell/Cell2/LSTMCell/W_0", "missing"]),
        ({"lstm__n_layers": 1}, [WEIGHTS_FILE, "RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/", "options"]),
        ({"lstm__dim": 13}, [WEIGHTS_FILE, "Cell0/LSTMCell/", "(12, 48)", "(12, 52)"]),
        ({"lstm__projection_dim": 5}, [WEIGHTS_FILE, "shape", "options"]),
        ({"char_cnn__n_highway": 1}, [WEIGHTS_FILE, "CNN_high_1/", "options"]),
        ({"char_cnn__n_highway": 3}, [WEIGHTS_FILE, "CNN_high_2/", "missing"]),
        ({"char_cnn__embedding__dim": 5}, [WEIGHTS_FILE, "'char_embed'", "(261, 4)", "(261, 5)"]),
        ({"char_cnn__filters": [[1, 3], [2, 4]]}, [WEIGHTS_FILE, "CNN/", "options"]),
        ({"char_cnn__filters": [[1, 3], [2, 4], [3, 5], [4, 6]]}, [WEIGHTS_FILE, "CNN/", "3", "missing"]),
        ({"char_cnn__filters": [[1, 3], [2, 4], [3, 6]]}, [WEIGHTS_FILE, "CNN"]),
        ({"char_cnn__filters": [[1, 3], [2, 4], [4, 5]]}, [WEIGHTS_FILE, "'CNN/W_cnn_2'", "(1, 3, 4, 5)"]),
        ({"bidirectional": False}, [WEIGHTS_FILE, "RNN_1/", "options"]),
        ({"char_cnn__activation": "gelu"}, [OPTIONS_FILE, "char_cnn", "activation", "'gelu'"]),
        ({"char_cnn__filters": []}, [OPTIONS_FILE, "char_cnn", "filters"]),
        ({"char_cnn__filters": [[1, 3, 5]]}, [OPTIONS_FILE, "char_cnn", "filters"]),
        ({"char_cnn__filters": [[0, 3]]}, [OPTIONS_FILE, "char_cnn", "filters"]),
        ({"char_cnn__filters": "all"}, [OPTIONS_FILE, "char_cnn", "filters", "'all'"]),
        ({"char_cnn__n_highway": -1}, [OPTIONS_FILE, "char_cnn", "n_highway", "-1"]),
        ({"char_cnn__max_characters_per_token": 2}, [OPTIONS_FILE, "char_cnn", "max_characters_per_token"]),
        ({"char_cnn__embedding": 4}, [OPTIONS_FILE, "char_cnn", "embedding"]),
        ({"char_cnn__embedding__dim": 0}, [OPTIONS_FILE, "char_cnn", "embedding", "dim"]),
        ({"lstm__dim": "12"}, [OPTIONS_FILE, "lstm", "dim", "'12'"]),
        ({"lstm__dim": 0}, [OPTIONS_FILE, "lstm", "dim"]),
        ({"lstm__dim": 4}, [OPTIONS_FILE, "lstm", "projection_dim"]),
        ({"lstm__cell_clip": "3"}, [OPTIONS_FILE, "lstm", "cell_clip"]),
        ({"lstm__cell_clip": -3}, [OPTIONS_FILE, "lstm", "cell_clip", "-3"]),
        ({"lstm__use_skip_connections": "yes"}, [OPTIONS_FILE, "lstm", "use_skip_connections"]),
        ({"lstm__dim": None}, [OPTIONS_FILE, "lstm", "'dim'", "missing"]),
        ({"lstm": None}, [OPTIONS_FILE, "'lstm'", "missing"]),
        ({"lstm": [1, 2]}, [OPTIONS_FILE, "lstm"]),
        ({"char_cnn": None}, [OPTIONS_FILE, "'char_cnn'", "missing"]),
        ({"char_cnn__embedding": None}, [OPTIONS_FILE, "char_cnn", "'embedding'", "missing"]),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_options_that_contradict_the_file_or_make_no_sense(
    changes: dict[str, Any], parts: list[str], folder: Path
) -> None:
    change(folder, **changes)
    assert_refused(folder, *parts)


def test_null_highways_are_none(tmp_path: Path) -> None:
    """bilm-tf takes null and 0 for the same."""
    folder = make(tmp_path / "model", "no_highway")[0]
    options = json.loads((folder / OPTIONS_FILE).read_text())
    options["char_cnn"]["n_highway"] = None
    (folder / OPTIONS_FILE).write_text(json.dumps(options))
    assert formats.load(folder).config.char_cnn.n_highway == 0


def test_options_of_another_name(folder: Path) -> None:
    (folder / OPTIONS_FILE).rename(folder / "settings.json")
    assert_refused(folder, "contains weights but no options.json", "rename them to options.json")
    assert_refused(folder / WEIGHTS_FILE, "there is no options.json", "rename the options to options.json")


@pytest.mark.parametrize("text", ["[]", "3", '"options"', "null"])
def test_options_that_are_no_mapping(text: str, folder: Path) -> None:
    (folder / OPTIONS_FILE).write_text(text, encoding="utf-8")
    assert_refused(folder, OPTIONS_FILE)


@pytest.mark.parametrize("array", [np.array(["a"] * 16, dtype="S4").reshape(1, 1, 4, 4), np.zeros((3, 1, 1, 1))])
def test_data_that_are_no_numbers_of_this_shape(array: np.ndarray, folder: Path) -> None:
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["CNN/W_cnn_0"]
        file["CNN/W_cnn_0"] = array
    assert_refused(folder, WEIGHTS_FILE, "'CNN/W_cnn_0'")


def test_text_in_place_of_numbers(folder: Path) -> None:
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["CNN/b_cnn_0"]
        file["CNN/b_cnn_0"] = np.array([b"a", b"b", b"c"])
    assert_refused(folder, WEIGHTS_FILE, "'CNN/b_cnn_0'")


def test_a_vocabulary_of_another_length_than_the_softmax(tmp_path: Path) -> None:
    """With such a vocabulary, words would get the scores of other words."""
    folder = make(tmp_path / "model", "softmax")[0]
    Vocabulary(WORDS[:-1]).write(folder / "vocab.txt")
    assert_refused(folder, "vocab.txt", "16", "17")


def test_a_vocabulary_without_a_special_word(tmp_path: Path) -> None:
    folder = make(tmp_path / "model", "softmax")[0]
    (folder / "vocab.txt").write_text("\n".join(["a" if word == "<UNK>" else word for word in WORDS]), encoding="utf-8")
    assert_refused(folder, "vocab.txt", "<UNK> is missing")


# --- native folders


@pytest.fixture
def native(tmp_path: Path) -> Path:
    formats.save_native(make_model(softmax=True), tmp_path / "native")
    return tmp_path / "native"


@pytest.mark.parametrize("name", ["model.safetensors", "softmax.safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_safetensors(name: str, share: float, native: Path) -> None:
    path = native / name
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert_refused(native, name)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file(name: str, native: Path) -> None:
    (native / name).unlink()
    assert_refused(native, name if name != "config.json" else str(native))


def edit(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_a_missing_tensor(native: Path) -> None:
    edit(native / "model.safetensors", lambda tensors: tensors.pop("forward_lstm.layers.1.bias"))
    assert_refused(native, "model.safetensors", "'forward_lstm.layers.1.bias'", "missing")


def test_a_tensor_of_wrong_shape(native: Path) -> None:
    edit(native / "softmax.safetensors", lambda tensors: tensors.update(weight=torch.zeros(3, 6)))
    assert_refused(native, "softmax.safetensors", "'weight'", "(3, 6)", "(17, 6)")


def test_a_tensor_too_many(native: Path) -> None:
    edit(native / "model.safetensors", lambda tensors: tensors.update(extra=torch.zeros(1)))
    assert_refused(native, "model.safetensors", "'extra'")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ["line 1", "not valid JSON"]),
        ("[]", ["mapping"]),
        ('{"lstm": {}}', ["'char_cnn'", "missing"]),
    ],
)
def test_a_bad_config(text: str, parts: list[str], native: Path) -> None:
    (native / "config.json").write_text(text, encoding="utf-8")
    assert_refused(native, "config.json", *parts)


def test_a_config_with_an_unknown_key(native: Path) -> None:
    """A misspelt key in our own files must not go unnoticed."""
    config = json.loads((native / "config.json").read_text(encoding="utf-8"))
    config["lstm"]["cel_clip"] = 3
    (native / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert_refused(native, "config.json", "lstm", "'cel_clip'")


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"oov_rate": -5}, ["oov_rate: -5", "from 0 to 1"]),
        ({"oov_rate": 1.5}, ["oov_rate: 1.5", "from 0 to 1"]),
        ({"text": "nonsense"}, ["text: 'nonsense'", "wrapped"]),
    ],
    ids=str,
)
def test_a_text_that_makes_no_sense(values: dict[str, Any], parts: list[str], native: Path) -> None:
    """With a negative rate, every command that reads text would fail to compute a square root."""
    config = json.loads((native / "config.json").read_text(encoding="utf-8"))
    (native / "config.json").write_text(json.dumps({**config, "text": values}), encoding="utf-8")
    assert_refused(native, "config.json", *parts)


# --- failed saves


class BrokenVocabulary(Vocabulary):
    """Writes half of its words, then fails as on a full disk."""

    def write(self, path: Path | str) -> None:
        Path(path).write_text("<S>\n", encoding="utf-8")
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("save", [formats.save_native, formats.save_bilm])
def test_a_failed_save_leaves_what_was_there(save: Callable[..., None], tmp_path: Path) -> None:
    """A new folder stays without files, and an older model stays whole, bit by bit."""
    old, new = make_model(softmax=True), make_model("three_layers", softmax=True)
    new.vocabulary = BrokenVocabulary(WORDS)
    with pytest.raises(OSError, match="No space left"):
        save(new, tmp_path / "new")
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())
    save(old, tmp_path / "old")
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    with pytest.raises(OSError, match="No space left"):
        save(new, tmp_path / "old")
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before
    assert_equal(formats.load(tmp_path / "old").bilm, old.bilm)


@pytest.mark.parametrize("variant", CHANGES)
def test_sound_models_are_not_refused(variant: str, tmp_path: Path) -> None:
    """Sound models load, so that the models of the tests above are refused only because they are damaged."""
    formats.load(make(tmp_path / "model", variant)[0])
