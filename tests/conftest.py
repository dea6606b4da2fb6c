"""What tests of all rooms share: markers that skip themselves with a reason, small sizes, quiet threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from bridge import make_config
from elmo.config import BiLMConfig

SHARED = Path(__file__).resolve().parents[2] / "shared"

torch.set_num_threads(1)  # sizes are tiny; threads that wait for a busy core cost seconds
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the same for processes that tests start: it changes the rounding
# A busy machine makes examples slow, which says nothing about the code; examples follow from the code that is imported
# and not from chance, so that what fails is the fault of the change.
settings.register_profile(
    "house", max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine lacks the means for."""
    reasons = {}
    if not SHARED.is_dir():
        reasons["external"] = f"needs {SHARED.name}/ beside the repository (published fixtures, corpora)"
    if not torch.cuda.is_available():
        reasons["gpu"] = "needs a CUDA device"
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def shared() -> Path:
    """The folder of published fixtures and corpora beside the repository, for tests marked `external`."""
    return SHARED


@pytest.fixture
def tiny_config() -> Callable[..., BiLMConfig]:
    """Makes tiny sizes: `tiny_config()`, `tiny_config("no_highway")`, `tiny_config(n_layers=3)`."""
    return make_config
