"""Sentences in, contextual vectors out: on one device (`Embedder`), or on several (`elmo.embed.parallel`)."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elmo import formats
from elmo.config import BiLMConfig
from elmo.embed.batching import PackedBatch, Sentence, plan_batches, windows
from elmo.embed.engine import Precision, make_engine
from elmo.embed.fingerprint import fingerprint
from elmo.embed.layers import Entry, Layers, VectorLayout, layer_weights
from elmo.embed.pooling import POOLS, Pool, pool_tokens
from elmo.embed.writers import DType, Written, write_embeddings
from elmo.errors import ElmoError
from elmo.formats.model import STATES, Model, State, require_warm_state
from elmo.nn.bilm import BiLMState, first_rows, repeat_row, replace_rows, to_device
from elmo.nn.devices import find_device
from elmo.nn.lstm import LSTMState
from elmo.schema import require_choice, require_positive
from elmo.text.characters import number_types

CARRY_BATCH_SIZE = 64
"""Sentences in a batch where the state is carried and no other number is given; AllenNLP's default."""

BATCH_TOKENS = {"cpu": 2048, "cuda": 32768}
"""Tokens of a batch. Enough to keep the device busy, few enough for any memory."""

WINDOW_BATCHES = 4
"""Batches that are sorted by length together, and whose types are encoded together."""


EmbeddedWindow = tuple[list[Sentence], list[NDArray[np.float32]]]
"""Sentences, and the array of each."""


class EmbeddingOptions(NamedTuple):
    """What one call asks for, checked."""

    weights: list[float] | None
    pool: Pool | None
    state: State
    batch_size: int | None

    @property
    def carry(self) -> bool:
        """Whether what a sentence leaves is what a later one starts from."""
        return self.state == "carry"


