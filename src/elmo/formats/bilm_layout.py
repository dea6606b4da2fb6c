"""The tensor layout and options of bilm-tf, shared by its HDF5 files and its TensorFlow checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from elmo.config import BiLMConfig, bilm_config
from elmo.errors import ElmoError
from elmo.formats.files import read_json
from elmo.formats.renames import CONVOLUTION, SAME, TRANSPOSED, TRANSPOSED_ROWS, ZERO_ROW_FIRST, Rename
from elmo.formats.skeleton import MOST_WORDS, bilm_skeleton, skeleton
from elmo.formats.tensors import Stored, fill
from elmo.formats.words import READ, SCORED, find_list, read_so_many, require_as_many
from elmo.nn.bilm import BiLM
from elmo.nn.softmax import Softmax
from elmo.text.vocabulary import SPECIAL_WORDS, Vocabulary

OPTIONS, WORDS = "options.json", "vocab.txt"
"""The names of the files next to the weights."""

NO_WORD = "!!!MAXTERMID"
"""A line of old vocabularies that is not a word; bilm-tf skips it."""

CHARACTERS = "char_embed"
"""The name of the character vectors, which do not include the row of the mask."""

EMBEDDING = "embedding"
"""The name of the word vectors of a biLM without characters, in the order of its vocabulary. A file with nothing else
contains cached token vectors of a biLM with characters (`elmo.formats.token_vectors`)."""

_STORED_CHARACTERS = 261


def _direction(group: str, stack: str) -> list[Rename]:
    cell = group + "/RNN/MultiRNNCell/Cell{l}/LSTMCell/"
    layer = stack + ".layers.{l}."
    return [
        Rename(cell + "W_0", (layer + "weight_ih", layer + "weight_hh"), TRANSPOSED_ROWS),
        Rename(cell + "B", layer + "bias", SAME),
        Rename(cell + "W_P_0", layer + "weight_hr", TRANSPOSED),
    ]


_LSTMS = [*_direction("RNN_0", "forward_lstm"), *_direction("RNN_1", "backward_lstm")]
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
    *_LSTMS,
]
WORD_BILM = [Rename(EMBEDDING, "word_encoder.embedding.weight"), *_LSTMS]
"""The layout of a biLM that reads whole words."""
SOFTMAX = [Rename("softmax/W", "weight"), Rename("softmax/b", "bias")]


class Source(NamedTuple):
    """The tensors of a file, under their names in the published HDF5 files.

    Attributes:
        stored: The tensors by name.
        path: The file, for messages.
        num_bytes: The size of the file or files, which bounds what may come out of them.
        noun: What messages call an entry of such a file.
    """

    stored: Mapping[str, Stored]
    path: Path
    num_bytes: int
    noun: str = "data set"


def read_bilm(source: Source, options: Path, words: Path) -> tuple[BiLM, Vocabulary | None]:
    """Read the biLM, and its vocabulary if it reads whole words.

    Args:
        source: The tensors.
        options: The `options.json` with the sizes.
        words: The word list, which may also have `.gz` appended. Only a biLM that reads whole words needs it.

    Returns:
        The biLM, and its vocabulary or None.
    """
    config = _config(source, options)
    bilm = bilm_skeleton(config, options)
    stored, vocabulary = _named_as_stacked(source.stored), None
    if config.n_tokens_vocab is None:
        where = f"{source.path}: {source.noun} '{CHARACTERS}'"
        stored[CHARACTERS] = rows_of_bytes(where, stored[CHARACTERS], _STORED_CHARACTERS)
        fill(bilm, BILM, stored, source.path, source.noun, source.num_bytes)
    else:
        fill(bilm, WORD_BILM, stored, source.path, source.noun, source.num_bytes)
        listed = find_list(words)
        if listed is None:
            raise ElmoError(
                f"{source.path}: reads whole words, but no {words.name} next to it says which words the rows of "
                f"'{EMBEDDING}' belong to; put the vocabulary of its training there"
            )
        vocabulary = _in_our_order(bilm.token_encoder, config.n_tokens_vocab, listed, READ)
    return bilm, vocabulary


def input_of(bilm: BiLM) -> str:
    """Return the published name of the biLM's input vectors, which shows people what kind of biLM it is."""
    return EMBEDDING if bilm.char_encoder is None else CHARACTERS


def format_of(config: BiLMConfig) -> list[Rename]:
    """Return the layout of a biLM with this configuration."""
    return WORD_BILM if config.char_cnn is None else BILM


