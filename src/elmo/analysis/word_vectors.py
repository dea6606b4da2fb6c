"""One vector for each type: the mean of its uses in a text, or of the uses in each of its senses.

Such vectors are static, as those of word2vec and GloVe are, and serve the programs that read those (Bommasani et al.
2020).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.clusters import cluster, cluster_as_needed
from elmo.analysis.vectors import Vectors, add_to_rows, unit
from elmo.config import SPECIAL_WORDS
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, single_layer_weights
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.progress import show_progress
from elmo.schema import require_count
from elmo.text.choice import is_lower_case
from elmo.text.corpus import Corpus, require_corpus

MAX_CLUSTERED_USES = 200
"""About how many uses of a type are clustered into senses. They are drawn at random if it has more."""

MAX_SENSES = 5
"""The largest number of senses that "auto" tries."""

LEAST_SILHOUETTE = 0.1
"""The mean silhouette that senses must have with "auto".

Words with one meaning usually have more, too (docs/lab-notes.md): the clusters are of contexts.
"""

SENSE = "#"
"""What separates a word from the number of its sense, from 1, in names such as `bank#2`."""


class TypeVectors(NamedTuple):
    """Names of types or senses, the most frequent first, with a vector and the number of uses of each.

    Attributes:
        names: The words, or `word#1`, `word#2`, ... for the senses of a word that has several, by falling size.
        vectors: The vectors, (N, D).
        counts: How often each type occurs. The count of a type is shared out among its senses by their sizes.
    """

    names: list[str]
    vectors: Vectors
    counts: list[int]


def type_vectors(
    embedder: Embedder,
    corpus: Corpus,
    *,
    layer: Layers = "top",
    min_count: int = 20,
    senses: int | Literal["auto"] = 1,
    work: str | Path | None = None,
) -> TypeVectors:
    """Compute a vector for each type that occurs often enough, as the mean of the vectors of its uses.

    Memory holds a vector for each type (8 D bytes), not the text. With several senses, about 200 uses of each type are
    also kept on disk meanwhile (2 D bytes each), and clustered by their cosines.

    Args:
        embedder: The model that embeds the text.
        corpus: The prepared text.
        layer: Any choice of layers that gives one vector per token.
        min_count: How often a type must occur to get a vector.
        senses: The number of senses of each type; fewer if it has fewer uses. "auto" tries 2 to 5, and keeps the number
            that separates the uses best, or one sense if none separates them well. It splits nearly every word.
        work: The folder for what is kept on disk; by default that for temporary files of the system.

    Returns:
        The names of the types, or of their senses, with their vectors.

    Raises:
        ElmoError: If the corpus is damaged, or no type occurs often enough; or if types are divided into senses, and
            faiss is not installed or a type has the name of a sense of another.

    Example:
        ```python
        found = type_vectors(model, Corpus.open("corpus/"), layer=1, senses="auto")
        print(found.names[:10], found.vectors.shape)
        ```
    """
    require_corpus(corpus)
    require_count("`min_count`", min_count)
    if senses != "auto":
        require_count("`senses`", senses)
    if senses != 1:
        import_extra("faiss", "a word with several senses")
    weights = single_layer_weights(layer, embedder.num_layers)
    corpus.verify()
    counts = corpus.count_types()
    counts[: len(SPECIAL_WORDS)] = 0
    kept = np.flatnonzero(counts >= min_count)
    if not len(kept):
        raise ElmoError(f"`min_count`: no word of the text occurs {min_count} times; choose a lower number")
    kept = kept[np.argsort(-counts[kept], kind="stable")]
    types = corpus.types()
    if is_lower_case(embedder.text) and any(types[id] != types[id].lower() for id in kept):
        warnings.warn(
            f"{corpus.folder}: has words with capitals, but the model was trained on lower-case text; prepare the text "
            "again with `lowercase=True`",
            stacklevel=2,
        )
    names, counts = [types[id] for id in kept], counts[kept]
    rows = np.full(corpus.num_types, -1, np.int64)  # the row of each type's vector
    rows[kept] = np.arange(len(kept))
    sums = np.zeros((len(kept), embedder.width), np.float64)
    if senses == 1:
        for token_rows, vectors in _windows(embedder, corpus, types, rows, weights):
            add_to_rows(sums, token_rows, vectors)
        return TypeVectors(names, (sums / counts[:, None]).astype(np.float32), counts.tolist())
    with (
        TemporaryDirectory(dir=work, prefix=".elmo-types-") as folder,
        closing(_Sample(counts, embedder.width, Path(folder) / "uses.bin")) as sample,
    ):
        for token_rows, vectors in _windows(embedder, corpus, types, rows, weights):
            add_to_rows(sums, token_rows, vectors)
            sample.add(token_rows, vectors)
        return _split_into_senses(names, (sums / counts[:, None]).astype(np.float32), counts, sample, senses)


def _windows(
    embedder: Embedder, corpus: Corpus, types: list[str], rows: NDArray[np.int64], weights: list[float]
) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
    """Embed the text window by window: the row of each token, (N,), -1 if it has none, and its vector, (N, D)."""
    places = pairwise(corpus.starts.tolist())
    sentences = ([types[id] for id in corpus.tokens[start:end].tolist()] for start, end in places)
    done = 0
    with show_progress("embedding", "tokens", corpus.num_tokens) as bar:
        for arrays in embedder.windows(sentences, layers=weights):
            vectors = np.concatenate(arrays)
            yield rows[corpus.tokens[done : done + len(vectors)]], vectors
            done += len(vectors)
            bar.update(len(vectors))


class _Sample:
    """About `MAX_CLUSTERED_USES` random uses of each type, kept in a file as float16, (N, D), type by type.

    The file is not mapped into memory: where the disk is full, the system kills a process that writes to such memory.
    """

    def __init__(self, counts: NDArray[np.int64], width: int, path: Path) -> None:
        self._random = np.random.default_rng(1)
        self._share = MAX_CLUSTERED_USES / np.maximum(counts, MAX_CLUSTERED_USES)
        # A use is taken with a fixed probability, so that the number taken varies; what exceeds the room is dropped.
        self._starts = np.concatenate([[0], np.cumsum(np.minimum(counts, MAX_CLUSTERED_USES))])
        self._filled = self._starts[:-1].copy()
        self._width, self._row_bytes = width, np.dtype(np.float16).itemsize * width
        # Zeros take the room now, so that a full disk is noticed before the text is embedded.
        with path.open("wb") as file:
            for count in np.diff(self._starts).tolist():
                file.write(bytes(count * self._row_bytes))
        self._file = path.open("r+b")

    def add(self, rows: NDArray[np.int64], vectors: Vectors) -> None:
        """Take some of the vectors (N, D), which are uses of the types at `rows` (N,); -1 stands for none."""
        taken = np.flatnonzero((rows >= 0) & (self._random.random(len(rows)) < self._share[rows]))
        units = unit(vectors[taken])
        for row, vector in zip(rows[taken].tolist(), units, strict=True):
            if self._filled[row] < self._starts[row + 1]:
                self._file.seek(int(self._filled[row]) * self._row_bytes)
                self._file.write(vector.astype(np.float16).tobytes())
                self._filled[row] += 1

    def uses(self, row: int) -> Vectors:
        """Return the uses of a type, scaled to length 1."""
        self._file.seek(int(self._starts[row]) * self._row_bytes)
        data = self._file.read(int(self._filled[row] - self._starts[row]) * self._row_bytes)
        return unit(np.frombuffer(data, np.float16).reshape(-1, self._width).astype(np.float32))

    def close(self) -> None:
        """Close the file, which Windows could not delete otherwise."""
        self._file.close()


def _split_into_senses(
    names: list[str], means: Vectors, counts: NDArray[np.int64], sample: _Sample, senses: int | Literal["auto"]
) -> TypeVectors:
    """Replace each type that has several senses by these. The vector of a sense is the mean of its uses."""
    found: list[tuple[str, Any, int]] = []
    for row, name in enumerate(show_progress("finding senses", "words", len(names), names)):
        uses, count = sample.uses(row), int(counts[row])
        if senses == "auto":
            groups = cluster_as_needed(uses, MAX_SENSES, LEAST_SILHOUETTE)
        else:
            groups = cluster(uses, max(1, min(senses, len(uses))))
        sizes = np.bincount(groups)
        sizes = sizes[sizes > 0]  # groups are numbered by falling size, so that the empty ones are the last
        if len(sizes) < 2:
            found.append((name, means[row], count))
            continue
        length = float(np.linalg.norm(means[row]))
        for number, size in enumerate(sizes.tolist()):
            # The uses were scaled to length 1, but programs may look at lengths, too: senses get that of the type.
            vector = length * unit(uses[groups == number].mean(axis=0))
            found.append((f"{name}{SENSE}{number + 1}", vector, round(count * size / len(uses))))
    found.sort(key=lambda entry: -entry[2])
    ordered, vectors, sizes = zip(*found, strict=True)
    name, times = Counter(ordered).most_common(1)[0]
    if times > 1:
        raise ElmoError(f"`senses`: {name!r} would be the name of a sense, but is a word of the text; leave senses out")
    return TypeVectors(list(ordered), np.stack(vectors), list(sizes))
