"""Sentences in, contextual vectors out: the inference engine."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo import formats
from elmo.embed.batching import Sentence, encode_batch, plan_batches, windows
from elmo.embed.layers import Entry, Layers, Layout, layer_weights
from elmo.embed.pooling import Pool, check_pool, pool_tokens
from elmo.embed.writers import DType, Written, write_embeddings
from elmo.errors import ElmoError
from elmo.formats.model import Model
from elmo.nn.bilm import BiLMState, first_rows, replace_rows
from elmo.nn.lstm import LSTMState

State = Literal["zero", "carry"]

CARRY_BATCH_SIZE = 64
"""Sentences in a batch where the state is carried and no other number is given; AllenNLP's default."""

BATCH_TOKENS = {"cpu": 2048, "cuda": 32768}
"""Tokens of a batch, padding counted. Enough to keep the device busy, few enough for any memory."""

WINDOW_BATCHES = 4
"""Batches that are sorted by length together."""


class _Job(NamedTuple):
    """What one call asks for, checked."""

    weights: list[float] | None
    pool: Pool | None
    carry: bool
    batch_size: int | None


class Embedder:
    """A biLM that embeds sentences; `elmo.load` returns one.

    ```python
    model = elmo.load("model")
    vectors = model.embed([["A", "new", "play"], ["Children", "play"]])  # (3, D) and (2, D)
    ```
    A sentence's vectors depend on the sentence alone (`state="zero"`): neither its neighbours nor the batch size
    change them, apart from float32 rounding (about 1e-6). `<S>` and `</S>` are added, and their vectors removed.
    """

    def __init__(self, model: Model, *, device: str | torch.device = "cpu") -> None:
        self.model = model
        self.device = torch.device(device)
        self._bilm = model.bilm.to(self.device).eval()
        self._state: BiLMState | None = None
        self._batch_tokens = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])

    @property
    def num_layers(self) -> int:
        """Number of layers, layer 0 counted (L+1)."""
        return self._bilm.config.num_layers

    @property
    def width(self) -> int:
        """Width of a vector (D)."""
        return self._bilm.config.width

    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "zero",
        batch_size: int | None = None,
    ) -> list[NDArray[np.float32]]:
        """Embed tokenized sentences: one float32 array each, in their order.

        Arrays are (T, D); (L+1, T, D) with `layers="all"`; (D,) or (L+1, D) with `pool`. A sentence without tokens
        gives (0, D), pooled: zeros. The default `layers="mean"` averages all layers: the paper's vectors (eq. 1)
        before any task has learned weights. See `Layers` and `pool_tokens` for the choices.

        `batch_size` fixes the sentences of a batch; without it, batches are filled by tokens. With
        `state="carry"`, batches of `batch_size` (64) sentences are taken in the given order, and sentence i of a
        batch starts from the LSTM state in which sentence i of the batch before ended, also across calls, until
        `reset_state()`: what published toolkits did, needed to match their numbers. Without a context there is
        no state: `layers="token"` leaves it as it is.
        """
        return list(self.stream(sentences, layers=layers, pool=pool, state=state, batch_size=batch_size))

    def stream(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "zero",
        batch_size: int | None = None,
    ) -> Iterator[NDArray[np.float32]]:
        """As `embed`, one array at a time: any number of sentences in constant memory, which it reads ahead of."""
        return (vectors for _, vectors in self.pairs(sentences, layers, pool, state, batch_size))

    def pairs(
        self,
        sentences: Iterable[Sentence],
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "zero",
        batch_size: int | None = None,
    ) -> Iterator[Entry]:
        """As `stream`, each array with its sentence: (tokens, vectors)."""
        return chain.from_iterable(self._windows(sentences, self._job(layers, pool, state, batch_size)))

    def write(
        self,
        path: str | Path,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        dtype: DType = "float32",
        state: State = "zero",
        batch_size: int | None = None,
        overwrite: bool = False,
        total: int | None = None,
    ) -> Written:
        """Embed into a file, by its ending: `.h5`, `.npz` or `.parquet` (see `elmo.embed.writers`).

        Vectors are written in the background of the computation. The file appears under its name when it is
        complete. `total` is the number of sentences, for the progress shown on a terminal.
        """
        job = self._job(layers, pool, state, batch_size)
        layout = Layout(self.width, self.num_layers if job.weights is None else None, pool is not None)
        return write_embeddings(
            path, self._windows(sentences, job), layout, dtype=dtype, overwrite=overwrite, total=total
        )

    def reset_state(self) -> None:
        """Forget the state that `state="carry"` left: the next batch starts from zeros."""
        self._state = None

    def _job(self, layers: Layers, pool: Pool | None, state: str, batch_size: int | None) -> _Job:
        check_pool(pool)
        if state not in ("zero", "carry"):
            raise ElmoError(f"state: {state!r} is neither 'zero' nor 'carry'")
        if batch_size is not None and batch_size < 1:
            raise ElmoError(f"batch_size: {batch_size} is not positive")
        return _Job(layer_weights(layers, self.num_layers), pool, state == "carry", batch_size)

    def _windows(self, sentences: Iterable[Sentence], job: _Job) -> Iterator[list[Entry]]:
        """Embed window by window; what is held in memory is one window."""
        size = (job.batch_size or CARRY_BATCH_SIZE) if job.carry else (job.batch_size or 0) * WINDOW_BATCHES or None
        for window in windows(sentences, WINDOW_BATCHES * self._batch_tokens, size):
            yield [Entry(*pair) for pair in zip(window, self._embed_window(window, job), strict=True)]

    @torch.inference_mode()
    def _embed_window(self, window: Sequence[Sentence], job: _Job) -> list[NDArray[np.float32]]:
        """One array per sentence. With carried state the window is the batch, however it is cut to fit memory."""
        vectors: dict[int, NDArray[np.float32]] = {}
        state = first_rows(self._state or self._bilm.initial_state(0), len(window)) if job.carry else None
        size = None if job.carry else job.batch_size
        for indices in plan_batches([len(sentence) for sentence in window], self._batch_tokens, size):
            before = state and _take_rows(state, indices)
            batch = [window[index] for index in indices]
            arrays, after = self._embed_batch(batch, job, before)
            vectors.update(zip(indices, arrays, strict=True))
            state = state and after and _put_rows(state, indices, after)
        if state is not None:
            self._state = replace_rows(self._state, state)
        return [vectors[index] for index in range(len(window))]

    def _embed_batch(
        self, sentences: Sequence[Sentence], job: _Job, before: BiLMState | None
    ) -> tuple[list[NDArray[np.float32]], BiLMState | None]:
        """Run the biLM once. Arrays are copies, so that one kept sentence doesn't keep its whole batch."""
        batch = encode_batch(sentences, self._bilm.config.char_cnn.max_characters_per_token)
        characters, tokens = batch.characters.to(self.device), batch.tokens.to(self.device)
        if job.weights is not None and not any(job.weights[1:]):
            mixed, after = job.weights[0] * self._token_layer(characters, tokens), before
        else:
            layers, after = self._bilm(characters, tokens, batch.lengths, before)
            mixed = layers if job.weights is None else torch.tensordot(layers.new_tensor(job.weights), layers, 1)
        numbers = mixed.float().cpu().numpy()
        arrays = [numbers[..., row, 1 : len(sentence) + 1, :].copy() for row, sentence in enumerate(sentences)]
        if job.pool is not None:
            bidirectional = self._bilm.config.bidirectional
            arrays = [pool_tokens(array, job.pool, bidirectional=bidirectional) for array in arrays]
        return arrays, after

    def _token_layer(self, characters: Tensor, tokens: Tensor) -> Tensor:
        """Layer 0 alone, without running the LSTMs: (B, T, D). Padding holds some token's vector."""
        vectors = self._bilm.char_encoder(characters)[tokens]
        return torch.cat([vectors] * len(self._bilm.directions), dim=-1)


def load(source: str | Path, *, device: str | torch.device = "cpu") -> Embedder:
    """Load a model of any known format (see `elmo.formats.load`), ready to embed."""
    return Embedder(formats.load(source), device=device)


def _take_rows(state: BiLMState, rows: Sequence[int]) -> BiLMState:
    return tuple(LSTMState(*(part[:, list(rows)] for part in direction)) for direction in state)


def _put_rows(state: BiLMState, rows: Sequence[int], new: BiLMState) -> BiLMState:
    """`state` with `new` in place of `rows`."""
    where = torch.tensor(rows, device=state[0].hidden.device)
    return tuple(
        LSTMState(*(old.index_copy(1, where, part) for old, part in zip(before, after, strict=True)))
        for before, after in zip(state, new, strict=True)
    )
