"""A biLM in plain NumPy, written from the equations, which every other way of computing is tested against.

It does not use `elmo`. Weights are a mapping from the published HDF5 names ("char_embed", "CNN/W_cnn_0") to arrays, and
options are the published `options.json`. It computes one sentence and one token at a time, which is slow but simple.

Shapes: T tokens, C characters, P projection, H cell, D = 2P (P for one direction), L LSTM layers, V words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
LayerState = tuple[Array, Array]  # hidden (P,), cell (H,)
DirectionState = list[LayerState]  # one per LSTM layer
RowState = list[DirectionState]  # one per direction

FORGET_BIAS = 1.0


def encode(word: str, max_characters: int = 50) -> Array:
    """Return the character ids of a word, (C,): its bytes between 258 and 259, then 260s, all shifted by one."""
    if word in ("<S>", "</S>"):
        ids = [258, 256 if word == "<S>" else 257, 259]
    else:
        ids = [258, *word.encode("utf-8")[: max_characters - 2], 259]
    return np.array([i + 1 for i in ids + [260] * (max_characters - len(ids))])


def encode_sentence(words: Sequence[str], max_characters: int = 50) -> Array:
    """Return the character ids of a sentence with its boundaries, (T + 2, C)."""
    return np.stack([encode(word, max_characters) for word in ["<S>", *words, "</S>"]])


class Oracle:
    """A biLM that computes in `dtype` what the equations say."""

    def __init__(self, weights: Mapping[str, Array], options: Mapping[str, Any], dtype: Any = np.float64) -> None:
        self.weights = {name: np.asarray(array, dtype=dtype) for name, array in weights.items()}
        self.cnn, self.lstm = options["char_cnn"], options["lstm"]
        self.num_directions = 2 if options.get("bidirectional", True) else 1
        self.dtype = dtype

    # --- characters -> token vector

    def token_vector(self, characters: Array) -> Array:
        """Return the vector (P,) of a word's character ids (C,)."""
        rows = np.stack([self._character(int(i)) for i in characters])  # (C, d)
        features = np.concatenate([self.convolve(rows, k) for k in range(len(self.cnn["filters"]))])
        for k in range(self.cnn.get("n_highway") or 0):
            features = self.highway(features, k)
        if "CNN_proj/W_proj" in self.weights:
            features = features @ self.weights["CNN_proj/W_proj"] + self.weights["CNN_proj/b_proj"]
        return features

    def token_vectors(self, characters: Array) -> Array:
        """Return the vectors (N, P) of the character ids (N, C) of words, each computed alone."""
        return np.stack([self.token_vector(word) for word in characters])

    def _character(self, shifted: int) -> Array:
        table = self.weights["char_embed"]  # (261, d), without the mask's row
        return np.zeros(table.shape[1], self.dtype) if shifted == 0 else table[shifted - 1]

    def convolve(self, rows: Array, k: int) -> Array:
        kernel, bias = self.weights[f"CNN/W_cnn_{k}"][0], self.weights[f"CNN/b_cnn_{k}"]
        width = kernel.shape[0]
        starts = range(len(rows) - width + 1)
        windows = [sum((rows[start + j] @ kernel[j] for j in range(width)), bias) for start in starts]
        highest = np.max(np.stack(windows), axis=0)
        return np.tanh(highest) if self.cnn["activation"] == "tanh" else np.maximum(highest, 0)

    def highway(self, x: Array, k: int) -> Array:
        names = ("W_carry", "b_carry", "W_transform", "b_transform")
        part = {name: self.weights[f"CNN_high_{k}/{name}"] for name in names}
        gate = sigmoid(x @ part["W_carry"] + part["b_carry"])
        return gate * np.maximum(x @ part["W_transform"] + part["b_transform"], 0) + (1 - gate) * x

    # --- LSTMs

    def zero_state(self) -> RowState:
        """Return the state before any token."""
        layer = (np.zeros(self.lstm["projection_dim"], self.dtype), np.zeros(self.lstm["dim"], self.dtype))
        return [[layer] * self.lstm["n_layers"] for _ in range(self.num_directions)]

    def step(self, x: Array, state: LayerState, direction: int, layer: int) -> LayerState:
        """Make an LSTM step with input `x` (P,), with gates in the order i, j, f, o and with both clips."""
        name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        hidden, cell = state
        z = np.concatenate([x, hidden]) @ self.weights[f"{name}/W_0"] + self.weights[f"{name}/B"]
        i, j, f, o = np.split(z, 4)
        cell = sigmoid(f + FORGET_BIAS) * cell + sigmoid(i) * np.tanh(j)
        cell = clip(cell, self.lstm.get("cell_clip"))
        hidden = sigmoid(o) * np.tanh(cell)
        if f"{name}/W_P_0" in self.weights:
            hidden = clip(hidden @ self.weights[f"{name}/W_P_0"], self.lstm.get("proj_clip"))
        return hidden, cell

    def run_direction(
        self, vectors: Array, state: DirectionState, direction: int
    ) -> tuple[list[Array], DirectionState]:
        """Return the outputs of each layer, L times (T, P), for token vectors (T, P) in reading order, and the state.

        The backward direction reads from the last token to the first, and its outputs are in reading order again.
        """
        inputs = vectors if direction == 0 else vectors[::-1]
        outputs, final = [], []
        for layer in range(self.lstm["n_layers"]):
            layer_state, result = state[layer], []
            for x in inputs:
                layer_state = self.step(x, layer_state, direction, layer)
                residual = x if layer > 0 and self.lstm.get("use_skip_connections") else 0
                result.append(layer_state[0] + residual)
            inputs = np.array(result, self.dtype).reshape(len(vectors), self.lstm["projection_dim"])
            outputs.append(inputs if direction == 0 else inputs[::-1])
            final.append(layer_state)
        return outputs, final

    # --- biLM

    def row(self, characters: Array, state: RowState | None = None) -> tuple[Array, RowState]:
        """Return all layers (L + 1, T, D) of a sentence's character ids (T, C), and the state after its last token.

        Sentence boundaries are tokens like others. Layer 0 is the token vector, repeated for each direction.
        """
        state = self.zero_state() if state is None else state
        vectors = np.array([self.token_vector(c) for c in characters], self.dtype)
        vectors = vectors.reshape(len(characters), self.lstm["projection_dim"])
        runs = [self.run_direction(vectors, state[d], d) for d in range(self.num_directions)]
        layers = [[vectors] * self.num_directions, *zip(*(outputs for outputs, _ in runs), strict=True)]
        return np.stack([np.concatenate(layer, axis=1) for layer in layers]), [final for _, final in runs]

    def batch(
        self, batch: Sequence[Array], states: Sequence[RowState] | None = None
    ) -> tuple[list[Array], list[RowState]]:
        """Call `row` for each row, starting row i from `states[i]`. Rows do not influence each other."""
        results = [self.row(row, None if states is None else states[i]) for i, row in enumerate(batch)]
        return [layers for layers, _ in results], [state for _, state in results]

    def carry(self, batches: Sequence[Sequence[Sequence[str]]]) -> Iterator[tuple[list[Array], list[RowState]]]:
        """Yield the layers of the sentences of each batch, with boundaries, and the states of all rows after it.

        Row i of a batch starts from the state that the last row i left. Batches may be of different sizes.
        """
        states = [self.zero_state() for _ in range(max(map(len, batches), default=0))]
        for batch in batches:
            layers, after = self.batch([encode_sentence(sentence) for sentence in batch], states)
            states = after + states[len(batch) :]
            yield layers, states

    def carried(self, batches: Sequence[Sequence[Sequence[str]]]) -> list[list[Array]]:
        """Return the layers of the sentences of each batch as `carry` yields them, but without boundaries."""
        return [[row[:, 1:-1] for row in layers] for layers, _ in self.carry(batches)]


