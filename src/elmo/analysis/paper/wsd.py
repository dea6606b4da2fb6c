"""Word senses by the nearest sense in SemCor, on each test set and on all (Peters et al. 2018, sec. 5.3, Table 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elmo.analysis.paper.finding import Finding, Table
from elmo.analysis.paper.panels import lines_of
from elmo.analysis.paper.parts import once
from elmo.analysis.paper.published import FOUR_SETS, SENSES, SPECIAL
from elmo.analysis.pictures import draw_lines
from elmo.analysis.wsd import NEAREST_USE, Score, evaluate_wsd
from elmo.analysis.wsd_data import Annotated, Target
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, layer_name
from elmo.tasks.run_folder import checksum_of_examples

PAPERS_SETS = ("senseval2", "senseval3", "semeval2013", "semeval2015")
"""The framework's sets without its development set, semeval2007, which the paper leaves out."""

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

    of: dict[str, object] = {
        "model": embedder.fingerprint,
        "semcor": checksum_of_examples(semcor),
        "tests": {name: checksum_of_examples(test) for name, test in tests.items()},
        "first": checksum_of_examples(sorted(first_senses.items())),
        "equally near": "first",
    }
    part = once(folder / "parts" / "wsd.json", of, evaluate)
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


def draw(figure: Any, finding: Finding) -> None:
    """Draw a panel for means of senses and one for single uses, with a line for each set."""
    figure.set_size_inches(15, 5)
    for place, table in enumerate(finding.tables, 1):
        axes = figure.add_subplot(1, 2, place)
        lines = sorted(lines_of(table), key=lambda line: not (line.is_published or line.label in (FOUR_SETS, ALL)))
        draw_lines(axes, table.columns, lines, table.unit, with_values=False)
        axes.set_title(table.title)
