"""What the parts of a pipeline have in common: how they go through docs, and how they are stored as bytes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Self, cast

import srsly
from spacy.tokens import Doc

from elmo.text.chunks import in_chunks

TOKENS_AT_ONCE = 1 << 15
"""Number of tokens from which a group of docs is embedded: enough for full batches, few enough for any memory."""


def group_docs(docs: Iterable[Doc], most: float = math.inf) -> Iterator[list[Doc]]:
    """Group docs to be processed together. A group ends at `most` docs, or once it has `TOKENS_AT_ONCE` tokens."""
    return in_chunks(docs, len, most, TOKENS_AT_ONCE)


def find_sentences(doc: Doc) -> list[list[int]]:
    """Return the indices of each sentence's tokens. A doc without sentence boundaries is one sentence.

    Whitespace tokens are left out, because the text on which the biLM was trained has none.
    """
    spans = doc.sents if doc.has_annotation("SENT_START") else [doc[:]]
    found = [[token.i for token in span if not token.is_space] for span in spans]
    return [sentence for sentence in found if sentence]


class StoredAsFolder(ABC):
    """Base class for a part of a pipeline that is stored in a folder, and as the bytes of the folder's files."""

    files: ClassVar[tuple[str, ...]]
    """The paths in the folder of all files that the part may need. No other file is read from bytes."""

    @abstractmethod
    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Store the part in a folder."""

    @abstractmethod
    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read what `to_disk` stored, if anything."""

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return what `to_disk` stores, as bytes."""
        with TemporaryDirectory() as folder:
            self.to_disk(folder)
            paths = {name: Path(folder) / name for name in self.files}
            return srsly.msgpack_dumps({name: path.read_bytes() for name, path in paths.items() if path.is_file()})

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        """Read what `to_bytes` returned, if anything."""
        files = cast("dict[str, bytes]", srsly.msgpack_loads(data))
        with TemporaryDirectory() as folder:
            for name in {*self.files} & files.keys():
                path = Path(folder) / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(files[name])
            return self._from_temporary(Path(folder)) if files else self

    def _from_temporary(self, folder: Path) -> Self:
        """Read a folder that is about to be removed."""
        return self.from_disk(folder)
