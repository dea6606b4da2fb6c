"""How a text is cut for a model: as the text that the model was trained on, unless it is tokenized already.

A file is taken for tokenized if its marks (commas, periods, ...) stand between spaces, and for raw text otherwise.
"""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.text.conllu import layout_by_name, refuse_tokenizer
from elmo.text.decoding import describe_non_text, read_blocks, require_encoding
from elmo.text.languages import require_language_code
from elmo.text.opening import STDIN, peek_stdin
from elmo.text.reading import SPLIT, WITH_WORDS, Reading, TextBlock, tokenize_block
from elmo.text.rules import FULL_STOPS, INNER_MARKS, MARKS, is_not_english, is_split_by_language
from elmo.text.suspicion import note_on_layout, note_on_words
from elmo.text.tokenizers import language_of, refuse_function

SAMPLE_CHARACTERS, SAMPLE_FILES = 1 << 16, 20
"""How many characters of a text are looked at, and in how many files they are looked for."""

_MARKS = MARKS + FULL_STOPS + INNER_MARKS
_OTHERS = "".join(mark for mark in _MARKS if not mark.isascii())
_GAP = r"[^\S\n]"
_PHRASE = rf"\S{{20}}{_GAP}(?=[៕។])"
"""The end of a phrase of Khmer, which has no spaces between words, but often one before the mark at the end."""

_ATTACHED = re.compile(rf"[^\W\d_][,;:!?](?!\S)|[^\W\d_]\.[\"'“”’»)]*(?=\n|\Z)|[^\s{_MARKS}][{_OTHERS}]|{_PHRASE}")
# Tibetan repeats its mark behind a space ("། །"), and leaves the first one out after some letters.
_DETACHED = re.compile(rf"(?<!\S)(?<![{_MARKS}ཀགཤ]{_GAP})[{_MARKS}](?!\S)(?<!\S{{20}}{_GAP}[៕។])")


def looks_tokenized(text: str) -> bool | None:
    """Return whether the marks of a text stand between spaces, as tokenizers leave them; None if it has no marks."""
    attached, detached = len(_ATTACHED.findall(text)), len(_DETACHED.findall(text))
    return None if attached == detached == 0 else detached >= attached


@dataclass(frozen=True)
class Choice:
    """How a text is to be read.

    Attributes:
        reading: How to read it.
        is_own: Whether it is raw text that is cut as the model's training text was, without an option that says so.
        notes: What the user should know, a sentence each.
    """

    reading: Reading
    is_own: bool = False
    notes: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, str]:
        """What a file of vectors records about how its text was read."""
        reading = self.reading
        return {"tokenizer": reading.tokenizer, "text": reading.text, "lowercase": "yes" if reading.lowercase else "no"}

    def __str__(self) -> str:
        """Return the end of a command's result, which says how raw text was cut if no option did."""
        if not self.is_own:
            return ""
        how = f"tokenizer {self.reading.tokenizer}, {self.reading.text}"
        lower = ", in lower case" if self.reading.lowercase else ""
        return f"; raw text, cut as the model's training text was ({how}{lower})"


def choose_cut(
    own: TextConfig | None,
    sample: str | None,
    *,
    tokenizer: str | None = None,
    text: str | None = None,
    lowercase: bool | None = None,
    language: str | None = None,
    encoding: str = "utf-8",
) -> Choice:
    """Decide how a text is cut for a model.

    Options that are given are followed. Otherwise, lower case and language are those of the model's training text. So
    are tokenizer and layout, if the text is raw and no tokenizer is given. In all other cases a line is a sentence, and
    is cut at whitespace unless a tokenizer is given.

    Args:
        own: How the model's training text was cut, or None if that is not known.
        sample: The beginning of the text; None if it can't be looked at, and is then taken for tokenized.
        tokenizer: The name of the tokenizer that the user chose; None, here and below, if the user chose none.
        text: The layout.
        lowercase: Whether to convert to lower case.
        language: The language, for splitting sentences.
        encoding: The encoding of the text.

    Raises:
        ElmoError: If the training text was cut by a function from outside of this package, a tokenizer is given for
            CoNLL-U, or the language is not a code.
    """
    require_language_code(language)
    known = own or TextConfig()
    is_tokenized = None if sample is None else looks_tokenized(sample)
    if text in WITH_WORDS:  # whatever the text looks like
        refuse_tokenizer(tokenizer)
        is_tokenized = True
    is_raw = is_tokenized is False or (is_tokenized is None and _has_no_spaces(sample or ""))
    notes: list[str] = []
    if tokenizer is None:
        if is_tokenized is False and known.tokenizer == "whitespace":
            notes.append(_UNKNOWN if own is None else _TOKENIZED)
        elif is_raw:
            tokenizer_of(known)
    # What cut a text that had been tokenized is not known, so nothing can be said against a choice.
    elif known.tokenizer not in ("whitespace", tokenizer) and (tokenizer != "whitespace" or is_raw):
        notes.append(f"the model's training text was cut by tokenizer {known.tokenizer}, not by {tokenizer}")
    if own is not None and lowercase is not None and lowercase != own.lowercase:
        notes.append(
            "the model's training text was converted to lower case, and this text is not"
            if own.lowercase
            else "this text is converted to lower case, and the model's training text was not"
        )
    follows = is_raw and tokenizer is None
    is_own = follows and known.tokenizer != "whitespace"
    reading = Reading(
        tokenizer or (known.tokenizer if is_own else "whitespace"),
        text or (known.text if follows and known.text not in WITH_WORDS else "sentences"),
        encoding,
        known.lowercase if lowercase is None else lowercase,
        language or language_of(tokenizer or "") or known.language,
    )
    if (note := note_on_sentences(reading.text, reading.language)) is not None:
        notes.append(note)
    return Choice(reading, is_own, tuple(notes))


