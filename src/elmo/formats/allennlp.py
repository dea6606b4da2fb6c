"""AllenNLP's ELMo: the layout of its modules, and reading task models that contain one (`model.tar.gz`).

ELMoForManyLangs has the same LSTMs and highways, so `elmo.formats.many_langs` uses this layout too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any, cast

from elmo.config import DIRECTIONS, FORGET_BIAS, bilm_config
from elmo.errors import ElmoError
from elmo.formats.bilm_hdf5 import read_options, rows_of_bytes
from elmo.formats.files import read_json
from elmo.formats.model import Model
from elmo.formats.published import published_models
from elmo.formats.renames import Numbers, Rename, Shape, TensorLayout, concatenate
from elmo.formats.stored import StoredBiLM, StoredMix, StoredMixes, bilm_shapes
from elmo.formats.tensors import Source, TensorInFile, read_weights, require_few_mixes, require_mix, require_sizes

WEIGHTS, CONFIG = "weights.th", "config.json"
ARCHIVE, BEST = "model.tar.gz", "best.th"
"""What a training of AllenNLP leaves in its folder: the archive, and before it is made only the best weights."""

CHARACTERS = "_char_embedding_weights"
"""The character vectors, including the row of the mask."""

NOUN = "tensor"
"""What error messages call an entry of the file."""

_ENCODER, _STACK = "_elmo_lstm._token_embedder.", "_elmo_lstm._elmo_lstm."
_CHARACTERS = _ENCODER + CHARACTERS

_FAMILY = "allennlp:"
"""How the names of AllenNLP's published models begin."""

PUBLISHED = {"cell_clip": 3.0, "proj_clip": 3.0, "use_skip_connections": True}
"""The settings that the tensors do not show, with the values of every biLM that AllenNLP published."""


def _gates(numbers: Numbers) -> list[Numbers]:
    """Cut the rows of a tensor into those of its four gates."""
    size = len(numbers) // 4
    return [numbers[gate * size : (gate + 1) * size] for gate in range(4)]


def _swap_gates(numbers: Numbers) -> Numbers:
    """Reorder gates between their order i, f, j, o (that of torch) and our order i, j, f, o (that of TensorFlow).

    The swap is its own inverse.
    """
    first, second, third, last = _gates(numbers)
    return concatenate([first, third, second, last])


def _split_bias(numbers: Numbers, _: Sequence[Shape]) -> list[Numbers]:
    """Convert a stored bias, which includes the constant of the forget gate that we add at run time."""
    i, f, j, o = _gates(numbers)
    return [concatenate([i, j, f - FORGET_BIAS, o])]


def _join_bias(parts: Sequence[Numbers]) -> Numbers:
    i, j, f, o = _gates(parts[0])
    return concatenate([i, f + FORGET_BIAS, j, o])


GATES = TensorLayout(
    split=lambda numbers, _: [_swap_gates(numbers)],
    join=lambda parts: _swap_gates(parts[0]),
    shape=lambda shapes: shapes[0],
)
BIAS = TensorLayout(split=_split_bias, join=_join_bias, shape=lambda shapes: shapes[0])
TRANSFORM_AND_GATE = TensorLayout(
    split=lambda numbers, shapes: [numbers[: shapes[0][0]], -numbers[shapes[0][0] :]],
    join=lambda parts: concatenate([parts[0], -parts[1]]),
    shape=lambda shapes: (shapes[0][0] + shapes[1][0], *shapes[0][1:]),
)
"""Their matrix holds a highway's transform above its gate. Their gate lets the input through; ours is its negative."""


def highway_renames(theirs: str, ours: str) -> list[Rename]:
    """Return the renames of a highway layer, with `{k}` as its number in both names."""
    return [
        Rename(f"{theirs}.{part}", (f"{ours}.transform.{part}", f"{ours}.gate.{part}"), TRANSFORM_AND_GATE)
        for part in ("weight", "bias")
    ]


def encoder_renames(theirs: str, ours: str) -> list[Rename]:
    """Return the renames of the char encoder, whose names begin with `theirs` in the file and `ours` in our module."""
    return [
        Rename(f"{theirs}{CHARACTERS}", f"{ours}embedding.weight"),
        Rename(f"{theirs}char_conv_{{i}}.weight", f"{ours}convolutions.{{i}}.weight"),
        Rename(f"{theirs}char_conv_{{i}}.bias", f"{ours}convolutions.{{i}}.bias"),
        *highway_renames(f"{theirs}_highways._layers.{{k}}", f"{ours}highways.{{k}}"),
        Rename(f"{theirs}_projection.weight", f"{ours}projection.weight"),
        Rename(f"{theirs}_projection.bias", f"{ours}projection.bias"),
    ]


