"""Archives, unpacked for a while: zip, and tar packed with gzip. Bounded, and nothing outside a temporary folder."""

from __future__ import annotations

import errno
import gzip
import io
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Self, cast

from elmo.errors import ElmoError
from elmo.formats.tensors import room
from elmo.text.reading import require_file

MOST_ENTRIES = 1_000

_BLOCK = 1 << 20
"""Bytes read at once."""

_LARGEST_TABLE = 1 << 22
"""Bytes of a zip archive's table of its files: 46 and a name for each, of which Python makes 15 times as many."""

_FACTS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONGEST_FACTS = 1 << 13
"""Bytes of a header of these types, which holds a long name and other facts of one entry or of all that follow."""

_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
"""Others take as much memory as a file asks for."""

_FINDER = "__MACOSX"
"""A folder of metadata that macOS puts beside what it packs."""

_GZIP = b"\x1f\x8b"
_DAMAGE = (OSError, EOFError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile, tarfile.TarError)
"""What damaged archives raise; NotImplementedError, for ways of packing that Python doesn't know, is among them."""

_NO_DAMAGE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES)
"""Of an OSError: the disk is full, or the file may not be read."""


class _Entry(NamedTuple):
    """A plain file in an archive, and the stream to read it from at once."""

    name: str
    size: int
    stream: IO[bytes]


def is_archive(path: Path) -> bool:
    """Whether a file is a zip archive, or packed with gzip."""
    require_file(path)
    with path.open("rb") as file:
        return file.read(2) == _GZIP or zipfile.is_zipfile(path)


@contextmanager
def unpacked(path: Path) -> Generator[Path]:
    """The folder of an archive's files, while the context lasts.

    That is the archive's only folder where all is in one. Errors that name a file in it name the archive instead.
    Refused are entries that are no plain files or would leave the folder, and more bytes than such an archive can
    hold, whatever it says of itself.
    """
    with tempfile.TemporaryDirectory(prefix="elmo-") as name:
        root = Path(name)
        _unpack(path, root)
        while len(inside := [path for path in root.iterdir() if path.name != _FINDER]) == 1 and inside[0].is_dir():
            root = inside[0]
        try:
            yield root
        except ElmoError as error:
            raise ElmoError(str(error).replace(str(root), str(path))) from None


def _unpack(path: Path, root: Path) -> None:
    limit = room(path.stat().st_size)
    try:
        seen: set[PurePosixPath] = set()
        for entry in _zip_entries(path) if zipfile.is_zipfile(path) else _tar_entries(path, limit):
            name = _safe_name(path, entry.name)
            if name in seen:
                raise ElmoError(f"{path}: '{entry.name}' stands twice in it")
            seen.add(name)
            limit -= entry.size
            if limit < 0 or len(seen) > MOST_ENTRIES:
                raise ElmoError(f"{path}: unfolds to more than such an archive of a model can hold")
            target = root.joinpath(*name.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                shutil.copyfileobj(entry.stream, file, _BLOCK)
            if target.stat().st_size != entry.size:
                raise ElmoError(f"{path}: '{entry.name}' is cut off")
    except ElmoError:
        raise
    except _TooMuchError:
        raise ElmoError(f"{path}: unfolds to more than such an archive of a model can hold") from None
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno in _NO_DAMAGE:
            raise
        raise ElmoError(f"{path}: a damaged or truncated archive ({error}); get the file again") from None


def _safe_name(path: Path, name: str) -> PurePosixPath:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or any(mark in name for mark in "\\:\0"):
        raise ElmoError(f"{path}: refused, its entry {name!r} would be written outside the model's folder")
    return PurePosixPath(*parts)


def open_zip(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    """The zip archive in `file`, which was opened at `path`; an endless table of its files is refused unread."""
    return zipfile.ZipFile(cast("IO[bytes]", _Sparing(file, path)))


class _Sparing(io.BufferedIOBase):
    """A file for `zipfile`, which reads an archive's table as a whole, however long."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__()
        self._file, self._path = file, path

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes."""
        if size is not None and size > _LARGEST_TABLE:
            raise ElmoError(f"{self._path}: holds more files than any archive of a model")
        return self._file.read(size if size is not None else -1)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a place in the file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The place in the file."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Whether `seek` works: it does."""
        return True


def _zip_entries(path: Path) -> Iterator[_Entry]:
    with path.open("rb") as file, open_zip(path, file) as archive:
        if len(archive.infolist()) > 2 * MOST_ENTRIES:
            raise ElmoError(f"{path}: holds more entries than any archive of a model")
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        for entry in archive.infolist():  # all names before anything is written
            _safe_name(path, entry.filename)
            if entry.compress_type not in _PACKINGS:
                raise ElmoError(
                    f"{path}: {entry.filename!r} is packed in a rare way; pack the files again, as plain zip"
                )
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise ElmoError(f"{path}: refused, its entry {entry.filename!r} is a link")
        if len(entries) > MOST_ENTRIES or sum(entry.file_size for entry in entries) > room(path.stat().st_size):
            raise ElmoError(f"{path}: unfolds to more than such an archive of a model can hold")
        for entry in entries:
            with archive.open(entry) as stream:
                yield _Entry(entry.filename, entry.file_size, stream)


def _tar_entries(path: Path, limit: int) -> Iterator[_Entry]:
    with gzip.open(path) as unfolded:
        bounded = _Bounded(unfolded, path, limit)
        yield from _members(path, bounded)
        while bounded.read(min(_BLOCK, bounded.left + 1)):  # the checksum of gzip comes after all that is packed
            pass


def _members(path: Path, unfolded: _Bounded) -> Iterator[_Entry]:
    with tarfile.open(fileobj=unfolded, mode="r|", tarinfo=_ShortHeader) as archive:
        num_members = 0
        while member := archive.next():
            archive.members = []  # pyright: ignore[reportAttributeAccessIssue] - where it keeps all, for nobody
            num_members += 1
            if num_members > 2 * MOST_ENTRIES or len(archive.pax_headers) > MOST_ENTRIES:
                raise ElmoError(f"{path}: holds more entries than any archive of a model")
            if member.isdir():
                if PurePosixPath(member.name).parts:  # of "." there are none
                    _safe_name(path, member.name)
                continue
            stream = archive.extractfile(member) if member.isreg() and not member.issparse() else None
            if stream is None:
                raise ElmoError(f"{path}: refused, its entry {member.name!r} is a link or no plain file")
            yield _Entry(member.name, member.size, stream)


class _ShortHeader(tarfile.TarInfo):
    """An entry's header, which `tarfile` reads into memory as a whole: long names and other facts are bounded."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The header in a block of the archive."""
        header = super().frombuf(buf, encoding, errors)
        if header.type in _FACTS and header.size > _LONGEST_FACTS:
            raise _TooMuchError
        return header

    def _proc_gnusparse_10(self, *_: object) -> None:  # pyright: ignore[reportUnusedFunction]
        """A file with holes, refused anyway: the list of them would be read without bounds first."""
        raise tarfile.ReadError("a file with holes")


class _TooMuchError(Exception):
    """An entry has a header longer than any archive of a model needs."""


class _Bounded(io.BufferedIOBase):
    """A stream for `tarfile` that ends in an error before it has given more than `limit` bytes."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, path: Path, limit: int) -> None:
        super().__init__()
        self._stream, self._path, self.left = stream, path, limit

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes."""
        if size is None or not 0 <= size <= self.left:
            raise ElmoError(f"{self._path}: unfolds to more than such an archive of a model can hold")
        data = self._stream.read(size)
        self.left -= len(data)
        return data
