"""Notices text that is not laid out as it is read, such as XML read as plain text, or has words that a model lacks."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from unicodedata import normalize

from elmo.config import TextConfig
from elmo.text.decoding import iconv_name, read_lines
from elmo.text.reading import WITH_WORDS
from elmo.text.rules import FULL_STOPS, MARKS

FEWEST_LINES = 20
"""With fewer lines, their lengths and ends say little."""

LONGEST_WRAPPED = 120
"""Lines that are wrapped for reading have at most this many characters."""

LONGEST_WORD = 30
"""A line without spaces that is longer is probably a sentence, in a script that has none between words."""

FEWEST_TOKENS = 8
"""With fewer tokens, the share of unknown ones says nothing."""

ENOUGH_TOKENS = 100
"""With fewer tokens, the share of unknown ones may differ by chance."""

MOST_TOKENS = 10_000
"""How many tokens of a text in memory are looked at."""

FEWEST_LETTERS = 10
"""Fewer letters in another normal form than the rest are not worth a note."""

_MARKUP = re.compile(r"""\s*<(\?xml\b|!doctype\b|!--|html\b|tei|[a-z][\w:.-]*\s[\w:.-]+=["'])""", re.IGNORECASE)
"""How files of markup begin; those without the first line of XML often do so with an element that has attributes."""

_CLOSING_TAG = re.compile(r"</(?!S>)[A-Za-z][\w:.-]*>")
_JSON = re.compile(r'\s*(?:\[\s*\{\s*"|\{\s*"[^"\n]*"\s*:)')
_WORD_LINE = re.compile(r"\d+(?:[-.]\d+)?(?:\t[^\t]*){9}")
_JSON_LINE = re.compile(r"\s*\{.*\}\s*")
_SPAN_TAG = r"(?:O|[BIESLU]-\S+)"
_TAGGED_LINE = re.compile(rf"\S+(?:\t\S+)+|</?\w[^<>]*>|\S+(?: \S+)* {_SPAN_TAG}")
"""Columns with tabs between them, perhaps with tags of XML around sentences, as corpus tools write; or a token and its
tag of a span."""

_TAGGED_WORD = re.compile(r"\S+[_/](?:[A-Z]{1,7}\$?|[^\w\s]{1,2})")
_TABLE_MARKS = {";": "semicolons", ",": "commas", "\t": "tabs"}
_INVISIBLE = re.compile("(?<=[A-Za-z\u00c0-\u052f])[\u00ad\u200b]|.\ufeff", re.DOTALL)
"""Soft hyphens and spaces without width in words of alphabets, and byte-order marks after the first character."""

_CONTROL = re.compile("(?<=[^\\W\\d_])[\u0080-\u0084\u0086-\u009f]|[\u0080-\u0084\u0086-\u009f](?=[^\\W\\d_])")
"""Control characters in words. In the encodings of Windows, their bytes are letters, quotes and dashes; ISO 8859 has
these controls there, which no text has, except for U+0085, a line end."""

_BETWEEN_WORDS = re.compile(r"[ \t\n]+")
"""Unlike `str.split`, this leaves U+0085 and U+00A0 alone, which may be parts of letters of UTF-8 that were read as
latin-1."""

_HALF = re.compile(r"[^\W\d_]-\s*\Z")
_END = re.compile(rf"[:{MARKS}{FULL_STOPS}][\"'”’»)\]]*(?:\s*</S>)?\s*\Z")
_INNER_END = re.compile(r"[^\W\d_]{2} ?[.!?][\"'”’»)\]]*\s+[\"'“‘«(]*([^\W\d_])")


def note_on_layout(sample: str, layout: str) -> str | None:
    """Return a sentence if a text does not look like what it is read as.

    Args:
        sample: The beginning of the text, in whole lines.
        layout: How it is read, one of `reading.TEXTS`.
    """
    lines = [line for line in sample.split("\n") if line.strip()]
    if layout in WITH_WORDS or not lines:
        return None
    if _MARKUP.match(sample) or _share(lines, _CLOSING_TAG.search) > 0.5:
        return "this is XML or HTML, whose tags would be read as words; take the text out of it first"
    words = [line for line in lines if not line.startswith("#")]
    if words and _share(words, _WORD_LINE.fullmatch) > 0.9:
        return "this looks like CoNLL-U, and is read as plain text; pass `text='conllu'`"
    if _share(lines, _JSON_LINE.fullmatch) > 0.9:
        return "these are lines of JSON, whose keys and marks would be read as words; take the text out of them first"
    if _JSON.match(sample):
        return "this is JSON, whose keys and marks would be read as words; take the text out of it first"
    if found := _INVISIBLE.search(sample):
        name = f"U+{ord(found[0][-1]):04X}"
        return (
            f"there are characters in words that can't be seen ({name}), and would be letters of these words; take "
            "them out first (docs/languages.md)"
        )
    if (note := _note_on_lost_letters(sample)) is not None:
        return note
    if found := _CONTROL.search(sample):
        return (
            f"there are control characters in words (U+{ord(found[0]):04X}), as where text of Windows was read as ISO "
            "8859 (latin-1, latin-2); read it as cp1252 (Western Europe) or cp1250 (Central Europe) instead"
        )
    if len(lines) < FEWEST_LINES:
        return None
    if _share(sample.split(), _TAGGED_WORD.fullmatch) > 0.9:
        return "most words end in a tag (word_TAG), which would be read as a part of the word; take the tags out first"
    if _share(lines, _TAGGED_LINE.fullmatch) > 0.9:
        return "most lines are a word and its tag, and each is read as a sentence; put a sentence on each line"
    if (mark := _mark_of_table(lines)) is not None:
        return f"most lines have the same number of {mark}, as a table has; take the column of the text out of it first"
    if layout == "sentences":
        if _share(lines, _is_word) > 0.9:
            return "most lines are a single word, and each line is read as a sentence; put a sentence on each line"
        if _share(lines, lambda line: sum(end[1].isupper() for end in _INNER_END.finditer(line)) > 1) > 0.5:
            return "most lines hold several sentences, and each line is read as one; pass `text='paragraphs'`"
    if layout == "wrapped" and (number := sum(_HALF.search(line) is not None for line in lines)) > len(lines) / 50:
        return (
            f"{number:,} of the first {len(lines):,} lines end in a hyphen, and the halves of a word stay two words; "
            "join them first (docs/languages.md)"
        )
    if layout in ("sentences", "paragraphs") and _are_wrapped(lines):
        return "the lines look as if they were wrapped, and each is read as if it ended there; pass `text='wrapped'`"
    if _mixes_forms(sample):
        return (
            "letters with marks are sometimes one character and sometimes two (Unicode NFC and NFD), which makes two "
            "words of one; convert the text to NFC, for instance by 'uconv -x nfc'"
        )
    return None


def _note_on_lost_letters(sample: str) -> str | None:
    """Return a sentence if the bytes of UTF-8 were each read as a letter, or letters were replaced by U+FFFD."""
    if (number := sample.count("\ufffd")) >= FEWEST_LETTERS:
        return (
            f"{number:,} characters are U+FFFD, in place of letters that were lost when the text was converted; "
            "convert it again from what it was made of"
        )
    words = [word for word in _BETWEEN_WORDS.split(sample) if not word.isascii()]
    for encoding in ("latin-1", "cp1252"):
        pairs = [(word, meant) for word in words if (meant := _as_utf8(word, encoding)) is not None]
        if len(pairs) >= FEWEST_LETTERS and len(pairs) > len(words) / 2:
            shown, meant = pairs[0]
            return (
                f"UTF-8 was read as {encoding} when this text was written, which has {shown!r} in place of {meant!r}; "
                f"convert it back, for instance by 'iconv -f utf-8 -t {iconv_name(encoding)}'"
            )
    return None


def _as_utf8(word: str, encoding: str) -> str | None:
    """Return what the bytes of a word in this encoding are as UTF-8, or None if they are none."""
    try:
        return word.encode(encoding).decode()
    except UnicodeError:
        return None


def _is_word(line: str) -> bool:
    """Return whether a line is a single word or mark. In scripts without spaces, the line may be a sentence."""
    word = line.strip()
    is_sentence = len(word) > 1 and _END.search(word) is not None
    return len(word.split()) == 1 and len(word) <= LONGEST_WORD and not is_sentence


def _are_wrapped(lines: Sequence[str]) -> bool:
    """Return whether most lines are about as long as the longest, and end anywhere in a sentence."""
    longest = max(map(len, lines))
    is_even = _share(lines, lambda line: len(line) > 0.8 * longest) > 0.5
    return longest <= LONGEST_WRAPPED and is_even and _share(lines, _END.search) < 0.5


def _mark_of_table(lines: Sequence[str]) -> str | None:
    """Return the name of the mark that separates the columns of a table, or None if this is none."""
    rows = [cells for line in lines if len(cells := line.split("\t")) == 2]
    # Each line is an id and a text. A single tab is no sign of a table otherwise, as some texts have one in a line.
    ids = {first for first, _ in rows if first and not any(map(str.isspace, first))}
    if len(rows) > 0.7 * len(lines) and len(ids) == len(rows):
        return _TABLE_MARKS["\t"]
    for mark, name in _TABLE_MARKS.items():
        (count, number), *_ = Counter(line.count(mark) for line in lines).most_common(1)
        if count >= 2 and number > 0.7 * len(lines):
            return name
    return None


def _mixes_forms(sample: str) -> bool:
    """Return whether there are several letters with marks in each of the two Unicode normal forms."""
    composed = normalize("NFC", sample)
    num_decomposed = len(sample) - len(composed)
    if num_decomposed < FEWEST_LETTERS:
        return False
    return len(normalize("NFD", composed)) - len(composed) - num_decomposed >= FEWEST_LETTERS


def _share(items: Sequence[str], is_so: Callable[[str], object]) -> float:
    """Return the share of lines or words of which something is true."""
    return sum(bool(is_so(item)) for item in items) / len(items)


def is_true_of_most_lines(sample: str, is_so: Callable[[str], object]) -> bool:
    """Return whether something is true of more than half of the lines that are not blank."""
    lines = [line for line in sample.split("\n") if line.strip()]
    return bool(lines) and _share(lines, is_so) > 0.5


def note_on_words(own: TextConfig | None, vocabulary_file: Path | None, tokens: Sequence[str]) -> str | None:
    """Return a sentence about a text that has far more words unknown to the model than its training text had.

    Such a text is cut in another way, or is of another language or kind.

    Args:
        own: How the model's training text was cut.
        vocabulary_file: The words of the model, one on each line.
        tokens: The first tokens of the text. Of fewer than `FEWEST_TOKENS` nothing is said.
    """
    if own is None or own.oov_rate is None or vocabulary_file is None or len(tokens) < FEWEST_TOKENS:
        return None
    if not vocabulary_file.exists():
        return None
    unknown = set(tokens)
    unknown.difference_update(read_lines(str(vocabulary_file)))
    share = sum(token in unknown for token in tokens) / len(tokens)
    expected = min(1.0, 2 * own.oov_rate + 0.05)
    # A few names make a large share of a short text, so three standard deviations more are allowed there.
    chance = 3 * math.sqrt(expected * (1 - expected) / len(tokens)) if len(tokens) < ENOUGH_TOKENS else 0.0
    if share <= expected + chance:
        return None
    for form in ("NFC", "NFD"):
        known = {normalize(form, token) for token in unknown}.intersection(read_lines(str(vocabulary_file)))
        if sum(token in unknown and normalize(form, token) in known for token in tokens) > share * len(tokens) / 2:
            return (
                f"{share:.0%} of the first {len(tokens):,} tokens are not among the model's words, most of them only "
                f"since their letters have another Unicode normal form; convert the text to {form}, for instance by "
                f"'uconv -x {form.lower()}'"
            )
    language = f"in the language of the model ({own.language})" if own.language else "in the model's language"
    return (
        f"{share:.0%} of the first {len(tokens):,} tokens are not among the model's words ({own.oov_rate:.1%} in its "
        f"training text); is this text {language}, and cut as that was (tokenizer {own.tokenizer})?"
    )
