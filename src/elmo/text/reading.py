"""Text files, whatever their compression and encoding, as lines and as tokenized sentences, in constant memory."""

from __future__ import annotations

import codecs
import glob
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, cast

from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.text.tokenizers import Tokenizer, get_tokenizer, split_sentences

STDIN = "-"
TEXTS = ("sentences", "paragraphs", "wrapped")
"""What text may look like: a sentence a line, a paragraph a line, paragraphs wrapped and ended by blank lines."""

BLOCK_SIZE = 1 << 18
"""How much is read at a time, in bytes (of blocks made of paragraphs: in characters)."""

MAX_PARAGRAPH = 1 << 20
"""A wrapped paragraph of more characters is cut at a line's end: text without any blank line must fit too."""

Progress = Callable[[int], object]
"""Told the number of bytes taken from a file (compressed ones as they are) since it was told last."""


def require_file(path: Path) -> None:
    """Refuse what is no file where a whole one is read: a folder, a link to nothing, or a pipe or device without end.

    An absent file is left to whoever opens it.
    """
    if path.is_dir():
        raise ElmoError(f"{path}: is a folder; expected a file")
    if path.is_symlink() and not path.exists():
        raise ElmoError(f"{path}: is a link to nothing; get the file that it stood for")
    if path.exists() and not path.is_file():
        raise ElmoError(f"{path}: is a pipe or a device; save what comes out of it, and name that file")


def is_there(path: Path) -> bool:
    """Whether anything has this name, a link to nothing included, which `Path.exists` takes for absent."""
    return path.is_symlink() or path.exists()


def expand(patterns: Sequence[str | Path]) -> list[str]:
    """The files that `patterns` (names or globs, `**` too, each sorted) stand for; `-`, standard input, stays.

    Raises ElmoError for an absent file, a folder, and a glob without match.
    """
    paths: list[str] = []
    for pattern in map(str, patterns):
        if pattern == STDIN or Path(pattern).is_file() or _is_pipe(pattern):
            paths.append(pattern)
        elif Path(pattern).is_dir():
            raise ElmoError(f"{pattern}: is a folder; name its files, for example '{Path(pattern) / '*.txt'}'")
        elif not glob.has_magic(pattern):
            raise ElmoError(f"{pattern}: no such file")
        else:
            found = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207
            if not found:
                raise ElmoError(f"{pattern}: no file matches")
            paths += found
    return paths


def read_lines(path: str | Path, encoding: str = "utf-8") -> Iterator[str]:
    r"""The lines of a plain, `.gz`, `.xz` or `.zst` file or of `-`, without their ends (`\n` or `\r\n`).

    A byte-order mark at the start is dropped. Raises ElmoError for an absent file, bytes that are not in
    `encoding` (naming the line), and a damaged compressed file.
    """
    for block in read_blocks(path, encoding):
        yield from block.split("\n")


def read_paragraphs(path: str | Path, encoding: str = "utf-8") -> Iterator[list[tuple[int, str]]]:
    """The numbered lines between blank ones, as formats with a token a line have them for a sentence."""
    return paragraphs(read_lines(path, encoding))


