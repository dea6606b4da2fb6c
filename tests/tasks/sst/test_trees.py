"""Labelled trees give their phrases, words are written as in plain text, and errors name file and line."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.tasks.sst.data import LabelledTree, Phrase, parse_tree, read_trees

FUN = LabelledTree(
    ("It", "is", "fun"), (Phrase(0, 1, 2), Phrase(1, 2, 2), Phrase(2, 3, 4), Phrase(1, 3, 4), Phrase(0, 3, 3))
)


def test_inner_phrases_come_first(tmp_path: Path) -> None:
    text = "(3 (2 It) (4 (2 is) (4 fun)))\r\n\n(1 No)\n"
    (tmp_path / "a.txt").write_text(text, newline="")
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(text.encode()))
    assert read_trees(tmp_path / "a.txt") == [FUN, (("No",), (Phrase(0, 1, 1),))]
    assert read_trees(tmp_path / "a.txt.xz") == read_trees(tmp_path / "a.txt")


def test_blanks_make_no_difference() -> None:
    assert parse_tree("  (3(2 It)(4   (2 is)(4 fun ) ) ) ") == FUN


def test_brackets_and_slashes_become_those_of_plain_text() -> None:
    tree = parse_tree(r"(2 (2 -LRB-) (2 (2 writer\/director) (2 (2 \*\*) (2 -RRB-))))")
    assert tree.tokens == ("(", "writer/director", "**", ")")


def test_trees_may_be_of_any_depth() -> None:
    assert parse_tree("(2 " * 5000 + "x" + ")" * 5000).phrases == (Phrase(0, 1, 2),) * 5000


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("(3 (2 It) (4 fun)", "the line ends within 1 phrase; a closing bracket is missing"),
        ("(3 (2 It) (4 fun)))", r"the tree ends before '\)' at character 19"),
        ("(3 It) (2 No)", r"the tree ends before '\(2' at character 8"),
        ("(3 (7 It) (4 fun))", "'7' at character 4 is no label; expected a digit from 0 to 4"),
        ("(3 (It) (4 fun))", "'It' at character 4 is no label"),
        ("( (2 It))", "'' at character 1 is no label"),
        ("(3 (2 It) (4 ))", "the phrase that ends at character 14 holds no word"),
        ("It is fun", "'It' at character 1 is in no phrase"),
    ],
)
def test_errors_name_file_and_line(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"(1 No)\n\n{line}\n")
    with pytest.raises(ElmoError, match=rf"a\.txt, line 3: {says}"):
        read_trees(tmp_path / "a.txt")


def test_a_file_without_trees_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n")
    with pytest.raises(ElmoError, match=r"a\.txt: holds no tree"):
        read_trees(tmp_path / "a.txt")
