"""Each rule of the tokenizers has an example, and some properties hold for any text."""

import gc
import importlib.util
import pickle
import re
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.text import rules, tokenizers
from elmo.text.alignment import PlacedToken, align
from elmo.text.languages import short_code
from elmo.text.prepare import prepare
from elmo.text.rules import split_sentences
from elmo.text.tokenizers import (
    KINDS,
    RULES,
    file_of_function,
    get_tokenizer,
    is_function,
    language_of,
    locate,
)
from pages import ROOT

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
    "3%-5%, (-5)": "3 % - 5 % , ( - 5 )",
    "state-of-the-art -- wait... what—no? Well…": "state-of-the-art -- wait ... what — no ? Well …",
    "(a) [b] {c} <d> “e” ‘f’ ``g'' «h»": "( a ) [ b ] { c } < d > “ e ” ‘ f ’ `` g '' « h »",
    "See https://example.com/a?b=1,2. Or mail me@example.co.uk!": (
        "See https://example.com/a?b=1,2 . Or mail me@example.co.uk !"
    ),
    "Https://example.com/a, HTTP://EXAMPLE.COM": "Https://example.com/a , HTTP://EXAMPLE.COM",
    "AT&T and/or snake_case v2.0 U.S.-based 3rd #tag": "AT&T and/or snake_case v2.0 U.S.-based 3rd # tag",
    "good👍🏽 👩‍👩‍👧🇩🇪": "good 👍🏽 👩‍👩‍👧 🇩🇪",
    "हिन्दी में। ไทย, עברית": "हिन्दी में । ไทย , עברית",
    "\ufeffThe end.\u200e\u200b": "The end .",
    "": "",
    " \t ": "",
}


WORDS = {
    "L'eau, porte-monnaie: c'est-à-dire, 1.000,5 à 10:30!": "L'eau , porte-monnaie : c'est-à-dire , 1.000,5 à 10:30 !",
    "Das ist z.B. gut, d.h. (sehr) gut.": "Das ist z.B. gut , d.h. ( sehr ) gut .",
    "Vgl. Abb. 3 – «так», т.е. да…": "Vgl . Abb . 3 – « так » , т.е. да …",
    "Siehe https://example.org/a?b=1. Oder an me@example.org!": (
        "Siehe https://example.org/a?b=1 . Oder an me@example.org !"
    ),
    "Https://example.org/a, HTTP://EXAMPLE.ORG": "Https://example.org/a , HTTP://EXAMPLE.ORG",
    "他去银行存钱，2023年。": "他 去 银 行 存 钱 ， 2023 年 。",
    "東京タワーは高い。が": "東 京 タ ワ ー は 高 い 。 が",
    "ذهبتُ إلى السوقِ، ثم عدتُ.": "ذهبتُ إلى السوقِ ، ثم عدتُ .",
    "צה״ל ואח׳ אמרו: שלום.": "צה״ל ואח׳ אמרו : שלום .",
    "हिन्दी में।": "हिन्दी में ।",
    "🇩🇪👍🏽 ok": "🇩🇪 👍🏽 ok",
    'צה"ל אמר: "כן".': 'צה"ל אמר : " כן " .',
    "_very_ fine, __init__ of snake_case_": "_ very _ fine , __ init __ of snake_case _",
    "\u200fשלום\u200f.\u200f\u202bאב\u202c": "שלום . אב",
    "One\ufeffTwo\u200bthree": "One Two three",
    "l'_Odyssée_ l'eau": "l ' _ Odyssée _ l'eau",
    "La col·lecció de 3/4 i 1/2.": "La col·lecció de 3/4 i 1/2 .",
    "٣٫١٤ ١٬٠٠٠": "٣٫١٤ ١٬٠٠٠",
    "か\u3099く": "か\u3099 く",
    "https://example.org/a\u200f.": "https://example.org/a .",
}


@pytest.mark.parametrize("name", [name for name, value in vars(rules).items() if isinstance(value, str)])
def test_no_group_is_repeated_possessively(name: str) -> None:
    """Before Python 3.11.5, such a repeat matches too much, and text is cut in another way."""
    assert not re.search(r"\)([*+?]|\{[\d,]+\})\+", getattr(rules, name))


@pytest.mark.parametrize("text", WORDS)
def test_rules_for_any_language(text):
    assert get_tokenizer("words")(text) == WORDS[text].split()


