"""One word's uses: which are nearest to which, how well their senses stand apart, and a picture of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmo.analysis.neighbors import matches, unit
from elmo.analysis.pictures import COLOURS, MARKERS, new_figure, save_figure
from elmo.analysis.wsd import ROUNDING, Vectors, embed_instances, only
from elmo.analysis.wsd_data import Annotated, Instance, Target
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, single_layer_weights
from elmo.errors import ElmoError

CONTEXT = 3
"""Tokens on either side of a use that a picture quotes."""

LEXICOGRAPHER_FILES = (
    *("adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact", "noun.attribute"),
    *("noun.body", "noun.cognition", "noun.communication", "noun.event", "noun.feeling", "noun.food", "noun.group"),
    *("noun.location", "noun.motive", "noun.object", "noun.person", "noun.phenomenon", "noun.plant"),
    *("noun.possession", "noun.process", "noun.quantity", "noun.relation", "noun.shape", "noun.state"),
    *("noun.substance", "noun.time", "verb.body", "verb.change", "verb.cognition", "verb.communication"),
    *("verb.competition", "verb.consumption", "verb.contact", "verb.creation", "verb.emotion", "verb.motion"),
    *("verb.perception", "verb.possession", "verb.social", "verb.stative", "verb.weather", "adj.ppl"),
)
"""WordNet's names of the files that the second number of a sense key stands for."""


@dataclass(frozen=True)
class Uses:
    """N uses of a word: the sentence of each, the tokens it is, its sense ("" where unknown), its vector (N, D)."""

    sentences: list[tuple[str, ...]]
    spans: list[tuple[int, int]]
    senses: list[str]
    vectors: Vectors
    layer: Layers


@dataclass(frozen=True)
class Separation:
    """How often a use's nearest neighbor has its sense (`same`, from 0 to 1), and how often any would by `chance`.

    `num_uses` were asked; they and their neighbors have `num_senses` senses.
    """

    same: float
    chance: float
    num_uses: int
    num_senses: int


def mark_uses(sentences: Iterable[Sequence[str]], word: str, *, ignore_case: bool = False) -> Iterator[Annotated]:
    """Any tokenized text as one in which the uses of `word` are annotated, with no sense."""
    for tokens in sentences:
        places = matches(tokens, word, ignore_case)
        yield Annotated(list(tokens), [Instance(Target(word, ""), place, place + 1, ()) for place in places])


def gather_uses(embedder: Embedder, sentences: Iterable[Annotated], lemma: str, layer: Layers = "top") -> Uses:
    """Embed the uses of a lemma, as whatever part of speech; of several senses the first is taken.

    `layer` is any choice of one vector per token. Raises ElmoError where there is no use.
    """
    mix = np.array(single_layer_weights(layer, embedder.num_layers), np.float32)
    found = list(only(sentences, lambda instance: instance.target.lemma == lemma))
    if not found:
        raise ElmoError(f"the text has no use of {lemma!r}; lemmas of annotated text are in lower case")
    pairs = [(tuple(sentence.tokens), instance) for sentence in found for instance in sentence.instances]
    return Uses(
        [tokens for tokens, _ in pairs],
        [(instance.start, instance.end) for _, instance in pairs],
        [instance.senses[0] if instance.senses else "" for _, instance in pairs],
        np.stack([np.tensordot(mix, vectors, 1) for _, vectors in embed_instances(embedder, found)]),
        layer,
    )


def nearest_uses(
    embedder: Embedder, uses: Uses, query: Sequence[str], word: str, top: int = 5
) -> list[tuple[float, int]]:
    """The uses whose vectors are nearest to the first `word` of the sentence `query`: cosine, and number in `uses`.

    `query` itself is left out where it is among their sentences.
    """
    target = gather_uses(embedder, mark_uses([query], word), word, uses.layer).vectors[0]
    cosines = unit(uses.vectors) @ unit(target)
    order = [number for number in np.argsort(-cosines, kind="stable") if uses.sentences[number] != tuple(query)]
    return [(float(cosines[number]), int(number)) for number in order[:top]]


