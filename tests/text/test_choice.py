"""How a text is cut for a model: what counts as tokenized, what is taken from the model, and what is said about it."""

from __future__ import annotations

import io
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.text.choice import (
    SAMPLE_CHARACTERS,
    Sample,
    choose_cut,
    choose_for_files,
    how_to_cut,
    looks_tokenized,
    sample_of,
    unknown_note,
)
from elmo.text.decoding import read_lines
from elmo.text.query import cut_query, tokenizer_for_query
from elmo.text.reading import Reading
from elmo.text.rules import split_sentences

RAW, TOKENIZED = "They didn't play, did they? No.\n", "They did n't play , did they ? No .\n"
OWN = TextConfig("ptb", "paragraphs", lowercase=False, language="en", oov_rate=0.04)


@pytest.mark.parametrize(
    ("text", "is_tokenized"),
    [
        (RAW, False),
        (TOKENIZED, True),
        ("Mr. Smith of the U.S. left .\n", True),
        ("He left.\nShe stayed.", False),
        ("„Ja.“\n", False),
        ("他去银行存钱，然后回家。", False),
        ("他 去 银行 存钱 ， 然后 回家 。", True),
        ("ما هذا؟ ذهب، ثم عاد.", False),
        ("ما هذا ؟ ذهب ، ثم عاد .", True),
        ("क्या है।", False),
        ("धर्मक्षेत्रे॥", False),
        ("וַיְהִי אוֹר׃", False),
        ("וַיְהִי אוֹר ׃", True),
        ("ما هذا؟", False),
        ("Who is it?", False),
        ("یہ کیا ہے۔ وہ گیا۔", False),
        ("یہ کیا ہے ۔ وہ گیا ۔", True),
        ("Նա գնաց։", False),
        ("Նա գնաց ։", True),
        ("ሰላም። እንዴት ነህ፧", False),
        ("ሰላም ። እንዴት ነህ ፧", True),
        ("သူ သွားသည်။", False),
        ("သူ သွား သည် ။", True),
        ("គាត់នៅផ្ទះ។", False),
        ("ភាសាខ្មែរគឺជាភាសាកំណើតរបស់ជនជាតិខ្មែរ ។", False),  # people often type a space before the mark
        ("ភាសា ខ្មែរ គឺ ជា ភាសា កំណើត របស់ ជនជាតិ ខ្មែរ ។", True),
        ("བཀྲ་ཤིས་བདེ་ལེགས། ང་འགྲོ།", False),
        ("བཀྲ་ཤིས་ བདེ་ལེགས ། ང་ འགྲོ །", True),
        ("སངས་རྒྱས་ཆོས་ཚོགས། །\nབྱང་ཆུབ་བར་དུ། །\n", False),  # the second mark belongs to the first
        ("སངས་རྒྱས་ ཆོས་ ཚོགས ། །\nབྱང་ཆུབ་ བར་ དུ ། །\n", True),
        ("དེ་དག །", None),  # no mark follows this letter, so the mark is the second one
        ("今天 。。。 好 。", True),
        ("They saw a new play\nChildren play", None),
        ("MKVLA\nGG", None),
        ("", None),
        ("3.5 1,000 v2.0", None),
    ],
)
def test_text_is_tokenized_if_its_marks_stand_between_spaces(text: str, is_tokenized: bool | None) -> None:
    assert looks_tokenized(text) is is_tokenized


def test_raw_text_is_cut_as_the_training_text() -> None:
    choice = choose_cut(OWN, RAW)
    assert choice.reading == Reading("ptb", "paragraphs", "utf-8", lowercase=False, language="en")
    assert (choice.is_own, choice.notes) == (True, ())
    assert str(choice) == "; raw text, cut as the model's training text was (tokenizer ptb, paragraphs)"


