"""Kernels that were built can be used. All other tests of kernels skip themselves if none are available."""

from __future__ import annotations

import platform
from importlib.util import find_spec
from pathlib import Path

import pytest

from elmo import _native


def has_instructions() -> bool:
    """Return whether this processor has the instructions of at least one set of kernels, by what the system says."""
    if platform.machine() in ("aarch64", "arm64"):
        return True
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.exists():
        return False
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "")
    return {"avx2", "fma"} <= set(flags.split())


@pytest.mark.skipif(find_spec("elmo._native._kernel") is None, reason="the native module is not built")
@pytest.mark.skipif(
    not has_instructions(), reason="needs Linux and an x86-64 processor with AVX2, or a 64-bit Arm processor"
)
def test_kernels_that_were_built_are_available(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a module that is there but can't be loaded. Nothing here asks `_native` whether to skip."""
    monkeypatch.delenv("ELMO_NATIVE", raising=False)
    assert _native.available() == {"float32", "bf16", "int8"}
