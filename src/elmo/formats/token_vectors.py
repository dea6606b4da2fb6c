"""Reads cached token vectors: layer 0 of the words of a vocabulary, as bilm-tf stores them for use by word ids."""

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
"""How many words are compared with the char encoder, and the largest difference that is accepted."""


@dataclass(frozen=True)
class TokenVectors:
    """The vectors (V, P) that the char encoder gives for V words, which may contain duplicates."""

    words: tuple[str, ...]
    vectors: Tensor


def read_token_vectors(path: Path, bilm: BiLM) -> TokenVectors:
    """Read the cached vectors of a file.

    Args:
        path: The HDF5 file. A word list next to it (`vocab*.txt`, plain or `.gz`) must have a line for each vector.
        bilm: The biLM that the vectors were computed with.

    Raises:
        ElmoError: If the file is damaged, if there is no such word list, or if the first vectors are not those that
            the biLM gives.
    """
    where = f"{path}: data set '{DATA_SET}'"
    if bilm.config.char_cnn is None:
        raise ElmoError(f"{where}: the model next to it reads whole words and has its own vectors; load that")
    with open_hdf5(path) as stored:
        if DATA_SET not in stored:
            raise ElmoError(f"{where} is missing; are these cached token vectors?")
        shape = stored[DATA_SET].shape
        if len(shape) != 2 or shape[1] != bilm.config.lstm.projection_dim:
            raise ElmoError(
                f"{where}: has shape {shape}, but the options ask for a width of {bilm.config.lstm.projection_dim}"
            )
        if shape[0] * shape[1] * 4 > room(path.stat().st_size):
            raise ElmoError(f"{where}: has shape {shape}, which is more than a file of this size can contain")
        vectors = stored[DATA_SET].read()
    require_weights(where, vectors)
    words = find_word_list(path.parent, shape[0])
    if words is None:
        raise ElmoError(
            f"{path}: no vocabulary of {shape[0]} words (vocab*.txt) next to it says whose vectors these are; add it"
        )
    _compare(where, TokenVectors(tuple(words), vectors), bilm)
    return TokenVectors(tuple(words), vectors)


@torch.inference_mode()
def _compare(where: str, cached: TokenVectors, bilm: BiLM) -> None:
    """Refuse vectors whose first rows are not those that the char encoder gives."""
    words = cached.words[:_COMPARED]
    assert bilm.char_encoder is not None
    ids = torch.from_numpy(encode_words(words, bilm.char_encoder.max_characters))
    errors = (bilm.char_encoder(ids) - cached.vectors[: len(words)]).abs().amax(dim=1)
    if not bool((errors < _TOLERANCE).all()):
        word = words[int(errors.argmax())]
        raise ElmoError(f"{where}: the vector of {word!r} is not the model's; is it from another model or vocabulary?")