def paragraphs(lines: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """As `read_paragraphs`, of lines that are read already."""
    for is_text, group in groupby(enumerate(lines, 1), key=lambda item: bool(item[1].strip())):
        if is_text:
            yield list(group)


def split_columns(line: str) -> list[str]:
    """The columns of a line in a CoNLL format: between tabs where it has any, which may hold spaces, else between
    spaces."""
    return line.split("\t") if "\t" in line else [column for column in line.split(" ") if column]


def read_sentences(
    paths: Iterable[str | Path],
    *,
    tokenizer: str = "whitespace",
    text: str = "sentences",
    encoding: str = "utf-8",
    lowercase: bool = False,
) -> Iterator[list[str]]:
    """The tokenized sentences of files, one after the other, streamed.

    `text` says what the files look like (see `TEXTS`). With "sentences" every line is yielded, a blank one as
    `[]`; otherwise nothing empty is. Raises ElmoError for unknown settings and as `read_lines` does.
    """
    check_text(text)
    tokenize = get_tokenizer(tokenizer)
    for path in paths:
        for block in read_units(path, text, encoding):
            yield from tokenize_block(block, tokenize, text, lowercase)


def read_some(path: str | Path, **reading: Any) -> list[list[str]]:
    """The sentences of a text that aren't empty, all in memory; `reading` as for `read_sentences`. Raises ElmoError
    where there is none."""
    if found := [sentence for sentence in read_sentences(expand([path]), **reading) if sentence]:
        return found
    raise ElmoError(f"{path}: holds no text")


def check_text(text: str) -> None:
    """Raise ElmoError unless `text` is one of `TEXTS`."""
    if text not in TEXTS:
        raise ElmoError(f"text {text!r} is unknown; choose one of {', '.join(TEXTS)}")


def read_units(path: str | Path, text: str, encoding: str, progress: Progress | None = None) -> Iterator[str]:
    """The text of a file in blocks of whole lines; wrapped paragraphs become a line each."""
    blocks = read_blocks(path, encoding, progress)
    return _join(_unwrap(blocks)) if text == "wrapped" else blocks


def tokenize_block(block: str, tokenize: Tokenizer, text: str, lowercase: bool) -> list[list[str]]:
    """The sentences of a block of `read_units`."""
    lines = block.split("\n")
    if text != "sentences":
        lines = [sentence for line in lines for sentence in split_sentences(line)]
    sentences = list(map(tokenize, lines))
    if lowercase:
        sentences = [list(map(_lower, sentence)) for sentence in sentences]
    return sentences if text == "sentences" else [sentence for sentence in sentences if sentence]


def read_blocks(path: str | Path, encoding: str = "utf-8", progress: Progress | None = None) -> Iterator[str]:
    r"""The text of a file in blocks of whole lines, joined by `\n`, without the last one's end."""
    decode = _decoder(path, encoding)
    parts: list[str] = []
    is_first = True
    for data in _read_bytes(str(path), progress):
        text = decode(data)
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False
        lines, newline, rest = text.rpartition("\n")
        if newline:
            yield "".join((*parts, lines, newline)).replace("\r\n", "\n")[:-1]
            parts.clear()
        parts.append(rest)
    if last := "".join(parts):
        yield last.removesuffix("\r")


def _read_bytes(path: str, progress: Progress | None) -> Iterator[bytes]:
    """The bytes of a file, decompressed; an empty block at the very end, which tells a decoder to finish."""
    with _open(path) as (stream, position, damage):
        told = 0
        data = b"start"
        while data:
            try:
                data = stream.read(BLOCK_SIZE)
            except damage as error:
                raise ElmoError(f"{path}: damaged or cut off ({error}); get the file again") from None
            if progress is not None:
                now = position() if position is not None else told + len(data)
                progress(now - told)
                told = now
            yield data


@contextmanager
def _open(path: str) -> Generator[tuple[BinaryIO, Callable[[], int] | None, tuple[type[Exception], ...]]]:
    """A stream of decompressed bytes, the position in the file (None where it has none), what damage raises."""
    if path == STDIN:
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller
            raise ElmoError("-: there is no standard input; name a file")
        yield sys.stdin.buffer, None, ()
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("rb"))
        except (FileNotFoundError, IsADirectoryError) as error:
            raise ElmoError(
                f"{path}: {'no such file' if isinstance(error, FileNotFoundError) else 'is a folder'}"
            ) from None
        position = file.tell if file.seekable() else None
        match Path(path).suffix:
            case ".gz":
                stream = stack.enter_context(gzip.open(file))
                yield cast(BinaryIO, stream), position, (EOFError, zlib.error, gzip.BadGzipFile)
            case ".xz":
                yield cast(BinaryIO, stack.enter_context(lzma.open(file))), position, (EOFError, lzma.LZMAError)
            case ".zst":
                zstandard = import_extra("zstandard", f"{path}: reading .zst")
                yield cast(BinaryIO, _ZstdStream(file, zstandard)), position, (EOFError, zstandard.ZstdError)
            case _:
                yield file, position, ()