def test_characters_keep_their_marks():
    chars = get_tokenizer("chars")
    assert chars("MKV lq") == ["M", "K", "V", "l", "q"]
    assert chars("他去。") == ["他", "去", "。"]
    assert chars("é e\u0301 हि सु") == ["é", "e\u0301", "हि", "सु"]
    assert chars("👩‍👩‍👧👍🏽a") == ["👩‍👩‍👧", "👍🏽", "a"]
    assert chars("🇩🇪🇫🇷🇬 🇧") == ["🇩🇪", "🇫🇷", "🇬", "🇧"]
    assert chars("\ufeffש\u200fל") == ["ש", "ל"]
    assert chars("a \u0301") == ["a", "\u0301"], "nothing is joined across a space"


@pytest.mark.parametrize(
    ("text", "tokens", "parts"),
    [
        ('He said "no".', ["He", "said", "``", "no", "''", "."], ["He", "said", '"', "no", '"', "."]),
        ("(a)  b", ["-LRB-", "a", "-RRB-", "b"], ["(", "a", ")", "b"]),
        ("Play WELL", ["play", "well"], ["Play", "WELL"]),
        ("a, b; c", ["a", "b", "c"], ["a", "b", "c"]),
        ("Hello, World! This is it.", ["hello", "world", "this", "is", "it"], ["Hello", "World", "This", "is", "it"]),
        ("İzmir, İSTANBUL", ["İzmir", "istanbul"], ["İzmir", "İSTANBUL"]),
        ("é\u200bΣ", ["é", "Σ"], ["é", "Σ"]),
        (f"A{'.' * 20_000}B c", ["a", "b", "c"], ["A", f"{'.' * 20_000}B c", f"{'.' * 20_000}B c"]),
        ("del mar", ["de", "el", "mar"], ["de", "l", "mar"]),
        ("  zum Haus ", ["zu", "dem", "Haus"], ["zu", "m", "Haus"]),
        ("au  ", ["à", "le"], ["au", "au"]),
        ("zum Haus am dem Weg", ["zu", "dem", "Haus", "am", "dem", "Weg"], ["zu", "m", "Haus", "am", "dem", "Weg"]),
        (
            "du chat et de la, le",
            ["de", "le", "chat", "et", "de", "la", ",", "le"],
            ["du", "du", "chat", "et", "de", "la", ",", "le"],
        ),
        ("cafe\u0301 a Roma", ["café", "a", "Roma"], ["cafe\u0301", "a", "Roma"]),
        ("أحوال و أخبار", ["احوال", "و", "اخبار"], ["أحوال", "و", "أخبار"]),
        (
            "我們愛貓，貓愛我們",
            ["我们", "愛", "貓", "，", "貓", "愛", "我们"],
            ["我們", "愛", "貓", "，", "貓", "愛", "我們"],
        ),
        ("  ", ["x"], [""]),
        ("", [], []),
    ],
)
def test_rewritten_tokens_stand_for_a_part_of_the_text(text, tokens, parts):
    found = align(text, tokens)
    assert [token for token, *_ in found] == tokens
    assert [text[start:end] for _, start, end in found] == parts


def test_a_token_without_any_text_is_where_the_one_before_it_ends():
    assert align(" b", ["a", "b"]) == [PlacedToken("a", 0, 0), PlacedToken("b", 1, 2)]
    assert align("c b", ["c", "a", "b"])[1:] == [PlacedToken("a", 1, 1), PlacedToken("b", 2, 3)]


@given(text=st.text("ABab, .É"), tokenize=st.sampled_from([str.split, re.compile(r"\w+").findall]))
def test_tokens_in_lower_case_without_marks_have_exact_places(text, tokenize):
    tokens = [token.lower() for token in tokenize(text)]
    assert [text[start:end] for _, start, end in align(text, tokens)] == tokenize(text)


@given(text=st.text("ab \"'", max_size=12), tokens=st.lists(st.text("ab`'", min_size=1, max_size=3), max_size=6))
def test_places_of_any_tokens_are_in_the_text_and_in_order(text, tokens):
    found = align(text, tokens)
    assert [token for token, *_ in found] == tokens
    assert all(0 <= start <= end <= len(text) for _, start, end in found)
    assert [start for _, start, _ in found] == sorted(start for _, start, _ in found)


