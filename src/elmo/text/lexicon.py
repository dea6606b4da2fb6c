"""Words as ids of the words and Unicode characters that a model of ELMoForManyLangs knows."""

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
"""A word begins with what the lists call its end, and ends with its begin: published models were trained so."""


class Lexicon:
    """Ids of characters, and of words where a model has vectors of them (an empty mapping where not).

    Ids are those of the published lists; the numbers that `encode` gives are rows of our embeddings (see `row`).
    """

    def __init__(self, words: Mapping[str, int], characters: Mapping[str, int], max_characters: int) -> None:
        for kind, ids, wanted in (
            ("word", words, (_UNKNOWN, *_BOUNDARIES.values()) if words else ()),
            ("character", characters, (_UNKNOWN, _PADDING, BEGIN, END, *_BOUNDARIES.values())),
        ):
            missing = next((name for name in wanted if name not in ids), None)
            if missing is not None:
                raise ElmoError(f"{missing} is missing among the {kind}s")
        self.words, self.characters, self.max_characters = words, characters, max_characters

    def encode(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Ids of `words`: (N, 1+C), first the word's, then its characters', padded.

        A word is cut after `max_characters` - 2 characters, before it is looked up. `<S>` and `</S>` are the
        boundaries of sentences.
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
        """The row of our embedding that holds a character's vector.

        Row 0 is the mask's, padding stands where every biLM of ours has it (row 261), and the character that would
        have stood there takes the row of padding.
        """
        pad = self.characters[_PADDING]
        if character == pad:
            return PADDING + 1
        return pad + 1 if character == PADDING else character + 1
