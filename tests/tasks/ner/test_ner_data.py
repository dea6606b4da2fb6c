"""The columns of published sets are read, and errors name file and line."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.tasks.ner.data import format_conll, read_conll

ESPOO = [(("Visit", "Espoo", "."), ("O", "B-LOC", "O")), (("Now",), ("O",))]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("Visit\tO\nEspoo\tB-LOC\n.\tO\n\nNow\tO\n", 0),  # WNUT
        ("0\tVisit\tO\n1\tEspoo\tB-LOC\n2\t.\tO\n\n\n0\tNow\tO", 1),  # WikiNEuRal
        ("-DOCSTART- -X- O O\n\nVisit VB I-VP O\nEspoo NNP I-NP B-LOC\n. . O O\n\nNow RB O O\n\n", 0),  # CoNLL-2003
        ("-DOCSTART- -X- O O\n\nVB Visit I-VP O\nNNP Espoo I-NP B-LOC\n. . O O\n\nRB Now O O\n", 1),
        ("-DOCSTART-\n\nVisit VB O\nEspoo NNP B-LOC\n. . O\n-DOCSTART- O\n\nNow RB O\n", -3),
        ("Visit \t O\nEspoo\tB-LOC\n.\tO \n\n Now\tO\n", 0),  # padded
        ("0  Visit O\n1  Espoo B-LOC\n2  .     O\n \t\n3  Now   O\n", 1),  # aligned, with spaces in the blank line
        ("Visit O\r\nEspoo B-LOC\r\n. O\r\n-DOCSTART- O\r\n\r\nNow O\r\n", 0),  # Windows
    ],
    ids=["wnut", "wikineural", "conll2003", "second", "short", "padded", "aligned", "windows"],
)
def test_reads_the_known_columns(text: str, column: int, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(text, newline="")
    (tmp_path / "a.conll.xz").write_bytes(lzma.compress(text.encode()))
    assert read_conll(tmp_path / "a.conll", column) == ESPOO
    assert read_conll(tmp_path / "a.conll.xz", column) == ESPOO


def test_columns_count_from_the_end_too(tmp_path: Path) -> None:
    """So files with and without a leading column of numbers are read in the same way."""
    (tmp_path / "a").write_text("0 In O\n1 Espoo B-LOC\n\nNow O\n")
    assert [sentence.tokens for sentence in read_conll(tmp_path / "a", -2)] == [("In", "Espoo"), ("Now",)]
    (tmp_path / "a").write_text("Now O\nO\n")
    with pytest.raises(ElmoError, match="line 2: has 1 column, and token_column=-2 is not one of those before the"):
        read_conll(tmp_path / "a", -2)


def test_tokens_between_tabs_may_contain_blanks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("New York\tB-LOC\n")
    assert read_conll(tmp_path / "a")[0].tokens == ("New York",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "Espoo\tB-LOC\n\nNow\n",
            r"a\.conll, line 3: has 1 column, and token_column=0 is not one of those before the tag",
        ),
        ("Espoo\tB-LOC\nNow\tRB\n", r"a\.conll, line 2: 'RB' is not a tag such as O, B-LOC"),
        ("\tO\n", r"a\.conll, line 1: the token is empty"),
        (
            "Espoo NNP B-NP B-LOC\n\nNow NN I-NP\n",
            r"a\.conll, line 3: has 3 columns, but the first line with a token has 4; is its tag missing",
        ),
        ("Visit VB O\nEspoo\tNNP\tB-LOC\nIn NN\tO\n", r"a\.conll, line 3: has 2 columns, but the first line .* has 3"),
        (
            '{"text": "In Espoo.", "spans": [[3, 8, "LOC"]]}\n',
            r"a\.conll, line 1: is JSON; expected a token and its tag",
        ),
        ("\n\n", r"a\.conll: holds no sentence"),
        ("-DOCSTART- O\n\n", r"a\.conll: holds no sentence"),
        ("Espoo\tO-LOC\n", r"a\.conll, line 1: 'O-LOC' is not a tag"),
        (
            "0 In O\n1 Espoo B-LOC\n\n0 Now O\n",
            r"a\.conll: all tokens in column 0 are numbers; ",
        ),
    ],
)
def test_says_what_is_wrong_where(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(text)
    with pytest.raises(ElmoError, match=says):
        read_conll(tmp_path / "a.conll")


def test_a_document_begins_a_sentence_without_a_blank_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("In O\nEspoo B-LOC\n-DOCSTART- -X- O\nCity I-LOC\n-DOCSTART-\n\nNow O\n")
    assert [tokens for tokens, _ in read_conll(tmp_path / "a")] == [("In", "Espoo"), ("City",), ("Now",)]


def test_writes_what_it_reads(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n".join(format_conll(*sentence) for sentence in ESPOO))
    assert read_conll(tmp_path / "a") == ESPOO


@pytest.mark.external
@pytest.mark.parametrize(
    ("name", "column", "num_sentences"),
    [
        ("wnut17_train", 0, 3394),
        ("wnut17_dev", 0, 1009),
        ("wnut17_test", 0, 1287),
        ("wikigold", 0, 1696),
        ("wikineural_val", 1, 11590),
        ("conll2002_esp_testa", 0, 1915),
    ],
)
def test_reads_the_whole_of_the_sets(name: str, column: int, num_sentences: int, shared: Path) -> None:
    assert len(read_conll(shared / "data" / "ner" / f"{name}.conll.xz", column)) == num_sentences
