"""The words a biLM predicts, by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.text.characters import BOS, EOS, UNK
from elmo.text.reading import read_lines

SPECIAL_WORDS = (BOS, EOS, UNK)
"""The first three words of every vocabulary, as published."""

UNK_ID = 2


class Vocabulary:
    """Words by id. The first three are `<S>`, `</S>` and `<UNK>`; the rest normally follow by falling count."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words: tuple[str, ...] = tuple(words)
        if self.words[:3] != SPECIAL_WORDS:
            found = " ".join(self.words[:3]) or "nothing"
            raise ElmoError(f"vocabulary: the first three words must be <S> </S> <UNK>, found {found}")
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            index = next(index for index, word in enumerate(self.words) if self._ids[word] != index)
            again = self._ids[self.words[index]]
            raise ElmoError(f"vocabulary: {self.words[index]!r} stands twice, as words {index + 1} and {again + 1}")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def id(self, word: str) -> int:
        """The id of `word`, or that of `<UNK>` (2) where it is absent."""
        return self._ids.get(word, UNK_ID)

    def encode(self, words: Sequence[str]) -> NDArray[np.int64]:
        """The ids (N, 1) of `words`, the input of models that read whole words; absent ones are `<UNK>`."""
        return np.array([[self.id(word)] for word in words], dtype=np.int64).reshape(-1, 1)

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """Read a vocabulary file: UTF-8, a word a line, plain or compressed like any text."""
        return cls.of(list(read_lines(path)), path)

    @classmethod
    def of(cls, words: Sequence[str], path: str | Path) -> Vocabulary:
        """The vocabulary of words that were read from `path`, which errors name."""
        try:
            return cls(words)
        except ElmoError as error:
            raise ElmoError(f"{path}: {error}") from None

    def write(self, path: str | Path) -> None:
        """Write a word a line, in UTF-8."""
        broken = next((word for word in self.words if "\n" in word or "\r" in word), None)
        if broken is not None:
            raise ElmoError(f"{path}: {broken!r} can't be written, it holds a line end")
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word}\n" for word in self.words)
