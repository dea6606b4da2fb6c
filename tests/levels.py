"""The instruction sets that tests of the native kernels run on.

They are not in a conftest, because a conftest needs torch, and `make test-arm` runs without it. It loads this module as
a plugin instead.
"""

from __future__ import annotations

import pytest

from elmo import _native


@pytest.fixture(params=_native.LEVELS or ["none"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use one of the instruction sets of this processor that have kernels, and return its name."""
    monkeypatch.setattr(_native, "LEVELS", [request.param])
    return request.param


needs_native = pytest.mark.skipif(
    not _native.available(), reason="the native module is not built, not for this CPU, or turned off by ELMO_NATIVE=0"
)