# --- scalar mix (eq. 1)


def scalar_mix(
    layers: Array, scores: Array, gamma: float = 1.0, mask: Array | None = None, epsilon: float = 1e-13
) -> Array:
    """Return gamma * sum_j softmax(scores)_j * layers_j, (B, T, D) from (L, B, T, D).

    With a `mask` (B, T), each layer is first normalized by one mean and variance of all its unmasked numbers.
    """
    weights = np.exp(scores) / np.exp(scores).sum()
    if mask is not None:
        normal = []
        for layer in layers:
            numbers = layer[mask]
            mean = numbers.sum() / numbers.size
            variance = ((numbers - mean) ** 2).sum() / numbers.size
            normal.append((layer - mean) / np.sqrt(variance + epsilon))
        layers = np.stack(normal)
    return gamma * sum(weight * layer for weight, layer in zip(weights, layers, strict=True))


# --- softmaxes


def log_uniform(word: int, num_words: int) -> float:
    """Return the probability that one draw gives `word`. Ids are ranks, and the probability falls like 1 / rank."""
    return (math.log(word + 2) - math.log(word + 1)) / math.log(num_words + 1)


def expected_count(word: int, num_words: int, num_tries: int) -> float:
    """Return how often `word` is expected in a sample without repetition that took `num_tries` draws."""
    return -math.expm1(num_tries * math.log1p(-log_uniform(word, num_words)))


def sampled_softmax_losses(
    contexts: Array,
    targets: Sequence[int],
    weight: Array,
    bias: Array,
    samples: Sequence[int],
    num_tries: int,
) -> Array:
    """Return -log p(target) (N,), where p is over the target and those `samples` that differ from it.

    The log of each word's expected count is subtracted from its score. Shapes are `contexts` (N, P), `weight` (V, P)
    and `bias` (V,).
    """

    def score(context: Array, word: int) -> float:
        return float(context @ weight[word] + bias[word]) - math.log(expected_count(word, len(weight), num_tries))

    losses = []
    for context, target in zip(contexts, targets, strict=True):
        true = score(context, target)
        total = math.exp(true) + sum(math.exp(score(context, s)) for s in samples if s != target)
        losses.append(math.log(total) - true)
    return np.array(losses)


def log_probabilities(contexts: Array, weight: Array, bias: Array) -> Array:
    """Return log p of every word (N, V) after each context (N, P)."""
    scores = contexts @ weight.T + bias
    highest = scores.max(axis=1, keepdims=True)
    return scores - highest - np.log(np.exp(scores - highest).sum(axis=1, keepdims=True))


def sigmoid(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def clip(x: Array, limit: float | None) -> Array:
    return x if limit is None else np.clip(x, -limit, limit)
