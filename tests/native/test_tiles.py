"""The kernels for Intel's tiles (AMX), built with tiles that are emulated, so that they run on more processors.

The build is that of the package, but reads `emulated_tiles.h` first. Then the tests of all kernels run again, with
`avx512_amx` as the best level.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elmo import _native

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("avx512_vnni" not in _native.LEVELS, reason="needs AVX-512 VNNI, which is not emulated"),
    pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="needs a C++ compiler"),
]

LOAD = """
import importlib.util
import sys
name = "elmo._native._kernel"
spec = importlib.util.spec_from_file_location(name, sys.argv[1])
sys.modules[name] = importlib.util.module_from_spec(spec)
from elmo import _native
"""
"""Code that makes `elmo._native` load the build at a path instead of its own."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(folder), "--build-temp", str(folder)]
    flags = f"-include {shlex.quote(str(ROOT / 'tests/native/emulated_tiles.h'))}"
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"CFLAGS": flags, "CXXFLAGS": flags})
    (built,) = (folder / "elmo/_native").glob("_kernel.*")
    return built


def run(build: Path, code: str, **environment: str) -> None:
    command = [sys.executable, "-c", LOAD + code, str(build)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | environment, timeout=600)


def test_kernels_of_tiles_pass_the_tests_of_all_kernels(build: Path) -> None:
    """Tests of other levels already run with the package's own build."""
    code = """
import pytest
assert _native.LEVELS[0] == "avx512_amx", _native.LEVELS
tests = [f"tests/native/test_{part}.py" for part in ("kernels", "training_kernels")]
layer = "tests/nn/test_lstm.py::test_the_native_layer_"  # of training, whose products may be bf16
tests += [layer + part for part in ("equals_torch", "does_not_depend_on_the_number_of_threads")]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "amx or not avx", *tests]))
"""
    run(build, code)


def test_where_the_system_refuses_tiles_other_kernels_are_used(build: Path) -> None:
    code = "assert 'avx512_amx' not in _native.LEVELS and 'avx512_vnni' in _native.LEVELS, _native.LEVELS"
    run(build, code, TILES_REFUSED="1")
