"""What the layers of a biLM know of words: neighbors, senses, parts of speech (Peters et al. 2018, sec. 5.3).

These analyses need only the vectors of a model, and train no task model. Their methods are those that `elmo.analysis`
offers for any text. Here they are applied to the paper's questions, and put next to its Tables 4, 5 and 6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmo.analysis.neighbors import Use, excerpt, find_neighbors
from elmo.analysis.paper.finding import Cell, Finding, Table, once, series_of
from elmo.analysis.paper.published import (
    DRAMA,
    FOUR_SETS,
    GAME,
    NEIGHBORS,
    NO_CONTEXT,
    SENSES,
    SPECIAL,
    TAGS,
)
from elmo.analysis.pictures import draw_dots
from elmo.analysis.pos import most_frequent_tag, probe_pos
from elmo.analysis.senses import gather_uses, separation
from elmo.analysis.vectors import unit
from elmo.analysis.wsd import NEAREST_USE, Score, evaluate_wsd
from elmo.analysis.wsd_data import Annotated, Target
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, layer_name
from elmo.errors import ElmoError
from elmo.progress import show_progress
from elmo.tasks.common.static_vectors import StaticVectors
from elmo.text.columns import Tagged
from elmo.training.run_folder import checksum_of_examples
from elmo.wording import counted

# Nearest neighbors without context and in context (Table 4).

WORD = "play"
WORDS = (WORD, "line", "head", "point", "way", "time")
"""Lemmas whose senses are compared: the paper's, and others that have many senses in SemCor."""

QUICK_WORDS = 2
SHOWN, NUM_WORDS, CONTEXT = 3, 10, 12
"""Numbers of uses and words in a cell, and of tokens on either side of a use."""

ANSWERS = {GAME: "Kieffer , the only junior", DRAMA: "talent enough to fill the roles"}
"""Words from the sentences that the paper found in SemCor, by the sentence that was searched for."""

NEAREST, SAME, RANK, CHANCE = "nearest", "same sense", "rank of the paper's answer", "chance"
UNTAGGED = "not tagged"
"""Shown instead of the sense of a use that has none in the annotated text."""

ALL_USES = 100_000
"""All uses are asked for, not only the nearest, since the rank of the use that the paper printed may be any."""


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
    # Words whose senses each occur once are left out: no use of theirs could be nearest to one of its own sense.
    told_apart = _told_apart(semcor)
    words = [word for word in WORDS if word in told_apart][: QUICK_WORDS if quick else None]
    if not words:
        raise ElmoError(f"the annotated text has no sense of {', '.join(WORDS)} in two sentences; give SemCor")
    nearest = None if static is None else ", ".join(nearest_static(static, WORD, NUM_WORDS))
    inputs: dict[str, object] = {"model": embedder.fingerprint, "text": checksum_of_examples(semcor), "words": words}
    # The last keys name how the parts are computed, so that parts stored by an earlier version, which counted
    # differently, are computed again.
    judged = inputs | {"senses": "told, or not tagged"}
    uses = once(folder / "parts" / "neighbors-uses.json", judged, lambda: dict(_nearest(embedder, semcor)))
    shared = inputs | {"equally near": "shared"}
    senses = once(folder / "parts" / "neighbors-senses.json", shared, lambda: _separations(embedder, semcor, words))
    here: dict[str, dict[str, Cell]] = dict(uses.value)
    if nearest is not None:
        here = {f"{WORD}, static vectors": {NEAREST: nearest}, **here}
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
        # The paper quotes the beginning of a sentence. The whole sentence gives its word the context that it had there,
        # and can be recognized in the text and left out of its own search.
        query = next((tokens for tokens in text if list(tokens[: len(wanted)]) == wanted), wanted)
        found = find_neighbors(embedder, text, WORD, query, top=ALL_USES)
        if number == 0:  # without context the word has one vector, whatever its sentence
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
    for word in show_progress("comparing uses", "words", len(words), words):
        found = {
            layer_name(layer): separation(gather_uses(embedder, semcor, word, layer))
            for layer in range(embedder.num_layers)
        }
        chance = 100 * next(iter(found.values())).chance  # the same in each layer
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