def test_tokenized_text_stays_as_it_is_but_for_its_case() -> None:
    lower = TextConfig("ptb", "paragraphs", lowercase=True)
    for sample in (TOKENIZED, "no marks at all", None):
        choice = choose_cut(lower, sample)
        assert choice.reading == Reading(lowercase=True)
        assert (str(choice), choice.notes) == ("", ())


def test_lower_case_can_be_chosen_for_a_model_that_says_nothing_of_its_text() -> None:
    choice = choose_cut(None, TOKENIZED, lowercase=True)
    assert (choice.reading, choice.notes) == (Reading(lowercase=True), ())


def test_proteins_and_other_text_without_spaces_are_raw() -> None:
    choice = choose_cut(TextConfig("chars"), "MKVLA\nGGH\n")
    assert choice.reading == Reading("chars")
    assert choose_cut(TextConfig("chars"), "M K V\n").reading.tokenizer == "whitespace"


@pytest.mark.parametrize(
    ("given", "reading", "notes"),
    [
        ({"tokenizer": "ptb"}, ("ptb", "sentences"), []),
        ({"text": "wrapped"}, ("ptb", "wrapped"), []),
        ({"tokenizer": "ptb", "text": "wrapped"}, ("ptb", "wrapped"), []),
        ({"tokenizer": "words"}, ("words", "sentences"), ["cut by tokenizer ptb, not by words"]),
        ({"tokenizer": "whitespace"}, ("whitespace", "sentences"), ["cut by tokenizer ptb, not by whitespace"]),
        (
            {"lowercase": True},
            ("ptb", "paragraphs"),
            ["converted to lower case, and the model's training text was"],
        ),
        ({"lowercase": False}, ("ptb", "paragraphs"), []),
        ({"text": "conllu"}, ("whitespace", "conllu"), []),
    ],
    ids=str,
)
def test_options_take_precedence_and_differences_are_noted(given, reading, notes) -> None:
    choice = choose_cut(OWN, RAW, **given)
    assert (choice.reading.tokenizer, choice.reading.text) == reading
    assert len(choice.notes) == len(notes)
    assert all(note in said for note, said in zip(notes, choice.notes, strict=True))


def test_whitespace_for_tokenized_text_is_no_difference() -> None:
    assert choose_cut(TextConfig(), RAW, tokenizer="ptb").notes == (), "nobody knows what cut the training text"
    assert choose_cut(OWN, TOKENIZED, tokenizer="whitespace").notes == ()
    assert choose_cut(TextConfig(lowercase=True), TOKENIZED, lowercase=False).notes == (
        "the model's training text was converted to lower case, and this text is not",
    )


def test_text_that_looks_laid_out_in_another_way_is_noted(tmp_path: Path) -> None:
    """Each line of wrapped text would be read as if its sentence ended there."""
    line = "the old house at the end of the long road was empty and\n"
    (tmp_path / "text").write_text(line * 30)
    own = TextConfig("words", "paragraphs")
    for given, is_noted in (({}, True), ({"text": "sentences"}, True), ({"text": "wrapped"}, False)):
        choice, path = choose_for_files(own, None, [str(tmp_path / "text")], tokenizer="words", **given)
        assert any("the lines look as if they were wrapped" in note for note in choice.notes) == is_noted
        assert path == str(tmp_path / "text")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_a_pipe_with_a_name_is_noted(tmp_path: Path) -> None:
    """Its text can't be looked at, so it is cut at spaces, as if it were tokenized."""
    os.mkfifo(tmp_path / "pipe")
    pipe = [str(tmp_path / "pipe")]
    (note,) = choose_for_files(OWN, None, pipe)[0].notes
    assert note.startswith("it comes from a named pipe, whose beginning can't be looked at, and is cut at spaces; if")
    for own, given in ((OWN, {"tokenizer": "whitespace"}), (OWN, {"text": "conllu"}), (TextConfig(), {}), (None, {})):
        assert choose_for_files(own, None, pipe, **given)[0].notes == ()


