"""Reads text files as tokenized sentences, in constant memory."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from elmo.config import SPECIAL_WORDS
from elmo.errors import ElmoError
from elmo.targets import is_there, with_home
from elmo.text import decoding
from elmo.text.conllu import conllu_sentences, layout_by_name
from elmo.text.decoding import Advance, read_blocks
from elmo.text.opening import STDIN
from elmo.text.rules import sentence_spans
from elmo.text.tokenizers import get_tokenizer

SPLIT = ("paragraphs", "wrapped")
"""The layouts that are split into sentences: a paragraph a line, or wrapped paragraphs between blank lines."""

RAW = ("sentences", *SPLIT)
"""The layouts of plain text: a sentence a line, or one of `SPLIT`."""

WITH_WORDS = ("conllu",)
"""The layouts whose words are given, so that no tokenizer cuts them: CoNLL-U, a word a line."""

TEXTS = (*RAW, *WITH_WORDS)
"""All layouts."""

MAX_PARAGRAPH = 1 << 20
"""A wrapped paragraph longer than this many characters is cut at the end of a line.

Without this limit, text that has no blank line at all would become one paragraph that might not fit into memory.
"""


@dataclass(frozen=True)
class Reading:
    """How files are read as sentences.

    Attributes:
        tokenizer: A name that `get_tokenizer` knows.
        text: The layout of the files, one of `TEXTS`. The words of CoNLL-U are given, so it needs no tokenizer.
        encoding: The encoding of the files, by its Python name.
        lowercase: Whether to lower-case all tokens except for `<S>`, `</S>` and `<UNK>`.
        language: The language whose rules split paragraphs into sentences (see `split_sentences`).

    Raises:
        ElmoError: If the layout is unknown.
    """

    tokenizer: str = "whitespace"
    text: str = "sentences"
    encoding: str = "utf-8"
    lowercase: bool = False
    language: str | None = None

    def __post_init__(self) -> None:
        if self.text not in TEXTS:
            raise ElmoError(f"text {self.text!r} is unknown; choose one of {', '.join(TEXTS)}")


PLAIN = Reading()
"""How text is read that was tokenized before: a sentence on each line, cut at whitespace."""


def expand(patterns: str | Path | Sequence[str | Path]) -> list[str]:
    """List the files that `patterns` name.

    Args:
        patterns: File names, globs (`**` included) and `-` for standard input; or one of these by itself. `~` at the
            beginning is the home folder, as in the names of models.

    Returns:
        The files in the order of the patterns, and the matches of each glob in sorted order. `-` stays `-`.

    Raises:
        ElmoError: If a file is missing, a name is a folder, a glob matches no file, or standard input is named twice.
    """
    paths: list[str] = []
    for pattern in map(str, [patterns] if isinstance(patterns, str | Path) else patterns):
        if not pattern:
            raise ElmoError("the name of a file is empty; is it a variable that is not set?")
        if pattern == STDIN and STDIN in paths:
            raise ElmoError("-: standard input is named twice, and can be read only once")
        pattern = with_home(pattern)
        # The shell's `<(command)` is a named pipe. A file whose name looks like a glob is still that file.
        if pattern == STDIN:
            paths.append(pattern)
        elif not is_there(pattern):
            if not glob.has_magic(pattern):
                raise ElmoError(f"{pattern}: no such file")
            found = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207
            if not found:
                raise ElmoError(f"{pattern}: no file matches")
            paths += found
        elif Path(pattern).is_file() or Path(pattern).is_fifo():
            paths.append(pattern)
        elif Path(pattern).is_dir():
            raise ElmoError(f"{pattern}: {_instead_of_folder(Path(pattern))}")
        else:
            raise ElmoError(f"{pattern}: is a device; write what it gives to a file, and name that")
    return paths


def _instead_of_folder(folder: Path) -> str:
    """Say what a folder is, and what to name in its place as a text."""
    if (folder / "model.safetensors").is_file():
        return "is a model and not a text; name the model first, and then the text"
    if (folder / "corpus.json").is_file():  # has a file types.txt, which is a list of words and no text
        return "is a corpus and not a text; name the files that it was made from"
    if (folder / "index.json").is_file():
        return "is an index and not a text; name the files that it was built from"
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    endings = Counter(path.suffix for path in files if path.suffix)
    ending = max(endings, key=lambda one: (endings[one], one), default=".txt")
    inside = f"*{ending}" if files else f"**/*{ending}"
    return f"is a folder; name its files, for example '{folder / inside}'"


class TextBlock(NamedTuple):
    """A block of whole lines of a file, and the numbers of its first line (from 1) and first character (from 0).

    `file` is the number of the file (from 0) if it is one of several.
    """

    text: str
    path: str
    line: int = 1
    start: int = 0
    file: int = 0


def read_sentences(paths: Iterable[str | Path], reading: Reading = PLAIN) -> Iterator[list[str]]:
    """Stream the tokenized sentences of files, one file after the other.

    Args:
        paths: Files as `read_lines` reads them.
        reading: How to read them.

    Yields:
        The tokens of a sentence. If a line is a sentence, every line is yielded, a blank line as `[]`; the other
        layouts yield no empty sentences.

    Raises:
        ElmoError: If the tokenizer is unknown, or a file cannot be read (see `read_lines`).
    """
    get_tokenizer(reading.tokenizer)  # one that is unknown is an error even if there is no file
    for path in paths:
        for block in read_text_blocks(path, reading):
            yield from tokenize_block(block, reading)[0]


def read_all(path: str | Path, reading: Reading = PLAIN) -> list[list[str]]:
    """Read all sentences of a text into memory, except those without a token other than `<S>` and `</S>`.

    Args:
        path: A file, a glob or `-`.
        reading: How to read it. A file that is CoNLL-U by its name is read as such, whatever the layout of `reading`.

    Raises:
        ElmoError: If the text has no such sentence, or cannot be read.
    """
    from elmo.text.characters import without_boundaries  # with NumPy, which processes that tokenize need not load

    paths = expand([path])
    if layout_by_name(paths) == "conllu":
        reading = replace(reading, text="conllu", tokenizer="whitespace")
    if found := [sentence for sentence in read_sentences(paths, reading) if without_boundaries(sentence)]:
        return found
    raise ElmoError(f"{path}: holds no text")


def read_text_blocks(path: str | Path, reading: Reading, advance: Advance | None = None) -> Iterator[TextBlock]:
    r"""Yield the text of a file in blocks of whole lines.

    Blocks of wrapped text end where a paragraph ends, and those of CoNLL-U where a sentence does, unless it is longer
    than `MAX_PARAGRAPH`. Joined by `\n`, the blocks are the text of the file. They are what `tokenize_block` takes,
    which does the rest of the work and can run in another process.
    """
    blocks = read_blocks(path, reading.encoding, advance)
    line, start = 1, 0
    for text in _whole_paragraphs(blocks) if reading.text in ("wrapped", "conllu") else blocks:
        yield TextBlock(text, str(path), line, start)
        line, start = line + text.count("\n") + 1, start + len(text) + 1


def tokenize_block(block: TextBlock, reading: Reading) -> tuple[list[list[str]], Sequence[int]]:
    """Split a block into tokenized sentences.

    Returns:
        The sentences, and for each the number of the block's line on which it begins, from 0.
    """
    tokenize = get_tokenizer(reading.tokenizer)
    if reading.text == "conllu":
        found = list(conllu_sentences(block.text, block.path, block.line))
        sentences = [[word for word, *_ in sentence.words] for sentence in found]
        numbers: Sequence[int] = [sentence.line - block.line for sentence in found]
    elif reading.text == "sentences":
        lines = block.text.split("\n")
        sentences, numbers = list(map(tokenize, lines)), range(len(lines))
    else:
        sentences, starts = list[list[str]](), list[int]()
        for line, sentence in _sentences_of(block, reading):
            if tokens := tokenize(sentence):
                sentences.append(tokens)
                starts.append(line)
        numbers = starts
    if reading.lowercase:
        sentences = lower_all(sentences)
    return sentences, numbers


def raw_sentences(path: str | Path, reading: Reading) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a file in one of the layouts `RAW`, not tokenized, each with the number of its first line.

    Lines are counted from 1.
    """
    for block in read_text_blocks(path, reading):
        for line, sentence in _sentences_of(block, reading):
            yield block.line + line, sentence


