"""Labelled texts are read from lines with tabs and from JSON, and what is neither is refused with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.tasks.classify.data import TextExample, first_tokens, parse_text, read_labelled, read_texts, read_unlabelled
from elmo.text.tokenizers import get_tokenizer

PTB = get_tokenizer("ptb")
TWO = (("It", "rains", "."), ("Mr.", "Lee", "does", "n't", "mind", "!"))


def read(path: Path, text: str, several: bool = False) -> list[TextExample]:
    path.write_text(text, encoding="utf-8")
    return read_texts(path, PTB, several=several)


def test_tabs_and_json_give_the_same_texts(tmp_path: Path) -> None:
    """A text is cut into sentences. A header, blank lines and Windows line ends are not part of it."""
    text = "It rains. Mr. Lee doesn't mind!"
    found = read(tmp_path / "a.tsv", f"\ufeffLabel\ttext\r\n\r\nweather\t{text}\r\n news of today \tNo.\r\n")
    assert found == [TextExample(TWO, ("weather",)), TextExample((("No", "."),), ("news of today",))]
    objects = [
        f'{{"label": "weather", "text": "{text}"}}',
        '{"labels": ["news of today"], "sentences": [[], ["No", "."]], "id": 5}',
    ]
    assert read(tmp_path / "a.jsonl", "\n".join(objects)) == found
    (tmp_path / "a.gz").write_bytes(gzip.compress((tmp_path / "a.tsv").read_bytes()))
    assert read_texts(tmp_path / "a.gz", PTB, several=False) == found


def test_several_labels_are_a_set(tmp_path: Path) -> None:
    """The order of labels makes no difference, and a text may have none. Whole numbers are labels in JSON."""
    lines = ["b|a|b\tx", "\tx", '{"labels": ["b", " a"], "text": "x"}', '{"labels": [], "text": "x"}']
    found = read(tmp_path / "a", "\n".join([*lines, '{"label": 3, "text": "x"}']), several=True)
    assert [example.labels for example in found] == [("a", "b"), (), ("a", "b"), (), ("3",)]


def conllu(*sentences: str) -> str:
    """Return sentences in CoNLL-U. Each is given as lines of comments and then a line of words between blanks."""
    blocks: list[str] = []
    for sentence in sentences:
        *comments, words = sentence.split("\n")
        lines = [f"{n}\t{word}" + "\t_" * 8 for n, word in enumerate(words.split(), 1)]
        blocks.append("\n".join([*comments, *lines, "", ""]))
    return "".join(blocks)


def test_documents_of_conllu(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(
        conllu("# newdoc id = 1\n# label = a|b\nIt rains .", "No", "# newdoc\n# label =\nx", "# label=c\ny")
    )
    found = read_labelled(path, "label", several=True)
    assert [example.labels for example in found] == [("a", "b"), ("c",)]
    assert [example.sentences for example in found] == [(("It", "rains", "."), ("No",)), (("x",), ("y",))]
    assert list(read_unlabelled(path, "label")) == [TextExample(example.sentences) for example in found]


def test_a_document_without_words_is_left_out(tmp_path: Path) -> None:
    """Neither its label nor its beginning counts for the sentence before it or behind it."""
    empty = "# newdoc id = 2\n# label = b\n\n"
    text = conllu("# newdoc id = 1\n# label = a\nx", "y") + empty + conllu("# newdoc\n\n# label = c\nz") + empty
    (tmp_path / "a.conllu").write_text(empty + text)
    found = read_labelled(tmp_path / "a.conllu", "label", several=False)
    assert found == [TextExample((("x",), ("y",)), ("a",)), TextExample((("z",),), ("c",))]
    assert list(read_unlabelled(tmp_path / "a.conllu", "label")) == [TextExample(each.sentences) for each in found]


def test_conllu_without_marks_of_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(conllu("# mood = good\na b", "# mood = bad\nc", "d"))
    assert read_labelled(path, "mood", several=False) == [
        TextExample((("a", "b"),), ("good",)),
        TextExample((("c",), ("d",)), ("bad",)),
    ]
    assert list(read_unlabelled(path, "label")) == [TextExample((("a", "b"), ("c",), ("d",)))]


def test_the_key_of_a_comment_may_have_brackets(tmp_path: Path) -> None:
    """It is text, not a regular expression."""
    (tmp_path / "a.conllu").write_text(conllu("# topic (main) = x\nHi"))
    (found,) = read_labelled(tmp_path / "a.conllu", "topic (main)", several=False)
    assert found.labels == ("x",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (conllu("# newdoc id = x7\na"), "document x7: no comment '# label = …' has its label"),
        (conllu("a", "b"), "document 1: no comment '# label = …'"),
        (conllu("# newdoc\n# label = a\nx", "# label = b\ny"), r"document 1: the text has 2 labels \(a, b\)"),
        ("# newdoc\n", "a.conllu: holds no text; expected CoNLL-U"),
    ],
)
def test_documents_without_one_label_are_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(text)
    with pytest.raises(ElmoError, match=says):
        read_labelled(tmp_path / "a.conllu", "label", several=False)


def test_line_ends_and_lists_of_tokens_are_sentences() -> None:
    assert parse_text('{"text": "a title\\nIt rains."}', PTB) == (("a", "title"), ("It", "rains", "."))
    assert parse_text(' { "tokens": ["It", "rains.", "No"]}', PTB) == (("It", "rains.", "No"),)
    assert parse_text("{x} is a set", PTB) == (("{", "x", "}", "is", "a", "set"),)


@pytest.mark.parametrize(
    ("number", "kept"), [(None, TWO), (99, TWO), (4, (TWO[0], ("Mr.",))), (3, TWO[:1]), (2, (("It", "rains"),))]
)
def test_the_rest_of_a_text_is_cut_off(number: int | None, kept: tuple[tuple[str, ...], ...]) -> None:
    assert first_tokens(TWO, number) == kept


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a text alone", "expected a label, a tab and a text, or a JSON object .*; found 0 tabs"),
        ("5\ta\tx", "; found 2 tabs"),
        ("\tx", "the label is empty"),
        ("a\t ", "the text is empty"),
        ("a|b\tx", r"the text has 2 labels \(a, b\); .*\(labels=several"),
        ('{"labels": [], "text": "x"}', "the text has 0 labels; if texts may"),
        ('{"label": "a", "labels": ["b"], "text": "x"}', "has both keys, label and labels; remove one"),
        ('{"label": "a\\tb", "text": "x"}', "label 'a\\\\tb': holds a tab, a line end or '|'"),
        ('{"label": "a|b", "text": "x"}', "label 'a|b': holds a tab"),
        ('{"label": 1.5, "text": "x"}', 'expected {"label": a text or a whole number}'),
        ('{"labels": "a", "text": "x"}', 'expected {"label"'),
        ('{"label": true, "text": "x"}', 'expected {"label"'),
        ('{"text": "x"}', "key 'label' is missing"),
        ('{"label": "a"}', "key 'text' is missing; expected text, tokens or sentences"),
        ('{"label": "a", "text": ["x"]}', "key 'text': expected text, found list"),
        ('{"label": "a", "text": "\\n"}', "the text is empty"),
        ('{"label": "a", "tokens": "x y"}', "key 'tokens': expected a list of texts"),
        ('{"label": "a", "tokens": ["x y"]}', "tokens: 'x y' is empty or holds white space"),
        ('{"label": "a", "sentences": ["x"]}', "key 'sentences': expected a list of sentences, each a list of tokens"),
        ('{"label": "a", "sentences": [[]]}', "the text is empty"),
        ('{"label": "a"', "not valid JSON"),
    ],
)
def test_bad_lines_are_named(line: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match=rf"a, line 3: .*{says}"):
        read(tmp_path / "a", f"a\tx\n\n{line}\n")


def test_a_file_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="a: holds no text"):
        read(tmp_path / "a", "label\ttext\n\n")
