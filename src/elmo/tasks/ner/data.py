"""Text with one token and its tags on each line and blank lines between sentences, as in the CoNLL shared tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from elmo.errors import ElmoError
from elmo.text.columns import DOCUMENT, Tagged, read_paragraphs, split_columns
from elmo.wording import counted

_TAG = re.compile(r"O|[BIULES]-.+")
_JSON_LINE = re.compile(r'\s*\{\s*".*\}\s*')
"""A line that is an object of JSON, with the quotation mark of its first key, since a brace alone may be a token."""


def read_conll(path: str | Path, token_column: int = 0) -> list[Tagged]:
    """Read the sentences of a file, plain or compressed. The last column is the tag.

    Columns are separated by tabs in a line that has any, and by spaces otherwise.

    Args:
        path: The file.
        token_column: The column of the token, counted from 0, or from the end if negative: -2 is the one before the
            tag.

    Raises:
        ElmoError: If a line has too few columns, other columns than the first line (unless `token_column` is negative),
            or an unknown tag; if there is no sentence; or if all tokens are numbers, which means that `token_column` is
            wrong.
    """
    sentences = list(_read(path, token_column))
    if not sentences:
        raise ElmoError(
            f"{path}: holds no sentence; expected a token and its tag on each line, and blank lines between sentences"
        )
    if all(token.isdecimal() for sentence in sentences for token in sentence.tokens):
        raise ElmoError(
            f"{path}: all tokens in column {token_column} are numbers; set the recipe's token_column to the column of "
            "the tokens, counted from 0 (token_column=1)"
        )
    return sentences


def _read(path: str | Path, token_column: int) -> Iterator[Tagged]:
    width = 0  # of the first line with a token
    for lines in read_paragraphs(path):
        number, first = lines[0]
        if _JSON_LINE.fullmatch(first):
            raise ElmoError(
                f"{path}, line {number}: is JSON; expected a token and its tag on each line, and blank lines between "
                "sentences (docs/tasks.md shows how to make them of spans of characters)"
            )
        rows = [(number, split_columns(line)) for number, line in lines]
        # A line that begins a document may have other columns than those of tokens.
        words = [(number, columns) for number, columns in rows if DOCUMENT not in columns]
        if words:
            pairs = [_parse(columns, token_column, f"{path}, line {number}") for number, columns in words]
            # Without its tag, a line would end in another column, such as that of chunks, whose tags look the same. If
            # the column of the token is counted from the end, some lines may have more columns before it.
            width = width or len(words[0][1])
            for number, columns in words:
                if len(columns) != width and token_column >= 0:
                    raise ElmoError(
                        f"{path}, line {number}: has {counted(len(columns), 'column')}, but the first line with a "
                        f"token has {width}; is its tag missing, or is it separated by other marks (tabs, or spaces)?"
                    )
            tokens, tags = zip(*pairs, strict=True)
            yield Tagged(tokens, tags)


def _parse(columns: Sequence[str], token_column: int, where: str) -> tuple[str, str]:
    place = token_column if token_column >= 0 else len(columns) + token_column
    if not 0 <= place < len(columns) - 1:
        raise ElmoError(
            f"{where}: has {counted(len(columns), 'column')}, and token_column={token_column} is not one of those "
            "before the tag, which is the last; set the recipe's token_column to the column of the tokens, counted "
            "from 0, or from the end (-2 is the one before the tag)"
        )
    token, tag = columns[place], columns[-1]
    if not token:
        raise ElmoError(f"{where}: the token is empty")
    require_tag(tag, where)
    return token, tag


def require_tag(tag: str, where: str) -> None:
    """Raise ElmoError, which begins with `where`, unless a tag has the form of one."""
    if not _TAG.fullmatch(tag):
        raise ElmoError(f"{where}: {tag!r} is not a tag such as O, B-LOC or I-LOC")


def format_conll(tokens: Sequence[str], tags: Sequence[str]) -> str:
    """Write a sentence with one token, a tab and its tag on each line."""
    return "".join(f"{token}\t{tag}\n" for token, tag in zip(tokens, tags, strict=True))
