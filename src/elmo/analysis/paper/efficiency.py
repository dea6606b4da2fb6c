"""How many training examples and epochs ELMo saves (Peters et al. 2018, sec. 5.4 and Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elmo.analysis.paper.finding import Finding, Table
from elmo.analysis.paper.panels import lines_of
from elmo.analysis.paper.published import BEST_EPOCH, EPOCHS, PASSED_IN
from elmo.analysis.paper.runs import Outcome, TaskRuns, score_rows
from elmo.analysis.pictures import draw_lines

SHARES = (0.001, 0.01, 0.1, 1.0)
"""Shares of the training set, as in the paper."""

WITH, WITHOUT = "with ELMo", "baseline"


def analyze_efficiency(tasks: Sequence[TaskRuns], model: str, shares: Sequence[float] = SHARES) -> Finding:
    """Train each task on each share with and without ELMo, and compare the epochs on the last share.

    Source: Peters et al. 2018, section 5.4 and Figure 1.
    """
    tables: list[Table] = []
    epochs: dict[str, dict[str, float | str]] = {}
    seconds: dict[str, float] = {}
    for task in tasks:
        found = {
            WITH: {share: task.with_elmo(share=share) for share in shares},
            WITHOUT: {share: task.baseline(share) for share in shares},
        }
        tables.append(_table(task, found))
        epochs[task.name] = _epochs(found[WITHOUT][shares[-1]], found[WITH][shares[-1]])
        seconds |= {
            f"{task.name}, {name}, {share:g}": outcome.seconds
            for name, outcomes in found.items()
            for share, outcome in outcomes.items()
        }
    unit = "epochs to the baseline's best score, first seed"
    tables.append(Table("Epochs (sec. 5.4)", unit, [BEST_EPOCH, PASSED_IN], epochs, EPOCHS, digits=0))
    return Finding("efficiency", "Sample efficiency (Figure 1)", model, tasks[0].quick, tables, seconds)


def _table(task: TaskRuns, found: dict[str, dict[float, Outcome]]) -> Table:
    columns = {share: f"{100 * share:g} %, {task.num_examples(share):,}" for share in found[WITH]}
    rows = {name: {columns[share]: outcome for share, outcome in cells.items()} for name, cells in found.items()}
    means, spread = score_rows(rows)
    return Table(task.name, f"dev {task.metric} (%)", [*columns.values()], means, spread=spread)


def _epochs(baseline: Outcome, elmo: Outcome) -> dict[str, float | str]:
    """Return the epoch in which the first seed's baseline is best, and that in which ELMo passes it (or "never")."""
    column = f"dev_{baseline.metric}"
    scores = [[row[column] for row in outcome.curves()[0]] for outcome in (baseline, elmo)]
    best = max(scores[0])
    passed = [epoch for epoch, score in enumerate(scores[1], 1) if score > best]
    return {BEST_EPOCH: float(scores[0].index(best) + 1), PASSED_IN: float(passed[0]) if passed else "never"}


def draw(figure: Any, finding: Finding) -> None:
    """Draw a panel for each task."""
    tables = finding.tables[:-1]
    figure.set_size_inches(max(6.0, 4.5 * len(tables)), 4)
    for place, table in enumerate(tables, 1):
        axes = figure.add_subplot(1, len(tables), place)
        draw_lines(axes, table.columns, lines_of(table), table.unit)
        axes.set_title(table.title)
        axes.set_xlabel("share of the training set, examples")
