"""Files of `torch.save`: tensors only. Nothing in them is ever executed."""

from __future__ import annotations

import pickle
import struct
import warnings
import zipfile
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats.tensors import Stored, room

_BLOCK = 1 << 20
"""Bytes read at once."""

_DAMAGE = (
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    OverflowError,
    MemoryError,
)
"""What torch raises for files that are cut off or made up."""


def read_state_dict(path: Path) -> dict[str, Stored]:
    """The tensors of a stored state dict by name.

    Pickled objects and code are refused unseen: torch's restricted reader knows only tensors and plain containers.
    """
    if not path.exists():
        raise ElmoError(f"{path}: no such file")
    try:
        if zipfile.is_zipfile(path):
            _check_records(path)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            found: object = torch.load(path, map_location="cpu", weights_only=True)
    except (ElmoError, PermissionError):
        raise
    except pickle.UnpicklingError:
        raise ElmoError(f"{path}: refused, not tensors alone: holds objects or code, or is damaged") from None
    except (*_DAMAGE, struct.error, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise ElmoError(f"{path}: a damaged or truncated file of torch ({reason}); get it again") from None
    if not isinstance(found, dict):
        raise ElmoError(f"{path}: holds a {type(found).__name__}, no state dict")
    items = cast("dict[object, object]", found).items()
    return {
        str(name): Stored(tuple(tensor.shape), partial(_read, tensor))
        for name, tensor in items
        if isinstance(tensor, Tensor) and tensor.layout is torch.strided and tensor.device.type == "cpu"
    }


def _check_records(path: Path) -> None:
    """Compare the records of a file that is packed as zip with their checksums, which torch doesn't look at."""
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > room(path.stat().st_size):
            raise ElmoError(f"{path}: unfolds to more than such a file can hold")
        for entry in archive.infolist():
            with archive.open(entry) as record:
                while record.read(_BLOCK):
                    pass


def _read(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float32)
