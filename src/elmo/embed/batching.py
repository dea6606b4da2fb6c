"""Batches for inference: any stream of sentences in constant memory, whatever their lengths."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.text.characters import BOS, EOS, encode_words

Sentence = Sequence[str]


class Batch(NamedTuple):
    """What `BiLM` takes: `characters` (N, C) of N types, `tokens` (B, T) into them, `lengths` (B,)."""

    characters: Tensor
    tokens: Tensor
    lengths: Tensor


def windows(sentences: Iterable[Sentence], max_tokens: int, max_sentences: int | None) -> Iterator[list[Sentence]]:
    """Cut a stream into consecutive windows of `max_sentences` sentences, or of about `max_tokens` tokens.

    A window by tokens ends before the sentence that would exceed `max_tokens`, boundaries counted; a longer
    sentence is a window of its own. Every window but the last has exactly `max_sentences` where that is given.
    """
    window: list[Sentence] = []
    num_tokens = 0
    for number, sentence in enumerate(sentences):
        _check_sentence(sentence, number)
        length = len(sentence) + 2
        full = num_tokens + length > max_tokens if max_sentences is None else len(window) == max_sentences
        if window and full:
            yield window
            window, num_tokens = [], 0
        window.append(sentence)
        num_tokens += length
    if window:
        yield window


def plan_batches(lengths: Sequence[int], max_tokens: int, max_sentences: int | None) -> list[list[int]]:
    """Which sentences run together: lists of indices into `lengths`, similar lengths beside each other.

    A batch has at most `max_sentences` sentences, or `max_tokens` tokens with boundaries and padding; a longer
    sentence is a batch of its own.
    """
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if room == 0:
            # falling length: the first sentence of a batch is its longest, and all are padded to it
            room = max_sentences or max(1, max_tokens // (lengths[index] + 2))
            batches.append([])
        batches[-1].append(index)
        room -= 1
    return batches


def encode_batch(sentences: Sequence[Sentence], max_characters: int) -> Batch:
    """Put `<S>` and `</S>` around each sentence and number the batch's types; padding is type 0."""
    types: dict[str, int] = {BOS: 0, EOS: 1}
    tokens = torch.zeros(len(sentences), max(map(len, sentences), default=0) + 2, dtype=torch.int64)
    for row, sentence in enumerate(sentences):
        ids = [0, *(types.setdefault(word, len(types)) for word in sentence), 1]
        tokens[row, : len(ids)] = torch.tensor(ids)
    lengths = torch.tensor([len(sentence) + 2 for sentence in sentences])
    return Batch(torch.from_numpy(encode_words(list(types), max_characters)), tokens, lengths)


def _check_sentence(sentence: object, number: int) -> None:
    """Strings are sequences of strings too: the commonest mistake gives a vector per letter unless it is refused."""
    if isinstance(sentence, str | bytes):
        raise ElmoError(
            f"sentence {number}: expected a list of tokens, found a string; did you mean sentence.split() in a list?"
        )
    if not isinstance(sentence, Sequence):
        raise ElmoError(f"sentence {number}: expected a list of tokens, found {type(sentence).__name__}")
    for token in cast("Sequence[Any]", sentence):
        if not isinstance(token, str):
            raise ElmoError(f"sentence {number}: token {token!r} is no string")
