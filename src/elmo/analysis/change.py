"""How words change their meaning over time: distances between their uses in periods of an indexed text.

The measures are those of the literature (Giulianelli et al. 2020; Kutuzov & Giulianelli 2020), from the vectors of all
uses in an index. With vectors of length 1, the mean cosine of all pairs of two sets is the product of their mean
vectors, so that no pair is computed, and no use is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.neighbors import Use, hint, other_forms
from elmo.analysis.periods import find_periods
from elmo.analysis.pictures import (
    Series,
    draw_curves,
    dress,
    label_components,
    literal,
    new_figure,
    require_picture,
    save_figure,
)
from elmo.analysis.search.folder import OpenIndex, open_uses
from elmo.analysis.search.text import evenly_spaced
from elmo.analysis.style import INK, MARKERS, PERIODS, SMALL_SIZE
from elmo.analysis.vectors import Vectors, add_to_rows, project, unit
from elmo.config import SPECIAL_WORDS
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.files import write_all
from elmo.progress import show_progress
from elmo.schema import require_choice, require_count, require_text, require_whole
from elmo.targets import with_home
from elmo.text.reading import lower
from elmo.wording import counted

MEASURES = ("excess", "apd", "prt")

SUMS_BYTES = 1 << 29
"""Most bytes of the sums of vectors. If more words are ranked, the vectors are read several times."""

DRAWN_USES = 300
"""Most uses of each period in a picture."""


class Distances(NamedTuple):
    """Distances between the uses of a word in P periods, each (P, P). They are NaN where a period has no use.

    Attributes:
        apd: Average pairwise distance: the mean cosine distance of a use in one period to a use in another. On the
            diagonal that of two different uses within a period, which is NaN if there is only one.
        prt: Prototype distance: the cosine distance between the mean vectors of two periods.
        excess: What the average pairwise distance between two periods has beyond the mean of those within them. A word
            whose uses differ much in any period, such as `of`, has a high `apd`, but no excess. The number of uses
            makes no difference on average, and it may be a little below zero for a word that has not changed.
    """

    apd: NDArray[np.float64]
    prt: NDArray[np.float64]
    excess: NDArray[np.float64]


def distances(sums: NDArray[np.float64], counts: NDArray[np.int64]) -> Distances:
    """Compute the distances between periods.

    Args:
        sums: The sum of the vectors of length 1 of each period's uses, (..., P, D).
        counts: The number of these uses, (..., P).

    Returns:
        The distances, (..., P, P) each.

    Source:
        `apd` and `prt` are those of Kutuzov & Giulianelli 2020, with the cosine distance 1 - cos in both. `excess` is
        half the squared distance between the means (of Gretton et al. 2012, eq. 3, with a linear kernel).
    """
    products = sums @ np.swapaxes(sums, -1, -2)
    n = counts.astype(np.float64)
    squares = np.diagonal(products, axis1=-2, axis2=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Of the pairs within a period, those of a use with itself are left out; each of them adds a cosine of 1.
        within = np.where(n > 1, 1 - (squares - n) / (n * (n - 1)), np.nan)
        apd = 1 - products / (n[..., :, None] * n[..., None, :])
        prt = 1 - products / np.sqrt(squares[..., :, None] * squares[..., None, :])
    excess = apd - (within[..., :, None] + within[..., None, :]) / 2
    same = np.eye(counts.shape[-1], dtype=bool)
    return Distances(
        np.where(same, within[..., None], apd),
        np.where(same & (counts[..., None] > 0), 0.0, prt),
        np.where(same & (counts[..., None] > 1), 0.0, excess),
    )


@dataclass(frozen=True)
class RankedWord:
    """How far a word changed between two periods, and its number of uses in each."""

    word: str
    excess: float
    apd: float
    prt: float
    num_uses: tuple[int, int]


@dataclass(frozen=True)
class PeriodUses:
    """The uses of a word in a period, and those nearest to the mean of their vectors, nearest first."""

    name: str
    num_uses: int
    uses: list[Use]


@dataclass(frozen=True, eq=False)  # == of two arrays is an array, not a bool
class WordChange:
    """How one word changed.

    Attributes:
        word: The word.
        periods: The periods that have uses of it, in their order.
        distances: The distances between these periods.
        drawn: Uses for a picture, at most `DRAWN_USES` of each period: the number of each one's period, (N,).
        vectors: The vectors of these uses, of length 1, (N, D).
    """

    word: str
    periods: list[PeriodUses]
    distances: Distances
    drawn: NDArray[np.int64]
    vectors: Vectors

    def __repr__(self) -> str:
        """Tell how much was compared, since the uses and vectors would fill the screen."""
        uses = counted(sum(period.num_uses for period in self.periods), "use")
        return f"WordChange({self.word!r}, {uses} in {len(self.periods)} periods)"


class ChangeIndex(OpenIndex):
    """An index whose text is divided into periods by its metadata.

    No model is needed, since the index has the vectors of all uses. Their layer is that of the index. Memory holds a
    few bytes for each token of the text, and in `word` 16 D bytes for each use of the word.

    Args:
        folder: The folder of the index, which was built with metadata.
        by: A column of the metadata, or "year", "decade" or "century" (see `find_periods`).
        dates: The column that years, decades and centuries are taken from; by default `year` or `date`.

    Raises:
        ElmoError: If the folder is not an index or is damaged, or if its metadata does not have two periods or more.

    Example:
        ```python
        build_index(model, ["letters/*.txt"], "letters.index", metadata="dates.tsv")
        index = ChangeIndex("letters.index", "decade")
        print([one.word for one in index.rank(min_count=20)[:10]])
        plot_change("gay.png", index.word("gay"))
        ```
    """

    def __init__(self, folder: str | Path, by: str, dates: str | None = None) -> None:
        self._arguments = Path(with_home(folder)).absolute(), by, dates
        self.text, self._store = open_uses(folder)
        self.periods = find_periods(self.text.origins, by, dates)
        self._period_of_token = np.repeat(self.periods.of_sentence, np.diff(self.text.corpus.starts))

    def word(self, word: str, *, top: int = 3) -> WordChange:
        """Compare the uses of a word between all periods that have any.

        Args:
            word: The word, as it is written in the text. If the text was converted to lower case, so is the word.
            top: How many uses nearest to the mean of each period to return.

        Returns:
            The distances between these periods, and uses of each.

        Raises:
            ElmoError: If fewer than two periods have uses of the word, or it is no string.
        """
        require_count("`top`", top)
        require_text("`word`", word)
        word = lower(word) if self.text.corpus.reading.lowercase else word
        tokens = self.text.runs([word])
        tokens = tokens[self._period_of_token[tokens] >= 0]
        counts = np.bincount(self._period_of_token[tokens])
        there = np.flatnonzero(counts)
        if len(there) < 2:
            where = f"only in {self.periods.names[there[0]]}" if len(there) else "in no period"
            if len(word.split()) != 1:
                why = " (only single words are compared)"
            elif len(there):
                why = other_forms(word, self.text.types)
            else:
                why = hint([word], self.text.types, False, can_ignore_case=False)
            raise ElmoError(f"{word!r} occurs {where}, and it takes two periods to compare{why}")
        vectors = unit(self._store.runs(tokens, 1))
        of_use = np.searchsorted(there, self._period_of_token[tokens])
        sums = np.zeros((len(there), vectors.shape[1]))
        add_to_rows(sums, of_use, vectors)
        periods = [
            PeriodUses(
                self.periods.names[period],
                int(counts[period]),
                self._nearest(sums[number], tokens[of_use == number], vectors[of_use == number], top),
            )
            for number, period in enumerate(there.tolist())
        ]
        drawn = np.concatenate([evenly_spaced(np.flatnonzero(of_use == n), DRAWN_USES) for n in range(len(there))])
        return WordChange(word, periods, distances(sums, counts[there]), of_use[drawn], vectors[drawn])

    def rank(
        self, between: tuple[str, str] | None = None, *, min_count: int = 50, measure: str = "excess"
    ) -> list[RankedWord]:
        """Rank all words by how far they changed between two periods, those that changed most first.

        Args:
            between: The names of the two periods; by default the first and the last.
            min_count: How many uses a word needs in each of the two periods, at least 2.
            measure: The measure to rank by: "excess", "apd" or "prt" (see `Distances`).

        Returns:
            Each word that occurs often enough, with all three measures and its number of uses.

        Raises:
            ElmoError: If there is no such period, or no word occurs often enough in both, or `min_count` is below 2.
        """
        require_whole("`min_count`", min_count)
        if min_count < 2:
            raise ElmoError(f"`min_count`: {min_count} is too low; the distances within a period are those of two uses")
        require_choice("`measure`", measure, MEASURES)
        pair = self.periods.pair(between)
        # Numbers 0 and 1 for the two periods, and -1 for all other tokens.
        of_token = np.full(self.text.corpus.num_tokens, -1, np.int8)
        for number, period in enumerate(pair):
            of_token[self._period_of_token == period] = number
        tokens = self.text.corpus.tokens
        num_types = len(self.text.types)
        counts = np.stack([np.bincount(tokens[of_token == number], minlength=num_types) for number in range(2)], axis=1)
        counts[: len(SPECIAL_WORDS)] = 0
        kept = np.flatnonzero((counts >= min_count).all(axis=1))
        if not len(kept):
            first, second = (self.periods.names[period] for period in pair)
            raise ElmoError(
                f"`min_count`: no word has {min_count} uses both in {first} and in {second}; choose a lower number, or "
                "longer periods"
            )
        size = max(1, SUMS_BYTES // (2 * 8 * self._store.width))
        ranked: list[RankedWord] = []
        for start in range(0, len(kept), size):
            ranked += self._measure(kept[start : start + size], counts, of_token)
        return sorted(ranked, key=lambda one: -getattr(one, measure))

    def _measure(
        self, ids: NDArray[np.int64], counts: NDArray[np.int64], of_token: NDArray[np.int8]
    ) -> list[RankedWord]:
        """Measure the change of types between the periods 0 and 1 of tokens."""
        rows = np.full(len(self.text.types), -1, np.int64)
        rows[ids] = np.arange(len(ids))
        tokens, sums = self.text.corpus.tokens, np.zeros((2 * len(ids), self._store.width))
        with show_progress("comparing", "tokens", len(tokens)) as bar:
            for numbers, vectors in self._store.blocks():
                row, period = rows[tokens[numbers]], of_token[numbers]
                add_to_rows(sums, np.where((row >= 0) & (period >= 0), 2 * row + period, -1), unit(vectors))
                bar.update(len(numbers))
        found = distances(sums.reshape(len(ids), 2, -1), counts[ids])
        return [
            RankedWord(
                self.text.types[id],
                float(found.excess[row, 0, 1]),
                float(found.apd[row, 0, 1]),
                float(found.prt[row, 0, 1]),
                (int(counts[id, 0]), int(counts[id, 1])),
            )
            for row, id in enumerate(ids.tolist())
        ]

    def _nearest(self, mean: NDArray[np.float64], tokens: NDArray[np.int64], vectors: Vectors, top: int) -> list[Use]:
        """Return the uses nearest to a mean. Of equal sentences, the first counts."""
        cosines = vectors @ unit(mean.astype(np.float32))
        found: dict[tuple[tuple[str, ...], int], Use] = {}
        for number in np.argsort(-cosines, kind="stable").tolist():
            sentence, position = self.text.place(int(tokens[number]))
            words = self.text.sentence(sentence)
            use = Use(float(cosines[number]), sentence, position, words, self.text.origin(sentence))
            found.setdefault((words, position), use)
            if len(found) == top:
                break
        return list(found.values())


def plot_change(path: str | Path, found: WordChange) -> None:
    """Plot the uses of a word on their first two principal components, and the distances from the first period.

    Early periods are dark and late ones bright. Needs matplotlib (`pip install 'elmo-torch[analysis]'`).

    Args:
        path: The file to write, which ends in `.png` or `.svg`. It is replaced if it exists.
        found: The word, as `ChangeIndex.word` returns it.

    Raises:
        ElmoError: If the path has another ending, or matplotlib is missing.
    """
    path = Path(path)
    require_picture(path)
    names = [literal(period.name) for period in found.periods]
    figure = new_figure()
    figure.set_size_inches(11, 4.5)
    uses, curves = figure.subplots(1, 2)
    points, shares = project(found.vectors)
    color_map, start, end = PERIODS
    colors = import_extra("matplotlib", "a picture").colormaps[color_map](np.linspace(start, end, len(names)))
    for number, (name, color) in enumerate(zip(names, colors, strict=True)):
        own = points[found.drawn == number]
        marker = MARKERS[number % len(MARKERS)]
        uses.scatter(*own.T, color=color, marker=marker, s=20, alpha=0.6, edgecolors="none")
        uses.scatter(*own.mean(axis=0), color=color, marker=marker, s=120, edgecolors=INK, label=name, zorder=3)
    uses.set_title(literal(f"Uses of “{found.word}”; the large marks are their means"))
    label_components(uses, shares)
    uses.legend(frameon=False, fontsize=SMALL_SIZE)
    dress(uses)
    rows = [
        Series(label, dict(zip(names, row[0].tolist(), strict=True)))
        for label, row in (("prt", found.distances.prt), ("excess", found.distances.excess))
    ]
    draw_curves(curves, names, rows, f"distance from {names[0]}", 3)
    write_all({path: lambda part: save_figure(figure, part, path.suffix[1:])})
