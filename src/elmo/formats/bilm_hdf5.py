"""The HDF5 weights and `options.json` of bilm-tf, AllenNLP and simple_elmo."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from elmo.config import BiLMConfig, from_mapping, to_mapping
from elmo.errors import ElmoError
from elmo.formats import renames
from elmo.formats.files import read_json, write_all, write_json
from elmo.formats.model import Model, read_vocabulary
from elmo.formats.renames import CONVOLUTION, SAME, TRANSPOSED, TRANSPOSED_ROWS, ZERO_ROW_FIRST, Rename
from elmo.formats.skeleton import skeleton
from elmo.nn.adaptive import AdaptiveSoftmax
from elmo.nn.bilm import BiLM
from elmo.nn.softmax import Softmax

WEIGHTS, OPTIONS, VOCABULARY = "lm_weights.hdf5", "options.json", "vocab.txt"
"""Names of the files we write."""

_STORED_CHARACTERS = 261
_DAMAGE = (OSError, RuntimeError, KeyError, TypeError, UnicodeDecodeError)
"""What h5py raises, as it happens, for a file whose inside is broken."""

Datasets = dict[str, h5py.Dataset]


def _direction(group: str, stack: str) -> list[Rename]:
    cell = group + "/RNN/MultiRNNCell/Cell{l}/LSTMCell/"
    layer = stack + ".layers.{l}."
    return [
        Rename(cell + "W_0", (layer + "weight_ih", layer + "weight_hh"), TRANSPOSED_ROWS),
        Rename(cell + "B", layer + "bias", SAME),
        Rename(cell + "W_P_0", layer + "weight_hr", TRANSPOSED),
    ]


BILM = [
    Rename("char_embed", "char_encoder.embedding.weight", ZERO_ROW_FIRST),
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


def load_bilm(weights: Path, options: Path) -> Model:
    """Read a model from the published files; the softmax and a `vocab.txt` beside them where there are any."""
    with _open(weights) as datasets:
        config = _config(datasets, weights, options)
        bilm = skeleton(lambda: BiLM(config))
        _fill(bilm, BILM, datasets, weights)
        softmax = _softmax(datasets, weights, config.lstm.projection_dim)
    return Model(
        bilm,
        softmax,
        None if softmax is None else read_vocabulary(weights.parent / VOCABULARY, softmax.num_words),
        f"bilm HDF5: {weights.name} holds 'char_embed' and 'RNN_0', sizes from {options.name}",
    )


def save_bilm(model: Model, folder: Path) -> None:
    """Write `lm_weights.hdf5` and `options.json`, which the published toolkits read, and `vocab.txt` if there is one.

    The softmax goes into the same file, under `softmax/`, where those toolkits don't look. There is no place for an
    adaptive one: it is left out with its vocabulary, and a warning says so.
    """
    if isinstance(model.softmax, AdaptiveSoftmax):
        warnings.warn(f"{folder}: bilm HDF5 has no place for an adaptive softmax; it is left out", stacklevel=2)
        model = Model(model.bilm, origin=model.origin)
    folder.mkdir(parents=True, exist_ok=True)
    writers: dict[Path, Callable[[Path], object]] = {
        folder / WEIGHTS: lambda path: _write_weights(model, path),
        folder / OPTIONS: lambda path: write_json(path, _options(model)),
    }
    if model.vocabulary is not None:
        writers[folder / VOCABULARY] = model.vocabulary.write
    write_all(writers, optional=(folder / VOCABULARY,))


def _config(datasets: Datasets, weights: Path, options: Path) -> BiLMConfig:
    """The options, completed by what only the file tells: rows of characters, and whether there are two directions."""
    values = read_json(options)
    if not isinstance(values, dict) or not isinstance(values.get("char_cnn"), dict):
        raise ElmoError(f"{options}: key 'char_cnn' is missing; these are not the options of a character-based biLM")
    if "char_embed" not in datasets:
        raise ElmoError(f"{weights}: data set 'char_embed' is missing; is this a bilm weight file?")
    shape = datasets["char_embed"].shape
    if len(shape) != 2 or shape[0] < _STORED_CHARACTERS:
        raise ElmoError(f"{weights}: data set 'char_embed' has shape {shape}; expected {_STORED_CHARACTERS} rows")
    has_backward = any(name.startswith("RNN_1/") for name in datasets)
    found: dict[str, Any] = {"bidirectional": has_backward, **values}
    found["char_cnn"] = {**found["char_cnn"], "n_characters": shape[0] + 1}
    return from_mapping(BiLMConfig, found, str(options), ignore_unknown=True)


def _fill(module: torch.nn.Module, format: list[Rename], datasets: Datasets, path: Path) -> None:
    """Put a file's tensors into `module`, which was made without memory of its own."""
    shapes = {name: tensor.shape for name, tensor in module.state_dict().items()}
    extra = renames.superfluous(format, shapes, list(datasets))
    if extra:
        raise ElmoError(f"{path}: data set '{extra[0]}' is more than the options say; are they of another model?")

    def read(name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in datasets:
            raise ElmoError(f"{path}: data set '{name}' is missing")
        renames.require_shape(f"{path}: data set '{name}'", datasets[name].shape, shape)
        try:
            return torch.from_numpy(np.asarray(datasets[name], dtype=np.float32))
        except _DAMAGE as error:
            raise ElmoError(f"{path}: data set '{name}' can't be read ({error}); is the file complete?") from None

    module.load_state_dict(renames.read_tensors(format, shapes, read), assign=True)
    module.requires_grad_(True)


def _softmax(datasets: Datasets, path: Path, dim: int) -> Softmax | None:
    if not any(name.startswith("softmax/") for name in datasets):
        return None
    shape = datasets["softmax/b"].shape if "softmax/b" in datasets else ()
    if len(shape) != 1:
        raise ElmoError(f"{path}: data set 'softmax/b' is missing or no list of numbers")
    softmax = skeleton(lambda: Softmax(shape[0], dim))
    _fill(softmax, SOFTMAX, datasets, path)
    return softmax


@contextmanager
def _open(path: Path) -> Generator[Datasets]:
    """The data sets of an HDF5 file by name, to be read while it is open."""
    try:
        file = h5py.File(path, "r")
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except OSError as error:
        kind = "a truncated HDF5 file" if h5py.is_hdf5(path) else "not an HDF5 file"
        raise ElmoError(f"{path}: {kind} ({error})") from None
    with file:
        datasets: Datasets = {}

        def collect(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                datasets[name] = item

        try:
            file.visititems(collect)
        except _DAMAGE as error:
            raise ElmoError(f"{path}: a damaged HDF5 file ({error})") from None
        yield datasets


def _write_weights(model: Model, path: Path) -> None:
    with h5py.File(path, "w") as file:
        for format, module in ((BILM, model.bilm), (SOFTMAX, model.softmax)):
            if module is not None:
                tensors = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
                for name, tensor in renames.write_tensors(format, tensors):
                    file.create_dataset(name, data=tensor.float().numpy())


def _options(model: Model) -> dict[str, Any]:
    options = to_mapping(model.config)
    if model.softmax is not None:
        options["n_tokens_vocab"] = model.softmax.num_words
    return options
