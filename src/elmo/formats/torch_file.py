"""Safe reading of state dicts that `torch.save` wrote. Nothing in a file is ever executed.

A pickle is a program that makes objects. torch's restricted reader (`weights_only`) runs only what makes tensors and
plain containers, but a few bytes of that can still ask for gigabytes, and torch does not compare checksums. So a file
is looked through twice: here, without making anything of it, and then by torch.
"""

from __future__ import annotations

import io
import mmap
import pickle
import pickletools
import re
import struct
import tarfile
import warnings
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.formats.archive import is_tar, open_zip
from elmo.formats.files import require_file
from elmo.formats.tensors import TensorInFile, room

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1 << 20
"""How many bytes are read at a time."""

_END, _LOCATOR, _LARGE_END = (b"PK\5\6", 22), (b"PK\6\7", 20), (b"PK\6\6", 56)
"""The records at the end of a zip, each with its first bytes and its size: the last one; the locator before it, which
says where the third one is; and the third one, whose values count in large files. Small files lack these two."""

_ZIP = b"PK\x03\x04"
_OLD_PICKLES = 5
"""How many pickles a file of torch before 1.6 begins with: three say what kind of file it is, the fourth holds the
tensors without their numbers, and the fifth the keys of these numbers."""

_MOST_STEPS, _LARGEST_PICKLE = 200_000, 1 << 24
"""The most steps and bytes of a pickle. A tensor takes about 20 steps, and a step can make an object of 100 bytes."""

_PROTOCOL = 2
"""The pickle protocol that torch writes. Later ones have a step for an empty set, the largest object for a step."""

_PARTS = {
    "collections.OrderedDict",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch.nn.parameter.Parameter",
    "torch.serialization._get_layout",
    "torch.Size",
    "torch.device",
    "__builtin__.set",
    "builtins.set",
    *(f"torch.{name}" for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")),
}
"""The names that a state dict may refer to, besides the types of its storages. Torch's restricted reader accepts more
names, and with some of those a few bytes can ask for any amount of memory."""

_STORAGE = re.compile(r"torch\.(cuda\.)?[A-Z][A-Za-z0-9]*Storage")

_OTHER_TENSORS = {
    "torch._utils._rebuild_qtensor": "quantized tensors",
    "torch._utils._rebuild_nested_tensor": "nested tensors",
}

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
"""The errors that torch raises for truncated or forged files."""


def read_state_dict(path: Path) -> dict[str, TensorInFile]:
    """Read the tensors of a state dict by name.

    Pickled objects and code never run: the file is checked for them first, and then read with torch's restricted
    reader (`weights_only`), which knows only tensors and plain containers.

    Raises:
        ElmoError: If the file is missing, damaged or larger than any real model, if it contains anything besides a
            state dict, or if a tensor is quantized, nested or complex.
    """
    import torch  # only torch can read its files

    if not path.exists():
        raise ElmoError(f"{path}: no such file")
    require_file(path)
    num_bytes = path.stat().st_size
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] == _ZIP:  # torch distinguishes its two file formats by the same bytes
                (pickles, num_stored), num_pickles = _check_records(path, file, num_bytes), 1
            elif is_tar(data[: tarfile.BLOCKSIZE]):
                # Versions before 2.6 unpack it to a folder, links included, before they look at any pickle.
                raise ElmoError(f"{path}: is a tar, which torch wrote before version 0.1.10; save it with a later one")
            else:
                (pickles, num_stored), num_pickles = (data, num_bytes), _OLD_PICKLES
            _check_pickles(path, pickles, num_pickles)
        with warnings.catch_warnings():  # old files have a protocol that torch warns about, though it reads them
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            found: object = torch.load(path, map_location="cpu", weights_only=True)
    except (ElmoError, PermissionError):
        raise
    except pickle.UnpicklingError:
        raise ElmoError(f"{path}: refused, because it contains objects or code, or is damaged") from None
    except (*_DAMAGE, struct.error, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise ElmoError(f"{path}: a damaged or truncated torch file ({reason}); get the file again") from None
    if not isinstance(found, dict):
        raise ElmoError(f"{path}: contains a {type(found).__name__}, not a state dict")
    # Entries that are no tensors, such as version numbers, are left out, and so are sparse tensors and those without
    # memory. If the model needs one of them, it is missing, and `read_weights` says so.
    items = cast("dict[object, object]", found).items()
    if any(isinstance(tensor, torch.Tensor) and tensor.is_complex() for _, tensor in items):
        raise ElmoError(f"{path}: contains complex numbers; only real numbers can be read")
    tensors = {
        str(name): tensor
        for name, tensor in items
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.device.type == "cpu"
    }
    # Older versions of torch take the size of the data from the pickle, and would read what is in memory behind it.
    # Tensors may share their data.
    storages = [tensor.untyped_storage() for tensor in tensors.values()]
    if sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values()) > num_stored:
        raise ElmoError(f"{path}: a damaged torch file (its tensors are larger than its data); get the file again")
    return {name: TensorInFile(tuple(tensor.shape), partial(_read, tensor)) for name, tensor in tensors.items()}


