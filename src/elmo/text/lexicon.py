"""Encodes words as the ids of words and Unicode characters that a model of ELMoForManyLangs knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from elmo.config import PADDING
from elmo.errors import ElmoError
from elmo.text.characters import BOS, EOS

_BOUNDARIES = {BOS: "<bos>", EOS: "<eos>"}
_UNKNOWN, _PADDING = "<oov>", "<pad>"

BEGIN, END = "<eow>", "<bow>"
"""The marks around a word's characters. They look swapped, but the published models were trained this way."""


class Lexicon:
    """The word and character ids of one model.

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
        pad = self.row(self.characters[_PADDING])
        ids = np.full((len(words), 1 + self.max_characters), pad, dtype=np.int64)
        for number, word in enumerate(words):
            word = _BOUNDARIES.get(word) or word[: self.max_characters - 2]
            ids[number, 0] = self.words.get(word, self.words[_UNKNOWN]) if self.words else 0
            letters = [word] if word in _BOUNDARIES.values() else word
            spelled = [BEGIN, *letters, END]
            unknown = self.characters[_UNKNOWN]
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
