"""Cached token vectors: layer 0 of the words of a vocabulary, as bilm-tf writes for a biLM that reads word ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats.hdf5 import open_hdf5
from elmo.formats.tensors import require_weights, room
from elmo.formats.words import find_word_list
from elmo.nn.bilm import BiLM
from elmo.text.characters import encode_words

DATA_SET = "embedding"

_COMPARED, _TOLERANCE = 16, 1e-3


@dataclass(frozen=True)
class TokenVectors:
    """`vectors` (V, P) are what the char encoder makes of the `words`, distinct or not."""

    words: tuple[str, ...]
    vectors: Tensor


def read_token_vectors(path: Path, bilm: BiLM) -> TokenVectors:
    """Read a file's `embedding` and the words of its rows; they must be vectors of this `bilm`."""
    where = f"{path}: data set '{DATA_SET}'"
    if bilm.config.char_cnn is None:
        raise ElmoError(f"{where}: the model next to it reads whole words, by vectors of its own; load that one")
    with open_hdf5(path) as stored:
        if DATA_SET not in stored:
            raise ElmoError(f"{where} is missing; are these cached token vectors?")
        shape = stored[DATA_SET].shape
        if len(shape) != 2 or shape[1] != bilm.config.lstm.projection_dim:
            raise ElmoError(
                f"{where}: has shape {shape}, but the options ask for {bilm.config.lstm.projection_dim} wide"
            )
        if shape[0] * shape[1] * 4 > room(path.stat().st_size):
            raise ElmoError(f"{where}: has shape {shape}, more than such a file can hold")
        vectors = stored[DATA_SET].read()
    require_weights(where, vectors)
    words = find_word_list(path.parent, shape[0])
    if words is None:
        raise ElmoError(
            f"{path}: no vocabulary of {shape[0]} words (vocab*.txt) beside it, to tell whose vectors these are"
        )
    _compare(where, TokenVectors(tuple(words), vectors), bilm)
    return TokenVectors(tuple(words), vectors)


@torch.inference_mode()
def _compare(where: str, cached: TokenVectors, bilm: BiLM) -> None:
    """The first words' vectors must be those that the char encoder makes."""
    words = cached.words[:_COMPARED]
    assert bilm.char_encoder is not None
    ids = torch.from_numpy(encode_words(words, bilm.char_encoder.max_characters))
    errors = (bilm.char_encoder(ids) - cached.vectors[: len(words)]).abs().amax(dim=1)
    if not bool((errors < _TOLERANCE).all()):
        word = words[int(errors.argmax())]
        raise ElmoError(f"{where}: the vector of {word!r} is not the model's; is it of another model or vocabulary?")
