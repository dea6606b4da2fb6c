"""Provides AllenNLP's `ELMoCharacterMapper` and `ELMoTokenCharactersIndexer`, which turn words into character ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from elmo.config import BEGIN_SENTENCE, BEGIN_WORD, BOS, END_SENTENCE, END_WORD, EOS, PADDING
from elmo.errors import ElmoError
from elmo.text.characters import NUM_CHARACTERS, encode_words

TOKENS = "elmo_tokens"
"""The key of the ids that an indexer returns, which is the name of the argument of `ElmoTokenEmbedder.forward`."""


class Token(Protocol):
    """Any object with a text, such as a token of AllenNLP or spaCy."""

    @property
    def text(self) -> str | None:
        """The text, or None if it is not known."""
        ...


def _special_word(character: int) -> list[int]:
    """Return the ids of a word that is a single special character, before they are shifted by one."""
    return [BEGIN_WORD, character, END_WORD, *[PADDING] * (NUM_CHARACTERS - 3)]


class ELMoCharacterMapper:
    """Converts words to character ids, shifted by one so that padding is 0.

    Args:
        tokens_to_add: Words that are encoded as one special character each, with its id below 261 before the shift.
            The id of a byte that no text contains (1 to 32) is a good choice.
    """

    max_word_length = NUM_CHARACTERS
    beginning_of_sentence_character = BEGIN_SENTENCE
    end_of_sentence_character = END_SENTENCE
    beginning_of_word_character = BEGIN_WORD
    end_of_word_character = END_WORD
    padding_character = PADDING
    beginning_of_sentence_characters = _special_word(BEGIN_SENTENCE)
    end_of_sentence_characters = _special_word(END_SENTENCE)
    bos_token, eos_token = BOS, EOS

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})

    def convert_word_to_char_ids(self, word: str) -> list[int]:
        """Return the 50 ids of a word."""
        if word in self.tokens_to_add:
            return [character + 1 for character in _special_word(self.tokens_to_add[word])]
        return encode_words([word], self.max_word_length)[0].tolist()

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, type(self)) else NotImplemented


class ELMoTokenCharactersIndexer:
    """Converts tokens to character ids, for dataset readers that were written for AllenNLP.

    Args:
        namespace: Ignored.
        tokens_to_add: Words with a character of their own, as in `ELMoCharacterMapper`.
        token_min_padding_length: The smallest number of tokens that `get_padding_lengths` returns.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._namespace = namespace
        self._mapper = ELMoCharacterMapper(tokens_to_add)
        self._token_min_padding_length = token_min_padding_length

    def count_vocab_items(self, token: Token, counter: dict[str, dict[str, int]]) -> None:
        """Do nothing, since characters do not belong to a vocabulary."""

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        """Return what `tokens_to_indices` returns for an empty list of tokens."""
        return {TOKENS: []}

    def tokens_to_indices(
        self, tokens: Sequence[Token], vocabulary: object = None, index_name: str = TOKENS
    ) -> dict[str, list[list[int]]]:
        """Convert tokens to character ids.

        Args:
            tokens: The T tokens of a sentence.
            vocabulary: Ignored.
            index_name: The key of the result, as in AllenNLP 0.9.

        Returns:
            One entry, with a list of 50 ids for each token.

        Raises:
            ElmoError: If a token has no text.
        """
        return {index_name: [self._mapper.convert_word_to_char_ids(_text_of(token)) for token in tokens]}

    def get_padding_lengths(self, indexed_tokens: Mapping[str, Sequence[object]]) -> dict[str, int]:
        """Return the number of tokens under each key, which is at least `token_min_padding_length`."""
        return {key: max(len(ids), self._token_min_padding_length) for key, ids in indexed_tokens.items()}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, Sequence[Sequence[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return the ids under each key as an int64 tensor (T, 50), cut or padded with zeros to `padding_lengths`."""
        width = self._mapper.max_word_length
        padded: dict[str, Tensor] = {}
        for key, ids in tokens.items():
            rows = list(ids[: padding_lengths[key]])
            rows += [[0] * width] * (padding_lengths[key] - len(rows))
            padded[key] = torch.tensor(rows, dtype=torch.long).view(len(rows), width)
        return padded

    def as_padded_tensor(
        self,
        tokens: Mapping[str, Sequence[Sequence[int]]],
        desired_num_tokens: Mapping[str, int],
        padding_lengths: Mapping[str, int],
    ) -> dict[str, Tensor]:
        """Do as `as_padded_tensor_dict` does, with the name and arguments of AllenNLP 0.9."""
        return self.as_padded_tensor_dict(tokens, desired_num_tokens)

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, type(self)) else NotImplemented


def _text_of(token: Token) -> str:
    if token.text is None:
        raise ElmoError("a token has no text, which its character ids are made of; choose a tokenizer that keeps it")
    return token.text
