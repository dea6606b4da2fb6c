"""Tables on a terminal have straight columns in any script, with numbers on the right."""

from __future__ import annotations

from unicodedata import normalize

import pytest

from elmo.cli.table import print_table


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_numbers_stand_on_the_right_and_text_on_the_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("word", "excess", "uses", "note"), [("bank", "-0.25", "1,024", "3 senses"), ("a", "", "7", "")])
    assert shown(capsys) == [
        "word  excess   uses  note",
        "bank   -0.25  1,024  3 senses",
        "a                 7",
    ]


def test_wide_characters_and_combining_marks_keep_columns_straight(capsys: pytest.CaptureFixture[str]) -> None:
    print_table((), [("猫", "1"), ("cafe\N{COMBINING ACUTE ACCENT}", "2"), ("cat", "3")])
    assert shown(capsys) == ["猫    1", "cafe\N{COMBINING ACUTE ACCENT}  2", "cat   3"]


def test_korean_takes_as_many_places_in_either_normal_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Files from a Mac often have letters as NFD, in which a syllable is two or three characters."""
    nfd = normalize("NFD", "한국어")
    assert len(nfd) == 8
    print_table((), [("한국어", "1"), (nfd, "2"), ("abcdef", "3")])
    assert shown(capsys) == ["한국어  1", f"{nfd}  2", "abcdef  3"]


def test_signs_without_a_place_keep_columns_straight(capsys: pytest.CaptureFixture[str]) -> None:
    """Vowel signs of Thai and Hindi, which have no combining class, and the joiners of Persian take no place."""
    print_table((), [("ที่", "1"), ("में", "2"), ("می\u200cرود", "3"), ("abcdef", "4")])
    assert shown(capsys) == ["ที่       1", "में       2", "\u2068می\u200cرود\u2069   3", "abcdef  4"]


def test_words_from_right_to_left_do_not_move_the_numbers_next_to_them(capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal that reorders letters would otherwise show the number on the left of the word."""
    print_table((), [("שלום", "1"), ("a שלום", "2"), ("cat", "3")])
    assert shown(capsys) == ["\u2068שלום\u2069    1", "\u2068a שלום\u2069  2", "cat     3"]


def test_long_cells_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("sentence", "n"), [("They saw a new play", "1"), ("猫猫猫猫猫猫", "2")], widest=9)
    assert shown(capsys) == ["sentence   n", "They saw…  1", "猫猫猫猫…  2"]


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("word", "uses"), [])
    print_table((), [])
    assert shown(capsys) == ["word  uses"]