class _ZstdStream:
    """Reads zstd frames one after the other. The package's own reader takes a cut-off file for a whole one."""

    def __init__(self, file: BinaryIO, zstandard: Any) -> None:
        self._file = file
        self._new_frame: Callable[[], Any] = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None

    def read(self, size: int) -> bytes:
        """About `size` bytes, none at the end. Raises EOFError where the file ends inside a frame."""
        parts: list[bytes] = []
        while sum(map(len, parts)) < size and (data := self._file.read(1 << 13)):
            while data:
                if self._frame is None:
                    self._frame = self._new_frame()
                parts.append(self._frame.decompress(data))
                data = b""
                if self._frame.eof:
                    data, self._frame = self._frame.unused_data, None
        text = b"".join(parts)
        if not text and self._frame is not None:
            raise EOFError("the last frame does not end")
        return text


def _decoder(path: str | Path, encoding: str) -> Callable[[bytes], str]:
    """A function that decodes block after block, and names the line of bytes that it can't decode."""
    try:
        b"aa".decode(encoding, "replace")
    except (LookupError, ValueError):
        raise ElmoError(
            f"encoding {encoding!r} is unknown; some that are known: utf-8, utf-16, latin-1, cp1252"
        ) from None
    decoder = codecs.getincrementaldecoder(encoding)()
    num_lines = 0

    def decode(data: bytes) -> str:
        nonlocal num_lines
        try:
            text = decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            line = num_lines + 1 + error.object[: error.start].decode(encoding, "replace").count("\n")
            raise ElmoError(_undecodable(path, line, encoding, error)) from None
        except UnicodeError as error:
            raise ElmoError(f"{_shown(path)}: {error}; name its byte order: {encoding}-le or {encoding}-be") from None
        num_lines += text.count("\n")
        return text

    return decode


def _undecodable(path: str | Path, line: int, encoding: str, error: UnicodeDecodeError) -> str:
    is_utf16 = line == 1 and error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    other = "utf-16" if is_utf16 else "latin-1"
    byte = f"byte 0x{error.object[error.start]:02X}"
    return (
        f"{_shown(path)}, line {line}: not valid {encoding.upper()} ({byte}). Convert it to UTF-8, for instance by "
        f"'iconv -f {other} -t utf-8'; commands that read plain text also take --encoding {other}."
    )


def _shown(path: str | Path) -> str:
    return "standard input" if str(path) == STDIN else str(path)


def _unwrap(blocks: Iterable[str]) -> Iterator[str]:
    """Wrapped paragraphs as one line each."""
    lines: list[str] = []
    size = 0
    for block in blocks:
        for line in map(str.strip, block.split("\n")):
            if line:
                lines.append(line)
                size += len(line) + 1
            if lines and (not line or size > MAX_PARAGRAPH):
                yield " ".join(lines)
                lines, size = [], 0
    if lines:
        yield " ".join(lines)


def _join(lines: Iterable[str]) -> Iterator[str]:
    """Blocks of about `BLOCK_SIZE` characters of whole lines."""
    block: list[str] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line) + 1
        if size > BLOCK_SIZE:
            yield "\n".join(block)
            block, size = [], 0
    if block:
        yield "\n".join(block)


def _lower(token: str) -> str:
    # not imported from characters: the processes that tokenize do without torch
    return token if token in ("<S>", "</S>", "<UNK>") else token.lower()


def _is_pipe(path: str) -> bool:
    """Whether `path` is a named pipe, such as the shell's `<(command)`."""
    return Path(path).is_fifo()
