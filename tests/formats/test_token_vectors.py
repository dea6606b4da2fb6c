"""Files that bilm-tf writes next to the weights are read: cached token vectors, and a separate softmax."""

from __future__ import annotations

import gzip
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge import WORDS
from elmo import formats
from elmo.errors import ElmoError
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make, make_options, make_weights, write
from oracle import Oracle, encode

CACHED = ["<S>", "</S>", "<UNK>", "play", "naïve", "日本語", "x" * 70, "play"]
CACHE_FILE, SOFTMAX_FILE = "elmo_token_embeddings.hdf5", "lm_softmax.hdf5"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_cached(tmp_path / "model", "base")


def make_cached(folder: Path, variant: str) -> Path:
    """Make a model, a file of vectors of its words as the oracle computes them, and the list of these words."""
    folder, options, weights = make(folder, variant)
    oracle = Oracle(weights, options)
    with h5py.File(folder / CACHE_FILE, "w") as file:
        file["embedding"] = np.stack([oracle.token_vector(encode(word)) for word in CACHED]).astype(np.float32)
    (folder / "vocab_test.txt").write_text("\n".join(CACHED) + "\n", encoding="utf-8")
    return folder


def test_cached_vectors_come_with_the_model_next_to_them(folder: Path) -> None:
    model = formats.load(folder / CACHE_FILE)
    assert model.token_vectors is not None
    assert model.token_vectors.words == tuple(CACHED)
    assert model.token_vectors.vectors.shape == (8, 6)
    assert model.origin == (
        f"bilm HDF5: {WEIGHTS_FILE} holds 'char_embed' and 'RNN_0', sizes from {OPTIONS_FILE}; "
        f"{CACHE_FILE} holds 'embedding', cached vectors of 8 words"
    )
    assert formats.load(folder).token_vectors is None  # the model computes the same vectors


def test_cached_vectors_need_no_softmax(tmp_path: Path) -> None:
    """The list next to them has their words, and perhaps not those that the softmax scores."""
    folder = make_cached(tmp_path, "softmax")
    (folder / "vocab_test.txt").rename(folder / "vocab.txt")
    with pytest.raises(ElmoError, match=r"vocab\.txt: has 8 words, but the softmax next to it scores 17"):
        formats.load(folder / CACHE_FILE)
    assert formats.load(folder / CACHE_FILE, with_softmax=False).token_vectors is not None


def test_a_packed_list_and_one_without_a_last_line_end(folder: Path) -> None:
    (folder / "vocab_test.txt").unlink()
    (folder / "vocab.txt.gz").write_bytes(gzip.compress("\n".join(CACHED).encode()))
    model = formats.load(folder / CACHE_FILE)
    assert model.token_vectors is not None
    assert model.token_vectors.words == tuple(CACHED)


def test_a_list_as_bilm_tf_reads_it(folder: Path) -> None:
    """It strips each line, and skips `!!!MAXTERMID`."""
    lines = [*CACHED[:3], "!!!MAXTERMID", *(f" {word} " for word in CACHED[3:])]
    (folder / "vocab_test.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = formats.load(folder / CACHE_FILE)
    assert model.token_vectors is not None
    assert model.token_vectors.words == tuple(CACHED)


def test_vectors_of_another_model_or_of_other_words_are_refused(folder: Path) -> None:
    """All shapes fit, so that nothing else would show the mistake."""
    lines = [CACHED[1], CACHED[0], *CACHED[2:]]
    (folder / "vocab_test.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(ElmoError, match=r"'embedding': the vector of '(<S>|</S>)' is not the model's"):
        formats.load(folder / CACHE_FILE)
    (folder / "vocab_test.txt").write_text("\n".join(CACHED[:-2]) + "\n", encoding="utf-8")
    with pytest.raises(ElmoError, match=r"embeddings\.hdf5: no vocabulary of 8 words"):
        formats.load(folder / CACHE_FILE)


def test_cached_vectors_alone_are_no_model(folder: Path) -> None:
    (folder / WEIGHTS_FILE).unlink()
    with pytest.raises(
        ElmoError, match=r"contains only 'embedding' and needs its model's weights next to it, found none"
    ):
        formats.load(folder / CACHE_FILE)


@pytest.mark.parametrize("array", [np.zeros((8, 7)), np.zeros(8), np.full((8, 6), np.nan)])
def test_cached_vectors_that_do_not_fit(array: np.ndarray, folder: Path) -> None:
    with h5py.File(folder / CACHE_FILE, "w") as file:
        file["embedding"] = array
    with pytest.raises(ElmoError, match="data set 'embedding'"):
        formats.load(folder / CACHE_FILE)


def test_a_cached_vector_that_is_no_number(folder: Path) -> None:
    """Only the first vectors are compared with the model's."""
    with h5py.File(folder / CACHE_FILE, "r+") as file:
        vectors = np.tile(file["embedding"][:], (3, 1))
        vectors[-1, 0] = np.nan
        del file["embedding"]
        file["embedding"] = vectors
    (folder / "vocab_test.txt").write_text("\n".join(CACHED * 3) + "\n", encoding="utf-8")
    with pytest.raises(ElmoError, match="data set 'embedding': contains nan, not a weight"):
        formats.load(folder / CACHE_FILE)


@pytest.mark.parametrize("name", ["", WEIGHTS_FILE, OPTIONS_FILE, SOFTMAX_FILE])
def test_a_softmax_in_a_file_of_its_own(name: str, tmp_path: Path) -> None:
    options = make_options("softmax")
    weights = make_weights(options)
    inner = {name: array for name, array in weights.items() if not name.startswith("softmax")}
    folder = write(tmp_path / "model", options, inner)
    with h5py.File(folder / SOFTMAX_FILE, "w") as file:
        for part in ("W", "b"):
            file[f"softmax/{part}"] = weights[f"softmax/{part}"]
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    model = formats.load(folder / name)
    assert model.softmax is not None
    np.testing.assert_array_equal(model.softmax.weight.detach().numpy(), weights["softmax/W"])
    assert model.vocabulary is not None
    assert f"{SOFTMAX_FILE} holds 'softmax'" in model.origin
    assert formats.load(folder / name, with_softmax=False).softmax is None


def test_a_single_layer_without_a_stack(tmp_path: Path) -> None:
    """bilm-tf wraps several layers in a cell, but not a single layer: `RNN_0/RNN/LSTMCell/…`."""
    options = make_options("one_layer")
    weights = make_weights(options)
    named = {name.replace("/MultiRNNCell/Cell0", ""): array for name, array in weights.items()}
    assert "RNN_0/RNN/LSTMCell/W_0" in named
    model = formats.load(write(tmp_path, options, named))
    bias = model.bilm.forward_lstm.layers[0].bias
    np.testing.assert_array_equal(bias.detach().numpy(), weights["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"])


@pytest.mark.external
def test_the_published_cached_vectors(shared: Path) -> None:
    """The file is a test fixture of AllenNLP with 159 words and vectors."""
    model = formats.load(shared / "fixtures" / "allennlp" / CACHE_FILE)
    assert model.token_vectors is not None
    assert len(model.token_vectors.words) == len(model.token_vectors.vectors)
    assert "Winfrey" in model.token_vectors.words
