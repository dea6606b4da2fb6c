from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bridge import WORDS, layers_of, make_model
from elmo import formats
from elmo.formats import Model
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import (
    CHANGES,
    OPTIONS_FILE,
    WEIGHTS_FILE,
    Options,
    Weights,
    make,
    make_options,
    make_weights,
    read_weights,
    write,
)
from oracle import Oracle, encode_sentence
from refusing import assert_refused

SENTENCES = [["A", "play", "on", "words", "."], [], ["naïve", "日本語", "x" * 70, ""]]


def assert_matches(model: Model, options: Options, weights: Weights) -> None:
    """Check that the model's layers are the oracle's, up to float32 rounding of vectors of order 1."""
    oracle = Oracle(weights, options)
    for sentence in SENTENCES:
        ids = encode_sentence(sentence, options["char_cnn"]["max_characters_per_token"])
        np.testing.assert_allclose(layers_of(model, sentence), oracle.row(ids)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("variant", CHANGES)
def test_every_variant_loads_and_equals_the_oracle(variant: str, tmp_path: Path) -> None:
    folder, options, weights = make(tmp_path / "model", variant)
    model = formats.load(folder)
    assert_matches(model, options, weights)
    assert model.config.bidirectional == (variant != "one_direction")
    assert not model.bilm.char_encoder.embedding.weight[0].any()
    assert all(parameter.requires_grad for parameter in model.bilm.parameters())


def test_one_direction_is_seen_from_the_file_too(tmp_path: Path) -> None:
    """Published options for inference have no key `bidirectional`."""
    options = make_options("one_direction")
    weights = make_weights(options)
    inference = {key: value for key, value in options.items() if key != "bidirectional"}
    model = formats.load(write(tmp_path, inference, weights))
    assert not model.config.bidirectional
    assert_matches(model, options, weights)


@pytest.mark.parametrize("n_characters", [261, 262])
def test_the_tensor_decides_the_number_of_characters(n_characters: int, tmp_path: Path) -> None:
    """For the same 261 rows, options say 261 in training and 262 for inference, so that the tensor decides."""
    options = make_options()
    options["char_cnn"]["n_characters"] = n_characters
    model = formats.load(write(tmp_path, options, make_weights(options)))
    assert model.bilm.char_encoder.embedding.weight.shape == (262, 4)
    assert model.config.char_cnn.n_characters == 262


TENSORFLOW = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}


@pytest.mark.parametrize("num_layers", [1, 2])
def test_one_direction_as_bilm_tf_exports_it(num_layers: int, tmp_path: Path) -> None:
    """The export renames only what is below RNN_0 or RNN_1, which a single direction does not have."""
    options = make_options("one_direction")
    options["lstm"]["n_layers"] = num_layers
    weights = make_weights(options)
    exported: Weights = {}
    for name, array in weights.items():
        scope, _, tensor = name.rpartition("/")
        if scope.startswith("RNN_0/"):
            scope = scope.replace("RNN_0/RNN", "rnn")
            name = f"{scope.replace('MultiRNNCell/Cell0/', '') if num_layers == 1 else scope}/{TENSORFLOW[tensor]}"
        exported[name] = array
    assert any(name.startswith("rnn/") for name in exported)
    assert_matches(formats.load(write(tmp_path, options, exported)), options, weights)


def test_options_of_training_are_no_obstacle(tmp_path: Path) -> None:
    """The options of bilm-tf describe the whole training and hold keys that nobody reads."""
    options = {
        **make_options(),
        "bidirectional": True,
        "dropout": 0.1,
        "all_clip_norm_val": 10.0,
        "n_epochs": 10,
        "n_train_tokens": 768648884,
        "batch_size": 128,
        "n_tokens_vocab": 793471,
        "unroll_steps": 20,
        "n_negative_samples_batch": 8192,
        "something_new": None,
    }
    assert formats.load(write(tmp_path, options, make_weights(make_options()))).softmax is None


