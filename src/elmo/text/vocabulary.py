"""The vocabulary of a biLM: the words that it predicts, by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.text.characters import BOS, EOS, UNK
from elmo.text.reading import read_lines

SPECIAL_WORDS = (BOS, EOS, UNK)
"""The first three words of every vocabulary, as in the published models."""

UNK_ID = 2


class Vocabulary:
    """The words that a biLM predicts, by id.

    Args:
        words: The words in the order of their ids. The first three must be `<S>`, `</S>` and `<UNK>`; the rest are
            normally sorted by falling count.

    Raises:
        ElmoError: If the first three words are not these, or a word occurs twice.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words: tuple[str, ...] = tuple(words)
        if self.words[:3] != SPECIAL_WORDS:
            found = " ".join(self.words[:3]) or "nothing"
            raise ElmoError(f"vocabulary: the first three words must be <S> </S> <UNK>, found {found}")
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            index = next(index for index, word in enumerate(self.words) if self._ids[word] != index)
            again = self._ids[self.words[index]]
            raise ElmoError(f"vocabulary: {self.words[index]!r} occurs twice, as words {index + 1} and {again + 1}")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def id(self, word: str) -> int:
        """Return the id of `word`, or the id of `<UNK>` (2) if it is not in the vocabulary."""
        return self._ids.get(word, UNK_ID)

    def encode(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the ids (N, 1) of `words`, as input for models that read whole words. Unknown words are `<UNK>`."""
        return np.array([[self.id(word)] for word in words], dtype=np.int64).reshape(-1, 1)

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """Read a vocabulary file: UTF-8, one word per line, plain or compressed (see `read_lines`).

        Raises:
            ElmoError: If the file cannot be read, or is not a vocabulary.
        """
        return cls.of(list(read_lines(path)), path)

    @classmethod
    def of(cls, words: Sequence[str], path: str | Path) -> Vocabulary:
        """Make a vocabulary of words that were read from `path`, and name `path` in errors."""
        try:
            return cls(words)
        except ElmoError as error:
            raise ElmoError(f"{path}: {error}") from None

    def write(self, path: str | Path) -> None:
        """Write the words to a UTF-8 file, one per line.

        Raises:
            ElmoError: If a word contains a line end.
        """
        broken = next((word for word in self.words if "\n" in word or "\r" in word), None)
        if broken is not None:
            raise ElmoError(f"{path}: {broken!r} cannot be written because it contains a line end")
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word}\n" for word in self.words)
