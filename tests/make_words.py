"""Writes small biLMs that read whole words, as bilm-tf trains them without `char_cnn`: HDF5 weights or a checkpoint.

The special words are in the middle of the vocabulary, which bilm-tf accepts. This does not need `elmo`. It can be
called as a script: `python tests/make_words.py some/folder`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import make_bilm_hdf5
import make_tensorflow
from make_bilm_hdf5 import Options, Weights
from oracle import Array, Oracle

WORDS = ["the", "</S>", ".", "play", "<UNK>", "<S>", "naïve", "日本語", "A", "new"]
IN_OUR_ORDER = ["<S>", "</S>", "<UNK>", "the", ".", "play", "naïve", "日本語", "A", "new"]


def make_options(variant: str = "base") -> Options:
    """Return the options of a biLM of these words. Other sizes are those of a variant of `make_bilm_hdf5`."""
    options = make_bilm_hdf5.make_options(variant)
    del options["char_cnn"]
    return {**options, "n_tokens_vocab": len(WORDS)}


def make_weights(variant: str = "base", softmax: bool = False, seed: int = 0) -> Weights:
    """Return random weights by their published names."""
    weights = make_bilm_hdf5.make_weights(make_bilm_hdf5.make_options(variant), seed)
    draw = np.random.default_rng(seed + 100)
    width = make_options(variant)["lstm"]["projection_dim"]
    sizes: dict[str, tuple[int, ...]] = {"embedding": (len(WORDS), width)}
    if softmax:
        sizes |= {"softmax/W": (len(WORDS), width), "softmax/b": (len(WORDS),)}
    own = {name: draw.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    return {**own, **{name: array for name, array in weights.items() if name.startswith("RNN")}}


def write_words(folder: Path, words: Sequence[str] = WORDS) -> None:
    """Write the vocabulary."""
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def make(folder: Path, variant: str = "base", softmax: bool = False) -> tuple[Path, Options, Weights]:
    """Write HDF5 weights, options and vocabulary into `folder`, and return it, the options and the weights."""
    options, weights = make_options(variant), make_weights(variant, softmax)
    make_bilm_hdf5.write(folder, options, weights)
    write_words(folder)
    return folder, options, weights


def make_checkpoint(folder: Path, *, shared: bool = False) -> tuple[Path, Options, Weights, Weights]:
    """Write a checkpoint with its softmax, which uses the vectors of the words if they are `shared`.

    Return the folder, the options, the weights and Adagrad's sums.
    """
    options, weights = make_options(), make_weights(softmax=True)
    if shared:
        options["share_embedding_softmax"] = True
        del weights["softmax/W"]
    sums = {name: 1 + array**2 for name, array in make_weights(softmax=True, seed=1).items() if name in weights}
    named = {make_tensorflow.name_in_training(name, options): name for name in weights}
    variables = {variable: weights[name] for variable, name in named.items()}
    variables |= {f"{variable}/Adagrad": sums[name] for variable, name in named.items()}
    folder.mkdir(parents=True, exist_ok=True)
    make_tensorflow.write_bundle(folder / make_tensorflow.PREFIX, variables)
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    write_words(folder)
    return folder, options, weights, sums


class WordOracle(Oracle):
    """An oracle that looks up the vectors of tokens."""

    def __init__(self, weights: Mapping[str, Array], options: Mapping[str, Any]) -> None:
        super().__init__(weights, {**options, "char_cnn": {}})

    def token_vector(self, characters: Array) -> Array:
        """Return the vector (P,) of the word on a line of the vocabulary (1,)."""
        return self.weights["embedding"][characters[0]]

    def layers(self, sentence: Sequence[str]) -> Array:
        """Return all layers (L + 1, T, D) of a sentence, without boundaries."""
        return self.row(lines_of(["<S>", *sentence, "</S>"]))[0][:, 1:-1]


def lines_of(words: Sequence[str]) -> Array:
    """Return the lines of the vocabulary that words are on, (T, 1), or that of `<UNK>` for words that are on none."""
    return np.array([[WORDS.index(word if word in WORDS else "<UNK>")] for word in words])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
