"""The tensors of bilm-tf under their published names, whichever kind of file holds them, and `options.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from elmo.config import BiLMConfig, from_mapping
from elmo.errors import ElmoError
from elmo.formats.files import read_json
from elmo.formats.renames import CONVOLUTION, SAME, TRANSPOSED, TRANSPOSED_ROWS, ZERO_ROW_FIRST, Rename
from elmo.formats.skeleton import MOST_WORDS, bilm_skeleton, skeleton
from elmo.formats.tensors import Stored, fill
from elmo.formats.words import find_list, read_words, require_as_many
from elmo.nn.bilm import BiLM
from elmo.nn.softmax import Softmax
from elmo.text.vocabulary import SPECIAL_WORDS, Vocabulary

OPTIONS, WORDS = "options.json", "vocab.txt"
"""Names of files beside the weights."""

NO_WORD = "!!!MAXTERMID"
"""A line of old vocabularies that bilm-tf passes over."""

CHARACTERS = "char_embed"
"""The vectors of characters, without the mask's."""

_STORED_CHARACTERS = 261


def _direction(group: str, stack: str) -> list[Rename]:
    cell = group + "/RNN/MultiRNNCell/Cell{l}/LSTMCell/"
    layer = stack + ".layers.{l}."
    return [
        Rename(cell + "W_0", (layer + "weight_ih", layer + "weight_hh"), TRANSPOSED_ROWS),
        Rename(cell + "B", layer + "bias", SAME),
        Rename(cell + "W_P_0", layer + "weight_hr", TRANSPOSED),
    ]


BILM = [
    Rename(CHARACTERS, "char_encoder.embedding.weight", ZERO_ROW_FIRST),
    Rename("CNN/W_cnn_{i}", "char_encoder.convolutions.{i}.weight", CONVOLUTION),
    Rename("CNN/b_cnn_{i}", "char_encoder.convolutions.{i}.bias"),
    Rename("CNN_high_{k}/W_carry", "char_encoder.highways.{k}.gate.weight", TRANSPOSED),
    Rename("CNN_high_{k}/b_carry", "char_encoder.highways.{k}.gate.bias"),
    Rename("CNN_high_{k}/W_transform", "char_encoder.highways.{k}.transform.weight", TRANSPOSED),
    Rename("CNN_high_{k}/b_transform", "char_encoder.highways.{k}.transform.bias"),
    Rename("CNN_proj/W_proj", "char_encoder.projection.weight", TRANSPOSED),
    Rename("CNN_proj/b_proj", "char_encoder.projection.bias"),
    *_direction("RNN_0", "forward_lstm"),
    *_direction("RNN_1", "backward_lstm"),
]
SOFTMAX = [Rename("softmax/W", "weight"), Rename("softmax/b", "bias")]


class Source(NamedTuple):
    """Stored tensors by their published names, and how errors call them: `noun` is that of the file's kind."""

    stored: Mapping[str, Stored]
    path: Path
    num_bytes: int
    noun: str = "data set"


def read_bilm(source: Source, options: Path) -> BiLM:
    """The biLM, whose sizes `options` tells."""
    config = _config(source, options)
    bilm = bilm_skeleton(config, options)
    stored = _named_as_stacked(source.stored)
    where = f"{source.path}: {source.noun} '{CHARACTERS}'"
    stored[CHARACTERS] = rows_of_bytes(where, stored[CHARACTERS], _STORED_CHARACTERS)
    fill(bilm, BILM, stored, source.path, source.noun, source.num_bytes)
    return bilm


def rows_of_bytes(where: str, stored: Stored, num_rows: int) -> Stored:
    """The `num_rows` vectors of bytes and marks, from a tensor that `where` names in errors.

    One row more is that of a training whose options said 262, where no word has the last one: it is left out. Raises
    ElmoError for any other number, which is that of a model of other characters.
    """
    if len(stored.shape) != 2 or stored.shape[0] not in (num_rows, num_rows + 1):
        raise ElmoError(
            f"{where}: has shape {stored.shape}, but {num_rows} rows are those of a model that reads words as UTF-8 "
            "bytes; models of other characters can't be used here"
        )
    return Stored((num_rows, stored.shape[1]), lambda: stored.read()[:num_rows])


def read_softmax(source: Source, dim: int, words: Path) -> tuple[Softmax | None, Vocabulary | None]:
    """The softmax over outputs of width `dim`, and its words from the list `words`; None for what isn't stored."""
    if not any(name.startswith("softmax/") for name in source.stored):
        return None, None
    shape = source.stored["softmax/b"].shape if "softmax/b" in source.stored else ()
    if len(shape) != 1 or not 0 < shape[0] <= MOST_WORDS:
        raise ElmoError(f"{source.path}: {source.noun} 'softmax/b' is missing or no list of numbers")
    softmax = skeleton(lambda: Softmax(shape[0], dim))
    fill(softmax, SOFTMAX, source.stored, source.path, source.noun, source.num_bytes)
    listed = find_list(words)
    return softmax, None if listed is None else _in_our_order(softmax, listed)


def _in_our_order(softmax: Softmax, path: Path) -> Vocabulary:
    """The words of a list in whichever order, as bilm-tf has them: the special ones, with their rows, come first."""
    words = [word for word in read_words(path) if word != NO_WORD]
    require_as_many(path, len(words), softmax.num_words)
    missing = next((word for word in SPECIAL_WORDS if word not in words), None)
    if missing is not None:
        raise ElmoError(f"{path}: {missing} is missing, which every vocabulary of bilm-tf has; is this the model's?")
    special = [words.index(word) for word in SPECIAL_WORDS]
    if special != [0, 1, 2]:
        rows = special + [row for row in range(len(words)) if row not in special]
        words = [words[row] for row in rows]
        with torch.no_grad():
            for parameter in softmax.parameters():
                parameter.copy_(parameter[rows])
    return Vocabulary.of(words, path)


def _config(source: Source, options: Path) -> BiLMConfig:
    """The options, completed by what only the file tells: whether there are two directions."""
    stored, path, _, noun = source
    values = read_options(options)
    if CHARACTERS not in stored:
        raise ElmoError(f"{path}: {noun} '{CHARACTERS}' is missing; is this a bilm weight file?")
    has_backward = any(name.startswith("RNN_1/") for name in stored)
    values.setdefault("bidirectional", has_backward)
    return from_mapping(BiLMConfig, values, str(options), ignore_unknown=True)


def read_options(path: Path) -> dict[str, Any]:
    """The published options of a character-based biLM, unchecked but for the key that tells it from another."""
    values = read_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("char_cnn"), dict):
        raise ElmoError(f"{path}: key 'char_cnn' is missing; these are not the options of a character-based biLM")
    return cast("dict[str, Any]", values)


def _named_as_stacked(stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """A single LSTM layer is not wrapped in a stack of cells by bilm-tf: here it has the name it has in one."""
    return {
        re.sub(r"^(RNN_[01]/RNN)/LSTMCell/", r"\1/MultiRNNCell/Cell0/LSTMCell/", name): item
        for name, item in stored.items()
    }