def how_to_cut(
    own: TextConfig | None, text: str, tokenizer: str | None = None, language: str | None = None
) -> TextConfig:
    """Return how a text in memory is cut for a model, with another tokenizer or language if they are given.

    A text that looks raw gets a warning if the model's training text was cut at spaces.

    Args:
        own: How the model's training text was cut.
        text: The text.
        tokenizer: The name of a tokenizer that the user chose.
        language: The language that the user chose.

    Raises:
        ElmoError: If nobody names a tokenizer, or the model names a function from outside of this package.
    """
    require_language_code(language)
    if tokenizer is None:
        if own is None:
            raise ElmoError(f"the model does not say how its training text was cut; {_NAME_ONE}")
        if tokenizer_of(own) == "whitespace" and looks_tokenized(text) is False:
            warnings.warn(_TOKENIZED, stacklevel=4)
        return replace(own, language=language or own.language)
    known = own or TextConfig()
    return replace(known, tokenizer=tokenizer, language=language or language_of(tokenizer) or known.language)


def tokenizer_of(own: TextConfig | None) -> str:
    """Return the name of the tokenizer by which a model's training text was cut, "whitespace" if that is not known.

    Raises:
        ElmoError: If it is a function from outside of this package.
    """
    name = "whitespace" if own is None else own.tokenizer
    refuse_function(name, "the model")
    return name


def is_lower_case(own: TextConfig | None) -> bool:
    """Return whether a model's training text was converted to lower case; False if that is not known."""
    return own is not None and own.lowercase


_NAME_ONE = (
    "pass `tokenizer='ptb'` for English, `tokenizer='words'` for another language, or `tokenizer='whitespace'` to cut "
    "at spaces only, as AllenNLP and bilm-tf did"
)
_UNKNOWN = f"this looks like raw text, and the model does not say how its training text was cut; {_NAME_ONE}"
_TOKENIZED = (
    "this looks like raw text, and the model learned from text that was already tokenized; tokenize this text in the "
    "same way, or name the tokenizer that comes nearest"
)
_UNSEEN = (
    "it comes from a named pipe, whose beginning can't be looked at, and is cut at spaces; if it is raw text, give it "
    "as standard input (-) or name a tokenizer, and if it is tokenized, pass `tokenizer='whitespace'`"
)


def note_on_pipes(own: TextConfig | None, paths: Sequence[str]) -> str | None:
    """Return a sentence if text from a named pipe is cut at spaces, and the model's training text was not.

    Args:
        own: How the model's training text was cut, or None if that is not known.
        paths: The files of a text whose beginning could not be looked at, and for which no tokenizer is given.
    """
    is_cut_otherwise = own is not None and own.tokenizer != "whitespace"
    return _UNSEEN if is_cut_otherwise and any(Path(path).is_fifo() for path in paths) else None


def note_on_sentences(text: str, language: str | None) -> str | None:
    """Return a sentence if paragraphs of this language are split by the rules of English, for want of its own.

    Args:
        text: The layout.
        language: The language, or None if it is not known.
    """
    if text not in SPLIT or not is_not_english(language) or is_split_by_language(language):
        return None
    return (
        f"sentences of language {language} are split by our rules, which know the abbreviations of English only; "
        "pip install 'elmo-torch[sentences]' for rules of that language, or give one sentence a line"
    )


def _has_no_spaces(text: str) -> bool:
    """Return whether no line of a text has spaces. Without marks, it is then raw: proteins, or a spaceless script."""
    stripped = text.strip()
    return bool(stripped) and not any(map(str.isspace, stripped.replace("\n", "")))


class Sample(NamedTuple):
    """The beginning of a file, in whole lines."""

    path: str
    text: str


def sample_of(paths: Sequence[str], encoding: str = "utf-8") -> Sample | None:
    """Return the beginning of a text without consuming it; None if it can't be looked at, as in a named pipe.

    It is that of the first file that has marks. If none of the first `SAMPLE_FILES` has any, it is that of the first
    file that is not blank.

    Raises:
        ElmoError: If a file can't be read, or the encoding is unknown.
    """
    found: Sample | None = None
    for path in paths[:SAMPLE_FILES]:
        text = _beginning(path, encoding)
        if text is None:
            return None
        if looks_tokenized(text) is not None:
            return Sample(path, text)
        found = found if found and found.text.strip() else Sample(path, text)
    return found