def test_other_number_types_are_read_as_float32(tmp_path: Path) -> None:
    options, weights = make_options(), make_weights(make_options())
    doubles = {name: array.astype(np.float64) for name, array in weights.items()}
    model = formats.load(write(tmp_path, options, doubles))
    assert all(parameter.dtype == torch.float32 for parameter in model.bilm.parameters())
    assert_matches(model, options, weights)


def test_softmax_and_vocabulary_are_read(tmp_path: Path) -> None:
    folder, _, weights = make(tmp_path / "model", "softmax")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    model = formats.load(folder)
    assert model.softmax is not None
    np.testing.assert_array_equal(model.softmax.weight.detach().numpy(), weights["softmax/W"])
    np.testing.assert_array_equal(model.softmax.bias.detach().numpy(), weights["softmax/b"])
    assert model.vocabulary is not None
    assert model.vocabulary.words == tuple(WORDS)


def test_words_in_another_order_take_their_rows_along(tmp_path: Path) -> None:
    """bilm-tf accepts any order and skips the line `!!!MAXTERMID`; in our lists the special words come first."""
    folder, _, weights = make(tmp_path / "model", "softmax")
    listed = [*WORDS[3:6], "</S>", *WORDS[6:9], "<S>", "<UNK>", *WORDS[9:]]
    (folder / "vocab.txt").write_text("\n".join([*listed[:4], "!!!MAXTERMID", *listed[4:]]), encoding="utf-8")
    model = formats.load(folder)
    assert model.vocabulary is not None
    assert model.vocabulary.words == tuple(WORDS)
    assert model.softmax is not None
    for word, row, bias in zip(listed, weights["softmax/W"], weights["softmax/b"], strict=True):
        number = model.vocabulary.id(word)
        np.testing.assert_array_equal(model.softmax.weight[number].detach().numpy(), row)
        assert model.softmax.bias[number].item() == bias


def test_origin_says_what_was_recognized(tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path / "model")
    assert WEIGHTS_FILE in formats.load(folder).origin
    assert OPTIONS_FILE in formats.load(folder).origin


