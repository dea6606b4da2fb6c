"""Progress on a terminal, always in one format. Where stderr is a file or a pipe, nothing is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

BAR = "{desc}: {percentage:3.0f}%|{bar:12}| {n_fmt} of {total_fmt}{unit}, {elapsed}<{remaining}{postfix}"
BAR_WITHOUT_TOTAL = "{desc}: {n_fmt}{unit}, {rate_fmt}, {elapsed}{postfix}"

LARGE = 100_000
"""Larger numbers are shown as 123k or 1.23M."""


def show_progress(
    what: str, unit: str, total: float | None, items: Iterable[Any] | None = None, *, initial: float = 0
) -> tqdm[Any]:
    """Return a progress bar, which disappears when it is closed: a command says at its end what it has done.

    Args:
        what: What is being done, as in "reading".
        unit: What is counted, in the plural: "sentences".
        total: The number of units, or None if it isn't known.
        items: What to iterate over. Without it, call `update`.
        initial: The number of units that an earlier run has done.

    Returns:
        tqdm's bar. It is an iterable if there are `items`, and a context manager.
    """
    from tqdm import tqdm  # here, as importing it takes a while

    return tqdm(
        items,
        what,
        total,
        initial=initial,
        unit=f" {unit}",
        unit_scale=total is None or total >= LARGE,
        bar_format=BAR_WITHOUT_TOTAL if total is None else BAR,
        smoothing=0.05,
        disable=None,
        leave=False,
    )
