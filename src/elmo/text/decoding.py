"""Decodes text files of any compression and encoding into lines, in constant memory."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path

from elmo.errors import ElmoError
from elmo.text.opening import STDIN, open_text

BLOCK_SIZE = 1 << 18
"""The size of the blocks that are read: in bytes, or in characters where blocks are made of wrapped paragraphs."""

LONGEST_LINE = 1 << 27
"""In characters: the longest line that is read. Corpora such as text8, of 100 million characters, are one line."""

NUL_SHARE = 0.1
"""With a larger share of NUL at its beginning, a file is no text. In UTF-16, NUL is every second byte of Latin letters,
and text from the web has a stray one here and there."""

FEWEST_CHARACTERS = 5
"""With fewer characters that are not ASCII, a beginning that is valid UTF-8 may be so by chance."""

_WITHOUT_ENCODING = "Leave out the encoding for this file; if others need it, convert those to UTF-8"

SIGNATURES = {
    b"%PDF-": "is a PDF, not text; extract its text first, for instance with pdftotext",
    b"PK\x03\x04": "is a ZIP archive or a document (such as .docx, .odt or .epub), not text; extract its text first",
    b"\xd0\xcf\x11\xe0": "is a document of an old Office program (such as .doc), not text; save it as plain text first",
    b"{\\rtf": "is a document in RTF, not text; save it as plain text first",
    b"\x1f\x8b": "is compressed by gzip; decompress it, or let its name end in .gz",
    b"\xfd7zXZ\0": "is compressed by xz; decompress it, or let its name end in .xz",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; decompress it, or let its name end in .zst",
    b"BZh91AY&SY": "is compressed by bzip2; decompress it first",
    b"7z\xbc\xaf": "is a 7z archive; extract its text first",
    b"\x89HDF": "is an HDF5 file, not text",
    b"\x89PNG": "is a picture, not text",
    b"\xff\xd8\xff": "is a picture, not text",
}
"""How files begin that are often taken for text, and what to tell their users."""

Advance = Callable[[int], object]
"""A callback that receives the number of bytes read from a file since its last call.

Bytes of compressed files are counted as they lie on the disk.
"""


def describe_non_text(beginning: bytes) -> str | None:
    """Return what a file is that is no text, by its first bytes, and what to do; None if it may be text."""
    if beginning[257:262] == b"ustar":
        return "is a tar archive, not text; unpack it first"
    return next((what for start, what in SIGNATURES.items() if beginning.startswith(start)), None)


def read_lines(path: str | Path, encoding: str = "utf-8") -> Iterator[str]:
    r"""Yield the lines of a file without their line ends (`\n` or `\r\n`).

    The file is plain, `.gz`, `.xz` or `.zst`, or `-` for standard input. A byte-order mark at the start is dropped.

    Raises:
        ElmoError: If the file is missing, is damaged, or holds bytes that are not valid in `encoding` (the message
            names the line).
    """
    for block in read_blocks(path, encoding):
        yield from block.split("\n")


def read_blocks(path: str | Path, encoding: str = "utf-8", advance: Advance | None = None) -> Iterator[str]:
    r"""Yield the text of a file in blocks of whole lines.

    The lines of a block are joined by `\n`; the line end after the last one is left out. In a file without any `\n`,
    lines end at `\r`, as they did on old Macs.
    """
    # Python's own text files are not used, because they cannot name the line of a bad byte.
    decode = _decoder(path, encoding)
    # The pieces of a line that has not ended yet. They are joined only once: adding to a string would copy a very long
    # line again for each block.
    parts: list[str] = []
    is_first = is_one_line = True
    for data in _read_bytes(str(path), advance):
        if is_first and (what := describe_non_text(data)):
            if str(path) == STDIN:  # has no name that could end in .gz
                what = what.partition(", or let its name")[0]
            raise ElmoError(f"{shown_name(path)}: {what}")
        if is_first and not _is_unicode(encoding) and _count_beyond_ascii(data) >= FEWEST_CHARACTERS:
            raise ElmoError(f"{shown_name(path)}: is UTF-8, and not {encoding.upper()}. {_WITHOUT_ENCODING}")
        text = decode(data)
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False  # the mark is text anywhere else
            if text.count("\0") > NUL_SHARE * len(text):
                raise ElmoError(
                    f"{shown_name(path)}: is full of NUL characters, so it is no text, or not in {encoding}. If it is "
                    "UTF-16 without a byte-order mark, convert it to UTF-8, for instance by 'iconv -f utf-16le -t "
                    "utf-8'; where plain text is read, `encoding='utf-16-le'` (or -be) helps, too."
                )
        lines, newline, rest = text.rpartition("\n")
        if newline:
            yield "".join((*parts, lines, newline)).replace("\r\n", "\n")[:-1]
            parts.clear()
            is_one_line = False
        parts.append(rest)
    if last := "".join(parts):
        last = last.removesuffix("\r")
        yield last.replace("\r", "\n") if is_one_line else last


def _read_bytes(path: str, advance: Advance | None) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, and at the very end an empty block, which tells a decoder to finish."""
    with open_text(path) as (stream, position, damage):
        told = 0
        data = b"start"  # anything that is not empty
        while data:
            try:
                data = stream.read(BLOCK_SIZE)
            except damage as error:
                raise ElmoError(f"{path}: damaged or cut off ({error}); get the file again") from None
            if advance is not None:
                # The position counts compressed bytes. A pipe has none, so what was read is counted instead.
                now = position() if position is not None else told + len(data)
                advance(now - told)
                told = now
            yield data