def draw_neighbors(figure: Any, finding: Finding) -> None:
    """Draw a dot for each word: by chance, then in each layer."""
    table = finding.tables[1]
    figure.set_size_inches(7, 4.5)
    axes = figure.add_subplot()
    draw_dots(axes, table.columns, series_of(table), table.unit, with_values=False)
    axes.set_title(table.title)


# Word senses by the nearest sense in SemCor, on each test set and on all (Table 5).

PAPERS_SETS = ("senseval2", "senseval3", "semeval2013", "semeval2015")
"""The framework's sets without its dev set, semeval2007, which the paper leaves out."""

ALL = "all sets"

QUICK_SEMCOR, QUICK_TEST = 3000, 100
"""Number of sentences of SemCor, and of each test set, in a quick run."""


def analyze_wsd(
    embedder: Embedder,
    semcor: Sequence[Annotated],
    tests: Mapping[str, Sequence[Annotated]],
    first_senses: Mapping[Target, str],
    folder: Path,
    model: str,
    *,
    quick: bool = False,
) -> Finding:
    """Measure F1 with each layer, the mean of all layers, and the mean of those above layer 0.

    They are compared with WordNet's first sense. See `evaluate_wsd` for the methods.

    Source: Peters et al. 2018, section 5.3 and Table 5.
    """
    if quick:
        semcor, tests = semcor[:QUICK_SEMCOR], {name: test[:QUICK_TEST] for name, test in tests.items()}
    layers = _choices(embedder.num_layers)

    def evaluate() -> dict[str, dict[str, list[int]]]:
        found = evaluate_wsd(embedder, semcor, tests, first_senses, layers)
        return {
            row: {test: [score.num_right, score.num_answered, score.num_instances] for test, score in scores.items()}
            for row, scores in found.items()
        }

    inputs: dict[str, object] = {
        "model": embedder.fingerprint,
        "semcor": checksum_of_examples(semcor),
        "tests": {name: checksum_of_examples(test) for name, test in tests.items()},
        "first": checksum_of_examples(sorted(first_senses.items())),
        "equally near": "first",  # earlier versions let rounding choose; what they stored is computed again
    }
    # Counts are stored instead of F1: the F1 of several sets together is that of all their instances, not a mean.
    part = once(folder / "parts" / "wsd.json", inputs, evaluate)
    columns: dict[str, dict[str, float]] = {name: _scores(scores) for name, scores in part.value.items()}
    tables: list[Table] = []
    for title, wanted in (
        ("Nearest mean of a sense's uses (Table 5)", False),
        ("Sense of the nearest single use", True),
    ):
        names = [name for name in columns if name.endswith(NEAREST_USE) == wanted]
        short = {name: name.removesuffix(f", {NEAREST_USE}") for name in names}
        here = {test: {short[name]: columns[name][test] for name in names} for test in columns[names[0]]}
        paper, others = ({}, []) if wanted else (SENSES, [SPECIAL])
        tables.append(Table(title, "F1 (%)", [*short.values(), *others], here, paper))
    return Finding("wsd", "Word senses (Table 5)", model, quick, tables, {"wsd": part.seconds})


def _choices(num_layers: int) -> dict[str, Layers]:
    """Return the layers and mixes to compare, by their names in tables."""
    # Without layer 0, which has no context and could not tell two senses of a form apart.
    upper = [0.0, *([1 / (num_layers - 1)] * (num_layers - 1))]
    single: dict[str, Layers] = {layer_name(layer): layer for layer in range(num_layers)}
    return {**single, "mean of all": "mean", f"mean of 1 to {num_layers - 1}": upper}


