"""What an analysis found: plain data, the parts kept on disk, the files JSON, Markdown, PNG and SVG, and common plots.

Every analysis of this folder puts its figures next to the paper's in `Table`s of one `Finding`, and has a function that
draws the finding. `write_finding` writes all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from elmo.analysis.pictures import Series, draw_dots, new_figure, save_figure
from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json, write_text
from elmo.targets import require_folder

Cell = float | str
Rows = Mapping[str, Mapping[str, Cell]]

PAPERS_DIGITS = 1
"""Digits after the decimal point of the figures in the paper."""

ENDINGS = (".json", ".md", ".png", ".svg")

PANELS_IN_A_ROW = 3
"""With more panels next to each other, their text would be too small on a page."""


@dataclass(frozen=True)
class Table:
    """Figures by row and column: ours (`here`), the paper's, and the standard deviation of ours over seeds (`spread`).

    `unit` names the figures, as on an axis. Cells that a row does not have stay empty.
    """

    title: str
    unit: str
    columns: list[str]
    here: Rows
    paper: Rows = field(default_factory=dict[str, dict[str, Cell]])
    spread: Rows = field(default_factory=dict[str, dict[str, Cell]])
    digits: int = 1

    @property
    def rows(self) -> list[str]:
        """The names of all rows, those of the paper first."""
        return [*dict.fromkeys([*self.paper, *self.here])]


@dataclass(frozen=True)
class Finding:
    """The findings of one analysis of a model. `quick` findings are from too little data to mean anything.

    `seconds` is the computing time of each part, even if an earlier run computed it. For fine-tuning it is only the
    time since the last start.
    """

    name: str
    title: str
    model: str
    quick: bool
    tables: list[Table]
    seconds: dict[str, float]

    def as_json(self) -> dict[str, object]:
        """Return plain values, from which `read_finding` restores the finding."""
        return asdict(self)


class FindingPart(NamedTuple):
    """A result as plain values, and the seconds it took (if it was interrupted, since its last start)."""

    value: Any
    seconds: float


def once(path: Path, inputs: dict[str, object], compute: Callable[[], object]) -> FindingPart:
    """Return the result that is stored in a file, or compute it and store it there.

    Args:
        path: The file.
        inputs: Plain values that determine the result: the fingerprint of a model, checksums of texts, settings. What
            was stored with other values is computed again.
        compute: Computes the result, as plain values.
    """
    if path.exists():
        kept = cast("dict[str, Any]", read_json(path))
        try:
            if kept["of"] == inputs:
                return FindingPart(kept["value"], kept["seconds"])
        except (KeyError, TypeError):
            raise ElmoError(f"{path}: holds no result of elmo analyze; remove it") from None
    require_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)  # first, so that a folder that cannot be made fails at once
    started = time.perf_counter()
    value = compute()
    seconds = time.perf_counter() - started
    write_all({path: lambda place: write_json(place, {"of": inputs, "seconds": seconds, "value": value})})
    return FindingPart(value, seconds)


def read_finding(folder: Path, name: str) -> Finding:
    """Read the finding with this name from a folder of results.

    Raises:
        ElmoError: If the file is not such a finding.
    """
    path = folder / f"{name}.json"
    values = cast("dict[str, Any]", read_json(path))
    try:
        tables = [Table(**table) for table in values.pop("tables")]
        return Finding(tables=tables, **values)
    except (AttributeError, KeyError, TypeError):
        raise ElmoError(f"{path}: holds no finding of elmo analyze; run elmo analyze {name} again") from None


def join_findings(one: Finding, other: Finding) -> Finding:
    """Join two findings of one analysis and model for different tasks. Of equal rows, that of `other` is kept.

    Raises:
        ElmoError: If the findings are of different analyses or models, or only one of them is quick.
    """
    for what, first, second in (("name", one.name, other.name), ("model", one.model, other.model)):
        if first != second:
            raise ElmoError(f"{other.name}: its {what} is {second}, but that of the finding to join it to is {first}")
    if one.quick != other.quick:
        raise ElmoError(f"{other.name}: quick results can't be joined to full ones")
    # Tables that only one of them has, such as a table for each task, go before those of all tasks: readers of findings
    # (`draw_efficiency`, the page of analyses) expect the common table last.
    theirs = {table.title: table for table in other.tables}
    own = [table for table in one.tables if table.title not in theirs]
    both = [_join_tables(table, theirs.pop(table.title)) for table in one.tables if table.title in theirs]
    return replace(one, tables=[*own, *theirs.values(), *both], seconds=one.seconds | other.seconds)


def _join_tables(one: Table, other: Table) -> Table:
    """Join the rows of two tables, and their units."""
    # A unit is "F1 (%)" or "dev score (%): NER F1, SRL F1"; what stands after the colon is joined like the rows.
    kind, _, first = one.unit.rpartition(": ")
    units = dict.fromkeys([*first.split(", "), *other.unit.rpartition(": ")[2].split(", ")])
    here = {**one.here, **other.here}
    # A column may have belonged only to rows that were replaced, as the number of examples in a share does.
    kept = {column for rows in (here, one.paper) for cells in rows.values() for column in cells}
    # Columns may have an order, such as that of shares, and a new one need not be the last.
    columns = other.columns if {*one.columns} <= {*other.columns} else [*one.columns, *other.columns]
    return replace(
        one,
        unit=(f"{kind}: " if kind else "") + ", ".join(units),
        columns=[name for name in dict.fromkeys(columns) if name in kept],
        here=here,
        # Not simply both: a row that was replaced by figures of one seed has no deviation any more.
        spread={row: cells for row, cells in one.spread.items() if row not in other.here} | dict(other.spread),
    )


def write_finding(folder: Path, finding: Finding, draw: Callable[[Any, Finding], None]) -> list[Path]:
    """Write NAME.json, .md, .png and .svg into the folder, all or none, and return their paths.

    `draw` draws the finding on an empty figure.
    """
    figure = new_figure()
    draw(figure, finding)  # before the folder is made, so that a failure leaves nothing
    paths = [folder / f"{finding.name}{ending}" for ending in ENDINGS]
    writers: tuple[Callable[[Path], object], ...] = (
        lambda path: write_json(path, finding.as_json()),
        lambda path: write_text(path, as_markdown(finding)),
        lambda path: save_figure(figure, path, "png"),
        lambda path: save_figure(figure, path, "svg"),
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_all(dict(zip(paths, writers, strict=True)))
    return paths


def as_markdown(finding: Finding) -> str:
    """Return the finding as a page in Markdown."""
    minutes = sum(finding.seconds.values()) / 60
    facts = f"Model: {finding.model}. {minutes:.1f} minutes of computing."
    if finding.quick:
        facts += " A quick run, on little data: its figures mean nothing."
    tables = (f"## {table.title}\n\n{table_markdown(table)}" for table in finding.tables)
    return "\n\n".join([f"# {finding.title}", facts, *tables]) + "\n"


def table_markdown(table: Table) -> str:
    """Return a table in Markdown. In rows that the paper has too, its figures are in the line above ours."""
    head = f"| {_escape(table.unit)} | |{''.join(f' {_escape(column)} |' for column in table.columns)}"
    lines = [head, f"|{'---|' * (len(table.columns) + 2)}"]
    lines += [f"|{''.join(f' {_escape(cell)} |' for cell in row)}" for row in rows_as_text(table)]
    return "\n".join(lines)


def rows_as_text(table: Table) -> list[list[str]]:
    """Return the rows of a table as text: the row's name, whose figures they are, and a cell for each column."""
    found: list[list[str]] = []
    for row in table.rows:
        for source, rows, spread, digits in (
            ("paper", table.paper, {}, min(PAPERS_DIGITS, table.digits)),
            ("here", table.here, table.spread, table.digits),
        ):
            if row in rows:
                cells = (cell_text(rows[row].get(c), spread.get(row, {}).get(c), digits) for c in table.columns)
                found.append([row, source, *cells])
    return found


