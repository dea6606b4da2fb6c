"""Search a finished index for the uses of words that are nearest to a given use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.neighbors import Neighbors, Use, WordNeighbor, hint, position_of, tokens_of, words_of
from elmo.analysis.origins import AGAIN
from elmo.analysis.search.folder import WORDS, OpenIndex, open_uses, read_index_description
from elmo.analysis.search.text import evenly_spaced
from elmo.analysis.vectors import run_vectors, unit
from elmo.config import SPECIAL_WORDS
from elmo.embed.embedder import Embedder
from elmo.embed.sentence_embedder import require_embedder
from elmo.errors import ElmoError
from elmo.schema import require_count
from elmo.targets import with_home
from elmo.text.characters import refuse_one_string
from elmo.text.corpus import open_matrix

# Float16 hardly changes the order. Among a million tokens, vectors of pq alone find 55 % of the ten nearest uses, and
# 91 % if ten candidates for each of them are compared exactly (docs/search.md).
CANDIDATES = {"float16": 2, "pq": 10}
"""How many candidates are compared exactly for each use asked for, by how vectors are stored."""

ROWS = 1 << 13
"""Number of word vectors that are multiplied at once."""

RUNS_AT_ONCE = 1 << 16
"""Number of sequences of several words whose vectors are in memory at once."""

Run = tuple[int, int]
"""The number of a token, and how many tokens from it on are meant."""


class ContextIndex(OpenIndex):
    """An index of the tokens of a text, by their vectors in one layer of a model.

    The vectors on disk are used to find candidates, which are then embedded again and compared exactly. Similarities
    are therefore those of `find_neighbors`, but a near use may be missed. `tag_names` are the parts of speech in the
    text, if it was tagged. `text.origins` says where its sentences are from. The files stay mapped into memory until
    the process ends, so open an index once and keep it. A pickle of it opens the folder again.

    Args:
        folder: The folder of the index. `~` at the beginning is the home folder, as in the names of models and texts.
        embedder: The model that the index was built with.

    Raises:
        ElmoError: If the folder is not an index, is damaged, or was built with another model.
    """

    def __init__(self, folder: str | Path, embedder: Embedder) -> None:
        require_embedder(embedder)
        folder = Path(with_home(folder))
        self._arguments = folder.absolute(), embedder
        facts = read_index_description(folder)
        # In indexes of earlier versions the fingerprint of the model covers its warm state, too.
        if facts["model"] not in (embedder.fingerprint, embedder.warm_fingerprint):
            # The vectors of words that are stored with a model are part of its fingerprint, as they may be rounded.
            stored = " (one without its stored vectors, if 'elmo warm --types' has added them since)"
            raise ElmoError(
                f"{folder}: was built with another model{stored if embedder.has_rounded_types else ''}; give that one, "
                "or build an index with this one"
            )
        self.embedder = embedder
        self.text, self.store = open_uses(folder)
        self.layer: list[float] = facts["layer"]
        self.layer_name: str = facts["layer_name"]
        self.tag_names = self.text.tag_names
        self.num_tokens, self.num_sentences = self.text.corpus.num_tokens, self.text.corpus.num_sentences
        self._candidates = CANDIDATES[facts["vectors"]]
        self._word_vectors: NDArray[np.float16] = open_matrix(folder / WORDS, "<f2", AGAIN)
        if self.store.width != embedder.width or self._word_vectors.shape[1] > embedder.width:
            raise ElmoError(
                f"{folder}: is damaged (its vectors are not as wide as those of its model, {embedder.width}); {AGAIN}"
            )
        if len(self._word_vectors) > len(self.text.types) - len(SPECIAL_WORDS):
            raise ElmoError(f"{folder / WORDS}: is damaged (it has more vectors than the text has words); {AGAIN}")

    def __repr__(self) -> str:
        """Tell how much text this searches, and by what."""
        return f"ContextIndex({self.num_tokens:,} tokens, {self.layer_name}, {self.embedder!r})"

    def find_neighbors(
        self,
        word: str,
        query: Sequence[str] | None = None,
        *,
        occurrence: int = 1,
        top: int = 10,
        ignore_case: bool = False,
        any_word: bool = False,
        among: Sequence[str] = (),
        tags: Sequence[str] = (),
        where: Mapping[str, str] | None = None,
    ) -> Neighbors:
        """Return the nearest uses as `elmo.analysis.find_neighbors` does, in the text and layer of the index.

        Words without context are chosen from the most frequent types only. Without `query`, uses are compared with the
        mean of all uses of `word` in the index, whatever `among`, `tags` and `where` choose, as its vectors are stored.

        Where `word` or a word of `among` has several tokens, the vectors of all their uses are read and compared.

        Args:
            word: A token of `query`, or of the index; or several that follow one another, with spaces between them.
            query: The tokens of a sentence that uses the word in the meaning to look for; None for the mean of all
                uses.
            occurrence: Which occurrence of the word in `query` is meant, counted from 1.
            top: The number of uses, and of words, to return.
            ignore_case: Whether "Play" matches "play".
            any_word: Whether to search the uses of all words. Then `word` must be a single token.
            among: Search the uses of these words instead of those of `word`. They may have several tokens, too.
            tags: Search only tokens with one of these parts of speech (see `IndexedText.having`). Of several tokens,
                each must have one of them.
            where: Search only sentences with these values of metadata, such as `{"year": "1800..1849"}`, or from this
                "file" (see `Origins.where`).

        Raises:
            ElmoError: If the query or the index has no such use, or the index has no such tag or metadata.
        """
        require_count("`top`", top)
        if any_word and among:
            raise ElmoError("`any_word` and `among` can't be used together; leave one out")
        top = int(top)  # faiss takes no numbers of NumPy
        refuse_one_string("among", among)
        sentence = tokens_of(query, occurrence)
        words = words_of(word)
        if any_word and len(words) > 1:
            raise ElmoError(
                "all sequences of several words can't be compared in an index; search the text itself for them"
            )
        position = 0 if sentence is None else position_of(sentence, words, ignore_case, occurrence)
        phrases = [] if any_word else [words_of(each) for each in among] or [words]
        # A phrase that is given twice is still searched once.
        phrases = list({tuple(map(str.casefold, each) if ignore_case else each): each for each in phrases}.values())
        if all(len(phrase) == 1 for phrase in phrases):
            singles = [single for (single,) in phrases] or None
            chosen, runs = self.text.having(singles, tags, where, ignore_case=ignore_case), []
            num_uses = self.num_tokens if chosen is None else int(np.count_nonzero(chosen))
        else:
            chosen = None
            runs = [(self.text.runs(phrase, tags, where, ignore_case=ignore_case), len(phrase)) for phrase in phrases]
            num_uses = sum(len(starts) for starts, _ in runs)
        if not num_uses:
            what = ", ".join(map(repr, map(" ".join, phrases))) or "any word"
            tagged = f" tagged {' or '.join(tags)}" if tags else ""
            there = "".join(f", {column} {value}" for column, value in (where or {}).items())
            raise ElmoError(
                f"the index has no use of {what}{tagged}{there}; is its text tokenized and cased like the word?"
                f"{hint(phrases[0], self.text.types, ignore_case) if phrases and not (tags or where) else ''}"
            )
        length = len(words)
        if sentence is None:
            target, num_averaged = self._mean(words, ignore_case)
        else:
            vectors = self.embedder.embed([sentence], layers=self.layer)[0]
            target, num_averaged = run_vectors(vectors, [position], length)[0], 0
        ranked = self._rank(runs, target)
        # Equal sentences count once, and the query's own not at all, so that candidates may be too few different uses.
        # More of them are then compared.
        size = top * self._candidates
        while True:
            if runs:
                candidates = ranked[:size]
            else:
                candidates = [(token, 1) for token in self.store.nearest(target, size, chosen).tolist()]
            uses = self._compare(candidates, target, sentence)
            if len(uses) >= top or size >= num_uses:
                break
            size *= 4
        if not uses:
            raise ElmoError("the index has no such use except in the sentence itself")
        sentence = sentence or tuple(words)
        return Neighbors(
            sentence,
            position,
            uses[:top],
            self._nearest_words(sentence[position : position + length], top),
            self.num_sentences,
            num_uses,
            len(self._word_vectors),
            num_averaged,
            length,
        )

    def uses(
        self, word: str, size: int, where: Mapping[str, str] | None = None, tags: Sequence[str] = ()
    ) -> list[tuple[tuple[str, ...], int]]:
        """Return up to `size` uses of `word`, spread over the text: each a sentence and the word's position in it.

        `word` may have several tokens, and `where` and `tags` choose among the uses, as in `find_neighbors`.
        """
        require_count("`size`", size)
        places = map(self.text.place, evenly_spaced(self.text.runs(words_of(word), tags, where), size).tolist())
        return [(self.text.sentence(number), position) for number, position in places]

    def tag_of(self, use: Use) -> str:
        """Return the part of speech of `use`, which was found in this index, or "" if the text has none."""
        return self.text.tag(int(self.text.corpus.starts[use.sentence]) + use.position)

    def _mean(self, words: Sequence[str], ignore_case: bool) -> tuple[NDArray[np.float32], int]:
        """Return the mean of the stored vectors of all uses of words, scaled to length 1, and the number of uses."""
        total, num_uses = np.zeros(self.store.width, np.float32), 0
        if len(words) == 1:
            blocks = self.store.blocks(self.text.having(words, ignore_case=ignore_case))
        else:
            blocks = self._run_blocks(self.text.runs(words, ignore_case=ignore_case), len(words))
        for numbers, vectors in blocks:
            total += vectors.sum(axis=0)
            num_uses += len(numbers)
        if not num_uses:
            raise ElmoError(
                f"the index has no use of {' '.join(words)!r} to average{hint(words, self.text.types, ignore_case)}"
            )
        return unit(total), num_uses

    def _run_blocks(
        self, starts: NDArray[np.int64], length: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield the first tokens (N,) of sequences of `length` tokens and their vectors (N, D), some at a time."""
        for first in range(0, len(starts), RUNS_AT_ONCE):
            some = starts[first : first + RUNS_AT_ONCE]
            yield some, unit(self.store.runs(some, length))

    def _rank(self, runs: Sequence[tuple[NDArray[np.int64], int]], target: NDArray[np.float32]) -> list[Run]:
        """Return the sequences that begin at these tokens and have these lengths, nearest first by stored vectors."""
        found: list[tuple[float, Run]] = []
        for starts, length in runs:
            for some, vectors in self._run_blocks(starts, length):
                places = ((start, length) for start in some.tolist())
                found += zip((vectors @ target).tolist(), places, strict=True)
        found.sort(key=lambda pair: -pair[0])
        return [run for _, run in found]

    def _compare(self, runs: Iterable[Run], target: NDArray[np.float32], query: tuple[str, ...] | None) -> list[Use]:
        """Compare the uses at these tokens exactly, and return them nearest first.

        Equal sentences count once, and sentences equal to `query` are left out.
        """
        places: defaultdict[tuple[str, ...], dict[Run, int]] = defaultdict(dict)
        for (number, position), length in sorted((self.text.place(token), length) for token, length in runs):
            sentence = self.text.sentence(number)
            if sentence != query:
                places[sentence].setdefault((position, length), number)
        uses: list[Use] = []
        for sentence, vectors in self.embedder.pairs(places, self.layer):
            for (position, length), number in places[tuple(sentence)].items():
                cosine = float(run_vectors(vectors, [position], length)[0] @ target)
                uses.append(Use(cosine, number, position, tuple(sentence), self.text.origin(number), length))
        return sorted(uses, key=lambda use: (-use.similarity, use.sentence, use.position))

    def _nearest_words(self, words: Sequence[str], top: int) -> list[WordNeighbor]:
        """Return the types nearest to `words` in layer 0, except for the words themselves."""
        # Layer 0 is the same in both directions, and the index holds one of its halves.
        width = self._word_vectors.shape[1]
        vectors = self.embedder.embed([words], layers="token")[0][:, :width]
        target = run_vectors(vectors, [0], len(words))[0]
        blocks = range(0, len(self._word_vectors), ROWS)
        cosines = np.concatenate([self._word_vectors[row : row + ROWS].astype(np.float32) @ target for row in blocks])
        # More than are asked for, since the words themselves are likely to be the nearest.
        order = np.argsort(-cosines, kind="stable")[: top + len(words)].tolist()
        nearest = [WordNeighbor(float(cosines[row]), self.text.types[len(SPECIAL_WORDS) + row]) for row in order]
        return [neighbor for neighbor in nearest if neighbor.word not in words][:top]
