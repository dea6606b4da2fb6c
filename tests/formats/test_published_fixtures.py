"""Vectors equal the published ones that TensorFlow computed: the test fixtures of bilm-tf and of AllenNLP."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import elmo
from elmo import formats
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, read_weights
from oracle import Array, Oracle, encode
from published import PUBLISHED, Release

pytestmark = pytest.mark.external

_computed: dict[Path, list[list[Array]]] = {}


def layers_of_oracle(release: Release) -> list[list[Array]]:
    """Return all layers of the release's sentences. They are computed once, because the oracle takes seconds."""
    if release.folder not in _computed:
        options = json.loads((release.folder / OPTIONS_FILE).read_text(encoding="utf-8"))
        oracle = Oracle(read_weights(release.folder / WEIGHTS_FILE), options)
        _computed[release.folder] = oracle.carried(release.batches)
    return _computed[release.folder]


def test_the_oracle_matches_the_published_vectors(release: Release) -> None:
    """The oracle gives the published numbers, so that it can stand for the published models in other tests."""
    for found, wanted in zip(layers_of_oracle(release), release.top, strict=True):
        for layers, top in zip(found, wanted, strict=True):
            np.testing.assert_allclose(layers[2], top, atol=PUBLISHED, rtol=0)


def test_matches_the_published_vectors(release: Release) -> None:
    """Only carried state, in the batches of the TensorFlow run, gives these numbers."""
    vectors = elmo.load(release.folder).embed(release.sentences, layers="top", state="carry", batch_size=3)
    for found, wanted in zip(vectors, release.tops, strict=True):
        np.testing.assert_allclose(found, wanted, atol=PUBLISHED, rtol=0)


@pytest.mark.gpu
def test_a_gpu_matches_the_published_vectors(release: Release) -> None:
    model = elmo.load(release.folder, device="cuda")
    vectors = model.embed(release.sentences, layers="top", state="carry", batch_size=3)
    for found, wanted in zip(vectors, release.tops, strict=True):
        np.testing.assert_allclose(found, wanted, atol=PUBLISHED, rtol=0)


def test_every_layer_matches_the_oracle(release: Release) -> None:
    """The fixtures hold only the top layer. The oracle, which reproduces it, has the others."""
    vectors = elmo.load(release.folder).embed(release.sentences, layers="all", state="carry", batch_size=3)
    wanted = [layers for batch in layers_of_oracle(release) for layers in batch]
    for found, layers in zip(vectors, wanted, strict=True):
        assert found.shape == layers.shape == (3, layers.shape[1], 32)
        for number in range(3):
            np.testing.assert_allclose(found[number], layers[number], atol=PUBLISHED, rtol=0, err_msg=f"layer {number}")


def test_zero_state_gives_other_vectors(release: Release) -> None:
    """Carried state matters in every batch but the first, which shows that the tests above depend on it."""
    vectors = elmo.load(release.folder).embed(release.sentences, layers="top", batch_size=3)
    errors = [np.abs(found - top).max() for found, top in zip(vectors, release.tops, strict=True)]
    assert max(errors[:3]) < PUBLISHED
    assert min(errors[3:]) > 100 * PUBLISHED


def test_matches_the_cached_token_vectors(shared: Path) -> None:
    """The file has layer 0 of each line of the vocabulary, including `<S>` and `</S>`."""
    folder = shared / "fixtures" / "allennlp"
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        wanted = file["embedding"][()]
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    assert {"<S>", "</S>", "<UNK>"} <= set(words)
    bilm = formats.load(folder).bilm
    with torch.inference_mode():
        found = bilm.char_encoder(torch.from_numpy(np.stack([encode(word) for word in words]))).numpy()
    np.testing.assert_allclose(found, wanted, atol=PUBLISHED, rtol=0)
    plain = [word for word in words if word not in ("<S>", "</S>")]
    vectors = elmo.load(folder).embed([[word] for word in plain], layers="token")
    for word, vector in zip(plain, vectors, strict=True):
        expected = wanted[words.index(word)]
        np.testing.assert_allclose(vector, np.hstack([expected, expected])[None], atol=PUBLISHED, rtol=0)


def test_allennlps_elmo_layer_matches_the_published_vectors(release: Release) -> None:
    """As in AllenNLP's own test, all weight is on the top layer and the state is carried from batch to batch."""
    layer = elmo.Elmo(
        *release.files,
        num_output_representations=2,
        dropout=0.0,
        scalar_mix_parameters=[-1e3, -1e3, 1e3],
        stateful=True,
    )
    for sentences, wanted in zip(release.batches, release.top, strict=True):
        output = layer(elmo.batch_to_ids(sentences))
        for representation in output["elmo_representations"]:
            assert representation.shape == (3, max(map(len, sentences)), 32)
            for row, top in enumerate(wanted):
                np.testing.assert_allclose(representation[row, : len(top)], top, atol=PUBLISHED, rtol=0)
                assert not representation[row, len(top) :].any()
                assert output["mask"][row].sum() == len(top)


@pytest.mark.parametrize("name", [".", OPTIONS_FILE, WEIGHTS_FILE])
def test_folder_options_or_weights_name_the_same_model(release: Release, name: str) -> None:
    """Other HDF5 files in the folder hold embeddings and must not be taken for weights."""
    model = formats.load(str(release.folder / name))
    assert model.config.lstm.dim == 64
    assert model.config.lstm.use_skip_connections == (release.folder.name == "allennlp")
    assert model.softmax is None


def test_a_file_of_embeddings_is_refused(release: Release) -> None:
    with pytest.raises(elmo.ElmoError, match=r"lm_embeddings_0\.hdf5: data set 'char_embed' is missing"):
        formats.load(release.folder / "lm_embeddings_0.hdf5")
