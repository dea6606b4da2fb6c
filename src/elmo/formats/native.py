"""The native model folder, read and written: `config.json`, `model.safetensors` and what training adds. No pickle."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np

from elmo.config import BiLMConfig, TextConfig, bilm_config
from elmo.errors import ElmoError
from elmo.formats.card import CARD, FACTS, description_writers, figure_writers, read_card, read_figures
from elmo.formats.files import read_json, versions, write_all, write_json
from elmo.formats.model import TEXT, Model, refuse_lexicon, text_config
from elmo.formats.native_files import (
    BILM_CHECKSUM,
    CONFIG,
    CONFIG_CHECKSUM,
    FILES,
    MIXES,
    SOFTMAX,
    TYPES,
    VOCABULARY,
    WARM,
    WEIGHTS,
    WORDS_CHECKSUM,
    arrays_of_mixes,
    arrays_of_state,
    checked_weights,
    checksum_of_words,
    files_that_fit,
    read_listed_words,
    read_mixes_file,
    read_softmax_file,
    read_warm_file,
    require_same_model,
)
from elmo.formats.safetensors import (
    AnyArray,
    as_bf16,
    as_float32,
    checksum,
    checksum_of_weights,
    read_arrays,
    write_arrays,
)
from elmo.formats.stored import StoredBiLM, StoredMixes, Weights, bilm_shapes
from elmo.formats.stored_types import StoredTypes, read_types
from elmo.formats.tensors import require_sizes
from elmo.formats.words import READ
from elmo.schema import require_choice, to_mapping

if TYPE_CHECKING:
    from elmo.nn.bilm import BiLM, BiLMState

Storage = Literal["float32", "float16", "bf16"]
"""The type that weights are stored in. The half-size types keep fewer significant bits: 11 in float16, 8 in bf16."""

STORAGES: tuple[str, ...] = get_args(Storage)


def is_native(path: Path) -> bool:
    """Return whether `path` is a native model folder."""
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def load_native(
    folder: Path,
    *,
    is_named: bool = True,
    with_softmax: bool = True,
    with_types: bool = True,
    types_in_memory: bool = False,
) -> Model:
    """Read a native model folder.

    Args:
        folder: The folder.
        is_named: Whether its name goes into the model's `origin`. Pass False for a temporary or cache folder.
        with_softmax: Whether to read the softmax and its words, if there are any.
        with_types: Whether to open the stored token vectors, if there are any.
        types_in_memory: Whether to read them, instead of mapping their file. Pass True for a temporary folder.

    Raises:
        ElmoError: If a file is missing or damaged, or belongs to other weights. A warm state or token vectors of other
            weights are ignored instead, because the model is useful without them.
    """
    while True:
        before = versions(folder / name for name in FILES)
        try:
            return _load(folder, is_named, with_softmax, with_types, types_in_memory)
        except ElmoError:
            # A training replaces one file after the other, which may have happened meanwhile.
            if versions(folder / name for name in FILES) == before:
                raise


def _load(folder: Path, is_named: bool, with_softmax: bool, with_types: bool, types_in_memory: bool) -> Model:
    config, text, checksum_of_config = read_model_config(folder / CONFIG)
    require_sizes(config, folder / CONFIG)
    arrays, metadata = read_arrays(folder / WEIGHTS)
    require_same_model(folder / CONFIG, folder / WEIGHTS, metadata.get(CONFIG_CHECKSUM), checksum_of_config)
    bilm = StoredBiLM(config, checked_weights(folder / WEIGHTS, arrays, bilm_shapes(config)))
    softmax = vocabulary = None
    if with_softmax and os.path.lexists(folder / SOFTMAX):
        softmax, vocabulary = read_softmax_file(folder, bilm)
    if config.n_tokens_vocab is not None:
        vocabulary = read_listed_words(folder / WEIGHTS, metadata, config.n_tokens_vocab, READ)
        if vocabulary is None:
            raise ElmoError(f"{folder}: {VOCABULARY} is missing, which lists the words that the model reads")
    # What belongs to the biLM but is not needed to use it.
    mixes = read_mixes_file(folder / MIXES, bilm) if os.path.lexists(folder / MIXES) else StoredMixes([])
    name = f"{folder.absolute().name} holds " if is_named else ""
    origin = f"native: {name}{CONFIG} and {WEIGHTS}"
    model = Model(bilm, softmax, vocabulary, origin, mixes, text=text)
    model.vocabulary_file = folder / VOCABULARY if (folder / VOCABULARY).is_file() else None
    if os.path.lexists(folder / WARM):
        model.warm_state = read_warm_file(folder / WARM, bilm)
    if with_types and os.path.lexists(folder / TYPES):
        width = config.lstm.projection_dim
        model.types = read_types(folder / TYPES, width, bilm.checksum, in_memory=types_in_memory)
    model.figures = read_figures(folder)
    if (folder / CARD).exists():
        model.card = read_card(folder / CARD)
    return model


def read_model_config(path: Path) -> tuple[BiLMConfig, TextConfig | None, str]:
    """Read the sizes of the biLM with their checksum, and how its text was cut, which earlier versions do not say."""
    values = read_json(path)
    text = None
    if isinstance(values, dict):
        known = cast("dict[str, object]", values)
        if {"task", "recipe"} <= known.keys():
            bilm = path.parent / "bilm"  # as `elmo.tasks.run_folder` names it
            where = f"; its biLM is {bilm}" if bilm.is_dir() else ""
            raise ElmoError(f"{path.parent}: is the run folder of a task, not a biLM{where}")
        if TEXT in known:
            text = text_config(known[TEXT], path)
            values = {key: value for key, value in known.items() if key != TEXT}
    # The values as they were written: a later version may add keys, and fills them in by their defaults.
    return bilm_config(values, str(path)), text, checksum({}, cast("dict[str, object]", values))


def save_warm_state(state: BiLMState, folder: Path, bilm: BiLM) -> None:
    """Write a warm state into a model folder, replacing any that is there.

    Args:
        state: For each direction, a state of one row: `hidden` (L, 1, P) and `cell` (L, 1, H), L LSTM layers.
        folder: The model folder of `bilm`.
        bilm: The biLM that the state belongs to. The file records its checksum.
    """
    model = Model(bilm, warm_state=state)
    if (arrays := model.warm_arrays) is not None:
        metadata = {BILM_CHECKSUM: checksum_of_weights(model.weights)}
        write_all({folder / WARM: lambda path: write_arrays(path, arrays_of_state(arrays), metadata)})


def save_types(types: StoredTypes, folder: Path) -> None:
    """Write token vectors into the folder of the model that they belong to, replacing any that are there."""
    write_all({folder / TYPES: types.write})


def save_native(
    model: Model,
    folder: str | Path,
    figures: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    with_card: bool = True,
    keep_fitting: bool = False,
    storage: Storage = "float32",
) -> None:
    """Write a native model folder. The files get their names only once all of them are complete.

    Args:
        model: The model; everything in it is written except `token_vectors`, and `types` that do not belong to the
            weights as they are stored.
        folder: The folder, which is made if necessary.
        figures: Facts about the training for a new card and for `training.json`. Without them, the model keeps its own
            card and figures.
        metadata: Keys for the head of a new card (see `model_card`).
        with_card: Whether the card is written.
        keep_fitting: Whether a softmax, a warm state and token vectors stay in the folder if they belong to the same
            weights, although the model is without them.
        storage: The type that the weights of the biLM and the softmax are rounded to. Reading them gives float32
            again, of the rounded values.

    Raises:
        ElmoError: If the model has a lexicon, or a figure is not a string; or if there is no such `storage`, or it is
            not float32 and can't represent a weight.
    """
    refuse_lexicon(model, "converted")
    require_choice("`storage`", storage, STORAGES)
    folder = Path(folder)
    weights = {folder / WEIGHTS: _rounded(model.weights, storage, folder / WEIGHTS)}
    if (softmax := model.stored_softmax) is not None:
        weights[folder / SOFTMAX] = _rounded(softmax.weights, storage, folder / SOFTMAX)
    config = to_mapping(model.config)
    own = {BILM_CHECKSUM: checksum_of_weights(weights[folder / WEIGHTS])}  # ties the other files to these weights
    records = {folder / WEIGHTS: {CONFIG_CHECKSUM: checksum({}, config)}, folder / SOFTMAX: dict(own)}
    if (vocabulary := model.vocabulary) is not None:
        with_words = WEIGHTS if model.config.n_tokens_vocab is not None else SOFTMAX
        records[folder / with_words][WORDS_CHECKSUM] = checksum_of_words(vocabulary)
    writers: dict[Path, Callable[[Path], object]] = {
        place: partial(write_arrays, arrays=arrays, metadata=records[place]) for place, arrays in weights.items()
    }
    if model.num_mixes:
        writers[folder / MIXES] = partial(write_arrays, arrays=arrays_of_mixes(model.mixes), metadata=own)
    if (state := model.warm_arrays) is not None:
        writers[folder / WARM] = partial(write_arrays, arrays=arrays_of_state(state), metadata=own)
    kept = files_that_fit(folder, own[BILM_CHECKSUM]) if keep_fitting else []
    # Unlike a warm state, token vectors are exact only for these weights. They may be mapped from the very file that
    # would be written, which Windows does not replace.
    if (types := model.types) is not None and types.bilm == own[BILM_CHECKSUM]:
        if types.is_in(folder / TYPES):
            kept.append(TYPES)
        else:
            writers[folder / TYPES] = types.write
    if vocabulary is not None:
        writers[folder / VOCABULARY] = vocabulary.write
    # Files get their names in this order. The configuration comes after all that it describes, so that an interrupted
    # write of a new folder leaves one that is not taken for a model.
    text = {} if model.text is None else {TEXT: to_mapping(model.text)}
    writers[folder / CONFIG] = lambda path: write_json(path, config | text)
    writers |= (
        description_writers(model, folder, figures or {}, metadata)
        if with_card
        else figure_writers(folder, model.figures if figures is None else figures)
    )
    folder.mkdir(parents=True, exist_ok=True)
    removed = {SOFTMAX, MIXES, WARM, TYPES, VOCABULARY, FACTS}.difference(kept)
    write_all(writers, optional=(folder / name for name in sorted(removed)))


def _rounded(weights: Weights, storage: Storage, path: Path) -> dict[str, AnyArray]:
    """Return weights rounded to `storage`, and refuse numbers that it can't represent."""
    if storage == "float32":  # modules of other types are in memory at times
        return {name: as_float32(array) for name, array in weights.items()}
    rounded: dict[str, AnyArray] = {}
    for name, array in weights.items():
        exact = as_float32(array)
        if not np.isfinite(exact).all():  # bf16 would have 0 for the NaN that GPUs compute
            raise ElmoError(f"{path}: tensor '{name}' has numbers that are not finite; train the model again")
        with np.errstate(over="ignore"):
            rounded[name] = as_bf16(exact) if storage == "bf16" else exact.astype(np.float16)
        if not np.isfinite(as_float32(rounded[name])).all():
            raise ElmoError(f"{path}: tensor '{name}' has numbers too large for {storage}; store it as bf16 or float32")
    return rounded
