"""The instruction sets that the native kernels of training are tested on."""

import pytest

from elmo import _native


@pytest.fixture(params=_native.LEVELS or ["none"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the instruction sets of this processor that there are kernels for, in use during the test."""
    monkeypatch.setattr(_native, "LEVELS", [request.param])
    return request.param