def require_encoding(encoding: str) -> None:
    """Raise ElmoError unless Python can decode text by this name."""
    # Decoding something finds out more than looking the name up: "hex" exists, but gives no text.
    try:
        b"aa".decode(encoding, "replace")
    except (LookupError, ValueError):
        raise ElmoError(
            f"encoding {encoding!r} is unknown; choose one that Python knows, such as utf-8, utf-16, latin-1 or cp1252"
        ) from None


def _decoder(path: str | Path, encoding: str) -> Callable[[bytes], str]:
    """Return a function that decodes block after block, and names a line that is too long or that it can't decode."""
    require_encoding(encoding)
    decoder = codecs.getincrementaldecoder(encoding)()
    num_lines = length = 0  # complete lines so far, and characters of the line that has not ended yet
    is_utf8 = False  # whether a character has shown that the text is UTF-8

    def decode(data: bytes) -> str:
        nonlocal num_lines, length, is_utf8
        try:
            text = decoder.decode(data, not data)  # no data means the end: an incomplete character is an error then
        except UnicodeError as error:
            # UTF-16 or UTF-32 without a byte-order mark. Before Python 3.13, this error had no bytes and no place.
            if not isinstance(error, UnicodeDecodeError) or "BOM" in error.reason:
                raise ElmoError(
                    f"{shown_name(path)}: this {encoding.upper()} text does not start with a byte-order mark; name its "
                    f"byte order: {encoding}-le or {encoding}-be"
                ) from None
            before = error.object[: error.start]
            line = num_lines + 1 + before.decode(encoding, "replace").count("\n")
            if codecs.lookup(encoding).name == "utf-8" and (is_utf8 or not before.isascii()):
                raise ElmoError(
                    f"{shown_name(path)}, line {line}: not valid UTF-8 ({_byte(error)}), but the text before it is; "
                    "repair this line, and others like it"
                ) from None
            raise ElmoError(_undecodable(path, line, encoding, error)) from None
        try:
            text.encode()
        except UnicodeEncodeError as error:  # encodings such as UTF-7 can express a surrogate without its other half
            line = num_lines + 1 + text.count("\n", 0, error.start)
            raise ElmoError(
                f"{shown_name(path)}, line {line}: half of a character (U+{ord(text[error.start]):04X}), which can't "
                "be written to any file; remove it"
            ) from None
        num_lines += text.count("\n")
        length = len(text) - 1 - end if (end := text.rfind("\n")) >= 0 else length + len(text)
        if length > LONGEST_LINE:
            raise ElmoError(
                f"{shown_name(path)}, line {num_lines + 1}: longer than {LONGEST_LINE:,} characters; is it text? If it "
                "is, break the line, for instance by 'fold -s -w 10000'"
            )
        is_utf8 = is_utf8 or not text.isascii()
        return text

    return decode


def _is_unicode(encoding: str) -> bool:
    return codecs.lookup(encoding).name.startswith("utf")


def _count_beyond_ascii(data: bytes) -> int:
    """Count the characters of UTF-8 bytes that are not ASCII. The last may be cut off. Bytes that are not UTF-8 give 0.

    Encodings of one byte per character can decode any bytes, so they don't notice UTF-8. But a text in one of them
    that is not English is hardly ever valid UTF-8.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return 0
    return len(text) - len(text.encode("ascii", "ignore"))


def _byte(error: UnicodeDecodeError) -> str:
    return f"byte 0x{error.object[error.start]:02X}"


def _undecodable(path: str | Path, line: int, encoding: str, error: UnicodeDecodeError) -> str:
    if _count_beyond_ascii(error.object):
        return (
            f"{shown_name(path)}, line {line}: not valid {encoding.upper()} ({_byte(error)}), but valid UTF-8. "
            f"{_WITHOUT_ENCODING}"
        )
    # In latin-1, the bytes 0x80 to 0x9F are control characters, which no text has. In Windows-1252 they are quotes,
    # dashes and the like. In UTF-8 they are parts of characters, which are not looked at here.
    strange = error.object.decode("utf-8", "surrogateescape")
    if line == 1 and error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        other = "utf-16"
    elif codecs.lookup(encoding).name != "cp1252" and any("\udc80" <= letter <= "\udc9f" for letter in strange):
        other = "cp1252"
    else:
        other = "latin-1"
    regions = " Outside Western Europe, it may be cp1250 (Central Europe), cp1251 (Cyrillic) or cp1253 (Greek) instead."
    return (
        f"{shown_name(path)}, line {line}: not valid {encoding.upper()} ({_byte(error)}). Convert it to UTF-8, for "
        f"instance by 'iconv -f {iconv_name(other)} -t utf-8'; where plain text is read, `encoding={other!r}` helps, "
        f"too.{'' if other == 'utf-16' else regions}"
    )


def iconv_name(encoding: str) -> str:
    """Return the name by which iconv knows an encoding: that of glibc doesn't know latin-1, only latin1."""
    return "latin1" if encoding == "latin-1" else encoding


def shown_name(path: str | Path) -> str:
    """Return how messages name a file: `-` is standard input."""
    return "standard input" if str(path) == STDIN else str(path)
