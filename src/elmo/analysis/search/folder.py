"""The files of an index: what its description says, and how its text and vectors are opened without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self, cast

from elmo.analysis.origins import AGAIN
from elmo.analysis.search.text import IndexedText
from elmo.analysis.search.vectors import KINDS, VectorStore
from elmo.errors import ElmoError
from elmo.formats.files import read_json
from elmo.schema import to_mapping
from elmo.targets import with_home

DESCRIPTION, WORDS, TRAINED, PARTS = "index.json", "words.npy", "trained.faiss", "vectors-*.faiss"
"""The files of an index, besides those of its text. PARTS can only be read together with TRAINED."""

FORMAT_PREFIX = "elmo-index-"
FORMAT = f"{FORMAT_PREFIX}1"

LARGEST_DESCRIPTION = 64 << 20
"""The largest description that is read, in bytes. It holds the tags of a text, of which there may be `MAX_TAGS`."""


def part_name(number: int) -> str:
    """Return the name of file `number` of vectors."""
    return PARTS.replace("*", f"{number:06}")


def is_index(folder: str | Path) -> bool:
    """Return whether the description in this folder says that it is an index built by `elmo index`."""
    return find_description(Path(with_home(folder))) is not None


def read_index_description(folder: Path) -> dict[str, Any]:
    """Return what the description of an index says, by the names in `index.json`.

    Raises:
        ElmoError: If the folder is not an index, is one of another version of the format, or is damaged.
    """
    if not folder.exists():
        raise ElmoError(f"{folder}: no such folder")
    facts = find_description(folder)
    if facts is None:
        raise ElmoError(
            f"{folder}: is not an index ({DESCRIPTION} is missing or of something else); build one with 'elmo index'"
        )
    if facts["format"] != FORMAT:
        raise ElmoError(f"{folder / DESCRIPTION}: is not of format {FORMAT!r}; build the index again")
    layer, tags = facts.get("layer"), facts.get("tags")
    is_whole = (
        isinstance(facts.get("model"), str)
        and isinstance(facts.get("layer_name"), str)
        and facts.get("vectors") in KINDS
        and isinstance(layer, list)
        and all(isinstance(weight, (int, float)) for weight in cast("list[object]", layer))
        and isinstance(tags, list)
        and all(isinstance(tag, str) for tag in cast("list[object]", tags))
    )
    if not is_whole:
        raise ElmoError(f"{folder / DESCRIPTION}: is damaged; {AGAIN}")
    return facts


def describe_index(folder: str | Path) -> dict[str, Any]:
    """Return what an index holds, and what made it, by name. Neither its model nor faiss is needed.

    Raises:
        ElmoError: If the folder is not an index, or is damaged.
    """
    folder = Path(with_home(folder))
    facts = read_index_description(folder)
    text = IndexedText(folder, facts["tags"])
    corpus = text.corpus
    return {
        "model": facts.get("model_name"),
        "model_checksum": facts["model"],
        "layer": facts["layer_name"],
        "vectors": facts["vectors"],
        "num_tokens": corpus.num_tokens,
        "num_sentences": corpus.num_sentences,
        "num_types": corpus.num_types,
        "tags": facts["tags"],
        "metadata": [] if text.origins is None else [*text.origins.columns],
        "source": text.source,
        "text": to_mapping(corpus.cut),
    }


def open_uses(folder: str | Path) -> tuple[IndexedText, VectorStore]:
    """Open the text of an index and the vectors of its tokens, for which no model is needed.

    Raises:
        ElmoError: If the folder is not an index, or is damaged.
    """
    folder = Path(with_home(folder))
    text = IndexedText(folder, read_index_description(folder)["tags"])
    store = VectorStore(folder / TRAINED, sorted(folder.glob(PARTS)))
    if store.num_vectors != text.corpus.num_tokens:
        raise ElmoError(
            f"{folder}: holds vectors of {store.num_vectors:,} of its {text.corpus.num_tokens:,} tokens; {AGAIN}"
        )
    return text, store


class OpenIndex:
    """Base class of what reads the files of an index, and never changes.

    A copy is the same object. A pickle, as for another process, holds the arguments, and whoever reads it opens the
    index again: neither the mapped files nor the objects of faiss can be sent.
    """

    _arguments: tuple[object, ...]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), self._arguments


def find_description(folder: Path) -> dict[str, Any] | None:
    """Read the description of an index of any format version, or return None if there is none."""
    path = folder / DESCRIPTION
    facts: Any = read_json(path, LARGEST_DESCRIPTION) if path.is_file() else None
    is_ours = isinstance(facts, dict) and str(cast("dict[str, Any]", facts).get("format")).startswith(FORMAT_PREFIX)
    return cast("dict[str, Any]", facts) if is_ours else None