@pytest.mark.parametrize("name", ["", OPTIONS_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("as_type", [str, Path])
def test_folder_weights_and_options_all_name_the_model(name: str, as_type: type, tmp_path: Path) -> None:
    folder, options, weights = make(tmp_path / "model")
    assert_matches(formats.load(as_type(folder / name)), options, weights)


def test_published_pairs_of_names_find_each_other(tmp_path: Path) -> None:
    """Published pairs are called …_weights.hdf5 and …_options.json, and a folder may hold several of them."""
    wanted = {}
    for number, variant in enumerate(["base", "tanh"]):
        folder, *wanted[variant] = make(tmp_path / variant, variant, seed=number)
        for file, ending in ((WEIGHTS_FILE, "weights.hdf5"), (OPTIONS_FILE, "options.json")):
            (folder / file).rename(tmp_path / f"elmo_{variant}_{ending}")
    for variant, (options, weights) in wanted.items():
        assert_matches(formats.load(tmp_path / f"elmo_{variant}_weights.hdf5"), options, weights)
        assert_matches(formats.load(tmp_path / f"elmo_{variant}_options.json"), options, weights)


PUBMED = "elmo_2x4096_512_2048cnn_2xhighway_options.json", "elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5"


def test_the_published_names_of_the_pubmed_model(tmp_path: Path) -> None:
    """Only the weights say "PubMed", so that the names are no pair."""
    options, weights = PUBMED
    make(tmp_path)
    (tmp_path / OPTIONS_FILE).rename(tmp_path / options)
    (tmp_path / WEIGHTS_FILE).rename(tmp_path / weights)
    for source in (tmp_path, tmp_path / weights, tmp_path / options):
        assert formats.load(source).origin.endswith(f"sizes from {options}")
    # Other weights next to them have the same options, if their names begin alike.
    shutil.copy(tmp_path / weights, tmp_path / weights.replace("_PubMed_only", ""))
    shutil.copy(tmp_path / options, tmp_path / OPTIONS_FILE)
    assert formats.load(tmp_path / weights).origin.endswith(f"sizes from {options}")


def test_the_only_options_belong_to_the_only_weights(tmp_path: Path) -> None:
    """If there are several weights, the options may be another model's, whose clips differ without a sign of it."""
    make(tmp_path)
    (tmp_path / OPTIONS_FILE).rename(tmp_path / "big_options.json")
    (tmp_path / WEIGHTS_FILE).rename(tmp_path / "model.hdf5")
    for name in ("._big_options.json", "._model.hdf5"):  # the metadata of macOS
        (tmp_path / name).write_bytes(b"\0")
    assert formats.load(tmp_path).origin.endswith("sizes from big_options.json")
    assert formats.load(tmp_path / "model.hdf5").origin.endswith("sizes from big_options.json")
    shutil.copy(tmp_path / "model.hdf5", tmp_path / "other.hdf5")
    assert_refused(tmp_path / "other.hdf5", "there is no options.json in the same folder")


def test_a_config_of_the_hub_next_to_published_files(tmp_path: Path) -> None:
    """Repositories of the Hub often have one, by which downloads are counted."""
    make(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "elmo"}', encoding="utf-8")
    assert formats.load(tmp_path).origin.startswith("bilm HDF5")
    (tmp_path / OPTIONS_FILE).unlink()
    assert_refused(tmp_path, "contains weights but no options.json")


def test_of_several_weights_those_of_a_published_name_are_read(tmp_path: Path) -> None:
    make(tmp_path)
    shutil.copy(tmp_path / WEIGHTS_FILE, tmp_path / "old.hdf5")
    assert formats.load(tmp_path).origin.startswith(f"bilm HDF5: {WEIGHTS_FILE} holds")
    (tmp_path / WEIGHTS_FILE).rename(tmp_path / "model.hdf5")
    assert formats.load(tmp_path).origin.startswith("bilm HDF5: model.hdf5 holds")


def test_vectors_in_the_folder_are_no_weights(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / WEIGHTS_FILE).rename(tmp_path / "big.hdf5")
    with h5py.File(tmp_path / "vectors.h5", "w") as file:
        file["0"] = np.zeros((3, 12))
    assert formats.load(tmp_path).origin.startswith("bilm HDF5: big.hdf5 holds")


def test_published_softmax_files_are_found_by_their_names(tmp_path: Path) -> None:
    """Published softmax files are called …_softmax_weights.hdf5, and a folder may hold several of them."""
    wanted: dict[str, np.ndarray] = {}
    for number, name in enumerate(("a", "b")):
        folder, _, weights = make(tmp_path / name, "softmax", seed=number)
        (folder / OPTIONS_FILE).rename(tmp_path / f"elmo_{name}_options.json")
        for part, ending in (("softmax", "softmax_weights"), ("", "weights")):
            with h5py.File(folder / WEIGHTS_FILE) as whole, h5py.File(tmp_path / f"{name}_x.hdf5", "w") as file:
                for group in whole:
                    if (group == "softmax") == bool(part):
                        whole.copy(group, file)
            (tmp_path / f"{name}_x.hdf5").rename(tmp_path / f"elmo_{name}_{ending}.hdf5")
        shutil.rmtree(folder)
        wanted[name] = weights["softmax/W"]
    for name, softmax in wanted.items():
        for ending in ("weights", "softmax_weights"):
            model = formats.load(tmp_path / f"elmo_{name}_{ending}.hdf5")
            assert model.softmax is not None
            np.testing.assert_array_equal(model.softmax.weight.detach().numpy(), softmax)


# --- writing


@pytest.mark.parametrize("variant", CHANGES)
def test_written_files_are_bit_equal_to_those_read(variant: str, tmp_path: Path) -> None:
    """Names, shapes and every bit are kept, both directly and by way of the native format."""
    folder, options, weights = make(tmp_path / "model", variant)
    if variant == "softmax":
        Vocabulary(WORDS).write(folder / "vocab.txt")
    formats.save_bilm(formats.load(folder), tmp_path / "straight")
    formats.save_native(formats.load(folder), tmp_path / "native")
    formats.save_bilm(formats.load(tmp_path / "native"), tmp_path / "round")
    for copy in ("straight", "round"):
        written = read_weights(tmp_path / copy / WEIGHTS_FILE)
        assert written.keys() == weights.keys()
        for name, array in weights.items():
            assert written[name].dtype == np.float32
            np.testing.assert_array_equal(written[name], array, err_msg=name)
        found = json.loads((tmp_path / copy / OPTIONS_FILE).read_text(encoding="utf-8"))
        assert found["lstm"] == options["lstm"]
        assert found["char_cnn"] == {**options["char_cnn"], "n_characters": 262}
        assert found["bidirectional"] == (variant != "one_direction")
        assert found.get("n_tokens_vocab") == options.get("n_tokens_vocab")
        assert_matches(formats.load(tmp_path / copy), options, weights)
    if variant == "softmax":
        assert Vocabulary.read(tmp_path / "round" / "vocab.txt").words == tuple(WORDS)


def test_a_softmax_without_vocabulary_survives_the_round_trip(tmp_path: Path) -> None:
    """A model must be readable again once it is written, in either format."""
    folder, _, weights = make(tmp_path / "model", "softmax")
    formats.save_native(formats.load(folder), tmp_path / "native")
    formats.save_bilm(formats.load(tmp_path / "native"), tmp_path / "round")
    np.testing.assert_array_equal(read_weights(tmp_path / "round" / WEIGHTS_FILE)["softmax/W"], weights["softmax/W"])


def test_written_options_are_those_of_the_published_readers(tmp_path: Path) -> None:
    """Written options hold every key that AllenNLP and bilm-tf look up without a default."""
    folder, _, _ = make(tmp_path / "model")
    formats.save_bilm(formats.load(folder), tmp_path / "copy")
    found = json.loads((tmp_path / "copy" / OPTIONS_FILE).read_text(encoding="utf-8"))
    assert found["lstm"].keys() >= {
        "dim",
        "projection_dim",
        "n_layers",
        "cell_clip",
        "proj_clip",
        "use_skip_connections",
    }
    assert found["char_cnn"].keys() >= {
        "activation",
        "embedding",
        "filters",
        "max_characters_per_token",
        "n_characters",
        "n_highway",
    }
    with h5py.File(tmp_path / "copy" / WEIGHTS_FILE) as file:
        assert all(dataset.compression is None for dataset in (file["char_embed"], file["CNN_proj/W_proj"]))


def test_a_folder_whose_weights_end_in_h5(tmp_path: Path) -> None:
    make(tmp_path)
    expected = formats.load(tmp_path).bilm.state_dict()
    weights = tmp_path / WEIGHTS_FILE
    weights.rename(weights.with_suffix(".h5"))
    for name, tensor in formats.load(tmp_path).bilm.state_dict().items():
        assert torch.equal(tensor, expected[name])


def test_saving_over_a_model_removes_its_words(tmp_path: Path) -> None:
    """They would be taken for those of the new weights."""
    formats.save_bilm(make_model(softmax=True), tmp_path)
    assert (tmp_path / "vocab.txt").exists()
    formats.save_bilm(make_model("three_layers"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([WEIGHTS_FILE, OPTIONS_FILE])


def test_a_softmax_next_to_two_models_belongs_to_neither(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        folder = make(tmp_path / name, "softmax", seed=number)[0]
        (folder / OPTIONS_FILE).rename(tmp_path / f"{name}_options.json")
        with h5py.File(folder / WEIGHTS_FILE) as whole, h5py.File(tmp_path / f"{name}_weights.hdf5", "w") as file:
            for group in {*whole} - {"softmax"}:
                whole.copy(group, file)
    with h5py.File(tmp_path / "b" / WEIGHTS_FILE) as whole, h5py.File(tmp_path / "probabilities.hdf5", "w") as file:
        whole.copy("softmax", file)
    assert formats.load(tmp_path / "a_weights.hdf5").softmax is None
    assert_refused(tmp_path / "probabilities.hdf5", "contains only 'softmax'", "found a_weights.hdf5, b_weights.hdf5")
    (tmp_path / "a_weights.hdf5").unlink()
    assert formats.load(tmp_path / "b_weights.hdf5").softmax is not None