MODULE = """
def syllables(sentence):
    return sentence.replace("-", " ").split() + [""]

def placed(sentence):
    return [("New York", 3, 12)]

def broken(sentence):
    return [1, 2]

def joined(sentence):
    return " ".join(sentence)

def outside(sentence):
    return [("In", 0, 2), ("York", 8, 99)]

def first(sentence):
    return [sentence.split()[0], sentence.split()[1]]

def half(sentence):
    return [chr(0xD83D), "b"]

def not_found(sentence):
    return [("York", sentence.find("York"), 4)]

number = 3
"""


@pytest.fixture
def _own_module(tmp_path, monkeypatch):
    (tmp_path / "my_tokens.py").write_text(MODULE)
    (tmp_path / "bad_syntax.py").write_text("def f(:")
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_tokens", None)
    tokenizers.find_function.cache_clear()


@pytest.mark.usefixtures("_own_module")
def test_a_function_of_the_user_is_imported_from_the_working_directory(monkeypatch):
    path = list(sys.path)
    tokenize = get_tokenizer("my_tokens:syllables")
    assert tokenize("to-day  now") == ["to", "day", "now"], "empty tokens are none"
    assert locate("to-day", tokenize) == [PlacedToken("to", 0, 2), PlacedToken("day", 3, 6)]
    assert locate("In New  York", get_tokenizer("my_tokens:placed")) == [PlacedToken("New_York", 3, 12)]
    assert tokenize("") == []
    assert sys.path == path
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *path])
    get_tokenizer("my_tokens:placed")
    assert sys.path == [str(Path.cwd()), *path], "a folder that was there keeps its place"
    monkeypatch.setattr(sys, "path", path)
    Path("colorsys.py").write_text("rgb_to_hsv = 3\n")
    get_tokenizer("colorsys:rgb_to_hsv")  # Python's own module comes first
    assert is_function("my_tokens:syllables")
    assert not any(map(is_function, ("ptb", "spacy:de", "icu:th", "stanza:la")))
    for name, says in (
        ("my_tokens:number", "tokenizer my_tokens:number: is no function"),
        ("my_tokens:none", "tokenizer my_tokens:none: can't be imported .*none"),
        ("no_such_module:f", "tokenizer no_such_module:f: can't be imported .*no_such_module"),
        ("bad_syntax:f", "tokenizer bad_syntax:f: can't be imported .*SyntaxError"),
    ):
        with pytest.raises(ElmoError, match=says):
            get_tokenizer(name)
    with pytest.raises(ElmoError, match=r"my_tokens:broken: returned \[1\]; expected tokens, or triples"):
        get_tokenizer("my_tokens:broken")("a b")
    with pytest.raises(ElmoError, match=r"my_tokens:joined: returned 'a b'; expected a list of tokens"):
        get_tokenizer("my_tokens:joined")("ab")
    with pytest.raises(ElmoError, match=r"my_tokens:outside: says that 'York' is at 8:99 of a text of 12 characters"):
        get_tokenizer("my_tokens:outside")("In New  York")
    with pytest.raises(ElmoError, match=r"my_tokens:not_found: says that 'York' is at -1:4 of a text of 8 characters"):
        get_tokenizer("my_tokens:not_found")("New Bath")
    assert get_tokenizer("my_tokens:half")("a b") == ["\ud83d", "b"], "it has vectors, but no place in a corpus"
    Path("text.txt").write_text("a b\n")
    with pytest.raises(ElmoError, match=r"the tokenizer returned a token with '\\ud83d', half a character"):
        prepare(["text.txt"], "corpus", tokenizer="my_tokens:half", workers=1)
    assert not Path("corpus").exists()
    first = get_tokenizer("my_tokens:first")
    assert first(" ") == locate(" ", first) == [], "blank text is not passed on"
    with pytest.raises(ElmoError, match=r"my_tokens:first: failed on the text 'alone' \(IndexError: list index out"):
        first("alone")


def test_a_function_may_be_in_any_module_or_class():
    assert get_tokenizer("os.path:split")("to/day") == ["to", "day"]
    assert get_tokenizer("builtins:str.split")("to day") == ["to", "day"]
    assert file_of_function("builtins:str.split") is None, "this module has no file"


