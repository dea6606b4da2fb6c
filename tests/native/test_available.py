"""Kernels that were built can be used. All other tests of kernels skip themselves if none are available."""

from __future__ import annotations

import platform
import subprocess
import sys
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


BROKEN = """
import sys
from importlib.machinery import ModuleSpec

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "elmo._native._kernel":
            return ModuleSpec(name, self)

    def create_module(self, spec):
        raise ImportError("file too short")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
import elmo._native
assert elmo._native.available() == set()
"""


def test_kernels_that_cannot_be_loaded_are_not_ignored_silently() -> None:
    done = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, check=True)
    assert "the native kernels can't be loaded, so everything is slower: file too short" in done.stderr
