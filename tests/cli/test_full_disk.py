"""On a full disk, commands name the file, exit with code 2, leave no half-written file, and continue later."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge import make_model
from commands import RunMain, set_options
from elmo import formats
from elmo.formats import save_native
from recipes import SENTENCES, write_names

TINY = {"words.dim": 6, "characters.dim": 4, "characters.filters": 6, "lstm": [8], "training.max_epochs": 1}


@contextmanager
def no_file_above(num_bytes: int) -> Iterator[None]:
    """Make writing a file beyond this size fail within the block, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> RunMain:
    """Return `run_main` for commands in a folder with a model, text and names."""
    monkeypatch.chdir(tmp_path)
    save_native(make_model(), tmp_path / "model")
    (tmp_path / "text.txt").write_text("".join(f"{number} {number} words\n" for number in range(2_000)))
    write_names(tmp_path / "names.conll", SENTENCES[:5])
    return run_main


PREPARE = ["prepare", "out", "text.txt"]
CONVERT = ["convert", "model", "out"]
TRAIN = ["task", "train", "ner", "--train", "names.conll", "--dev", "names.conll", "--elmo", "model", "--out", "out"]
TRAIN += ["--device", "cpu", *set_options(TINY)]


@pytest.mark.parametrize(
    ("command", "num_bytes", "where"),
    [
        (PREPARE, 1_000, "out: can't be written"),
        (CONVERT, 1_000, "model.safetensors: can't be written"),
        ([*CONVERT, "--to", "bilm"], 1_000, "lm_weights.hdf5: can't be written"),
        (TRAIN, 2_000, "model.safetensors: can't be written"),
        ([*TRAIN, "--no-bilm", "--cache", "cache"], 2_000, ".layers: can't be written"),
    ],
    ids=["prepare", "convert", "convert to HDF5", "task train", "its cache"],
)
def test_a_full_disk_is_one_sentence(run: RunMain, command: list[str], num_bytes: int, where: str) -> None:
    before = sorted(Path().iterdir())
    with no_file_above(num_bytes):
        code, _, errors = run(command)
    assert code == 2
    assert where in errors
    assert errors.startswith("elmo: ")
    assert errors.endswith("make room on the disk, then start the same command again\n")
    if command[0] != "task":  # the run folder stays, and the same command continues there
        assert sorted(Path().iterdir()) == before
    assert not [path for path in Path().rglob("*.safetensors") if path.stat().st_size == num_bytes]
    assert run(command)[0] == 0
    assert not list(Path().rglob(".*"))


@pytest.mark.parametrize("num_bytes", [1, 100, 2_000, 10_000, 30_000, 45_000])
def test_hdf5_survives_a_full_disk(tmp_path: Path, num_bytes: int) -> None:
    """The HDF5 library alone would end the process when space runs out, early or late. The old model stays."""
    formats.save_bilm(make_model(), tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert len(before["lm_weights.hdf5"]) > 45_000
    with no_file_above(num_bytes), pytest.raises(OSError, match=r"File too large: '.*lm_weights\.hdf5'"):
        formats.save_bilm(make_model("three_layers"), tmp_path / "model")
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
