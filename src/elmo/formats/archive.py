"""Safe temporary unpacking of archives: zip, tar, tar.gz and tar.bz2.

Archives come from strangers. So the memory and disk space they take is bounded, and nothing is written outside a
temporary folder.
"""

from __future__ import annotations

import bz2
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
from typing import IO, Literal, NamedTuple, Self, cast

from elmo.errors import ElmoError, renaming
from elmo.formats.files import require_file
from elmo.formats.tensors import room

MOST_ENTRIES = 1_000

_DEEPEST, _LONGEST_NAME = 20, 1_000
"""The most folders inside each other, of which some systems allow only a few hundred, and the most characters of the
name of an entry with its folders."""

_BLOCK = 1 << 20
"""How many bytes are read at a time."""

_LARGEST_TABLE = 1 << 22
"""In bytes: the largest file table of a zip, 46 and a name for each file. Python's objects take 15 times as much."""

_FACTS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONGEST_FACTS = 1 << 13
"""In bytes: the longest header of these types, which hold a long name or other facts about later entries."""

_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The accepted compression methods of a zip. The others, bzip2 and LZMA, take as much memory as the file asks for:
`zipfile` unpacks all that they make of a megabyte at once."""

_FINDER = "__MACOSX"
"""A folder of metadata that macOS adds to its archives."""

_GZIP, _BZIP2 = b"\x1f\x8b", b"BZh"
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257
"""What the first header of a tar contains, and where."""

_HEADER = 512
"""The size in bytes of a header in a tar."""

_DAMAGED_HEADERS = (
    tarfile.InvalidHeaderError,  # pyright: ignore[reportAttributeAccessIssue]
    tarfile.TruncatedHeaderError,  # pyright: ignore[reportAttributeAccessIssue]
)
"""The errors of `tarfile` in reading a header with a wrong checksum, and one that is cut off."""

_DAMAGE = (OSError, EOFError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile, tarfile.TarError)
"""What damaged archives raise. RuntimeError includes NotImplementedError, for compression that Python does not know."""

_NO_DAMAGE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES)
"""Error numbers that are not the archive's fault: the disk is full, or reading is not permitted."""


