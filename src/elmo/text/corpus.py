"""The corpus folder that `elmo prepare` writes. It is memory-mapped, so it may be larger than memory.

Training reads sentences in random order. With mapped files, that costs no more than the pages that hold them, opening a
corpus of any size takes no time, and several processes on one machine share the same memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tokenize import TokenError
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from elmo.config import PADDING, TextConfig
from elmo.errors import ElmoError
from elmo.schema import from_mapping
from elmo.targets import with_home
from elmo.text.reading import Reading
from elmo.text.tokenizers import language_of
from elmo.text.vocabulary import Vocabulary

TYPES, CHARACTERS, TOKENS, SENTENCES, DESCRIPTION = (
    "types.txt",
    "characters.npy",
    "tokens.bin",
    "sentences.bin",
    "corpus.json",
)
"""The names of the files in a corpus folder."""

CHUNK_TOKENS = 1 << 20
"""How many ids are read at a time: a corpus may be larger than the memory."""

FORMAT = "elmo-corpus-1"
DESCRIPTION_CHECKSUM = "description_checksum"
_AGAIN = "remove the folder and prepare the corpus again"
# Ids of types fit into 32 bits, which halves the largest file. Positions of tokens do not: 2^31 tokens are no more than
# about 10 GB of text. The byte order is fixed, so that a folder can be copied to any machine.
TOKEN_DTYPE, START_DTYPE = np.dtype("<i4"), np.dtype("<i8")


@dataclass(frozen=True)
class PreparationConfig:
    """The settings that, together with the text, determine a corpus. They are stored in `corpus.json`."""

    tokenizer: str
    text: str
    encoding: str
    lowercase: bool
    min_count: int
    max_vocabulary: int | None
    max_characters: int
    has_given_vocabulary: bool
    language: str | None = None

    @property
    def reading(self) -> Reading:
        """How the text is read."""
        return Reading(self.tokenizer, self.text, self.encoding, self.lowercase, self.language)


@dataclass(frozen=True, eq=False)  # == of two arrays is an array, not a bool
class Corpus:
    """A prepared corpus, open for reading.

    Each distinct word is a type with an id: `<S>` 0, `</S>` 1, `<UNK>` 2, then the words by falling count (or first
    those of a given vocabulary, in its order). The first `vocabulary_size` types are the vocabulary. The others are
    read by their own characters, but predicted as `<UNK>`.

    Attributes:
        folder: The corpus folder.
        num_tokens: The number of tokens, without boundaries of sentences.
        num_sentences: The number of sentences, none of which is empty.
        num_types: The number of types, in the vocabulary or not.
        vocabulary_size: The number of types that are predicted, V.
        num_oov_tokens: The number of tokens that are predicted as `<UNK>`.
        max_characters: The number of character ids per type, C.
        checksum: The checksum of the files and the size of the vocabulary (see `corpus_checksum`).
        settings: The settings of the preparation.
        source: What the text is, for people: `inputs` (file names without folders), and `language` and `license` if
            they were given.
        characters: The character ids of each type, (num_types, C) int16.
        tokens: The type ids of all tokens, sentence after sentence, (num_tokens,) int32.
        starts: The start of each sentence in `tokens` and the end of the last, (num_sentences + 1,) int64: sentence s
            is `tokens[starts[s]:starts[s + 1]]`.
        digests: The SHA-256 of each file, by its name.
        then: What the user should do about a damaged file; the end of error messages.

    Example:
        ```python
        corpus = Corpus.open("corpus/")
        types = corpus.types()
        first = [types[index] for index in corpus.tokens[corpus.starts[0] : corpus.starts[1]]]
        ```
    """

    folder: Path
    num_tokens: int
    num_sentences: int
    num_types: int
    vocabulary_size: int
    num_oov_tokens: int
    max_characters: int
    checksum: str
    settings: PreparationConfig
    source: Mapping[str, Any]
    characters: NDArray[np.int16] = field(repr=False)
    tokens: NDArray[np.int32] = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)
    digests: Mapping[str, str] = field(repr=False)
    then: str = field(default=_AGAIN, repr=False)

    @property
    def oov_rate(self) -> float:
        """The share of the tokens that are predicted as `<UNK>`."""
        return self.num_oov_tokens / self.num_tokens

    @property
    def reading(self) -> Reading:
        """How to read other text the way this corpus was read."""
        return self.settings.reading

    @property
    def language(self) -> str | None:
        """The code of the language of the text, if it was given or the tokenizer's name says it."""
        return self.settings.language or self.source.get("language") or language_of(self.settings.tokenizer)

    @property
    def cut(self) -> TextConfig:
        """How the text was cut, for the models that are trained on it."""
        settings = self.settings
        return TextConfig(settings.tokenizer, settings.text, settings.lowercase, self.language, round(self.oov_rate, 6))

    def cut_after(self, known: TextConfig | None) -> TextConfig:
        """Return how text is to be cut for a model that was trained on this corpus: like the corpus.

        If another program tokenized the corpus, nobody knows how. What was known before then still holds.

        Args:
            known: What was known of the model that the training began with, if anything.
        """
        cut = self.cut
        if known is None or cut.tokenizer != "whitespace":
            return cut
        return replace(cut, tokenizer=known.tokenizer, text=known.text, language=cut.language or known.language)

    @classmethod
    def open(cls, folder: str | Path, then: str | None = None) -> Corpus:
        """Open a corpus folder without reading its contents, which `verify` checks.

        Args:
            folder: The corpus folder. `~` at the beginning is the home folder, as in the names of texts.
            then: What the user should do if a file is damaged or missing, in place of preparing the corpus again.

        Raises:
            ElmoError: If `folder` is not a corpus folder, a file is missing or has the wrong size, or the description
                is damaged.
        """
        folder = Path(with_home(folder))
        description = read_description(folder, then)
        then = then or _AGAIN
        try:
            counts = description["counts"]
            # `isinstance` would let true and false pass.
            if not all(type(count) is int for count in counts.values()):
                raise TypeError("a count is not a whole number")
            for name, facts in description["files"].items():
                # A copy that was cut off is noticed by its size, which needs no reading. `verify` reads the contents.
                if not (folder / name).is_file():
                    raise ElmoError(f"{folder / name}: is missing; {then}")
                if (found := (folder / name).stat().st_size) != facts["bytes"]:
                    raise ElmoError(f"{folder / name}: has {found} bytes instead of {facts['bytes']}; {then}")
            where = f"{folder / DESCRIPTION}: settings"
            settings = from_mapping(PreparationConfig, description["settings"], where, ignore_unknown=True)
            corpus = cls(
                folder=folder,
                num_tokens=counts["num_tokens"],
                num_sentences=counts["num_sentences"],
                num_types=counts["num_types"],
                vocabulary_size=counts["vocabulary_size"],
                num_oov_tokens=counts["num_oov_tokens"],
                max_characters=settings.max_characters,
                checksum=description["checksum"],
                settings=settings,
                source=_checked_source(description.get("source", {})),
                characters=open_matrix(folder / CHARACTERS, "<i2", then),
                tokens=np.memmap(folder / TOKENS, TOKEN_DTYPE, "r"),
                starts=np.memmap(folder / SENTENCES, START_DTYPE, "r"),
                digests={name: facts["sha256"] for name, facts in description["files"].items() if "sha256" in facts},
                then=then,
            )
        except ElmoError:
            raise
        except KeyError as error:
            raise ElmoError(f"{folder / DESCRIPTION}: key {error} is missing; {then}") from None
        except (AttributeError, TypeError) as error:
            raise ElmoError(f"{folder / DESCRIPTION}: is damaged ({error}); {then}") from None
        except ValueError as error:  # NumPy cannot map an empty file
            raise ElmoError(f"{folder}: is damaged ({error}); {then}") from None
        corpus._check_counts()
        return corpus

    def verify(self) -> None:
        """Compare all files with their checksums, and all numbers in them with their ranges.

        This takes a second or two per gigabyte. Corpora from older versions, which stored no checksums of files, pass
        if their numbers do.

        Raises:
            ElmoError: If the contents of a file differ or are out of range; the message names the first such file.
        """
        for name, digest in self.digests.items():
            if digest_of(self.folder / name) != digest:
                raise ElmoError(
                    f"{self.folder / name}: is damaged (its checksum is not the one in {DESCRIPTION}); {self.then}"
                )

        starts = self.starts
        if starts[0] != 0 or starts[-1] != self.num_tokens or (starts[1:] <= starts[:-1]).any():
            raise ElmoError(f"{self.folder / SENTENCES}: is damaged (sentences don't follow one another); {self.then}")
        # A part at a time: a corpus may be larger than the memory.
        for name, ids, most in (
            (TOKENS, self.tokens, self.num_types - 1),
            (CHARACTERS, self.characters.reshape(-1), PADDING + 1),
        ):
            for start in range(0, len(ids), CHUNK_TOKENS):
                part = ids[start : start + CHUNK_TOKENS]
                if part.min() < 0 or part.max() > most:
                    wrong = f"an id is not between 0 and {most}"
                    raise ElmoError(f"{self.folder / name}: is damaged ({wrong}); {self.then}")

    def _check_counts(self) -> None:
        """Raise ElmoError if the counts of the description contradict the files."""
        facts = {
            "num_tokens": (self.num_tokens, self.tokens.size),
            "num_sentences": (self.num_sentences, self.starts.size - 1),
            "num_types": (self.num_types, len(self.characters)),
            "max_characters": (self.max_characters, self.characters.shape[-1]),
        }
        for name, (said, found) in facts.items():
            if said != found:
                raise ElmoError(
                    f"{self.folder / DESCRIPTION}: says {name} {said}, but the files hold {found}; {self.then}"
                )
        if not 3 < self.vocabulary_size <= self.num_types or not 0 <= self.num_oov_tokens <= self.num_tokens:
            raise ElmoError(f"{self.folder / DESCRIPTION}: vocabulary_size or num_oov_tokens is wrong; {self.then}")

    def vocabulary(self) -> Vocabulary:
        """Read the words that are predicted, which are the first `vocabulary_size` types."""
        return Vocabulary.of(self._words(self.vocabulary_size), self.folder / TYPES)

    def types(self) -> list[str]:
        """Read all types, by id, into memory."""
        return self._words(self.num_types)

    def _words(self, num_words: int) -> list[str]:
        path = self.folder / TYPES
        try:
            # Only "\n" ends a line here: a word may contain U+0085 or other characters at which Python splits lines.
            with path.open(encoding="utf-8", newline="\n") as file:
                words = [line[:-1] for line in islice(file, num_words)]
        except UnicodeDecodeError:
            raise ElmoError(f"{path}: is damaged (not UTF-8 text); {self.then}") from None
        if len(words) < num_words:
            raise ElmoError(f"{path}: is damaged ({len(words)} words instead of {num_words}); {self.then}")
        return words

    def count_types(self) -> NDArray[np.int64]:
        """Count how often each type occurs in the text, (num_types,)."""
        counts = np.zeros(self.num_types, np.int64)
        for start in range(0, self.num_tokens, CHUNK_TOKENS):
            counts += np.bincount(self.tokens[start : start + CHUNK_TOKENS], minlength=self.num_types)
        return counts

    def count_longest(self) -> int:
        """Count the tokens that take all `max_characters`, to which longer words are cut."""
        is_longest = np.asarray(self.characters[:, -1]) != PADDING + 1
        return int(self.count_types()[is_longest].sum())


