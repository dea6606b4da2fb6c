"""Sentences keep their places in the text. Every span is compared with the text as Python reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.text import decoding, reading
from elmo.text.conllu import conllu_sentences
from elmo.text.located import cut_text, read_located
from elmo.text.reading import Reading, TextBlock, read_sentences, tokenize_block

TEXTS = st.text(st.sampled_from("ab. \n\r\té“!?你。A1"), max_size=40)
CONLLU = (
    "# newdoc\n# sent_id = got-1 \n# text = a b\n1\tjah\t_\tC\t_\t_\t0\t_\t_\t_\n"
    "2\tNew York\t_\tN\t_\t_\t0\t_\t_\t_\n\n"
    "\n1-2\tzum\t_\t_\t_\t_\t_\t_\t_\t_\n1\tzu\t_\tA\t_\t_\t0\t_\t_\t_\n2\tdem\t_\tD\t_\t_\t0\t_\t_\t_\n"
)


@pytest.mark.parametrize("kind", reading.RAW)
@pytest.mark.parametrize("size", [3, 1 << 18])
@given(text=TEXTS)
def test_spans_are_those_of_the_file(kind: str, size: int, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The sentences are the same as without places, whatever the size of the blocks. A line end is one character."""
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    whole = text.replace("\r\n", "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BLOCK_SIZE", size)
        found = list(read_located([path], Reading("ptb", kind)))
    assert [list(sentence) for sentence in found] == list(read_sentences([path], Reading("ptb", kind)))
    for sentence in found:
        spans = zip(sentence.starts, sentence.ends, strict=True)
        assert [whole[start:end] for start, end in spans] == list(sentence)
        assert (sentence.file, sentence.id) == (str(path), "")


def test_spans_are_of_the_text_that_python_reads(tmp_path: Path) -> None:
    """If words are converted to lower case, their spans still lead to the words as they were written."""
    path = tmp_path / "text"
    path.write_bytes("\ufeffDr. No\r\ncame. 👍🏽 He left.\r\n".encode())
    whole = path.read_text(encoding="utf-8-sig")
    found = list(read_located([path], Reading("ptb", "wrapped", lowercase=True)))
    assert [list(sentence) for sentence in found] == [["dr.", "no", "came", "."], ["👍🏽", "he", "left", "."]]
    spans = [(start, end) for sentence in found for start, end in zip(sentence.starts, sentence.ends, strict=True)]
    assert [whole[start:end] for start, end in spans] == ["Dr.", "No", "came", ".", "👍🏽", "He", "left", "."]


def test_conllu_keeps_ids_and_places(tmp_path: Path) -> None:
    path = tmp_path / "text.conllu"
    path.write_text(CONLLU)
    for size in (4, 1 << 18):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decoding, "BLOCK_SIZE", size)
            one, two = read_located([path], Reading(text="conllu"))
            assert [one, two] == list(read_sentences([path], Reading(text="conllu")))
        assert (one.id, list(one)) == ("got-1", ["jah", "New_York"])
        assert (two.id, list(two)) == ("", ["zu", "dem"])
        spans = [*zip(one.starts, one.ends, strict=True), *zip(two.starts, two.ends, strict=True)]
        assert [CONLLU[start:end] for start, end in spans] == ["jah", "New York", "zu", "dem"]
    assert [sentence.line for sentence in conllu_sentences(CONLLU, "x", 5)] == [5, 12]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1\ta", "line 9: 2 columns between tabs; CoNLL-U has 10"),
        ("1\t \t" + "\t".join("_" * 8), "line 9: the word is"),
        ("1\tsa\t" + "\t".join("_" * 8), "line 10: the word has the number 1; expected 2"),
    ],
)
def test_bad_lines_of_conllu_are_named(tmp_path: Path, monkeypatch, line: str, says: str) -> None:
    """Every reader names the line, although it reads the file in blocks."""
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 4)
    (tmp_path / "text").write_text(CONLLU.replace("1\tzu", f"{line}\n1\tzu"))
    for read in (read_sentences, read_located):
        with pytest.raises(ElmoError, match=rf"text, {says}"):
            list(read([tmp_path / "text"], Reading(text="conllu")))


