"""Cuts a stream into chunks that are processed together, in memory that does not grow with the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_chunks(items: Iterable[T], length: Callable[[T], int], most: float, most_tokens: int) -> Iterator[list[T]]:
    """Yield the items of a stream in chunks.

    Args:
        items: The items, such as sentences or documents.
        length: Returns the number of tokens of an item.
        most: The most items in a chunk; infinity for any number.
        most_tokens: A chunk ends as soon as it has this many tokens. Its last item may exceed it.
    """
    chunk: list[T] = []
    num_tokens = 0
    for item in items:
        chunk.append(item)
        num_tokens += length(item)
        if len(chunk) >= most or num_tokens >= most_tokens:
            yield chunk
            chunk, num_tokens = [], 0
    if chunk:
        yield chunk
