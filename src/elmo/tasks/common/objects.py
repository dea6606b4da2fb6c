"""Examples as JSON objects, or as two texts separated by a tab."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar, cast

from elmo.errors import ElmoError

T = TypeVar("T")

_BEGINNING = re.compile(r'\s*\{\s*"')
_KINDS: dict[type, str] = {list: "a list", str: "text", int: "a whole number"}


def begins_object(line: str) -> bool:
    """Return whether a line begins like a JSON object, as a plain text rarely does: with a brace and a quoted key."""
    return _BEGINNING.match(line) is not None


def parse_json(text: str) -> object:
    """Parse JSON.

    Raises:
        ElmoError: If the text is not JSON. The message says at which character.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"character {error.colno}" if error.lineno == 1 else f"line {error.lineno}, character {error.colno}"
        raise ElmoError(f"not valid JSON ({error.msg}, at {at})") from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; a million opening brackets
        raise ElmoError(f"not valid JSON ({error})") from None


def read_object(line: str) -> dict[str, Any]:
    """Parse the JSON object of a line.

    Raises:
        ElmoError: If the line is not a JSON object.
    """
    return _as_object(parse_json(line))


def get(values: object, key: str, kind: type[T]) -> T:
    """Return the value of a key of a JSON object, and check its type.

    Raises:
        ElmoError: If `values` is not an object, the key is missing, or its value is not of type `kind`.
    """
    known = _as_object(values)
    if key not in known:
        raise ElmoError(f"key {key!r} is missing")
    if not isinstance(known[key], kind):
        raise ElmoError(f"key {key!r}: expected {_KINDS[kind]}, found {type(known[key]).__name__}")
    return cast("T", without_surrogates(known[key])) if kind is str else known[key]


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can express but no file can hold, and keep the length of the text."""
    # UTF-16 is where surrogates come from: there, two of them are a character, and one alone can't be decoded.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_list_of(value: object, kind: type[T]) -> TypeGuard[list[T]]:
    """Return whether a value is a list, perhaps an empty one, of items of exactly this type."""
    # The exact type, since a bool is an int: `true` is not the index of a token.
    return isinstance(value, list) and all(type(item) is kind for item in cast("list[object]", value))


def as_tokens(items: Sequence[str], key: str) -> tuple[str, ...]:
    """Return the tokens of a list of texts, and name the key if one of them is not a token.

    Raises:
        ElmoError: If a token is empty or holds white space.
    """
    for item in items:
        if item.split() != [item]:
            raise ElmoError(f"{key}: {item!r} is empty or holds white space, which separates tokens")
    return tuple(map(without_surrogates, items))


def two_columns_or_object(line: str, expected: str) -> list[str] | dict[str, Any]:
    """Return the two columns of a line, which a tab separates, or its JSON object.

    Args:
        line: The line.
        expected: What a line may hold, for error messages.

    Raises:
        ElmoError: If the line has neither form.
    """
    # A tab decides, and not a bracket: a text may begin with one, whereas a JSON string holds tabs as \t.
    columns = line.split("\t")
    if len(columns) == 2:
        return columns
    if len(columns) == 1 and line.lstrip().startswith("{"):
        return read_object(line)
    raise ElmoError(f"expected {expected}; found {len(columns) - 1} tabs")


def two_texts(line: str, what: str, keys: tuple[str, str]) -> tuple[str, str]:
    """Return the two texts of a line: separated by a tab, or in a JSON object under two keys.

    Args:
        line: The line.
        what: What the two texts are, for error messages.
        keys: The keys of the JSON object.

    Raises:
        ElmoError: If the line has neither form.
    """
    found = two_columns_or_object(line, f"{what} with one tab between them, or a JSON object with {' and '.join(keys)}")
    if isinstance(found, list):
        return found[0], found[1]
    return get(found, keys[0], str), get(found, keys[1], str)


def _as_object(values: object) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ElmoError(f"expected a JSON object, found {type(values).__name__}")
    return cast("dict[str, Any]", values)
