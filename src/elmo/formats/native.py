"""The native model folder: `config.json`, `model.safetensors` and the files that training adds to them. No pickle.

The softmax, the mixes, the warm state and the token vectors have files of their own, because most uses need only the
biLM. A folder can therefore end up with files of two models: a copy is cut short, or a process is killed between two
renames. So each of these files records a checksum of the biLM's weights that it belongs to, and is refused next to
others, or ignored if the model does without it. In the same way, the weights record a checksum of their configuration,
and the file whose rows are words, one of its vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from elmo.config import BiLMConfig, TextConfig, bilm_config
from elmo.errors import ElmoError
from elmo.formats.card import CARD, FACTS, description_writers, figure_writers, read_card, read_figures
from elmo.formats.files import (
    AnyArray,
    as_bf16,
    as_float32,
    checksum,
    checksum_of_weights,
    read_arrays,
    read_json,
    to_array,
    versions,
    write_all,
    write_arrays,
    write_json,
)
from elmo.formats.model import TEXT, Model, require_bytes, text_config
from elmo.formats.renames import Shape, require_shape
from elmo.formats.stored import (
    StateArrays,
    StoredBiLM,
    StoredMix,
    StoredMixes,
    StoredSoftmax,
    StoredState,
    Weights,
    bilm_shapes,
)
from elmo.formats.stored_types import StoredTypes, read_types
from elmo.formats.tensors import require_few_mixes, require_mix, require_sizes, require_weights
from elmo.formats.words import READ, SCORED, read_vocabulary
from elmo.schema import to_mapping

if TYPE_CHECKING:
    from elmo.nn.bilm import BiLM, BiLMState
    from elmo.nn.scalar_mix import ScalarMix
    from elmo.text.vocabulary import Vocabulary

CONFIG, WEIGHTS, SOFTMAX, MIXES, WARM, TYPES, VOCABULARY = (
    "config.json",
    "model.safetensors",
    "softmax.safetensors",
    "mixes.safetensors",
    "warm.safetensors",
    "types.safetensors",
    "vocabulary.txt",
)

_BILM, CONFIG_CHECKSUM, _VOCABULARY = "bilm", "config", "vocabulary"
"""Metadata keys of the checksums of what a file belongs to: the biLM, its configuration, its words."""

Storage = Literal["float32", "float16", "bf16"]
"""The type that weights are stored in. The half-size types keep fewer significant bits: 11 in float16, 8 in bf16."""

DIRECTIONS = ("forward", "backward")
"""The names of the directions in the tensor names of a warm state."""

FILES = (CONFIG, WEIGHTS, SOFTMAX, MIXES, WARM, TYPES, VOCABULARY, CARD, FACTS)
"""All the files that a model folder can contain."""


def is_native(path: Path) -> bool:
    """Return whether `path` is a native model folder."""
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def load_native(folder: Path, *, is_named: bool = True, with_softmax: bool = True, with_types: bool = True) -> Model:
    """Read a native model folder.

    Args:
        folder: The folder.
        is_named: Whether its name goes into the model's `origin`. Pass False for a temporary or cache folder.
        with_softmax: Whether to read the softmax and its words, if there are any.
        with_types: Whether to open the stored token vectors, if there are any.

    Raises:
        ElmoError: If a file is missing or damaged, or belongs to other weights. A warm state or token vectors of other
            weights are ignored instead, because the model is useful without them.
    """
    while True:
        before = versions(folder / name for name in FILES)
        try:
            return _load(folder, is_named=is_named, with_softmax=with_softmax, with_types=with_types)
        except ElmoError:
            # A training replaces one file after the other, which may have happened meanwhile.
            if versions(folder / name for name in FILES) == before:
                raise


def _load(folder: Path, *, is_named: bool, with_softmax: bool, with_types: bool) -> Model:
    config, text, checksum_of_config = read_model_config(folder / CONFIG)
    require_sizes(config, folder / CONFIG)
    arrays, metadata = read_arrays(folder / WEIGHTS)
    _require_same(folder / CONFIG, folder / WEIGHTS, metadata.get(CONFIG_CHECKSUM), checksum_of_config)
    bilm = StoredBiLM(config, _read_weights(folder / WEIGHTS, arrays, bilm_shapes(config)))
    softmax = vocabulary = None
    if with_softmax and os.path.lexists(folder / SOFTMAX):
        softmax, vocabulary = _read_softmax(folder, bilm)
    if config.n_tokens_vocab is not None:
        vocabulary = _read_words(folder / WEIGHTS, metadata, config.n_tokens_vocab, READ)
        if vocabulary is None:
            raise ElmoError(f"{folder}: {VOCABULARY} is missing, which lists the words that the model reads")
    # What belongs to the biLM but is not needed to use it.
    mixes = _read_mixes(folder / MIXES, bilm) if os.path.lexists(folder / MIXES) else StoredMixes([])
    name = f"{folder.absolute().name} holds " if is_named else ""
    origin = f"native: {name}{CONFIG} and {WEIGHTS}"
    model = Model(bilm, softmax, vocabulary, origin, mixes, text=text)
    model.vocabulary_file = folder / VOCABULARY if (folder / VOCABULARY).is_file() else None
    if os.path.lexists(folder / WARM):
        model.warm_state = _read_warm_state(folder / WARM, bilm)
    if with_types and os.path.lexists(folder / TYPES):
        types = read_types(folder / TYPES, config.lstm.projection_dim)
        model.types = types if types.bilm == bilm.checksum else None
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


def _read_softmax(folder: Path, bilm: StoredBiLM) -> tuple[StoredSoftmax, Vocabulary | None]:
    """Read a softmax and its words, if there is a list: a full one, or an adaptive one if the file has a head.

    The number of words and the cutoffs follow from the shapes.
    """
    path = folder / SOFTMAX
    arrays, metadata = read_arrays(path)
    _require_same_bilm(path, metadata, bilm)
    found = StoredSoftmax(bilm.config.lstm.projection_dim, arrays)
    if (shapes := found.shapes) is None:
        shape = arrays["head.weight"].shape
        raise ElmoError(f"{path}: 'head.weight' has shape {shape}, which fits no adaptive softmax")
    softmax = StoredSoftmax(found.dim, _read_weights(path, arrays, shapes))
    return softmax, _read_words(path, metadata, softmax.num_words, SCORED)


def _read_words(path: Path, metadata: Mapping[str, str], num_words: int, use: str) -> Vocabulary | None:
    """Read the words that the rows of a file belong to, or return None if there is no list of them."""
    vocabulary = read_vocabulary(path.with_name(VOCABULARY), num_words, use)
    if vocabulary is not None:
        _require_same(path.with_name(VOCABULARY), path, metadata.get(_VOCABULARY), _checksum_of_words(vocabulary))
    return vocabulary


def _checksum_of_words(vocabulary: Vocabulary) -> str:
    return checksum({}, {"words": vocabulary.words})


def _read_mixes(path: Path, bilm: StoredBiLM) -> StoredMixes:
    """Read M scalar mixes: `scores` (M, L+1), `gamma` (M,), and the flags `layer_norm` and `top_only` (M,)."""
    arrays, metadata = read_arrays(path)
    _require_same_bilm(path, metadata, bilm)
    num_mixes = len(arrays["gamma"]) if "gamma" in arrays and arrays["gamma"].ndim else 0
    require_few_mixes(path, num_mixes)
    for name, shape in (
        ("gamma", (num_mixes,)),
        ("layer_norm", (num_mixes,)),
        ("top_only", (num_mixes,)),
        ("scores", (num_mixes, bilm.config.num_layers)),
    ):
        _require(path, arrays, name, shape, require_mix)
    scores, gammas, norms, tops = (
        as_float32(arrays[name]).tolist() for name in ("scores", "gamma", "layer_norm", "top_only")
    )
    return StoredMixes(
        [
            StoredMix(row, gamma, bool(norm), bool(top))
            for row, gamma, norm, top in zip(scores, gammas, norms, tops, strict=True)
        ]
    )


def _mix_arrays(mixes: list[ScalarMix]) -> dict[str, AnyArray]:
    return {
        "scores": np.stack([to_array(mix.scores) for mix in mixes]),
        "gamma": np.stack([to_array(mix.gamma) for mix in mixes]),
        "layer_norm": np.array([mix.layer_norm for mix in mixes]),
        "top_only": np.array([mix.top_only for mix in mixes]),
    }


def _read_warm_state(path: Path, bilm: StoredBiLM) -> StoredState | None:
    """Read the warm state: `hidden` (L, P) and `cell` (L, H) for each direction.

    Return None if it belongs to other weights, such as those from before further training: the model is useful
    without it.
    """
    arrays, metadata = read_arrays(path)
    if not _is_of(metadata, bilm):
        return None
    lstm, names = bilm.config.lstm, DIRECTIONS[: 2 if bilm.config.bidirectional else 1]
    for name in names:
        _require(path, arrays, f"{name}.hidden", (lstm.n_layers, lstm.projection_dim))
        _require(path, arrays, f"{name}.cell", (lstm.n_layers, lstm.dim))
    _refuse_extra(path, arrays, [f"{name}.{part}" for name in names for part in StateArrays._fields])
    return StoredState(
        tuple(
            StateArrays(*(as_float32(arrays[f"{name}.{part}"])[:, None] for part in StateArrays._fields))
            for name in names
        )
    )


def _warm_arrays(state: tuple[StateArrays, ...]) -> dict[str, AnyArray]:
    return {
        f"{name}.{part}": getattr(direction, part)[:, 0]
        for name, direction in zip(DIRECTIONS, state, strict=False)
        for part in direction._fields
    }


def save_warm_state(state: BiLMState, folder: Path, bilm: BiLM) -> None:
    """Write a warm state into a model folder, replacing any that is there.

    Args:
        state: For each direction, a state of one row: `hidden` (L, 1, P) and `cell` (L, 1, H), L LSTM layers.
        folder: The model folder of `bilm`.
        bilm: The biLM that the state belongs to. The file records its checksum.
    """
    model = Model(bilm, warm_state=state)
    if (arrays := model.warm_arrays) is not None:
        metadata = {_BILM: checksum_of_weights(model.weights)}
        write_all({folder / WARM: lambda path: write_arrays(path, _warm_arrays(arrays), metadata)})


def save_types(types: StoredTypes, folder: Path) -> None:
    """Write token vectors into the folder of the model that they belong to, replacing any that are there."""
    write_all({folder / TYPES: types.write})


def _is_of(metadata: Mapping[str, str], bilm: StoredBiLM) -> bool:
    """Return whether a file was written for `bilm`. Files of earlier versions do not say, and are taken to be."""
    return _BILM not in metadata or metadata[_BILM] == bilm.checksum


def _require_same_bilm(path: Path, metadata: Mapping[str, str], bilm: StoredBiLM) -> None:
    """Refuse a file that was written for other weights."""
    _require_same(path, path.with_name(WEIGHTS), metadata.get(_BILM), bilm.checksum)


def _require_same(path: Path, other: Path, wanted: str | None, found: str) -> None:
    """Refuse `path` if `other` is of another model: an interrupted write can leave a mixture behind.

    Args:
        path: The file that is refused.
        other: The file that it does not belong to.
        wanted: The checksum that was recorded; None in files of earlier versions, which record none.
        found: The checksum of what there is.
    """
    if wanted not in (None, found):
        raise ElmoError(
            f"{path}: belongs to another model than {other.name} in the same folder, perhaps because writing it was "
            "interrupted; run the command that wrote the folder again, or copy the whole folder again"
        )


def save_native(
    model: Model,
    folder: str | Path,
    figures: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    with_card: bool = True,
    storage: Storage = "float32",
) -> None:
    """Write a native model folder. The files get their names only once all of them are complete.

    Args:
        model: The model; everything in it is written except `token_vectors`, and `types` if `storage` changes the
            weights.
        folder: The folder, which is made if necessary.
        figures: Facts about the training for a new card and for `training.json`. Without them, the model keeps its own
            card and figures.
        metadata: Keys for the head of a new card (see `model_card`).
        with_card: Whether the card is written.
        storage: The type that the weights of the biLM and the softmax are rounded to. Reading them gives float32
            again, of the rounded values.

    Raises:
        ElmoError: If the model has a lexicon, or if a weight is too large for `storage`.
    """
    require_bytes(model, "converted")
    folder = Path(folder)
    weights = {folder / WEIGHTS: _rounded(model.weights, storage, folder / WEIGHTS)}
    if (softmax := model.stored_softmax) is not None:
        weights[folder / SOFTMAX] = _rounded(softmax.weights, storage, folder / SOFTMAX)
    folder.mkdir(parents=True, exist_ok=True)
    config = to_mapping(model.config)
    own = {_BILM: checksum_of_weights(weights[folder / WEIGHTS])}  # ties the other files to these weights
    records = {folder / WEIGHTS: {CONFIG_CHECKSUM: checksum({}, config)}, folder / SOFTMAX: dict(own)}
    if (vocabulary := model.vocabulary) is not None:
        with_words = WEIGHTS if model.config.n_tokens_vocab is not None else SOFTMAX
        records[folder / with_words][_VOCABULARY] = _checksum_of_words(vocabulary)
    # `place` and `arrays` are default arguments, because the functions run after the loop has gone on.
    writers: dict[Path, Callable[[Path], object]] = {
        place: lambda path, place=place, arrays=arrays: write_arrays(path, arrays, records[place])
        for place, arrays in weights.items()
    }
    if model.num_mixes:
        writers[folder / MIXES] = lambda path: write_arrays(path, _mix_arrays(model.mixes), own)
    if (state := model.warm_arrays) is not None:
        writers[folder / WARM] = lambda path: write_arrays(path, _warm_arrays(state), own)
    # Unlike a warm state, they are the numbers of these weights alone.
    if (types := model.types) is not None and types.bilm == own[_BILM]:
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
    write_all(writers, optional=(folder / name for name in (SOFTMAX, MIXES, WARM, TYPES, VOCABULARY, FACTS)))


def _rounded(weights: Weights, storage: Storage, path: Path) -> dict[str, AnyArray]:
    """Return weights rounded to `storage`, and refuse numbers that it can't represent."""
    if storage == "float32":
        return weights
    rounded: dict[str, AnyArray] = {}
    for name, array in weights.items():
        exact = as_float32(array)
        with np.errstate(over="ignore"):
            rounded[name] = as_bf16(exact) if storage == "bf16" else exact.astype(np.float16)
        if not np.isfinite(as_float32(rounded[name])).all():
            raise ElmoError(f"{path}: tensor '{name}' has numbers too large for {storage}; store it as bf16 or float32")
    return rounded


