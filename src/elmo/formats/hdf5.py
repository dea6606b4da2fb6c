"""Safe reading of untrusted HDF5 files, and writing that survives a full disk.

No link is followed out of a file. Like everywhere in the package, files are opened without HDF5's own locks, because
the file systems of some clusters do not have them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.formats.files import require_file
from elmo.formats.tensors import TensorInFile, room

if TYPE_CHECKING:
    import h5py
    from _typeshed import ReadableBuffer

SUFFIXES = (".hdf5", ".h5")

_MOST_PARTS, _DEEPEST = 4_000, 16
"""The most groups and data sets in a file, and the deepest nesting. A biLM has about 30 of them, nested 5 deep."""

_DAMAGE = (OSError, RuntimeError, KeyError, TypeError, ValueError, SystemError, zlib.error)
"""The errors that reading a file with a broken inside may raise."""

_DEFLATE, _SHUFFLE, _FLETCHER32, _LZF = 1, 2, 3, 32_000
"""The numbers by which HDF5 knows the accepted filters of chunks."""

_CHECKSUM = 4
"""In bytes: what the filter fletcher32 adds to a chunk."""

_MOST_CHUNKS, _CHUNK_ENTRY = 10_000, 16
"""How many chunks of a data set are looked for in any file, and the fewest bytes that one takes in a file's index."""


@contextmanager
def open_hdf5(path: Path) -> Generator[dict[str, TensorInFile]]:
    """Open an HDF5 file.

    Yields:
        The data sets by name. They can be read as long as the context lasts.

    Raises:
        ElmoError: If the file is missing, damaged or not HDF5, or if it contains links, or more or more deeply nested
            groups than any model.
    """
    import h5py  # here and below, because it takes time that reading other formats need not take

    require_file(path)
    try:
        file = h5py.File(path, "r", locking=False)
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except PermissionError:
        raise
    except OSError as error:
        if "locking flag" in str(error):  # HDF5 opens a file in two ways only if both lock it, or neither
            raise ElmoError(f"{path}: is open in this program already; close it first (h5py.File.close)") from None
        kind = "a truncated HDF5 file" if h5py.is_hdf5(path) else "not an HDF5 file"
        raise ElmoError(f"{path}: {kind} ({error})") from None
    with file:
        try:
            # `visititems` passes over links without a word, so that data would seem to be missing.
            reason = file.visititems_links(partial(_reason_against, count(1)))
            found: dict[str, TensorInFile] = {}
            if reason is None:
                reason = file.visititems(partial(_collect, found, file, path))
        except _DAMAGE as error:
            raise ElmoError(f"{path}: a damaged HDF5 file ({error})") from None
        if reason is not None:
            raise ElmoError(f"{path}: {reason}")
        yield found


class _KeptFromHDF5(FileIO):
    """A new file that hides failed writes from HDF5, whose library may end the process when the disk is full.

    `failure` is the first error. Nothing is written after it.
    """

    failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        left = memoryview(data).cast("B")
        size = left.nbytes
        with self._keeping():
            while self.failure is None and left.nbytes:  # the system may write less than it was asked to
                left = left[super().write(left) :]
        return size  # as if all had been written, so that HDF5 goes on

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
    """Write a new HDF5 file.

    Yields:
        A function `add(name, data=array)` with the arguments of h5py's `create_dataset`.

    Raises:
        OSError: If the disk is full; at the end of that call of `add` or at the end of the context.
    """
    import h5py

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
    """Return which of the `known` names an HDF5 file has at its top level; none if it is not a readable HDF5 file.

    The names are looked up one by one, because a hostile file may contain millions of others.
    """
    import h5py

    require_file(path)
    try:
        with h5py.File(path, "r", locking=False) as file:
            return {name for name in known if name in file}
    except _DAMAGE:
        return set()


def _reason_against(numbers: Iterator[int], name: str, link: object) -> str | None:
    """Return what is wrong with a name in a file: a link, too deep, or one too many. None makes h5py go on."""
    import h5py

    if isinstance(link, h5py.SoftLink | h5py.ExternalLink):
        return f"'{name}' is a link to '{link.path}', which is not followed; copy the data into the file"
    if name.count("/") >= _DEEPEST:
        return "contains groups nested deeper than any model"
    if next(numbers) > _MOST_PARTS:
        return "contains more groups and data sets than any model"
    return None