def test_the_layout_follows_a_training_text_that_was_cut_at_spaces() -> None:
    own = TextConfig(text="wrapped")
    assert choose_cut(own, RAW).reading.text == "wrapped"
    assert choose_cut(own, RAW, text="paragraphs").reading.text == "paragraphs"
    assert choose_cut(own, TOKENIZED).reading.text == "sentences"


def test_a_model_that_does_not_say_reads_as_before_and_raw_text_is_noticed() -> None:
    """The folders of earlier versions and most published models do not say how their text was cut."""
    for own, says in (
        (None, "the model does not say how"),
        (TextConfig(), "learned from text that was already tokenized"),
    ):
        choice = choose_cut(own, RAW)
        assert (choice.reading, choice.is_own) == (Reading(), False)
        assert len(choice.notes) == 1
        assert says in choice.notes[0]
        assert choose_cut(own, TOKENIZED).notes == choose_cut(own, "play\n").notes == choose_cut(own, " \n").notes == ()
    assert "`tokenizer='whitespace'` to cut at spaces only, as AllenNLP" in choose_cut(None, RAW).notes[0]
    assert choose_cut(None, RAW, tokenizer="whitespace").notes == ()


def test_a_function_that_a_model_names_is_not_run() -> None:
    """The model may come from a stranger, and any function of any module can be named."""
    own = TextConfig("os:system", "sentences")
    with pytest.raises(
        ElmoError, match="the model names tokenizer os:system, a function from outside of this package; if you trust it"
    ):
        choose_cut(own, RAW)
    with pytest.raises(ElmoError, match="pass `tokenizer='os:system'`"):
        how_to_cut(own, RAW)
    assert tokenizer_for_query(RAW, "whitespace", own) == "whitespace"
    with pytest.raises(ElmoError, match="the index names tokenizer os:system"):
        tokenizer_for_query(RAW, "os:system", OWN)
    assert choose_cut(own, TOKENIZED).reading.tokenizer == "whitespace"
    assert choose_cut(own, RAW, tokenizer="os:system").reading.tokenizer == "os:system", "whoever passes it knows it"


def test_words_of_conllu_are_given() -> None:
    with pytest.raises(ElmoError, match="tokenizer ptb: the words of CoNLL-U are given; leave out the tokenizer"):
        choose_cut(OWN, RAW, text="conllu", tokenizer="ptb")


def test_missing_rules_of_a_language_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmo.text.choice.is_split_by_language", lambda language: False)
    german = TextConfig("spacy:de", "paragraphs", language="de")
    (note,) = choose_cut(german, "Ja, so. Er ging.").notes
    assert note.startswith("sentences of language de are split by our rules")
    assert "pip install 'elmo-torch[sentences]'" in note
    assert choose_cut(german, "Ja , so .").notes == (), "a line is a sentence"
    assert choose_cut(OWN, RAW).notes == ()


def test_queries_are_cut_as_the_text() -> None:
    assert tokenizer_for_query(TOKENIZED, "spacy:de", OWN) == "spacy:de"
    assert tokenizer_for_query(RAW, "whitespace", OWN) == "ptb"
    assert tokenizer_for_query(TOKENIZED, "whitespace", OWN) == "whitespace"
    assert tokenizer_for_query(RAW, "whitespace", None) == "whitespace"