def separation(uses: Uses) -> Separation:
    """How well senses stand apart: whether a use's nearest neighbor in another sentence has the same sense.

    Uses without a sense, and those that share theirs with no other sentence, are left out of the question; the
    latter stay among the answers. Where several are equally near, as without context all uses of a form are, it is the
    share of them that have the same sense.
    """
    chosen = [number for number, sense in enumerate(uses.senses) if sense]
    senses = _numbers([uses.senses[number] for number in chosen])
    sentences = _numbers([uses.sentences[number] for number in chosen])
    units = unit(uses.vectors[chosen])
    right: list[float] = []
    chances: list[float] = []
    for number, vector in enumerate(units):
        elsewhere = sentences != sentences[number]
        same = elsewhere & (senses == senses[number])
        if same.any():
            similarities = np.where(elsewhere, units @ vector, -np.inf)
            right.append(same[similarities > similarities.max() - ROUNDING].mean())
            chances.append(same.sum() / elsewhere.sum())
    if not right:
        raise ElmoError("uses: no sense has uses in two sentences; nothing can be near its like")
    return Separation(float(np.mean(right)), float(np.mean(chances)), len(right), len(set(senses.tolist())))


def plot_uses(path: str | Path, uses: Uses, title: str = "") -> None:
    """Draw the uses in the plane where their directions differ most (the first two principal components).

    Colours and markers are senses, the commonest first; of each, the use in its midst is quoted. `path` ends in
    `.png` or `.svg`. Needs matplotlib (`pip install 'elmo-torch[analysis]'`).
    """
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise ElmoError(f"{path}: pictures end in .png or .svg")
    if len(uses.senses) < 3:
        raise ElmoError(f"{path}: {len(uses.senses)} uses make no picture; it takes 3")
    figure = new_figure()
    figure.set_size_inches(11, 6)
    points, shares = project(uses.vectors)
    axes = figure.add_subplot()
    axes.set_title(title or "Uses of a word")
    for axis, number, share in zip((axes.set_xlabel, axes.set_ylabel), ("First", "Second"), shares, strict=True):
        axis(f"{number} principal component ({share:.0%} of the variance)")
    _draw_senses(axes, uses, points)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small", labelspacing=1)
    save_figure(figure, path, path.suffix[1:])


def project(vectors: Vectors) -> tuple[Vectors, list[float]]:
    """Directions of `vectors` (N, D) on their first two principal components, (N, 2), and the variance these explain.

    Each component points to where its largest number is positive.
    """
    units = unit(vectors)
    left, sizes, _ = np.linalg.svd(units - units.mean(axis=0), full_matrices=False)
    points = left[:, :2] * sizes[:2]
    points *= np.sign(np.take_along_axis(points, np.abs(points).argmax(axis=0)[None], axis=0))
    return points, (sizes[:2] ** 2 / max((sizes**2).sum(), np.finfo(np.float32).tiny)).tolist()


def _draw_senses(axes: Any, uses: Uses, points: Vectors) -> None:
    commonest = [sense for sense, _ in Counter(uses.senses).most_common(len(COLOURS))]
    for sense, colour, marker in zip(commonest, COLOURS, MARKERS, strict=False):
        chosen = [number for number, other in enumerate(uses.senses) if other == sense]
        distances = np.linalg.norm(points[chosen] - points[chosen].mean(axis=0), axis=1)
        label = f"{sense_label(sense) or 'uses'} ({len(chosen)})\n“{_quote(uses, chosen[distances.argmin()])}”"
        axes.scatter(*points[chosen].T, c=colour, marker=marker, label=label, alpha=0.75, edgecolors="white")
    rest = [number for number, sense in enumerate(uses.senses) if sense not in commonest]
    if rest:
        axes.scatter(*points[rest].T, c="#999999", marker=".", label=f"other senses ({len(rest)})", zorder=0)


def _quote(uses: Uses, number: int) -> str:
    """A use with a few tokens around it. A dollar sign would begin a formula."""
    (start, end), tokens = uses.spans[number], uses.sentences[number]
    return " ".join(tokens[max(0, start - CONTEXT) : end + CONTEXT]).replace("$", r"\$")


def sense_label(sense: str) -> str:
    """A sense key for people, lemma left out: "noun.communication 01" for "play%1:10:01::"; another text as it is."""
    match sense.rpartition("%")[2].split(":"):
        case [_, file, order, head, _] if file.isdecimal() and int(file) < len(LEXICOGRAPHER_FILES):
            return " ".join(filter(None, [LEXICOGRAPHER_FILES[int(file)], order, head]))
        case _:
            return sense


def _numbers(values: Sequence[object]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Equal values as equal numbers."""
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], np.int64)
