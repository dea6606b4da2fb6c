"""The text of an index: a corpus folder, and the tag of each token where the text came with tags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.tagged import Columns, read_tagged
from elmo.errors import ElmoError
from elmo.text.characters import BOS, EOS
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from elmo.text.reading import expand

CORPUS, TAGS = "text", "tags.bin"
"""The corpus folder, and the file of tag numbers (uint16), one a token."""

TAG_DTYPE = np.dtype("<u2")
MAX_TAGS = np.iinfo(TAG_DTYPE).max

SPACE = re.compile(r"\s+")


class IndexedText:
    """The sentences of an index, by number; tokens are numbered through the whole text, from 0."""

    def __init__(self, folder: Path, tag_names: Sequence[str]) -> None:
        self.corpus = Corpus.open(folder / CORPUS)
        self.tag_names = tuple(tag_names)
        self._tags: NDArray[np.uint16] | None = None
        if tag_names:
            num_tags = (folder / TAGS).stat().st_size / TAG_DTYPE.itemsize
            if num_tags != self.corpus.num_tokens:
                raise ElmoError(
                    f"{folder}: holds tags of {num_tags:,.0f} of its {self.corpus.num_tokens:,} tokens; get it again, "
                    "or build it anew"
                )
            self._tags = np.memmap(folder / TAGS, TAG_DTYPE, "r")
        self._starts: NDArray[np.int64] = self.corpus.starts
        self.types = self.corpus.types()  # now: the folder may be replaced while this index is in use

    def sentence(self, number: int) -> tuple[str, ...]:
        """The tokens of a sentence."""
        ids = self.corpus.tokens[self._starts[number] : self._starts[number + 1]].tolist()
        if ids and not 0 <= min(ids) <= max(ids) < len(self.types):
            raise ElmoError(
                f"{self.corpus.folder}: is damaged (sentence {number:,} has words that its list of words has not); get "
                "the index again, or build it anew"
            )
        return tuple(self.types[id] for id in ids)

    def place(self, token: int) -> tuple[int, int]:
        """The sentence of a token, and its position there."""
        number = int(np.searchsorted(self._starts, token, side="right")) - 1
        return number, token - int(self._starts[number])

    def tag(self, token: int) -> str:
        """A token's tag; nothing where the text has none."""
        return self.tag_names[self._tags[token]] if self._tags is not None else ""

    def having(
        self, words: Sequence[str] | None, tags: Sequence[str] = (), *, ignore_case: bool = False
    ) -> NDArray[np.bool_] | None:
        """Which tokens (N,) are one of `words` (None: any) and have one of `tags` (none: any); None if all do.

        A tag that ends in `*` stands for all that begin so. Raises ElmoError for tags that the text hasn't.
        """
        mask: NDArray[np.bool_] | None = None
        if words is not None:
            mask = np.isin(self.corpus.tokens, self._ids(words, ignore_case))
        if tags:
            tagged = np.isin(self._require_tags(), self._tag_ids(tags))
            mask = tagged if mask is None else mask & tagged
        return mask

    def _ids(self, words: Sequence[str], ignore_case: bool) -> list[int]:
        wanted = {word.casefold() if ignore_case else word for word in words}
        return [id for id, type in enumerate(self.types) if (type.casefold() if ignore_case else type) in wanted]

    def _require_tags(self) -> NDArray[np.uint16]:
        if self._tags is None:
            raise ElmoError(
                "the index has no parts of speech; build it from tagged text (--tagged) to choose among them"
            )
        return self._tags

    def _tag_ids(self, tags: Sequence[str]) -> list[int]:
        found: list[int] = []
        for tag in tags:
            stem = tag.removesuffix("*")
            ids = [
                id for id, name in enumerate(self.tag_names) if name == tag or (stem != tag and name.startswith(stem))
            ]
            if not ids:
                raise ElmoError(f"the index has no tag {tag!r}; it has {', '.join(sorted(self.tag_names))}")
            found += ids
        return found


def prepare_text(
    sources: Sequence[str], folder: Path, columns: Columns | None, reading: Mapping[str, Any]
) -> IndexedText:
    """Bring text into `folder`, in memory for its types alone: its corpus folder and, with `columns`, its tags.

    `sources` are files, globs or `-`.
    """
    folder.mkdir(parents=True)
    if columns is None:
        prepare(sources, folder / CORPUS, min_count=1, **reading)
        return IndexedText(folder, [])
    if reading.get("tokenizer", "whitespace") != "whitespace" or reading.get("text", "sentences") != "sentences":
        raise ElmoError("tagged text is split into sentences and words already; leave out --tokenizer and --text")
    lines = folder / "lines.txt"
    paths = expand(sources)
    names = _split(paths, columns, reading.get("encoding", "utf-8"), lines, folder / TAGS)
    if not names:
        raise ElmoError(f"{', '.join(paths)}: holds no text")
    prepare([lines], folder / CORPUS, min_count=1, lowercase=reading.get("lowercase", False), workers=1)
    lines.unlink()
    return IndexedText(folder, names)


def _split(paths: Sequence[str], columns: Columns, encoding: str, lines: Path, tags: Path) -> list[str]:
    """Write the words of tagged text, a sentence a line, and the number of each one's tag; returns the tags' names.

    Words that hold spaces get `_` for these. `<S>` and `</S>` are left out, as `prepare` does.
    """
    numbers: dict[str, int] = {}
    with lines.open("w", encoding="utf-8", newline="\n") as text, tags.open("wb") as file:
        for sentence in read_tagged(paths, columns, encoding):
            pairs = [pair for pair in zip(*sentence, strict=True) if pair[0] not in (BOS, EOS)]
            text.write(" ".join(SPACE.sub("_", word) for word, _ in pairs) + "\n")
            ids = [numbers.setdefault(tag, len(numbers)) for _, tag in pairs]
            if len(numbers) > MAX_TAGS:
                raise ElmoError(f"{paths[0]}: more than {MAX_TAGS:,} different tags; is it the right column?")
            file.write(np.array(ids, TAG_DTYPE).tobytes())
    return list(numbers)