class SentenceEmbedder(ABC):
    """What everything that embeds sentences offers; where the work is done is for `_embed_windows` to say."""

    config: BiLMConfig
    fingerprint: str
    """Of the model without its warm state."""
    warm_fingerprint: str
    """Of the model with its warm state, which decides on vectors that start from that."""
    precision: str
    _batch_tokens: int
    """Tokens of a batch, boundaries counted."""

    @property
    def num_layers(self) -> int:
        """Number of layers, layer 0 counted (L+1)."""
        return self.config.num_layers

    @property
    def width(self) -> int:
        """Width of a vector (D)."""
        return self.config.width

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
        no state: `layers="token"` leaves it as it is. With `state="warm"`, every sentence starts from the state that
        `elmo warm` stored with the model: the mean of those in which the sentences of a text end.
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

    def windows(
        self, sentences: Iterable[Sentence], *, layers: Layers = "mean", state: State = "zero"
    ) -> Iterator[list[NDArray[np.float32]]]:
        """As `stream`, but the arrays of a window of sentences at a time.

        Embedding the sentences from the start of any window on gives the same numbers, to the bit, as embedding all.
        """
        job = self._job(layers, None, state, None)
        return ([vectors for _, vectors in window] for window in self._windows(sentences, job))

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
        total_bytes: int | None = None,
    ) -> Written:
        """Embed into a file, by its ending: `.h5`, `.npz` or `.parquet` (see `elmo.embed.writers`).

        Vectors are written in the background of the computation. The file appears under its name when it is
        complete. If the run is interrupted, what is written by then is kept beside it, and the same call goes on
        there; give it the same sentences again. Another call for the same file (other layers, another text) is
        refused, or with `overwrite` begins anew. With `state="carry"` every run begins anew.

        `total_bytes` is the size of the text as UTF-8, for the remaining time shown on a terminal.
        """
        job = self._job(layers, pool, state, batch_size)
        return write_embeddings(
            path,
            sentences,
            lambda rest, first: self._windows(rest, job, first),
            VectorLayout(self.width, self.num_layers if job.weights is None else None, pool is not None),
            {
                "model": self.warm_fingerprint if state == "warm" else self.fingerprint,
                "layers": job.weights or "all",
                "pool": pool,
                "precision": self.precision,
                "state": state,
            },
            dtype=dtype,
            overwrite=overwrite,
            resumable=state != "carry",
            total_bytes=total_bytes,
        )

    @abstractmethod
    def reset_state(self) -> None:
        """Forget the state that `state="carry"` left: the next batch starts from zeros."""

    @abstractmethod
    def _embed_windows(self, cut: Iterable[list[Sentence]], job: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        """Embed windows of sentences in their order. With carried state, a window is a batch."""

    def _job(self, layers: Layers, pool: Pool | None, state: State, batch_size: int | None) -> EmbeddingOptions:
        if pool is not None:
            require_choice("pool", pool, POOLS)
        require_choice("state", state, STATES)
        require_positive("batch_size", batch_size)
        return EmbeddingOptions(layer_weights(layers, self.num_layers), pool, state, batch_size)

    def _windows(self, sentences: Iterable[Sentence], job: EmbeddingOptions, first: int = 0) -> Iterator[list[Entry]]:
        """Embed window by window; what is held in memory is one window."""
        size = (job.batch_size or CARRY_BATCH_SIZE) if job.carry else (job.batch_size or 0) * WINDOW_BATCHES or None
        cut = windows(sentences, WINDOW_BATCHES * self._batch_tokens, size, first)
        for window, arrays in self._embed_windows(cut, job):
            yield [Entry(*pair) for pair in zip(window, arrays, strict=True)]


class Embedder(SentenceEmbedder):
    """A biLM that embeds sentences; `elmo.load` returns one.

    ```python
    model = elmo.load("model")
    vectors = model.embed([["A", "new", "play"], ["Children", "play"]])  # (3, D) and (2, D)
    ```
    A sentence's vectors depend on the sentence alone (but with `state="carry"`): neither its neighbours nor the batch
    size change them, apart from float32 rounding (about 1e-6; none at all where the native module computes). `<S>`
    and `</S>` are added, and their vectors removed.

    `precision` trades digits for speed (see `Precision`). On a processor it uses as many threads as torch does
    (`torch.set_num_threads`), and packs the weights once: it doesn't follow a model that is trained on, and doesn't
    hold it in memory. The given model's biLM is moved to `device` and put into evaluation mode.
    """

    def __init__(self, model: Model, *, device: str | torch.device = "cpu", precision: Precision = "float32") -> None:
        self.config = model.config
        self.device = find_device(device) if isinstance(device, str) else device
        self.fingerprint = self.warm_fingerprint = fingerprint(model)
        if model.warm_state is not None:
            self.warm_fingerprint = fingerprint(model, with_warm_state=True)
        bilm = model.bilm.to(self.device).eval()
        self._engine = make_engine(model, precision, self.device)
        self.precision = self._engine.precision
        self._no_state = bilm.initial_state(0)
        self._warm_state = model.warm_state and to_device(model.warm_state, self.device)
        self._state: BiLMState | None = None
        self._batch_tokens = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])

    def reset_state(self) -> None:
        """Forget the state that `state="carry"` left: the next batch starts from zeros."""
        self._state = None

    def _job(self, layers: Layers, pool: Pool | None, state: State, batch_size: int | None) -> EmbeddingOptions:
        if state == "warm":
            require_warm_state(self._warm_state)
        return super()._job(layers, pool, state, batch_size)

    def _embed_windows(self, cut: Iterable[list[Sentence]], job: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        return ((window, self.embed_window(window, job)) for window in cut)

    def embed_window(self, window: Sequence[Sentence], job: EmbeddingOptions) -> list[NDArray[np.float32]]:
        """One array per sentence. With carried state the window is the batch, however it is cut to fit memory."""
        arrays: dict[int, NDArray[np.float32]] = {}
        state = self._before(len(window), job)
        size = None if job.carry else job.batch_size
        types, numbered = number_types(window)
        vectors = self._engine.token_vectors(types)
        for indices in plan_batches([len(sentence) for sentence in window], self._batch_tokens, size):
            batch = PackedBatch.of([numbered[index] for index in indices])
            mixed, after = self._run(vectors, batch, job, state and _take_rows(state, indices))
            if not np.isfinite(mixed).all():
                raise ElmoError(
                    "the model's vectors are not finite: its weights are damaged, or far too large; get it again"
                )
            arrays.update(zip(indices, self._finish(batch.split(mixed), job), strict=True))
            if job.carry and state and after:
                state = _put_rows(state, indices, after)
        if job.carry and state:
            self._state = replace_rows(self._state, state)
        return [arrays[index] for index in range(len(window))]

    def _before(self, num_sentences: int, job: EmbeddingOptions) -> BiLMState | None:
        """The state before the first token of each of the next sentences; None stands for zeros."""
        if job.state == "warm":
            return repeat_row(require_warm_state(self._warm_state), num_sentences)
        return first_rows(self._state or self._no_state, num_sentences) if job.carry else None

    def _run(
        self, vectors: NDArray[np.float32], batch: PackedBatch, job: EmbeddingOptions, before: BiLMState | None
    ) -> tuple[NDArray[np.float32], BiLMState | None]:
        """The layers asked for, (tokens, D) or (L+1, tokens, D). Layer 0 alone needs no LSTM, and has no state."""
        if job.weights is None or any(job.weights[1:]):
            return self._engine.run(vectors, batch, job.weights, before)
        layer = vectors[batch.tokens[batch.inner]] * np.float32(job.weights[0])
        return np.concatenate([layer] * (2 if self.config.bidirectional else 1), axis=1), before

    def _finish(self, arrays: list[NDArray[np.float32]], job: EmbeddingOptions) -> list[NDArray[np.float32]]:
        """Pool, or copy, so that one kept sentence doesn't keep its whole batch."""
        if job.pool is None:
            return [array.copy() for array in arrays]
        bidirectional = self.config.bidirectional
        return [pool_tokens(array, job.pool, bidirectional=bidirectional) for array in arrays]


def load(source: str | Path, *, device: str | torch.device = "cpu", precision: Precision = "float32") -> Embedder:
    """Load a model of any known format (see `elmo.formats.load`), ready to embed (see `Embedder`)."""
    return Embedder(formats.load(source), device=device, precision=precision)


def _take_rows(state: BiLMState, rows: Sequence[int]) -> BiLMState:
    return tuple(LSTMState(*(part[:, list(rows)] for part in direction)) for direction in state)


def _put_rows(state: BiLMState, rows: Sequence[int], new: BiLMState) -> BiLMState:
    """`state` with `new` in place of `rows`."""
    where = torch.tensor(rows, device=state[0].hidden.device)
    return tuple(
        LSTMState(*(old.index_copy(1, where, part) for old, part in zip(before, after, strict=True)))
        for before, after in zip(state, new, strict=True)
    )