def cell_text(value: Cell | None, spread: Cell | None, digits: int) -> str:
    """Format a figure for a table, with its standard deviation if there is one."""
    if not isinstance(value, float | int):
        return "" if value is None else value
    text = f"{value:,.{digits}f}"
    return text if spread is None else f"{text} ± {spread:.{digits}f}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def series_of(table: Table) -> list[Series]:
    """Return a series for each row, those of the paper first."""
    published = [Series(f"{row}, paper", _numbers(cells), is_published=True) for row, cells in table.paper.items()]
    ours = [Series(row, _numbers(cells), _numbers(table.spread.get(row, {}))) for row, cells in table.here.items()]
    return published + ours


def draw_panels(figure: Any, table: Table) -> None:
    """Draw a panel for each row of the table, with the paper's figures above and ours below."""
    found = series_of(table)
    above, below = [each for each in found if each.is_published], [each for each in found if not each.is_published]
    width = min(max(len(above), len(below)), PANELS_IN_A_ROW)
    rows = [series[start : start + width] for series in (above, below) for start in range(0, len(series), width)]
    figure.set_size_inches(3.2 * max(width, 2) + 0.5, 2.8 * len(rows) + 0.4)
    for number, row in enumerate(rows):
        for place, each in enumerate(row, number * width + 1):
            axes = figure.add_subplot(len(rows), width, place)
            # Without the columns that this row has no figures for, such as settings that only some tasks had.
            draw_dots(axes, [name for name in table.columns if name in each.values], [each], axis_label(table))
            axes.set_title(each.label)


def axis_label(table: Table) -> str:
    """Return the unit of a table without its list of the metrics of each row."""
    return table.unit.partition(":")[0]


def _numbers(cells: Mapping[str, Cell]) -> dict[str, float]:
    return {name: value for name, value in cells.items() if not isinstance(value, str)}
