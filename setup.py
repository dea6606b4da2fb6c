"""Builds the native kernels of `elmo._native` where that is possible. Everything else is in pyproject.toml.

The environment variable `ELMO_KERNELS` decides what happens where the kernels can't be compiled. Without it, they are
left out. With `1`, that is an error. With `if-supported`, it is one unless there are none for this machine at all. With
`0`, the package is built without kernels for any machine.
"""

import os
import platform
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

ROOM = Path("src/elmo/_native")
WANTED = os.environ.get("ELMO_KERNELS", "")
if WANTED not in ("", "0", "1", "if-supported"):
    raise SystemExit(f"ELMO_KERNELS={WANTED}: is none of 0, 1 and if-supported")


def extensions() -> list[Extension]:
    """Return the kernels, for x86-64 or 64-bit Arm, and GCC or clang. Elsewhere, `elmo` works without them."""
    if WANTED == "0":
        return []
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # such a Python has no stable ABI
    if platform.machine() not in ("x86_64", "aarch64", "arm64") or sys.platform == "win32" or free_threaded:
        if WANTED == "1":
            raise SystemExit("ELMO_KERNELS=1: there are no kernels for this processor, Windows or a Python without GIL")
        return []
    kernels = Extension(
        "elmo._native._kernel",
        sources=[path.as_posix() for path in sorted(ROOM.glob("*.cpp"))],
        depends=[path.as_posix() for path in sorted(ROOM.glob("*.h"))],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],  # one build serves Python 3.11 and all later versions
        # A multiplication and an addition become one instruction where there is one (-ffp-contract). Kernels read the
        # same memory as words and as numbers, which compilers may take for different memory (-fno-strict-aliasing).
        extra_compile_args=[
            *("-std=c++17", "-O3", "-g0", "-ffp-contract=fast", "-fno-strict-aliasing"),
            *("-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi", "-Wno-maybe-uninitialized", "-pthread"),
        ],
        extra_link_args=["-pthread"],
        py_limited_api=True,
        optional=not WANTED,
    )
    return [kernels]


KERNELS = extensions()
setup(ext_modules=KERNELS, options={"bdist_wheel": {"py_limited_api": "cp311"}} if KERNELS else {})
