"""`Embedder` has the calls, layers and attributes of ELMoForManyLangs, without its dependence on chance."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import elmo
import make_bilm_hdf5
import make_many_langs
from elmo.errors import ElmoError
from elmo.integrations.many_langs import Embedder
from oracle import Oracle, encode_sentence

SENTENCES = [["play", "of", "日本"], [], ["naïve"], ["filter", "\u3000", "of", "play", "zebra"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zht.model")
    make_many_langs.make(folder)
    return folder


def test_every_output_layer_is_that_of_the_equations(tmp_path: Path) -> None:
    """The model reads bytes, as the oracle does; 1e-5 is float32 rounding through all layers."""
    folder, options, weights = make_bilm_hdf5.make(tmp_path)
    oracle, embedder = Oracle(weights, options), Embedder(folder)
    layers = [oracle.row(encode_sentence(sentence))[0][:, 1:-1] for sentence in SENTENCES]
    for output_layer in (0, 1, 2, -1, -2):
        found = embedder.sents2elmo(SENTENCES, output_layer)
        for got, every in zip(found, layers, strict=True):
            wanted = {-1: every.mean(axis=0), -2: every}.get(output_layer)
            wanted = every[output_layer] if wanted is None else wanted
            assert got.dtype == np.float32
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=0)
    assert embedder.char_lexicon is None
    assert embedder.word_lexicon is None
    assert embedder.config["token_embedder"]["word_dim"] == 0


def test_its_own_folders_give_what_elmo_load_gives(folder: Path) -> None:
    """`elmo.load` is tested against the published computation elsewhere. The default is the mean of the layers."""
    wanted = elmo.load(folder).embed(SENTENCES, batch_size=64)
    for found in (Embedder(folder).sents2elmo(SENTENCES), Embedder(str(folder), batch_size=64).sents2elmo(SENTENCES)):
        assert [array.shape for array in found] == [(3, 12), (0, 12), (1, 12), (5, 12)]
        for got, array in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, array)


def test_neither_batch_nor_earlier_calls_matter(folder: Path) -> None:
    """In ELMoForManyLangs both did. 2e-6 is the rounding of products of other shapes."""
    embedder = Embedder(folder, batch_size=64)
    whole = embedder.sents2elmo(SENTENCES, -2)
    embedder.batch_size = 1
    for got, array in zip(embedder.sents2elmo(SENTENCES, -2), whole, strict=True):
        np.testing.assert_allclose(got, array, atol=2e-6, rtol=0)
    for got, sentence in zip(whole, SENTENCES, strict=True):
        np.testing.assert_allclose(embedder.sents2elmo([sentence], -2)[0], got, atol=2e-6, rtol=0)


def test_it_can_be_pickled(folder: Path) -> None:
    embedder = Embedder(folder)
    again = pickle.loads(pickle.dumps(embedder))
    np.testing.assert_array_equal(again.sents2elmo([["play"]])[0], embedder.sents2elmo([["play"]])[0])
    assert again.word_lexicon == embedder.word_lexicon


def test_the_attributes_that_programs_read(folder: Path) -> None:
    """Programs take the width from `config`, and look words up in the lexicons."""
    embedder = Embedder(folder, 16)
    assert (embedder.model_dir, embedder.batch_size) == (folder, 16)
    assert isinstance(embedder.use_cuda, bool)
    sizes = make_many_langs.make_config(make_bilm_hdf5.make_options())
    for part in ("encoder", "token_embedder"):
        found = embedder.config[part]
        assert {key: found[key] for key in sizes[part]} == sizes[part]
    assert embedder.sents2elmo([["of"]])[0].shape[1] == 2 * embedder.config["encoder"]["projection_dim"]
    assert embedder.char_lexicon is not None
    assert embedder.char_lexicon["<bow>"] == 4
    assert embedder.word_lexicon == {word: number for number, word in enumerate(make_many_langs.WORDS)}


def test_a_model_of_characters_alone_has_no_words(tmp_path: Path) -> None:
    make_many_langs.make(tmp_path, word_dim=0)
    embedder = Embedder(tmp_path)
    assert embedder.char_lexicon
    assert embedder.word_lexicon is None
    assert embedder.config["token_embedder"]["word_dim"] == 0


def test_errors_of_bad_arguments(folder: Path, tmp_path: Path) -> None:
    embedder = Embedder(folder)
    assert embedder.sents2elmo([]) == []
    for path, batch_size, sentences, layer, says in (
        (folder, 64, SENTENCES, 3, "^`output_layer`: there is no layer 3; this model has layers 0 to 2"),
        (folder, 64, SENTENCES, -3, "there is no layer -3; this model has layers 0 to 2"),
        (folder, 64, SENTENCES, -4, "there is no layer -4; this model has layers 0 to 2"),
        (folder, 64, SENTENCES, "-1", "^`output_layer`: expected a whole number, found '-1'"),
        (folder, 64, SENTENCES, None, "^`output_layer`: expected a whole number, found None"),
        (folder, 64, SENTENCES, [0, -1], r"^`output_layer`: expected a whole number, found \[0, -1\]"),
        (folder, 64, [["play"], "今天天氣真好"], -1, "sentence 1: expected a list of tokens, found a string"),
        (folder, 0, SENTENCES, -1, "`batch_size`: 0"),
        (tmp_path / "nothing", 64, SENTENCES, -1, "nothing: no such file or folder"),
    ):
        with pytest.raises(ElmoError, match=says):
            Embedder(path, batch_size).sents2elmo(sentences, layer)
