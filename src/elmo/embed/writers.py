"""Writes embeddings to `.h5` (in AllenNLP's layout), `.npz` or `.parquet` files, which are complete once they exist.

Entry i of a file belongs to sentence i of the text, counted from 0. Empty sentences count, too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from elmo.embed.batching import Sentence
from elmo.embed.description import Facts, checked_facts
from elmo.embed.layers import Entry, VectorLayout
from elmo.embed.unfinished import EmbeddingProgress, Unfinished, tidy_up, unfinished_work
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.nn.processor import submit
from elmo.progress import show_progress
from elmo.schema import require_choice
from elmo.targets import require_file_target

if TYPE_CHECKING:
    from elmo.embed.hdf5 import HDF5Writer
    from elmo.embed.npz import NpzWriter
    from elmo.embed.parquet import ParquetWriter

    Writer = HDF5Writer | NpzWriter | ParquetWriter
    """What writes one format, into a folder of its own. Only one call of its methods runs at a time."""

ENDINGS = (".h5", ".hdf5", ".npz", ".parquet")
DType = Literal["float32", "float16"]
DTYPES: tuple[str, ...] = get_args(DType)

COMMIT_SECONDS = 10.0
"""Seconds between two commits to disk. A run that is killed loses about this much work."""


@dataclass(frozen=True)
class Written:
    """Facts about a finished file.

    `seconds` is the time that all runs took together, if some were interrupted. `notes` are sentences that the
    reader of the file should know.
    """

    path: Path
    num_sentences: int
    num_tokens: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second, including the time for reading and writing."""
        return self.num_tokens / max(self.seconds, 1e-9)


Embed = Callable[[Iterable[Sentence], int], Iterable[list[Entry]]]
"""Embeds sentences window by window. The second argument is the number of the first sentence, for error messages."""


def write_embeddings(
    path: str | Path,
    sentences: Iterable[Sentence],
    embed: Embed,
    layout: VectorLayout,
    job: Mapping[str, object],
    *,
    facts: Facts | None,
    dtype: DType,
    overwrite: bool,
    resumable: bool,
    total_bytes: int | None,
) -> Written:
    """Embed sentences and write them to a file, each window while the next one is computed.

    The file appears under its name when it is complete. Until then it grows in a folder next to `path`, and the same
    call continues an interrupted one (see `elmo.embed.unfinished`).

    Args:
        path: The file to write; its ending selects the format.
        sentences: Lists of tokens.
        embed: Computes the entries of all sentences that are not in the unfinished file yet.
        layout: The shape of a sentence's array.
        job: Everything that determines the vectors, as values that JSON can store. Unfinished work of another job is
            refused.
        facts: What to store in the file about what made it: strings or numbers by name.
        dtype: The type of the stored numbers.
        overwrite: Replace an existing file, and discard unfinished work of another job or text.
        resumable: Keep the finished part after an interruption.
        total_bytes: Size of the text in bytes of UTF-8, if known, to show the remaining time.

    Raises:
        ElmoError: If the file exists already, if the disk is full, if unfinished work belongs to another job or text,
            or if a fact is neither a string nor a number.
        OSError: If no file can be made there.
    """
    path = Path(path)
    require_vector_target(path, overwrite)
    require_choice("`dtype`", dtype, DTYPES)
    known = checked_facts(facts or {})
    with unfinished_work(path, {**job, "dtype": dtype}, overwrite) as work:
        rest, digest = work.skip(sentences)
        before = work.progress
        start = time.perf_counter() - before.seconds
        with (
            _open(work, layout, np.dtype(dtype), known) as writer,
            _Saving(work, writer, resumable, overwrite) as saving,
            _progress_bar(before, total_bytes) as show,
        ):
            for window in embed(rest, before.num_sentences):
                counted = digest.add([entry.tokens for entry in window])
                progress = replace(counted, seconds=time.perf_counter() - start)
                saving.add(window, progress)
                show(progress)
            notes = saving.finish()
    if before.num_sentences:
        notes.insert(0, f"continued an interrupted run after {before.num_sentences:,} sentences")
    done = digest.progress
    return Written(path, done.num_sentences, done.num_tokens, time.perf_counter() - start, tuple(notes))


