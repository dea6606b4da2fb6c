"""Splits raw text into sentences, and sentences into tokens, by rules alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from elmo.errors import ElmoError
from elmo.extras import import_extra

Tokenizer = Callable[[str], list[str]]
"""A function from a sentence of raw text to its tokens, which are not empty and contain no whitespace."""

_TITLES = (
    "Mr|Mrs|Ms|Mx|Dr|Drs|Prof|Messrs|Mme|Mlle|St|Ste|Gen|Gov|Lt|Col|Cmdr|Capt|Sgt|Cpl|Pvt|Maj|Adm|Reps?|Sens?|Rev|Hon|"
    "Pres|Supt|Mt|Ft|Figs?|Eqs?|Secs?|[Vv]ols?|Nos|Ch|Art|Op|vs|cf|ca|viz|approx|al|resp|pp|eds"
)
"""Abbreviations that hardly ever end a sentence."""

_ENDINGS = (
    "etc|Inc|Ltd|Cos?|Corp|Bros|LLC|Jr|Sr|Esq|Ave|Blvd|Rd|[Dd]ept|Univ|Assn|est|ft|lbs?|oz|hrs?|"
    "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|Mon|Tues?|Thu|Thurs|Fri|Calif|Conn|Mass|Mich|Minn|Penn|Tenn|Va"
)
"""Abbreviations that often end a sentence: an upper-case letter after their period begins a new sentence."""

_CLOSING = "\"'”’»›)\\]}」』）】》"
"""Quotes and brackets that may follow the mark at the end of a sentence (the contents of a regex character set)."""

_PUNCTUATION = (
    r"!-/:-@\[-^`{-~"  # ASCII, except for the underscore
    # Latin-1, except for letters, digits and fractions such as ª º ² ³ ¹ ¼
    r"\u00a1-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7"
    r"\u055a-\u055f\u0589\u05be\u05c0\u05c3\u05c6\u060c\u060d\u061b-\u061f\u066a-\u066d\u06d4"  # Armenian to Arabic
    r"\u0964\u0965\u0df4\u0e4f\u0e5a\u0e5b\u0f04-\u0f14\u0f3a-\u0f3d\u104a-\u104f\u1360-\u1368"  # India to Ethiopia
    r"\u166e\u169b\u169c\u16eb-\u16ed\u17d4-\u17da\u1800-\u180a"  # further scripts
    r"\u2010-\u2027\u2030-\u205e\u207a-\u207e\u208a-\u208e\u20a0-\u20cf"  # dashes, quotes, currency
    r"\u2100-\u2101\u2103-\u2106\u2116-\u2118\u2120-\u2122\u2190-\u2bff\u2e00-\u2e7f"  # symbols, arrows, mathematics
    r"\u3001-\u3004\u3008-\u3020\u3030\u303d\u30a0\u30fb"  # Chinese, Japanese
    r"\ufe10-\ufe19\ufe30-\ufe52\ufe54-\ufe6b\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffee"
    r"\U0001f000-\U0001faff"  # emoji
)
r"""Characters that are not part of words (the contents of a regex character set).

