"""The warm state is the mean of the states in which sentences end, and only changes where sentences start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import make_many_langs
import make_words
from bridge import state_of
from comparing import ROUNDING, assert_same
from elmo import formats
from elmo.embed import Embedder
from elmo.embed.description import find_vectors
from elmo.embed.fingerprint import fingerprint
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from elmo.formats.model import require_vocabulary
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import make
from oracle import Oracle, encode_sentence

TEXT = [["They", "saw", "a", "play", "."], ["Fußball"], [], ["x" * 80, "", "<S>", "w"], ["a"] * 30, ["play", "."]]


@pytest.fixture(scope="module")
def loaded(model_folder: Path) -> formats.Model:
    model = formats.load(model_folder)
    model.warm_state = mean_state(model, TEXT)
    return model


@pytest.fixture(scope="module")
def model(loaded: formats.Model) -> Embedder:
    return Embedder(loaded)


@pytest.mark.parametrize("variant", ["base", "one_direction", "three_layers", "no_projection", "short_words"])
@pytest.mark.parametrize("batch_tokens", [1, 12, 2048])
def test_the_warm_state_is_the_mean_of_the_states_in_which_sentences_end(
    variant: str, batch_tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle starts from zeros and reads neither `</S>` forward nor `<S>` backward. Batches must not matter."""
    monkeypatch.setattr("elmo.embed.warm.TOKENS_AT_ONCE", batch_tokens)
    monkeypatch.setattr("elmo.embed.warm.WINDOW_TOKENS", 4 * batch_tokens)
    folder, options, weights = make(tmp_path, variant)
    oracle, longest = Oracle(weights, options), options["char_cnn"]["max_characters_per_token"]
    ends = []
    for sentence in filter(None, TEXT):
        vectors = oracle.token_vectors(encode_sentence(sentence, longest))
        parts = [vectors[:-1], vectors[1:]][: oracle.num_directions]
        zeros = oracle.zero_state()
        ends.append([oracle.run_direction(part, zeros[d], d)[1] for d, part in enumerate(parts)])
    found = mean_state(formats.load(folder), TEXT)
    for direction, wanted in zip(found, state_of(ends), strict=True):
        for got, rows in zip(direction, wanted, strict=True):
            assert got.shape == rows[:, :1].shape
            np.testing.assert_allclose(got, rows.mean(dim=1, keepdim=True), rtol=0, atol=ROUNDING)


def test_a_text_without_tokens_has_no_mean(loaded: formats.Model) -> None:
    for text, says in (
        ([], "the text has no tokens"),
        ([[], []], "the text has no tokens"),
        (["A new play"], "sentence 0: expected a list of tokens"),
    ):
        with pytest.raises(ElmoError, match=says):
            mean_state(loaded, text)


words = st.text(st.characters(codec="utf-8"), max_size=8)
texts = st.lists(st.lists(words, max_size=12), max_size=9)


@given(sentences=texts, order=st.randoms(use_true_random=False), batch_size=st.none() | st.integers(1, 5))
def test_neighbors_order_and_batch_size_change_nothing(model: Embedder, sentences, order, batch_size) -> None:
    alone = [model.embed([sentence], layers="all", state="warm")[0] for sentence in sentences]
    places = list(range(len(sentences)))
    order.shuffle(places)
    shuffled = [sentences[place] for place in places]
    together = model.embed(shuffled, layers="all", state="warm", batch_size=batch_size)
    assert_same(together, [alone[place] for place in places])


def test_a_warm_start_changes_every_layer_but_layer_0(model: Embedder) -> None:
    """Layer 0 has no state, so it must not change."""
    for zero, warm in zip(model.embed(TEXT, layers="all"), model.embed(TEXT, layers="all", state="warm"), strict=True):
        np.testing.assert_array_equal(zero[0], warm[0])
        assert zero.shape[1] == 0 or (np.abs(zero[1:] - warm[1:]).max(axis=(1, 2)) > 1e-3).all()


def test_zero_and_carry_ignore_the_warm_state(loaded: formats.Model, model: Embedder) -> None:
    """With the states `zero` and `carry`, the vectors are equal to the bit to those of a model without a warm state."""
    plain = Embedder(formats.Model(loaded.bilm))
    for state in ("zero", "carry"):
        model.embed(TEXT, state="warm")
        model.reset_state()
        for got, wanted in zip(model.embed(TEXT, state=state), plain.embed(TEXT, state=state), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_a_warm_run_leaves_the_carried_state(loaded: formats.Model) -> None:
    one, other = Embedder(loaded), Embedder(loaded)
    for embedder in (one, other):
        embedder.embed(TEXT, state="carry", batch_size=2)
    one.embed(TEXT, state="warm")
    assert_same(one.embed(TEXT, state="carry", batch_size=2), other.embed(TEXT, state="carry", batch_size=2), atol=0)


def test_a_model_without_a_warm_state_says_so(loaded: formats.Model) -> None:
    plain = Embedder(formats.Model(loaded.bilm))
    with pytest.raises(ElmoError, match="`state`: this model has no warm state, or one that belongs to other weights"):
        plain.stream(TEXT, state="warm")


def test_a_fingerprint_tells_states_apart(tmp_path: Path) -> None:
    """A cache or unfinished work of one model must not be used for the other."""
    model = formats.load(make(tmp_path / "model")[0])
    found = [fingerprint(model)]
    for number in (1, 2):
        model.warm_state = mean_state(model, TEXT[:number])
        found.append(fingerprint(model, with_warm_state=True))
    assert len({*found}) == 3


@pytest.mark.parametrize("name", ["word.dic", "char.dic"])
def test_a_fingerprint_tells_lexicons_apart(name: str, tmp_path: Path) -> None:
    """The same entries have other rows of the weights."""
    make_many_langs.make(folder := tmp_path / "unicode")
    before = fingerprint(formats.load(folder))
    entries = (folder / name).read_text(encoding="utf-8").splitlines()
    (first, one), (second, two) = (line.split("\t") for line in entries[-2:])
    entries[-2:] = [f"{first}\t{two}", f"{second}\t{one}"]
    (folder / name).write_text("\n".join(entries) + "\n", encoding="utf-8")
    assert fingerprint(formats.load(folder)) != before


def test_raw_text_and_files_can_start_from_the_warm_state(model: Embedder, tmp_path: Path) -> None:
    """What a file says of its model covers the state, so that work from another state is not continued."""
    (wanted,) = model.embed([["They", "play", "."]], layers="all", state="warm")
    found = model.embed_text("They play.", tokenizer="ptb", layers="all", state="warm")
    np.testing.assert_array_equal(found.vectors, wanted)
    for state, checksum in (("zero", model.fingerprint), ("warm", model.warm_fingerprint)):
        model.write(tmp_path / f"{state}.npz", TEXT, state=state)
        written = find_vectors(tmp_path / f"{state}.npz")
        assert written is not None
        assert written.facts["model_checksum"] == checksum


def test_a_fingerprint_tells_vocabularies_apart(tmp_path: Path) -> None:
    model = formats.load(make_words.make(tmp_path / "words")[0])
    before = fingerprint(model)
    *words, one, two = require_vocabulary(model).words
    model.vocabulary = Vocabulary([*words, two, one])
    assert fingerprint(model) != before
