"""Which layers are best (Peters et al. 2018, sec. 5.1, Table 2 and appendix A.2).

The choices are the last layer only, with and without the scale γ, and all layers, with strong and weak regularization
towards their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmo.analysis.paper.finding import Finding, Table
from elmo.analysis.paper.panels import draw_panels
from elmo.analysis.paper.published import AVERAGE, BASELINE, LAYERS, MIX, TOP, TOP_UNSCALED
from elmo.analysis.paper.runs import Outcome, Settings, TaskRuns, score_rows, score_unit

SETTINGS: dict[str, Settings] = {
    TOP: {"layers": "top"},
    TOP_UNSCALED: {"layers": "top", "gamma": False},
    AVERAGE: {"layers": "all", "penalty": 1.0},
    MIX: {"layers": "all", "penalty": 0.001},
}


def analyze_layers(tasks: Sequence[TaskRuns], model: str) -> Finding:
    """Train each task without ELMo and with each choice of layers.

    Source: Peters et al. 2018, section 5.1 and Table 2.
    """
    found = {
        task.name: {BASELINE: task.baseline(), **{name: task.with_elmo(SETTINGS[name]) for name in SETTINGS}}
        for task in tasks
    }
    return score_finding("layers", "Which layers (Table 2)", model, tasks, found, LAYERS)


def score_finding(
    name: str,
    title: str,
    model: str,
    tasks: Sequence[TaskRuns],
    found: Mapping[str, Mapping[str, Outcome]],
    paper: Mapping[str, Mapping[str, float]],
) -> Finding:
    """Return a finding with one table: the dev score of each task (row) and setting (column)."""
    means, spread = score_rows(found)
    table = Table(title, score_unit(tasks), list(next(iter(found.values()))), means, paper, spread)
    seconds = {
        f"{row}, {column}": outcome.seconds for row, outcomes in found.items() for column, outcome in outcomes.items()
    }
    return Finding(name, title, model, tasks[0].quick, [table], seconds)


def draw(figure: Any, finding: Finding) -> None:
    """Draw a panel for each task, those of the paper above ours."""
    draw_panels(figure, finding.tables[0])
