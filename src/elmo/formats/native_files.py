"""The files of a native model folder: their names, what each must hold, and which biLM it belongs to.

The softmax, the mixes, the warm state and the token vectors have files of their own, because most uses need only the
biLM. A folder can therefore end up with files of two models: a copy is cut short, or a process is killed between two
renames. So each of these files records a checksum of the biLM's weights that it belongs to, and is refused next to
others, or ignored if the model does without it. In the same way, the weights record a checksum of their configuration,
and the file whose rows are words, one of its vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmo.config import DIRECTIONS
from elmo.errors import ElmoError
from elmo.formats.card import CARD, FACTS
from elmo.formats.renames import Shape, require_shape
from elmo.formats.safetensors import AnyArray, as_float32, checksum, map_arrays, read_arrays, to_array
from elmo.formats.stored import (
    StateArrays,
    States,
    StoredBiLM,
    StoredMix,
    StoredMixes,
    StoredSoftmax,
    StoredState,
    Weights,
)
from elmo.formats.tensors import require_few_mixes, require_mix, require_weights
from elmo.formats.words import SCORED, read_vocabulary

if TYPE_CHECKING:
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

BILM_CHECKSUM, CONFIG_CHECKSUM, WORDS_CHECKSUM = "bilm", "config", "vocabulary"
"""Metadata keys of the checksums of what a file belongs to: the biLM, its configuration, its words."""

FILES = (CONFIG, WEIGHTS, SOFTMAX, MIXES, WARM, TYPES, VOCABULARY, CARD, FACTS)
"""All the files that a model folder can contain."""


def read_softmax_file(folder: Path, bilm: StoredBiLM) -> tuple[StoredSoftmax, Vocabulary | None]:
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
    softmax = StoredSoftmax(found.dim, checked_weights(path, arrays, shapes))
    return softmax, read_listed_words(path, metadata, softmax.num_words, SCORED)


def read_listed_words(path: Path, metadata: Mapping[str, str], num_words: int, use: str) -> Vocabulary | None:
    """Read the words that the rows of a file belong to, or return None if there is no list of them."""
    vocabulary = read_vocabulary(path.with_name(VOCABULARY), num_words, use)
    if vocabulary is not None:
        require_same_model(
            path.with_name(VOCABULARY), path, metadata.get(WORDS_CHECKSUM), checksum_of_words(vocabulary)
        )
    return vocabulary


def checksum_of_words(vocabulary: Vocabulary) -> str:
    """Return the checksum by which a file says which words its rows belong to."""
    return checksum({}, {"words": vocabulary.words})


def read_mixes_file(path: Path, bilm: StoredBiLM) -> StoredMixes:
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


def arrays_of_mixes(mixes: list[ScalarMix]) -> dict[str, AnyArray]:
    """Return the arrays that `read_mixes_file` reads."""
    return {
        "scores": np.stack([to_array(mix.scores) for mix in mixes]),
        "gamma": np.stack([to_array(mix.gamma) for mix in mixes]),
        "layer_norm": np.array([mix.layer_norm for mix in mixes]),
        "top_only": np.array([mix.top_only for mix in mixes]),
    }


def read_warm_file(path: Path, bilm: StoredBiLM) -> StoredState | None:
    """Read the warm state: `hidden` (L, P) and `cell` (L, H) for each direction.

    Return None if it belongs to other weights, such as those from before further training: the model is useful
    without it.
    """
    arrays, metadata = read_arrays(path)
    if not _is_of(metadata, bilm):
        return None
    lstm, names = bilm.config.lstm, bilm.config.directions
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


def arrays_of_state(state: States) -> dict[str, AnyArray]:
    """Return the arrays that `read_warm_file` reads, for a state of one row in each direction."""
    return {
        f"{name}.{part}": getattr(direction, part)[:, 0]
        for name, direction in zip(DIRECTIONS, state, strict=False)
        for part in direction._fields
    }


def files_that_fit(folder: Path, bilm: str) -> list[str]:
    """Return the names of a folder's optional files, except its mixes, that belong to a biLM.

    A damaged file belongs to no biLM.

    Args:
        folder: A folder, which need not hold a model.
        bilm: The checksum of the biLM's weights.
    """
    found: list[str] = []
    for name in (SOFTMAX, WARM, TYPES):
        with suppress(ElmoError):
            if (folder / name).is_file() and map_arrays(folder / name)[1].get(BILM_CHECKSUM) == bilm:
                found.append(name)
    return [*found, VOCABULARY] if SOFTMAX in found else found


def _is_of(metadata: Mapping[str, str], bilm: StoredBiLM) -> bool:
    """Return whether a file was written for `bilm`. Files of earlier versions do not say, and are taken to be."""
    return BILM_CHECKSUM not in metadata or metadata[BILM_CHECKSUM] == bilm.checksum


def _require_same_bilm(path: Path, metadata: Mapping[str, str], bilm: StoredBiLM) -> None:
    """Refuse a file that was written for other weights."""
    require_same_model(path, path.with_name(WEIGHTS), metadata.get(BILM_CHECKSUM), bilm.checksum)


def require_same_model(path: Path, other: Path, wanted: str | None, found: str) -> None:
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


def checked_weights(path: Path, arrays: Mapping[str, AnyArray], shapes: Mapping[str, Shape]) -> Weights:
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
