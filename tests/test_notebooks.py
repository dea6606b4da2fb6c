"""The notebooks of `examples/notebooks` run, and are stored with the outputs of a run but no traces of a machine."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pages import ROOT

SCRIPT = ROOT / "examples" / "run_notebooks.py"
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
MOST_BYTES = 100_000
"""The largest size of a picture."""

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.mark.slow
@pytest.mark.skipif(not (find_spec("nbclient") and find_spec("ipykernel")), reason="needs nbclient and ipykernel")
@each_notebook
def test_a_notebook_runs_within_two_minutes(path: Path, tmp_path: Path) -> None:
    """The script fails if a notebook takes more processor time."""
    command = [sys.executable, SCRIPT, path.stem, "--to", tmp_path]
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert ran.returncode == 0, ran.stderr
    then, now = cells_of(path), cells_of(tmp_path / path.name)
    assert [cell["source"] for cell in then] == [cell["source"] for cell in now]
    # Numbers may differ between processors, but not which cells show what.
    for before, after in zip(then, now, strict=True):
        assert kinds(before) == kinds(after), "".join(before["source"])


def kinds(cell: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    return [
        (output["output_type"], output.get("name", ""), sorted(output.get("data", ())))
        for output in cell.get("outputs", ())
    ]


@each_notebook
def test_outputs_are_there_in_the_order_of_the_cells(path: Path) -> None:
    numbers = [cell["execution_count"] for cell in cells_of(path) if cell["cell_type"] == "code"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert any("image/png" in output.get("data", {}) for cell in cells_of(path) for output in cell.get("outputs", ()))


@each_notebook
def test_a_notebook_holds_nothing_of_a_machine_or_a_widget(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert sorted(notebook["metadata"]) == ["kernelspec", "language_info"]
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert re.fullmatch(r"[a-z-]+", cell["id"]), "an id that says what the cell is for"
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr"
            shown = dict(output.get("data", {}))
            picture = base64.b64decode(shown.pop("image/png", ""))
            assert len(picture) < MOST_BYTES
            text = json.dumps([output.get("text"), shown])
            assert not re.search(
                r"(?<![\w.])/(home|root|tmp|usr|work|Users)\b|0x[0-9a-f]{6}|\d (s|seconds|minutes)\b", text
            )


@each_notebook
def test_a_notebook_is_as_nbformat_writes_it(path: Path) -> None:
    """A new run of the notebook then changes only the lines of its outputs."""
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@each_notebook
def test_links_of_a_notebook_lead_somewhere(path: Path) -> None:
    for cell in cells_of(path):
        if cell["cell_type"] == "markdown":
            for link in re.findall(r"\]\(([^)]+)\)", "".join(cell["source"])):
                assert (path.parent / link).exists(), link
