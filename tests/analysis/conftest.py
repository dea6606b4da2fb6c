"""This fixture gives the tests of several analyses a small model."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmo import formats
from elmo.embed import Embedder


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Embedder:
    return Embedder(formats.load(model_folder))
