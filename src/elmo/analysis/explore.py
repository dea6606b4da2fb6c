"""One word of a sentence in detail: its nearest uses, its layers, and a plot of its uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from elmo.analysis.clusters import cluster
from elmo.analysis.neighbors import Neighbors, Use, hint
from elmo.analysis.search import ContextIndex
from elmo.analysis.vectors import Vectors, project, unit
from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError

MAX_SHOWN_USES = 150
"""Most uses of the word in an index that are embedded in all layers."""

SHOWN_USES = 6
"""Number of uses that are shown for each layer."""

MAX_GROUPS = 6

Place = tuple[tuple[str, ...], int]
"""A sentence, and the position of a word in it."""


@dataclass(frozen=True)
class LayerView:
    """One layer: the length of the word's vector, its mean cosine to the uses, and the nearest uses."""

    number: int
    length: float
    mean_cosine: float
    uses: list[Use]


@dataclass(frozen=True)
class Point:
    """A use in the plot, with coordinates from 0 to 1. `group` counts from 0; the word that was clicked has -1."""

    x: float
    y: float
    group: int
    tokens: tuple[str, ...]
    position: int


@dataclass(frozen=True)
class View:
    """Everything that the page shows about a word.

    `neighbors` is None without an index, and `points` is empty if there are too few uses for a plot. `num_uses` uses
    were compared in all layers. `centers` holds the use nearest to the center of each group. The plot shows the share
    `explained` of the variance.
    """

    tokens: tuple[str, ...]
    position: int
    neighbors: Neighbors | None
    num_uses: int
    layers: list[LayerView]
    points: list[Point]
    centers: list[Point]
    explained: float


@dataclass(frozen=True)
class ExplorationConfig:
    """What a reader can choose: options of `ContextIndex.find_neighbors`, and the number of groups in the plot."""

    top: int = 10
    any_word: bool = False
    tags: tuple[str, ...] = ()
    groups: int = 3
    where: Mapping[str, str] = field(default_factory=dict[str, str])


def look(
    embedder: Embedder,
    sentences: Sequence[tuple[str, ...]],
    line: int,
    position: int,
    index: ContextIndex | None = None,
    settings: ExplorationConfig | None = None,
) -> View:
    """Gather what the page shows about the word at `position` of sentence number `line`.

    With an index, the word is compared with its uses there; without one, with all other words of `sentences`.

    Raises:
        ElmoError: If there is no such word, or the index has no such use.
    """
    settings = settings or ExplorationConfig()
    if not (0 <= line < len(sentences) and 0 <= position < len(sentences[line])):
        raise ElmoError(f"word {position} of line {line}: there is none; click on a word of the text")
    if not 1 <= settings.groups <= MAX_GROUPS:
        raise ElmoError(f"`groups`: {settings.groups} is not between 1 and {MAX_GROUPS}")
    tokens = sentences[line]
    word, neighbors = tokens[position], None
    if index is None:
        places = [(other, place) for other in sentences for place in range(len(other))]
    else:
        if not settings.any_word and word not in index.text.types:
            # `find_neighbors` would advise to ignore case, which the page can't.
            form = hint([word], index.text.types, False, can_ignore_case=False)
            raise ElmoError(f"the index has no use of {word!r}{form}; mark 'uses of any word' to see what is near it")
        occurrence = tokens[: position + 1].count(word)
        neighbors = index.find_neighbors(
            word,
            tokens,
            occurrence=occurrence,
            top=settings.top,
            any_word=settings.any_word,
            tags=settings.tags,
            where=settings.where,
        )
        # With `any_word`, the tags are those of other words.
        places = index.uses(word, MAX_SHOWN_USES, settings.where, () if settings.any_word else settings.tags)
    places = [place for place in dict.fromkeys(places) if place != (tokens, position)]
    query, vectors = _embed_all(embedder, (tokens, position), places)
    layers = [_layer(number, query[number], vectors[number], places) for number in range(len(query))]
    # The plot shows the layer by which neighbors are found: that of the index, or the top layer.
    weights = np.array(index.layer if index else [0.0] * (len(query) - 1) + [1.0], np.float32)
    asked, others = np.tensordot(weights, query, 1), np.tensordot(weights, vectors, 1)
    picture = _picture(asked, others, (tokens, position), places, settings.groups if index else 1)
    return View(tokens, position, neighbors, len(places), layers, *picture)


def _embed_all(embedder: Embedder, query: Place, places: Sequence[Place]) -> tuple[Vectors, Vectors]:
    """Return all layers of the query, (L+1, D), and of the uses, (L+1, N, D)."""
    sentences = list(dict.fromkeys([query[0], *(tokens for tokens, _ in places)]))
    found = dict(zip(sentences, embedder.embed(sentences, layers="all"), strict=True))
    first, *others = [found[tokens][:, position] for tokens, position in [query, *places]]
    return first, np.stack(others, axis=1) if others else np.zeros((len(first), 0, first.shape[1]), np.float32)


def _layer(number: int, query: Vectors, vectors: Vectors, places: Sequence[Place]) -> LayerView:
    cosines = unit(vectors) @ unit(query)
    order = np.argsort(-cosines, kind="stable")[:SHOWN_USES].tolist()
    uses = [Use(float(cosines[place]), place, places[place][1], places[place][0]) for place in order]
    return LayerView(number, float(np.linalg.norm(query)), float(cosines.mean()) if len(cosines) else 0.0, uses)


def _picture(
    query: Vectors, vectors: Vectors, asked: Place, places: Sequence[Place], num_groups: int
) -> tuple[list[Point], list[Point], float]:
    """Return the points of the plot, the use in the center of each group, and the explained share of variance."""
    if len(places) < 3:  # too few for a plot
        return [], [], 0.0
    points, shares = project(np.concatenate([query[None], vectors]))
    points = (points - points.min(axis=0)) / np.maximum(np.ptp(points, axis=0), np.finfo(np.float32).tiny)
    units = unit(vectors)
    groups = cluster(units, min(num_groups, len(units)))
    numbers = [-1, *groups.tolist()]
    drawn = [
        Point(x, y, group, tokens, position)
        for (x, y), group, (tokens, position) in zip(points.tolist(), numbers, [asked, *places], strict=True)
    ]
    members = [np.flatnonzero(groups == group) for group in range(num_groups)]
    centers = [drawn[1 + own[(units[own] @ units[own].mean(axis=0)).argmax()]] for own in members if len(own)]
    return drawn, centers, float(sum(shares))
