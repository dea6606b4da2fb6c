"""A small model that embeds, and writers that commit nothing before the end."""

from __future__ import annotations

import math

import pytest

from elmo import formats
from elmo.embed import Embedder, writers
from make_bilm_hdf5 import make


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    return Embedder(formats.load(make(tmp_path_factory.mktemp("model"))[0]))


@pytest.fixture
def never_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit nothing before the end, even if a busy machine takes more than ten seconds."""
    monkeypatch.setattr(writers, "COMMIT_SECONDS", math.inf)
