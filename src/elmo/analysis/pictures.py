"""Plots with matplotlib, which is imported when the first one is drawn: common kinds, in the look of `style`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from elmo.analysis.style import COLORS, FAINT, FONTS, INK, MARKERS, SMALL_SIZE, SOFT, TEXT_SIZE, TITLE_SIZE
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.targets import require_file_target

PUBLISHED = (INK, SOFT, "#8a939b")
"""Colors of the paper's figures, whose marks are hollow."""

BEHIND_TEXT = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}
DPI = 150
LINE_LENGTH = 14
"""Most characters in a line of the name of a place."""
DODGE = 0.8
"""The share of a place's width over which several dots are spread."""


class Series(NamedTuple):
    """Values at named places of an axis, with optional standard deviations. The paper's values are drawn hollow."""

    label: str
    values: Mapping[str, float]
    spread: Mapping[str, float] = {}
    is_published: bool = False


def require_picture(path: Path) -> None:
    """Refuse a path whose ending is not that of a picture, and one that no file can be written to."""
    if path.suffix not in (".png", ".svg"):
        raise ElmoError(f"{path}: pictures end in .png or .svg")
    require_file_target(path)


def new_figure() -> Any:
    """Return an empty figure, or raise an ElmoError if matplotlib is not installed."""
    return import_extra("matplotlib.figure", "a picture").Figure(layout="constrained")


def save_figure(figure: Any, path: Path, kind: str) -> None:
    """Write a figure as "png" or "svg". The same figure always gives the same file: it holds no date or random ids."""
    # By default matplotlib writes the date, and names the parts of an SVG with a random salt.
    matplotlib = import_extra("matplotlib", "a picture")
    with matplotlib.rc_context({"svg.hashsalt": "elmo", "font.sans-serif": FONTS}):
        figure.savefig(path, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)


def literal(text: str) -> str:
    """Return text that matplotlib draws as it is.

    Between dollar signs it would read a formula. Bytes of a file's name that are not UTF-8, which it can't draw, are
    written as escapes.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("$", r"\$")


def draw_dots(axes: Any, places: Sequence[str], rows: Sequence[Series], unit: str, *, with_values: bool = True) -> None:
    """Draw values of categories, such as settings: a dot for each, with its standard deviation as a bar.

    Several series stand next to each other at each place, and a legend names them. Nothing joins the dots, since there
    is nothing between two categories.

    Args:
        axes: Axes of matplotlib.
        places: The categories on the horizontal axis.
        rows: The values.
        unit: The label of the vertical axis.
        with_values: Whether values are written above the dots, with one digit after the decimal point.
    """
    there = {place: [number for number, row in enumerate(rows) if place in row.values] for place in places}
    for number, (row, look) in enumerate(_looks(rows)):
        known = [
            (x + DODGE * ((there[place].index(number) + 0.5) / len(there[place]) - 0.5), place)
            for x, place in enumerate(places)
            if place in row.values
        ]
        axes.errorbar(
            [x for x, _ in known],
            [row.values[place] for _, place in known],
            yerr=[row.spread.get(place, 0.0) for _, place in known] if row.spread else None,
            linestyle="none",
            capsize=2,
            label=row.label,
            **look,
        )
        for x, place in known if with_values else ():
            top = row.values[place] + row.spread.get(place, 0.0)
            where = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": SMALL_SIZE}
            axes.annotate(f"{row.values[place]:,.1f}", (x, top), color=INK, **where)
    _set_axes(axes, places, rows, unit, with_values)
    if len(rows) > 1:  # so that it is plain which dots stand at which place
        for x in range(1, len(places)):
            axes.axvline(x - 0.5, color=FAINT, linewidth=0.8, zorder=0)


def draw_curves(
    axes: Any, places: Sequence[str], rows: Sequence[Series], unit: str, digits: int = 1, *, with_values: bool = True
) -> None:
    """Draw values of what has an order, such as shares of a text or periods: a line, its standard deviation shaded.

    A line has a gap where it has no value. The arguments are those of `draw_dots`, and `digits`, the number of decimals
    in written values. The highest value of each place is written above its point, and all others below theirs, or
    next to it where there is no room below.
    """
    for row, look in _looks(rows):
        values = np.array([row.values.get(place, math.nan) for place in places])
        axes.plot(range(len(places)), values, linestyle="--" if row.is_published else "-", label=row.label, **look)
        if row.spread:
            spread = np.array([row.spread.get(place, 0.0) for place in places])
            low, high = values - spread, values + spread
            axes.fill_between(range(len(places)), low, high, color=look["color"], alpha=0.2, linewidth=0)
    _set_axes(axes, places, rows, unit, with_values)
    bottom, top = axes.get_ylim()
    for x, place in enumerate(places) if with_values else ():
        values = [row.values[place] for row in rows if place in row.values]
        for value in values:
            if value == max(values):
                offset, side = (0, 8), "center"  # the number above its mark
            elif value - bottom < (top - bottom) / 15:
                offset, side = (8, 2), "left"  # to the right of a mark at the bottom
            else:
                offset, side = (0, -15), "center"  # below
            where = {"xytext": offset, "textcoords": "offset points", "ha": side, "fontsize": SMALL_SIZE}
            axes.annotate(f"{value:,.{digits}f}", (x, value), color=INK, bbox=BEHIND_TEXT, **where)


def _looks(rows: Sequence[Series]) -> list[tuple[Series, dict[str, Any]]]:
    """Return each series with its color and mark; the paper's have grays and hollow marks."""
    styles = {False: zip(cycle(COLORS), cycle(MARKERS)), True: zip(cycle(PUBLISHED), cycle(MARKERS))}
    found: list[tuple[Series, dict[str, Any]]] = []
    for row in rows:
        color, marker = next(styles[row.is_published])
        face = "white" if row.is_published else color
        found.append((row, {"color": color, "marker": marker, "markersize": 5, "markerfacecolor": face}))
    return found


