"""Plots of findings, with the rows of tables as lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmo.analysis.paper.finding import Cell, Table
from elmo.analysis.pictures import Line, draw_lines


def lines_of(table: Table) -> list[Line]:
    """Return a line for each row, those of the paper first."""
    published = [Line(f"{row}, paper", _numbers(cells), is_published=True) for row, cells in table.paper.items()]
    ours = [Line(row, _numbers(cells), _numbers(table.spread.get(row, {}))) for row, cells in table.here.items()]
    return published + ours


def draw_panels(figure: Any, table: Table) -> None:
    """Draw a panel for each row, with the paper's figures above and ours below."""
    lines = lines_of(table)
    above, below = [line for line in lines if line.is_published], [line for line in lines if not line.is_published]
    height, width = len([row for row in (above, below) if row]), max(len(above), len(below))
    figure.set_size_inches(3.2 * max(width, 2) + 0.5, 2.8 * height + 0.4)
    for start, row in enumerate(row for row in (above, below) if row):
        for place, line in enumerate(row):
            axes = figure.add_subplot(height, width, start * width + place + 1)
            draw_lines(axes, table.columns, [line], axis_label(table))
            axes.set_title(line.label)


def axis_label(table: Table) -> str:
    """Return the unit of a table without its list of the metrics of each row."""
    return table.unit.partition(":")[0]


def _numbers(cells: Mapping[str, Cell]) -> dict[str, float]:
    return {name: value for name, value in cells.items() if not isinstance(value, str)}
