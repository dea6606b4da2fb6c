"""The wheel holds all that the package needs, and works from it: installed in an environment of its own, offline."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

ROOT = Path(__file__).parents[1]
DEPENDENCIES = Path(torch.__file__).parents[1]
MOST_BYTES = 60_000_000
"""Of the wheel: the model, what predicts words, and the rest of the package."""

HAS_KERNELS = (
    platform.machine() in ("x86_64", "aarch64", "arm64") and sys.platform != "win32" and shutil.which("c++") is not None
)
"""Whether they can be built here."""


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; with no way to the network but to this machine's, none to an index or the Hub."""
    nowhere = "http://127.0.0.1:9"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PIP_NO_INDEX": "1", "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "ALL_PROXY": nowhere}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the source."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "source" / "src", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source" / name)
    build = (sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(*build, cwd=folder / "source")
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_recipes_types_and_the_model(wheel: Path) -> None:
    held = set(ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = [path.relative_to(source).as_posix() for path in (source / "elmo").rglob("*") if path.suffix != ".so"]
    kinds = (".py", ".html", ".yaml", ".typed", ".pyi")
    assert {name for name in wanted if name.endswith(kinds)} <= held
    files = ("README.md", "config.json", "model.safetensors", "softmax.safetensors", "vocabulary.txt")
    assert {f"elmo/models/en/{name}" for name in files} <= held
    assert wheel.stat().st_size <= MOST_BYTES


@pytest.mark.slow
@pytest.mark.skipif(not HAS_KERNELS, reason="needs an x86-64 or Arm processor and a C++ compiler")
def test_the_wheel_holds_the_kernels(wheel: Path) -> None:
    """The build leaves them out where they don't compile, and all else works without them."""
    assert "elmo/_native/_kernel.abi3.so" in ZipFile(wheel).namelist()


@pytest.mark.slow
def test_the_installed_wheel_embeds_offline(wheel: Path, tmp_path: Path) -> None:
    """Of this machine's packages the environment sees the dependencies alone, last; `elmo` comes from the wheel."""
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", wheel, cwd=tmp_path)
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
