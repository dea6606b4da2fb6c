"""Where to include ELMo: at the input of the lowest RNN, its output, or both (Peters et al. 2018, Table 3)."""

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
    """Train each task with ELMo at each place.

    Source: Peters et al. 2018, section 5.2 and Table 3.
    """
    found = {task.name: {name: task.with_elmo(SETTINGS[name]) for name in SETTINGS} for task in tasks}
    return score_finding("placement", "Where to include ELMo (Table 3)", model, tasks, found, PLACES)
