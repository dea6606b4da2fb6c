"""Finds the places of tokens in the text that they were cut from, even if the tokenizer rewrote some of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

MOST_LEFT_OUT = 10_000
"""How many characters a tokenizer may leave out between two tokens for `align` to find the second one.

Without a limit, each token that the text doesn't have would cost a search to the text's end."""

_MOST_AHEAD, _MOST_PLACES = 3, 20
"""How many tokens behind one are looked at to find out whether it was rewritten, and in how many places a token is
looked for."""

_SPACES = re.compile(r"\s*")
_GAPS = re.compile(r"\s{0,100}"), re.compile(r"[\W_]{0,100}")
"""What may stand between two tokens: spaces, and marks that the tokenizer left out."""


class PlacedToken(NamedTuple):
    """A token and the text that it stands for, `text[start:end]`.

    The two differ only where a tokenizer rewrites text, as some do with quotes, or where the text contains whitespace.
    """

    token: str
    start: int
    end: int


def align(text: str, tokens: Sequence[str]) -> list[PlacedToken]:
    """Find tokens in the text that they were cut from.

    A token that the tokenizer rewrote gets what is left between its neighbors, as `"` for two backticks. Several in a
    row all get the same part. A token counts as rewritten if the text does not have it, or only behind the tokens that
    follow it. Upper and lower case count as equal. Between two tokens, the tokenizer may have left out text of up to
    `MOST_LEFT_OUT` characters.

    Args:
        text: Raw text.
        tokens: All its tokens, in order.
    """
    found: list[PlacedToken] = []
    rewritten: list[str] = []
    wanted: list[str] = []
    lowered = ""
    end = 0
    for number, token in enumerate(tokens):
        start = _SPACES.match(text, end).end()  # pyright: ignore[reportOptionalMemberAccess] - it matches anything
        if _lower_in_place(text[start : start + len(token)]) != _lower_in_place(token):
            if not wanted:
                lowered, wanted = _lower_in_place(text), list(map(_lower_in_place, tokens))
            start = _find(lowered, wanted, number, end)
        if start < 0:
            rewritten.append(token)
            continue
        found += _between(text, end, start, rewritten)
        rewritten.clear()
        end = start + len(token)
        found.append(PlacedToken(token, start, end))
    return found + _between(text, end, len(text), rewritten)


def _find(text: str, tokens: Sequence[str], number: int, end: int) -> int:
    """Return where a token begins in the text from `end` on, where it isn't next, or -1 if it was rewritten.

    The text and the tokens are in lower case.
    """
    token = tokens[number]
    places = _places(text, token, end, end + len(token) + MOST_LEFT_OUT)
    first = place = next(places, -1)
    if first < 0:
        return -1
    # The letters of this token may be inside of a rewritten word before it: "a" in "Café a Roma", cut as "cafe a roma".
    if _is_inside(text, first) and not _is_next(text, tokens, number + 1, first + len(token)):
        place = next((other for other in places if not _is_inside(text, other)), first)
    # "dem" in "zum Haus neben dem Garten" was rewritten if the next tokens are "Haus" and "neben".
    for ahead in range(number + 1, min(number + 1 + _MOST_AHEAD, len(tokens) - 1)):
        size = len(tokens[ahead])
        before = _places(text, tokens[ahead], end, place) if size else ()
        if any(_is_next(text, tokens, ahead + 1, other + size) for other in before):
            return -1
    return place


def _places(text: str, token: str, start: int, end: int) -> Iterator[int]:
    """Yield the first places where a token begins between two places of a text."""

    def all_places() -> Iterator[int]:
        place = text.find(token, start, end)
        while place >= 0:
            yield place
            place = text.find(token, place + 1, end)

    return islice(all_places(), _MOST_PLACES)


def _is_inside(text: str, place: int) -> bool:
    """Return whether a place is inside of a word. Those of Chinese and Japanese have no spaces between them."""
    return place > 0 and all(
        (character.isalnum() or unicodedata.category(character).startswith("M"))
        and unicodedata.east_asian_width(character) not in "WF"
        for character in text[place - 1 : place + 1]
    )


def _is_next(text: str, tokens: Sequence[str], number: int, end: int) -> bool:
    """Return whether a token is what follows a place of the text, or nothing follows if there is no such token."""
    if number == len(tokens):
        return not text[end:].strip()
    gaps = (gap.match(text, end) for gap in _GAPS)
    return any(gap is not None and text.startswith(tokens[number], gap.end()) for gap in gaps)


def _lower_in_place(text: str) -> str:
    """Convert a text to lower case so that each letter keeps its place: only "İ" has a longer lower case.

    Every sigma becomes "σ": `str.lower` makes some of them "ς", by what stands before them and is not in the token.
    """
    return text.replace("İ", "i").lower().replace("ς", "σ")


def _between(text: str, start: int, end: int, tokens: Sequence[str]) -> list[PlacedToken]:
    """Return tokens that stand for all of a part of the text, without the whitespace around it."""
    part = text[start:end]
    end = start + len(part.rstrip())
    return [PlacedToken(token, min(end, start + len(part) - len(part.lstrip())), end) for token in tokens]