class _Entry(NamedTuple):
    """A regular file in an archive. Its stream must be read before the next entry is asked for."""

    name: str
    size: int
    stream: IO[bytes]


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip or tar archive, or compressed with gzip or bzip2."""
    require_file(path)
    return _kind(path) is not None


def _kind(path: Path) -> Literal["tar", "gzip", "bzip2", "zip"] | None:
    """Return the kind of an archive, or None if the file is none."""
    with path.open("rb") as file:
        start = file.read(_HEADER)
    if start.startswith(_TAR_MARK, _TAR_MARK_AT):
        return "tar"
    if start.startswith(_GZIP):
        return "gzip"
    if start.startswith(_BZIP2):
        return "bzip2"
    # This comes last: it looks at the end of a file, where a tar may hold a zip, such as weights of torch.
    return "zip" if zipfile.is_zipfile(path) else None


def _open_tar(path: Path) -> IO[bytes] | gzip.GzipFile | bz2.BZ2File:
    """Open a tar, which may be compressed, so that reading gives the bytes of the tar itself.

    Neither gzip nor bzip2 needs much memory, whatever the file asks for. LZMA (`.tar.xz`) may, so it is not read.
    """
    kind = _kind(path)
    if kind == "tar":
        return path.open("rb")
    return bz2.open(path) if kind == "bzip2" else gzip.open(path)


@contextmanager
def unpacked(path: Path) -> Generator[Path]:
    """Unpack an archive into a temporary folder that lasts as long as the context.

    An `ElmoError` raised in the context that names the temporary folder names the archive instead.

    Args:
        path: The archive.

    Yields:
        The folder of the files. If everything in the archive is in a single folder, it is that folder.

    Raises:
        ElmoError: If the archive is damaged, or if it contains links or other special files, names outside the folder,
            or more files or bytes than the archive of a model can have, whatever its own table claims.
    """
    with tempfile.TemporaryDirectory(prefix="elmo-") as name:
        root = Path(name)
        _unpack(path, root)
        # Archives may hold their files at the top or in one folder.
        while len(inside := [path for path in root.iterdir() if not _is_metadata(path)]) == 1 and inside[0].is_dir():
            root = inside[0]
        with renaming(root, path):
            yield root


def _is_metadata(path: Path) -> bool:
    """Return whether a file or folder is one that macOS adds to archives: `__MACOSX`, `._model` or `.DS_Store`."""
    return path.name == _FINDER or (path.name.startswith(".") and path.is_file())


def _unpack(path: Path, root: Path) -> None:
    limit = room(path.stat().st_size)
    try:
        seen: set[PurePosixPath] = set()
        for entry in _zip_entries(path) if _kind(path) == "zip" else _tar_entries(path, limit):
            name = _safe_name(path, entry.name)
            if name in seen:
                raise ElmoError(f"{path}: contains '{entry.name}' twice")
            seen.add(name)
            limit -= entry.size
            if limit < 0 or len(seen) > MOST_ENTRIES:
                raise _TooMuchError
            target = root.joinpath(*name.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            # "x" refuses to write a file twice, as two names would do on a file system that ignores case.
            with target.open("xb") as file:
                shutil.copyfileobj(entry.stream, file, _BLOCK)
            # Both the table of a zip and the headers of a tar tell sizes before the data, which may end too soon.
            if target.stat().st_size != entry.size:
                raise ElmoError(f"{path}: '{entry.name}' is cut off")
    except ElmoError:
        raise
    except _TooMuchError:
        raise ElmoError(f"{path}: unpacks to more than an archive of a model of this size can contain") from None
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno in _NO_DAMAGE:
            raise
        raise ElmoError(f"{path}: a damaged or truncated archive ({error}); get the file again") from None


def _safe_name(path: Path, name: str) -> PurePosixPath:
    # Backslashes and colons are parts of paths on Windows: a name must be safe on every system.
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or any(mark in name for mark in "\\:\0"):
        raise ElmoError(f"{path}: refused, because its entry {name!r} would be written outside the model's folder")
    if len(parts) > _DEEPEST or len(name) > _LONGEST_NAME:
        raise ElmoError(
            f"{path}: refused, because its entry {name[:50]!r}… has a longer name, or is inside more folders, than any "
            "file of a model"
        )
    return PurePosixPath(*parts)


def open_zip(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    """Open the zip archive in `file`, for which messages name `path`.

    Raises:
        ElmoError: If its file table is huge, before it is read, or if an entry has a rare compression method.
    """
    archive = zipfile.ZipFile(cast("IO[bytes]", _Sparing(file, path)))
    for entry in archive.infolist():
        if entry.compress_type not in _PACKINGS:
            raise ElmoError(
                f"{path}: {entry.filename!r} has a rare compression method; pack the files again as an ordinary zip"
            )
    return archive


class _Sparing(io.BufferedIOBase):
    """A file that refuses large reads, because `zipfile` reads the file table in one go, however long it is."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__()
        self._file, self._path = file, path

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes."""
        if size is not None and size > _LARGEST_TABLE:
            raise ElmoError(f"{self._path}: contains more files than any archive of a model")
        return self._file.read(size if size is not None else -1)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a position in the file, and return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in the file."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Return True, since `seek` works."""
        return True


def _zip_entries(path: Path) -> Iterator[_Entry]:
    with path.open("rb") as file, open_zip(path, file) as archive:
        if len(archive.infolist()) > 2 * MOST_ENTRIES:
            raise ElmoError(f"{path}: contains more entries than any archive of a model")
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        for entry in archive.infolist():  # checks every entry before anything is written
            _safe_name(path, entry.filename)
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise ElmoError(f"{path}: refused, because its entry {entry.filename!r} is a link")
        if len(entries) > MOST_ENTRIES or sum(entry.file_size for entry in entries) > room(path.stat().st_size):
            raise _TooMuchError
        for entry in entries:
            with archive.open(entry) as stream:
                yield _Entry(entry.filename, entry.file_size, stream)


