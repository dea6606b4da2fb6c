"""Reads and writes the published format of bilm-tf, AllenNLP and simple_elmo: HDF5 weights and `options.json`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmo.errors import ElmoError
from elmo.formats import renames
from elmo.formats.bilm_layout import (
    OPTIONS,
    SOFTMAX,
    WORDS,
    Source,
    format_of,
    input_of,
    read_bilm,
    read_softmax,
)
from elmo.formats.files import write_all, write_json
from elmo.formats.hdf5 import new_hdf5, open_hdf5
from elmo.formats.model import Model, require_bytes, without_softmax
from elmo.formats.token_vectors import read_token_vectors
from elmo.nn.softmax import AdaptiveSoftmax
from elmo.schema import to_mapping

WEIGHTS = "lm_weights.hdf5"
"""The name of the weight file that `save_bilm` writes."""


def load_bilm(weights: Path, options: Path, softmax: Path | None = None, token_vectors: Path | None = None) -> Model:
    """Read a model from the published files.

    Args:
        weights: The HDF5 weights. A biLM that reads whole words needs a `vocab.txt` or `vocab.txt.gz` next to them.
        options: The `options.json` of the model.
        softmax: A separate file with the softmax; by default, it is read from `weights` if it is there. Its words are
            read from a `vocab.txt` or `vocab.txt.gz` next to it, if there is one.
        token_vectors: A file of cached token vectors. Their words are read from the `vocab*.txt` (or `.gz`) next to
            it that has the right number of lines.

    Raises:
        ElmoError: If a file is missing or damaged, or if the files do not fit together.
    """
    with open_hdf5(weights) as stored:
        source = Source(stored, weights, weights.stat().st_size)
        bilm, own_words = read_bilm(source, options, weights.with_name(WORDS))
        dim = bilm.config.lstm.projection_dim
        scores, words = (None, None) if softmax else read_softmax(source, dim, weights.with_name(WORDS))
    origin = [f"bilm HDF5: {weights.name} holds '{input_of(bilm)}' and 'RNN_0', sizes from {options.name}"]
    if softmax is not None:
        with open_hdf5(softmax) as stored:
            source = Source(stored, softmax, softmax.stat().st_size)
            scores, words = read_softmax(source, dim, softmax.with_name(WORDS))
        if scores is None:
            raise ElmoError(f"{softmax}: data set 'softmax/W' is missing")
        origin.append(f"{softmax.name} holds 'softmax'")
    model = Model(bilm, scores, own_words or words)
    if token_vectors is not None:
        model.token_vectors = read_token_vectors(token_vectors, bilm)
        origin.append(
            f"{token_vectors.name} holds 'embedding', cached vectors of {len(model.token_vectors.words)} words"
        )
    model.origin = "; ".join(origin)
    return model


def save_bilm(model: Model, folder: Path) -> None:
    """Write `lm_weights.hdf5` and `options.json`, which the published toolkits read, and the vocabulary, if any.

    A full softmax goes into the weight file too, under `softmax/`, which those toolkits ignore. The format can't store
    an adaptive softmax (which is left out with its vocabulary), scalar mixes or a warm state; a `UserWarning` names
    each of these that is left out.

    Args:
        model: The model.
        folder: The folder, which is made if necessary.

    Raises:
        ElmoError: If the model has a lexicon.
    """
    require_bytes(model, "converted")
    if model.warm_state is not None:
        warnings.warn(f"{folder}: bilm HDF5 has no place for a warm state; it is left out", stacklevel=2)
    if isinstance(model.softmax, AdaptiveSoftmax):
        warnings.warn(f"{folder}: bilm HDF5 has no place for an adaptive softmax; it is left out", stacklevel=2)
        model = replace(without_softmax(model), mixes=model.mixes)
    if model.mixes:
        warnings.warn(f"{folder}: bilm HDF5 has no place for scalar mixes; they are left out", stacklevel=2)
    folder.mkdir(parents=True, exist_ok=True)
    writers: dict[Path, Callable[[Path], object]] = {
        folder / WEIGHTS: lambda path: _write_weights(model, path),
        folder / OPTIONS: lambda path: write_json(path, _options(model)),
    }
    if model.vocabulary is not None:
        writers[folder / WORDS] = model.vocabulary.write
    write_all(writers, optional=(folder / WORDS,))


def _write_weights(model: Model, path: Path) -> None:
    with new_hdf5(path) as add:
        for format, module in ((format_of(model.config), model.bilm), (SOFTMAX, model.softmax)):
            if module is not None:
                tensors = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
                for name, tensor in renames.rename_to_theirs(format, tensors):
                    add(name, data=tensor.float().numpy())


def _options(model: Model) -> dict[str, Any]:
    options = to_mapping(model.config)
    if model.softmax is not None:
        options["n_tokens_vocab"] = model.softmax.num_words
    return options