def _collect(found: dict[str, TensorInFile], file: h5py.File, path: Path, name: str, item: object) -> str | None:
    """Add a data set to those that were found. Return what is wrong with it; None makes h5py go on."""
    import h5py

    if isinstance(item, h5py.Dataset):
        if is_elsewhere(item):
            return f"data set '{name}': its numbers are in another file, which is not opened; copy them into this one"
        found[name] = TensorInFile(tuple(item.shape or ()), partial(_read, file, path, name))
    return None


def is_elsewhere(dataset: h5py.Dataset) -> bool:
    """Return whether the numbers of a data set are in other files.

    This has to be asked before its shape: HDF5 opens those files to find out how long a virtual data set is, and never
    returns if one of them is a pipe.
    """
    return bool(dataset.external) or dataset.is_virtual


def get_inside(file: h5py.File, path: Path, name: str) -> object:
    """Return a group or data set of an open HDF5 file without opening any other file.

    Args:
        file: The file.
        path: Its path, for messages.
        name: The name of the data set at the top level.

    Returns:
        The group or data set, or None if there is none of this name.

    Raises:
        ElmoError: If it is a link, or if its numbers are in other files.
    """
    import h5py

    link: object = file.get(name, getlink=True)
    if link is None:
        return None
    item = file[name] if isinstance(link, h5py.HardLink) else None
    if item is None or (isinstance(item, h5py.Dataset) and is_elsewhere(item)):
        raise ElmoError(f"{path}: data set '{name}' is in another place, which is not opened; copy it into this file")
    return item


def _check_chunks(dataset: h5py.Dataset, size_of_file: int, where: str) -> None:
    """Refuse chunks that unpack to more than their shape holds. HDF5 would unpack them to their end."""
    plan, chunks = dataset.id.get_create_plist(), dataset.chunks
    filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
    if {*filters} - {_DEFLATE, _SHUFFLE, _FLETCHER32, _LZF}:
        raise ElmoError(f"{where}: has a rare compression method; store it with gzip")
    if filters.count(_DEFLATE) + filters.count(_LZF) > 1:  # only what the outer one unpacks to is measured below
        raise ElmoError(f"{where}: is compressed twice; store it with gzip alone")
    if chunks is None:
        return
    starts = [range(0, size, step) for size, step in zip(dataset.shape, chunks, strict=True)]
    if math.prod(map(len, starts)) > _MOST_CHUNKS + size_of_file // _CHUNK_ENTRY:
        raise ElmoError(f"{where}: has more chunks than this file can hold; store it again, with larger ones")
    if _DEFLATE not in filters:  # LZF makes at most 88 bytes of one
        return
    most = math.prod(chunks) * dataset.dtype.itemsize + _CHECKSUM
    for start in product(*starts):
        if dataset.id.get_chunk_info_by_coord(start).byte_offset is not None:
            _, packed = dataset.id.read_direct_chunk(start)
            if len(zlib.decompressobj().decompress(packed, most + 1)) > most:
                raise ElmoError(f"{where}: the chunk at {start} unpacks to more than its shape holds; is it damaged?")


def _read(file: h5py.File, path: Path, name: str) -> NDArray[np.float32]:
    where = f"{path}: data set '{name}'"
    try:
        dataset = cast("h5py.Dataset", file[name])  # opened only now, because each open data set takes some kilobytes
        if dataset.dtype.kind not in "fiu":
            raise ElmoError(f"{where}: contains {dataset.dtype}, not numbers")
        size = path.stat().st_size
        if math.prod(dataset.chunks or ()) * dataset.dtype.itemsize > room(size):
            raise ElmoError(f"{where}: its chunks of shape {dataset.chunks} are larger than this file can hold")
        _check_chunks(dataset, size, where)
        return np.asarray(dataset, dtype=np.float32)
    except ElmoError:
        raise
    except _DAMAGE as error:
        raise ElmoError(f"{where}: can't be read ({error}); is the file complete?") from None
