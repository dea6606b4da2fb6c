"""Embeddings on disk: `.h5` (AllenNLP's layout), `.npz` or `.parquet`, complete or not there at all.

Entry number i of a file is sentence number i of the text, counted from 0, empty ones included.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
from tqdm import tqdm

from elmo.embed.batching import Sentence
from elmo.embed.layers import Entry, VectorLayout
from elmo.embed.unfinished import EmbeddingProgress, Unfinished, unfinished_work
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.schema import require_choice
from elmo.targets import require_parent

ENDINGS = (".h5", ".hdf5", ".npz", ".parquet")
DType = Literal["float32", "float16"]
DTYPES = ("float32", "float16")

COMMIT_SECONDS = 10.0
"""How often what was written is made safe: about as much work is lost when a run is killed."""

BAR = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
BAR_WITHOUT_TOTAL = "{elapsed}{postfix}"


@dataclass(frozen=True)
class Written:
    """What was written. `notes` are sentences on what the reader of the file should know.

    `seconds` are those of all starts, where a run was interrupted.
    """

    path: Path
    num_sentences: int
    num_tokens: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        """Rate of the whole way, reading and writing included."""
        return self.num_tokens / max(self.seconds, 1e-9)


class Writer(Protocol):
    """One file format, in a folder of its own; all runs in a thread of its own, one call at a time."""

    def add(self, window: list[Entry]) -> None:
        """Append entries."""
        ...

    def commit(self) -> dict[str, int]:
        """Make what was added safe; returns the sizes to go on from, which a later writer takes."""
        ...

    def finish(self) -> list[str]:
        """Write what comes last, so that the file `DATA` is complete; returns notes for the user."""
        ...

    def close(self) -> None:
        """Close the files, finished or not."""
        ...


Embed = Callable[[Iterable[Sentence], int], Iterable[list[Entry]]]
"""Embeds sentences, window by window."""


def write_embeddings(
    path: str | Path,
    sentences: Iterable[Sentence],
    embed: Embed,
    layout: VectorLayout,
    job: Mapping[str, object],
    *,
    dtype: DType = "float32",
    overwrite: bool = False,
    resumable: bool = True,
    total_bytes: int | None = None,
) -> Written:
    """Write embedded sentences, each window while the next is computed.

    The file appears under its name when it is complete. Until then it is in a folder beside `path`, and where a run
    was interrupted the next one goes on (see `elmo.embed.unfinished`): `job` says, in JSON's types, what decides on
    the vectors. Unless `resumable`, nothing is left by an interruption.
    """
    path = Path(path)
    check_target(path, overwrite)
    require_choice("dtype", dtype, DTYPES)
    with unfinished_work(path, {**job, "dtype": dtype}, overwrite) as work:
        rest, counter = work.skip(sentences)
        before = work.progress
        start = time.perf_counter() - before.seconds
        with (
            _open(work, layout, np.dtype(dtype)) as writer,
            _Saving(work, writer, resumable) as saving,
            _progress_bar(before, total_bytes) as show,
        ):
            for window in embed(rest, before.num_sentences):
                counted = counter.add([entry.tokens for entry in window])
                progress = replace(counted, seconds=time.perf_counter() - start)
                saving.add(window, progress)
                show(progress)
            notes = saving.finish()
    if before.num_sentences:
        notes.insert(0, f"went on after {before.num_sentences:,} sentences of a run that was interrupted")
    done = counter.progress
    return Written(path, done.num_sentences, done.num_tokens, time.perf_counter() - start, tuple(notes))


class _Saving:
    """Writes windows in a thread of its own, and makes them safe from time to time."""

    def __init__(self, work: Unfinished, writer: Writer, resumable: bool) -> None:
        self._work, self._writer, self._resumable = work, writer, resumable
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elmo-writer")
        self._pending: Future[None] | None = None
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()

    def add(self, window: list[Entry], progress: EmbeddingProgress) -> None:
        """Have a window written; `progress` is that after it."""
        self._wait()  # bounds memory
        self._pending = self._thread.submit(self._write, window, progress)

    def finish(self) -> list[str]:
        """Complete the file, and give it its name; returns the writer's notes."""
        self._wait()
        with self._in_one_sentence():
            notes = self._writer.finish()
            self._writer.close()  # Windows renames no open file
            self._work.complete()
        return notes

    def _wait(self) -> None:
        """Wait for the window before, and raise here what went wrong there."""
        if self._pending is not None:
            self._pending.result()

    def _write(self, window: list[Entry], progress: EmbeddingProgress) -> None:
        with self._in_one_sentence():
            self._writer.add(window)
            if self._resumable and time.monotonic() - self._last >= COMMIT_SECONDS:
                self._work.save(replace(progress, sizes=self._writer.commit()))
                self._last = time.monotonic()

    @contextmanager
    def _in_one_sentence(self) -> Generator[None]:
        """Say that the disk is full, or what else keeps a file from being written, and what is kept."""
        try:
            yield
        except OSError as error:
            kept = self._work.progress.num_sentences
            again = f"goes on after {kept:,} sentences" if kept else "starts anew"
            raise ElmoError(
                f"{self._work.path}: can't be written ({error}); when that is mended, the same command {again}"
            ) from error


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse what can't be written before anything is computed."""
    if path.suffix not in ENDINGS:
        raise ElmoError(f"{path}: the ending decides on the format; use one of {', '.join(ENDINGS)}")
    require_parent(path)
    if path.is_dir():
        raise ElmoError(f"{path}: is a folder")
    if path.exists() and not overwrite:
        raise ElmoError(f"{path}: exists already; remove it, or pass --overwrite (overwrite=True)")
    if path.suffix == ".parquet":
        import_extra("pyarrow", f"{path}: writing Parquet")


@contextmanager
def _progress_bar(before: EmbeddingProgress, total_bytes: int | None) -> Generator[Callable[[EmbeddingProgress], None]]:
    """Shows progress on a terminal: remaining time by the text's bytes, since lines are of all lengths."""
    bar: Any
    with tqdm(
        total=total_bytes,
        initial=before.num_bytes,
        bar_format=BAR_WITHOUT_TOTAL if total_bytes is None else BAR,
        disable=None,
        smoothing=0.05,
    ) as bar:

        def show(progress: EmbeddingProgress) -> None:
            rate = (progress.num_tokens - before.num_tokens) / max(progress.seconds - before.seconds, 1e-9)
            bar.set_postfix_str(f"{progress.num_sentences:,} sentences, {rate:,.0f} tokens/s", refresh=False)
            # Tokenized text may be longer than the file.
            place = progress.num_bytes if total_bytes is None else min(progress.num_bytes, total_bytes)
            bar.update(place - bar.n)

        yield show


@contextmanager
def _open(work: Unfinished, layout: VectorLayout, dtype: np.dtype[Any]) -> Generator[Writer]:
    """The writer for a file ending; formats are imported when used, pyarrow being an extra."""
    suffix = work.path.suffix
    if suffix == ".parquet":
        from elmo.embed.parquet import ParquetWriter as Format
    elif suffix == ".npz":
        from elmo.embed.npz import NpzWriter as Format
    else:
        from elmo.embed.hdf5 import HDF5Writer as Format
    writer = Format(work.folder, layout, dtype, work.progress.sizes)
    try:
        yield writer
    finally:
        writer.close()