def test_words_of_a_query_are_cut_unless_they_are_tokens() -> None:
    words, sentence = cut_query(["U.S.", "don't", "New York"], "He left\nthe U.S., too.", "ptb", None)
    assert sentence == ["He", "left", "the", "U.S.", ",", "too", "."], "a line end doesn't end it"
    assert words == ["U.S.", "do n't", "New York"]
    assert cut_query(["don't"], None, "ptb", None, known=["don't"]).words == ["don't"]
    assert cut_query(["DON'T"], None, "ptb", None, lowercase=True, known=["don't"]).words == ["don't"]
    assert cut_query(["don't"], None, "ptb", None, tokenizer="whitespace") == (["don't"], None)
    assert cut_query(["U.S."], None, "ptb", None).words == ["U.S."], "the period does not end a sentence"
    assert cut_query(["No."], "See No. 5.", "ptb", None).words == ["No."], "a token of the sentence"
    assert cut_query(["DON'T"], "I DO.", "ptb", None, lowercase=True) == (["do n't"], ["i", "do", "."])
    assert cut_query(["play"], RAW, "whitespace", OWN).sentence == TOKENIZED.split(), "the sentence is raw"


def test_words_of_a_query_are_whole_if_the_tokenizer_leaves_marks_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmo.text.query.get_tokenizer", lambda name: re.compile(r"\w+").findall)
    assert cut_query(["New York"], None, "without marks", None).words == ["New York"]


def test_the_tokenizer_of_an_index_is_not_run_for_words_that_it_has() -> None:
    assert cut_query(["in", "on"], None, "os:system", OWN, known=["in", "on"]) == (["in", "on"], None)
    with pytest.raises(ElmoError, match="the index names tokenizer os:system"):
        cut_query(["in", "at"], None, "os:system", OWN, known=["in", "on"])


def test_text_in_memory_needs_a_tokenizer() -> None:
    with pytest.raises(ElmoError, match="the model does not say how its training text was cut; pass `tokenizer='ptb'`"):
        how_to_cut(None, RAW)
    with pytest.raises(ElmoError, match="`tokenizer='whitespace'` to cut at spaces only, as AllenNLP"):
        how_to_cut(None, RAW)
    assert how_to_cut(None, RAW, "ptb", "de") == TextConfig("ptb", language="de")
    assert how_to_cut(OWN, RAW) == OWN
    assert how_to_cut(OWN, RAW, "words").tokenizer == "words"
    assert how_to_cut(TextConfig(), TOKENIZED) == TextConfig()
    with pytest.warns(UserWarning, match=r"looks like raw text, .* or name the tokenizer that comes nearest"):
        how_to_cut(TextConfig(), RAW)


def stdin(monkeypatch: pytest.MonkeyPatch, *parts: bytes) -> None:
    """Let standard input be a pipe into which these parts are written one after the other."""

    left = iter(parts)

    class Pipe(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            data = next(left, b"")
            buffer[: len(data)] = data
            return len(data)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe())))


