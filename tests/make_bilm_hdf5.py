"""Writes small biLMs with random weights in the published layout: `options.json` next to an HDF5 file.

Tests of all packages use it, and it does not need `elmo`. Called as a script, it writes one variant:
`python tests/make_bilm_hdf5.py one_direction some/folder`.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Weights = dict[str, np.ndarray]
Options = dict[str, Any]

WEIGHTS_FILE, OPTIONS_FILE = "lm_weights.hdf5", "options.json"

BASE: Options = {
    "lstm": {
        "dim": 12,
        "projection_dim": 6,
        "n_layers": 2,
        "cell_clip": 0.7,  # far below the published 3, so that random weights reach both clips
        "proj_clip": 0.5,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 3], [2, 4], [3, 5]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 50,
        "activation": "relu",
    },
}

CHANGES: dict[str, dict[str, Any]] = {
    "base": {},
    "no_projection": {"lstm.dim": 6},
    "no_char_projection": {"char_cnn.filters": [[1, 2], [3, 4]]},
    "no_highway": {"char_cnn.n_highway": 0},
    "one_direction": {"bidirectional": False},
    "no_skip_connections": {"lstm.use_skip_connections": False},
    "tanh": {"char_cnn.activation": "tanh"},
    "counts_261": {"char_cnn.n_characters": 261},
    "no_clips": {"lstm.cell_clip": None, "lstm.proj_clip": None},
    "one_layer": {"lstm.n_layers": 1},
    "three_layers": {"lstm.n_layers": 3},
    "short_words": {"char_cnn.max_characters_per_token": 12},
    "softmax": {"n_tokens_vocab": 17},
}
"""What each variant changes in `BASE`, by dotted key."""


def make_options(variant: str = "base") -> Options:
    """Return the options of a variant."""
    options = copy.deepcopy(BASE)
    for key, value in CHANGES[variant].items():
        *parents, last = key.split(".")
        inner = options
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    return options


def make_weights(options: Mapping[str, Any], seed: int = 0) -> Weights:
    """Return random weights by their published names, scaled so that no activation saturates or dies."""
    draw = np.random.default_rng(seed)
    cnn, lstm = options["char_cnn"], options["lstm"]
    width, cell = lstm["projection_dim"], lstm["dim"]

    def normal(*shape: int, scale: float) -> np.ndarray:
        return (scale * draw.standard_normal(shape)).astype(np.float32)

    weights = {"char_embed": normal(261, cnn["embedding"]["dim"], scale=1.0)}
    for k, (span, count) in enumerate(cnn["filters"]):
        weights[f"CNN/W_cnn_{k}"] = normal(1, span, cnn["embedding"]["dim"], count, scale=0.4)
        weights[f"CNN/b_cnn_{k}"] = normal(count, scale=0.3)
    features = sum(count for _, count in cnn["filters"])
    for k in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            weights[f"CNN_high_{k}/W_{part}"] = normal(features, features, scale=features**-0.5)
            weights[f"CNN_high_{k}/b_{part}"] = normal(features, scale=0.5)
    if features != width:
        weights["CNN_proj/W_proj"] = normal(features, width, scale=features**-0.5)
        weights["CNN_proj/b_proj"] = normal(width, scale=0.3)
    for direction in range(2 if options.get("bidirectional", True) else 1):
        for layer in range(lstm["n_layers"]):
            name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            weights[f"{name}/W_0"] = normal(2 * width, 4 * cell, scale=1.5 * (2 * width) ** -0.5)
            weights[f"{name}/B"] = normal(4 * cell, scale=0.4)
            if width < cell:
                weights[f"{name}/W_P_0"] = normal(cell, width, scale=1.5 * cell**-0.5)
    if "n_tokens_vocab" in options:
        weights["softmax/W"] = normal(options["n_tokens_vocab"], width, scale=width**-0.5)
        weights["softmax/b"] = normal(options["n_tokens_vocab"], scale=0.5)
    return weights


def read_weights(path: Path) -> Weights:
    """Return all data sets of an HDF5 file by name."""
    weights: Weights = {}

    def collect(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(collect)
    return weights


def write(folder: Path, options: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> Path:
    """Write both files into `folder`, which is made if it does not exist, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OPTIONS_FILE).write_text(json.dumps(options, indent=2), encoding="utf-8")
    with h5py.File(folder / WEIGHTS_FILE, "w") as file:
        for name, array in weights.items():
            file[name] = array
    return folder


def make(folder: Path, variant: str = "base", seed: int = 0) -> tuple[Path, Options, Weights]:
    """Write a variant into `folder`, and return the folder, its options and its weights."""
    options = make_options(variant)
    weights = make_weights(options, seed)
    return write(folder, options, weights), options, weights


def make_published(folder: Path) -> None:
    """Write a model into `folder / "published"`, under the names of the files that the paper's authors published."""
    make(folder / "published")
    for file in (folder / "published").iterdir():
        kind = "options" if file.suffix == ".json" else "weights"
        file.rename(folder / f"elmo_2x4096_512_2048cnn_2xhighway_{kind}{file.suffix}")


if __name__ == "__main__":
    make(Path(sys.argv[2]), sys.argv[1])
