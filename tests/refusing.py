"""The check that a source is refused with one sentence, and an object that must never be unpickled."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmo import formats
from elmo.errors import ElmoError


def assert_refused(source: Path, *parts: str) -> None:
    """Check that loading raises an `ElmoError` of one line that names the source at most once and holds `parts`."""
    with pytest.raises(ElmoError) as caught:
        formats.load(source)
    message = str(caught.value)
    assert "\n" not in message
    assert message.count(str(source)) <= 1  # one sentence, not one that quotes another
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"


class Evil:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))
