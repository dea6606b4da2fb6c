"""A small model that embeds, and writers that commit nothing before the end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from elmo import formats
from elmo.embed import Embedder, writers


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Embedder:
    return Embedder(formats.load(model_folder))


@pytest.fixture
def never_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit nothing before the end, even if a busy machine takes more than ten seconds."""
    monkeypatch.setattr(writers, "COMMIT_SECONDS", math.inf)
