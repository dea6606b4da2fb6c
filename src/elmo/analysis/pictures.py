"""Plots with matplotlib, which is imported when the first one is drawn: colors, markers, and common kinds of plots.

The colors are those of Okabe and Ito, which color-blind people can tell apart; each also has its own marker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from elmo.errors import ElmoError
from elmo.extras import import_extra

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PUBLISHED = ("#000000", "#767676")
"""Colors of the lines that show the paper's figures."""
BEHIND_TEXT = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}
DPI = 150


class Line(NamedTuple):
    """Values at named places of an axis, with optional standard deviations. The paper's values are drawn hollow."""

    label: str
    values: Mapping[str, float]
    spread: Mapping[str, float] = {}
    is_published: bool = False


def require_picture(path: Path) -> None:
    """Refuse a path whose ending is not that of a picture."""
    if path.suffix not in (".png", ".svg"):
        raise ElmoError(f"{path}: pictures end in .png or .svg")


def new_figure() -> Any:
    """Return an empty figure, or raise an ElmoError if matplotlib is not installed."""
    return import_extra("matplotlib.figure", "a picture").Figure(layout="constrained")


def save_figure(figure: Any, path: Path, kind: str) -> None:
    """Write a figure as "png" or "svg". The same figure always gives the same file: it holds no date or random ids."""
    # By default matplotlib writes the date, and names the parts of an SVG with a random salt.
    matplotlib = import_extra("matplotlib", "a picture")
    with matplotlib.rc_context({"svg.hashsalt": "elmo"}):
        figure.savefig(path, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)


def draw_lines(
    axes: Any, places: Sequence[str], lines: Sequence[Line], unit: str, digits: int = 1, *, with_values: bool = True
) -> None:
    """Draw lines over `places`, with a gap where a line has no value.

    The highest value of each place is written above its point, and all others below theirs. A legend
    names the lines if there are several.

    Args:
        axes: Axes of matplotlib.
        places: The names of the places on the horizontal axis.
        lines: The lines.
        unit: The label of the vertical axis.
        digits: Digits after the decimal point.
        with_values: Whether values are written next to the points.
    """
    styles = {False: zip(cycle(COLOURS), cycle(MARKERS)), True: zip(cycle(PUBLISHED), cycle(MARKERS))}
    highest = {place: max(line.values.get(place, -math.inf) for line in lines) for place in places}
    for line in lines:
        colour, marker = next(styles[line.is_published])
        known = [(x, place) for x, place in enumerate(places) if place in line.values]
        axes.errorbar(
            range(len(places)),
            [line.values.get(place, math.nan) for place in places],
            yerr=[line.spread.get(place, 0.0) for place in places] if line.spread else None,
            color=colour,
            marker=marker,
            linestyle="--" if line.is_published else "-",
            markerfacecolor="white" if line.is_published else colour,
            capsize=3,
            label=line.label,
        )
        for x, place in known if with_values else ():
            text, offset = f"{line.values[place]:,.{digits}f}", (0, 9 if line.values[place] == highest[place] else -17)
            where = {"xytext": offset, "textcoords": "offset points", "ha": "center", "fontsize": 8}
            axes.annotate(text, (x, line.values[place]), bbox=BEHIND_TEXT, **where)
    axes.set_xticks(range(len(places)), [place.replace(", ", ",\n") for place in places], fontsize="small")
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.margins(y=0.25 if with_values else 0.08)  # room for the values
    axes.set_ylabel(unit)
    axes.grid(axis="y", alpha=0.3)
    if len(lines) > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")


def draw_ratios(axes: Any) -> None:
    """Make the vertical axis logarithmic, with plain numbers as labels."""
    ticker = import_extra("matplotlib.ticker", "a picture")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def draw_shares(axes: Any, rows: Mapping[str, Mapping[str, float]], unit: str) -> None:
    """Draw a stacked bar for each row, whose parts add up to 1, and write the share into each part.

    As in Figure 2 of the paper, parts below 1/3 are hatched with lines and those above 2/3 with dots.
    """
    names = list(rows)
    starts = dict.fromkeys(names, 0.0)
    for colour, part in zip(COLOURS, next(iter(rows.values())), strict=False):
        for y, name in enumerate(names):
            share = rows[name][part]
            hatch = "--" if share < 1 / 3 else ".." if share > 2 / 3 else None
            label = part if y == 0 else None
            axes.barh(y, share, left=starts[name], color=colour, alpha=0.6, hatch=hatch, edgecolor="white", label=label)
            where = {"ha": "center", "va": "center", "fontsize": 9}
            axes.text(starts[name] + share / 2, y, f"{share:.2f}", bbox=BEHIND_TEXT, **where)
            starts[name] += share
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel(unit)
    axes.figure.legend(loc="outside upper center", ncols=len(rows[names[0]]), frameon=False)