def _tar_entries(path: Path, limit: int) -> Iterator[_Entry]:
    # A tar has no table and no size: only reading it shows how much it unpacks to.
    with _open_tar(path) as unfolded:
        _require_tar(path, unfolded.read(_HEADER))
        unfolded.seek(0)
        bounded = _Bounded(unfolded, limit)
        yield from _members(path, bounded)
        # Reads to the end, where gzip and bzip2 verify their checksums.
        while bounded.read(min(_BLOCK, bounded.left + 1)):
            pass


def _require_tar(path: Path, header: bytes) -> None:
    """Refuse a single compressed file, such as weights.hdf5.gz."""
    if not header.strip(b"\0"):  # zeros end a tar, here before its first file
        return
    if not is_tar(header):
        raise ElmoError(f"{path}: is a compressed file, not an archive of several; unpack it first (gunzip or bunzip2)")


def is_tar(start: bytes) -> bool:
    """Return whether a file that begins so is a tar. The oldest ones have no mark, only a checksum."""
    try:
        tarfile.TarInfo.frombuf(start[:_HEADER], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _members(path: Path, unfolded: _Bounded) -> Iterator[_Entry]:
    # "r|" reads the archive as a stream, from start to end. The other modes go back and forth, unpacking it again and
    # again.
    with tarfile.open(fileobj=unfolded, mode="r|", tarinfo=_ShortHeader) as archive:
        num_members = 0
        while member := archive.next():
            archive.members = []  # pyright: ignore[reportAttributeAccessIssue] - it would keep all
            num_members += 1
            if num_members > 2 * MOST_ENTRIES or len(archive.pax_headers) > MOST_ENTRIES:
                raise ElmoError(f"{path}: contains more entries than any archive of a model")
            if member.isdir():
                if PurePosixPath(member.name).parts:  # those of "." are empty
                    _safe_name(path, member.name)
                continue
            stream = archive.extractfile(member) if member.isreg() and not member.issparse() else None
            if stream is None:
                raise ElmoError(f"{path}: refused, because its entry {member.name!r} is a link or another special file")
            yield _Entry(member.name, member.size, stream)


class _ShortHeader(tarfile.TarInfo):
    """An entry's header with a bounded size, because `tarfile` reads long names and other facts in one go.

    Most of what it overrides is private, because the public `frombuf` is not called by every Python: versions of 2026
    parse with another method. Tests of hostile archives would show a version that calls none of these.
    """

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        """Read the next header, and refuse a damaged one, which `tarfile` would take for the end of the archive."""
        try:
            return super().fromtarfile(tarfile)
        except _DAMAGED_HEADERS as error:
            raise ValueError(str(error)) from None

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:  # pyright: ignore[reportUnusedFunction]
        """Read what belongs to this header, which is parsed by now."""
        if self.type in _FACTS and self.size > _LONGEST_FACTS:
            raise _TooMuchError
        return super()._proc_member(archive)  # pyright: ignore[reportAttributeAccessIssue]

    def _proc_gnusparse_10(self, *_: object) -> None:  # pyright: ignore[reportUnusedFunction]
        """Refuse a sparse file at once: `tarfile` would first read the list of its holes, however long that is."""
        raise tarfile.ReadError("a sparse file")


class _TooMuchError(Exception):
    """Raised for an archive with more files or bytes, or a longer header of an entry, than that of a model needs."""


class _Bounded(io.BufferedIOBase):
    """A stream for `tarfile` that raises an error before more than `limit` bytes are read from it."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile | bz2.BZ2File, limit: int) -> None:
        super().__init__()
        self._stream, self.left = stream, limit

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes."""
        if size is None or not 0 <= size <= self.left:
            raise _TooMuchError
        data = self._stream.read(size)
        self.left -= len(data)
        return data
