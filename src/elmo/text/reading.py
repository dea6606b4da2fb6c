"""Reads text files of any compression and encoding, as lines or as tokenized sentences, in constant memory."""

from __future__ import annotations

import codecs
import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypedDict, Unpack

from elmo.errors import ElmoError
from elmo.text.conllu import conllu_sentences
from elmo.text.opening import STDIN, open_text
from elmo.text.rules import sentence_spans
from elmo.text.tokenizers import Tokenizer, get_tokenizer

RAW = ("sentences", "paragraphs", "wrapped")
"""The layouts of plain text: a sentence a line, a paragraph a line, or wrapped paragraphs between blank lines."""

TEXTS = (*RAW, "conllu")
"""All layouts: those, or CoNLL-U, a word a line."""

BLOCK_SIZE = 1 << 18
"""The size of the blocks that are read: in bytes, or in characters where blocks are made of wrapped paragraphs."""

MAX_PARAGRAPH = 1 << 20
"""A wrapped paragraph longer than this many characters is cut at the end of a line.

Without this limit, text that has no blank line at all would become one paragraph that might not fit into memory.
"""

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


class Reading(TypedDict, total=False):
    """The keywords of `read_sentences`, for functions that pass them on. All have defaults."""

    tokenizer: str
    text: str
    encoding: str
    lowercase: bool
    language: str | None


Advance = Callable[[int], object]
"""A callback that receives the number of bytes read from a file since its last call.

Bytes of compressed files are counted as they lie on the disk.
"""


def require_file(path: Path) -> None:
    """Check that `path` is a regular file, for callers that read a file as a whole.

    A missing file passes: whoever opens it reports it.

    Raises:
        ElmoError: If `path` is a folder, a broken link, or a pipe or device (which may never end).
    """
    if path.is_dir():
        raise ElmoError(f"{path}: is a folder; expected a file")
    if path.is_symlink() and not path.exists():
        raise ElmoError(f"{path}: is a broken link; get the file that it should point to")
    if path.exists() and not path.is_file():
        raise ElmoError(f"{path}: is a pipe or a device; save its output to a file and name that file")


def is_there(path: Path) -> bool:
    """Return whether the name is taken, even by a broken link (for which `Path.exists` is false)."""
    return path.is_symlink() or path.exists()


def expand(patterns: Sequence[str | Path]) -> list[str]:
    """List the files that `patterns` name.

    Args:
        patterns: File names, globs (`**` included) and `-` for standard input.

    Returns:
        The files in the order of the patterns, and the matches of each glob in sorted order. `-` stays `-`.

    Raises:
        ElmoError: If a file is missing, a name is a folder, or a glob matches no file.
    """
    paths: list[str] = []
    for pattern in map(str, patterns):
        # The shell's `<(command)` is a named pipe. A file whose name looks like a glob is still that file.
        if pattern == STDIN or Path(pattern).is_file() or Path(pattern).is_fifo():
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
    r"""Yield the lines of a file without their line ends (`\n` or `\r\n`).

    The file is plain, `.gz`, `.xz` or `.zst`, or `-` for standard input. A byte-order mark at the start is dropped.

    Raises:
        ElmoError: If the file is missing, is damaged, or holds bytes that are not valid in `encoding` (the message
            names the line).
    """
    for block in read_blocks(path, encoding):
        yield from block.split("\n")


def read_paragraphs(path: str | Path, encoding: str = "utf-8") -> Iterator[list[tuple[int, str]]]:
    """Yield the groups of lines between blank lines, each line with its number (from 1).

    In formats that have one token per line, such a group is a sentence.
    """
    return paragraphs(read_lines(path, encoding))


