"""Tokenizing in several processes; that it changes nothing in a corpus is tested with `prepare`."""

import multiprocessing
import subprocess
import sys

import pytest

from elmo.errors import ElmoError
from elmo.text import parallel, reading
from elmo.text.parallel import tokenize_files


def test_processes_start_light():
    """Every process that tokenizes imports this module: with torch each would take 200 MB and two seconds."""
    code = "import sys, elmo.text.parallel; print(*{'torch', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_special_words_are_those_of_the_characters():
    """`reading` spells them out, so as not to import torch with `characters`."""
    from elmo.text.vocabulary import SPECIAL_WORDS

    assert [reading._lower(word) for word in SPECIAL_WORDS] == list(SPECIAL_WORDS)


def test_few_blocks_are_on_the_way(tmp_path, monkeypatch):
    """Memory stays constant: the file is read only as far as the processes have got."""
    monkeypatch.setattr(reading, "BLOCK_SIZE", 4)
    (tmp_path / "text").write_text("".join(f"{number:03}\n" for number in range(200)))
    told: list[int] = []
    blocks = tokenize_files(
        [str(tmp_path / "text")],
        tokenizer="ptb",
        text="sentences",
        encoding="utf-8",
        lowercase=False,
        workers=2,
        progress=told.append,
    )
    for number, block in enumerate(blocks):
        assert block == [[f"{number:03}"]]
        assert sum(told) <= 4 * (number + 5)
    assert number == 199


def test_a_killed_process_is_told(tmp_path, monkeypatch):
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


def test_no_more_processes_than_cores_that_one_may_use(monkeypatch):
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
