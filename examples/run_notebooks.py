"""Runs the notebooks in `examples/notebooks` and writes their outputs back: `make notebooks`.

Each notebook runs from its first cell on, in a copy of `examples` that is removed with everything written there. The
outputs that are kept do not differ from run to run or from machine to machine, as far as the notebooks allow it.

    python examples/run_notebooks.py
    python examples/run_notebooks.py senses change
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).with_name("notebooks")
SECONDS = 120
"""The longest processor time that a notebook may take. Time by the clock would depend on other programs."""
PATIENCE = 1800
"""The seconds by the clock after which a cell counts as hanging."""


def run(path: Path, folder: Path) -> Any:
    """Run a notebook in a copy of `examples`.

    Args:
        path: The notebook.
        folder: Where to put the copy, which must not exist.

    Returns:
        The notebook with its new outputs, as nbformat has it.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell raises an error.
        TimeoutError: If the notebook takes more than `SECONDS`, or a cell more than `PATIENCE`.
    """
    import nbclient
    import nbformat

    shutil.copytree(NOTEBOOKS.parent, folder, ignore=shutil.ignore_patterns("work", "__pycache__"))
    notebook: Any = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder / "notebooks")}},
        startup_timeout=PATIENCE,
        coalesce_streams=True,  # otherwise a stream is cut where it happened to be sent
    )
    before = processor_seconds()
    client.execute(env=environment())
    seconds = processor_seconds() - before
    print(f"{path.name}: {seconds:.0f} seconds of the processor", flush=True)
    if seconds > SECONDS:
        raise TimeoutError(f"{path.name}: takes {seconds:.0f} seconds of the processor, and may take {SECONDS}")
    return clean(notebook)


def processor_seconds() -> float:
    """Return the processor time of all processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def environment() -> dict[str, str]:
    """Return the environment of a notebook."""
    return os.environ | {
        "OMP_NUM_THREADS": "1",  # the number of threads changes the rounding
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),  # %%bash finds `elmo`
        "PYTHONWARNINGS": "ignore:IProgress not found",  # a warning of tqdm, which shows a path of this machine
    }


def clean(notebook: Any) -> Any:
    """Remove from a notebook what says when, where and in which program it ran."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not is_progress(output)]
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = {}
    return notebook


def is_progress(output: Any) -> bool:
    """Return whether an output is the line that a long training writes each minute, which only slow machines show."""
    lines = output.text.splitlines() if output.get("name") == "stderr" else []
    return bool(lines) and all(line.startswith("elmo: ") and line.endswith(" left") for line in lines)


def main() -> None:
    """Run the notebooks that are named, or all."""
    import nbformat

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(known)} to run; default: all")
    parser.add_argument("--to", type=Path, default=NOTEBOOKS, metavar="FOLDER", help="where to write; default: back")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"there is no notebook {unknown[0]}; choose some of {', '.join(known)}")
    arguments.to.mkdir(parents=True, exist_ok=True)
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in arguments.names or known]:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(path, Path(folder) / "examples")
        nbformat.write(notebook, arguments.to / path.name)


if __name__ == "__main__":
    main()
