"""Tokenizers: an example of each rule, and properties of all text."""

import importlib.util
import re
import sys
import time
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.text.tokenizers import get_tokenizer, split_sentences

PTB = {
    "I can't, won't, don't and cannot.": "I ca n't , wo n't , do n't and can not .",
    "He's, we've; they'll I'd I'm you're it'd've": "He 's , we 've ; they 'll I 'd I 'm you 're it 'd 've",
    "DON'T! It’s ours, isn’t it?": "DO N'T ! It ’s ours , is n’t it ?",
    "dogs' o'clock y'all O'Neil d'Artagnan": "dogs ' o'clock y'all O'Neil d'Artagnan",
    "the '90s, 'tis, get 'em, 'Hello'": "the '90s , 'tis , get 'em , ' Hello '",
    "Mr. J. K. Smith, Ph.D., left at 10:30 a.m. from the U.S. to Rome.": (
        "Mr. J. K. Smith , Ph.D. , left at 10:30 a.m. from the U.S. to Rome ."
    ),
    "He works for Acme Inc.": "He works for Acme Inc .",
    'He said: "I live in the U.S."': 'He said : " I live in the U.S . "',
    "No. 5 lives. No. He left. Mary stayed": "No. 5 lives . No . He left . Mary stayed",
    "It costs $1,000.5, US$5 or £3; 3.2% of -5 and .5, 1/2": (
        "It costs $ 1,000.5 , US $ 5 or £ 3 ; 3.2 % of -5 and .5 , 1/2"
    ),
    "state-of-the-art -- wait... what—no? Well…": "state-of-the-art -- wait ... what — no ? Well …",
    "(a) [b] {c} <d> “e” ‘f’ ``g'' «h»": "( a ) [ b ] { c } < d > “ e ” ‘ f ’ `` g '' « h »",
    "See https://example.com/a?b=1,2. Or mail me@example.co.uk!": (
        "See https://example.com/a?b=1,2 . Or mail me@example.co.uk !"
    ),
    "AT&T and/or snake_case v2.0 U.S.-based 3rd #tag": "AT&T and/or snake_case v2.0 U.S.-based 3rd # tag",
    "good👍🏽 👩‍👩‍👧🇩🇪": "good 👍🏽 👩‍👩‍👧 🇩🇪",
    "हिन्दी में। ไทย, עברית": "हिन्दी में । ไทย , עברית",
    "": "",
    " \t ": "",
}


@pytest.mark.parametrize("text", PTB)
def test_ptb_rules(text):
    assert get_tokenizer("ptb")(text) == PTB[text].split()


@pytest.mark.parametrize("name", ["whitespace", "ptb"])
@given(text=st.text(st.one_of(st.characters(), st.sampled_from("'’.n-t \u2028can,1"))))
def test_tokens_contain_all_of_the_text_except_whitespace(name, text):
    tokens = get_tokenizer(name)(text)
    assert "".join(tokens) == "".join(text.split())
    assert all(token and token.split() == [token] for token in tokens)


@given(st.text(st.one_of(st.characters(), st.sampled_from('.!?。 \nAa1"“)'))))
def test_sentences_contain_all_of_the_text_except_whitespace(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@pytest.mark.parametrize(
    "piece", ["a", "-+", "a'", "a.", ".", ". ", "n't", "http://", "a@", "A.)", "1,", "👍\u200d", "。"]
)
def test_time_is_linear_in_the_length(piece):
    """A regular expression that backtracks a lot would take minutes here."""
    text = piece * 100_000
    begin = time.process_time()
    get_tokenizer("ptb")(text)
    split_sentences(text)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith came.", '"Hello!" he said.', "(He left.)", "Then 3 men came, etc.", "They ate..."],
        ["In the U.S. Senate J. K. Rowling spoke.", "See No. 5, Fig. 3.", "No.", "Yes, Dr. No."],
        ["1. Introduction is here.", "2. More in 1999.", "The end"],
        ["What?!", "“Nothing.”", "¿Qué?", "Sí…", "He asked why? and left."],
        ["क्या है।", "वह गया।"],
        ["اب کیا ہے؟", "وہ گیا۔"],
        ["Ça va?", "Élan vital.", "Что?", "Это всё."],
    ],
    ids=lambda sentences: sentences[0],
)
def test_sentences_end_where_they_should(sentences):
    assert split_sentences("  " + " \t".join(sentences)) == sentences


def test_full_width_marks_need_no_whitespace():
    assert split_sentences("你好。再见！「是吗？」他说。") == ["你好。", "再见！", "「是吗？」", "他说。"]


@pytest.mark.parametrize("paragraph", ["", " \n\t"])
def test_no_sentences(paragraph):
    assert split_sentences(paragraph) == []


@pytest.mark.parametrize("name", ["", "PTB", "spacy", "spacy:", "moses"])
def test_unknown_names(name):
    with pytest.raises(ElmoError, match=re.escape(f"tokenizer {name!r} is unknown; choose whitespace, ptb or spacy:")):
        get_tokenizer(name)


def test_spacy_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ElmoError, match=re.escape("pip install 'elmo-torch[spacy]'")):
        get_tokenizer("spacy:absent")


def test_spacy_tokens_contain_no_whitespace(monkeypatch):
    """spaCy makes tokens of extra whitespace. A stand-in does the same here, because spaCy may not be installed."""

    def blank(language: str) -> types.SimpleNamespace:
        if language != "stand-in":
            raise ImportError(f"[E048] Can't import language {language}")
        pieces = re.compile(r"\w+ \w+|\s+|\S")
        return types.SimpleNamespace(
            tokenizer=lambda text: [types.SimpleNamespace(text=piece) for piece in pieces.findall(text)]
        )

    monkeypatch.setitem(sys.modules, "spacy", types.SimpleNamespace(blank=blank))
    assert get_tokenizer("spacy:stand-in")("New York  , \u2028 !") == ["New", "York", ",", "!"]
    with pytest.raises(ElmoError, match="no tokenizer for 'none'"):
        get_tokenizer("spacy:none")


@pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="needs the extra spacy")
def test_spacy():
    assert get_tokenizer("spacy:de")("Das ist z.B.  gut.") == ["Das", "ist", "z.B.", "gut", "."]
