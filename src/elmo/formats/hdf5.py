"""HDF5 files of others: their data sets by name, nothing followed out of the file.

Here and wherever else we open one it is without HDF5's own locks, which some disks of clusters lack.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats.tensors import Stored, room
from elmo.text.reading import require_file

SUFFIXES = (".hdf5", ".h5")

_MOST_PARTS, _DEEPEST = 4_000, 16
"""Of a file: groups and data sets, and groups in groups. A biLM has about 30 of one, and 5 of the other."""

_DAMAGE = (OSError, RuntimeError, KeyError, TypeError, ValueError, SystemError)
"""What h5py raises, as it happens, for a file whose inside is broken."""


@contextmanager
def open_hdf5(path: Path) -> Generator[dict[str, Stored]]:
    """The data sets of an HDF5 file by name, to be read while it is open."""
    require_file(path)
    if path.is_dir():
        raise ElmoError(f"{path}: is a folder; expected an HDF5 file")
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
