"""Writes small models as ELMoForManyLangs keeps them: `config.json`, two lists, and two state dicts of torch.

This does not need `elmo`. It can be called as a script: `python tests/make_many_langs.py some/folder`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from make_allennlp import make_state_dict
from make_bilm_hdf5 import Options, Weights, make_options, make_weights

SETTINGS_FILE = "cnn_50_100_512_4096_sample.json"
SPECIAL = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
LETTERS = [*"abdefilnoprstwyïé日本", "\u3000"]
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "play", "naïve", "日本", "\u3000", "of"]
WORD_DIM = 7


def many_letters(count: int) -> list[str]:
    """Return the letters and about `count` more, so that the list can be longer than the 261 of bytes."""
    return [*LETTERS, *(chr(0x4E00 + i) for i in range(count) if chr(0x4E00 + i) not in LETTERS)]


def make_config(options: Options, word_dim: int = WORD_DIM) -> dict[str, Any]:
    """Return the settings of a model, made from those of a biLM of bytes."""
    cnn, lstm = options["char_cnn"], options["lstm"]
    return {
        "encoder": {
            "name": "elmo",
            **{k: lstm[k] for k in ("projection_dim", "cell_clip", "proj_clip", "dim", "n_layers")},
        },
        "token_embedder": {
            "name": "cnn",
            "activation": cnn["activation"],
            "filters": cnn["filters"],
            "n_highway": cnn["n_highway"],
            "word_dim": word_dim,
            "char_dim": cnn["embedding"]["dim"],
            "max_characters_per_token": cnn["max_characters_per_token"],
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": 0.1,
    }


def make_parts(options: Options, letters: Sequence[str] = LETTERS, word_dim: int = WORD_DIM) -> Weights:
    """Return random weights: a biLM's by their published names, and `characters`, `words`, `W` and `b` of tokens."""
    weights = {name: array for name, array in make_weights(options).items() if not name.startswith("CNN_proj")}
    draw = np.random.default_rng(5)
    features = sum(count for _, count in options["char_cnn"]["filters"]) + word_dim
    width = options["lstm"]["projection_dim"]
    sizes = {
        "characters": (len(SPECIAL) + len(letters), options["char_cnn"]["embedding"]["dim"]),
        "words": (len(WORDS), word_dim),
        "W": (width, features),
        "b": (width,),
    }
    extra = {name: draw.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    extra["W"] *= features**-0.5
    return {**weights, **extra}


def state_dicts(parts: Mapping[str, np.ndarray]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return what `encoder.pkl` and `token_embedder.pkl` hold."""
    published = {name: array for name, array in parts.items() if "/" in name}
    stack, embedder = "_elmo_lstm._elmo_lstm.", "_elmo_lstm._token_embedder."
    state = {name: value for name, value in make_state_dict(published, "").items() if "scalar_mix" not in name}
    encoder = {name.removeprefix(stack): value for name, value in state.items() if name.startswith(stack)}
    tokens = {
        name.removeprefix(embedder).replace("_highways", "highways").replace("char_conv_", "convolutions."): value
        for name, value in state.items()
        if name.startswith(embedder)
    }
    tokens["char_emb_layer.embedding.weight"] = torch.from_numpy(parts["characters"])
    if parts["words"].shape[1]:
        tokens["word_emb_layer.embedding.weight"] = torch.from_numpy(parts["words"])
    tokens["projection.weight"], tokens["projection.bias"] = torch.from_numpy(parts["W"]), torch.from_numpy(parts["b"])
    return encoder, tokens


def write_list(path: Path, tokens: Sequence[str]) -> None:
    """Write a token and its id on each line."""
    path.write_text("".join(f"{token}\t{number}\n" for number, token in enumerate(tokens)), encoding="utf-8")


def make(
    folder: Path, variant: str = "base", letters: Sequence[str] = LETTERS, word_dim: int = WORD_DIM
) -> tuple[Options, Weights]:
    """Write a model into `folder`, and return the options of its biLM and its weights."""
    options = make_options(variant)
    parts = make_parts(options, letters, word_dim)
    folder.mkdir(parents=True, exist_ok=True)
    theirs = f"/users4/someone/ELMoForManyLangs/configs/{SETTINGS_FILE}"
    (folder / "config.json").write_text(json.dumps({"config_path": theirs, "seed": 1, "gpu": 0}), encoding="utf-8")
    (folder / SETTINGS_FILE).write_text(json.dumps(make_config(options, word_dim)), encoding="utf-8")
    write_list(folder / "char.dic", [*SPECIAL, *letters])
    if word_dim:
        write_list(folder / "word.dic", WORDS)
    for name, state in zip(("encoder.pkl", "token_embedder.pkl"), state_dicts(parts), strict=True):
        torch.save(state, folder / name, _use_new_zipfile_serialization=False)  # they are older than the zip format
    return options, parts


if __name__ == "__main__":
    make(Path(sys.argv[1]))
