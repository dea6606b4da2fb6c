"""Rules that split raw text into sentences, and sentences into tokens, of English or of any language.

`elmo.text.tokenizers` gives them names.
"""

from __future__ import annotations

import importlib.util
import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from elmo.extras import import_extra
from elmo.schema import require_text
from elmo.text.languages import require_language_code, short_code

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

_INVISIBLE = "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
"""Characters without width that belong to no word: where lines may break, where the direction changes, and the
byte-order mark, which is inside of a text where files were joined."""

_CLOSING_ANYWHERE = f"\"'”’»›)\\]}}」』）】》{_INVISIBLE}"
_CLOSING = f"“‘«‹{_CLOSING_ANYWHERE}"
"""What may follow the mark at the end of a sentence (the contents of a regex character set): brackets and quotes. In
German, “ and « are closing quotes. In Chinese, “ opens a quote, also where no space precedes it."""

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

_WORD = rf"[^\s{_INVISIBLE}{_PUNCTUATION}]"
_MARK = rf"[^\s{_INVISIBLE}]"
_LETTER = r"[^\W\d_]"
_PERIOD = rf"\.(?![.]|-?{_WORD}|[{_CLOSING}]*\s*\Z)"
"""A period that stays attached to its abbreviation. The last period of a sentence is always a token of its own."""
_SUFFIX = rf"(?i:s|m|d|ll|re|ve)(?!{_WORD})"
_ADDRESS = rf"://[^\s{_INVISIBLE}<>\"“”]*[^\s{_INVISIBLE}<>\"“”.,;:!?'’)\]}}]"
# Arrows and symbols, and emoji. A picture may consist of several such code points.
_PICTURE = r"[\u2190-\u2bff\U0001f000-\U0001faff]"

# `findall` tries the alternatives in order at each place, and the last one takes any mark, so nothing is ever lost but
# whitespace and what is invisible. Repetitions are possessive (`++`) where they can be: what they took is not tried
# again in other ways, so the time grows only with the length of the text, even of text that was made to be slow.
_PTB = rf"""
      (?i:can(?=not(?!{_WORD})))                                # can|not
    | {_WORD}++ (?! [-‐‑'’./&:@] | ,\d )                        # most words: what follows cannot belong to them
    | (?i:n['’]t) (?!{_WORD})                                   # do|n't
    | {_WORD}+ (?= (?i:n['’]t) (?!{_WORD}) )                    # and its first part
    | ['’] {_SUFFIX}                                            # he|'s, we|'ll
    | ['’] (?: \d\ds? | (?i:em|tis|twas|til|cause|bout) ) (?!{_WORD})          # the '90s, get 'em
    | (?i:https?|ftp){_ADDRESS}                             # web addresses, without the mark after them
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
    | {_MARK}                                                   # every other mark by itself
    """

# Han, Hiragana, Katakana and Bopomofo.
_IDEOGRAPH = (
    r"[\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u309f\u30a1-\u30fa\u30fc-\u312f\u31a0-\u31ff"
    r"\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001b16f\U00020000-\U0003ffff]"
)
_JOINED_WORD = rf"(?>(?:_*+(?!_|{_IDEOGRAPH}){_WORD})+)"
"""A word without marks at its edges: snake_case is one, and _very_ is none, which is how italics are typed.

It is an atomic group, as is a longer one below, since `++` after a group matches too much before Python 3.11.5.
"""

_WORDS = rf"""
      {_IDEOGRAPH} [\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef]*    # with its voicing mark or variant
    | (?i:https?|ftp){_ADDRESS}                            # web addresses, without the mark after them
    | [\w.+-]{{1,64}}+ @ [\w-]+ (?: \.[\w-]+ )+                 # e-mail addresses
    | {_LETTER}{{1,2}} (?> (?: \.{_LETTER}{{1,2}} ){{1,6}} ) (?!{_WORD}) (?: {_PERIOD} )?   # z.B. and т.е.
    | _+                                                        # _very_ is the word very in italics
    | {_JOINED_WORD} (?:                                        # words with marks inside:
          (?: ['’‐‑·․‧-]                                      #   l'eau, porte-monnaie, col·lecció
            | (?<=[א-ת])"(?=[א-ת])                              #   צה"ל
            | (?<=\d)[.,:/٫٬](?=\d) )                           #   1.000,5 and 10:30
          (?=(?!_){_WORD}) {_JOINED_WORD} )*
    | \.{{2,}} | -{{2,}}                                         # ellipses, dashes
    | [\U0001f1e6-\U0001f1ff]{{2}}                              # flags
    | {_PICTURE} (?: [\ufe0f\U0001f3fb-\U0001f3ff] | \u200d{_PICTURE} )*       # pictures of several code points
    | {_MARK}                                                   # every other mark by itself
    """

