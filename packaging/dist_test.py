"""Install each file of dist/ with each Python that this machine has, and try it there (`make dist-test`).

For each Python it makes an environment, installs one file after the other with what it requires, and removes it again
before the next. The last file is the softmax of the English model, which is tried with the package that is there then.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRY = ROOT / "packaging" / "try_installed.py"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def find_pythons() -> dict[str, str]:
    """Return the interpreters by version: the one that runs this, and those on the PATH that start."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for version in VERSIONS:
        name = shutil.which(f"python{version}")
        if name is None or version in found:
            continue
        # pyenv puts a script for every version on the PATH; it starts only those that are chosen (PYENV_VERSION).
        code = "import sys; print(sys.executable)"
        done = subprocess.run([name, "-c", code], capture_output=True, encoding="utf-8", check=False)
        if done.returncode == 0:
            found[version] = done.stdout.strip()
    return found


def find_files(folder: Path) -> tuple[list[tuple[Path, str]], Path]:
    """Return what pip can install here, each with whether it brings kernels, and the wheel of the softmax.

    Whether there are kernels is "yes", "no", or "any" if that depends. A missing file, or one more, ends the program:
    it would not be tried, and nobody would notice.
    """
    kinds = {"elmo_torch-*-abi3-*.whl": "yes", "elmo_torch-*-none-any.whl": "no", "elmo_torch-*.tar.gz": "any"}
    softmax = "elmo_torch_en_softmax-*.whl"
    found = {pattern: sorted(folder.glob(pattern)) for pattern in (*kinds, softmax)}
    known = {path for paths in found.values() for path in paths}
    if any(len(paths) != 1 for paths in found.values()) or not known.issuperset(folder.glob("*.whl")):
        held = ", ".join(sorted(path.name for path in {*known, *folder.glob("*.whl")})) or "nothing"
        sys.exit(
            f"{folder}: must hold one wheel with kernels, one without, the source and the softmax, and no other wheel, "
            f"but holds {held}; run 'make dist' first"
        )
    return [(found[pattern][0], kernels) for pattern, kernels in kinds.items()], found[softmax][0]


def run(*command: str | Path) -> float:
    """Run a command from a folder without the source, show what it prints, and return the seconds that it took."""
    begun = time.perf_counter()
    # The machine's own settings for pip count, but not a path to the source.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    subprocess.run(command, check=True, cwd=ROOT / "packaging", env=environment)
    return time.perf_counter() - begun


def try_python(python: str, files: list[tuple[Path, str]], softmax: Path, folder: Path, constraints: Path) -> None:
    """Install and try every file with one Python."""
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    own = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = (own, "-m", "pip", "install", "--quiet", "--no-compile", "--no-cache-dir", "--constraint", constraints)
    for number, (path, kernels) in enumerate(files):
        if number:
            run(own, "-m", "pip", "uninstall", "--quiet", "--yes", "elmo-torch")
        installing = run(*install, path)
        trying = run(own, "-I", TRY, "--kernels", kernels)
        print(f"{path.name}: installed in {installing:.0f} s, tried in {trying:.0f} s", flush=True)
    run(*install, "--no-deps", softmax)
    run(own, "-I", TRY, "--softmax")
    print(f"{softmax.name}: perplexity measured", flush=True)
    shutil.rmtree(folder)


def main() -> None:
    """Try all files with all Pythons; the first failure ends the program with its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder of the files")
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt", help="versions for pip")
    parser.add_argument("--only", choices=["pure"], help="try the pure wheel alone, as on Windows")
    arguments = parser.parse_args()
    files, softmax = find_files(arguments.dist)
    if arguments.only == "pure":
        files = [(path, kernels) for path, kernels in files if kernels == "no"]
    pythons = find_pythons()
    for version, python in pythons.items():
        try_python(python, files, softmax, ROOT / "build" / "dist-test" / version, arguments.constraints)
    absent = ", ".join(version for version in VERSIONS if version not in pythons) or "none"
    print(f"tried with Python {', '.join(pythons)}; not found on the PATH: {absent}")


if __name__ == "__main__":
    main()