def test_other_packages_add_tokenizers(monkeypatch):
    """A package adds a tokenizer with an entry point, whose name may look like that of any other tokenizer."""

    def entries(group: str, name: str) -> list[types.SimpleNamespace]:
        assert group == "elmo.tokenizers"
        return [types.SimpleNamespace(load=lambda: lambda text: text.split("|"))] if name == "bars:x" else []

    monkeypatch.setattr(tokenizers, "entry_points", entries)
    tokenizers.find_function.cache_clear()
    assert get_tokenizer("bars:x")("a|b") == ["a", "b"]
    assert not is_function("bars:x"), "who installed the package chose it"
    tokenizers.find_function.cache_clear()

    def fail() -> None:
        raise broken

    monkeypatch.setattr(tokenizers, "entry_points", lambda **_: [types.SimpleNamespace(load=fail)])
    for broken in (ModuleNotFoundError("No module named 'gone'"), AttributeError("has no attribute 'gone'")):
        with pytest.raises(ElmoError, match=rf"tokenizer bars:x: can't be imported .*{broken}"):
            get_tokenizer("bars:x")
        tokenizers.find_function.cache_clear()


@pytest.mark.parametrize(
    ("module", "name", "package"), [("stanza", "stanza:none", "stanza"), ("icu", "icu:none", "PyICU")]
)
def test_large_packages_are_named_if_they_are_missing(monkeypatch, module, name, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ElmoError, match=f"tokenizer {name} needs {package}: pip install {package}"):
        get_tokenizer(name)


def test_stanza_tokens_are_parts_of_the_text(monkeypatch):
    """Stanza's models would be downloaded, so a stand-in is used. Its tokens may contain spaces, and it may have no
    model of a language."""

    def pipeline(language: str, **options: object) -> object:
        assert options["download_method"] is None
        if language == "none":
            raise FileNotFoundError("no model  Try to download the model again.")
        parts = [types.SimpleNamespace(text=text) for text in ("Hà Nội", "đẹp", ".")]
        return lambda text: types.SimpleNamespace(sentences=[types.SimpleNamespace(tokens=parts)])

    monkeypatch.setitem(sys.modules, "stanza", types.SimpleNamespace(Pipeline=pipeline))
    tokenize = get_tokenizer("stanza:stand-in")
    assert tokenize("Hà  Nội đẹp.") == ["Hà_Nội", "đẹp", "."]
    assert tokenize(" ") == []
    with pytest.raises(
        ElmoError, match=r"tokenizer stanza:none: can't be loaded \(no model\); download it first: python"
    ):
        get_tokenizer("stanza:none")
    with pytest.raises(ElmoError, match=r"tokenizer stanza:\$\(evil\): '\$\(evil\)' is not the code of a language"):
        get_tokenizer("stanza:$(evil)")


@pytest.mark.skipif(importlib.util.find_spec("icu") is None, reason="needs PyICU")
@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("icu:th", "ฉันไปธนาคาร", "ฉัน ไป ธนาคาร"),
        ("icu:de", "Ja, 😀 so.", "Ja , 😀 so ."),
        ("icu:zh", "他去银行。", "他 去 银行 。"),
    ],
)
def test_icu(name, text, tokens):
    assert get_tokenizer(name)(text) == tokens.split()


@pytest.mark.parametrize("text", PTB)
def test_ptb_rules(text):
    assert get_tokenizer("ptb")(text) == PTB[text].split()


INVISIBLE = "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"


@pytest.mark.parametrize("name", RULES)
@given(text=st.text(st.one_of(st.characters(), st.sampled_from("'’.n-t \u2028can,1_\u200f"))))
def test_tokens_contain_all_of_the_text_except_whitespace(name, text):
    tokens = get_tokenizer(name)(text)
    invisible = "" if name == "whitespace" else INVISIBLE
    assert "".join(tokens) == "".join(letter for letter in text if not letter.isspace() and letter not in invisible)
    located = locate(text, get_tokenizer(name))
    assert [text[start:end] for _, start, end in located] == [token for token, *_ in located] == tokens
    assert all(token and token.split() == [token] for token in tokens)


