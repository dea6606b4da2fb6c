"""Reads ELMoForManyLangs models.

A model is a folder of `config.json`, `char.dic`, `word.dic`, `encoder.pkl` and `token_embedder.pkl`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, cast

import numpy as np

from elmo.config import PADDING, BiLMConfig
from elmo.errors import ElmoError, placing
from elmo.formats.allennlp import NOUN, highway_renames, infer_sizes, lstm_renames, require_dimensions
from elmo.formats.files import read_json, require_file
from elmo.formats.model import Model
from elmo.formats.renames import Numbers, Rename, TensorLayout
from elmo.formats.stored import (
    CHARACTER_ROWS,
    JOINT,
    WORD_ROWS,
    StoredBiLM,
    char_cnn_shapes,
    linear_shapes,
    lstm_shapes,
)
from elmo.formats.tensors import MOST_WORDS, WIDEST, Source, TensorInFile, read_weights, require_sizes
from elmo.schema import from_mapping, shown
from elmo.text.decoding import read_lines
from elmo.text.vocabulary import Lexicon

CONFIG, ENCODER, TOKENS = "config.json", "encoder.pkl", "token_embedder.pkl"
CHARACTERS, WORDS = "char.dic", "word.dic"

_CHARACTER_ROWS, _WORD_ROWS = "char_emb_layer.embedding.weight", "word_emb_layer.embedding.weight"
_ALONE = "\u3000"
"""The ideographic space (U+3000). It is stripped as white space, so that only the id is left of its line in a list."""

DEFAULT = {"cell_clip": 3.0, "proj_clip": 3.0, "activation": "relu", "max_characters_per_token": 50}
"""The settings that the tensors do not show, with the values of every published model.

