"""Tokenizing in several processes. `test_prepare.py` tests that they give the same corpus as one."""

import multiprocessing
import subprocess
import sys

import pytest

from elmo.errors import ElmoError
from elmo.text import parallel, reading
from elmo.text.parallel import tokenize_files
from elmo.text.vocabulary import SPECIAL_WORDS


def test_processes_start_light():
    """Every process that tokenizes imports this module. With torch, each would take 200 MB and two seconds."""
    code = "import sys, elmo.text.parallel; print(*{'torch', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_special_words_are_those_of_the_characters():
    """`reading` spells them out, because `characters` imports NumPy."""
    words = [*SPECIAL_WORDS]
    assert reading.tokenize_block(" ".join(words), str.split, "sentences", lowercase=True) == [words]


def test_only_a_few_blocks_are_read_ahead(tmp_path, monkeypatch):
    """Memory stays constant, because the file is read only a little further than the processes have come."""
    monkeypatch.setattr(reading, "BLOCK_SIZE", 4)
    (tmp_path / "text").write_text("".join(f"{number:03}\n" for number in range(200)))
    progress: list[int] = []
    blocks = tokenize_files(
        [str(tmp_path / "text")],
        tokenizer="ptb",
        text="sentences",
        encoding="utf-8",
        lowercase=False,
        workers=2,
        advance=progress.append,
    )
    for number, block in enumerate(blocks):
        assert block == [[f"{number:03}"]]
        assert sum(progress) <= 4 * (number + 5)
    assert number == 199


def test_a_killed_process_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_SIZE", 4)
    (tmp_path / "text").write_text("000\n" * 200)
    settings = {"tokenizer": "ptb", "text": "sentences", "encoding": "utf-8", "lowercase": False}
    of_other_tests = set(multiprocessing.active_children())
    blocks = tokenize_files([str(tmp_path / "text")], **settings, workers=2)
    next(blocks)
    for process in set(multiprocessing.active_children()) - of_other_tests:
        process.kill()
    with pytest.raises(ElmoError, match="a process that tokenizes the text ended early"):
        list(blocks)


def test_no_more_processes_than_available_cores(monkeypatch):
    monkeypatch.setattr(parallel.os, "cpu_count", lambda: 128)
    monkeypatch.setattr(parallel.sys, "platform", "darwin")
    assert parallel.available_cores() == 128
    monkeypatch.setattr(parallel.sys, "platform", "linux")
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda process: {3, 5, 8}, raising=False)
    assert parallel.available_cores() == 3


def test_a_single_block_needs_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", None)
    (tmp_path / "text").write_text("don't\n")
    settings = {"tokenizer": "ptb", "text": "sentences", "encoding": "utf-8", "lowercase": True}
    assert list(tokenize_files([str(tmp_path / "text")], **settings, workers=2)) == [[["do", "n't"]]]