def _set_axes(axes: Any, places: Sequence[str], rows: Sequence[Series], unit: str, with_values: bool) -> None:
    """Name the places and the unit, and all series if there are several; and choose the range of the vertical axis.

    It leaves room for written values, and ends at zero rather than below it, where no value is below.
    """
    axes.set_xticks(range(len(places)), [_in_lines(place) for place in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylabel(unit)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    if len(rows) > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=SMALL_SIZE)
    dress(axes)
    axes.margins(y=0.2 if with_values else 0.08)
    if axes.get_ylim()[0] < 0 <= min((value for row in rows for value in row.values.values()), default=0.0):
        axes.set_ylim(bottom=0)


def _in_lines(name: str) -> str:
    """Return the name of a place in short lines, one for each part between commas or more."""
    parts = name.replace(", ", ",\n").splitlines()
    return "\n".join(line for part in parts for line in wrap(part, LINE_LENGTH))


def dress(axes: Any) -> None:
    """Give axes the look of all pictures: no frame above and to the right, and text in the common sizes."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(SOFT)
    axes.tick_params(colors=SOFT, labelcolor=INK, labelsize=SMALL_SIZE)
    for text, size in ((axes.title, TITLE_SIZE), (axes.xaxis.label, TEXT_SIZE), (axes.yaxis.label, TEXT_SIZE)):
        text.set(fontsize=size, color=INK)


def draw_ratios(axes: Any) -> None:
    """Make the vertical axis logarithmic, with plain numbers as labels."""
    ticker = import_extra("matplotlib.ticker", "a picture")
    axes.set_yscale("log")
    axes.autoscale(axis="y")  # it may have ended at zero
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def draw_shares(axes: Any, rows: Mapping[str, Mapping[str, float]], unit: str) -> None:
    """Draw a stacked bar for each row, whose parts add up to 1, and write the share into each part.

    As in Figure 2 of the paper, parts below 1/3 are hatched with lines and those above 2/3 with dots.
    """
    names = list(rows)
    starts = dict.fromkeys(names, 0.0)
    for color, part in zip(cycle(COLORS), next(iter(rows.values()))):
        for y, name in enumerate(names):
            share = rows[name][part]
            hatch = "--" if share < 1 / 3 else ".." if share > 2 / 3 else None
            label = part if y == 0 else None
            axes.barh(y, share, left=starts[name], color=color, alpha=0.6, hatch=hatch, edgecolor="white", label=label)
            where = {"ha": "center", "va": "center", "fontsize": SMALL_SIZE, "color": INK}
            axes.text(starts[name] + share / 2, y, f"{share:.2f}", bbox=BEHIND_TEXT, **where)
            starts[name] += share
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel(unit)
    dress(axes)
    legend = {"loc": "outside upper center", "frameon": False, "fontsize": SMALL_SIZE}
    axes.figure.legend(ncols=len(rows[names[0]]), **legend)


def label_components(axes: Any, shares: Sequence[float]) -> None:
    """Label both axes of a picture of projected vectors with the share of the variance that each explains."""
    for write_label, number, share in zip((axes.set_xlabel, axes.set_ylabel), ("First", "Second"), shares, strict=True):
        write_label(f"{number} principal component ({share:.0%} of the variance)")
