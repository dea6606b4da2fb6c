"""What all tests share: markers that skip tests and say why, a small model, and a single thread."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from commands import run_main
from elmo import formats
from elmo.embed import Embedder
from levels import level
from make_bilm_hdf5 import make
from published import release

__all__ = ["level", "release", "run_main"]  # fixtures for all tests

SHARED = Path(__file__).resolve().parents[2] / "shared"

torch.set_num_threads(1)  # sizes are tiny; threads that wait for a busy core cost seconds
os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes that tests start need the same number, for the same rounding
# A busy machine makes examples slow, which says nothing about the code; examples depend only on the
# code that is imported and are never random, so that a failure is the fault of the change.
settings.register_profile(
    "house", max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("house"), max_examples=100)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests go to the servers that tests start, whatever the machine's settings say."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def ends_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that are opened for writing text end lines as on Windows, unless they say how."""
    opened = Path.open

    def end_lines(self: Path, mode: str = "r", *others: Any, newline: str | None = None, **options: Any) -> Any:
        if newline is None and "b" not in mode and "r" not in mode and len(others) < 4:
            newline = "\r\n"
        return opened(self, mode, *others, **options, **({} if newline is None else {"newline": newline}))

    monkeypatch.setattr(Path, "open", end_lines)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--slow`, which `make test-all` passes and `make test` does not."""
    parser.addoption("--slow", action="store_true", help="run the tests that are marked slow, and try more examples")


def pytest_configure(config: pytest.Config) -> None:
    """Hide GPUs, unless their tests are asked for: what others compare to the bit has to be computed on a processor."""
    settings.load_profile("thorough" if config.getoption("--slow") else "house")
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that this machine cannot run, and slow ones unless they are asked for.

    Files with slow tests come first: a slow test that started last would keep one core busy when the others are done.
    """
    reasons = {}
    if not config.getoption("--slow"):
        reasons["slow"] = "is slow: 'make test-all' runs it, or pytest --slow"
    if not SHARED.is_dir():
        reasons["external"] = f"needs {SHARED.name}/ next to the repository (published fixtures, corpora)"
    if not torch.cuda.is_available():
        reasons["gpu"] = "needs a CUDA device, and runs with 'pytest -m gpu' alone"
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)  # whole files: their tests share fixtures
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Let no test depend on which tests ran before it in the same process."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small random model in the format of AllenNLP."""
    return make(tmp_path_factory.mktemp("model"))[0]


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Embedder:
    """Return the model in this folder, which embeds."""
    return Embedder(formats.load(model_folder))


@pytest.fixture
def shared() -> Path:
    """Return the folder of published fixtures and corpora next to the repository, for tests marked `external`."""
    return SHARED
