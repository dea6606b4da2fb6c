"""Pictures share one look, don't join points of categories with lines, and have room for all values."""

from __future__ import annotations

from itertools import pairwise

import pytest

from elmo.analysis import style
from elmo.analysis.pictures import Series, draw_curves, draw_dots, draw_ratios, new_figure

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'elmo-torch[analysis]'")

PLACES = ["baseline", "last only", "all, λ=1"]
ROWS = [
    Series("NER", {"baseline": 0.5, "last only": 12.0, "all, λ=1": 13.0}, {"baseline": 0.4, "last only": 2.0}),
    Series("SST", {"baseline": 0.1, "all, λ=1": 14.5}, is_published=True),
]


def lightness(color: str) -> float:
    """Return CIE L* of a color, from 0 (black) to 100 (white), which is what remains of the color in gray."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def test_colors_differ_in_gray_from_the_next_and_have_marks_of_their_own() -> None:
    shades = [lightness(color) for color in style.COLORS]
    assert all(abs(one - other) > 3 for one, other in pairwise(shades))
    assert min(abs(shades[one] - shades[other]) for one, other in ((0, 1), (0, 2), (1, 2))) > 10
    assert len(style.MARKS) == len(style.COLORS) == len(set(style.MARKERS))
    assert all(mark.path.startswith("M") and mark.path.endswith("Z") for mark in (*style.MARKS, style.STAR))


def test_nothing_joins_dots_of_categories() -> None:
    axes = new_figure().add_subplot()
    draw_dots(axes, PLACES, ROWS, "F1 (%)")
    drawn = [container.lines[0] for container in axes.containers]
    assert [line.get_linestyle() for line in drawn] == ["None", "None"]
    assert [line.get_markerfacecolor() for line in drawn] == [style.COLORS[0], "white"]
    first, second = drawn[0].get_xdata().tolist(), drawn[1].get_xdata().tolist()
    assert first == pytest.approx([-0.2, 1.0, 1.8]), "a place is shared by the series that have a value there"
    assert second == pytest.approx([0.2, 2.2])
    assert [text.get_text() for text in axes.texts] == ["0.5", "12.0", "13.0", "0.1", "14.5"]
    assert axes.get_ylim()[0] == 0


def test_curves_have_their_deviations_shaded() -> None:
    axes = new_figure().add_subplot()
    draw_curves(axes, PLACES, ROWS, "F1 (%)")
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--"]
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).y1 == pytest.approx(14.0)
    assert axes.get_ylim()[0] == 0
    assert [label.get_text() for label in axes.get_xticklabels()] == ["baseline", "last only", "all,\nλ=1"]


def test_values_below_zero_are_shown() -> None:
    axes = new_figure().add_subplot()
    draw_curves(axes, ["1900s", "2000s"], [Series("excess", {"1900s": 0.0, "2000s": -0.02})], "distance", 3)
    assert axes.get_ylim()[0] < -0.02


def test_ratios_have_room_although_the_axis_ended_at_zero() -> None:
    axes = new_figure().add_subplot()
    draw_curves(axes, PLACES, ROWS, "perplexity", with_values=False)
    draw_ratios(axes)
    low, high = axes.get_ylim()
    assert 0 < low < 0.1
    assert 14.5 < high < 100