def strange_file(sample: Sample, paths: Sequence[str], layout: str, encoding: str) -> tuple[str, str] | None:
    """Return the first file that does not look like what the text is read as, and the note on its layout.

    Args:
        sample: What `sample_of` returned, which is looked at first.
        paths: The files, of which the first `SAMPLE_FILES` are looked at.
        layout: How the text is read.
        encoding: The encoding of the files.

    Raises:
        ElmoError: If a file can't be read.
    """
    for path in (sample.path, *(path for path in paths[:SAMPLE_FILES] if path != sample.path)):
        text = sample.text if path == sample.path else _beginning(path, encoding)
        if text is not None and (note := note_on_layout(text, layout)) is not None:
            return path, note
    return None


def _beginning(path: str, encoding: str) -> str | None:
    if path == STDIN:
        require_encoding(encoding)
        found = peek_stdin(4 * SAMPLE_CHARACTERS)  # as many characters as of a file, if each has four bytes
        # If it is no text, the reader of the whole says so.
        return None if found is None or describe_non_text(found[0]) else _decoded(found[0], encoding, is_whole=found[1])
    if Path(path).exists() and not Path(path).is_file():
        return None
    blocks = read_blocks(path, encoding)
    text = next(blocks, "")
    if len(text) < SAMPLE_CHARACTERS:  # a last line without a line end is a block of its own
        text = "\n".join([text, *islice(blocks, 1)])
    return text if len(text) <= SAMPLE_CHARACTERS else _whole_lines(text[:SAMPLE_CHARACTERS])


def _decoded(data: bytes, encoding: str, *, is_whole: bool = False) -> str:
    """Decode the beginning of a text, or all of it, but not a character or a line that is cut off."""
    try:
        text = codecs.getincrementaldecoder(encoding)("ignore").decode(data)
    except UnicodeError:  # UTF-16 without a byte-order mark, which the reader of the whole text reports
        return ""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return text if is_whole and len(text) <= SAMPLE_CHARACTERS else _whole_lines(text[:SAMPLE_CHARACTERS])


def choose_for_files(
    own: TextConfig | None,
    vocabulary_file: Path | None,
    paths: Sequence[str],
    *,
    tokenizer: str | None = None,
    text: str | None = None,
    lowercase: bool | None = None,
    language: str | None = None,
    encoding: str = "utf-8",
    ids: bool = False,
) -> tuple[Choice, str]:
    """Decide how the text in files is cut for a model, by the names of the files and the beginning of the text.

    Args:
        own: How the model's training text was cut, or None if that is not known.
        vocabulary_file: The words of the model, one on each line.
        paths: The files.
        tokenizer: The name of the tokenizer that the user chose; this and the next three as in `choose_cut`.
        text: The layout. None takes that of CoNLL-U for files with its name.
        lowercase: Whether to convert to lower case.
        language: The language, for splitting sentences.
        encoding: The encoding of the files.
        ids: Whether each line begins with an id and a tab, which are no part of the text.

    Returns:
        The choice, and the file that its notes are about. One of them may say that the text has another layout. If
        there is nothing else to note, there may be a note on words that the model does not know.

    Raises:
        ElmoError: As `choose_cut` does, or if a file can't be read.
    """
    if text is None and layout_by_name(paths) == "conllu":
        text = "conllu"
    sample = sample_of(paths, encoding)
    if ids and sample is not None and text != "conllu":
        sample = sample._replace(text="\n".join(line.partition("\t")[2] for line in sample.text.split("\n")))
    choice = choose_cut(
        own,
        None if sample is None else sample.text,
        tokenizer=tokenizer,
        text=text,
        lowercase=lowercase,
        language=language,
        encoding=encoding,
    )
    note, where = None, paths[0] if sample is None else sample.path
    if sample is not None:
        others = [] if ids or choice.notes else paths  # only the sample has been read without its ids
        if (found := strange_file(sample, others, choice.reading.text, encoding)) is not None:
            where, note = found
        elif not choice.notes:
            note = unknown_note(own, vocabulary_file, sample, choice.reading)
    elif tokenizer is None and choice.reading.text not in WITH_WORDS:
        note = note_on_pipes(own, paths)
    if note is not None:
        choice = replace(choice, notes=(*choice.notes, note))
    return choice, where


def _whole_lines(text: str) -> str:
    """Leave out the last line, which may be cut off, unless it is the only one."""
    return text[: text.rfind("\n") + 1] or text


def unknown_note(own: TextConfig | None, vocabulary_file: Path | None, sample: Sample, reading: Reading) -> str | None:
    """Return what `note_on_words` says about the beginning of a text.

    Args:
        own: How the model's training text was cut.
        vocabulary_file: The words of the model, one on each line.
        sample: The beginning of the text.
        reading: How it is read.
    """
    if own is None or own.oov_rate is None or vocabulary_file is None or not vocabulary_file.exists():
        return None
    sentences, _ = tokenize_block(TextBlock(sample.text, sample.path), reading)
    return note_on_words(own, vocabulary_file, [token for sentence in sentences for token in sentence])