def _sentences_of(block: TextBlock, reading: Reading) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a block, each with the number of the block's line on which it begins, from 0."""
    line = end = 0
    for start, sentence in split_text(block.text, reading.text, reading.language):
        line, end = line + block.text.count("\n", end, start), start
        yield line, sentence


def split_text(text: str, layout: str, language: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a text in one of the layouts `RAW`, each with its start in the text.

    Raises:
        ElmoError: If the layout is another one.
    """
    if layout == "sentences":
        yield from _numbered(text)
        return
    if layout not in SPLIT:
        raise ElmoError(f"text {layout!r} is not plain text; choose one of {', '.join(RAW)}")
    for start, paragraph in _wrapped(text) if layout == "wrapped" else _numbered(text):
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


def _whole_paragraphs(blocks: Iterable[str]) -> Iterator[str]:
    """Cut text into blocks of about `decoding.BLOCK_SIZE` characters that end where a paragraph does."""
    lines: list[str] = []
    block_size = paragraph_size = 0
    for block in blocks:
        for line in block.split("\n"):
            lines.append(line)
            block_size += len(line) + 1
            is_blank = not (stripped := line.strip())
            paragraph_size = 0 if is_blank else paragraph_size + len(stripped) + 1
            if paragraph_size > MAX_PARAGRAPH or (is_blank and block_size > decoding.BLOCK_SIZE):
                yield "\n".join(lines)
                lines, block_size, paragraph_size = [], 0, 0
    if lines:
        yield "\n".join(lines)


def lower(token: str) -> str:
    """Convert a token to lower case, unless it is one of the special words."""
    return token if token in SPECIAL_WORDS else token.lower()


def lower_all(sentences: Iterable[Sequence[str]]) -> list[list[str]]:
    """Convert the tokens of sentences to lower case, except for the special words."""
    return [list(map(lower, sentence)) for sentence in sentences]
