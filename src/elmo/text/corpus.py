"""The corpus folder that `elmo prepare` writes: memory-mapped, hence of any size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
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
TOKEN_DTYPE, START_DTYPE = np.dtype("<i4"), np.dtype("<i8")


@dataclass(frozen=True, eq=False)
class Corpus:
    """A prepared corpus, read only.

    Types are numbered: `<S>`, `</S>`, `<UNK>`, then the words by falling count. The first `vocabulary_size` are the
    vocabulary; the others are predicted as `<UNK>` (id 2) but read by their own characters.

    `characters` is (num_types, C) int16, type id -> character ids; `tokens` (num_tokens,) int32 type ids, sentence
    after sentence without boundaries; `starts` (num_sentences + 1,) int64: sentence s is
    `tokens[starts[s]:starts[s + 1]]`. No sentence is empty. `source` tells for people what the text is: `inputs`,
    names without their folders, and `language` and `license` where they were given.
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
        """Open a corpus folder. Raises ElmoError where it is none, or a file is absent or has another size."""
        folder = Path(folder)
        description = read_description(folder)
        try:
            counts = description["counts"]
            for name, facts in description["files"].items():
                _check_size(folder / name, facts["bytes"])
            return cls(
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
                characters=np.load(folder / CHARACTERS, mmap_mode="r", allow_pickle=False),
                tokens=np.memmap(folder / TOKENS, TOKEN_DTYPE, "r"),
                starts=np.memmap(folder / SENTENCES, START_DTYPE, "r"),
            )
        except KeyError as error:
            raise ElmoError(f"{folder / DESCRIPTION}: key {error} is missing; prepare the corpus again") from None

    def vocabulary(self) -> Vocabulary:
        """The words that are predicted: the first `vocabulary_size` types."""
        return Vocabulary(self._words(self.vocabulary_size))

    def types(self) -> list[str]:
        """All types by id, in memory."""
        return self._words(self.num_types)

    def _words(self, num_words: int) -> list[str]:
        with (self.folder / TYPES).open(encoding="utf-8", newline="\n") as file:
            return [line[:-1] for line in islice(file, num_words)]


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
    except (ValueError, KeyError, TypeError):
        found = "something else"
    else:
        if found == repr(FORMAT):
            return description
    raise ElmoError(f"{path}: expected a description of format {FORMAT!r}, found {found}; prepare the corpus again")


def _check_size(path: Path, expected: int) -> None:
    if not path.is_file():
        raise ElmoError(f"{path}: is missing; prepare the corpus again")
    if (found := path.stat().st_size) != expected:
        raise ElmoError(f"{path}: has {found} bytes instead of {expected}; prepare the corpus again")
