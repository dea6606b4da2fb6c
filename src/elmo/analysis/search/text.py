"""The text of an index: a corpus folder, where its sentences are from and, if it was tagged, the tag of each token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.origins import AGAIN, PLACES_FILE, Origin, Origins, read_metadata
from elmo.analysis.tagged import Columns, read_tagged
from elmo.config import BOS, EOS
from elmo.errors import ElmoError
from elmo.text.characters import refuse_one_string
from elmo.text.corpus import Corpus
from elmo.text.prepare import PLACE_DTYPE, prepare
from elmo.text.reading import PLAIN, Reading, expand

CORPUS, TAGS = "text", "tags.bin"
"""Names of the corpus folder, and of the file with one tag number (uint16) for each token."""

TAG_DTYPE = np.dtype("<u2")
MAX_TAGS = np.iinfo(TAG_DTYPE).max


class IndexedText:
    """The sentences of an index, by number. Tokens are numbered from 0 through the whole text."""

    def __init__(self, folder: Path, tag_names: Sequence[str]) -> None:
        self.corpus = Corpus.open(folder / CORPUS, AGAIN)
        self.corpus.verify()
        self.tag_names = tuple(tag_names)
        self._tags: NDArray[np.uint16] | None = None
        if tag_names:
            if not (folder / TAGS).is_file():
                raise ElmoError(f"{folder / TAGS}: is missing; {AGAIN}")
            num_tags = (folder / TAGS).stat().st_size / TAG_DTYPE.itemsize
            if num_tags != self.corpus.num_tokens:
                raise ElmoError(
                    f"{folder}: holds tags of {num_tags:,.0f} of its {self.corpus.num_tokens:,} tokens; {AGAIN}"
                )
            self._tags = np.memmap(folder / TAGS, TAG_DTYPE, "r")
        self.origins = Origins.open(folder)
        if self.origins is not None and len(self.origins) != self.corpus.num_sentences:
            raise ElmoError(
                f"{folder}: knows the places of {len(self.origins):,} of its {self.corpus.num_sentences:,} sentences; "
                f"{AGAIN}"
            )
        self._starts: NDArray[np.int64] = self.corpus.starts
        self.types = self.corpus.types()  # read now, because the folder may be replaced while this index is in use

    @property
    def source(self) -> dict[str, Any]:
        """What the text is, for people, as in `Corpus.source`; `inputs` are the files that were indexed."""
        # The corpus of tagged text was made from a temporary file, and that of an index may come from other files now.
        files = {} if self.origins is None else {"inputs": [Path(file).name for file in self.origins.files]}
        return {**self.corpus.source, **files}

    def sentence(self, number: int) -> tuple[str, ...]:
        """Return the tokens of a sentence."""
        ids = self.corpus.tokens[self._starts[number] : self._starts[number + 1]].tolist()
        return tuple(self.types[id] for id in ids)

    def place(self, token: int) -> tuple[int, int]:
        """Return the number of the sentence that contains a token, and the position of the token in it."""
        number = int(np.searchsorted(self._starts, token, side="right")) - 1
        return number, token - int(self._starts[number])

    def tag(self, token: int) -> str:
        """Return the tag of a token, or "" if the text has no tags."""
        if self._tags is None:
            return ""
        number = int(self._tags[token])
        if number >= len(self.tag_names):
            raise ElmoError(
                f"{self.corpus.folder.parent}: is damaged (token {token:,} has a tag that is not in its list); {AGAIN}"
            )
        return self.tag_names[number]

    def having(
        self,
        words: Sequence[str] | None,
        tags: Sequence[str] = (),
        where: Mapping[str, str] | None = None,
        *,
        ignore_case: bool = False,
    ) -> NDArray[np.bool_] | None:
        """Select the tokens that are one of `words`, have one of `tags`, and are in sentences from certain files.

        Args:
            words: The words, or None for any word.
            tags: The tags; empty for any tag. A tag that ends in `*` stands for all tags with that beginning.
            where: Wanted values of metadata, or of the column "file" (see `Origins.where`).
            ignore_case: Whether "Play" matches "play".

        Returns:
            A mask of the tokens (N,), or None if every token is selected.

        Raises:
            ElmoError: If the text does not have one of the tags, or no tags at all, or no such metadata.
        """
        mask: NDArray[np.bool_] | None = None
        if words is not None:
            mask = np.isin(self.corpus.tokens, self._ids(words, ignore_case))
        if tags:
            if self._tags is None:
                raise ElmoError(
                    "the index has no parts of speech; build it from tagged text (`tagged=FORMAT`) to choose among them"
                )
            tagged = np.isin(self._tags, self._tag_ids(tags))
            mask = tagged if mask is None else mask & tagged
        if where:
            if self.origins is None:
                raise ElmoError("the index does not know its files; build it again, since an earlier version built it")
            wanted = np.repeat(self.origins.where(where), np.diff(self._starts))
            mask = wanted if mask is None else mask & wanted
        return mask

    def runs(
        self,
        words: Sequence[str],
        tags: Sequence[str] = (),
        where: Mapping[str, str] | None = None,
        *,
        ignore_case: bool = False,
    ) -> NDArray[np.int64]:
        """Return the first tokens (N,) of all places where `words` follow one another in a sentence.

        Each of them must be selected by the other arguments, which are those of `having`.
        """
        selected = np.ones(max(self.corpus.num_tokens - len(words) + 1, 0), np.bool_)
        for offset, word in enumerate(words):
            mask = cast("NDArray[np.bool_]", self.having([word], tags, where, ignore_case=ignore_case))
            selected &= mask[offset : offset + len(selected)]
        starts = np.flatnonzero(selected)
        ends = self._starts[np.searchsorted(self._starts, starts, side="right")]
        return starts[starts + len(words) <= ends]

    def origin(self, sentence: int) -> Origin | None:
        """Return the origin of a sentence; None if the index does not know its files."""
        return None if self.origins is None else self.origins.of(sentence)

    def _ids(self, words: Sequence[str], ignore_case: bool) -> list[int]:
        wanted = {word.casefold() if ignore_case else word for word in words}
        return [id for id, type in enumerate(self.types) if (type.casefold() if ignore_case else type) in wanted]

    def _tag_ids(self, tags: Sequence[str]) -> list[int]:
        refuse_one_string("tags", tags)
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
    sources: Sequence[str],
    folder: Path,
    columns: Columns | None,
    metadata: str | Path | None,
    reading: Reading,
) -> IndexedText:
    """Write a text into the new folder `folder`: a corpus folder, its origins and, if it is tagged, its tags.

    Args:
        sources: Files, globs, or `-` for standard input.
        folder: The folder, which must not exist.
        columns: Where the tag of each token is, if the text is tagged.
        metadata: A table about the files (see `read_metadata`).
        reading: How to read the text. Memory use depends only on the number of types and sentences.

    Raises:
        ElmoError: If tagged text is combined with a tokenizer, a layout or a language, or holds no text, or the table
            is bad.
    """
    paths = expand(sources)
    table = ([], []) if metadata is None else read_metadata(metadata, paths)
    folder.mkdir(parents=True)
    if columns is None:
        names: list[str] = []
        prepare(paths, folder / CORPUS, min_count=1, places=folder / PLACES_FILE, **asdict(reading))
    else:
        names = _prepare_tagged(paths, folder, columns, reading)
    Origins(paths, np.fromfile(folder / PLACES_FILE, PLACE_DTYPE).reshape(-1, 2), *table).write(folder)
    return IndexedText(folder, names)


def _prepare_tagged(paths: Sequence[str], folder: Path, columns: Columns, reading: Reading) -> list[str]:
    """Write the corpus of tagged text, the places of its sentences, and their tags; return the names of the tags.

    Spaces in words become `_`. `<S>` and `</S>` are left out, as in `prepare`, so that words and tags stay aligned.
    """
    if replace(reading, encoding=PLAIN.encoding, lowercase=PLAIN.lowercase) != PLAIN:
        raise ElmoError(
            "tagged text is split into sentences and words already; leave out `tokenizer`, `text` and `language`"
        )
    # The words go through a text file, so that tagged text is prepared as any other text is.
    lines = folder / "lines.txt"
    numbers: dict[str, int] = {}
    with (
        lines.open("w", encoding="utf-8", newline="\n") as text,
        (folder / TAGS).open("wb") as tags,
        (folder / PLACES_FILE).open("wb") as places,
    ):
        # At the very beginning of a file, a byte-order mark is dropped. One that is in the first word belongs to it.
        text.write("\n")
        for place, sentence in read_tagged(paths, columns, reading.encoding):
            pairs = [pair for pair in zip(*sentence, strict=True) if pair[0] not in (BOS, EOS)]
            if not pairs:
                continue
            text.write(" ".join(word for word, _ in pairs) + "\n")
            ids = [numbers.setdefault(tag, len(numbers)) for _, tag in pairs]
            if len(numbers) > MAX_TAGS:
                raise ElmoError(f"{paths[0]}: more than {MAX_TAGS:,} different tags; is it the right column?")
            tags.write(np.array(ids, TAG_DTYPE).tobytes())
            places.write(np.array(place, PLACE_DTYPE).tobytes())
    if not numbers:
        raise ElmoError(f"{', '.join(paths)}: holds no text")
    prepare([lines], folder / CORPUS, min_count=1, lowercase=reading.lowercase, workers=1)
    lines.unlink()
    return list(numbers)


def evenly_spaced(items: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return at most `size` items from all over the text. The first ones would all be of its beginning."""
    return items[np.linspace(0, len(items) - 1, min(size, len(items))).astype(int)]