def open_matrix(path: Path, dtype: str, then: str) -> NDArray[Any]:
    """Memory-map a matrix from a NumPy file, such as the character ids of a corpus or the vectors of an index.

    Args:
        path: The `.npy` file.
        dtype: The type that its numbers must have.
        then: What the user should do about a damaged file; the end of the error message.

    Raises:
        ElmoError: If the file is missing, or holds anything other than a matrix of this type.
    """
    if not path.is_file():  # also not a pipe, which would be waited for
        raise ElmoError(f"{path}: is missing; {then}")
    try:
        matrix: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        if matrix.ndim == 2 and matrix.dtype == np.dtype(dtype):
            return matrix
        found = f"found an array of {matrix.ndim} dimensions, {matrix.dtype}"
    # NumPy parses the header as Python source, so a damaged one raises errors of the parser too.
    except (ValueError, EOFError, OverflowError, SyntaxError, TokenError) as error:
        found = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise ElmoError(f"{path}: is damaged ({found}); {then}")


def digest_of(path: Path) -> str:
    """Compute the SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def corpus_checksum(files: Mapping[str, Mapping[str, Any]], vocabulary_size: int) -> str:
    """Compute the checksum of a corpus from its files' sizes and SHA-256 and the size of its vocabulary.

    Training sees nothing else of a corpus. Settings and names of files are left out, so that corpora with the same
    content have the same checksum, whatever they were made from.
    """
    return _checksum([files, vocabulary_size])


def description_checksum(description: Mapping[str, Any]) -> str:
    """Compute the checksum of a whole description except for the entry that stores this checksum."""
    return _checksum({key: value for key, value in description.items() if key != DESCRIPTION_CHECKSUM})


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_description(folder: Path, then: str | None = None) -> dict[str, Any]:
    """Read and check `corpus.json`. `then` is that of `Corpus.open`.

    Raises:
        ElmoError: If the file is missing, is damaged or has another format.
    """
    path = folder / DESCRIPTION
    if folder.is_file():
        make = f"make one of it with 'elmo prepare corpus {folder}'"
        raise ElmoError(f"{folder}: is a file, not a corpus folder; {then or make}")
    if not folder.is_dir():
        make = f"make one with 'elmo prepare {folder} TEXT'"
        raise ElmoError(f"{folder}: no such corpus folder; {then or make}")
    if not path.is_file():
        make = "make one with 'elmo prepare'"
        raise ElmoError(f"{folder}: is not a corpus folder (it has no {DESCRIPTION}); {then or make}")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        found = repr(description["format"])
    except (ValueError, KeyError, TypeError, RecursionError):
        found = "something else"
    else:
        if found == repr(FORMAT):
            _check_description(path, description, then or _AGAIN)
            return description
    raise ElmoError(f"{path}: expected a description of format {FORMAT!r}, found {found}; {then or _AGAIN}")


def _checked_source(source: object) -> dict[str, Any]:
    """Return what a description says about the origin of the text; a TypeError if it has the wrong type."""
    if not isinstance(source, dict):
        raise TypeError("'source' is no mapping")
    found = cast("dict[str, Any]", source)
    inputs = found.get("inputs", [])
    texts = [*inputs, *(found.get(key, "") for key in ("language", "license"))] if isinstance(inputs, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("'source' has a value of the wrong type")
    return found


def _check_description(path: Path, description: dict[str, Any], then: str) -> None:
    """Compare a description with the checksums that it contains."""
    try:
        files, size = description["files"], description["counts"]["vocabulary_size"]
        wrong = description["checksum"] != corpus_checksum(files, size)
    except (KeyError, TypeError, AttributeError):
        wrong = False  # `Corpus.open` reports a key that is missing or has the wrong type
    own = description_checksum(description)  # corpora from older versions do not store it
    if wrong or description.get(DESCRIPTION_CHECKSUM, own) != own:
        raise ElmoError(f"{path}: is damaged (its checksum does not match its contents); {then}")


def require_corpus(corpus: object) -> None:
    """Raise an ElmoError for what is no corpus, such as the path of its folder."""
    if not isinstance(corpus, Corpus):
        raise ElmoError(f"`corpus`: expected what Corpus.open returns, found {type(corpus).__name__}")