_JOINER = "\u200d"
_JOINERS = f"\u200c{_JOINER}\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
"""Characters that combine with others, though they are not marks: joiners, and the skin tones of emoji."""

_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""The letters of which two are the flag of a country."""

MARKS = ".!?…؟।॥۔։።፧།\u037e\u05c3"
"""Marks that end a sentence in English and, in this order, in Arabic, Hindi, Sanskrit, Urdu, Armenian, Amharic (two),
Tibetan, Greek and Hebrew (the sof pasuq of the Bible)."""

FULL_STOPS = "。！？｡។៕။"
"""Marks that end a sentence in Chinese, Japanese, Khmer and Burmese, also if no space follows."""

INNER_MARKS = ",;:،؛，、；：՝፣፤፥፦៖၊"
"""Commas, semicolons and colons in English and, in this order, in Arabic (two), Chinese and Japanese (four), Armenian,
Amharic (four), Khmer and Burmese."""

_BOUNDARY = rf"(?<![{MARKS}])[{MARKS}]++[{_CLOSING}]*\s+|[{FULL_STOPS}]+[{_CLOSING_ANYWHERE}]*\s*"
_OPENING = f"\"'`“”„‘’‚«»‹›([{{¿¡「『（【《—–- {_INVISIBLE}"
_LAST_WORD = rf"(?:{_WORD}|\.(?={_WORD}))*\Z"
_LONGEST_ABBREVIATION = 12
"""How far to look back from a period. Without a limit, many periods in one long word would take quadratic time."""
_ACRONYM = re.compile(rf"{_LETTER}{{1,2}}(?:\.{_LETTER}{{1,2}})+")
_NOT_FINAL = re.compile(_TITLES)
_WIDE_SPACES = re.compile(r"(?<=[A-Z.])[^\S\x1c-\x1f]+(?=\.)")
"""Spaces of any kind between a capital or a period and a period. The separators of ASCII (FS to US) are no spaces for
sentencex."""

_AT_ONCE, _AHEAD = 2_000, 200
"""How many characters sentencex is given at once, and how many of them it has to see after an end of a sentence for
that end to count. It looks for the end of each quote in all that it is given: a megabyte of quotes would take it hours.
"""

_OWN_LANGUAGES = ("en", "km", "bo", "xx", "und")
"""Languages that our own rules are for (sentencex does not know the marks of Khmer and Tibetan), and codes that stand
for no language."""

_FOLLOWING = 8
"""How far to look ahead from a mark for the first letter of what follows, behind quotes and brackets."""


@cache
def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern when it is first used: with so many characters in their sets, that takes a while."""
    return re.compile(pattern, flags)


def ptb_tokens(text: str) -> list[str]:
    """Cut English much like the Penn Treebank, but keep brackets and quotes as they are written.

    Contractions become two tokens (do n't), and punctuation is split from words. A period is a token of its own at the
    end of the sentence, and inside of it unless it belongs to an abbreviation.
    """
    return _compiled(_PTB, re.VERBOSE).findall(text)


def word_tokens(text: str) -> list[str]:
    """Cut text of any language into words and marks, by rules that know no language.

    Apostrophes, hyphens and the like stay inside of words, periods in acronyms (z.B.), marks in numbers (1,000.5).
    Chinese and Japanese characters become tokens of their own, since no rule tells where their words end.
    """
    return _compiled(_WORDS, re.VERBOSE).findall(text)


def character_tokens(text: str) -> list[str]:
    """Cut text into characters, without whitespace. Marks that combine with a letter stay with it, and emoji whole."""
    tokens: list[str] = []
    start = 0  # of the last token, which is copied only when it is complete: emoji can be joined without end
    for place, character in enumerate(text):
        if character.isspace() or character in _INVISIBLE:  # nothing is joined across it
            tokens.append(text[start:place])
            start = place + 1
        elif start < place and not (
            unicodedata.category(character).startswith("M")
            or character in _JOINERS
            or text[place - 1] == _JOINER
            or (character in _FLAG_LETTERS and start == place - 1 and text[start] in _FLAG_LETTERS)
        ):
            tokens.append(text[start:place])
            start = place
    tokens.append(text[start:])
    return [token for token in tokens if token]


