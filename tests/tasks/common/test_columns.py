"""Files of tagged sentences are read column by column, and written with some columns replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.tasks.common.columns import from_text, read_columns
from elmo.text.tokenizers import get_tokenizer

SENTENCE = """\
# sent_id = 1
# text = Vom Haus  (a\u00a0b)
1-2\tVom\t_\t_\t_\t_\t_\t_\t_\tid=7
1\tvon\tvon\tADP\tAPPR\t_\t3\tcase\t_\t_
2\tdem\tder\tDET\tART\tCase=Dat|Gender=Neut\t3\tdet\t_\t_
3\tHaus\tHaus\tNOUN\tNN\tCase=Dat\t0\troot\t0:root\tSpacesAfter=\\s\\s
3.1\tist\tsein\tAUX\t_\t_\t_\t_\t0:root\t_
4\ta\u00a0b\t_\tX\t_\t_\t3\tdep\t_\tSpaceAfter=No
"""


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_conllu_is_written_as_it_was_read(tmp_path: Path) -> None:
    """Comments, ranges, empty nodes, misc and forms with spaces in them are all kept."""
    text = f"{SENTENCE}\n{SENTENCE.replace('Haus', 'Dach')}\n"
    first, second = read_columns(write(tmp_path / "a.conllu", text), None)
    assert first.tokens == ("von", "dem", "Haus", "a\u00a0b")
    assert first.column("xpos") == ("APPR", "ART", "NN", "_")
    assert first.with_columns({}) + second.with_columns({}) == text


def test_lines_without_words_belong_to_the_next_sentence(tmp_path: Path) -> None:
    """A blank line after the comments on a document, or after -DOCSTART-, ends no sentence."""
    text = f"# newdoc id = a\n\n# label = sun\n\n{SENTENCE}\n{SENTENCE}\n"
    first, second = read_columns(write(tmp_path / "a.conllu", text), None)
    assert (first.begins_document, second.begins_document) == (True, False)
    assert first.comments("label") == ["sun"]
    assert first.column("xpos") == ("APPR", "ART", "NN", "_")
    assert first.with_columns({}) + second.with_columns({}) == text
    (only,) = read_columns(write(tmp_path / "b.conllu", f"{SENTENCE}\n# end = 1\n\n# end = 2\n\n"), None)
    assert only.with_columns({}) == f"{SENTENCE}\n# end = 1\n\n# end = 2\n\n"
    plain = "-DOCSTART- -X- O\n\nEU\tNNP\nruns\tVBZ\n\n"
    (only,) = read_columns(write(tmp_path / "a.txt", plain), ("form", "xpos"))
    assert only.with_columns({"xpos": ["NNP", "VBZ"]}) == plain


def test_only_the_columns_of_words_are_replaced(tmp_path: Path) -> None:
    (example,) = read_columns(write(tmp_path / "a.conllu", SENTENCE), None)
    found = example.with_columns({"upos": ["A", "B", "C", "D"]})
    expected = SENTENCE
    for old, new in zip(("ADP", "DET", "NOUN", "X"), "ABCD", strict=True):
        expected = expected.replace(f"\t{old}\t", f"\t{new}\t")
    assert found == f"{expected}\n"


def test_what_has_no_column_goes_to_misc(tmp_path: Path) -> None:
    (example,) = read_columns(write(tmp_path / "a.conllu", SENTENCE), None)
    lines = example.with_columns({"chunk": ["O", "O", "B-NP", "O"]}).split("\n")
    assert lines[3].endswith("\t_\tchunk=O")
    assert lines[5].endswith("\tSpacesAfter=\\s\\s|chunk=B-NP")


def test_a_bar_in_misc_is_no_end_of_a_value(tmp_path: Path) -> None:
    """Values of other columns may hold what separates the items of this one."""
    (example,) = read_columns(write(tmp_path / "a.conllu", SENTENCE), None)
    values = ["Case=Nom|Number=Plur", "a\\b", "\\p", "\\\\|"]
    for _ in range(2):  # the second time, they are replaced
        (example,) = read_columns(write(tmp_path / "b.conllu", example.with_columns({"morph": values})), None)
    assert list(example.attribute("morph")) == values
    assert "morph=Case=Nom\\pNumber=Plur\n" in (tmp_path / "b.conllu").read_text()


def test_values_of_misc_and_of_comments(tmp_path: Path) -> None:
    text = SENTENCE.replace("0\troot\t0:root\t", "0\troot\t0:root\tNER=B-A=1|").replace(
        "# sent_id", "#newdoc id = 5\n# sent_id"
    )
    first, second = read_columns(write(tmp_path / "a.conllu", f"{text}\n{SENTENCE}"), None)
    assert first.attribute("NER") == (None, None, "B-A=1", None)
    assert second.attribute("NER") == (None,) * 4
    assert first.comments("text") == ["Vom Haus  (a\u00a0b)"]
    assert first.comments("newdoc id") == ["5"]
    assert first.comments("ext") == []
    assert (first.begins_document, second.begins_document) == (True, False)


def test_plain_columns_are_split_at_tabs_or_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "-DOCSTART- -X- O\n\nEU NNP B-NP\n. . O\n\nA\tDT\tB-NP\n")
    first, second = read_columns(path, ("form", "xpos", "chunk"))
    assert (first.tokens, first.column("chunk")) == (("EU", "."), ("B-NP", "O"))
    assert second.with_columns({"chunk": ["O"]}) == "A\tDT\tO\n\n"
    with pytest.raises(ElmoError, match="there is no column upos; columns are form, xpos, chunk"):
        first.column("upos")
    path = write(tmp_path / "b.txt", "EU NNP B-NP\n-DOCSTART- -X- O\nA DT B-NP\n")
    first, second = read_columns(path, ("form", "xpos", "chunk"))
    assert (first.tokens, second.tokens) == (("EU",), ("A",))
    assert second.with_columns({"chunk": ["O"]}) == "-DOCSTART- -X- O\nA\tDT\tO\n\n"


@pytest.mark.parametrize(
    ("text", "columns", "says"),
    [
        ("1\ta\t_\n", None, "line 1: 3 columns between tabs; CoNLL-U has 10"),
        (SENTENCE.replace("\n4\t", "\n5\t"), None, "line 8: the word has the number 5; expected 4"),
        (SENTENCE.replace("Haus\tHaus", "Haus\t "), None, "line 6: column lemma is empty; CoNLL-U has _"),
        (SENTENCE.replace("\n4\t", f"\n{'9' * 5000}\t"), None, "line 8: the word has the number 9+; expected 4"),
        ("a N\nb\n", ("form", "xpos"), r"line 2: has 1 column, but the recipe names 2 \(columns: form, xpos\); a"),
        ("a\t\n", ("form", "xpos"), "line 1: column xpos is empty"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, text: str, columns: tuple[str, ...] | None, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        list(read_columns(write(tmp_path / "a", text), columns))


def test_plain_text_becomes_conllu() -> None:
    """`SpaceAfter=No` marks a missing space, but only if the tokens are those of the text."""
    example = from_text("He can't  go.", get_tokenizer("ptb"))
    assert example.with_columns({}).splitlines() == [
        "# text = He can't go.",
        "1\tHe\t_\t_\t_\t_\t_\t_\t_\t_",
        "2\tca\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No",
        "3\tn't\t_\t_\t_\t_\t_\t_\t_\t_",
        "4\tgo\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No",
        "5\t.\t_\t_\t_\t_\t_\t_\t_\t_",
        "",
    ]
    other = from_text("a b", lambda _: ["x", "y"])
    assert other.tokens == ("x", "y")
    assert "SpaceAfter" not in other.with_columns({})