def rows_of_bytes(where: str, stored: Stored, num_rows: int) -> Stored:
    """Return the character vectors cut to `num_rows`, and refuse a model that reads characters other than UTF-8 bytes.

    One additional row is allowed and left out: trainings whose options said 262 have it, but no word uses it.

    Args:
        where: The name of the tensor, for messages.
        stored: The character vectors as stored.
        num_rows: How many rows bytes and special marks have in this format.

    Raises:
        ElmoError: If there is any other number of rows.
    """
    if len(stored.shape) != 2 or stored.shape[0] not in (num_rows, num_rows + 1):
        raise ElmoError(
            f"{where}: has shape {stored.shape}, not the {num_rows} rows of a model that reads words as UTF-8 bytes; "
            "models that read other characters can't be used"
        )
    return Stored((num_rows, stored.shape[1]), lambda: stored.read()[:num_rows])


def read_softmax(source: Source, dim: int, words: Path) -> tuple[Softmax | None, Vocabulary | None]:
    """Read the softmax and its words. A softmax without a matrix of its own has that of the biLM's word vectors.

    The options call this `share_embedding_softmax`.

    Args:
        source: The tensors.
        dim: The width of the biLM's outputs.
        words: The word list, which may also have `.gz` appended.

    Returns:
        The softmax and its vocabulary, each of them None if it is not stored.
    """
    if not any(name.startswith("softmax/") for name in source.stored):
        return None, None
    if "softmax/W" not in source.stored and EMBEDDING in source.stored:
        source = source._replace(stored={**source.stored, "softmax/W": source.stored[EMBEDDING]})
    shape = source.stored["softmax/b"].shape if "softmax/b" in source.stored else ()
    if len(shape) != 1 or not 0 < shape[0] <= MOST_WORDS:
        raise ElmoError(f"{source.path}: {source.noun} 'softmax/b' is missing or is not a list of numbers")
    softmax = skeleton(lambda: Softmax(shape[0], dim))
    fill(softmax, SOFTMAX, source.stored, source.path, source.noun, source.num_bytes)
    listed = find_list(words)
    return softmax, None if listed is None else _in_our_order(softmax, softmax.num_words, listed, SCORED)


def _in_our_order(module: nn.Module, num_words: int, path: Path, use: str) -> Vocabulary:
    """Read a word list in any order, and move the special words to the front, as our vocabularies have them.

    The rows of all parameters of `module` move with their words. `use` says in messages what expects `num_words`.
    """
    words = [word for word in read_so_many(path, num_words, use) if word != NO_WORD]
    require_as_many(path, len(words), num_words, use)
    missing = next((word for word in SPECIAL_WORDS if word not in words), None)
    if missing is not None:
        raise ElmoError(f"{path}: {missing} is missing, but every bilm-tf vocabulary has it; is it the model's own?")
    special = [words.index(word) for word in SPECIAL_WORDS]
    if special != [0, 1, 2]:
        rows = special + [row for row in range(len(words)) if row not in special]
        words = [words[row] for row in rows]
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(parameter[rows])
    return Vocabulary.of(words, path)


def _config(source: Source, options: Path) -> BiLMConfig:
    """Read the options, and add what only the weights show: the number of directions, and of whole words."""
    stored, path, _, noun = source
    values = read_json(options)
    if isinstance(values, dict) and "char_cnn" not in values and CHARACTERS not in stored and EMBEDDING in stored:
        values = cast("dict[str, Any]", values)
        values.setdefault("n_tokens_vocab", (stored[EMBEDDING].shape or (0,))[0])
    else:
        values = read_options(options)
        if CHARACTERS not in stored:
            raise ElmoError(f"{path}: {noun} '{CHARACTERS}' is missing; is this a bilm weight file?")
    has_backward = any(name.startswith("RNN_1/") for name in stored)
    values.setdefault("bidirectional", has_backward)
    return bilm_config(values, str(options), ignore_unknown=True)


def read_options(path: Path) -> dict[str, Any]:
    """Read the published options of a character-based biLM. Only the presence of `char_cnn` is checked here."""
    values = read_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("char_cnn"), dict):
        raise ElmoError(f"{path}: key 'char_cnn' is missing; these are not the options of a character-based biLM")
    return cast("dict[str, Any]", values)


def _named_as_stacked(stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """Give a single LSTM layer, which bilm-tf does not wrap in a stack of cells, the name it would have in a stack."""
    return {
        re.sub(r"^(RNN_[01]/RNN)/LSTMCell/", r"\1/MultiRNNCell/Cell0/LSTMCell/", name): item
        for name, item in stored.items()
    }
