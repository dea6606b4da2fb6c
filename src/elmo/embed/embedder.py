"""Turns sentences into contextual vectors on one device (`Embedder`); see `elmo.embed.parallel` for several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from elmo import formats
from elmo.embed.batching import PackedBatch, Sentence, plan_batches
from elmo.embed.engine import Precision, make_engine
from elmo.embed.fingerprint import fingerprint
from elmo.embed.layers import Layers
from elmo.embed.pooling import Pool, pool_tokens
from elmo.embed.sentence_embedder import EmbeddedWindow, EmbeddingOptions, SentenceEmbedder
from elmo.errors import ElmoError
from elmo.formats.model import Model, State, require_model, require_warm_state
from elmo.formats.sources import is_bundled, is_download, local_path, require_source
from elmo.formats.stored import StateArrays, States, put_rows, take_first_rows, take_rows, with_first_rows
from elmo.formats.tensorflow import prefix_of
from elmo.nn.processor import means_processor, name_of
from elmo.targets import is_there
from elmo.text.characters import number_types

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = {"cpu": 2048, "cuda": 32768}
"""Maximum number of tokens in a batch, by type of device: enough to keep it busy. See also `tokens_that_fit`."""

BYTES_PER_CELL = 110
"""What a batch on a GPU takes for each token and LSTM cell, at most, while both directions are computed in float32."""


class Embedder(SentenceEmbedder):
    """Embeds sentences with a biLM on one device; `elmo.load` returns one.

    ```python
    model = elmo.load("model")
    vectors = model.embed([["A", "new", "play"], ["Children", "play"]])  # (3, D) and (2, D)
    ```
    Except with `state="carry"`, a sentence's vectors depend on that sentence alone. Neither its neighbors nor the
    batch size change them, apart from rounding (about 1e-6 in float32; none at all if the native module computes).
    `<S>` and `</S>` are added to each sentence, and their vectors removed.

    On a processor, the embedder uses as many threads as torch does (`torch.set_num_threads`) and packs the weights
    once: it does not follow a model whose training goes on, and does not keep that model in memory. Where there are
    native kernels, it does not import torch. Several threads of a program may use one embedder at the same time, except
    with `state="carry"`.

    What `load` returned can be pickled, and so sent to other processes. A pickle holds the name of the model, not its
    weights, and whoever reads it loads the model again. Copies (`copy.deepcopy`) share the weights.

    Args:
        model: The model to embed with. If `device` is a GPU, its biLM is moved there and put into evaluation mode.
        device: A torch device or its name, such as `"cpu"`, `"cuda:1"` or `"auto"`, a GPU if there is one.
        precision: The precision of matrix products, which trades accuracy for speed (see `Precision`).

    Raises:
        ElmoError: If there is no such device, or it does not compute in this precision.
    """

    def __init__(self, model: Model, *, device: str | torch.device = "cpu", precision: Precision = "float32") -> None:
        require_model(model)
        self.config, self.text, self.vocabulary_file = model.config, model.text, model.vocabulary_file
        self._gpu = find_gpu(device)
        self.engine = make_engine(model, precision, self._gpu)
        """What computes the vectors (see `elmo.embed.engine`)."""
        self.precision = self.engine.precision
        # Stored token vectors in float32 are what the token encoder computes in float32.
        with_types = model.types is not None and not (model.types.is_exact and self.precision == "float32")
        self.has_rounded_types = with_types
        """Whether vectors of words are stored that differ, if only by rounding, from those of the token encoder."""
        self.fingerprint = self.warm_fingerprint = fingerprint(model, with_types=with_types)
        if model.warm_arrays is not None:
            self.warm_fingerprint = fingerprint(model, with_warm_state=True, with_types=with_types)
        self._warm_state = model.warm_arrays
        self._state: States | None = None
        self.batch_tokens = BATCH_TOKENS["cpu"] if self._gpu is None else _tokens_on(self._gpu, model)

    def __copy__(self) -> Self:
        """Return an embedder that shares the weights, and from now on has a carried state of its own."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: object) -> Self:
        """Return a copy that shares the weights, which never change. Packed ones could not be copied."""
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the source of the model instead of its packed weights, which only this process can use.

        Raises:
            ElmoError: If the model has no source because it was made in memory.
        """
        if self.source is None:
            raise ElmoError(
                "this Embedder can't be pickled, because its model was not loaded by elmo.load: load it "
                "where it is needed (a trained task by elmo.tasks.load), or write it to a folder first "
                "(elmo.formats.save_native)"
            )
        device = "cpu" if self._gpu is None else str(self._gpu)
        state = {"_state": self._state, "batch_tokens": self.batch_tokens}
        return _load_again, (self.source, device, self.precision, self.fingerprint), state

    def reset_state(self) -> None:
        """Forget the state that calls with `state="carry"` left, so that the next batch starts from zeros."""
        self._state = None

    def _options(self, layers: Layers, pool: Pool | None, state: State, batch_size: int | None) -> EmbeddingOptions:
        if state == "warm":
            require_warm_state(self._warm_state)
        return super()._options(layers, pool, state, batch_size)

    def _embed_windows(self, cut: Iterable[list[Sentence]], options: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        return ((window, self.embed_window(window, options)) for window in cut)

    def embed_window(self, window: Sequence[Sentence], options: EmbeddingOptions) -> list[NDArray[np.float32]]:
        """Embed one window of sentences.

        With `state="carry"` the window is the batch of the caller. It may still be computed in several parts, to
        bound memory: a sentence's state depends only on its own row of the batch before.

        Args:
            window: Lists of tokens.
            options: The options of the call.

        Returns:
            One array per sentence, in the order of the window.

        Raises:
            ElmoError: If the vectors are not finite.
        """
        arrays: dict[int, NDArray[np.float32]] = {}
        state = self._before(len(window), options)
        size = None if options.carry else options.batch_size
        types, numbered = number_types(window)
        vectors = self.engine.cache.vectors(types)
        for indices in plan_batches([len(sentence) for sentence in window], self.batch_tokens, size):
            batch = PackedBatch.of([numbered[index] for index in indices])
            before = take_rows(state, indices) if options.carry and state else state
            mixed, after = self._run(vectors, batch, options, before)
            if not np.isfinite(mixed).all():
                raise ElmoError(_not_finite(options.weights))
            arrays.update(zip(indices, self._finish(batch.split(mixed), options), strict=True))
            if options.carry and state and after:
                put_rows(state, indices, after)
        if options.carry and state:
            self._state = with_first_rows(self._state, state)
        return [arrays[index] for index in range(len(window))]

    def _before(self, num_sentences: int, options: EmbeddingOptions) -> States | None:
        """Return the state that each of the next sentences starts from, or one row from which all do.

        None stands for zeros. A carried state is a copy, with zeros in rows that no earlier batch had.
        """
        if options.state == "warm":
            return require_warm_state(self._warm_state)
        if not options.carry:
            return None
        if self._state is not None:
            return take_first_rows(self._state, num_sentences)
        lstm = self.config.lstm
        shapes = [(lstm.n_layers, num_sentences, width) for width in (lstm.projection_dim, lstm.dim)]
        return tuple(StateArrays(*(np.zeros(shape, np.float32) for shape in shapes)) for _ in self.config.directions)

    def _run(
        self, vectors: NDArray[np.float32], batch: PackedBatch, options: EmbeddingOptions, before: States | None
    ) -> tuple[NDArray[np.float32], States | None]:
        """Compute the requested layers of a batch, (tokens, D) or (L+1, tokens, D), and the state after it."""
        if options.carry or options.weights is None or any(options.weights[1:]):
            return self.engine.run(vectors, batch, options.weights, before)
        # Layer 0 alone needs no LSTM, unless its state is to be carried. Both directions read the same layer 0.
        layer = vectors[batch.tokens[batch.inner]] * np.float32(options.weights[0])
        return np.concatenate([layer] * len(self.config.directions), axis=1), before

    def _finish(self, arrays: list[NDArray[np.float32]], options: EmbeddingOptions) -> list[NDArray[np.float32]]:
        """Pool the arrays, or copy them, since a view of one sentence would keep its whole batch in memory."""
        if options.pool is None:
            return [array.copy() for array in arrays]
        bidirectional = self.config.bidirectional
        return [pool_tokens(array, options.pool, bidirectional=bidirectional) for array in arrays]


def _not_finite(weights: Sequence[float] | None) -> str:
    """Return what to say of vectors that are not finite, if the layers were given these weights."""
    if weights is not None and max(map(abs, weights)) > 1:
        return "with these weights of the layers, the vectors are not finite; give smaller ones"
    return "the model's vectors are not finite: its weights are damaged, or far too large; get the model again"


def load(source: str | Path, *, device: str | torch.device = "cpu", precision: Precision = "float32") -> Embedder:
    """Load a model of any known format, ready to embed sentences.

    Args:
        source: A path of a folder, file or archive; `"en"` or another name of a published model; a repository
            `"owner/name"` on the Hugging Face Hub; or an address (see `elmo.formats.load`).
        device: The device to compute on, as in `Embedder`.
        precision: The precision of matrix products, as in `Embedder`.

    Returns:
        The embedder, whose `embed` turns sentences into vectors.

    Raises:
        ElmoError: If the model cannot be read, or the device or precision is not available.
    """
    embedder = Embedder(formats.load(source, with_softmax=False), device=device, precision=precision)
    embedder.source = lasting_source(source)
    return embedder


def lasting_source(source: str | Path) -> str | Path:
    """Return a source that means the same in other folders and processes: a name, or an absolute path."""
    require_source(source)
    if is_bundled(source) or is_download(source):
        return source
    path = local_path(source)
    # A checkpoint of TensorFlow is named by what its files have in common, which is itself no file.
    is_path = is_there(path) or prefix_of(path) is not None
    return path.absolute() if is_path else source  # or else a repository on the Hub


def _load_again(source: str | Path, device: str, precision: Precision, fingerprint: str) -> Embedder:
    """Load the model of a pickled embedder, if it is still the same."""
    embedder = load(source, device=device, precision=precision)
    if embedder.fingerprint != fingerprint:
        raise ElmoError(f"{source}: holds another model than when the Embedder was pickled; pickle a new one")
    return embedder


def find_gpu(device: str | torch.device) -> torch.device | None:
    """Return the device if it is not the processor, and None if it is."""
    if means_processor(name_of(device)):
        return None
    from elmo.nn.devices import find_device

    found = find_device(device)
    return None if found.type == "cpu" else found


def tokens_that_fit(num_bytes: int, num_cells: int) -> int:
    """Return the maximum number of tokens in a batch on a GPU.

    Args:
        num_bytes: The memory of the GPU, half of which a batch may take.
        num_cells: The number of cells of an LSTM.
    """
    return max(BATCH_TOKENS["cpu"], min(BATCH_TOKENS["cuda"], num_bytes // 2 // (BYTES_PER_CELL * num_cells)))


def _tokens_on(gpu: torch.device, model: Model) -> int:
    import torch

    return tokens_that_fit(torch.cuda.get_device_properties(gpu).total_memory, model.config.lstm.dim)