def test_ids_stand_before_a_tab(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a1\tHe came. She left.\n\nb2\tNo\tway.\n")
    one, two, three = read_located([tmp_path / "text"], Reading("ptb", "paragraphs"), ids=True)
    assert [sentence.id for sentence in (one, two, three)] == ["a1", "a1", "b2"]
    assert (list(two), list(three)) == (["She", "left", "."], ["No", "way", "."])
    whole = (tmp_path / "text").read_text()
    assert [whole[start:end] for start, end in zip(three.starts, three.ends, strict=True)] == ["No", "way", "."]
    assert len(list(read_located([tmp_path / "text"], ids=True))) == 3
    (tmp_path / "text").write_text("He came.\n")
    with pytest.raises(ElmoError, match=r"text, line 1: has no tab; expected an id, a tab and text"):
        list(read_located([tmp_path / "text"], ids=True))
    with pytest.raises(ElmoError, match="`text='wrapped'` joins; leave out the ids"):
        list(read_located([tmp_path / "text"], Reading(text="wrapped"), ids=True))


def test_text_in_memory_is_cut_like_the_training_text() -> None:
    text = "He came. She\n\nleft. Yes."
    for how, expected in (
        (TextConfig("ptb", "paragraphs"), ["He came .", "She", "left .", "Yes ."]),
        (TextConfig("ptb", "sentences"), ["He came .", "She", "left .", "Yes ."]),
        (TextConfig("ptb", "wrapped"), ["He came .", "She", "left .", "Yes ."]),
        (TextConfig("whitespace", "sentences", lowercase=True), ["he came. she", "left. yes."]),
    ):
        found = cut_text(text, how)
        assert [" ".join(sentence) for sentence in found] == expected
        for sentence in found:
            spans = zip(sentence.starts, sentence.ends, strict=True)
            assert [text[start:end].lower() for start, end in spans] == [token.lower() for token in sentence]
    lines = "He\ncame. She\nleft."
    assert cut_text(lines, TextConfig("ptb", "wrapped")) == [["He", "came", "."], ["She", "left", "."]]
    assert cut_text(lines, TextConfig("ptb", "paragraphs")) == [["He"], ["came", "."], ["She"], ["left", "."]]
    assert cut_text(" \n", TextConfig("ptb")) == []


def test_lines_of_conllu_are_counted_from_the_start_of_their_block() -> None:
    assert tokenize_block(TextBlock(CONLLU, "x", 5), Reading(text="conllu"))[1] == [0, 7]


def test_a_line_without_an_id_is_named_by_its_place_in_the_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 4)
    (tmp_path / "text").write_text("a\tHe .\nb\tShe .\nno tab\n")
    with pytest.raises(ElmoError, match=r"text, line 3: has no tab"):
        list(read_located([tmp_path / "text"], ids=True))


def test_a_line_is_a_sentence_if_the_training_text_was_conllu() -> None:
    found = cut_text("He came. She left.\nYes.", TextConfig("whitespace", "conllu"))
    assert found == [["He", "came.", "She", "left."], ["Yes."]]


def test_text_is_split_by_the_rules_of_its_language(tmp_path: Path) -> None:
    pytest.importorskip("sentencex", reason="needs the extra 'sentences'")
    text = "Am 3. Mai kam sie an. Er ging.\n"
    (tmp_path / "ids").write_text(f"a1\t{text}")
    (tmp_path / "text").write_text(text)
    for name, id in (("ids", "a1"), ("text", "")):
        found = list(read_located([tmp_path / name], Reading("ptb", "paragraphs", language="de"), ids=name == "ids"))
        assert [(sentence.id, sentence[0]) for sentence in found] == [(id, "Am"), (id, "Er")]
    found = cut_text(text, TextConfig("ptb", "paragraphs", language="de"))
    assert [sentence[0] for sentence in found] == ["Am", "Er"]


def test_words_of_conllu_are_converted_to_lower_case(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text("1\tShe\t_\tP\t_\t_\t0\t_\t_\t_\n2\t<UNK>\t_\tP\t_\t_\t0\t_\t_\t_\n")
    how = Reading(text="conllu", lowercase=True)
    (found,) = read_located([tmp_path / "a.conllu"], how)
    assert [list(found)] == list(read_sentences([tmp_path / "a.conllu"], how)) == [["she", "<UNK>"]]
