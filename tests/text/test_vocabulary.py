"""A vocabulary gives each word an id, and its files are read back as they were written."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.text.vocabulary import Vocabulary

SPECIAL = ["<S>", "</S>", "<UNK>"]
WORDS = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), unique=True)


def test_words_outside_the_vocabulary_are_unknown():
    vocabulary = Vocabulary([*SPECIAL, "the", "play"])
    assert [vocabulary.id(word) for word in ("<S>", "</S>", "<UNK>", "the", "play", "Play")] == [0, 1, 2, 3, 4, 2]
    assert "play" in vocabulary
    assert "Play" not in vocabulary
    assert len(vocabulary) == 5
    assert vocabulary.encode(["the", "Play"]).tolist() == [[3], [2]]
    assert vocabulary.encode([]).shape == (0, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "first three words must be <S> </S> <UNK>, found nothing$"),
        (["<S>"], "first three"),
        (["the", *SPECIAL], "first three"),
        (["<s>", "</s>", "<unk>", "the"], "first three"),
        ([*SPECIAL, "the", "play", "the"], "'the' occurs twice, as words 4 and 6; remove one"),
    ],
)
def test_special_words_come_first_and_none_twice(words, message):
    with pytest.raises(ElmoError, match=message):
        Vocabulary(words)


@given(words=WORDS)
def test_files_read_back_equal_what_was_written(words, tmp_path_factory):
    """A word may be anything without a line end, even "", or U+0085 and U+2028, where `str.splitlines` would split."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    words = [*SPECIAL, *(word for word in words if word not in SPECIAL)]
    Vocabulary(words).write(path)
    assert Vocabulary.read(path).words == tuple(words)


def test_windows_files_are_read(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes("\ufeff<S>\r\n</S>\r\n<UNK>\r\nthe\r\n".encode())
    assert Vocabulary.read(path).words == (*SPECIAL, "the")


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_text("the\nplay\n")
    with pytest.raises(ElmoError, match=re.escape(f"{path}: vocabulary: the first three")):
        Vocabulary.read(path)
    for word in ("a\nb", "a\r"):
        with pytest.raises(ElmoError, match="line end"):
            Vocabulary([*SPECIAL, word]).write(path)