@given(st.text(st.one_of(st.characters(), st.sampled_from('.!?。 \nAa1"“)'))))
def test_sentences_contain_all_of_the_text_except_whitespace(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def seconds(piece: str, number: int, end: str) -> float:
    """Return the processor time that the tokenizers, `align` and the splitter take for a text."""
    gc.disable()  # it looks through all objects of the other tests, too, the oftener the more tokens there are
    try:
        text, begin = piece * number + end, time.process_time()
        for name in RULES:
            locate(text, get_tokenizer(name))
        align(text, [f"<{place}>" for place in range(number // 2)])
        split_sentences(text)
        return time.process_time() - begin
    finally:
        gc.enable()


PIECES = ["a", "-+", "a'", "a.", ".", ". ", "n't", "http://", "a@", "A.)", "1,", "👍\u200d", "。", "_", "a_", ".\u200f"]


@pytest.mark.parametrize(("piece", "end"), [*((piece, "") for piece in PIECES), ("a", "a). B"), ("a.", "a). B")])
def test_time_is_linear_in_the_length(piece, end):
    """Six times the text takes about six times as long, on any machine. Backtracking would make it 36 times."""
    seconds(piece, 10, end)  # compiles the patterns
    assert seconds(piece, 60_000, end) < 12 * seconds(piece, 10_000, end) + 0.05


def test_a_list_is_no_paragraph() -> None:
    paragraphs: Any = ["They met. She left."]
    with pytest.raises(ElmoError, match=r"^`paragraph`: expected a string, found list$"):
        split_sentences(paragraphs)


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith came.", '"Hello!" he said.', "(He left.)", "Then 3 men came, etc.", "They ate..."],
        ["In the U.S. Senate J. K. Rowling spoke.", "See No. 5, Fig. 3.", "No.", "Yes, Dr. No."],
        ["Messrs. Smith and Lee came.", "Who am I...", "Nobody."],
        ["1. Introduction is here.", "2. More in 1999.", "The end"],
        ["What?!", "“Nothing.”", "¿Qué?", "Sí…", "He asked why? and left."],
        ["क्या है।", "वह गया।"],
        ["וַיְהִי אוֹר׃", "וַיַּרְא אֱלֹהִים׃"],
        ["اب کیا ہے؟", "وہ گیا۔"],
        ["Ça va?", "Élan vital.", "Что?", "Это всё."],
        ["„Das ist gut.“", "»Ja?«", "«Nein!»", "Er ging."],
        ["שלום.\u200f", "מה נשמע?\u200f", "טוב."],
        ["መጣ፧", "ሄደ።"],
        ["Τι κάνεις\u037e", "Καλά."],
        ["བོད་ཡིག།", "ཡག་པོ།"],
    ],
    ids=lambda sentences: sentences[0],
)
def test_sentences_end_where_they_should(sentences):
    assert split_sentences("  " + " \t".join(sentences)) == sentences


def test_full_width_marks_need_no_whitespace():
    assert split_sentences("你好。再见！「是吗？」他说。") == ["你好。", "再见！", "「是吗？」", "他说。"]
    assert split_sentences("他走了。“来吧。”她说。‘好。’") == ["他走了。", "“来吧。”", "她说。", "‘好。’"]
    assert split_sentences("မင်္ဂလာပါ။နေကောင်းလား။") == ["မင်္ဂလာပါ။", "နေကောင်းလား။"]
    assert split_sentences("ខ្ញុំទៅ។គាត់មក។", "km") == ["ខ្ញុំទៅ។", "គាត់មក។"], "sentencex would not split it"


@pytest.mark.parametrize("paragraph", ["", " \n\t"])
def test_blank_text_has_no_sentences(paragraph):
    assert split_sentences(paragraph) == []


@pytest.mark.parametrize("name", ["", "spacy", "spacy:", "moses", "a b:c", "a:b c"])
def test_an_unknown_tokenizer_is_refused(name):
    with pytest.raises(ElmoError, match=re.escape(f"tokenizer {name!r} is unknown; choose whitespace, ptb, words")):
        get_tokenizer(name)


def test_messages_and_docs_name_every_kind():
    with pytest.raises(ElmoError) as refused:
        get_tokenizer("moses")
    choices = "whitespace, ptb, words, chars, spacy:LANGUAGE, stanza:LANGUAGE, icu:LANGUAGE or MODULE:FUNCTION"
    assert str(refused.value) == f"tokenizer 'moses' is unknown; choose {choices}"
    assert all(f'"{kind}"' in (get_tokenizer.__doc__ or "") for kind in KINDS)
    page = (ROOT / "docs" / "text.md").read_text(encoding="utf-8")
    assert all(f"`{kind.removesuffix('LANGUAGE')}" in page for kind in KINDS[:-1])


def test_names_are_in_lower_case():
    with pytest.raises(ElmoError, match="tokenizer 'PTB' is unknown; did you mean ptb"):
        get_tokenizer("PTB")


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
            tokenizer=lambda text: [types.SimpleNamespace(text=p[0], idx=p.start()) for p in pieces.finditer(text)],
            vocab=(),
        )

    monkeypatch.setitem(sys.modules, "spacy", types.SimpleNamespace(blank=blank))
    assert get_tokenizer("spacy:stand-in")("New York  , \u2028 !") == ["New", "York", ",", "!"]
    with pytest.raises(ElmoError, match="no tokenizer for 'none'"):
        get_tokenizer("spacy:none")


def test_spacy_may_need_another_package(monkeypatch):
    """Its tokenizer for Thai does, and `words` would make one token of a whole clause."""

    def blank(_: str) -> None:
        raise ImportError("The Thai tokenizer requires the PyThaiNLP library:\n https://example.org")

    monkeypatch.setitem(sys.modules, "spacy", types.SimpleNamespace(blank=blank))
    with pytest.raises(ElmoError) as caught:
        get_tokenizer("spacy:stand-in-for-th")
    assert str(caught.value) == (
        "tokenizer spacy:stand-in-for-th: needs a package that is not installed; install that (The Thai tokenizer "
        "requires the PyThaiNLP library: https://example.org)"
    )


def test_spacy_forgets_words(monkeypatch):
    """Its vocabulary only grows, and would take gigabytes for a large corpus. A stand-in counts the words it knows."""
    sizes: list[int] = []

    def blank(_: str) -> types.SimpleNamespace:
        vocab: set[str] = set()

        def tokenize(text: str) -> list[types.SimpleNamespace]:
            vocab.update(text.split())
            sizes.append(len(vocab))
            return [types.SimpleNamespace(text=p[0], idx=p.start()) for p in re.finditer(r"\S+", text)]

        return types.SimpleNamespace(tokenizer=tokenize, vocab=vocab)

    monkeypatch.setattr(tokenizers, "MOST_WORDS_OF_SPACY", 3)
    monkeypatch.setitem(sys.modules, "spacy", types.SimpleNamespace(blank=blank))
    tokenize = get_tokenizer("spacy:another-stand-in")
    assert [tokenize(f"{word} Die") for word in "ababcdea"] == [[word, "Die"] for word in "ababcdea"]
    assert sizes == [2, 3, 3, 3, 4, 2, 3, 4]


@pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="needs the extra spacy")
def test_spacy():
    tokenize = get_tokenizer("spacy:de")
    assert tokenize("Das ist z.B.  gut.") == ["Das", "ist", "z.B.", "gut", "."]
    assert pickle.loads(pickle.dumps(tokenize)) is tokenize, "a process that reads the pickle makes its own"
    with pytest.raises(ElmoError, match="no tokenizer for 'char_classes'"):
        get_tokenizer("spacy:char_classes")


@pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="needs the extra spacy")
def test_spacy_keeps_lone_surrogates():
    """Any string can be tokenized, as by the other tokenizers, although spaCy encodes its tokens as UTF-8."""
    tokens = get_tokenizer("spacy:de")("Das  \ud800 ist\ud83d z.B. \udfff.")
    assert tokens == ["Das", "\ud800", "ist", "\ud83d", "z.B.", "\udfff", "."]


GERMAN = ["Am 3. Mai kam sie an.", "Vgl. Abb. 4 und Dr. Meier.", "„Ja.“", "Er ging."]
HUNGARIAN = ["Sokat utazott, pl. Bécsben járt.", "A 19. században élt.", "Jó!"]


@pytest.mark.skipif(importlib.util.find_spec("sentencex") is None, reason="needs the extra sentences")
@pytest.mark.parametrize(
    ("language", "sentences"), [*((code, GERMAN) for code in ("de", "de-AT", "deu", "ger")), ("hu", HUNGARIAN)]
)
def test_sentences_end_by_the_rules_of_their_language(language, sentences):
    paragraph = "  " + " \t".join(sentences) + " "
    assert split_sentences(paragraph, language) == sentences
    assert split_sentences(paragraph) != sentences
    assert split_sentences(" ", language) == []


@pytest.mark.skipif(importlib.util.find_spec("sentencex") is None, reason="needs the extra sentences")
@pytest.mark.parametrize("language", ["fr", "ar"])
@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u2009\u3000", "\u2028", "\u0085"])
def test_a_wide_space_before_a_period_is_kept(space, language):
    sentences = [f"Le plan A{space}. Il part.", "Oui."]
    assert split_sentences(" ".join(sentences), language) == sentences


