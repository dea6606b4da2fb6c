"""Embedding on several devices at once: a process for each, fed and collected in the text's order."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from elmo.config import BiLMConfig
from elmo.embed.batching import Sentence
from elmo.embed.embedder import (
    BATCH_TOKENS,
    EmbeddedWindow,
    Embedder,
    EmbeddingOptions,
    SentenceEmbedder,
    load,
)
from elmo.embed.engine import Precision
from elmo.embed.handover import Parcel, pack, unpack
from elmo.errors import ElmoError
from elmo.nn.devices import find_device, use_device
from elmo.text.parallel import start_worker

T = TypeVar("T")

WINDOWS_PER_DEVICE = 2
"""Windows on the way to and from a device: one that it works on, one that waits there."""


class _Facts(NamedTuple):
    """What the processes tell of the model that they have loaded."""

    config: BiLMConfig
    fingerprint: str
    warm_fingerprint: str
    precision: str
    batch_tokens: int


class ParallelEmbedder(SentenceEmbedder):
    """Embeds as `Embedder` does, on several devices, each in a process of its own that loads the model from `source`.

    ```python
    with ParallelEmbedder("model", ["cuda:0", "cuda:1"]) as model:
        model.write("vectors.h5", sentences)
    ```
    Vectors and their order are those of one device. Processors that are named several times (`["cpu", "cpu"]`) share
    torch's threads. With `state="carry"`, each device computes the same rows of every batch, whose states it keeps.
    As always where Python starts new processes, a script needs its `if __name__ == "__main__":`.
    """

    def __init__(self, source: str | Path, devices: Sequence[str], *, precision: Precision = "float32") -> None:
        if not devices:
            raise ElmoError("devices: none is named")
        self.device, *_ = map(find_device, devices)
        num_threads = max(1, torch.get_num_threads() // max(1, devices.count("cpu")))
        self._workers = [_Worker(device) for device in devices]
        try:
            starts = [w.submit(_start, source, w.device, precision, num_threads) for w in self._workers]
            facts = [worker.wait(start) for worker, start in zip(self._workers, starts, strict=True)]
            if len({(fact.fingerprint, fact.precision) for fact in facts}) > 1:
                raise ElmoError(f"devices: {', '.join(devices)} compute in different precisions; choose one of them")
        except BaseException:
            self.close()
            raise
        self.config, self.fingerprint, self.warm_fingerprint, self.precision, _ = facts[0]
        self._batch_tokens = min(fact.batch_tokens for fact in facts)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def reset_state(self) -> None:
        """Forget the state that `state="carry"` left on every device."""
        for future in [worker.submit(_reset_state) for worker in self._workers]:
            future.result()

    def _embed_windows(self, cut: Iterable[list[Sentence]], job: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        return self._in_parts(cut, job) if job.carry else self._in_turn(cut, job)

    def _in_parts(self, batches: Iterable[list[Sentence]], job: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        """Give each device the same rows of every batch, since a row's state goes to the same row of the next batch.

        A batch is handed out when the one before is back, so that a stream that is left early leaves the states of the
        batches that were taken from it, as on one device.
        """
        num = len(self._workers)
        for batch in batches:
            # Row r belongs to device r % num, whatever the size of this call's batches.
            busy = self._workers[: len(batch)]
            sent = [worker.submit(_embed, batch[number::num], job) for number, worker in enumerate(busy)]
            try:
                parts = [_take(worker, future) for worker, future in zip(busy, sent, strict=True)]
            except ElmoError:
                for future in sent:
                    future.add_done_callback(_free)
                raise
            yield batch, [parts[row % num][row // num] for row in range(len(batch))]

    def _in_turn(self, cut: Iterable[list[Sentence]], job: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        """Give each window to the device that has the least to do."""
        on_the_way: deque[tuple[list[Sentence], _Worker, Future[Parcel]]] = deque()

        def take() -> EmbeddedWindow:
            window, worker, future = on_the_way.popleft()
            return window, _take(worker, future)

        try:
            for window in cut:
                if len(on_the_way) == WINDOWS_PER_DEVICE * len(self._workers):
                    yield take()
                worker = min(self._workers, key=lambda worker: worker.num_waiting)
                on_the_way.append((window, worker, worker.submit(_embed, window, job)))
            while on_the_way:
                yield take()
        finally:
            for _, _, future in on_the_way:  # of a stream that is left before its end
                future.add_done_callback(_free)  # not cancelled: a pool whose process was killed ends them itself


def _take(worker: _Worker, future: Future[Parcel]) -> list[NDArray[np.float32]]:
    """The arrays that a device's process hands over."""
    try:
        return unpack(worker.wait(future))
    except OSError:
        raise worker.died() from None


def _free(future: Future[Parcel]) -> None:
    """Free the memory of arrays that nobody will read."""
    if not future.cancelled() and future.exception() is None:
        with suppress(OSError):  # the sender is gone, and its memory with it
            unpack(future.result())


class _Worker:
    """The process of one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        # not "fork": other threads may hold locks, and CUDA can't be used in a forked process
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=start_worker)
        self._waiting: list[Future[Any]] = []

    @property
    def num_waiting(self) -> int:
        """Calls that aren't done yet."""
        self._waiting = [future for future in self._waiting if not future.done()]
        return len(self._waiting)

    def submit(self, call: Callable[..., T], *arguments: object) -> Future[T]:
        """Have the process call a function."""
        try:
            future = self._pool.submit(call, *arguments)
        except BrokenProcessPool:
            raise self.died() from None
        self._waiting.append(future)
        return future

    def wait(self, future: Future[T]) -> T:
        """What the function returned, or the error that it raised."""
        try:
            return future.result()
        except BrokenProcessPool:
            raise self.died() from None

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown(cancel_futures=True)

    def died(self) -> ElmoError:
        """What to tell the user if the process isn't there any more."""
        return ElmoError(
            f"device {self.device}: its process was killed, perhaps for want of memory; with enough of it, or fewer "
            "devices, the same command goes on"
        )


_embedder: Embedder | None = None
"""In a process of a device: its own."""


def _start(source: str | Path, device: str, precision: Precision, num_threads: int) -> _Facts:
    global _embedder
    torch.set_num_threads(num_threads)
    _embedder = load(source, device=use_device(device), precision=precision)
    batch_tokens = BATCH_TOKENS[_embedder.device.type]
    own = _embedder.fingerprint, _embedder.warm_fingerprint
    return _Facts(_embedder.config, *own, _embedder.precision, batch_tokens)


def _embed(window: list[Sentence], job: EmbeddingOptions) -> Parcel:
    assert _embedder is not None
    return pack(_embedder.embed_window(window, job))


def _reset_state() -> None:
    assert _embedder is not None
    _embedder.reset_state()
