from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from filecmp import cmp
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from commands import RunMain
from elmo import formats
from elmo.cli.embed import command
from elmo.cli.shared import LAYER_NAMES, count_bytes, count_sentences
from elmo.embed import Embedder
from elmo.embed.engine import PRECISIONS
from elmo.embed.layers import LAYER_NAMES as LAYER_NAMES_OF_EMBED
from elmo.embed.pooling import POOLS
from elmo.embed.writers import DTYPES
from elmo.formats.model import STATES
from make_bilm_hdf5 import make

TEXT = "A new play .\n\nFußball spielen\r\nA new play ."
Run = Callable[..., tuple[int, str, str]]
SENTENCES = [["A", "new", "play", "."], [], ["Fußball", "spielen"], ["A", "new", "play", "."]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with `model` and `text.txt` the current one."""
    make(tmp_path / "model")
    (tmp_path / "text.txt").write_bytes(TEXT.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def elmo(folder: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> Run:
    """Return a function that runs `elmo embed ARGUMENTS` in `folder` and returns exit code, stdout and stderr."""

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return run_main(["embed", *arguments])

    return run


def test_a_large_file_is_announced(elmo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected size is announced before the work and the real size afterwards. The model has 3 layers of width 12.
    The sample is the whole text, of 10 tokens."""
    monkeypatch.setattr("elmo.cli.embed.LARGE", 600.0)
    code, out, err = elmo("model", "text.txt", "a.npz", "--tokenizer", "whitespace")
    assert (code, " MB in " in out) == (0, True)
    assert "a.npz: about 10 tokens will take 0.0 GB; --layers mean takes 1/3 of the space, --dtype" in err
    _, _, err = elmo("model", "text.txt", "b.npz", "--tokenizer", "whitespace", "--layers", "mean")
    assert "will take" not in err
    _, out, err = elmo("model", "text.txt", "c.npz", "--tokenizer", "whitespace", "--dtype", "float16", "--json")
    assert err.endswith("about 10 tokens will take 0.0 GB; --layers mean takes 1/3 of the space\n")
    assert json.loads(out)["num_bytes"] == (folder / "c.npz").stat().st_size


def test_sizes_are_in_gigabytes_and_megabytes(elmo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four tokens take about 13 bytes as text, and 4 bytes for each of 3 x 12 numbers as vectors."""
    (folder / "text.txt").write_text("A new play .\n" * 1000)
    monkeypatch.setattr("elmo.cli.embed.count_bytes", lambda paths: 130_000_000)
    _, out, err = elmo("model", "text.txt", "a.npz", "--tokenizer", "whitespace")
    assert re.search(r"a\.npz: about 40,0\d\d,\d{3} tokens will take 5\.8 GB; ", err)
    size = (folder / "a.npz").stat().st_size
    assert size > 4000 * 4 * 36
    assert out.startswith(f"a.npz: 1,000 sentences, 4,000 tokens, {size / 1e6:.1f} MB in ")


def test_the_case_of_an_ending_does_not_matter(elmo: Run, folder: Path) -> None:
    (folder / "text.GZ").write_bytes(gzip.compress(TEXT.encode()))
    assert elmo("model", "text.GZ", "out.H5", "--layers", "top")[0] == 0
    with h5py.File(folder / "out.H5") as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_writes_all_layers_of_every_line(elmo: Run, folder: Path) -> None:
    code, out, err = elmo("model", "text.txt", "out.h5")
    assert (code, err) == (0, ""), "quiet without a terminal"
    assert out.startswith("out.h5: 4 sentences, 10 tokens, 0.0 MB in ")
    assert out.count("\n") == 1
    expected = Embedder(formats.load(folder / "model")).embed(SENTENCES, layers="all")
    with h5py.File(folder / "out.h5") as file:
        for number, array in enumerate(expected):
            np.testing.assert_array_equal(file[str(number)], array)


def test_options_reach_the_embedder(elmo: Run, folder: Path) -> None:
    weights = [0.2, 0.3, 0.5]
    options = [
        "--pool",
        "mean",
        "--layers",
        "0.2,0.3,0.5",
        "--dtype",
        "float16",
        "--state",
        "carry",
        "--batch-size",
        "1",
    ]
    _, out, _ = elmo("model", "-", "text.txt", "out.npz", *options, "--lowercase", "--json", stdin="One MORE .\n")
    sentences = [["one", "more", "."], *([word.lower() for word in sentence] for sentence in SENTENCES)]
    figures = json.loads(out)
    assert {key: figures[key] for key in ("file", "num_sentences", "num_tokens", "notes")} == {
        "file": "out.npz",
        "num_sentences": 5,
        "num_tokens": 13,
        "notes": [],
    }
    embedder = Embedder(formats.load(folder / "model"))
    expected = embedder.embed(sentences, layers=weights, pool="mean", state="carry", batch_size=1)
    np.testing.assert_array_equal(np.load(folder / "out.npz")["sentence_vectors"], np.float16(expected))


def test_precision_and_threads_reach_the_engine(elmo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert elmo("model", "text.txt", "out.npz", "--precision", "bf16", "--threads", "3", "--layers", "top")[0] == 0
    assert asked == [3]
    expected = Embedder(formats.load(folder / "model"), precision="bf16").embed(SENTENCES, layers="top")
    with np.load(folder / "out.npz") as file:
        for number, array in enumerate(expected):
            np.testing.assert_array_equal(file[str(number)], array)
    code, out, err = elmo("model", "text.txt", "other.npz", "--precision", "float16")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "float16 is for GPUs" in err


def test_globs_are_read_one_after_the_other(elmo: Run, folder: Path) -> None:
    (folder / "a1").write_text("first", encoding="utf-8")
    (folder / "a2").write_text("second file", encoding="utf-8")
    elmo("model", "a?", "out.npz", "--layers", "1")
    assert [len(array) for array in np.load(folder / "out.npz").values()] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["model", "text.txt", "out.txt"], "elmo: out.txt: the ending selects the format"),
        (["model", "text.txt", "text.txt"], "elmo: text.txt: is no file of vectors; after the text, name the file"),
        (["model", "none.txt", "out.h5"], "elmo: none.txt: no such file"),
        (["nothing", "text.txt", "out.h5"], "elmo: nothing: no such file or folder"),
        (["model", "text.txt", "out.h5", "--layers", "last"], "'last' is none of all, top, mean, token"),
        (["model", "text.txt", "out.h5", "--layers", "1,2"], "elmo: --layers: 2 weights for 3 layers"),
        (["model", "text.txt", "out.h5", "--device", "cuda:99"], "elmo: --device: there is no cuda:99 (torch finds"),
        (
            ["model", "text.txt", "out.h5", "--device", "gpu"],
            "elmo: --device: 'gpu' is unknown; choose one of auto, cpu",
        ),
        (["model", "text.txt", "out.h5", "--device", "cpu", "--devices", "cpu"], "elmo: --devices already says"),
        (
            ["model", "text.txt", "out.h5", "--top", "--layers", "all"],
            "elmo: --all, --top and --average are other names for values of --layers",
        ),
        (["model", "text.txt", "out.h5", "--all", "--top"], "elmo: --all, --top and --average are other names for"),
        (["model", "text.txt", "out.h5", "--average", "--all"], "elmo: --all, --top and --average are other names for"),
        (["model", "text.txt", "old.h5"], "elmo: old.h5: exists already; remove it, or pass --overwrite"),
        (["model", "text.txt", "link.h5"], "elmo: link.h5: exists already; remove it, or pass --overwrite"),
        (
            ["model", "/dev/null", "out.h5"],
            "elmo: /dev/null: is a device; write what it gives to a file, and name that",
        ),
        (["model", "old.h5", "old.h5", "--overwrite"], "elmo: old.h5: is one of the text files"),
        (["old.h5", "text.txt", "old.h5", "--overwrite"], "elmo: old.h5: is the model itself; name another file"),
        (["model", "latin.txt", "out.h5"], "latin.txt, line 1: not valid UTF-8"),
        (["model", "text.txt", "out.h5", "--tokenizer", "moses"], "moses"),
        (["model", "out.h5"], "Missing argument"),
    ],
)
def test_bad_input_gives_one_sentence_and_leaves_nothing(
    elmo: Run, folder: Path, arguments: list[str], says: str
) -> None:
    (folder / "old.h5").write_bytes(b"old")
    (folder / "latin.txt").write_bytes("Fußball".encode("latin-1"))
    (folder / "link.h5").symlink_to("nowhere.h5")
    before = names(folder)
    code, out, err = elmo(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1 or err.startswith("Usage: ")  # which click prints before its own errors
    assert names(folder) == before
    assert (folder / "old.h5").read_bytes() == b"old"
    assert (folder / "link.h5").is_symlink()


def test_a_terminal_shows_progress_with_the_remaining_time(folder: Path) -> None:
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    command = [sys.executable, "-m", "elmo", "embed", "model", "text.txt", "out.h5"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=child, check=True)
    os.close(child)
    shown = b""
    with suppress(OSError):  # Linux raises this at the end of a terminal, where other systems return no bytes
        while block := os.read(parent, 1 << 16):
            shown += block
    os.close(parent)
    assert b"100%|" in shown, "the bar counts the bytes of the text"
    assert re.search(r"\d\d:\d\d<\d\d:\d\d, 4 sentences, [\d,]+ tokens/s", shown.decode())
    assert done.stdout.startswith(b"out.h5: 4 sentences")


@pytest.mark.parametrize(("text", "num_lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\n\nb", 3), ("\n", 1)])
def test_lines_are_counted_as_they_are_read(tmp_path: Path, monkeypatch, text: str, num_lines: int) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    assert count_sentences([str(path), str(path)], "sentences") == 2 * num_lines
    assert count_sentences([str(path)], "paragraphs") is None
    assert count_sentences([str(path), "-"], "sentences") is None


def test_the_size_of_the_text_is_known_only_for_plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-").write_bytes(b"a file of the name that stands for standard input")
    for name in ("a.txt", "b.txt", "c.gz"):
        (tmp_path / name).write_bytes(b"12345")
    plain, packed = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], str(tmp_path / "c.gz")
    assert count_bytes(plain) == 10
    assert count_bytes([*plain, packed]) is None
    assert count_bytes([*plain, "-"]) is None


@pytest.mark.parametrize(("flag", "layers"), [("--all", "all"), ("--top", "top"), ("--average", "mean")])
def test_flags_of_allennlp(elmo: Run, folder: Path, flag: str, layers: str) -> None:
    assert elmo("model", "text.txt", "out.h5", flag)[0] == 0
    expected = Embedder(formats.load(folder / "model")).embed(SENTENCES, layers=layers)
    with h5py.File(folder / "out.h5") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"A new play .": "3", "": "1", "Fußball spielen": "2"}
        for number, array in enumerate(expected):
            np.testing.assert_array_equal(file[str(number)], array)


@pytest.mark.slow
def test_two_devices_give_the_file_of_one(elmo: Run, folder: Path) -> None:
    assert elmo("model", "text.txt", "one.h5", "--device", "cpu")[0] == 0
    code, out, err = elmo("model", "text.txt", "two.h5", "--devices", "cpu,cpu")
    assert (code, err) == (0, "")
    assert out.startswith("two.h5: 4 sentences, 10 tokens, ")
    assert cmp(folder / "one.h5", folder / "two.h5", shallow=False)


def test_unfinished_work_of_another_command_is_refused(elmo: Run, folder: Path, monkeypatch) -> None:
    """--overwrite starts again and reads files a second time, which isn't possible with standard input."""
    monkeypatch.setattr("elmo.embed.writers.COMMIT_SECONDS", 0.0)
    (folder / "bad.txt").write_bytes(b"first\n" * 60_000 + b"\xff")
    for text in ("text.txt", "-"):
        assert elmo("model", "bad.txt", "out.npz", "--layers", "top")[0] == 2, "not valid UTF-8 at its end"
        code, _, err = elmo("model", "text.txt", "out.npz", "--layers", "mean")
        assert code == 2
        assert "out.npz: has unfinished work of another command (other layers)" in err
        code, _, err = elmo("model", text, "out.npz", "--layers", "top", stdin="other")
        assert code == 2
        assert "out.npz: has unfinished work on a text with another beginning" in err
    assert elmo("model", "-", "out.npz", "--layers", "top", "--overwrite", stdin="other")[0] == 2
    assert elmo("model", "text.txt", "out.npz", "--layers", "top", "--overwrite")[0] == 0
    assert len(np.load(folder / "out.npz")) == len(SENTENCES)
    assert names(folder) == {"model", "text.txt", "bad.txt", "out.npz"}


def test_help_lists_all_choices_without_importing_torch() -> None:
    code = (
        "import sys; from elmo.cli.main import main\n"
        "try: main()\nfinally: assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, "embed", "--help"], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    choices = {option.name: getattr(option.type, "choices", ()) for option in command.params}
    assert tuple(choices["pool"]) == POOLS
    assert tuple(choices["dtype"]) == DTYPES
    assert tuple(choices["precision"]) == PRECISIONS
    assert tuple(choices["state"]) == STATES
    assert LAYER_NAMES == LAYER_NAMES_OF_EMBED


def test_the_announced_size_is_that_of_what_is_written(
    elmo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vectors of 10 tokens in 3 layers take about 1,440 bytes as float32, and half of that as float16."""
    for number, (limit, options, is_large) in enumerate(
        ((1400, [], True), (1600, [], False), (700, ["--dtype", "float16"], True), (800, ["--dtype", "float16"], False))
    ):
        monkeypatch.setattr("elmo.cli.embed.LARGE", float(limit))
        _, _, err = elmo("model", "text.txt", f"{number}.npz", "--tokenizer", "whitespace", *options)
        assert ("will take" in err) == is_large
    monkeypatch.setattr("elmo.cli.embed.LARGE", 600.0)
    assert "will take" not in elmo("model", "text.txt", "a.npz", "--tokenizer", "whitespace", "--pool", "mean")[2]
