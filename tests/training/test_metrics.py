"""Rows of figures are read back bit for bit as they were written."""

from __future__ import annotations

import math
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.training.metrics import MetricsFile, append_row, read_rows, write_rows

KINDS = st.sampled_from([float, np.float64])


def test_infinity_is_read_back(tmp_path: Path) -> None:
    rows = [{"step": 1.0, "loss": math.inf}, {"step": 2.0, "loss": -math.inf}]
    write_rows(tmp_path / "metrics.csv", ["step", "loss"], rows)
    assert read_rows(tmp_path / "metrics.csv") == rows


@pytest.mark.parametrize("removed", [2, 3])
@pytest.mark.parametrize("columns", [(), ("step", "loss", "seconds")])
def test_logs_for_tensorboard_are_made_again_with_their_folder(
    tmp_path: Path, columns: tuple[str, ...], removed: int
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"
    folder.mkdir()
    rows = MetricsFile(folder, "step", 0, columns=columns, tensorboard=True)
    for step in (1, 2, 3):
        if step == removed:
            shutil.rmtree(folder)
        rows.add({"step": step, "loss": 1 / step, "seconds": 9.0})
    rows.close()
    events = accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["loss"]
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]


@given(st.lists(st.tuples(st.floats(allow_nan=False), KINDS), max_size=4))
def test_numbers_are_read_back(tmp_path_factory: pytest.TempPathFactory, numbers: list[tuple[float, type]]) -> None:
    """Numbers of NumPy are read back, too, although their `repr` names their type."""
    path = tmp_path_factory.mktemp("rows") / "metrics.csv"
    rows = [{"step": float(step), "loss": kind(number)} for step, (number, kind) in enumerate(numbers)]
    write_rows(path, ["step", "loss"], rows)
    append_row(path, ["step", "loss"], {"step": 99})
    assert read_rows(path) == [*rows, {"step": 99}]


def test_names_may_have_any_letters_in_any_locale(tmp_path: Path) -> None:
    """A column may be named after a label of the user's."""
    program = """
from pathlib import Path
from elmo.training.metrics import append_row, write_rows

path, columns = Path("m.csv"), ["step", "dev_f1/Gr\\u00f6\\u00dfe"]
write_rows(path, columns, [{"step": 1}])
append_row(path, columns, {"step": 2})
"""
    command = [sys.executable, "-X", "utf8=0", "-c", program]
    subprocess.run(command, check=True, cwd=tmp_path, env=os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"})
    assert (tmp_path / "m.csv").read_text(encoding="utf-8").startswith("step,dev_f1/Größe\n")


def test_a_line_that_breaks_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write_rows(path, ["step", "loss"], [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}])
    assert path.read_text().splitlines() == ["step,loss", "1,0.5", "2,0.25"]
    path.write_bytes(path.read_bytes()[:-2])
    assert read_rows(path) == [{"step": 1, "loss": 0.5}]


def test_no_damage_ends_in_a_traceback(tmp_path: Path) -> None:
    """With any bits flipped and cut off anywhere, the file is either read or refused in one sentence."""
    path, refused = tmp_path / "metrics.csv", 0
    write_rows(path, ["step", "loss", "seconds"], [{"step": step, "loss": 1 / step} for step in range(1, 20)])
    whole, numbers = path.read_bytes(), random.Random(0)
    for number in range(300):
        content = bytearray(whole)
        content[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
        path.write_bytes(content if number % 2 else content[: numbers.randrange(len(content))])
        try:
            rows = read_rows(path, columns=["step", "loss", "seconds"])
        except ElmoError:
            refused += 1
        else:
            assert all("step" in row for row in rows)
    assert refused > 50


@pytest.mark.parametrize("num_before", [0, 8])
@pytest.mark.parametrize(
    "line",
    [
        *(b"one,1\n", b"1,2,3\n", b"1\n", b",1\n", b"nan,1\n", b"\xff,1\n", b"2,\xff\n"),
        pytest.param(b"1," + b"1" * 140_000 + b"\n", id="more digits than a reader of CSV takes"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes, num_before: int) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"step,loss\n" + b"1,0.5\n" * num_before + line + b"2,0.5\n" * num_before)
    with pytest.raises(ElmoError, match=rf"metrics\.csv, line {num_before + 2}: is damaged"):
        read_rows(path)


def test_a_column_of_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,lost\n1,0.5\n")
    with pytest.raises(ElmoError, match=r"metrics\.csv, line 1: is damaged \(unknown column 'lost'\)"):
        MetricsFile(tmp_path, "step", 1, columns=("step", "loss"))


def test_tensorboard_keeps_the_rows_before_a_resume(tmp_path: Path) -> None:
    """Its event files are named by the second, so the second run has to begin in another one."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for done, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        time.sleep(1.1 if done else 0)
        rows = MetricsFile(tmp_path, "step", done, columns=("step", "loss"), tensorboard=True)
        for step in steps:
            rows.add({"step": step, "loss": 1 / step})
        rows.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4]


def test_rows_after_the_checkpoint_are_made_again(tmp_path: Path) -> None:
    """An attempt that was killed may have gone on after its last checkpoint."""
    columns = ("step", "loss")
    write_rows(tmp_path / "metrics.csv", columns, [{"step": step, "loss": 0.5} for step in (1, 2, 3)])
    MetricsFile(tmp_path, "step", 2, columns=columns).add({"step": 3, "loss": 0.25})
    assert [row["loss"] for row in read_rows(tmp_path / "metrics.csv")] == [0.5, 0.5, 0.25]