def _scores(counts: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return F1 in percent for each set, for the paper's four sets together if all are given, and for all sets."""
    scores = {name: Score(*numbers) for name, numbers in counts.items()}
    groups = {name: [score] for name, score in scores.items()}
    if all(name in scores for name in PAPERS_SETS):
        groups[FOUR_SETS] = [scores[name] for name in PAPERS_SETS]
    groups[ALL] = list(scores.values())
    return {name: 100 * sum(group, Score()).f1 for name, group in groups.items()}


def draw_wsd(figure: Any, finding: Finding) -> None:
    """Draw a panel for means of senses and one for single uses, with a dot for each set."""
    figure.set_size_inches(10, 9)
    for place, table in enumerate(finding.tables, 1):
        axes = figure.add_subplot(2, 1, place)
        # First the paper's figures and ours of several sets, which answer the question; then single sets.
        rows = sorted(series_of(table), key=lambda row: not (row.is_published or row.label in (FOUR_SETS, ALL)))
        draw_dots(axes, table.columns, rows, table.unit, with_values=False)
        axes.set_title(table.title)


# Parts of speech from single layers, on any corpora (Table 6).

QUICK_SENTENCES = (600, 200, 400)
"""Number of sentences to train on, to choose the weight decay with, and to test on."""

DEV_SHARE = 0.1
"""Share of the training sentences, from the end, that become the dev set of a corpus without one."""

FREQUENT = "most frequent tag"


class TaggedCorpus(NamedTuple):
    """Tagged sentences to train on, to choose the weight decay with, and to test on."""

    train: Sequence[Tagged]
    dev: Sequence[Tagged]
    test: Sequence[Tagged]


def with_dev(train: Sequence[Tagged], test: Sequence[Tagged]) -> TaggedCorpus:
    """Return a corpus whose dev set is the end of its training set.

    Raises:
        ElmoError: If the training set has fewer than two sentences.
    """
    if len(train) < 2:
        raise ElmoError(
            f"the training text holds {counted(len(train), 'tagged sentence')}; it takes two, one of them for the dev "
            "set"
        )
    num_dev = max(1, round(DEV_SHARE * len(train)))
    return TaggedCorpus(train[:-num_dev], train[-num_dev:], test)


def analyze_pos(
    embedder: Embedder, corpora: Mapping[str, TaggedCorpus], folder: Path, model: str, *, quick: bool = False
) -> Finding:
    """Measure the accuracy of a linear classifier on each layer, and of each word's most frequent tag, on every corpus.

    Source: Peters et al. 2018, section 5.3 and Table 6.
    """
    here: dict[str, dict[str, float]] = {}
    seconds: dict[str, float] = {}
    for name, parts in corpora.items():
        if quick:
            parts = TaggedCorpus(*(part[:number] for part, number in zip(parts, QUICK_SENTENCES, strict=True)))
        inputs: dict[str, object] = {
            "model": embedder.fingerprint,
            "sets": [checksum_of_examples(part) for part in parts],
        }
        here[name] = {FREQUENT: 100 * most_frequent_tag(parts[0], parts[2])}
        for layer in range(embedder.num_layers):
            path = folder / "parts" / f"pos-{name}-{layer}.json"
            part = once(path, inputs, partial(probe_pos, embedder, *parts, layer))
            here[name][layer_name(layer)] = 100 * part.value
            seconds[f"{name}, {layer_name(layer)}"] = part.seconds
    columns = [FREQUENT, *map(layer_name, range(embedder.num_layers)), SPECIAL]
    title = "Parts of speech (Table 6)"
    return Finding(
        "pos", title, model, quick, [Table(title, "test accuracy (%)", columns, here, TAGS, digits=2)], seconds
    )


def draw_pos(figure: Any, finding: Finding) -> None:
    """Draw a dot for each corpus and layer."""
    (table,) = finding.tables
    figure.set_size_inches(10, 4.5)
    draw_dots(figure.add_subplot(), table.columns, series_of(table), table.unit)