class _Saving:
    """Writes windows in a background thread, and commits them to disk from time to time."""

    def __init__(self, work: Unfinished, writer: Writer, resumable: bool, overwrite: bool) -> None:
        self._work, self._writer, self._resumable, self._overwrite = work, writer, resumable, overwrite
        self._progress = work.progress
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elmo-writer")
        self._pending: Future[None] | None = None
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()

    def add(self, window: list[Entry], progress: EmbeddingProgress) -> None:
        """Start to write a window; `progress` includes it."""
        self._wait()  # at most one window waits to be written, which bounds memory
        self._progress = progress
        self._pending = submit(self._thread, self._write, window, progress)

    def finish(self) -> list[str]:
        """Complete the file, move it to its final path, and return the writer's notes.

        Raises:
            ElmoError: If there is a file by now, which may not be replaced. All work is kept, as far as it can be.
        """
        self._wait()
        with self._in_one_sentence():
            if not self._overwrite and os.path.lexists(self._work.path):
                if self._resumable:
                    self._commit(self._progress)
                raise ElmoError(
                    f"{self._work.path}: was created by another program in the meantime; move it away, and run "
                    "the same command again"
                )
            notes = self._writer.finish()
            self._writer.close()  # Windows does not rename a file that is open
            self._work.complete()
        return notes

    def _wait(self) -> None:
        """Wait until the previous window is written, and raise its error, if any, in this thread."""
        if self._pending is not None:
            self._pending.result()

    def _write(self, window: list[Entry], progress: EmbeddingProgress) -> None:
        with self._in_one_sentence():
            self._writer.add(window)
            if self._resumable and time.monotonic() - self._last >= COMMIT_SECONDS:
                self._commit(progress)
                self._last = time.monotonic()

    def _commit(self, progress: EmbeddingProgress) -> None:
        self._work.save(replace(progress, sizes=self._writer.commit()))

    @contextmanager
    def _in_one_sentence(self) -> Generator[None]:
        """Turn an error of the system, such as a full disk, into a message that says what is kept."""
        try:
            yield
        except OSError as error:
            kept = self._work.progress.num_sentences
            again = f"continues after {kept:,} sentences" if kept else "starts from the beginning"
            raise ElmoError(
                f"{self._work.path}: can't be written ({error}); once that is fixed, the same command {again}"
            ) from error


def require_vector_target(path: Path, overwrite: bool) -> None:
    """Check before any computation that `path` can be written.

    Raises:
        ElmoError: If the ending is unknown, if the parent folder is missing, if `path` is a folder, a link or (unless
            `overwrite` is true) a file, or if pyarrow is missing for `.parquet`.
    """
    if path.suffix.lower() not in ENDINGS:
        raise ElmoError(f"{path}: the ending selects the format; use one of {', '.join(ENDINGS)}")
    require_file_target(path)
    if path.is_symlink() and overwrite:
        raise ElmoError(f"{path}: is a link, which the new file would replace; name the file that it leads to")
    if os.path.lexists(path) and not overwrite:  # a link to nothing, too, which would be replaced
        tidy_up(path)
        raise ElmoError(f"{path}: exists already; remove it, or pass `overwrite=True`")
    if path.suffix.lower() == ".parquet":
        import_extra("pyarrow", f"{path}: writing Parquet")


@contextmanager
def _progress_bar(before: EmbeddingProgress, total_bytes: int | None) -> Generator[Callable[[EmbeddingProgress], None]]:
    """Show progress on a terminal. The remaining time is estimated from bytes, since the length of lines varies."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    with show_progress("embedding", "bytes", total_bytes, initial=before.num_bytes) as bar:

        def show(progress: EmbeddingProgress) -> None:
            rate = (progress.num_tokens - before.num_tokens) / max(progress.seconds - before.seconds, 1e-9)
            bar.set_postfix_str(f"{progress.num_sentences:,} sentences, {rate:,.0f} tokens/s", refresh=False)
            # A tokenizer may split words, and each token counts a byte for a separator: this can exceed the file.
            place = progress.num_bytes if total_bytes is None else min(progress.num_bytes, total_bytes)
            bar.update(place - bar.n)
            bar.refresh()  # `update` leaves out what comes soon after another, which may be the last

        yield show


@contextmanager
def _open(work: Unfinished, layout: VectorLayout, dtype: np.dtype[Any], facts: Facts) -> Generator[Writer]:
    """Open the writer for the ending of the file. Formats are imported on use, because pyarrow is optional."""
    suffix = work.path.suffix.lower()
    if suffix == ".parquet":
        from elmo.embed.parquet import ParquetWriter as Format
    elif suffix == ".npz":
        from elmo.embed.npz import NpzWriter as Format
    else:
        from elmo.embed.hdf5 import HDF5Writer as Format
    writer = Format(work.folder, layout, dtype, work.progress.sizes, facts)
    try:
        yield writer
    finally:
        writer.close()