def _check_records(path: Path, file: BinaryIO, num_bytes: int) -> tuple[BinaryIO, int]:
    """Compare the records of a zip file with their checksums, which torch does not do.

    Returns:
        The pickle, and the number of bytes of all records.
    """
    with open_zip(path, file) as archive:
        if _place_of_table(file) != archive.start_dir:
            raise ElmoError(f"{path}: a damaged torch file (its file table is not where its end says); get it again")
        entries = archive.infolist()
        # torch stores its records uncompressed, but reads compressed ones too.
        unpacked = sum(entry.file_size for entry in entries)
        if unpacked > room(num_bytes):
            raise ElmoError(f"{path}: unpacks to more than a file of this size can contain")
        if len({entry.filename.lower() for entry in entries}) < len(entries):  # torch ignores case
            raise ElmoError(f"{path}: has two records of the same name; the file is damaged")
        # Reading a record to its end makes `zipfile` compare the checksum. The data is thrown away.
        for entry in entries:
            with archive.open(entry) as record:
                while record.read(_BLOCK):
                    pass
        found = [entry for entry in entries if entry.filename.lower().endswith("/data.pkl")]
        if len(found) != 1 or found[0].file_size > _LARGEST_PICKLE:
            raise ElmoError(f"{path}: has no list of tensors such as torch writes")
        with archive.open(found[0]) as record:  # `archive.read` would unpack more than the size that the file claims
            return io.BytesIO(b"".join(iter(lambda: record.read(_BLOCK), b""))), unpacked


def _place_of_table(file: BinaryIO) -> int | None:
    """Return where the end of a zip says that its file table begins, which is where torch looks; None if it doesn't.

    `zipfile` takes the table right before the end instead, so that a forged file could show it another one than torch.
    """
    file.seek(-_END[1] - _LOCATOR[1], io.SEEK_END)
    locator, end = file.read(_LOCATOR[1]), file.read(_END[1])
    if not end.startswith(_END[0]):  # a comment, which torch does not write
        return None
    if not locator.startswith(_LOCATOR[0]):
        return int.from_bytes(end[16:20], "little")
    file.seek(int.from_bytes(locator[8:16], "little"))
    record = file.read(_LARGE_END[1])
    return int.from_bytes(record[48:56], "little") if record.startswith(_LARGE_END[0]) else None


def _check_pickles(path: Path, data: BinaryIO | mmap.mmap, num_pickles: int) -> None:
    """Refuse pickles with more or other things than a state dict has. No object of theirs is made."""
    left = _MOST_STEPS
    for _ in range(num_pickles):
        for operation, argument, _ in pickletools.genops(cast("BinaryIO", data)):
            left -= 1
            if left < 0:
                raise ElmoError(f"{path}: contains more tensors or other things than any real model")
            if operation.proto > _PROTOCOL:
                raise pickle.UnpicklingError(operation.name)
            if operation.name == "GLOBAL" and (name := str(argument).replace(" ", ".")) not in _PARTS:
                kind = _OTHER_TENSORS.get(name)
                if kind is not None:
                    raise ElmoError(f"{path}: contains {kind}; only plain tensors can be read")
                if not _STORAGE.fullmatch(name):
                    raise pickle.UnpicklingError(name)


def _read(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().float().contiguous().numpy()