def lstm_renames(prefix: str, our_layer: str = "{direction}_lstm.layers.{{l}}") -> list[Rename]:
    """Return the renames of the LSTM layers of both directions.

    Args:
        prefix: What precedes `forward_layer_0` in the file's names.
        our_layer: The name of a layer in our module, with `{direction}` and the doubled braces of `{{l}}`.
    """
    renames: list[Rename] = []
    for direction in DIRECTIONS:
        theirs, ours = f"{prefix}{direction}_layer_{{l}}", our_layer.format(direction=direction)
        renames += [
            Rename(f"{theirs}.input_linearity.weight", f"{ours}.weight_ih", GATES),
            Rename(f"{theirs}.state_linearity.weight", f"{ours}.weight_hh", GATES),
            Rename(f"{theirs}.state_linearity.bias", f"{ours}.bias", BIAS),
            Rename(f"{theirs}.state_projection.weight", f"{ours}.weight_hr"),
        ]
    return renames


BILM = [*encoder_renames(_ENCODER, "char_encoder."), *lstm_renames(_STACK)]


def load_allennlp(folder: Path) -> Model:
    """Read the `Elmo` in an unpacked archive of a task model.

    The sizes come from the copy of the options in the archive (`fta/…options_file`) if there is one. Otherwise they
    come from the tensors, with the clips of the published models.

    Raises:
        ElmoError: If the model contains no ELMo or several, or if its files are damaged or do not fit together.

    Warns:
        UserWarning: If the options are not in the archive, and may be others than the published ones.
    """
    from elmo.formats.torch_file import read_state_dict  # here, as it imports all that unpacks

    path = folder / WEIGHTS
    everything = read_state_dict(path)
    prefix = _find(path, everything)
    stored = {name.removeprefix(prefix): item for name, item in everything.items() if name.startswith(prefix)}
    # AllenNLP copies files that the task's settings name into the archive (fta: "files to archive").
    options = next(iter(sorted(folder.glob("fta/*options_file"))), None)
    task = read_json(folder / CONFIG) if os.path.lexists(folder / CONFIG) else None
    found = _infer(path, stored) if options is None else read_options(options)
    config = bilm_config(found, str(options or path), ignore_unknown=True)
    # 262 rows, because AllenNLP adds the mask's row of zeros when it loads published weights, and saves it too.
    stored[_CHARACTERS] = rows_of_bytes(f"{path}: {NOUN} '{_CHARACTERS}'", stored[_CHARACTERS], 262)
    require_sizes(config, options or path)
    require_projection(path, stored, _STACK)
    weights = read_weights(bilm_shapes(config), BILM, Source(stored, path, path.stat().st_size, NOUN))
    mixes = list(_mixes(path, stored, config.num_layers, has_layer_norm(task)))
    if options is None and not _has_published_options(task):
        warnings.warn(
            f"{WEIGHTS}: the options of its ELMo are not in the folder, so published ones are used (relu, clips of 3, "
            "residual connections, 50 characters); if the training had others, add the file as fta/options_file",
            stacklevel=2,
        )
    sizes = "from the tensors, with published clips" if options is None else f"from {options.name}"
    origin = f"AllenNLP: {WEIGHTS} holds an Elmo under '{prefix or '.'}', {len(mixes)} scalar mixes, sizes {sizes}"
    return Model(StoredBiLM(config, weights), origin=origin, mixes=StoredMixes(mixes))


def refuse_training_folder(folder: Path) -> None:
    """Refuse a folder in which AllenNLP trained a task model, and say which of its files can be read.

    Its `config.json` describes the task. Without this, it would be taken for that of a native folder.
    """
    values = read_json(folder / CONFIG)
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        return
    advice = f"it has neither {ARCHIVE} nor {BEST}, which hold the weights; get one of them"
    if (folder / ARCHIVE).exists():
        advice = f"load its {ARCHIVE} instead"
    elif (folder / BEST).exists():
        advice = f"copy its {BEST} to {WEIGHTS} in the same folder, and load the folder again"
    raise ElmoError(f"{folder}: is a training folder of AllenNLP; {advice}")


def _find(path: Path, stored: Mapping[str, TensorInFile]) -> str:
    """Find the prefix of the tensor names of the only ELMo in a task model."""
    # Task models put their embedders at different places, but the names inside an Elmo are always the same.
    found = [name.removesuffix(_CHARACTERS) for name in stored if name.endswith(_CHARACTERS)]
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise ElmoError(f"{path}: expected one ELMo in this task model ('…{_CHARACTERS}'), found {names}")
    return found[0]


def _infer(path: Path, stored: Mapping[str, TensorInFile]) -> dict[str, Any]:
    """Return the options that follow from the shapes of the tensors."""
    highway = _ENCODER + "_highways._layers.{}.weight"
    char_cnn, lstm = infer_sizes(path, stored, _ENCODER + "char_conv_{}.weight", highway, _STACK)
    dim = require_dimensions(path, stored, _CHARACTERS, 2)[1]
    return {"char_cnn": {**char_cnn, "embedding": {"dim": dim}}, "lstm": {**lstm, **PUBLISHED}}