Words are defined as everything else because Python's `\w` does not match the vowel signs of Hindi, Thai and others.
"""

_WORD = rf"[^\s{_PUNCTUATION}]"
_LETTER = r"[^\W\d_]"
_PERIOD = rf"\.(?![.]|-?{_WORD}|[{_CLOSING}]*\s*\Z)"
"""A period that stays attached to its abbreviation. The last period of a sentence is always a token of its own."""
_SUFFIX = rf"(?i:s|m|d|ll|re|ve)(?!{_WORD})"
# Arrows and symbols, and emoji. A picture may consist of several such code points.
_PICTURE = r"[\u2190-\u2bff\U0001f000-\U0001faff]"

# `findall` tries the alternatives in order at each place, and the last one takes any mark, so nothing but whitespace is
# ever lost. Repetitions are possessive (`++`) where they can be: what they took is not tried again in other ways, so
# the time grows only with the length of the text, even of text that was made to be slow.
_PTB = rf"""
      (?i:can(?=not(?!{_WORD})))                                # can|not
    | {_WORD}++ (?! [-‐‑'’./&:@] | ,\d )                        # most words: what follows cannot belong to them
    | (?i:n['’]t) (?!{_WORD})                                   # do|n't
    | {_WORD}+ (?= (?i:n['’]t) (?!{_WORD}) )                    # and its first part
    | ['’] {_SUFFIX}                                            # he|'s, we|'ll
    | ['’] (?: \d\ds? | (?i:em|tis|twas|til|cause|bout) ) (?!{_WORD})          # the '90s, get 'em
    | (?i:https?|ftp)://[^\s<>"“”]*[^\s<>"“”.,;:!?'’)\]}}]      # web addresses, without the mark after them
    | [\w.+-]{{1,64}}+ @ [\w-]+ (?: \.[\w-]+ )+                 # e-mail addresses
    | (?: {_TITLES} | {_ENDINGS} | No(?=\.\s*\d) ) {_PERIOD}           # Mr. and No. 5
    | (?: {_LETTER} | {_LETTER}{{1,2}} (?: \.{_LETTER}{{1,2}} )+ ) {_PERIOD}   # J. and U.S. and Ph.D.
    | {_WORD}++ (?:                                             # words with marks inside:
          (?: \.?[-‐‑] | [/&.]                                  #   well-known, U.S.-based, and/or, AT&T, v2.0
            | ['’](?!{_SUFFIX})                                 #   o'clock
            | (?<=\d)[,:](?=\d) )                               #   1,000.5 and 10:30
          (?={_WORD}) {_WORD}++ )*
    | (?<!\S) [-+−]?\.? \d++ (?: [.,:/]\d++ )*                  # -5, +3.2, .5
    | \.{{2,}} | -{{2,}} | `` | ''                              # ellipses, dashes, quotes of two characters
    | [\U0001f1e6-\U0001f1ff]{{2}}                              # flags
    | {_PICTURE} (?: [\ufe0f\U0001f3fb-\U0001f3ff] | \u200d{_PICTURE} )*       # pictures of several code points
    | \S                                                        # every other mark by itself
    """

_MARKS = ".!?…؟।॥۔։።"
"""Marks that end a sentence in English and, in this order, in Arabic, Hindi, Sanskrit, Urdu, Armenian and Amharic."""

_BOUNDARY = rf"(?<![{_MARKS}])[{_MARKS}]++[{_CLOSING}]*\s+|[。！？｡]+[{_CLOSING}]*\s*"
_OPENING = "\"'`“”„‘’‚«»‹›([{¿¡「『（【《—–- "
_LAST_WORD = rf"(?:{_WORD}|\.(?={_WORD}))*\Z"
_LONGEST_ABBREVIATION = 12
"""How far to look back from a period. Without a limit, many periods in one long word would take quadratic time."""
_ACRONYM = re.compile(rf"{_LETTER}{{1,2}}(?:\.{_LETTER}{{1,2}})+")
_NOT_FINAL = re.compile(_TITLES)

_FOLLOWING = 8
"""How far to look ahead from a mark for the first letter of what follows, behind quotes and brackets."""


@cache
def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern when it is first used: with so many characters in their sets, that takes a while."""
    return re.compile(pattern, flags)


def get_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer with this name.

    Args:
        name: "whitespace"; "spacy:<language>", the rules of spaCy's blank pipeline; or "ptb". The latter tokenizes
            raw English much like the Penn Treebank, but keeps brackets and quotes as they are written. It splits
            contractions in two (do n't) and punctuation from words. A period is a token of its own at the end of the
            sentence, and inside of it unless it belongs to an abbreviation.

    Raises:
        ElmoError: If the name or the language is unknown, or spaCy is not installed.
    """
    if name == "whitespace":
        return str.split
    if name == "ptb":
        return _compiled(_PTB, re.VERBOSE).findall
    kind, _, language = name.partition(":")
    if kind == "spacy" and language:
        return _spacy_tokenizer(language)
    raise ElmoError(f"tokenizer {name!r} is unknown; choose whitespace, ptb or spacy:<language>, such as spacy:de")


def find_tokens(text: str, tokens: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end (exclusive) of each token in `text`, in characters.

    Args:
        text: Raw text.
        tokens: All tokens of the text, in order, each spelled as in the text.

    Raises:
        ValueError: If a token is not found after the one before it.
    """
    end = 0
    for token in tokens:
        start = text.index(token, end)
        end = start + len(token)
        yield start, end


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph of raw text into sentences, without the whitespace around them.

    A sentence ends at `.`, `!`, `?`, `…` or the like in other scripts, followed by any closing quotes and brackets and
    then whitespace (which full-width marks do not need). It does not end there if a lower-case letter follows, or if
    the period belongs to an abbreviation, to an initial, or to a number at the start of the sentence.
    """
    sentences: list[str] = []
    start = 0
    for match in _compiled(_BOUNDARY).finditer(paragraph):
        if _ends_sentence(paragraph, start, match.start(), match.end()):
            sentences.append(paragraph[start : match.end()].strip())
            start = match.end()
    if last := paragraph[start:].strip():
        sentences.append(last)
    return sentences


def _ends_sentence(paragraph: str, start: int, mark: int, end: int) -> bool:
    """Return whether the marks from `mark` to `end` end the sentence that begins at `start`."""
    following = paragraph[end : end + _FOLLOWING].lstrip(_OPENING)[:1]
    if following and (following.islower() or following in ".!?…,;:)]}"):
        return False
    # Only a single period is ambiguous: no abbreviation ends in "?" or "...".
    if paragraph[mark] != "." or paragraph[mark + 1] == ".":
        return True
    first = max(start, mark - _LONGEST_ABBREVIATION)
    found = _compiled(_LAST_WORD).search(paragraph, first, mark)
    word = found.group() if found else ""
    # "No. 5" is an abbreviation, "No. He left." a sentence.
    if word == "No":
        return not following.isdigit()
    # "1. Introduction" is a heading, "in 1999. Then" the end of a sentence.
    if word.isdigit():
        return paragraph[start:mark].strip() != word
    is_initial = len(word) == 1 and word.isalpha()
    return not (is_initial or _NOT_FINAL.fullmatch(word) or _ACRONYM.fullmatch(word))


@cache
def _spacy_tokenizer(language: str) -> Tokenizer:
    spacy = import_extra("spacy", f"tokenizer spacy:{language}")
    try:
        tokenizer: Any = spacy.blank(language).tokenizer
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise ElmoError(
            f"tokenizer spacy:{language}: spaCy has no tokenizer for {language!r} ({reason}); use spacy:xx for "
            "languages that it does not support"
        ) from None

    def tokenize(sentence: str) -> list[str]:
        # spaCy makes tokens of extra whitespace, and in some languages its tokens contain whitespace.
        return [part for token in tokenizer(sentence) for part in token.text.split()]

    return tokenize
