"""Turns sentences into contextual vectors on one device (`Embedder`); see `elmo.embed.parallel` for several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo import formats
from elmo.config import BiLMConfig
from elmo.embed.batching import PackedBatch, Sentence, plan_batches, windows
from elmo.embed.engine import Precision, make_engine
from elmo.embed.fingerprint import fingerprint
from elmo.embed.layers import Entry, Layers, VectorLayout, layer_weights
from elmo.embed.packed_engine import States
from elmo.embed.pooling import POOLS, Pool, pool_tokens
from elmo.embed.writers import DType, Written, write_embeddings
from elmo.errors import ElmoError
from elmo.formats.model import STATES, Model, State, require_warm_state
from elmo.formats.stored import StateArrays
from elmo.nn.processor import means_processor
from elmo.schema import require_choice, require_positive
from elmo.text.characters import number_types

if TYPE_CHECKING:
    import torch

CARRY_BATCH_SIZE = 64
"""Number of sentences in a batch with `state="carry"` if the caller names none. It is AllenNLP's default."""

BATCH_TOKENS = {"cpu": 2048, "cuda": 32768}
"""Maximum number of tokens in a batch, by type of device: enough to keep it busy, few enough for any memory."""

WINDOW_BATCHES = 4
"""Number of batches in a window. A window is sorted by length and its distinct words are encoded together."""


EmbeddedWindow = tuple[list[Sentence], list[NDArray[np.float32]]]
"""A window of sentences and the array of each, in the same order."""


class EmbeddingOptions(NamedTuple):
    """The checked options of one call; `weights` is None if all layers are kept apart."""

    weights: list[float] | None
    pool: Pool | None
    state: State
    batch_size: int | None

    @property
    def carry(self) -> bool:
        """Whether the LSTM state in which a sentence ends is the one that a later sentence starts from."""
        return self.state == "carry"