@pytest.mark.skipif(importlib.util.find_spec("sentencex") is None, reason="needs the extra sentences")
def test_a_wide_space_between_periods_is_no_panic():
    """In Kazakh, sentencex 1.0.32 cuts within such a space."""
    assert "".join(split_sentences("U.S.A.\u00a0.\u00a0. Сосын кетті.", "kk")).endswith("Сосын кетті.")


@pytest.mark.skipif(importlib.util.find_spec("sentencex") is None, reason="needs the extra sentences")
def test_many_quotes_do_not_take_long():
    """Sentencex looks for the end of each quote in all the text that it is given."""
    begin = time.process_time()
    assert split_sentences("``" * 20_000 + "🇦", "de") == ["``" * 20_000 + "🇦"]
    assert time.process_time() - begin < 20


@pytest.mark.skipif(importlib.util.find_spec("sentencex") is None, reason="needs the extra sentences")
def test_sentences_of_a_long_paragraph_are_those_of_short_ones():
    """Sentencex is given a part of it at a time. Whether a sentence ends may depend on what follows that part."""
    for number in range(0, 80, 7):
        paragraph = " ".join(["x" * number + ".", *(GERMAN * 60)])
        assert split_sentences(paragraph, "de")[1:] == GERMAN * 60


@pytest.mark.parametrize("language", ["en-GB", "xx", "und", "km", "bo"])
def test_sentences_of_english_need_no_other_rules(monkeypatch, language):
    """Text of no particular language, whose code is `xx` or `und`, and Khmer and Tibetan need no other rules either."""
    monkeypatch.setattr("elmo.text.rules.import_extra", None)
    assert split_sentences("Mr. A came. He left.", language) == ["Mr. A came.", "He left."]


def test_what_others_take_for_an_end_is_none_before_a_small_letter(monkeypatch):
    """A stand-in ends a sentence at every period, as sentencex does after ordinal numbers."""

    def get_sentence_boundaries(language: str, text: str) -> list[dict[str, int]]:
        assert language == "qx"
        return [{"end_index": match.end()} for match in re.finditer(r"\.\s*|\Z", text)]

    sentencex = types.SimpleNamespace(get_sentence_boundaries=get_sentence_boundaries)
    monkeypatch.setattr("elmo.text.rules.is_split_by_language", lambda language: language is not None)
    monkeypatch.setattr("elmo.text.rules.import_extra", lambda name, purpose: sentencex)
    assert split_sentences("A 19. század. Jó. ", "qx") == ["A 19. század.", "Jó."]
    # In a script without case, a single letter is a title or an initial. In others, a small letter may be a word.
    assert split_sentences("ولد د. أحمد. Hogy van-e. Jó.", "qx") == ["ولد د. أحمد.", "Hogy van-e.", "Jó."]
    assert split_sentences("a. b", "qx") == ["a. b"]
    assert split_sentences("Jó. ولد د.", "qx") == ["Jó.", "ولد د."], "the last sentence is kept"
    assert split_sentences("Jó. ---------- Jó.", "qx") == ["Jó.", "---------- Jó."], "a rule is no small letter"


def test_names_of_tokenizers_say_a_language():
    names = ("spacy:de", "stanza:la", "icu:th", "spacy:xx", "stanza:multilingual", "ptb", "jieba:lcut")
    assert [*map(language_of, names)] == ["de", "la", "th", None, None, None, None]


def test_a_country_after_an_underscore_is_no_part_of_a_language():
    """Locales are named in this way."""
    assert short_code("de_AT") == short_code("DE-at") == "de"


@pytest.mark.usefixtures("_own_module")
def test_a_token_does_not_end_before_it_starts(tmp_path):
    (tmp_path / "my_tokens.py").write_text("def turned(sentence):\n    return [('York', 6, 2)]\n")
    with pytest.raises(ElmoError, match=r"my_tokens:turned: says that 'York' is at 6:2 of a text of 11 characters"):
        get_tokenizer("my_tokens:turned")("In New York")


@pytest.mark.parametrize("sentence", ["He said “Go.” , and left.", "(He left. ) She stayed.", "He waited. . ."])
def test_no_sentence_begins_with_a_mark(sentence):
    assert split_sentences(f"{sentence} Yes.") == [sentence, "Yes."]
