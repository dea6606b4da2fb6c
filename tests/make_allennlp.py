"""Writes task models as AllenNLP archives them: `model.tar.gz` of `config.json`, `weights.th` and a vocabulary.

The `Elmo` inside is laid out like AllenNLP's modules: the gates are i, f, j, o with the forget gate's 1 in the bias,
and each highway has one matrix, whose gate lets the input through. This does not need `elmo`. It can be called as a
script: `python tests/make_allennlp.py some/model.tar.gz`.
"""

from __future__ import annotations

import inspect
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from make_bilm_hdf5 import make_options, make_weights

PREFIX = "text_field_embedder.token_embedder_elmo._elmo."
MIXES = [([0.3, -0.2, 1.1], 1.7), ([-0.5, 0.0, 0.25], 0.9)]
"""Scores and gamma of each mix."""

PARAMETERS = {
    "options_file": inspect.Parameter.empty,
    "weight_file": inspect.Parameter.empty,
    "num_output_representations": inspect.Parameter.empty,
    "requires_grad": False,
    "do_layer_norm": False,
    "dropout": 0.5,
    "vocab_to_cache": None,
    "keep_sentence_boundaries": False,
    "scalar_mix_parameters": None,
    "module": None,
}
"""The parameters of AllenNLP's `Elmo` (0.9 to 2.10) in their order, with their defaults."""


def _regate(array: np.ndarray) -> np.ndarray:
    """Return the rows of the gates i, j, f, o in the order i, f, j, o."""
    i, j, f, o = np.split(array, 4)
    return np.concatenate([i, f, j, o])


def make_state_dict(weights: Mapping[str, np.ndarray], prefix: str = PREFIX) -> dict[str, Tensor]:
    """Return published weights as the state dict of a task model that has them under `prefix`."""
    encoder, stack = "_elmo_lstm._token_embedder.", "_elmo_lstm._elmo_lstm."
    state: dict[str, np.ndarray] = {}
    for name, array in weights.items():
        match name.split("/"):
            case ["char_embed"]:
                zeros = np.zeros_like(array[:1])
                state[encoder + "_char_embedding_weights"] = np.concatenate([zeros, array])
            case ["CNN", part]:
                kind, _, number = part.split("_")
                place = f"{encoder}char_conv_{number}."
                state[place + ("weight" if kind == "W" else "bias")] = (
                    array[0].transpose(2, 1, 0) if kind == "W" else array
                )
            case ["CNN_proj", part]:
                state[f"{encoder}_projection.{'weight' if part == 'W_proj' else 'bias'}"] = array.T
            case [group, "W_transform" | "b_transform" as part]:
                carry = -weights[f"{group}/{part[0]}_carry"].T
                place = f"{encoder}_highways._layers.{group.removeprefix('CNN_high_')}."
                state[place + ("weight" if part[0] == "W" else "bias")] = np.concatenate([array.T, carry])
            case [direction, "RNN", "MultiRNNCell", cell, "LSTMCell", part]:
                place = f"{stack}{'forward' if direction == 'RNN_0' else 'backward'}_layer_{cell.removeprefix('Cell')}."
                if part == "W_0":
                    half = len(array) // 2
                    state[place + "input_linearity.weight"] = _regate(array[:half].T)
                    state[place + "state_linearity.weight"] = _regate(array[half:].T)
                elif part == "B":
                    bias = _regate(array)
                    bias[len(bias) // 4 : len(bias) // 2] += 1
                    state[place + "state_linearity.bias"] = bias
                else:
                    state[place + "state_projection.weight"] = array.T
    for number, (scores, gamma) in enumerate(MIXES):
        for layer, score in enumerate(scores):
            state[f"scalar_mix_{number}.scalar_parameters.{layer}"] = np.array([score], np.float32)
        state[f"scalar_mix_{number}.gamma"] = np.array([gamma], np.float32)
    return {prefix + name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}


def make_config(layer_norm: bool = False) -> dict[str, Any]:
    """Return the part of a task's config that describes ELMo."""
    elmo = {
        "type": "elmo_token_embedder",
        "options_file": "https://example.org/elmo_2x1024_128_2048cnn_1xhighway_options.json",  # a published name
        "weight_file": "https://example.org/elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5",
        "do_layer_norm": layer_norm,
        "dropout": 0.5,
    }
    return {"model": {"type": "crf_tagger", "text_field_embedder": {"token_embedders": {"elmo": elmo}}}}


def make_archive(path: Path, state: Mapping[str, Tensor], config: object, options: object = None) -> Path:
    """Write an archive; `options` go where older versions put a copy of the options file."""
    folder = path.parent / f"{path.name}-files"
    (folder / "vocabulary").mkdir(parents=True)
    (folder / "vocabulary" / "labels.txt").write_text("O\nB-PER\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if options is not None:
        (folder / "fta").mkdir()
        name = "model.text_field_embedder.token_embedders.elmo.options_file"
        (folder / "fta" / name).write_text(json.dumps(options), encoding="utf-8")
    other = {"tag_projection_layer.weight": torch.zeros(2, 12), "crf.transitions": torch.zeros(2, 2)}
    torch.save({**other, **state}, folder / "weights.th")
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(folder.iterdir()):
            archive.add(file, file.name)
    return path


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]), make_state_dict(make_weights(make_options())), make_config(), make_options())
