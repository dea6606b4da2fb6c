"""The uses of one word: which are nearest to each other, how well their senses are separated, and a plot of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmo.analysis.neighbors import matches
from elmo.analysis.pictures import dress, label_components, literal, new_figure, require_picture, save_figure
from elmo.analysis.style import COLORS, INK, MARKERS, REST, SMALL_SIZE, TITLE_SIZE
from elmo.analysis.vectors import ROUNDING, Vectors, project, unit
from elmo.analysis.wsd import embed_instances, only
from elmo.analysis.wsd_data import Annotated, Instance, Target
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, single_layer_weights
from elmo.errors import ElmoError
from elmo.formats.files import write_all
from elmo.schema import require_count
from elmo.text.characters import refuse_one_string, require_sentence
from elmo.wording import counted

CONTEXT = 3
"""Number of tokens that a plot quotes on either side of a use."""

LEXICOGRAPHER_FILES = (
    *("adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact", "noun.attribute"),
    *("noun.body", "noun.cognition", "noun.communication", "noun.event", "noun.feeling", "noun.food", "noun.group"),
    *("noun.location", "noun.motive", "noun.object", "noun.person", "noun.phenomenon", "noun.plant"),
    *("noun.possession", "noun.process", "noun.quantity", "noun.relation", "noun.shape", "noun.state"),
    *("noun.substance", "noun.time", "verb.body", "verb.change", "verb.cognition", "verb.communication"),
    *("verb.competition", "verb.consumption", "verb.contact", "verb.creation", "verb.emotion", "verb.motion"),
    *("verb.perception", "verb.possession", "verb.social", "verb.stative", "verb.weather", "adj.ppl"),
)
"""WordNet's lexicographer files in order: the second number in a sense key is an index into this list."""


@dataclass(frozen=True, eq=False)  # == of two arrays is an array, not a bool
class Uses:
    """N uses of a word.

    Attributes:
        sentences: The tokens of the sentence of each use.
        spans: The first token and the end (exclusive) of each use in its sentence.
        senses: The sense of each use, or "" if it is unknown.
        vectors: The vectors of the uses, (N, D).
        layer: The choice of layers that the vectors are from.
    """

    sentences: list[tuple[str, ...]]
    spans: list[tuple[int, int]]
    senses: list[str]
    vectors: Vectors
    layer: Layers

    def __repr__(self) -> str:
        """Tell how many uses these are, since their sentences and vectors would fill the screen."""
        size = f"{counted(len(self.spans), 'use')}, {counted(len({*self.senses} - {''}), 'sense')}"
        return f"Uses({size}, layer={self.layer!r}, vectors={self.vectors.shape})"


@dataclass(frozen=True)
class Separation:
    """How often the nearest neighbor of a use has the same sense, from 0 to 1.

    `chance` is how often a random other use would have it. `num_uses` uses were tested; they and their neighbors have
    `num_senses` senses.
    """

    same: float
    chance: float
    num_uses: int
    num_senses: int


def mark_uses(sentences: Iterable[Sequence[str]], word: str, *, ignore_case: bool = False) -> Iterator[Annotated]:
    """Annotate the uses of a word in any tokenized text, without a sense.

    Args:
        sentences: The tokenized text.
        word: The token to look for.
        ignore_case: Whether "Play" matches "play".

    Returns:
        All sentences, each with its uses of the word, if any.

    Raises:
        ElmoError: If a sentence is not a list of tokens.
    """
    for number, tokens in enumerate(sentences):
        require_sentence(tokens, number)
        places = matches(tokens, [word], ignore_case)
        yield Annotated(list(tokens), [Instance(Target(word, ""), place, place + 1, ()) for place in places])


def gather_uses(embedder: Embedder, sentences: Iterable[Annotated], lemma: str, layer: Layers = "top") -> Uses:
    """Embed the uses of a lemma, whatever their part of speech.

    Args:
        embedder: The model.
        sentences: Annotated text.
        lemma: The lemma.
        layer: Any choice of layers that gives one vector per token.

    Returns:
        The uses. If one has several senses, the first is taken.

    Raises:
        ElmoError: If the text has no use of the lemma.

    Example:
        ```python
        uses = gather_uses(model, read_annotated("semcor.data.xml"), "play", layer=2)
        print(separation(uses))
        plot_uses("play.png", uses)
        ```
    """
    mix = np.array(single_layer_weights(layer, embedder.num_layers), np.float32)
    found = list(only(sentences, lambda instance: instance.target.lemma == lemma))
    if not found:
        raise ElmoError(
            f"the text has no use of {lemma!r}; write it as the text has it (annotated text has lemmas in lower case)"
        )
    pairs = [(tuple(sentence.tokens), instance) for sentence in found for instance in sentence.instances]
    return Uses(
        [tokens for tokens, _ in pairs],
        [(instance.start, instance.end) for _, instance in pairs],
        [instance.senses[0] if instance.senses else "" for _, instance in pairs],
        np.stack([np.tensordot(mix, vectors, 1) for _, vectors in embed_instances(embedder, found)]),
        layer,
    )


