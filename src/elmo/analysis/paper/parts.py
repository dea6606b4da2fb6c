"""Parts of an analysis that are done once: what was found before is read, not found again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from elmo.formats.files import read_json, write_all, write_json


class FindingPart(NamedTuple):
    """What was found, plain values, and how long that took, since it was last started."""

    value: Any
    seconds: float


def once(path: Path, of: dict[str, object], compute: Callable[[], object]) -> FindingPart:
    """The value kept in `path` if it is that `of` the same things, else the one that `compute` gives, kept there.

    `of` holds plain values that decide on the result: a model's fingerprint, checksums of texts, settings.
    """
    if path.exists():
        kept = cast("dict[str, Any]", read_json(path))
        if kept["of"] == of:
            return FindingPart(kept["value"], kept["seconds"])
    path.parent.mkdir(parents=True, exist_ok=True)  # now, so that an impossible one costs no time
    started = time.monotonic()
    value = compute()
    seconds = time.monotonic() - started
    write_all({path: lambda place: write_json(place, {"of": of, "seconds": seconds, "value": value})})
    return FindingPart(value, seconds)
