"""Parts of an analysis that are computed once and then read from disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from elmo.formats.files import read_json, write_all, write_json


class FindingPart(NamedTuple):
    """A result as plain values, and the seconds it took (if it was interrupted, since its last start)."""

    value: Any
    seconds: float


def once(path: Path, of: dict[str, object], compute: Callable[[], object]) -> FindingPart:
    """Return the result stored in `path`, or compute and store it there.

    A stored result is used only if it was stored with an equal `of`, which holds the plain values that determine the
    result: the fingerprint of a model, checksums of texts, settings.
    """
    if path.exists():
        kept = cast("dict[str, Any]", read_json(path))
        if kept["of"] == of:
            return FindingPart(kept["value"], kept["seconds"])
    path.parent.mkdir(parents=True, exist_ok=True)  # first, so that a folder that cannot be made fails at once
    started = time.monotonic()
    value = compute()
    seconds = time.monotonic() - started
    write_all({path: lambda place: write_json(place, {"of": of, "seconds": seconds, "value": value})})
    return FindingPart(value, seconds)
