"""The one look of all pictures and of the page of `elmo explore`: colors, marks and sizes.

The colors are those of Okabe and Ito, which color-blind people can tell apart. Printed in gray, neighbors in this order
are still different, and each color has a mark of its own.
"""

from __future__ import annotations

from typing import NamedTuple

INK = "#1b1f24"
"""The color of text, and of what is compared with: the paper's figures, the word that was asked for."""

SOFT = "#5c6670"
"""The color of what is less important: axes, notes."""

FAINT = "#d9dee3"
"""The color of lines that guide the eye, and of borders."""

REST = "#999999"
"""The color of what has no color of its own."""

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
ACCENT, WARNING = COLORS[0], COLORS[4]


class Mark(NamedTuple):
    """A shape, as the name of a marker of matplotlib and as the path of an SVG about 11 units wide around (0, 0)."""

    marker: str
    path: str


MARKS = (
    Mark("o", "M-5.5,0A5.5,5.5 0 1 1 5.5,0A5.5,5.5 0 1 1 -5.5,0Z"),
    Mark("s", "M-5,-5H5V5H-5Z"),
    Mark("^", "M0,-6L6,5H-6Z"),
    Mark("D", "M0,-6L6,0L0,6L-6,0Z"),
    Mark("P", "M-6,-2H-2V-6H2V-2H6V2H2V6H-2V2H-6Z"),
    Mark("v", "M0,6L6,-5H-6Z"),
    Mark("X", "M0,-3L3,-6L6,-3L3,0L6,3L3,6L0,3L-3,6L-6,3L-3,0L-6,-3L-3,-6Z"),
)
"""A mark for each color."""

MARKERS = tuple(mark.marker for mark in MARKS)

STAR = Mark("*", "M0,-10L3,-3L10,-3L4.5,1.5L6.5,9L0,4.5L-6.5,9L-4.5,1.5L-10,-3L-3,-3Z")
"""The mark of the one word that everything else is compared with."""

TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 12, 10, 8
"""Points of titles; of labels of axes; of ticks, legends and values."""

FONTS = ("DejaVu Sans", "sans-serif")
"""The fonts of pictures and of the page. The first one comes with matplotlib."""

PERIODS = ("viridis", 0.0, 0.9)
"""The color map of what has an order in time, from dark to bright, which is still seen in gray; and which part of it
is used."""
