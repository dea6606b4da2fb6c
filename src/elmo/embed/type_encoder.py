"""Turns words into token vectors for inference. On a processor, the weights of char encoders are packed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo.config import CharCNNConfig
from elmo.embed.kernels import kernels_for
from elmo.formats.model import Model, require_characters
from elmo.formats.safetensors import as_float32, checksum_of_weights
from elmo.formats.stored import CHARACTER_ROWS, JOINT, StoredBiLM, Weights
from elmo.formats.stored_types import StoredTypes, TypeStorage
from elmo.nn.processor import num_threads

Array = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Array]
"""Computes the vectors (N, P) of N words."""

TYPES_AT_ONCE = 512
"""Number of words that are encoded together: enough for products at full speed, few enough for any memory."""


def make_encode(model: Model, precision: str) -> Encode:
    """Make a function that encodes words on a processor.

    Args:
        model: The model. ELMoForManyLangs' token encoder has too many characters for tables, and runs as a module, in
            float32.
        precision: The precision of a char encoder's products.
    """
    weights, to_ids = model.weights, model.to_ids
    if model.config.char_cnn is None:
        rows = as_float32(weights["word_encoder.embedding.weight"])
        if model.is_built:  # they are the memory of a module, whose training may go on
            rows = rows.copy()
        return lambda words: rows[to_ids(words)[:, 0]]
    if JOINT in weights:
        from elmo.embed.module_engine import run_module

        run = partial(run_module, StoredBiLM(model.config, weights).build().token_encoder)  # it shares no memory
    else:
        run = TypeEncoder(model.config.char_cnn, weights, precision).encode
    return lambda words: run(to_ids(words))


def encode_types(model: Model, words: Sequence[str], storage: TypeStorage) -> StoredTypes:
    """Compute the vectors of V distinct words in float32, on a processor, to be stored with the model.

    Args:
        model: A model with a char encoder.
        words: The words.
        storage: The type that the vectors are rounded to.

    Raises:
        ElmoError: If the model's words have no ids by their bytes alone, or a number does not fit.
    """
    require_characters(model, "given token vectors")
    return StoredTypes.of(words, make_encode(model, "float32")(words), checksum_of_weights(model.weights), storage)


class TypeEncoder:
    """Encodes as `CharEncoder` does, with tables and packed weights that are made once.

    A table holds what each filter computes from each character at each position of its window, so a convolution is a
    sum of look-ups. The two products of a highway layer are computed as one.

    Args:
        config: The sizes of the char encoder.
        weights: The weights of the biLM, by the names of its state dict.
        precision: The precision of the products.
    """

    def __init__(self, config: CharCNNConfig, weights: Weights, precision: str) -> None:
        kernels = kernels_for(precision)
        alphabet = as_float32(weights[CHARACTER_ROWS])
        names = [f"char_encoder.convolutions.{i}" for i in range(len(config.filters))]
        tables = [_table(alphabet, as_float32(weights[f"{name}.weight"])) for name in names]
        # A maximum may pass over a NaN. So a filter whose table is not finite gets a bias that is NaN.
        with np.errstate(invalid="ignore", over="ignore"):
            biases = [
                as_float32(weights[f"{name}.bias"]) + 0 * table.sum(axis=(0, 1))
                for name, table in zip(names, tables, strict=True)
            ]
        self._convolution = kernels.convolution(tables, biases, config.activation)
        self._num_filters = self._width = config.num_filters
        self._highway = kernels.highway

        def pack(*parts: str) -> Any:
            weight, bias = (
                np.concatenate([as_float32(weights[f"{part}.{kind}"]) for part in parts]) for kind in ("weight", "bias")
            )
            return kernels.linear(weight, bias, precision)

        highways = [f"char_encoder.highways.{k}" for k in range(config.n_highway)]
        self._highways = [pack(f"{name}.transform", f"{name}.gate") for name in highways]
        self._projection = None
        if "char_encoder.projection.weight" in weights:
            self._projection = pack("char_encoder.projection")
            self._width = len(weights["char_encoder.projection.weight"])

    def encode(self, ids: NDArray[Any]) -> Array:
        """Compute the vectors (N, P) of ids (N, C)."""
        vectors = np.empty((len(ids), self._width), np.float32)
        for start in range(0, len(ids), TYPES_AT_ONCE):
            vectors[start : start + TYPES_AT_ONCE] = self._encode(ids[start : start + TYPES_AT_ONCE])
        return vectors

    def _encode(self, ids: NDArray[Any]) -> Array:
        threads = num_threads()
        x = np.empty((len(ids), self._num_filters), np.float32)
        self._convolution.run(np.asarray(ids, np.int32, order="C"), _lengths(ids), x, threads)
        both = np.empty((len(ids), 2 * self._num_filters), np.float32)
        for highway in self._highways:
            highway.run(x, both, threads)
            self._highway(both, x, threads)
        if self._projection is None:
            return x
        projected = np.empty((len(ids), self._width), np.float32)
        self._projection.run(x, projected, threads)
        return projected


def _table(alphabet: Array, filters: Array) -> Array:
    """Return the products (width, A, K) of the characters (A, d) with each place of the filters (K, d, width).

    They are computed by the kernels, as all other products are, and not by NumPy, whose BLAS is another one elsewhere.
    """
    num_filters, dim, width = filters.shape
    weight = np.ascontiguousarray(filters.transpose(2, 0, 1)).reshape(width * num_filters, dim)
    products = np.empty((len(alphabet), len(weight)), np.float32)
    kernels_for("float32").linear(weight, None, "float32").run(alphabet, products)
    return np.ascontiguousarray(products.reshape(len(alphabet), width, num_filters).swapaxes(0, 1))


def _lengths(ids: NDArray[Any]) -> NDArray[np.int32]:
    """Return the length (N,) of each word (N, C) without its padding, the equal ids at its end."""
    places = np.arange(1, ids.shape[1] + 1, dtype=np.int32)
    return ((ids != ids[:, -1:]) * places).max(axis=1, initial=0)