def beginning_of(paths: list[str], encoding: str = "utf-8") -> str | None:
    sample = sample_of(paths, encoding)
    return None if sample is None else sample.text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_the_beginning_of_a_text_is_looked_at_without_consuming_it(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("é\n".encode("latin-1"))
    assert beginning_of([str(tmp_path / "text")], "latin-1") == "é"
    os.mkfifo(tmp_path / "pipe")
    assert beginning_of([str(tmp_path / "pipe")]) is None
    assert beginning_of([]) is None
    (tmp_path / "empty").touch()
    assert beginning_of([str(tmp_path / "empty")]) == ""


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_last_line_counts_with_and_without_a_line_end(ending: str, tmp_path: Path, monkeypatch) -> None:
    text = f"LETTERS OF A LADY\nThey met, then left{ending}"
    (tmp_path / "text").write_text(text)
    stdin(monkeypatch, text.encode())
    for path in (str(tmp_path / "text"), "-"):
        assert str(beginning_of([path])).splitlines() == text.splitlines()


def test_the_first_text_with_marks_is_looked_at(tmp_path: Path) -> None:
    names = [str(tmp_path / str(number)) for number in range(4)]
    for name, text in zip(names, ("", "LETTERS OF A LADY\n", "They saw it.\n", "A b .\n"), strict=True):
        Path(name).write_text(text)
    assert sample_of(names) == (names[2], "They saw it.")
    assert sample_of(names[:2]) == (names[1], "LETTERS OF A LADY")
    assert beginning_of(names[:1]) == ""


def test_standard_input_is_looked_at_as_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text may arrive in any pieces, one after the heading for example, and is then still read from its start."""
    text = "Chapter one.\n" + "They saw a new play , wie schön .\n" * SAMPLE_CHARACTERS
    (tmp_path / "text").write_text(text)
    wanted = beginning_of([str(tmp_path / "text")])
    stdin(monkeypatch, *(line.encode() for line in text.splitlines(keepends=True)))
    assert beginning_of(["-"]) == wanted
    assert looks_tokenized(wanted or "")
    parts = ("\ufeffLETTERS\r\n".encode(), "Sïe, ".encode()[:2], "Sïe, ".encode()[2:], b"he\r\ncame. ", b"End")
    stdin(monkeypatch, *parts)
    assert beginning_of(["-"]) == "LETTERS\nSïe, he\ncame. End"
    assert [*read_lines("-")] == ["LETTERS", "Sïe, he", "came. End"]
    stdin(monkeypatch, "é, b\né".encode()[:-1])
    assert beginning_of(["-"]) == beginning_of(["-"]) == "é, b\n", "and once more"
    assert sys.stdin.buffer.read() == "é, b\né".encode()[:-1]
    stdin(monkeypatch, *[b"word "] * SAMPLE_CHARACTERS)
    assert len(beginning_of(["-"]) or "") == SAMPLE_CHARACTERS, "a text without marks is not read to its end"
    stdin(monkeypatch, "a, b\n".encode("utf-16-le"))
    assert beginning_of(["-"], "utf-16") == "", "without a byte-order mark, which read_lines reports"
    with pytest.raises(ElmoError, match="name its byte order"):
        list(read_lines("-", "utf-16"))
    stdin(monkeypatch, b"a, b")
    with pytest.raises(ElmoError, match="encoding 'foo' is unknown"):
        beginning_of(["-"], "foo")
    monkeypatch.setattr(sys, "stdin", io.StringIO("a, b"))
    assert beginning_of(["-"]) is None


def test_the_beginning_of_a_text_ends_where_a_line_does(tmp_path: Path, monkeypatch) -> None:
    """A line of CoNLL-U that is cut off would be refused."""
    line = "a line of a long text\n"
    long = tmp_path / "long"
    long.write_text(line * SAMPLE_CHARACTERS)
    sample = beginning_of([str(long)])
    assert sample == line * (SAMPLE_CHARACTERS // len(line))
    stdin(monkeypatch, sample.encode(), b"cut off" * 10)
    assert str(beginning_of(["-"])).endswith(line)
    long.write_text("x" * 2 * SAMPLE_CHARACTERS)
    assert beginning_of([str(long)]) == "x" * SAMPLE_CHARACTERS


def test_many_unknown_words_are_noticed(tmp_path: Path) -> None:
    """The share is compared with that of the training text. In a short text it has to be larger."""
    words = tmp_path / "vocabulary.txt"
    words.write_bytes(b"<S>\r\n</S>\r\n<UNK>\r\nthey\r\nplay\r\n.\r\n")  # as Git checks it out on Windows
    known, strange = "they play .\n" * 50, "sie spielen .\n" * 50
    reading = choose_cut(OWN, known).reading

    def note_on(text: str, own: TextConfig | None = OWN, words: Path = words) -> str | None:
        return unknown_note(own, words, Sample("a.txt", text), reading)

    note = note_on(strange)
    assert note is not None
    assert note.startswith(
        "67% of the first 150 tokens are not among the model's words (4.0% in its training text); is this text in"
    )
    assert "in the language of the model (en), and cut as that was (tokenizer ptb)?" in note
    unnamed = note_on(strange, replace(OWN, language=None))
    assert unnamed is not None
    assert "; is this text in the model's language, and cut as that was (tokenizer ptb)?" in unnamed
    assert note_on(known) is None
    assert note_on("sie spielen .\n") is None, "three tokens say nothing"
    assert note_on("they play Ann and Bob and they . play they\n") is None, "names"
    assert note_on("sie spielen heute , und sie spielen .\n") is not None
    assert note_on("they play .\n" * 41 + "sie spielen heute .\n" * 7) is not None, "14% of a long text"
    assert note_on("sie spielen heute , und sie spielen .\n", replace(OWN, oov_rate=0.6)) is None, "as many as ever"
    assert note_on(strange, words=tmp_path / "none") is None
    assert note_on(strange, TextConfig("ptb")) is None
    assert note_on(strange, None) is None
    for own_form, other in (("NFC", "NFD"), ("NFD", "NFC")):
        words.write_text(normalize(own_form, "<S>\n</S>\n<UNK>\nhír\nút\n.\n"), encoding="utf-8")
        assert note_on(normalize(own_form, "hír út .\n" * 50)) is None
        assert note_on(normalize(other, "hír út .\n" * 50)) == (
            "67% of the first 150 tokens are not among the model's words, most of them only since their letters have "
            f"another Unicode normal form; convert the text to {own_form}, for instance by 'uconv -x "
            f"{own_form.lower()}'"
        )
        mostly_other = note_on(normalize(other, "hír " + "új két ház nagy . " * 3 + "\n") * 50)
        assert "is this text in" in str(mostly_other)
    words.write_bytes(b"<S>\n</S>\n<UNK>\ncaf\xe9\n")
    with pytest.raises(ElmoError, match=r"vocabulary\.txt, line 4: not valid UTF-8"):
        note_on(strange)


def test_raw_text_is_never_read_as_conllu() -> None:
    """The training text may have been CoNLL-U, with which earlier versions also let people name a tokenizer."""
    assert choose_cut(TextConfig("ptb", "conllu"), RAW).reading == Reading("ptb", "sentences", "utf-8")


@pytest.mark.parametrize("language", ["English", "d", "de AT", "\ud800", "é"])
def test_a_language_is_given_by_its_code(language: str) -> None:
    for call in (
        lambda: choose_cut(OWN, RAW, language=language),
        lambda: how_to_cut(OWN, RAW, language=language),
        lambda: split_sentences(RAW, language),
    ):
        with pytest.raises(ElmoError, match=r"^language .*: is not the code of a language; give one such as en"):
            call()
    with pytest.raises(ElmoError, match=r"^language: expected a string, found list$"):
        split_sentences(RAW, ["en"])  # type: ignore[arg-type]
    assert choose_cut(OWN, RAW, language="pt-BR").reading.language == "pt-BR"


def test_the_language_of_a_tokenizer_goes_before_that_of_the_model() -> None:
    assert choose_cut(OWN, RAW, tokenizer="spacy:de").reading.language == "de"
    assert how_to_cut(OWN, RAW, "spacy:de").language == "de"
    assert choose_cut(OWN, RAW, tokenizer="spacy:de", language="fr").reading.language == "fr"


def test_a_note_on_the_cut_goes_before_one_on_words(tmp_path: Path) -> None:
    (tmp_path / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nthey\n")
    (tmp_path / "text").write_text("sie spielen .\n" * 50)
    choice, _ = choose_for_files(OWN, tmp_path / "vocabulary.txt", [str(tmp_path / "text")], tokenizer="words")
    assert choice.notes == ("the model's training text was cut by tokenizer ptb, not by words",)


def test_sentences_of_conllu_need_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmo.text.choice.is_split_by_language", lambda language: False)
    assert choose_cut(TextConfig("spacy:de", "paragraphs", language="de"), RAW, text="conllu").notes == ()


def test_text_with_as_many_marks_of_each_kind_counts_as_tokenized() -> None:
    assert looks_tokenized("Yes , he said.\n")
