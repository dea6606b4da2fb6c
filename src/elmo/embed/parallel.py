"""Embeds on several devices at once, with one process for each. Results come in the order of the text."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmo.config import BiLMConfig, TextConfig
from elmo.embed.batching import Sentence
from elmo.embed.embedder import Embedder, find_gpu, lasting_source, load
from elmo.embed.engine import Precision
from elmo.embed.handover import Parcel, pack, unpack
from elmo.embed.sentence_embedder import EmbeddedWindow, EmbeddingOptions, SentenceEmbedder
from elmo.errors import ElmoError
from elmo.nn.processor import num_threads, prepare_device, use_threads
from elmo.text.characters import refuse_one_string
from elmo.text.parallel import start_worker

T = TypeVar("T")

WINDOWS_PER_DEVICE = 2
"""Number of windows on the way for each device: one that it works on, and one that waits. While a slow device works on
the window that is due next, the others may get more than two each, up to all the rest."""


class _LoadedModel(NamedTuple):
    """What each process reports about the model that it has loaded."""

    config: BiLMConfig
    fingerprint: str
    warm_fingerprint: str
    precision: str
    text: TextConfig | None
    vocabulary_file: Path | None
    batch_tokens: int
    warnings: tuple[str, ...]


class ParallelEmbedder(SentenceEmbedder):
    """Embeds as `Embedder` does, on several devices, each in a process of its own that loads the model.

    ```python
    with ParallelEmbedder("model", ["cuda:0", "cuda:1"]) as model:
        model.write("vectors.h5", sentences)
    ```
    Vectors and their order are those of a single device. With `state="carry"`, each device computes the same rows of
    every batch and keeps their states. The processes are spawned, so a script needs the usual
    `if __name__ == "__main__":`.

    Args:
        source: A path or name of a model, as `elmo.load` takes it.
        devices: Names such as `"cuda:0"` or `"cpu"`. A name that appears several times gets several processes;
            processes on the processor share its threads.
        precision: The precision of matrix products (see `Precision`). All devices must compute in the same one.

    Raises:
        ElmoError: If `devices` is empty, or names a device that does not exist, if the model cannot be read, if a
            process dies, or if the devices choose different precisions for `"auto"`.
    """

    def __init__(self, source: str | Path, devices: Sequence[str], *, precision: Precision = "float32") -> None:
        refuse_one_string("devices", devices)
        devices = list(devices or ())
        if not devices:
            raise ElmoError("`devices`: the list is empty; name at least one device")
        if multiprocessing.current_process().daemon:
            raise ElmoError(
                "`devices`: this process may start no others (it is a worker of a pool); use elmo.load in it"
            )
        gpus = list(map(find_gpu, devices))
        self._gpu = gpus[0]
        self._most_on_the_way = WINDOWS_PER_DEVICE * len(devices)
        self.source = lasting_source(source)
        threads = max(1, num_threads() // max(1, gpus.count(None)))
        self._workers = [_Worker(device) for device in devices]
        try:
            starts = [worker.submit(_start, source, worker.device, precision, threads) for worker in self._workers]
            facts = [worker.wait(start) for worker, start in zip(self._workers, starts, strict=True)]
            if len({(fact.fingerprint, fact.precision) for fact in facts}) > 1:
                raise ElmoError(f"`devices`: {', '.join(devices)} compute in different precisions; name one precision")
        except BaseException:
            self.close()
            raise
        self.config, self.fingerprint, self.warm_fingerprint, self.precision = facts[0][:4]
        self.text, self.vocabulary_file = facts[0].text, facts[0].vocabulary_file
        self.batch_tokens = min(fact.batch_tokens for fact in facts)
        for warning in dict.fromkeys(warning for fact in facts for warning in fact.warnings):
            warnings.warn(warning, stacklevel=2)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: the processes belong to this object alone."""
        raise ElmoError("a ParallelEmbedder can't be pickled or copied; make one where it is needed")

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def process_ids(self) -> list[int]:
        """The ids of the processes that compute."""
        return [worker.wait(worker.submit(os.getpid)) for worker in self._workers]

    def reset_state(self) -> None:
        """Forget the state that calls with `state="carry"` left on every device."""
        for worker, future in [(worker, worker.submit(_reset_state)) for worker in self._workers]:
            worker.wait(future)

    def _embed_windows(self, cut: Iterable[list[Sentence]], options: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        return self._in_parts(cut, options) if options.carry else self._in_turn(cut, options)

    def _in_parts(self, batches: Iterable[list[Sentence]], options: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        """Give each device the same rows of every batch, because a row's state goes to that row of the next batch.

        A batch is sent only after the previous one has come back. If the caller stops reading early, the states are
        then those after the batches that were read, as on a single device.
        """
        num = len(self._workers)
        for batch in batches:
            # Row r belongs to device r % num, independently of the batch size, which may change between calls.
            busy = self._workers[: len(batch)]
            sent = [worker.submit(_embed, batch[number::num], options) for number, worker in enumerate(busy)]
            try:
                parts = [_take(worker, future) for worker, future in zip(busy, sent, strict=True)]
            except ElmoError:
                for future in sent:
                    future.add_done_callback(_free)
                raise
            yield batch, [parts[row % num][row // num] for row in range(len(batch))]

    def _in_turn(self, cut: Iterable[list[Sentence]], options: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        """Give each window to the device with the fewest waiting windows."""
        on_the_way: deque[tuple[list[Sentence], _Worker, Future[Parcel]]] = deque()

        def take() -> EmbeddedWindow:
            window, worker, future = on_the_way.popleft()
            return window, _take(worker, future)

        try:
            for window in cut:
                if len(on_the_way) == self._most_on_the_way:
                    yield take()
                worker = min(self._workers, key=lambda worker: worker.num_waiting)
                on_the_way.append((window, worker, worker.submit(_embed, window, options)))
            while on_the_way:
                yield take()
        finally:
            # These are left only if the caller stops before the end of the stream. They are not cancelled, since a
            # pool whose process was killed is ending them itself at the same time, and fails if both do it.
            for _, _, future in on_the_way:
                future.add_done_callback(_free)


def _take(worker: _Worker, future: Future[Parcel]) -> list[NDArray[np.float32]]:
    """Wait for the arrays of a window, and take them over from the device's process."""
    parcel = worker.wait(future)  # outside of `try`: an OSError of the device's process has another cause
    try:
        return unpack(parcel)
    except OSError:
        raise worker.died() from None


def _free(future: Future[Parcel]) -> None:
    """Free the memory of arrays that will not be read."""
    if not future.cancelled() and future.exception() is None:
        with suppress(OSError):  # the sender has ended, which freed its memory
            unpack(future.result())


class _Worker:
    """The process of one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        # Spawned rather than forked: other threads may hold locks, and CUDA does not work in a forked process.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=start_worker)
        self._waiting: list[Future[Any]] = []
        self._has_answered = self._is_closed = False

    @property
    def num_waiting(self) -> int:
        """Number of calls that are not finished yet."""
        self._waiting = [future for future in self._waiting if not future.done()]
        return len(self._waiting)

    def submit(self, call: Callable[..., T], *arguments: object) -> Future[T]:
        """Call a function in the process."""
        try:
            future = self._pool.submit(call, *arguments)
        except BrokenProcessPool:
            raise self.died() from None
        except RuntimeError:
            if self._is_closed:
                raise ElmoError("the embedder was closed; make a new one") from None
            raise  # Python's own advice, if a script without a guard is imported by the process that it started
        self._waiting.append(future)
        return future

    def wait(self, future: Future[T]) -> T:
        """Wait for a call, and return its result or raise its error."""
        try:
            result = future.result()
        except BrokenProcessPool:
            raise self.died() from None
        self._has_answered = True
        return result

    def close(self) -> None:
        """End the process."""
        self._is_closed = True
        self._pool.shutdown(cancel_futures=True)

    def died(self) -> ElmoError:
        """Return the error to raise if the process has ended by itself."""
        if not self._has_answered:
            return ElmoError(
                f"device {self.device}: its process ended before the model was loaded; put what a script does under "
                "if __name__ == '__main__':, or free some memory if it has run out"
            )
        return ElmoError(
            f"device {self.device}: its process was killed, perhaps because memory ran out; free some, or name fewer "
            "devices, and start the same command again to continue"
        )


_embedder: Embedder | None = None
"""The embedder of this process, if it is the process of a device."""


def _start(source: str | Path, device: str, precision: Precision, threads: int) -> _LoadedModel:
    global _embedder
    use_threads(threads)
    with warnings.catch_warnings(record=True) as caught:  # the caller says them, once for all processes
        _embedder = load(source, device=prepare_device(device), precision=precision)
    messages = tuple(str(warning.message) for warning in caught)
    own = _embedder.fingerprint, _embedder.warm_fingerprint
    text = _embedder.text, _embedder.vocabulary_file
    return _LoadedModel(_embedder.config, *own, _embedder.precision, *text, _embedder.batch_tokens, messages)


def _embed(window: list[Sentence], options: EmbeddingOptions) -> Parcel:
    assert _embedder is not None
    return pack(_embedder.embed_window(window, options))


def _reset_state() -> None:
    assert _embedder is not None
    _embedder.reset_state()
