"""The nearest neighbors of a word without context and in context (Peters et al. 2018, sec. 5.3 and Table 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmo.analysis.neighbors import Use, excerpt, find_neighbors, unit
from elmo.analysis.paper.finding import Cell, Finding, Table
from elmo.analysis.paper.panels import lines_of
from elmo.analysis.paper.parts import once
from elmo.analysis.paper.published import DRAMA, GAME, NEIGHBORS, NO_CONTEXT
from elmo.analysis.pictures import draw_lines
from elmo.analysis.senses import gather_uses, separation
from elmo.analysis.wsd_data import Annotated
from elmo.embed.embedder import Embedder
from elmo.embed.layers import layer_name
from elmo.errors import ElmoError
from elmo.tasks.common.static_vectors import StaticVectors
from elmo.tasks.run_folder import checksum_of_examples

WORD = "play"
WORDS = (WORD, "line", "head", "point", "way", "time")
"""Lemmas whose senses are compared: the paper's, and others that have many senses in SemCor."""

QUICK_WORDS = 2
SHOWN, NUM_WORDS, CONTEXT = 3, 10, 12
"""Numbers of uses and words in a cell, and of tokens on either side of a use."""

ANSWERS = {GAME: "Kieffer , the only junior", DRAMA: "talent enough to fill the roles"}
"""Words from the sentences that the paper found in SemCor, by the sentence that was searched for."""

NEAREST, SAME, RANK, CHANCE = "nearest", "of its sense", "place of the paper's", "chance"
UNTAGGED = "not tagged"
"""Shown instead of the sense of a use that has none in the annotated text."""

MAX_USES = 100_000


def analyze_neighbors(
    embedder: Embedder,
    semcor: Sequence[Annotated],
    static: StaticVectors | None,
    folder: Path,
    model: str,
    *,
    quick: bool = False,
) -> Finding:
    """Find the nearest neighbors of "play", and how often the nearest use of a word has the same sense in each layer.

    The neighbors are the nearest words in `static` vectors (if given) and in layer 0, and the nearest uses in the last
    layer to those in the paper's two sentences.

    Raises:
        ElmoError: If the text has no use of "play", or too few uses to compare senses.

    Source: Peters et al. 2018, section 5.3 and Table 4.
    """
    lemmas = {instance.target.lemma for sentence in semcor for instance in sentence.instances}
    if WORD not in lemmas:
        raise ElmoError(f"the annotated text has no use of {WORD!r}; give SemCor")
    told_apart = _told_apart(semcor)
    words = [word for word in WORDS if word in told_apart][: QUICK_WORDS if quick else None]
    if not words:
        raise ElmoError(f"the annotated text has no sense of {', '.join(WORDS)} in two sentences; give SemCor")
    of: dict[str, object] = {"model": embedder.fingerprint, "text": checksum_of_examples(semcor), "words": words}
    judged = of | {"senses": "told, or not tagged"}
    uses = once(folder / "parts" / "neighbors-uses.json", judged, lambda: dict(_nearest(embedder, semcor)))
    shared = of | {"equally near": "shared"}
    senses = once(folder / "parts" / "neighbors-senses.json", shared, lambda: _separations(embedder, semcor, words))
    here: dict[str, dict[str, Cell]] = dict(uses.value)
    if static is not None:
        here = {f"{WORD}, static vectors": {NEAREST: ", ".join(nearest_static(static, WORD, NUM_WORDS))}, **here}
    paper: dict[str, dict[str, Cell]] = {row: {NEAREST: found} for row, found in NEIGHBORS.items()}
    columns = [CHANCE, *map(layer_name, range(embedder.num_layers))]
    tables = [
        Table("Nearest neighbors of “play” (Table 4)", "source", [NEAREST, SAME, RANK], here, paper, digits=0),
        Table(
            "Whether the nearest use has the same sense",
            "uses whose nearest has their sense (%)",
            columns,
            senses.value,
        ),
    ]
    seconds = {"uses": uses.seconds, "senses": senses.seconds}
    return Finding("neighbors", "Nearest neighbors (Table 4)", model, quick, tables, seconds)


def _nearest(embedder: Embedder, semcor: Sequence[Annotated]) -> Iterator[tuple[str, dict[str, Cell]]]:
    """Yield a row for the word alone, and one for each of the paper's sentences, completed from the text."""
    text = [sentence.tokens for sentence in semcor]
    senses = {
        (tuple(sentence.tokens), instance.start): instance.senses
        for sentence in semcor
        for instance in sentence.instances
    }
    for number, start in enumerate((GAME, DRAMA)):
        wanted = start.split()
        query = next((tokens for tokens in text if list(tokens[: len(wanted)]) == wanted), wanted)
        found = find_neighbors(embedder, text, WORD, query, top=MAX_USES)
        if number == 0:
            nearest = ", ".join(word.word for word in found.words[:NUM_WORDS])
            yield f"{NO_CONTEXT}, layer 0", {NEAREST: nearest}
        places = [n for n, use in enumerate(found.uses, 1) if ANSWERS[start] in " ".join(use.tokens)]
        rank = f"{places[0]} of {len(found.uses)}" if places else "not in the text"
        own = senses.get((tuple(query), list(query).index(WORD)), ())
        theirs = [senses.get((tuple(use.tokens), use.position), ()) for use in found.uses[:SHOWN]]
        words = (UNTAGGED if not each else "yes" if {*own} & {*each} else "no" for each in theirs)
        told = ", ".join(words) if own else UNTAGGED
        yield start, {NEAREST: " / ".join(map(_quote, found.uses[:SHOWN])), SAME: told, RANK: rank}


def _told_apart(text: Sequence[Annotated]) -> set[str]:
    """Return the lemmas with a sense that is used in two sentences, so that a use can have a neighbor of its sense."""
    sentences: defaultdict[tuple[str, str], set[tuple[str, ...]]] = defaultdict(set)
    for sentence in text:
        for instance in sentence.instances:
            for sense in instance.senses[:1]:
                sentences[instance.target.lemma, sense].add(tuple(sentence.tokens))
    return {lemma for (lemma, _), found in sentences.items() if len(found) > 1}


def _separations(embedder: Embedder, semcor: Sequence[Annotated], words: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return how often the nearest use has the same sense, in percent, by word and layer."""
    rows: dict[str, dict[str, float]] = {}
    for word in words:
        found = {
            layer_name(layer): separation(gather_uses(embedder, semcor, word, layer))
            for layer in range(embedder.num_layers)
        }
        chance = 100 * next(iter(found.values())).chance
        rows[word] = {CHANCE: chance, **{name: 100 * each.same for name, each in found.items()}}
    return rows


def nearest_static(static: StaticVectors, word: str, top: int) -> list[str]:
    """Return the words whose vectors are nearest to that of `word` by cosine, except for the word itself."""
    if word not in static.words:
        raise ElmoError(f"the static vectors have no word {word!r}")
    units = unit(static.vectors)
    order = np.argsort(-(units @ units[static.words.index(word)]), kind="stable")
    return [static.words[index] for index in order[: top + 1] if static.words[index] != word][:top]


def _quote(use: Use) -> str:
    """Return the sentence of a use, shortened around the token."""
    return " ".join(filter(None, excerpt(use.tokens, use.position, CONTEXT)))


def draw(figure: Any, finding: Finding) -> None:
    """Draw a line for each word: chance, then the layers."""
    table = finding.tables[1]
    figure.set_size_inches(7, 4.5)
    axes = figure.add_subplot()
    draw_lines(axes, table.columns, lines_of(table), table.unit, with_values=False)
    axes.set_title(table.title)
