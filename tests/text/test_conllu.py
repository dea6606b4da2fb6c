"""A line of CoNLL-U is split into its ten columns, skipped if it holds no word, or refused."""

from __future__ import annotations

import time

import pytest

from elmo.errors import ElmoError
from elmo.text.conllu import CONLLU, conllu_sentences, is_conllu, split_word

WORD = "3\tman's\tman\tNOUN\tNN\tNumber=Sing\t0\troot\t_\tSpaceAfter=No"


def test_a_word_has_ten_columns() -> None:
    columns = split_word(WORD, "a, line 1", 3)
    assert columns is not None
    assert dict(zip(CONLLU, columns, strict=True))["lemma"] == "man"
    assert split_word(f"0{WORD}", "a, line 1", 3) == [f"0{columns[0]}", *columns[1:]], "a zero changes no number"


@pytest.mark.parametrize("line", ["# text = 1\t2", "#", "1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_", "8.1\twent"])
def test_other_lines_hold_no_word(line: str) -> None:
    assert split_word(line, "a, line 1", 3) is None


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("a.conllu", True),
        ("a.CONLLU", True),
        ("a.b.conllu.XZ", True),
        (".conllu", False),
        ("a.conllu.txt", False),
        ("a.conllu.txt.gz", False),
        ("conllu", False),
        ("a.xz", False),
    ],
)
def test_a_file_is_recognized_by_the_end_of_its_name(name: str, is_it: bool) -> None:
    assert is_conllu(name) is is_it


def test_a_comment_may_have_tabs() -> None:
    assert split_word("#" + "\ta" * 9, "a, line 1", 3) is None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (WORD.replace("\t", " "), "a, line 1: 1 column between tabs; CoNLL-U has 10"),
        (f"{WORD}\t_", "a, line 1: 11 columns between tabs; CoNLL-U has 10"),
        (f"x{WORD}", "a, line 1: 'x3' is not the number of a word"),
        (f"4{WORD[1:]}", "a, line 1: the word has the number 4; expected 3$"),
        (f"1{WORD[1:]}", "the number 1; expected 3; if a sentence begins here, put a blank line before it$"),
    ],
)
def test_broken_lines_are_refused(line: str, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        split_word(line, "a, line 1", 3)


@pytest.mark.parametrize(
    ("comment", "wanted"),
    [
        ("# sent_id = a-1", "a-1"),
        ("#sent_id=a-1", "a-1"),
        ("#  sent_id\t=  a = b\u3000", "a = b"),
        ("# sent_id =", ""),
        ("# sent_id a-1", ""),
        ("# newdoc id = a-1", ""),
        ("# my sent_id = a-1", ""),
        ("sent_id = a-1", None),
        ("# sent_id = a" + 50_000 * " " + "b", "a" + 50_000 * " " + "b"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_the_id_of_a_sentence(comment: str, wanted: str | None) -> None:
    """The last comment would take 25 seconds if the time were not linear in the number of blanks."""
    word, begin = "\t".join(["1", "a", *"________"]), time.process_time()
    if wanted is None:  # no comment
        with pytest.raises(ElmoError, match="1 column between tabs"):
            list(conllu_sentences(f"{comment}\n{word}", "a"))
    else:
        assert [sentence.id for sentence in conllu_sentences(f"{comment}\n{word}\n", "a")] == [wanted]
    assert time.process_time() - begin < 2


def test_comments_between_blank_lines_are_no_sentence() -> None:
    word = "\t".join(["1", "a", *"________"])
    found = conllu_sentences(f"# newdoc\n\n{word}\n\n# the end", "a")
    assert [(sentence.line, len(sentence.words)) for sentence in found] == [(3, 1)]
