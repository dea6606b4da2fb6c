"""Embeddings on disk: `.h5` (AllenNLP's layout), `.npz` or `.parquet`, complete or not there at all.

Entry number i of a file is sentence number i of the text, counted from 0, empty ones included.
"""

import os
import time
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import DTypeLike
from tqdm import tqdm

from elmo.embed.layers import Entry, Layout
from elmo.errors import ElmoError

ENDINGS = (".h5", ".hdf5", ".npz", ".parquet")
DType = Literal["float32", "float16"]
DTYPES = ("float32", "float16")


@dataclass(frozen=True)
class Written:
    """What was written. `notes` are sentences on what the reader of the file should know."""

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
    """One file format; `add` runs in a thread of its own, one call at a time."""

    def add(self, window: list[Entry]) -> None:
        """Append entries."""
        ...

    def finish(self) -> list[str]:
        """Write what comes last; returns notes for the user."""
        ...

    def close(self) -> None:
        """Close the file, finished or not."""
        ...


def write_embeddings(
    path: str | Path,
    windows: Iterable[list[Entry]],
    layout: Layout,
    *,
    dtype: DType = "float32",
    overwrite: bool = False,
    total: int | None = None,
) -> Written:
    """Write a stream of embedded sentences, each window while the next is computed.

    The file is made under another name beside `path` and renamed when it is complete; after an error or Ctrl-C
    nothing is left. An existing file is refused unless `overwrite`. `total` is for the progress on a terminal.
    """
    path = Path(path)
    check_target(path, overwrite)
    if dtype not in DTYPES:
        raise ElmoError(f"dtype: {dtype!r} is none of {', '.join(DTYPES)}")
    start = time.perf_counter()
    num_sentences = num_tokens = 0
    with _temporary(path) as unfinished, _open(path.suffix, unfinished, layout, dtype) as writer:
        with (
            ThreadPoolExecutor(1, thread_name_prefix="elmo-writer") as thread,
            tqdm(total=total, unit=" sentences", disable=None, smoothing=0.05) as progress,
        ):
            pending: Future[None] | None = None
            for window in windows:
                # Waiting for the window before bounds memory, and raises here what went wrong there.
                if pending is not None:
                    pending.result()
                pending = thread.submit(writer.add, window)
                num_sentences += len(window)
                num_tokens += sum(len(entry.tokens) for entry in window)
                progress.set_postfix_str(f"{num_tokens / (time.perf_counter() - start):,.0f} tokens/s", refresh=False)
                progress.update(len(window))
            if pending is not None:
                pending.result()
        notes = writer.finish()
    return Written(path, num_sentences, num_tokens, time.perf_counter() - start, tuple(notes))


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse what can't be written before anything is computed."""
    if path.suffix not in ENDINGS:
        raise ElmoError(f"{path}: the ending decides on the format; use one of {', '.join(ENDINGS)}")
    if path.is_dir() or not path.parent.is_dir():
        raise ElmoError(f"{path}: {'is a folder' if path.is_dir() else f'there is no folder {path.parent}'}")
    if path.exists() and not overwrite:
        raise ElmoError(f"{path}: exists already; remove it, or pass --overwrite (overwrite=True)")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ElmoError(f"{path}: writing Parquet needs pyarrow; run: pip install 'elmo-torch[parquet]'")


@contextmanager
def _temporary(path: Path) -> Generator[Path]:
    """A name beside `path` for the unfinished file: renamed at the end, removed if there is none."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _open(suffix: str, path: Path, layout: Layout, dtype: DTypeLike) -> Generator[Writer]:
    """The writer for a file ending; formats are imported when used, pyarrow being an extra."""
    if suffix == ".parquet":
        from elmo.embed.parquet import ParquetWriter as Format
    elif suffix == ".npz":
        from elmo.embed.npz import NpzWriter as Format
    else:
        from elmo.embed.hdf5 import HDF5Writer as Format
    writer = Format(path, layout, np.dtype(dtype))
    try:
        yield writer
    finally:
        writer.close()
