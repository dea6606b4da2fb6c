"""Character ids are those of the published code (262 ids with the mask, words cut at 48 bytes)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.config import BOS, EOS
from elmo.errors import ElmoError
from elmo.formats.elmo import batch_to_ids
from elmo.text.characters import encode_words


def decode(row: np.ndarray) -> bytes:
    """Return the bytes between begin-of-word and end-of-word."""
    ids = (row.astype(int) - 1).tolist()
    assert ids[0] == 258
    end = ids.index(259)
    assert set(ids[end + 1 :]) <= {260}
    return bytes(ids[1:end])


def test_a_word_is_its_bytes_shifted_by_one():
    row = encode_words(["cé"])[0]
    assert row[:6].tolist() == [259, ord("c") + 1, 0xC3 + 1, 0xA9 + 1, 260, 261]
    assert set(row[5:].tolist()) == {261}
    assert row.dtype == np.int16


def test_ids_fit_the_262_rows_of_the_embedding():
    """The largest id is 261, that of padding: there are 261 stored rows, and row 0 is zeros for the mask."""
    assert encode_words([bytes(range(1, 48)).decode("latin-1"), BOS, EOS, ""]).max() == 261


@pytest.mark.parametrize(("word", "character"), [(BOS, 256), (EOS, 257)])
def test_each_boundary_is_one_special_character(word, character):
    row = encode_words(["<S", word])[1]
    assert row.tolist() == [259, character + 1, 260] + [261] * 47


def test_unknown_is_a_word_like_any_other():
    assert decode(encode_words(["<UNK>"])[0]) == b"<UNK>"


@pytest.mark.parametrize("word", ["", "\0", "a\0b", "x" * 48, "语" * 16, "👍🏽", "\U0010ffff", "a b", "\ufeff"])
def test_any_short_word_keeps_all_its_bytes(word):
    assert decode(encode_words([word])[0]) == word.encode()


@pytest.mark.parametrize("word", ["x" * 49, "x" * 10_000, "语" * 17, "é" * 5_000])
def test_long_words_are_cut_at_48_bytes(word):
    """The limit counts bytes, not characters, so a character may be cut in two, as in the published code."""
    row = encode_words(["short", word])[1]
    assert decode(row) == word.encode()[:48]
    assert row[49] == 260


@pytest.mark.parametrize("word", [None, 1.5, b"play"])
def test_what_is_not_a_string_is_refused(word):
    with pytest.raises(ElmoError, match=f"^token {word!r} is not a string$"):
        encode_words(["a", word])


def test_lone_surrogates_are_dropped():
    assert decode(encode_words(["a\ud800b"])[0]) == b"ab"


def test_no_words():
    assert encode_words([]).shape == (0, 50)


@given(st.lists(st.text(max_size=60)), st.integers(3, 60))
def test_a_word_does_not_depend_on_its_neighbors(words, max_characters):
    together = encode_words(words, max_characters)
    assert together.shape == (len(words), max_characters)
    for word, row in zip(words, together, strict=True):
        assert np.array_equal(row, encode_words([word], max_characters)[0])
        assert row.min() >= 1


def test_batch_pads_with_zeros():
    """0 is the mask: a padded token is all zeros, unlike a padded character (261)."""
    ids = batch_to_ids([["They", "play"], [], ["a"]])
    assert ids.shape == (3, 2, 50)
    assert ids.dtype == torch.int64
    assert torch.equal(ids[0], torch.from_numpy(encode_words(["They", "play"]).astype(np.int64)))
    assert not ids[1].any()
    assert ids[2, 0].all()
    assert not ids[2, 1].any()


def test_a_batch_adds_no_boundaries():
    assert decode(batch_to_ids([["a"]])[0, 0].numpy()) == b"a"


def test_a_string_instead_of_a_list_of_tokens_is_refused():
    with pytest.raises(ElmoError, match=r"sentence 1: expected a list of tokens, found a string; did you mean"):
        batch_to_ids([["a"], "They saw a play ."])


def test_what_to_do_with_a_string_depends_on_what_was_given():
    """It may be raw text, a tokenized one, or a token, if a single sentence was given in place of a list of them."""
    advice = r"model\.tokenize\(text\) for raw text, text\.split\(\) .*, or a list around a single sentence"
    with pytest.raises(ElmoError, match=f"did you mean {advice}"):
        batch_to_ids(["They", "saw", "a", "play", "."])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([["a"], None],), "sentence 1: expected a list of tokens, found NoneType"),
        (([3],), "sentence 0: expected a list of tokens, found int"),
        ((None,), "`batch`: expected lists of tokens, found NoneType"),
        (([["a"]], "50"), "`max_characters`: expected a whole number, found '50'"),
        (([["a"]], 50.0), "`max_characters`: expected a whole number, found 50.0"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused(arguments, says):
    with pytest.raises(ElmoError, match=f"^{says}$"):
        batch_to_ids(*arguments)


@pytest.mark.parametrize("batch", [[], [[]], [[], []]])
def test_batch_without_tokens(batch):
    assert batch_to_ids(batch).shape == (len(batch), 0, 50)