def paragraphs(lines: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Group lines as `read_paragraphs` does, for lines that are already in memory."""
    for is_text, group in groupby(enumerate(lines, 1), key=lambda item: bool(item[1].strip())):
        if is_text:
            yield list(group)


DOCUMENT = "-DOCSTART-"
"""The token of a line that separates documents in columns. It is not part of the text."""


def split_columns(line: str) -> list[str]:
    """Split a line of a CoNLL format into its columns: at tabs if it has any, otherwise at spaces.

    Columns between tabs may contain spaces.
    """
    return line.split("\t") if "\t" in line else [column for column in line.split(" ") if column]


def read_sentences(
    paths: Iterable[str | Path],
    *,
    tokenizer: str = "whitespace",
    text: str = "sentences",
    encoding: str = "utf-8",
    lowercase: bool = False,
    language: str | None = None,
) -> Iterator[list[str]]:
    """Stream the tokenized sentences of files, one file after the other.

    Args:
        paths: Files as `read_lines` reads them.
        tokenizer: A name that `get_tokenizer` knows.
        text: The layout of the files, one of `TEXTS`. The words of CoNLL-U are given, so it needs no tokenizer.
        encoding: The encoding of the files, by its Python name.
        lowercase: Whether to lower-case all tokens except for `<S>`, `</S>` and `<UNK>`.
        language: The language whose rules split paragraphs into sentences (see `split_sentences`).

    Yields:
        The tokens of a sentence. With `text="sentences"`, every line is yielded, a blank line as `[]`; the other
        layouts yield no empty sentences.

    Raises:
        ElmoError: If a setting is unknown, or a file cannot be read (see `read_lines`).
    """
    check_text(text)
    tokenize = get_tokenizer(tokenizer)
    for path in paths:
        line = 1
        for block in read_units(path, text, encoding):
            yield from tokenize_numbered(block, tokenize, text, lowercase, language, (str(path), line))[0]
            line += block.count("\n") + 1


def read_some(path: str | Path, **reading: Unpack[Reading]) -> list[list[str]]:
    """Read all sentences of a text that are not empty into memory.

    Args:
        path: A file, a glob or `-`.
        **reading: Keyword arguments of `read_sentences`.

    Raises:
        ElmoError: If the text has no such sentence, or cannot be read.
    """
    if found := [sentence for sentence in read_sentences(expand([path]), **reading) if sentence]:
        return found
    raise ElmoError(f"{path}: holds no text")


def check_text(text: str) -> None:
    """Raise ElmoError unless `text` is one of `TEXTS`."""
    if text not in TEXTS:
        raise ElmoError(f"text {text!r} is unknown; choose one of {', '.join(TEXTS)}")


def read_units(path: str | Path, text: str, encoding: str, advance: Advance | None = None) -> Iterator[str]:
    r"""Yield the text of a file in blocks of whole lines and, if paragraphs are wrapped, of whole paragraphs.

    Joined by `\n`, the blocks are the text of the file. They are what `tokenize_block` takes. It does the rest of the
    work and can run in another process.
    """
    blocks = read_blocks(path, encoding, advance)
    return _whole_paragraphs(blocks) if text in ("wrapped", "conllu") else blocks


def tokenize_block(
    block: str,
    tokenize: Tokenizer,
    text: str,
    lowercase: bool,
    language: str | None = None,
    place: tuple[str, int] = ("text", 1),
) -> list[list[str]]:
    """Split a block from `read_units` into tokenized sentences (see `read_sentences` for the arguments).

    `place` is the name of the file and the number of the block's first line, for error messages.
    """
    return tokenize_numbered(block, tokenize, text, lowercase, language, place)[0]


def tokenize_numbered(
    block: str,
    tokenize: Tokenizer,
    text: str,
    lowercase: bool,
    language: str | None = None,
    place: tuple[str, int] = ("text", 1),
) -> tuple[list[list[str]], Sequence[int]]:
    """Split a block as `tokenize_block` does, and number the lines on which its sentences begin, from 0."""
    if text == "conllu":
        found = list(conllu_sentences(block, *place))
        sentences = [[word for word, *_ in sentence.words] for sentence in found]
        numbers: Sequence[int] = [sentence.line - place[1] for sentence in found]
    elif text == "sentences":
        lines = block.split("\n")
        sentences, numbers = list(map(tokenize, lines)), range(len(lines))
    else:
        sentences, starts = list[list[str]](), list[int]()
        line = end = 0
        for start, sentence in split_block(block, text, language):
            line, end = line + block.count("\n", end, start), start
            if tokens := tokenize(sentence):
                sentences.append(tokens)
                starts.append(line)
        numbers = starts
    if lowercase:
        sentences = [list(map(lower, sentence)) for sentence in sentences]
    return sentences, numbers


def split_block(block: str, text: str, language: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a block from `read_units`, each with its start in the block."""
    if text == "sentences":
        yield from _numbered(block)
        return
    for start, paragraph in _wrapped(block) if text == "wrapped" else _numbered(block):
        for first, end in sentence_spans(paragraph, language):
            yield start + first, paragraph[first:end]


def _numbered(block: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a block, each with its start."""
    start = 0
    for line in block.split("\n"):
        yield start, line
        start += len(line) + 1


def _wrapped(block: str) -> Iterator[tuple[int, str]]:
    """Yield the wrapped paragraphs of a block, each with its start."""
    for is_text, lines in groupby(_numbered(block), key=lambda item: bool(item[1].strip())):
        if is_text:
            starts, parts = zip(*lines, strict=True)
            # A space is as long as the line end that it replaces, so positions in the paragraph are those in the block.
            yield starts[0], " ".join(parts)


def read_blocks(path: str | Path, encoding: str = "utf-8", advance: Advance | None = None) -> Iterator[str]:
    r"""Yield the text of a file in blocks of whole lines.

    The lines of a block are joined by `\n`; the line end after the last one is left out.
    """
    # Python's own text files are not used, because they cannot name the line of a bad byte.
    decode = _decoder(path, encoding)
    # The pieces of a line that has not ended yet. They are joined only once: adding to a string would copy a very long
    # line again for each block.
    parts: list[str] = []
    is_first = True
    for data in _read_bytes(str(path), advance):
        if is_first and (what := next((what for start, what in SIGNATURES.items() if data.startswith(start)), None)):
            raise ElmoError(f"{_shown(path)}: {what}")
        text = decode(data)
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False  # the mark is text anywhere else
        lines, newline, rest = text.rpartition("\n")
        if newline:
            yield "".join((*parts, lines, newline)).replace("\r\n", "\n")[:-1]
            parts.clear()
        parts.append(rest)
    if last := "".join(parts):
        yield last.removesuffix("\r")


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


def check_encoding(encoding: str) -> None:
    """Raise ElmoError unless Python can decode text by this name."""
    # Decoding something finds out more than looking the name up: "hex" exists, but gives no text.
    try:
        b"aa".decode(encoding, "replace")
    except (LookupError, ValueError):
        raise ElmoError(
            f"encoding {encoding!r} is unknown; choose one that Python knows, such as utf-8, utf-16, latin-1 or cp1252"
        ) from None


def _decoder(path: str | Path, encoding: str) -> Callable[[bytes], str]:
    """Return a function that decodes block after block, and that names the line of bytes that it cannot decode."""
    check_encoding(encoding)
    decoder = codecs.getincrementaldecoder(encoding)()
    num_lines = 0

    def decode(data: bytes) -> str:
        nonlocal num_lines
        try:
            text = decoder.decode(data, not data)  # no data means the end: an incomplete character is an error then
        except UnicodeDecodeError as error:
            line = num_lines + 1 + error.object[: error.start].decode(encoding, "replace").count("\n")
            raise ElmoError(_undecodable(path, line, encoding, error)) from None
        except UnicodeError as error:  # UTF-16 or UTF-32 without a byte-order mark
            raise ElmoError(f"{_shown(path)}: {error}; name its byte order: {encoding}-le or {encoding}-be") from None
        num_lines += text.count("\n")
        return text

    return decode


def _undecodable(path: str | Path, line: int, encoding: str, error: UnicodeDecodeError) -> str:
    # In latin-1, the bytes 0x80 to 0x9F are control characters, which no text has. In Windows-1252 they are quotes,
    # dashes and the like. In UTF-8 they are parts of characters, which are not looked at here.
    strange = error.object.decode("utf-8", "surrogateescape")
    if line == 1 and error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        other = "utf-16"
    elif codecs.lookup(encoding).name != "cp1252" and any("\udc80" <= letter <= "\udc9f" for letter in strange):
        other = "cp1252"
    else:
        other = "latin-1"
    byte = f"byte 0x{error.object[error.start]:02X}"
    return (
        f"{_shown(path)}, line {line}: not valid {encoding.upper()} ({byte}). Convert it to UTF-8, for instance by "
        f"'iconv -f {other} -t utf-8'; where plain text is read, encoding={other!r} helps, too."
    )


def _shown(path: str | Path) -> str:
    return "standard input" if str(path) == STDIN else str(path)


def _whole_paragraphs(blocks: Iterable[str]) -> Iterator[str]:
    """Cut text into blocks of about `BLOCK_SIZE` characters that end where a paragraph does."""
    lines: list[str] = []
    block_size = paragraph_size = 0
    for block in blocks:
        for line in block.split("\n"):
            lines.append(line)
            block_size += len(line) + 1
            is_blank = not (stripped := line.strip())
            paragraph_size = 0 if is_blank else paragraph_size + len(stripped) + 1
            if paragraph_size > MAX_PARAGRAPH or (is_blank and block_size > BLOCK_SIZE):
                yield "\n".join(lines)
                lines, block_size, paragraph_size = [], 0, 0
    if lines:
        yield "\n".join(lines)


def lower(token: str) -> str:
    """Convert a token to lower case, unless it is one of the special words."""
    # BOS, EOS and UNK of `elmo.text.characters` are spelled out, because that module imports NumPy (see `parallel`).
    return token if token in ("<S>", "</S>", "<UNK>") else token.lower()
