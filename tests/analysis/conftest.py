"""These fixtures give the tests of several analyses a small model."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmo import formats
from elmo.embed import Embedder
from make_bilm_hdf5 import make


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("model"))[0]


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Embedder:
    return Embedder(formats.load(model_folder))
