"""The weights that tasks learn for the layers (Peters et al. 2018, sec. 5.5 and Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elmo.analysis.paper.finding import Finding, Table
from elmo.analysis.paper.panels import lines_of
from elmo.analysis.paper.runs import TaskRuns
from elmo.analysis.pictures import draw_shares
from elmo.errors import ElmoError
from elmo.formats.files import read_tensors
from elmo.tasks.checkpoint import WEIGHTS

GAMMA = "γ"


def analyze_weights(tasks: Sequence[TaskRuns], model: str) -> Finding:
    """Train each task with its recipe, and read the weights of the scalar mix at each place of ELMo.

    With several seeds, the weights are means.

    Raises:
        ElmoError: If a recipe uses only the top layer.

    Source: Peters et al. 2018, section 5.5 and Figure 2.
    """
    if top := next((task.name for task in tasks if task.recipe.elmo.layers == "top"), None):
        raise ElmoError(f"{top}: elmo.layers: top has no weights to analyze; set it to all")
    here: dict[str, dict[str, float]] = {}
    seconds: dict[str, float] = {}
    for task in tasks:
        outcome = task.with_elmo()
        found = [read_mixes(folder) for folder in outcome.folders]
        for place in found[0]:
            values = {name: sum(mixes[place][name] for mixes in found) / len(found) for name in found[0][place]}
            here[f"{task.name}, {place}"] = values
        seconds[task.name] = outcome.seconds
    columns = list(next(iter(here.values())))
    title = "Learned layer weights (Figure 2)"
    table = Table(title, "weights after the softmax, and scale", columns, here, digits=2)
    return Finding("weights", title, model, tasks[0].quick, [table], seconds)


def read_mixes(folder: Path) -> dict[str, dict[str, float]]:
    """Read the weight of each layer after the softmax, and γ, at each place of ELMo in the model of a run."""
    tensors, _ = read_tensors(folder / WEIGHTS)
    start, end = "elmo.mixes.", ".scores"
    places = [name[len(start) : -len(end)] for name in tensors if name.startswith(start) and name.endswith(end)]
    return {
        place: {
            **{
                f"layer {layer}": weight
                for layer, weight in enumerate(torch.softmax(tensors[f"{start}{place}{end}"], 0).tolist())
            },
            GAMMA: tensors[f"{start}{place}.gamma"].item(),
        }
        for place in sorted(places)
    }


def draw(figure: Any, finding: Finding) -> None:
    """Draw a bar for each task and place."""
    lines = lines_of(finding.tables[0])
    figure.set_size_inches(7, 1.4 + 0.5 * len(lines))
    rows = {line.label: {name: value for name, value in line.values.items() if name != GAMMA} for line in lines}
    draw_shares(figure.add_subplot(), rows, "share of each layer (lines: below 1/3, dots: above 2/3)")