def _read_weights(path: Path, arrays: Mapping[str, AnyArray], shapes: Mapping[str, Shape]) -> Weights:
    """Return the arrays of a file as the float32 weights of a module, whose tensors have these shapes."""
    weights = {name: as_float32(array) for name, array in arrays.items()}
    for name, shape in shapes.items():
        _require(path, weights, name, shape)
    _refuse_extra(path, weights, shapes)
    return weights


def _refuse_extra(path: Path, arrays: Mapping[str, AnyArray], wanted: Iterable[str]) -> None:
    """Refuse a file that contains tensors other than those in `wanted`."""
    extra = sorted(arrays.keys() - set(wanted))
    if extra:
        raise ElmoError(f"{path}: tensor '{extra[0]}' fits nothing in {CONFIG}; is the file from another model?")


def _require(
    path: Path,
    arrays: Mapping[str, AnyArray],
    name: str,
    shape: Shape,
    require_numbers: Callable[[str, NDArray[np.float32]], None] = require_weights,
) -> None:
    """Refuse a file that lacks a tensor of this name and shape, or whose numbers can't be weights."""
    if name not in arrays:
        raise ElmoError(f"{path}: tensor '{name}' is missing")
    require_shape(f"{path}: tensor '{name}'", arrays[name].shape, shape)
    require_numbers(f"{path}: tensor '{name}'", as_float32(arrays[name]))
