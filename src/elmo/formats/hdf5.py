"""HDF5 files of others: their data sets by name, nothing followed out of the file.

Here and wherever else we open one it is without HDF5's own locks, which some disks of clusters lack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import h5py
import numpy as np
import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats.tensors import Stored, room
from elmo.text.reading import require_file

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SUFFIXES = (".hdf5", ".h5")

_MOST_PARTS, _DEEPEST = 4_000, 16
"""Of a file: groups and data sets, and groups in groups. A biLM has about 30 of one, and 5 of the other."""

_DAMAGE = (OSError, RuntimeError, KeyError, TypeError, ValueError, SystemError)
"""What h5py raises, as it happens, for a file whose inside is broken."""


@contextmanager
def open_hdf5(path: Path) -> Generator[dict[str, Stored]]:
    """The data sets of an HDF5 file by name, to be read while it is open."""
    require_file(path)
    try:
        file = h5py.File(path, "r", locking=False)
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except PermissionError:
        raise
    except OSError as error:
        kind = "a truncated HDF5 file" if h5py.is_hdf5(path) else "not an HDF5 file"
        raise ElmoError(f"{path}: {kind} ({error})") from None
    with file:
        try:
            reason = file.visititems_links(partial(_reason_against, count(1)))
            found: dict[str, Stored] = {}
            if reason is None:
                file.visititems(partial(_collect, found, file, path))
        except _DAMAGE as error:
            raise ElmoError(f"{path}: a damaged HDF5 file ({error})") from None
        if reason is not None:
            raise ElmoError(f"{path}: {reason}")
        yield found


class _KeptFromHDF5(FileIO):
    """A new file whose failed writes HDF5 isn't told of: its library ends the process where a disk is full.

    `failure` is the error of the first one; after it nothing more is written.
    """

    failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        left = memoryview(data).cast("B")
        size = left.nbytes
        with self._keeping():
            while self.failure is None and left.nbytes:
                left = left[super().write(left) :]
        return size

    def truncate(self, size: int | None = None, /) -> int:
        with self._keeping():
            super().truncate(size)
        return self.tell() if size is None else size

    @contextmanager
    def _keeping(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error


@contextmanager
def new_hdf5(path: Path) -> Generator[Callable[..., None]]:
    """Fill a new HDF5 file by calls of what is yielded: `add(name, data=array)`, as h5py's `create_dataset`.

    Raises the OSError of a full disk at the next call, or at the end.
    """
    with _KeptFromHDF5(path, "w+") as target:

        def check() -> None:
            if target.failure is not None:
                raise target.failure

        with h5py.File(target, "w") as file:

            def add(name: str, **options: Any) -> None:
                file.create_dataset(name, **options)
                check()

            yield add
        check()


def names_of(path: Path, known: Iterable[str]) -> set[str]:
    """Which of these names stand at the top of an HDF5 file, where others may be millions; none where it isn't one."""
    require_file(path)
    try:
        with h5py.File(path, "r", locking=False) as file:
            return {name for name in known if name in file}
    except _DAMAGE:
        return set()


def _reason_against(numbers: Iterator[int], name: str, link: object) -> str | None:
    """What is wrong with a name in a file: a link, one too deep, or one too many. None goes on to the next."""
    if isinstance(link, h5py.SoftLink | h5py.ExternalLink):
        return f"'{name}' is a link to '{link.path}', which we don't follow; copy the data in"
    if name.count("/") >= _DEEPEST:
        return "has groups in groups deeper than any model"
    if next(numbers) > _MOST_PARTS:
        return "holds more groups and data sets than any model"
    return None


def _collect(found: dict[str, Stored], file: h5py.File, path: Path, name: str, item: object) -> None:
    if isinstance(item, h5py.Dataset):
        found[name] = Stored(tuple(item.shape or ()), partial(_read, file, path, name))


def _read(file: h5py.File, path: Path, name: str) -> Tensor:
    where = f"{path}: data set '{name}'"
    try:
        dataset = cast("h5py.Dataset", file[name])  # opened again: an open one takes some kilobytes
        if dataset.external or dataset.is_virtual:
            raise ElmoError(f"{where}: its numbers lie in another file, which we don't open; copy the data in")
        if dataset.dtype.kind not in "fiu":
            raise ElmoError(f"{where}: holds {dataset.dtype}, not numbers")
        if math.prod(dataset.chunks or ()) * dataset.dtype.itemsize > room(path.stat().st_size):
            raise ElmoError(f"{where}: its pieces, of shape {dataset.chunks}, are larger than such a file can hold")
        return torch.from_numpy(np.asarray(dataset, dtype=np.float32))
    except ElmoError:
        raise
    except _DAMAGE as error:
        raise ElmoError(f"{where}: can't be read ({error}); is the file complete?") from None
