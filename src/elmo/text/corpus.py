"""The corpus folder that `elmo prepare` writes: memory-mapped, hence of any size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.text.vocabulary import Vocabulary

TYPES, CHARACTERS, TOKENS, SENTENCES, DESCRIPTION = (
    "types.txt",
    "characters.npy",
    "tokens.bin",
    "sentences.bin",
    "corpus.json",
)
"""The files of a corpus folder."""

FORMAT = "elmo-corpus-1"
DESCRIPTION_CHECKSUM = "description_checksum"
TOKEN_DTYPE, START_DTYPE = np.dtype("<i4"), np.dtype("<i8")


@dataclass(frozen=True, eq=False)
class Corpus:
    """A prepared corpus, read only.

    Types are numbered: `<S>`, `</S>`, `<UNK>`, then the words by falling count. The first `vocabulary_size` are the
    vocabulary; the others are predicted as `<UNK>` (id 2) but read by their own characters.

    `characters` is (num_types, C) int16, type id -> character ids; `tokens` (num_tokens,) int32 type ids, sentence
    after sentence without boundaries; `starts` (num_sentences + 1,) int64: sentence s is
    `tokens[starts[s]:starts[s + 1]]`. No sentence is empty. `source` tells for people what the text is: `inputs`,
    names without their folders, and `language` and `license` where they were given. `digests` are the SHA-256 of the
    files by name.
    """

    folder: Path
    num_tokens: int
    num_sentences: int
    num_types: int
    vocabulary_size: int
    num_oov_tokens: int
    max_characters: int
    checksum: str
    settings: dict[str, Any]
    source: Mapping[str, Any]
    characters: NDArray[np.int16] = field(repr=False)
    tokens: NDArray[np.int32] = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)
    digests: Mapping[str, str] = field(repr=False)

    @property
    def oov_rate(self) -> float:
        """Share of the tokens that are predicted as `<UNK>`."""
        return self.num_oov_tokens / self.num_tokens

    @property
    def reading(self) -> dict[str, Any]:
        """How its text was read: the keywords of `read_sentences`, to read other text alike."""
        return {key: self.settings[key] for key in ("tokenizer", "text", "encoding", "lowercase")}

    @classmethod
    def open(cls, folder: str | Path) -> Corpus:
        """Open a corpus folder, in a moment whatever its size; `verify` reads it all.

        Raises ElmoError where it is none, a file is absent or has another size, or the description is damaged.
        """
        folder = Path(folder)
        description = read_description(folder)
        try:
            counts = description["counts"]
            if not all(type(count) is int for count in counts.values()):
                raise TypeError("a count is no whole number")
            for name, facts in description["files"].items():
                _check_size(folder / name, facts["bytes"])
            corpus = cls(
                folder=folder,
                num_tokens=counts["num_tokens"],
                num_sentences=counts["num_sentences"],
                num_types=counts["num_types"],
                vocabulary_size=counts["vocabulary_size"],
                num_oov_tokens=counts["num_oov_tokens"],
                max_characters=description["settings"]["max_characters"],
                checksum=description["checksum"],
                settings=description["settings"],
                source=description.get("source", {}),
                characters=open_matrix(folder / CHARACTERS, "<i2", "prepare the corpus again"),
                tokens=np.memmap(folder / TOKENS, TOKEN_DTYPE, "r"),
                starts=np.memmap(folder / SENTENCES, START_DTYPE, "r"),
                digests={name: facts["sha256"] for name, facts in description["files"].items() if "sha256" in facts},
            )
        except ElmoError:
            raise
        except KeyError as error:
            raise ElmoError(f"{folder / DESCRIPTION}: key {error} is missing; prepare the corpus again") from None
        except (AttributeError, TypeError) as error:
            raise ElmoError(f"{folder / DESCRIPTION}: is damaged ({error}); prepare the corpus again") from None
        except ValueError as error:  # a file without content
            raise ElmoError(f"{folder}: is damaged ({error}); prepare the corpus again") from None
        corpus._check_counts()
        return corpus

    def verify(self) -> None:
        """Compare all files with the checksums of the description, which takes about a second for each gigabyte.

        Raises ElmoError that names the first file with another content. Corpora of before, without checksums of
        files, pass.
        """
        for name, digest in self.digests.items():
            if digest_of(self.folder / name) != digest:
                raise ElmoError(
                    f"{self.folder / name}: is damaged (its checksum is not the one in {DESCRIPTION}); prepare the "
                    "corpus again"
                )

    def _check_counts(self) -> None:
        """Refuse counts that the files contradict."""
        facts = {
            "num_tokens": (self.num_tokens, self.tokens.size),
            "num_sentences": (self.num_sentences, self.starts.size - 1),
            "num_types": (self.num_types, len(self.characters)),
            "max_characters": (self.max_characters, self.characters.shape[-1]),
        }
        for name, (said, found) in facts.items():
            if said != found:
                raise ElmoError(
                    f"{self.folder / DESCRIPTION}: says {name} {said}, but the files hold {found}; prepare the corpus "
                    "again"
                )
        if not 3 < self.vocabulary_size <= self.num_types or not 0 <= self.num_oov_tokens <= self.num_tokens:
            raise ElmoError(
                f"{self.folder / DESCRIPTION}: its vocabulary_size or num_oov_tokens can't be; prepare the corpus again"
            )

    def vocabulary(self) -> Vocabulary:
        """The words that are predicted: the first `vocabulary_size` types."""
        return Vocabulary(self._words(self.vocabulary_size))

    def types(self) -> list[str]:
        """All types by id, in memory."""
        return self._words(self.num_types)

    def _words(self, num_words: int) -> list[str]:
        path = self.folder / TYPES
        try:
            with path.open(encoding="utf-8", newline="\n") as file:
                words = [line[:-1] for line in islice(file, num_words)]
        except UnicodeDecodeError:
            raise ElmoError(f"{path}: is damaged (not UTF-8 text); prepare the corpus again") from None
        if len(words) < num_words:
            raise ElmoError(f"{path}: is damaged ({len(words)} words instead of {num_words}); prepare the corpus again")
        return words


def open_matrix(path: Path, dtype: str, then: str) -> NDArray[Any]:
    """A matrix of a NumPy file, mapped. Raises ElmoError for anything else, which says what to do `then`."""
    try:
        matrix: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        if matrix.ndim == 2 and matrix.dtype == np.dtype(dtype):
            return matrix
        found = f"found an array of {matrix.ndim} dimensions, {matrix.dtype}"
    except (ValueError, EOFError, OverflowError, SyntaxError, TokenError) as error:  # of how NumPy reads a header
        found = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise ElmoError(f"{path}: is damaged ({found}); {then}")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def corpus_checksum(files: Mapping[str, Mapping[str, Any]], vocabulary_size: int) -> str:
    """A corpus's checksum: whoever trains on it sees the files and the vocabulary's size, nothing else."""
    return _checksum([files, vocabulary_size])


def description_checksum(description: Mapping[str, Any]) -> str:
    """The checksum of all that a description says, except for this checksum itself."""
    return _checksum({key: value for key, value in description.items() if key != DESCRIPTION_CHECKSUM})


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_description(folder: Path) -> dict[str, Any]:
    """What `corpus.json` says. Raises ElmoError where there is none, or of another format."""
    path = folder / DESCRIPTION
    if not folder.is_dir():
        raise ElmoError(f"{folder}: no such corpus folder; make one with 'elmo prepare {folder} TEXT'")
    if not path.is_file():
        raise ElmoError(f"{folder}: is no corpus folder (it has no {DESCRIPTION}); 'elmo prepare' makes one")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        found = repr(description["format"])
    except (ValueError, KeyError, TypeError, RecursionError):
        found = "something else"
    else:
        if found == repr(FORMAT):
            _check_description(path, description)
            return description
    raise ElmoError(f"{path}: expected a description of format {FORMAT!r}, found {found}; prepare the corpus again")


def _check_description(path: Path, description: dict[str, Any]) -> None:
    """Compare a description with its checksums, as far as it has them."""
    try:
        files, size = description["files"], description["counts"]["vocabulary_size"]
        wrong = description["checksum"] != corpus_checksum(files, size)
    except (KeyError, TypeError, AttributeError):
        wrong = False  # what is missing or of another kind is told when it is read
    own = description_checksum(description)
    if wrong or description.get(DESCRIPTION_CHECKSUM, own) != own:
        raise ElmoError(f"{path}: is damaged (its checksum is not that of what it says); prepare the corpus again")


def _check_size(path: Path, expected: int) -> None:
    if not path.is_file():
        raise ElmoError(f"{path}: is missing; prepare the corpus again")
    if (found := path.stat().st_size) != expected:
        raise ElmoError(f"{path}: has {found} bytes instead of {expected}; prepare the corpus again")
