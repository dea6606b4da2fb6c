"""Where ELMo goes in (Peters et al. 2018, sec. 5.2 and Table 3): at the lowest RNN's input, its output, or both."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.analysis.paper.finding import Finding
from elmo.analysis.paper.layers import draw, score_finding
from elmo.analysis.paper.published import BOTH, INPUT, OUTPUT, PLACES
from elmo.analysis.paper.runs import Settings, TaskRuns

__all__ = ["analyze_placement", "draw"]

SETTINGS: dict[str, Settings] = {
    INPUT: {"at": "input"},
    BOTH: {"at": "both"},
    OUTPUT: {"at": "output"},
}


def analyze_placement(tasks: Sequence[TaskRuns], model: str) -> Finding:
    """Train each task with ELMo at each place."""
    found = {task.name: {name: task.with_elmo(SETTINGS[name]) for name in SETTINGS} for task in tasks}
    return score_finding("placement", "Where to include ELMo (Table 3)", model, tasks, found, PLACES)
