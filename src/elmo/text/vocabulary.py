"""Lists of words and characters by id: what a biLM predicts, and what the models of ELMoForManyLangs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmo.config import BOS, EOS, PADDING, SPECIAL_WORDS, UNK_ID
from elmo.errors import ElmoError, placing
from elmo.text.decoding import read_lines

NO_WORD = "!!!MAXTERMID"
"""A line of old vocabularies that is not a word; bilm-tf skips it."""


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
        # The dict keeps only the last id of a word that occurs twice, so the first index that differs is such a word.
        if len(self._ids) < len(self.words):
            index = next(index for index, word in enumerate(self.words) if self._ids[word] != index)
            word = self.words[index]
            raise ElmoError(
                f"vocabulary: {word!r} occurs twice, as words {index + 1} and {self._ids[word] + 1}; remove one"
            )

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

        A line `NO_WORD` is left out.

        Raises:
            ElmoError: If the file cannot be read, or is not a vocabulary.
        """
        return cls.of([line for line in read_lines(path) if line != NO_WORD], path)

    @classmethod
    def of(cls, words: Sequence[str], path: str | Path) -> Vocabulary:
        """Make a vocabulary of words that were read from `path`, and name `path` in errors."""
        with placing(path):
            return cls(words)

    def write(self, path: str | Path) -> None:
        """Write the words to a UTF-8 file, one per line.

        Raises:
            ElmoError: If a word contains a line end.
        """
        # `read_lines` drops a "\r" before the line end, so a word that ends in one would be read as another word.
        broken = next((word for word in self.words if "\n" in word or "\r" in word), None)
        if broken is not None:
            raise ElmoError(f"{path}: {broken!r} cannot be written because it contains a line end")
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word}\n" for word in self.words)


_BOUNDARIES = {BOS: "<bos>", EOS: "<eos>"}
_UNKNOWN, _PADDING = "<oov>", "<pad>"
"""Special entries of the published lists of words and characters."""

BEGIN, END = "<eow>", "<bow>"
"""The marks around a word's characters. They look swapped, but the published models were trained this way."""


class Lexicon:
    """The ids of words and Unicode characters that a model of ELMoForManyLangs reads (the other models read bytes).

    Args:
        words: The published list of word ids, empty if the model has no vectors of whole words.
        characters: The published list of character ids.
        max_characters: The number C of character ids per word, including the marks around it.

    Raises:
        ElmoError: If a special entry is missing from one of the lists.
    """

    def __init__(self, words: Mapping[str, int], characters: Mapping[str, int], max_characters: int) -> None:
        for kind, ids, wanted in (
            ("word", words, (_UNKNOWN, *_BOUNDARIES.values()) if words else ()),
            ("character", characters, (_UNKNOWN, _PADDING, BEGIN, END, *_BOUNDARIES.values())),
        ):
            missing = next((name for name in wanted if name not in ids), None)
            if missing is not None:
                raise ElmoError(f"{missing} is missing from the list of {kind}s")
        self.words, self.characters, self.max_characters = words, characters, max_characters

    def encode(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Encode words as the input of the model.

        A word is cut after C - 2 characters before it is looked up. `<S>` and `</S>` stand for the boundaries of
        sentences.

        Returns:
            The ids, (N, 1+C): the word's id (0 if the model has no vectors of words), then the rows of its characters
            (see `row`), filled up with the row of padding.
        """
        pad, unknown = self.row(self.characters[_PADDING]), self.characters[_UNKNOWN]
        ids = np.full((len(words), 1 + self.max_characters), pad, dtype=np.int64)
        for number, word in enumerate(words):
            word = _BOUNDARIES.get(word) or word[: self.max_characters - 2]
            ids[number, 0] = self.words.get(word, self.words[_UNKNOWN]) if self.words else 0
            # A boundary is a character of its own; it is not spelled "<", "b", "o", "s", ">".
            spelled = [BEGIN, *([word] if word in _BOUNDARIES.values() else word), END]
            ids[number, 1 : len(spelled) + 1] = [self.row(self.characters.get(c, unknown)) for c in spelled]
        return ids

    def row(self, character: int) -> int:
        """Return the row of our embedding that holds the vector of a character, given its id in the published list.

        Row 0 belongs to masked tokens, so rows are ids plus 1. Padding has the same row (261) as in all our biLMs; the
        character that would have had that row gets the one that is left free.
        """
        pad = self.characters[_PADDING]
        if character == pad:
            return PADDING + 1
        return pad + 1 if character == PADDING else character + 1
