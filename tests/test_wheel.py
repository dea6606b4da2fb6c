"""The wheel holds everything that the package needs, which then works offline in an environment of its own."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
import torch

ROOT = Path(__file__).parents[1]
DEPENDENCIES = Path(torch.__file__).parents[1]
MOST_BYTES = 25_000_000
"""The largest size of each wheel: that of the package with its model, and that of the model's softmax."""
SOFTMAX = {f"elmo/models/en/{name}" for name in ("softmax.safetensors", "vocabulary.txt")}

HAS_KERNELS = (
    platform.machine() in ("x86_64", "aarch64", "arm64") and sys.platform != "win32" and shutil.which("c++") is not None
)
"""Whether the kernels can be built here."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheels")]  # one worker builds the wheels, and only once


def run(*command: str | Path, cwd: Path) -> str:
    """Return what a command prints. It can reach neither a package index nor the Hub, nor any other machine."""
    nowhere = "http://127.0.0.1:9"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PIP_NO_INDEX": "1", "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "ALL_PROXY": nowhere}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


class Wheels(NamedTuple):
    """The wheels that are built from a copy of the source."""

    package: Path
    softmax: Path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    folder = tmp_path_factory.mktemp("wheels")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "build")
    for name in ("src", "packaging"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(*build, ".", "./packaging/en-softmax", cwd=source)
    (package,) = folder.glob("elmo_torch-*.whl")
    (softmax,) = folder.glob("elmo_torch_en_softmax-*.whl")
    return Wheels(package, softmax)


def test_the_wheel_holds_recipes_types_and_the_model(wheels: Wheels) -> None:
    held = set(ZipFile(wheels.package).namelist())
    source = ROOT / "src"
    wanted = [path.relative_to(source).as_posix() for path in (source / "elmo").rglob("*") if path.suffix != ".so"]
    kinds = (".py", ".html", ".yaml", ".typed", ".pyi")
    assert {name for name in wanted if name.endswith(kinds)} <= held
    assert {f"elmo/models/en/{name}" for name in ("README.md", "config.json", "model.safetensors")} <= held
    assert all(wheel.stat().st_size <= MOST_BYTES for wheel in wheels)


def test_the_softmax_has_a_wheel_of_its_own(wheels: Wheels) -> None:
    """No file is in both, so that removing one package leaves the other whole."""
    package, softmax = (set(ZipFile(wheel).namelist()) for wheel in wheels)
    assert {name for name in softmax if name.startswith("elmo/")} == SOFTMAX
    assert not package & softmax


def test_each_wheel_says_what_it_is_and_who_made_it(wheels: Wheels) -> None:
    """A package index makes its page of this."""
    for wheel in wheels:
        archive = ZipFile(wheel)
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        head, _, description = archive.read(name).decode("utf-8").partition("\n\n")
        assert "\nAuthor: The elmo developers\n" in head
        assert "\nDescription-Content-Type: text/markdown\n" in head
        assert "elmo" in description


@pytest.mark.skipif(not HAS_KERNELS, reason="needs an x86-64 or Arm processor and a C++ compiler")
def test_the_wheel_holds_the_kernels(wheels: Wheels) -> None:
    """The build leaves the kernels out if they don't compile, and everything else works without them."""
    assert "elmo/_native/_kernel.abi3.so" in ZipFile(wheels.package).namelist()
    assert wheels.package.name.split("-")[2:4] == ["cp311", "abi3"]


def test_the_installed_wheel_embeds_offline(wheels: Wheels, tmp_path: Path) -> None:
    """The environment has this machine's packages for the dependencies, but they come last: `elmo` is the wheel's."""
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", *wheels, cwd=tmp_path)
    (packages,) = (tmp_path / "environment" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{DEPENDENCIES}\n")
    if HAS_KERNELS:
        run(python, "-c", "from elmo._native import _kernel", cwd=tmp_path)
    where = run(python, "-c", "import elmo; print(elmo.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(packages)
    (tmp_path / "text.txt").write_text("They saw a new play .\nw1 w2 w3\n")
    elmo = tmp_path / "environment" / "bin" / "elmo"
    assert "2 sentences, 9 tokens" in run(elmo, "embed", "en", "text.txt", "vectors.npz", cwd=tmp_path)
    assert (tmp_path / "vectors.npz").exists()
    assert "the package's own English model" in run(elmo, "info", "en", cwd=tmp_path)
    assert "on 9 tokens" in run(elmo, "perplexity", "en", "text.txt", cwd=tmp_path)