class SentenceEmbedder(ABC):
    """Base class of everything that embeds sentences. Subclasses decide in `_embed_windows` where to compute."""

    config: BiLMConfig
    fingerprint: str
    """Checksum of the model without its warm state. It includes stored token vectors that change the numbers."""
    warm_fingerprint: str
    """Checksum of the model with its warm state, since vectors made with `state="warm"` depend on both."""
    precision: str
    batch_tokens: int
    """Maximum number of tokens in a batch, including the boundaries `<S>` and `</S>`."""
    _gpu: torch.device | None
    """The device to compute on if it is not the processor."""

    @property
    def device(self) -> torch.device:
        """The device to compute on, or the first of them."""
        import torch

        return self._gpu or torch.device("cpu")

    @property
    def num_layers(self) -> int:
        """Number of layers including layer 0 (L+1)."""
        return self.config.num_layers

    @property
    def width(self) -> int:
        """Width of a vector (D), both directions together."""
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
        """Embed tokenized sentences and return one float32 array for each, in their order.

        Args:
            sentences: Lists of tokens, without `<S>` and `</S>`.
            layers: Which layers become a token's vector. The default `"mean"` averages all of them; `"all"` keeps
                them apart. See `Layers` for the other choices.
            pool: How to reduce a sentence to one vector: `"mean"`, `"max"` or `"first-last"` (see `pool_tokens`).
                None keeps one vector per token.
            state: The LSTM state that a sentence starts from. `"zero"` makes a sentence's vectors independent of all
                other sentences. `"carry"` takes batches in the given order, and sentence i of a batch starts from the
                state in which sentence i of the previous batch ended, also across calls, until `reset_state()`: use it
                to match the numbers of toolkits that did so. `"warm"` starts every sentence from the state that
                `elmo warm` stored with the model, a mean over the sentences of a text.
            batch_size: Number of sentences in a batch. By default, batches are filled by number of tokens, or hold
                64 sentences with `state="carry"`.

        Returns:
            One array per sentence, without padding: (T, D); (L+1, T, D) with `layers="all"`; (D,) or (L+1, D) with
            `pool`. A sentence without tokens gives T = 0, or zeros if pooled.

        Raises:
            ElmoError: If an option or a sentence is invalid, or the model has no warm state for `state="warm"`.

        Source:
            Peters et al. 2018, eq. 1: `"mean"` is its weighted sum before a task has learned any weights.
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
        """Embed as `embed` does, but yield one array at a time.

        Memory use does not grow with the number of sentences. `sentences` is read ahead by a window or more.
        """
        return (vectors for _, vectors in self.pairs(sentences, layers, pool, state, batch_size))

    def windows(
        self, sentences: Iterable[Sentence], *, layers: Layers = "mean", state: State = "zero"
    ) -> Iterator[list[NDArray[np.float32]]]:
        """Embed as `stream` does, but yield the arrays of one window of sentences at a time.

        A caller may stop after any window and later continue with the sentence that follows it. The windows and batches
        are then the same, so the numbers are equal to the bit.
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
        """Embed as `stream` does, but yield each array together with its sentence, as (tokens, vectors)."""
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
        """Embed sentences and write their vectors to a file.

        A background thread writes while the next vectors are computed. The file appears under its name only when it
        is complete. Until then the finished part is kept in a folder next to it (`.vectors.h5.unfinished` for
        `vectors.h5`). After an interruption, the same call with the same sentences continues from there; a call with
        other options or another text is refused unless `overwrite` is true.

        Args:
            path: The file to write. Its ending selects the format: `.h5` or `.hdf5`, `.npz` or `.parquet` (which
                needs the extra `parquet`).
            sentences: Lists of tokens, without `<S>` and `</S>`. Any iterable will do, since memory stays bounded.
            layers: Which layers become a token's vector (see `embed`). `"all"` stores every layer.
            pool: Store one vector per sentence instead of one per token: `"mean"`, `"max"` or `"first-last"`.
            dtype: The type of the stored numbers, `"float32"` or `"float16"`. `"float16"` rounds the
                computed float32 vectors when they are written, and halves the size of the file.
            state: The LSTM state that a sentence starts from, as in `embed`. An interrupted run with `"carry"` starts
                from the beginning, because the LSTM state is not stored.
            batch_size: Number of sentences in a batch, as in `embed`. It does not decide whether a call continues an
                interrupted one.
            overwrite: Replace an existing file, and discard unfinished work of another call. Without it, both are
                errors.
            total_bytes: Size of the text in bytes of UTF-8. It serves only to show the remaining time on a terminal.

        Returns:
            The path, the number of sentences and tokens, the seconds that all runs took together, and notes for the
            user, for example that the run continued an interrupted one.

        Raises:
            ElmoError: If the file exists already or cannot be written, if unfinished work belongs to another call or
                text, or if an option or a sentence is invalid.
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
        """Forget the state that calls with `state="carry"` left, so that the next batch starts from zeros."""

    @abstractmethod
    def _embed_windows(self, cut: Iterable[list[Sentence]], job: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        """Embed windows of sentences in their order. With `state="carry"`, a window is one batch."""

    def _job(self, layers: Layers, pool: Pool | None, state: State, batch_size: int | None) -> EmbeddingOptions:
        if pool is not None:
            require_choice("pool", pool, POOLS)
        require_choice("state", state, STATES)
        require_positive("batch_size", batch_size)
        return EmbeddingOptions(layer_weights(layers, self.num_layers), pool, state, batch_size)

    def _windows(self, sentences: Iterable[Sentence], job: EmbeddingOptions, first: int = 0) -> Iterator[list[Entry]]:
        """Embed window by window. Only a few windows are in memory at a time."""
        size = (job.batch_size or CARRY_BATCH_SIZE) if job.carry else (job.batch_size or 0) * WINDOW_BATCHES or None
        cut = windows(sentences, WINDOW_BATCHES * self.batch_tokens, size, first)
        for window, arrays in self._embed_windows(cut, job):
            yield [Entry(*pair) for pair in zip(window, arrays, strict=True)]


class Embedder(SentenceEmbedder):
    """Embeds sentences with a biLM on one device; `elmo.load` returns one.

    ```python
    model = elmo.load("model")
    vectors = model.embed([["A", "new", "play"], ["Children", "play"]])  # (3, D) and (2, D)
    ```
    Except with `state="carry"`, a sentence's vectors depend on that sentence alone. Neither its neighbours nor the
    batch size change them, apart from rounding (about 1e-6 in float32; none at all if the native module computes).
    `<S>` and `</S>` are added to each sentence, and their vectors removed.

    On a processor, the embedder uses as many threads as torch does (`torch.set_num_threads`) and packs the weights
    once: it does not follow a model whose training goes on, and does not keep that model in memory. Where there are
    native kernels, it does not import torch.

    Args:
        model: The model to embed with. If `device` is a GPU, its biLM is moved there and put into evaluation mode.
        device: A torch device or its name, such as `"cpu"`, `"cuda:1"` or `"auto"`, a GPU if there is one.
        precision: The precision of matrix products, which trades accuracy for speed (see `Precision`).

    Raises:
        ElmoError: If there is no such device, or it does not compute in this precision.
    """

    def __init__(self, model: Model, *, device: str | torch.device = "cpu", precision: Precision = "float32") -> None:
        self.config = model.config
        self._gpu = find_gpu(device)
        self.engine = make_engine(model, precision, self._gpu)
        """What computes the vectors (see `elmo.embed.engine`)."""
        self.precision = self.engine.precision
        # Stored token vectors in float32 are what the token encoder computes in float32.
        with_types = model.types is not None and not (model.types.is_exact and self.precision == "float32")
        self.fingerprint = self.warm_fingerprint = fingerprint(model, with_types=with_types)
        if model.warm_arrays is not None:
            self.warm_fingerprint = fingerprint(model, with_warm_state=True, with_types=with_types)
        self._warm_state = model.warm_arrays
        self._state: States | None = None
        self.batch_tokens = BATCH_TOKENS.get("cpu" if self._gpu is None else self._gpu.type, BATCH_TOKENS["cpu"])

    def reset_state(self) -> None:
        """Forget the state that calls with `state="carry"` left, so that the next batch starts from zeros."""
        self._state = None

    def _job(self, layers: Layers, pool: Pool | None, state: State, batch_size: int | None) -> EmbeddingOptions:
        if state == "warm":
            require_warm_state(self._warm_state)
        return super()._job(layers, pool, state, batch_size)

    def _embed_windows(self, cut: Iterable[list[Sentence]], job: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        return ((window, self.embed_window(window, job)) for window in cut)

    def embed_window(self, window: Sequence[Sentence], job: EmbeddingOptions) -> list[NDArray[np.float32]]:
        """Embed one window of sentences.

        With `state="carry"` the window is the batch of the caller. It may still be computed in several parts, to
        bound memory: a sentence's state depends only on its own row of the batch before.

        Args:
            window: Lists of tokens.
            job: The options of the call.

        Returns:
            One array per sentence, in the order of the window.

        Raises:
            ElmoError: If the vectors are not finite.
        """
        arrays: dict[int, NDArray[np.float32]] = {}
        state = self._before(len(window), job)
        size = None if job.carry else job.batch_size
        types, numbered = number_types(window)
        vectors = self.engine.token_vectors(types)
        for indices in plan_batches([len(sentence) for sentence in window], self.batch_tokens, size):
            batch = PackedBatch.of([numbered[index] for index in indices])
            before = _take_rows(state, indices) if job.carry and state else state
            mixed, after = self._run(vectors, batch, job, before)
            if not np.isfinite(mixed).all():
                raise ElmoError(
                    "the model's vectors are not finite: its weights are damaged, or far too large; get the model again"
                )
            arrays.update(zip(indices, self._finish(batch.split(mixed), job), strict=True))
            if job.carry and state and after:
                _put_rows(state, indices, after)
        if job.carry and state:
            self._state = _with_other_rows(state, self._state)
        return [arrays[index] for index in range(len(window))]

    def _before(self, num_sentences: int, job: EmbeddingOptions) -> States | None:
        """Return the state that each of the next sentences starts from, or one row from which all do.

        None stands for zeros. A carried state is a copy, with zeros in rows that no earlier batch had.
        """
        if job.state == "warm":
            return require_warm_state(self._warm_state)
        if not job.carry:
            return None
        lstm = self.config.lstm
        shapes = [(lstm.n_layers, num_sentences, width) for width in (lstm.projection_dim, lstm.dim)]
        state = tuple(
            StateArrays(*(np.zeros(shape, np.float32) for shape in shapes))
            for _ in range(2 if self.config.bidirectional else 1)
        )
        if self._state is not None:
            known = range(min(num_sentences, self._state[0].hidden.shape[1]))
            _put_rows(state, known, _take_rows(self._state, known))
        return state

    def _run(
        self, vectors: NDArray[np.float32], batch: PackedBatch, job: EmbeddingOptions, before: States | None
    ) -> tuple[NDArray[np.float32], States | None]:
        """Compute the requested layers of a batch, (tokens, D) or (L+1, tokens, D), and the state after it."""
        if job.weights is None or any(job.weights[1:]):
            return self.engine.run(vectors, batch, job.weights, before)
        # Layer 0 alone needs no LSTM, so a carried state stays as it is. Both directions read the same layer 0.
        layer = vectors[batch.tokens[batch.inner]] * np.float32(job.weights[0])
        return np.concatenate([layer] * (2 if self.config.bidirectional else 1), axis=1), before

    def _finish(self, arrays: list[NDArray[np.float32]], job: EmbeddingOptions) -> list[NDArray[np.float32]]:
        """Pool the arrays, or copy them, since a view of one sentence would keep its whole batch in memory."""
        if job.pool is None:
            return [array.copy() for array in arrays]
        bidirectional = self.config.bidirectional
        return [pool_tokens(array, job.pool, bidirectional=bidirectional) for array in arrays]


def load(source: str | Path, *, device: str | torch.device = "cpu", precision: Precision = "float32") -> Embedder:
    """Load a model of any known format, ready to embed sentences.

    Args:
        source: A path or name of a model, as `elmo.formats.load` takes it.
        device: The device to compute on, as in `Embedder`.
        precision: The precision of matrix products, as in `Embedder`.

    Raises:
        ElmoError: If the model cannot be read, or the device or precision is not available.
    """
    return Embedder(formats.load(source, with_softmax=False), device=device, precision=precision)


def find_gpu(device: str | torch.device) -> torch.device | None:
    """Return the device if it is not the processor, and None if it is."""
    if means_processor(str(device)):
        return None
    if isinstance(device, str):
        from elmo.nn.devices import find_device

        device = find_device(device)
    return None if device.type == "cpu" else device


def _take_rows(state: States, rows: Sequence[int]) -> States:
    return tuple(StateArrays(*(part[:, list(rows)] for part in direction)) for direction in state)


def _put_rows(state: States, rows: Sequence[int], new: States) -> None:
    """Replace `rows` of `state` by those of `new`."""
    for before, after in zip(state, new, strict=True):
        for old, part in zip(before, after, strict=True):
            old[:, list(rows)] = part


def _with_other_rows(new: States, old: States | None) -> States:
    """Return `new` followed by the rows of `old` beyond its own: after a smaller batch, the others are unchanged."""
    if old is None:
        return new
    return tuple(
        StateArrays(*(np.concatenate([n, o[:, n.shape[1] :]], axis=1) for o, n in zip(before, after, strict=True)))
        for before, after in zip(old, new, strict=True)
    )