def split_sentences(paragraph: str, language: str | None = None) -> list[str]:
    """Split a paragraph of raw text into sentences, without the whitespace around them.

    By our own rules, which know the abbreviations of English, a sentence ends at `.`, `!`, `?`, `…` or the like in
    other scripts, followed by any closing quotes and brackets and then whitespace (which full-width marks do not need).
    It does not end there if a lower-case letter follows, or if the period belongs to an abbreviation, to an initial, or
    to a number at the start of the sentence.

    Args:
        paragraph: Raw text.
        language: The code of its language, such as "de". If our own rules are not for it and the package `sentencex` is
            installed, that decides by the abbreviations and the dates of the language. Even then, no sentence begins in
            lower case.

    Returns:
        The sentences.

    Raises:
        ElmoError: If the language is not a code, or the paragraph not a string.
    """
    require_language_code(language)
    require_text("`paragraph`", paragraph)
    return [paragraph[start:end] for start, end in sentence_spans(paragraph, language)]


def sentence_spans(paragraph: str, language: str | None = None) -> Iterator[tuple[int, int]]:
    """Yield the start and the end (exclusive) of each sentence that `split_sentences` returns, in characters."""
    if is_split_by_language(language):
        yield from _spans_by_language(paragraph, short_code(str(language)))
        return
    start = 0
    for match in _compiled(_BOUNDARY).finditer(paragraph):
        if _ends_sentence(paragraph, start, match.start(), match.end()):
            yield _stripped(paragraph, start, match.end())
            start = match.end()
    first, end = _stripped(paragraph, start, len(paragraph))
    if first < end:
        yield first, end


def is_split_by_language(language: str | None) -> bool:
    """Return whether `sentencex` splits the sentences of a language: if it is installed, and our rules don't."""
    return is_not_english(language) and _has_sentencex()


def is_not_english(language: str | None) -> bool:
    """Return whether this is the code of a language that our own rules were not made for."""
    return language is not None and short_code(language) not in _OWN_LANGUAGES


@cache
def _has_sentencex() -> bool:
    return importlib.util.find_spec("sentencex") is not None


def _spans_by_language(paragraph: str, language: str) -> Iterator[tuple[int, int]]:
    # At "plan A\u00a0.", and in Kazakh at "A.\u00a0.", sentencex 1.0.32 cuts within the space, which is two bytes, and
    # the whole process panics.
    plain = _WIDE_SPACES.sub(lambda spaces: " " * len(spaces[0]), paragraph)
    start = 0
    for end in _ends_by_language(plain, language):
        # It takes any ordinal number for an end ("A 19. | században"), and Arabic titles of one letter ("د. | أحمد").
        is_inside = _continues(_following(paragraph, end)) or _ends_in_uncased_letter(paragraph, start, end)
        if not is_inside or end == len(paragraph):
            first, last = _stripped(paragraph, start, end)
            if first < last:
                yield first, last
            start = end


def _ends_by_language(text: str, language: str) -> Iterator[int]:
    """Yield the ends of the sentences that sentencex finds in a text, which it is given part by part."""
    sentencex = import_extra("sentencex", "splitting sentences by language")
    start = 0
    while start < len(text):
        part = text[start : start + _AT_ONCE]
        ends = [boundary["end_index"] for boundary in sentencex.get_sentence_boundaries(language, part)]
        size = len(part)
        if start + size < len(text):  # what follows, and decides, may be cut off
            ends = [end for end in ends if end <= _AT_ONCE - _AHEAD]
            size = ends[-1] if ends else _AT_ONCE - _AHEAD
        yield from (start + end for end in ends)
        start += size


def _following(paragraph: str, end: int) -> str:
    """Return the character that follows `end` after spaces, dashes and opening quotes, or "" if none is near."""
    return paragraph[end : end + _FOLLOWING].lstrip(_OPENING)[:1]


def _continues(following: str) -> bool:
    """Return whether a character can't begin a sentence: a small letter, or a mark."""
    return following != "" and (following.islower() or following in ".!?…,;:)]}")


def _ends_in_uncased_letter(paragraph: str, start: int, end: int) -> bool:
    """Return whether a sentence ends in the period of a single letter of a script without case, such as Arabic."""
    pattern = _compiled(rf"(?<!{_WORD})({_LETTER})\.\s*\Z")
    found = pattern.search(paragraph, max(start, end - _FOLLOWING), end)
    return found is not None and unicodedata.category(found[1]) == "Lo"


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where the text between `start` and `end` begins and ends without the whitespace around it."""
    part = text[start:end]
    return end - len(part.lstrip()), start + len(part.rstrip())


def _ends_sentence(paragraph: str, start: int, mark: int, end: int) -> bool:
    """Return whether the marks from `mark` to `end` end the sentence that begins at `start`."""
    following = _following(paragraph, end)
    if _continues(following):
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
