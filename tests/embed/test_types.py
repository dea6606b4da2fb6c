"""Every engine looks up the token vectors that are stored with a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import elmo
import make_words
from bridge import make_model
from elmo import formats
from elmo.embed import Embedder
from elmo.embed.engine import Precision
from elmo.embed.type_encoder import encode_types
from elmo.errors import ElmoError
from elmo.formats.model import Model
from elmo.formats.native import save_types
from elmo.formats.stored_types import StoredTypes, TypeStorage
from engines import choose, make_embedder

SENTENCES = [["A", "new", "play", "."], [], ["Children", "play", "A", "Fußball"]]
STORED = ["<S>", "</S>", "A", "play", "Fußball"]
ENGINES = ["native", "torch", "module"]


def with_types(storage: TypeStorage = "float32") -> Model:
    model = make_model()
    model.types = encode_types(model, STORED, storage)
    return model


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_uses_the_stored_vectors(name: str, precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    """No encoder gives vectors of ones, so layer 0 shows which words were looked up. All layers above it change."""
    plain, marked = make_model(), make_model()
    types = encode_types(plain, STORED, "float32")
    other = np.ones_like(types.vectors)
    marked.types = StoredTypes.of(STORED, other, types.bilm, "float32")
    choose(name, precision, monkeypatch)
    before = make_embedder(plain, (name, precision)).embed(SENTENCES, layers="all")
    after = make_embedder(marked, (name, precision)).embed(SENTENCES, layers="all")
    for sentence, old, new in zip(SENTENCES, before, after, strict=True):
        for place, word in enumerate(sentence):
            if word in STORED:
                assert (new[0, place] == 1).all()
            else:  # encoding fewer words at once may round differently
                np.testing.assert_allclose(new[0, place], old[0, place], atol=0.01, rtol=0)
            assert (new[1:, place] != old[1:, place]).any()


@pytest.mark.parametrize(("storage", "tolerance"), [("float32", 0), ("float16", 1e-3)])
@pytest.mark.parametrize("name", ENGINES)
def test_stored_vectors_are_those_of_the_encoder(
    name: str, storage: TypeStorage, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored vectors equal the encoder's to the bit with native kernels, and up to rounding where torch computes."""
    choose(name, "float32", monkeypatch)
    expected = make_embedder(make_model(), (name, "float32")).embed(SENTENCES, layers="all")
    found = make_embedder(with_types(storage), (name, "float32")).embed(SENTENCES, layers="all")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance + (0 if name == "native" else 2e-6))


def test_fingerprints_tell_rounded_vectors_apart() -> None:
    """Exact stored vectors change nothing in float32, so that indexes and unfinished work remain valid."""
    plain = Embedder(make_model())
    assert Embedder(with_types()).fingerprint == plain.fingerprint == plain.warm_fingerprint
    rounded, model = Embedder(with_types("float16")), with_types("float16")
    assert rounded.fingerprint != plain.fingerprint
    assert rounded.warm_fingerprint != plain.fingerprint
    assert rounded.fingerprint == Embedder(model).fingerprint
    model.types = encode_types(model, STORED[:-1], "float16")
    assert Embedder(model).fingerprint not in (plain.fingerprint, rounded.fingerprint)
    # In bf16, the encoder gives other numbers than the stored ones, even if those are exact.
    lower = [Embedder(each, precision="bf16").fingerprint for each in (make_model(), with_types())]
    assert lower[0] != lower[1]


def test_vectors_of_other_weights_are_not_used() -> None:
    model = with_types()
    torch.nn.init.ones_(model.bilm.token_encoder.convolutions[0].weight)  # pyright: ignore
    expected = Model(model.bilm)
    np.testing.assert_array_equal(Embedder(model).embed([["play"]])[0], Embedder(expected).embed([["play"]])[0])


def test_vectors_in_a_model_folder_are_used_in_place_of_the_encoder(tmp_path: Path) -> None:
    """`elmo.load` finds the stored vectors in the folder, and words that are not among them are still encoded."""
    model = make_model()
    formats.save_native(model, tmp_path)
    expected = elmo.load(tmp_path).embed(SENTENCES)
    save_types(encode_types(model, STORED, "float16"), tmp_path)
    found = elmo.load(tmp_path).embed(SENTENCES)
    differences = [np.abs(one - other).max(initial=0) for one, other in zip(found, expected, strict=True)]
    assert 0 < max(differences) < 1e-3


def test_a_model_of_whole_words_cannot_be_given_vectors(tmp_path: Path) -> None:
    model = formats.load(make_words.make(tmp_path)[0])
    with pytest.raises(ElmoError, match="reads whole words, not characters, cannot be given token vectors"):
        encode_types(model, ["a"], "float32")
