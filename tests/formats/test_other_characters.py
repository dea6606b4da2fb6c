"""Models of other characters than UTF-8 bytes are refused, because their vectors would be wrong without a sign."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import make_allennlp
import make_nlpl
import make_tensorflow
from bridge import make_config
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats.native_files import CONFIG, WEIGHTS
from make_bilm_hdf5 import OPTIONS_FILE, Weights, make, make_options, make_weights, write
from refusing import assert_refused

OTHERS = [1, 260, 263, 600]
"""Numbers of rows that are stored: of a small alphabet, one too few and two too many for bytes, and code points."""


def weights_of(num_rows: int) -> Weights:
    """Return the usual weights with so many rows for characters, of which the first are the usual ones."""
    weights = make_weights(make_options())
    more = np.random.default_rng(7).standard_normal((num_rows, 4)).astype(np.float32)
    weights["char_embed"] = np.concatenate([weights["char_embed"], more])[:num_rows]
    return weights


def write_hdf5(folder: Path, num_rows: int, counted: int) -> Path:
    options = make_options()
    options["char_cnn"]["n_characters"] = counted
    return write(folder, options, weights_of(num_rows))


def write_nlpl(folder: Path, num_rows: int, counted: int) -> Path:
    path = write_hdf5(folder, num_rows, counted)
    (path / "lm_weights.hdf5").rename(path / "model.hdf5")
    (path / "meta.json").write_text(json.dumps(make_nlpl.make_meta()), encoding="utf-8")
    return make_nlpl.make_zip(folder.with_name("193.zip"), path)


def write_tensorflow(folder: Path, num_rows: int, counted: int) -> Path:
    options, weights, _ = make_tensorflow.make(folder)
    options["char_cnn"]["n_characters"] = counted
    (folder / OPTIONS_FILE).write_text(json.dumps(options), encoding="utf-8")
    arrays = {**weights, "char_embed": weights_of(num_rows)["char_embed"]}
    named = {make_tensorflow.name_in_training(name, options): array for name, array in arrays.items()}
    make_tensorflow.write_bundle(folder / make_tensorflow.PREFIX, named)
    return folder


def write_allennlp(folder: Path, num_rows: int, counted: int) -> Path:
    options = make_options()
    options["char_cnn"]["n_characters"] = counted
    state = make_allennlp.make_state_dict(weights_of(num_rows))
    return make_allennlp.make_archive(
        folder.with_name("model.tar.gz"), state, make_allennlp.make_config(), options if counted != 262 else None
    )


Write = Callable[[Path, int, int], Path]
PUBLISHED: list[Write] = [write_hdf5, write_nlpl, write_tensorflow, write_allennlp]


@pytest.mark.parametrize("num_rows", OTHERS)
@pytest.mark.parametrize("write_model", PUBLISHED, ids=lambda write: write.__name__)
def test_other_numbers_of_character_vectors(write_model: Write, num_rows: int, tmp_path: Path) -> None:
    """The number of vectors is checked even if the options say 262."""
    source = write_model(tmp_path / "model", num_rows, 262)
    assert_refused(source, "char_embed", f"({num_rows + (write_model is write_allennlp)}, 4)", "UTF-8 bytes")


@pytest.mark.parametrize("counted", OTHERS)
@pytest.mark.parametrize("write_model", PUBLISHED, ids=lambda write: write.__name__)
def test_options_with_other_numbers_of_characters(write_model: Write, counted: int, tmp_path: Path) -> None:
    """Such options are refused even if the file has the vectors of bytes, because they belong to another model then."""
    for num_rows in (261, counted):
        folder = tmp_path / str(num_rows)
        folder.mkdir()
        source = write_model(folder / "model", num_rows, counted)
        assert_refused(source, "options", "n_characters", str(counted), "UTF-8 bytes")


@pytest.mark.parametrize("write_model", PUBLISHED, ids=lambda write: write.__name__)
def test_a_training_that_counted_the_mask(write_model: Write, tmp_path: Path) -> None:
    """If options say 262 in training, the last row belongs to no character, and it can be left out."""
    for name in ("usual", "one-more"):
        (tmp_path / name).mkdir()
    usual = formats.load(write_model(tmp_path / "usual" / "model", 261, 262))
    found = formats.load(write_model(tmp_path / "one-more" / "model", 262, 262))
    assert found.config == usual.config
    assert torch.equal(found.bilm.char_encoder.embedding.weight, usual.bilm.char_encoder.embedding.weight)


@pytest.mark.parametrize("num_rows", OTHERS)
def test_native_folders_are_refused_by_number_and_by_shape(num_rows: int, tmp_path: Path) -> None:
    """Both the number in the settings and the shape of the tensor are checked."""
    folder = tmp_path / "native"
    formats.save_native(formats.load(make(tmp_path / "model")[0]), folder)
    tensors = load_file(folder / WEIGHTS)
    tensors["char_encoder.embedding.weight"] = torch.zeros(num_rows, 4)
    save_file(tensors, folder / WEIGHTS)
    assert_refused(folder, WEIGHTS, "'char_encoder.embedding.weight'", f"({num_rows}, 4)")
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    config["char_cnn"]["n_characters"] = num_rows
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    assert_refused(folder, CONFIG, "n_characters", str(num_rows), "UTF-8 bytes")


@pytest.mark.parametrize("num_rows", OTHERS)
def test_sizes_in_memory(num_rows: int) -> None:
    with pytest.raises(ElmoError, match=rf"n_characters: {num_rows} is neither 261 nor 262.*UTF-8 bytes"):
        dataclasses.replace(make_config().char_cnn, n_characters=num_rows)
    assert dataclasses.replace(make_config().char_cnn, n_characters=261).n_characters == 262
