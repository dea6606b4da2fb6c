"""Reads AllenNLP task models (`model.tar.gz`): the `Elmo` in them, with the scalar mixes that the task learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any, cast

from elmo.config import bilm_config
from elmo.errors import ElmoError
from elmo.formats.allennlp_layout import CHARACTERS, NOUN, encoder, infer_sizes, lstm, require_dimensions
from elmo.formats.bilm_layout import read_options, rows_of_bytes
from elmo.formats.files import read_json
from elmo.formats.model import Model
from elmo.formats.skeleton import bilm_skeleton
from elmo.formats.tensors import Stored, fill, require_few_mixes, require_weights
from elmo.formats.torch_file import read_state_dict
from elmo.nn.scalar_mix import ScalarMix
from elmo.text.reading import is_there

WEIGHTS, CONFIG = "weights.th", "config.json"

_ENCODER, _STACK = "_elmo_lstm._token_embedder.", "_elmo_lstm._elmo_lstm."
_CHARACTERS = _ENCODER + CHARACTERS

BILM = [*encoder(_ENCODER, "char_encoder."), *lstm(_STACK)]

PUBLISHED = {"cell_clip": 3.0, "proj_clip": 3.0, "use_skip_connections": True}
"""The settings that the tensors do not show, with the values of every biLM that AllenNLP published."""


def load_allennlp(folder: Path) -> Model:
    """Read the `Elmo` in an unpacked archive of a task model.

    The sizes come from the copy of the options in the archive (`fta/…options_file`) if there is one. Otherwise they
    come from the tensors, with the clips of the published models.

    Raises:
        ElmoError: If the model contains no ELMo or several, or if its files are damaged or do not fit together.
    """
    path = folder / WEIGHTS
    everything = read_state_dict(path)
    prefix = _find(path, everything)
    stored = {name.removeprefix(prefix): item for name, item in everything.items() if name.startswith(prefix)}
    options = next(iter(sorted(folder.glob("fta/*options_file"))), None)
    found = _infer(path, stored) if options is None else read_options(options)
    config = bilm_config(found, str(options or path), ignore_unknown=True)
    stored[_CHARACTERS] = rows_of_bytes(f"{path}: {NOUN} '{_CHARACTERS}'", stored[_CHARACTERS], 262)
    bilm = bilm_skeleton(config, options or path)
    fill(bilm, BILM, stored, path, NOUN, path.stat().st_size)
    layer_norm = _has_layer_norm(read_json(folder / CONFIG)) if is_there(folder / CONFIG) else False
    mixes = list(_mixes(path, stored, config.num_layers, layer_norm))
    sizes = "from the tensors, with published clips" if options is None else f"from {options.name}"
    origin = f"AllenNLP: {WEIGHTS} holds an Elmo under '{prefix or '.'}', {len(mixes)} scalar mixes, sizes {sizes}"
    return Model(bilm, origin=origin, mixes=mixes)


def _find(path: Path, stored: Mapping[str, Stored]) -> str:
    """Find the prefix of the tensor names of the only ELMo in a task model."""
    found = [name.removesuffix(_CHARACTERS) for name in stored if name.endswith(_CHARACTERS)]
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise ElmoError(f"{path}: expected one ELMo in this task model ('…{_CHARACTERS}'), found {names}")
    return found[0]


def _infer(path: Path, stored: Mapping[str, Stored]) -> dict[str, Any]:
    """Return the options that follow from the shapes of the tensors."""
    highway = _ENCODER + "_highways._layers.{}.weight"
    char_cnn, lstm = infer_sizes(path, stored, _ENCODER + "char_conv_{}.weight", highway, _STACK)
    dim = require_dimensions(path, stored, _CHARACTERS, 2)[1]
    return {"char_cnn": {**char_cnn, "embedding": {"dim": dim}}, "lstm": {**lstm, **PUBLISHED}}


def _mixes(path: Path, stored: Mapping[str, Stored], num_layers: int, layer_norm: bool) -> Iterator[ScalarMix]:
    for number in takewhile(lambda number: f"scalar_mix_{number}.gamma" in stored, count()):
        require_few_mixes(path, number + 1)
        names = [f"scalar_mix_{number}.scalar_parameters.{layer}" for layer in range(num_layers)]
        values: list[float] = []
        for name in (*names, f"scalar_mix_{number}.gamma"):
            if name not in stored or stored[name].shape not in ((), (1,)):
                raise ElmoError(f"{path}: {NOUN} '{name}' is missing or is not a single number")
            tensor = stored[name].read()
            require_weights(f"{path}: {NOUN} '{name}'", tensor)
            values.append(float(tensor))
        *scores, gamma = values
        yield ScalarMix(num_layers, layer_norm=layer_norm, initial_scores=scores, initial_gamma=gamma)


def _has_layer_norm(config: object) -> bool:
    """Return whether the embedder's settings, wherever they are in the task's config, ask for layer norm."""
    left = [config]
    while left:  # not recursive: an untrusted config may be nested deeper than Python's stack allows
        value = left.pop()
        if isinstance(value, list):
            left += cast("list[object]", value)
        elif isinstance(value, dict):
            values = cast("dict[str, object]", value)
            if "options_file" in values and values.get("do_layer_norm") is True:
                return True
            left += values.values()
    return False