def nearest_uses(
    embedder: Embedder, uses: Uses, word: str, query: Sequence[str], *, top: int = 10
) -> list[tuple[float, int]]:
    """Find the uses that are nearest to the first occurrence of `word` in the sentence `query`.

    Uses in a sentence equal to `query` are left out.

    Args:
        embedder: The model that the uses were embedded with.
        uses: The uses to search.
        word: A token of `query`.
        query: The tokens of a sentence.
        top: The largest number of uses to return.

    Returns:
        The cosine of each use and its number in `uses`, nearest first, at most `top` of them.

    Raises:
        ElmoError: If `word` is not a token of `query`.
    """
    require_count("`top`", top)
    refuse_one_string("query", query)
    if word not in query:
        raise ElmoError(f"the query has no token {word!r}: {' '.join(query)}")
    target = gather_uses(embedder, mark_uses([query], word), word, uses.layer).vectors[0]
    cosines = unit(uses.vectors) @ unit(target)
    order = [number for number in np.argsort(-cosines, kind="stable") if uses.sentences[number] != tuple(query)]
    return [(float(cosines[number]), int(number)) for number in order[:top]]


def separation(uses: Uses) -> Separation:
    """Measure how often the nearest neighbor of a use, in another sentence, has the same sense.

    Args:
        uses: The uses. Those without a sense are left out. Those whose sense occurs in no other sentence are not
            tested, but can be the neighbors of others.

    Returns:
        That share of the tested uses, and what it would be by chance. If several uses are equally near, as all uses of
        a form are without context, the share of these with the same sense counts.

    Raises:
        ElmoError: If no sense has uses in two sentences.
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
            # Equal sentences are one here. Otherwise a sentence that stands in the text twice would be its own
            # neighbor.
            similarities = np.where(elsewhere, units @ vector, -np.inf)
            right.append(same[similarities > similarities.max() - ROUNDING].mean())
            chances.append(same.sum() / elsewhere.sum())
    if not right:
        raise ElmoError("uses: no sense has uses in two sentences, so that none can be compared; give more text")
    return Separation(float(np.mean(right)), float(np.mean(chances)), len(right), len(set(senses.tolist())))


def plot_uses(path: str | Path, uses: Uses | Sequence[Uses], title: str = "") -> None:
    """Plot the directions of the uses on their first two principal components.

    Each sense has its own color and marker, the most frequent first, and the use nearest to the center of each sense is
    quoted. Needs matplotlib (`pip install 'elmo-torch[analysis]'`).

    Args:
        path: The picture, which ends in `.png` or `.svg`.
        uses: The uses of a word, or the same uses in several layers, each of which gets a plot of its own.
        title: What to write above.

    Raises:
        ElmoError: If the path has another ending, or if there are fewer than three uses.
    """
    path = Path(path)
    require_picture(path)
    plots = [uses] if isinstance(uses, Uses) else list(uses)
    if not plots or len(plots[0].senses) < 3:
        raise ElmoError(f"{path}: {len(plots[0].senses) if plots else 0} uses make no picture; it takes 3")
    figure = new_figure()
    is_one = len(plots) == 1
    figure.set_size_inches(11, 6 if is_one else 3.6)
    all_axes = figure.subplots(1, len(plots), squeeze=False)[0]
    write_title = all_axes[0].set_title if is_one else figure.suptitle
    write_title(literal(title or "Uses of a word"), fontsize=TITLE_SIZE, color=INK)
    drawn = [project(of_layer.vectors) for of_layer in plots]
    # All layers have the same scale. A use that is unlike all others may be outside of the unit circle.
    reach = max(1.0, *(1.05 * float(np.abs(points).max()) for points, _ in drawn))
    for axes, of_layer, (points, shares) in zip(all_axes, plots, drawn, strict=True):
        _draw_senses(axes, of_layer, points)
        if is_one:
            label_components(axes, shares)
        else:
            limits = (-reach, reach)
            axes.set(title=f"Layer {of_layer.layer}", xlim=limits, ylim=limits, xticks=(), yticks=(), aspect="equal")
        dress(axes)
    handles, labels = all_axes[-1].get_legend_handles_labels()
    place, columns = ("outside right upper", 1) if is_one else ("outside lower center", len(labels))
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False, fontsize=SMALL_SIZE, labelspacing=1)
    write_all({path: lambda part: save_figure(figure, part, path.suffix[1:])})


def _draw_senses(axes: Any, uses: Uses, points: Vectors) -> None:
    commonest = [sense for sense, _ in Counter(uses.senses).most_common(len(COLORS))]
    for sense, color, marker in zip(commonest, COLORS, MARKERS, strict=False):
        chosen = [number for number, other in enumerate(uses.senses) if other == sense]
        distances = np.linalg.norm(points[chosen] - points[chosen].mean(axis=0), axis=1)
        label = f"{sense_label(sense) or 'uses'} ({len(chosen)})\n“{_quote(uses, chosen[distances.argmin()])}”"
        axes.scatter(*points[chosen].T, c=color, marker=marker, label=literal(label), alpha=0.75, edgecolors="white")
    rest = [number for number, sense in enumerate(uses.senses) if sense not in commonest]
    if rest:
        axes.scatter(*points[rest].T, c=REST, marker=".", label=f"other senses ({len(rest)})", zorder=0)


def _quote(uses: Uses, number: int) -> str:
    """Return a use with a few tokens around it."""
    (start, end), tokens = uses.spans[number], uses.sentences[number]
    return " ".join(tokens[max(0, start - CONTEXT) : end + CONTEXT])


def sense_label(sense: str) -> str:
    """Return a readable form of a sense key, "noun.communication 01" for "play%1:10:01::"; other text is unchanged."""
    match sense.rpartition("%")[2].split(":"):
        case [_, file, order, head, _] if file.isdecimal() and int(file) < len(LEXICOGRAPHER_FILES):
            return " ".join(filter(None, [LEXICOGRAPHER_FILES[int(file)], order, head]))
        case _:
            return sense


def _numbers(values: Sequence[object]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Number the distinct values in the order in which they appear."""
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], np.int64)