They are used for folders without the settings file: `config_path` usually names a file on the publisher's machine.
"""

PUBLISHED_SETTINGS = "cnn_50_100_512_4096_sample.json"
"""The name of the settings file of every published model."""


def load_many_langs(folder: Path) -> Model:
    """Read the folder of a model. Its word and character lists become the model's `lexicon`.

    Raises:
        ElmoError: If a file is missing or damaged, if the files do not fit together, or if the token embedder or the
            encoder is not of the published kind.

    Warns:
        UserWarning: If the settings are not in the folder, and may be others than the published ones.
    """
    from elmo.formats.torch_file import read_state_dict  # here, as it imports all that unpacks

    tokens_path, encoder_path = folder / TOKENS, folder / ENCODER
    # One module of ours holds both files. The names that are published in them do not overlap.
    stored = {**read_state_dict(encoder_path), **read_state_dict(tokens_path)}
    settings_path, settings = _settings(folder)
    config = _config(tokens_path, stored, settings, settings_path)
    assert config.char_cnn is not None
    num_words, word_dim = require_dimensions(tokens_path, stored, _WORD_ROWS, 2) if _WORD_ROWS in stored else (0, 0)
    num_characters = require_dimensions(tokens_path, stored, _CHARACTER_ROWS, 2)[0]
    for noun, number, most in (("words", num_words, MOST_WORDS), ("characters", num_characters, WIDEST)):
        if number > most:
            raise ElmoError(f"{tokens_path}: {number} {noun} are beyond any real model")
    characters = _read_list(folder / CHARACTERS, num_characters)
    words = _read_list(folder / WORDS, num_words) if num_words else {}
    with placing(f"{folder / CHARACTERS} and {WORDS}"):
        lexicon = Lexicon(words, characters, config.char_cnn.max_characters_per_token)
    require_sizes(config, settings_path or tokens_path)
    # Row 0 is the mask's, so ids are higher by 1. Padding has row 261 as in all our biLMs (`Lexicon.row`), even if the
    # model has fewer characters.
    num_rows = max(num_characters, PADDING + 1) + 1
    char_cnn, joint = config.char_cnn, JOINT.removesuffix(".weight")
    shapes = {CHARACTER_ROWS: (num_rows, char_cnn.embedding.dim), **char_cnn_shapes(char_cnn)}
    shapes |= {WORD_ROWS: (num_words, word_dim)} if word_dim else {}
    shapes |= linear_shapes(joint, word_dim + char_cnn.num_filters, config.lstm.projection_dim) | lstm_shapes(config)
    format = [*_tokens(lexicon, num_characters, num_rows), *lstm_renames("")]
    size = tokens_path.stat().st_size + encoder_path.stat().st_size
    bilm = StoredBiLM(config, read_weights(shapes, format, Source(stored, folder, size, NOUN)))
    source = "from the tensors, with published clips" if settings_path is None else f"from {settings_path.name}"
    origin = f"ELMoForManyLangs: {ENCODER} and {TOKENS} of {len(characters)} characters and {len(words)} words"
    return Model(bilm, origin=f"{origin}, sizes {source}", lexicon=lexicon)


def _tokens(lexicon: Lexicon, num_stored: int, num_rows: int) -> list[Rename]:
    """Return the layout of the token encoder.

    The `num_stored` character vectors move to the rows among `num_rows` where `Lexicon.row` expects them.
    """
    rows = [lexicon.row(number) for number in range(num_stored)]

    def move(vectors: Numbers) -> Numbers:
        moved = np.zeros((num_rows, vectors.shape[1]), np.float32)
        moved[rows] = vectors
        return moved

    moved = TensorLayout(
        split=lambda vectors, _: [move(vectors)],
        join=lambda parts: parts[0][rows],
        shape=lambda shapes: (num_stored, shapes[0][1]),
    )
    return [
        Rename(_CHARACTER_ROWS, CHARACTER_ROWS, moved),
        Rename(_WORD_ROWS, WORD_ROWS),
        Rename("convolutions.{i}.weight", "char_encoder.convolutions.{i}.weight"),
        Rename("convolutions.{i}.bias", "char_encoder.convolutions.{i}.bias"),
        *highway_renames("highways._layers.{k}", "char_encoder.highways.{k}"),
        Rename("projection.weight", JOINT),
        Rename("projection.bias", "char_encoder.joint_projection.bias"),
    ]


def _settings(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """Read the settings file that `config.json` names, by its path below the folder or else by its base name in it."""
    outer = read_json(folder / CONFIG)
    named = cast("dict[str, Any]", outer).get("config_path") if isinstance(outer, dict) else None
    if not isinstance(named, str):
        raise ElmoError(f"{folder / CONFIG}: key 'config_path' is missing; is this a model of ELMoForManyLangs?")
    inside = PureWindowsPath(named)  # it splits at both kinds of slashes
    is_below = not inside.anchor and ".." not in inside.parts
    # The original opens the path from the folder, so that this comes first. Other paths are of the publisher's machine.
    below = [folder.joinpath(*inside.parts)] if is_below else []
    path = next(filter(os.path.isfile, [*below, folder / inside.name]), folder / CONFIG)
    if path == folder / CONFIG:
        if inside.name != PUBLISHED_SETTINGS:
            warnings.warn(
                f"{CONFIG}: the settings that config_path names, {shown(named)}, are not in the folder, so "
                "published ones are used (relu, clips of 3, 50 characters); if the training had others, add the file",
                stacklevel=2,
            )
        return None, {}
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise ElmoError(f"{path}: expected a mapping of keys")
    return path, cast("dict[str, Any]", settings)


def _config(path: Path, stored: Mapping[str, TensorInFile], settings: dict[str, Any], where: Path | None) -> BiLMConfig:
    """Take the sizes from the tensors, and other settings from the settings file or the published models."""
    tokens, encoder = _section(settings, "token_embedder", where), _section(settings, "encoder", where)
    for section, key, known in ((tokens, "token_embedder", "cnn"), (encoder, "encoder", "elmo")):
        name = section.get("name", known)
        if not isinstance(name, str) or name.lower() != known:
            raise ElmoError(f"{where}: {key} is {shown(name)}; only {known!r} can be read (docs/formats.md says why)")
    if "char_lstm.weight_ih_l0" in stored:
        raise ElmoError(f"{path}: its token embedder is 'lstm'; only 'cnn' can be read (docs/formats.md says why)")
    if _WORD_ROWS in stored and not {_CHARACTER_ROWS, "convolutions.0.weight"} & stored.keys():
        raise ElmoError(
            f"{path}: its token embedder has no characters (char_dim 0); only models that read characters can be read"
        )
    # Messages name the folder, because the tensors of the LSTM are in the other file.
    char_cnn, lstm = infer_sizes(path.parent, stored, "convolutions.{}.weight", "highways._layers.{}.weight", "")
    dim = require_dimensions(path, stored, _CHARACTER_ROWS, 2)[1]
    facts = DEFAULT | {key: value for key, value in {**tokens, **encoder}.items() if key in DEFAULT}
    values = {
        "char_cnn": {
            **char_cnn,
            "embedding": {"dim": dim},
            "activation": facts["activation"],
            "max_characters_per_token": facts["max_characters_per_token"],
        },
        "lstm": {
            **lstm,
            "cell_clip": facts["cell_clip"] or None,  # in their settings, 0 means no clipping; ours have null for that
            "proj_clip": facts["proj_clip"] or None,
            "use_skip_connections": True,
        },
    }
    return from_mapping(BiLMConfig, values, str(where or path))


def _section(settings: dict[str, Any], key: str, where: Path | None) -> dict[str, Any]:
    section = settings.get(key, {})
    if not isinstance(section, dict):
        raise ElmoError(f"{where}: {key}: expected a mapping of keys, found {type(section).__name__}")
    return cast("dict[str, Any]", section)


def _read_list(path: Path, num_rows: int) -> dict[str, int]:
    """Read a list with a line `token<TAB>id` for each token. A line with only an id is the ideographic space."""
    ids: dict[str, int] = {}
    require_file(path)
    for number, line in enumerate(read_lines(path), start=1):
        *before, last = line.strip().split("\t")
        if len(before) > 1 or not (last.isascii() and last.isdigit()) or len(last) > 9 or int(last) >= num_rows:
            raise ElmoError(
                f"{path}, line {number}: expected a token, a tab and an id below {num_rows}, found {shown(line)}"
            )
        if number > 2 * num_rows:
            raise ElmoError(
                f"{path}: has far more lines than the tensors have rows ({num_rows}); is it from another model?"
            )
        ids[before[0] if before else _ALONE] = int(last)
    return ids
