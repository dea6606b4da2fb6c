"""Files made to harm: each is refused with one sentence, runs nothing, writes nothing, and takes little memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from make_bilm_hdf5 import make


@pytest.fixture(autouse=True)
def _leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that whatever was unpacked is removed, and that nothing is written next to the model."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield
    assert list(temporary.iterdir()) == []
    assert not list(tmp_path.rglob("*evil*"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "model")[0]
