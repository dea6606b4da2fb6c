"""The job of `make demo`: its text is on every machine, and all its steps run."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.fixture
def demo() -> ModuleType:
    spec = spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("has_topics", [True, False])
def test_there_is_text_with_and_without_the_help_topics(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, has_topics: bool
) -> None:
    """Some builds of Python leave `pydoc_data` out; then docstrings of the library have to do."""
    if not has_topics:
        monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    found = demo.paragraphs()
    assert sum(len(paragraph.split()) for paragraph in found) > 20_000
    assert len(found) == len(set(found))


@pytest.mark.slow
def test_all_steps_run(tmp_path: Path) -> None:
    """Three seconds of training instead of two minutes."""
    command = [sys.executable, DEMO, tmp_path / "demo", "--minutes", "0.05"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    verbs = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("$ elmo ")]
    assert verbs == ["prepare", "pretrain", "perplexity", "embed", "neighbors"]
    assert "held-out perplexity" in done.stdout
    assert (tmp_path / "demo" / "vectors.h5").exists()
