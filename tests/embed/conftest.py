"""Writers that commit nothing before the end."""

from __future__ import annotations

import math

import pytest

from elmo.embed import writers


@pytest.fixture
def never_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit nothing before the end, even if a busy machine takes more than ten seconds."""
    monkeypatch.setattr(writers, "COMMIT_SECONDS", math.inf)
