"""Our modules with tiny sizes and with published weights, which are copied by hand, without any file or reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.config import BiLMConfig
from elmo.formats import Model
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.lstm import LSTMState
from elmo.nn.softmax import Softmax
from elmo.schema import from_mapping
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import make_options, make_weights
from oracle import Oracle, RowState, encode_sentence

WORDS = ["<S>", "</S>", "<UNK>", *(f"w{i}" for i in range(14))]
"""A vocabulary as long as the softmax of `make_bilm_hdf5`."""


def make_config(variant: str = "base", **lstm: Any) -> BiLMConfig:
    """Return the sizes of a variant of `make_bilm_hdf5`, with changes to its LSTM."""
    options = make_options(variant)
    options["lstm"].update(lstm)
    return from_mapping(BiLMConfig, options, "tests", ignore_unknown=True)


def build(variant: str = "base", dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[BiLM, Oracle]:
    """Return the same random model as a BiLM of `dtype` and as a float64 oracle."""
    options = make_options(variant)
    weights = make_weights(options, seed)
    bilm = BiLM(make_config(variant))
    load(bilm, weights)
    return bilm.to(dtype), Oracle(weights, options)


def load(bilm: BiLM, weights: Mapping[str, np.ndarray]) -> None:
    """Copy every published array into its place; the state dict must be filled exactly."""
    state = {}
    for name, array in weights.items():
        match name.split("/"):
            case ["char_embed"]:
                state["char_encoder.embedding.weight"] = np.vstack([np.zeros_like(array[:1]), array])
            case ["CNN", part]:
                kind, _, k = part.split("_")
                value = array[0].transpose(2, 1, 0) if kind == "W" else array
                state[f"char_encoder.convolutions.{k}.{'weight' if kind == 'W' else 'bias'}"] = value
            case ["CNN_proj", part]:
                state[f"char_encoder.projection.{'weight' if part == 'W_proj' else 'bias'}"] = array.T
            case [highway, part] if highway.startswith("CNN_high"):
                place = "gate" if part.endswith("carry") else "transform"
                state[f"char_encoder.highways.{highway[9:]}.{place}.{'weight' if part[0] == 'W' else 'bias'}"] = array.T
            case [rnn, "RNN", "MultiRNNCell", cell, "LSTMCell", part]:
                place = f"{'forward' if rnn == 'RNN_0' else 'backward'}_lstm.layers.{cell[4:]}"
                if part == "W_0":
                    width = bilm.config.lstm.projection_dim
                    state[f"{place}.weight_ih"], state[f"{place}.weight_hh"] = (
                        array[:width].T,
                        array[width:].T,
                    )
                else:
                    state[f"{place}.{'weight_hr' if part == 'W_P_0' else 'bias'}"] = array.T
    bilm.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()})


def batch_of(sentences: Sequence[Sequence[str]], extra: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three inputs of a BiLM for sentences, with boundaries and `extra` columns of padding added."""
    rows = [encode_sentence(sentence) for sentence in sentences]
    characters, tokens = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
    lengths = [len(row) for row in rows]
    padded = np.full((len(rows), max(lengths) + extra), len(characters) - 1)
    padded[np.arange(padded.shape[1]) < np.array(lengths)[:, None]] = tokens.ravel()
    return torch.from_numpy(characters), torch.from_numpy(padded), torch.tensor(lengths)


def state_of(rows: Sequence[RowState], dtype: torch.dtype = torch.float64) -> BiLMState:
    """Return the states of an oracle's rows in the form of a BiLM's."""

    def stack(direction: int, part: int) -> Tensor:
        layers = range(len(rows[0][direction]))
        return torch.tensor(
            np.stack([np.stack([row[direction][layer][part] for row in rows]) for layer in layers]),
            dtype=dtype,
        )

    return tuple(LSTMState(stack(d, 0), stack(d, 1)) for d in range(len(rows[0])))


def layers_of(model: Model, sentence: Sequence[str]) -> np.ndarray:
    """Compute all layers (L + 1, T + 2, D) of one sentence, including its boundaries."""
    assert model.config.char_cnn is not None
    ids = encode_sentence(sentence, model.config.char_cnn.max_characters_per_token)
    with torch.inference_mode():
        layers, _ = model.bilm(torch.from_numpy(ids), torch.arange(len(ids))[None], torch.tensor([len(ids)]))
    return layers[:, 0].numpy()


def make_model(variant: str = "base", softmax: bool = False) -> Model:
    torch.manual_seed(0)
    bilm = BiLM(make_config(variant))
    if not softmax:
        return Model(bilm)
    return Model(bilm, Softmax(len(WORDS), bilm.config.lstm.projection_dim), Vocabulary(WORDS))


def assert_equal(found: torch.nn.Module | None, wanted: torch.nn.Module | None) -> None:
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        expected = wanted.state_dict()
        assert found.state_dict().keys() == expected.keys()
        for name, tensor in found.state_dict().items():
            assert torch.equal(tensor, expected[name]), name
