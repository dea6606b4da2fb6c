"""Opens text files of any compression, or standard input, as streams of bytes."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.targets import with_home

STDIN = "-"

COMPRESSED = (".gz", ".xz", ".zst")
"""The endings of the names of compressed files, in lower case."""

_WIDEST_WINDOW = 1 << 31
"""In bytes: how far back a text of zstd may refer, which takes as much memory. Large collections are often packed by
`zstd --long=31`, and the library by itself reads up to `--long=27`. No file can have a wider one."""

_PIECE = 1 << 8
"""How many compressed bytes are decompressed at a time: few, as they may stand for 30,000 times as many."""


def kind_by_name(path: str | Path) -> str:
    """Return the ending of a file's name in lower case, without that of its compression: ".txt" for "a.TXT.gz"."""
    *others, last = ["", *(suffix.lower() for suffix in Path(path).suffixes)]
    return others[-1] if last in COMPRESSED and others else last


def can_be_read_again(path: str) -> bool:
    """Return whether a text is a regular file: standard input and pipes can be read only once."""
    return path != STDIN and Path(path).is_file()


@contextmanager
def open_text(path: str) -> Generator[tuple[BinaryIO, Callable[[], int] | None, tuple[type[Exception], ...]]]:
    """Open a file for reading. `~` at the beginning of its name is the home folder.

    Yields:
        The stream of decompressed bytes; a function that gives the position in the file on disk, or None where it has
        no position (standard input and pipes); and the exceptions that reading a damaged file raises.
    """
    if path == STDIN:
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller
            raise ElmoError("-: there is no standard input; name a file")
        yield sys.stdin.buffer, None, ()
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(with_home(path)).open("rb"))
        except (FileNotFoundError, IsADirectoryError) as error:
            raise ElmoError(
                f"{path}: {'no such file' if isinstance(error, FileNotFoundError) else 'is a folder'}"
            ) from None
        # The compressed file is opened here and not by name in the libraries, so that its position can be asked for.
        position = file.tell if file.seekable() else None
        match Path(path).suffix.lower():
            case ".gz":
                stream = stack.enter_context(gzip.open(file))
                yield cast(BinaryIO, stream), position, (EOFError, zlib.error, gzip.BadGzipFile)
            case ".xz":
                frames = _Frames(file, lzma.LZMADecompressor, padding=b"\0")
                yield cast(BinaryIO, frames), position, (EOFError, lzma.LZMAError)
            case ".zst":
                zstandard = import_extra("zstandard", f"{path}: reading .zst")
                new_frame = zstandard.ZstdDecompressor(max_window_size=_WIDEST_WINDOW).decompressobj
                yield cast(BinaryIO, _Frames(file, new_frame)), position, (EOFError, zstandard.ZstdError)
            case _:
                yield file, position, ()


def peek_stdin(size: int) -> tuple[bytes, bool] | None:
    """Return the beginning of standard input, which `open_text` will still read from its start.

    This waits until there are `size` bytes, or for the end: what is found in them must not depend on when they come.

    Returns:
        The bytes, and whether they are all there are; or None if there is no standard input, or none of bytes (as in a
        notebook).
    """
    stream: Any = getattr(sys.stdin, "buffer", None)
    if not hasattr(stream, "read1"):
        return None
    head, is_whole = b"", False
    while len(head) < size and not is_whole:
        more = stream.read1(size)
        head += more
        is_whole = not more
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_PutBack(head, sys.stdin)))
    return head, is_whole


class _PutBack(io.RawIOBase):
    """A stream of bytes that were read already, and of all that comes after them."""

    def __init__(self, head: bytes, rest: TextIO) -> None:
        self._head = head
        self._rest = rest  # and not only its bytes, which it closes when nothing refers to it any more

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        data = self._head[:size] or cast(io.BufferedReader, self._rest.buffer).read1(size)
        self._head = self._head[size:]
        buffer[: len(data)] = data
        return len(data)


class _Frames:
    """Reads all zstd frames, or all streams of xz, of a file.

    The readers of the libraries are not used. That of zstandard takes a truncated file for a complete one, and
    `lzma.open` drops a second stream whose beginning is damaged.

    Args:
        file: The compressed file.
        new_frame: Makes what decompresses one frame.
        padding: Bytes that may stand between frames.
    """

    def __init__(self, file: BinaryIO, new_frame: Callable[[], Any], padding: bytes = b"") -> None:
        self._file, self._new_frame, self._padding = file, new_frame, padding
        self._frame: Any = None
        self._is_first = True
        self._ready = io.BytesIO()  # what is decompressed and not yet read

    def read(self, size: int) -> bytes:
        """Read `size` decompressed bytes: fewer before the end of the file, and none at it.

        Raises:
            EOFError: If the file ends inside a frame.
        """
        parts: list[bytes] = []
        missing = size
        while missing:
            if part := self._ready.read(missing):
                parts.append(part)
                missing -= len(part)
            elif data := self._file.read(_PIECE):
                self._ready = io.BytesIO(self._decompress(data))
            else:
                break
        text = b"".join(parts)
        if not text and self._frame is not None:
            raise EOFError("the last frame does not end")
        return text

    def _decompress(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        while data:
            if self._frame is None:
                if not self._is_first and not (data := data.lstrip(self._padding)):
                    break
                self._frame, self._is_first = self._new_frame(), False
            parts.append(self._frame.decompress(data))
            data = b""
            if self._frame.eof:  # another frame may follow, as in the output of parallel compressors
                data, self._frame = self._frame.unused_data, None
        return b"".join(parts)