def _has_published_options(task: object) -> bool:
    """Return whether the settings of a task name options of AllenNLP's published models, going by the file's name.

    The addresses themselves have changed over the years.
    """
    named = [settings["options_file"] for settings in _embedders(task)]
    published = [model.files[0] for name, model in published_models().items() if name.startswith(_FAMILY)]
    names = {address.rpartition("/")[2] for address in published}
    return bool(named) and all(isinstance(each, str) and each.rpartition("/")[2] in names for each in named)


def _mixes(path: Path, stored: Mapping[str, TensorInFile], num_layers: int, layer_norm: bool) -> Iterator[StoredMix]:
    for number in takewhile(lambda number: f"scalar_mix_{number}.gamma" in stored, count()):
        require_few_mixes(path, number + 1)
        names = [f"scalar_mix_{number}.scalar_parameters.{layer}" for layer in range(num_layers)]
        values: list[float] = []
        for name in (*names, f"scalar_mix_{number}.gamma"):
            if name not in stored or stored[name].shape not in ((), (1,)):
                raise ElmoError(f"{path}: {NOUN} '{name}' is missing or is not a single number")
            value = stored[name].read()
            require_mix(f"{path}: {NOUN} '{name}'", value)
            values.append(value.item())
        *scores, gamma = values
        yield StoredMix(scores, gamma, layer_norm=layer_norm)


def has_layer_norm(config: object) -> bool:
    """Return whether an AllenNLP task model normalizes ELMo's layers before it mixes them.

    Args:
        config: The parsed `config.json` of the archive.
    """
    # Jsonnet gives environment variables as strings, and AllenNLP takes "true" for true.
    return any(settings.get("do_layer_norm") in (True, "true") for settings in _embedders(config))


def _embedders(config: object) -> Iterator[dict[str, object]]:
    """Yield the settings of ELMo embedders, which may be anywhere in the parsed `config.json` of an archive."""
    left = [config]
    # A list of what is left instead of recursion: an untrusted config may be nested deeper than Python's stack allows.
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += cast("list[object]", value)
        elif isinstance(value, dict):
            values = cast("dict[str, object]", value)
            if "options_file" in values:
                yield values
            left += values.values()


def require_dimensions(path: Path, stored: Mapping[str, TensorInFile], name: str, dimensions: int) -> tuple[int, ...]:
    """Return the shape of a tensor of the file `path`, and refuse one that is missing or has other dimensions."""
    if name not in stored:
        raise ElmoError(f"{path}: {NOUN} '{name}' is missing")
    shape = stored[name].shape
    if len(shape) != dimensions:
        raise ElmoError(f"{path}: {NOUN} '{name}' has shape {shape}, but {dimensions} dimensions are expected")
    return shape


def require_projection(path: Path, stored: Mapping[str, TensorInFile], stack: str) -> tuple[int, ...]:
    """Return the shape (P, H) of the first layer's projection, and refuse outputs that are not narrower than cells.

    The cells of AllenNLP and ELMoForManyLangs are projected whatever their sizes. Those of bilm-tf, and so ours, are
    only projected to something narrower.

    Args:
        path: The file, or the folder of the files, for messages.
        stored: The tensors by their names in the file.
        stack: What precedes `forward_layer_0` in the names of the LSTM.
    """
    name = f"{stack}forward_layer_0.state_projection.weight"
    shape = require_dimensions(path, stored, name, 2)
    if shape[0] >= shape[1]:
        raise ElmoError(
            f"{path}: {NOUN} '{name}' has shape {shape}, but only a projection to fewer dimensions can be read; train "
            "the model with a projection_dim that is smaller than its dim"
        )
    return shape


def infer_sizes(
    path: Path, stored: Mapping[str, TensorInFile], convolution: str, highway: str, stack: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Infer the sizes of a model from the shapes of its tensors.

    Args:
        path: The file, or the folder of the files, for messages.
        stored: The tensors by their names in the file.
        convolution: The name of a convolution's weight, with `{}` for its number.
        highway: The name of a highway layer's weight, with `{}` for its number.
        stack: What precedes `forward_layer_0` in the names of the LSTM.

    Returns:
        The keys of `char_cnn` and of `lstm` that the shapes determine.
    """

    def num_stored(template: str) -> int:
        return sum(1 for _ in takewhile(lambda i: template.format(i) in stored, count()))

    num_kernels = max(1, num_stored(convolution))  # every model has one, so that a first one that is missing is named
    kernels = [require_dimensions(path, stored, convolution.format(i), 3) for i in range(num_kernels)]
    projection = require_projection(path, stored, stack)
    return (
        {"filters": [[width, num_filters] for num_filters, _, width in kernels], "n_highway": num_stored(highway)},
        {
            "dim": projection[1],
            "projection_dim": projection[0],
            "n_layers": num_stored(stack + "forward_layer_{}.state_projection.weight"),
        },
    )
