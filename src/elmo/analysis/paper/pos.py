"""Parts of speech from single layers, on any corpora (Peters et al. 2018, sec. 5.3 and Table 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from elmo.analysis.paper.finding import Finding, Table
from elmo.analysis.paper.panels import lines_of
from elmo.analysis.paper.parts import once
from elmo.analysis.paper.published import SPECIAL, TAGS
from elmo.analysis.pictures import draw_lines
from elmo.analysis.pos import most_frequent_tag, probe_pos
from elmo.analysis.tagged import Tagged
from elmo.embed.embedder import Embedder
from elmo.embed.layers import layer_name
from elmo.errors import ElmoError
from elmo.tasks.run_folder import checksum_of_examples

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
            f"the training text holds {len(train)} tagged sentences; it takes two, one of them for the dev set"
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
        of: dict[str, object] = {
            "model": embedder.fingerprint,
            "sets": [checksum_of_examples(part) for part in parts],
        }
        here[name] = {FREQUENT: 100 * most_frequent_tag(parts[0], parts[2])}
        for layer in range(embedder.num_layers):
            path = folder / "parts" / f"pos-{name}-{layer}.json"
            part = once(path, of, partial(probe_pos, embedder, *parts, layer))
            here[name][layer_name(layer)] = 100 * part.value
            seconds[f"{name}, {layer_name(layer)}"] = part.seconds
    columns = [FREQUENT, *map(layer_name, range(embedder.num_layers)), SPECIAL]
    title = "Parts of speech (Table 6)"
    return Finding(
        "pos", title, model, quick, [Table(title, "test accuracy (%)", columns, here, TAGS, digits=2)], seconds
    )


def draw(figure: Any, finding: Finding) -> None:
    """Draw a line over the layers for each corpus."""
    (table,) = finding.tables
    figure.set_size_inches(8, 4.5)
    draw_lines(figure.add_subplot(), table.columns, lines_of(table), table.unit)
