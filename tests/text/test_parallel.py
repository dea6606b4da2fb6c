"""Tokenizing in several processes. `test_prepare.py` tests that they give the same corpus as one."""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from elmo.config import SPECIAL_WORDS
from elmo.errors import ElmoError
from elmo.text import decoding, parallel
from elmo.text.parallel import tokenize_files
from elmo.text.reading import Reading, TextBlock, tokenize_block


def test_processes_start_light():
    """Every process that tokenizes imports this module. With torch, each would take 200 MB and two seconds."""
    code = "import sys, elmo.text.parallel; print(*{'torch', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_special_words_keep_their_case():
    words = [*SPECIAL_WORDS]
    assert tokenize_block(TextBlock(" ".join(words), "text"), Reading(lowercase=True)) == ([words], range(1))


def test_only_a_few_blocks_are_read_ahead(tmp_path, monkeypatch):
    """Memory stays constant, because the file is read only a little further than the processes have come."""
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 4)
    (tmp_path / "text").write_text("".join(f"{number:03}\n" for number in range(200)))
    progress: list[int] = []
    blocks = tokenize_files([str(tmp_path / "text")], Reading("ptb"), workers=2, advance=progress.append)
    for number, block in enumerate(blocks):
        assert block == ([[f"{number:03}"]], 0, [number + 1])
        assert sum(progress) <= 4 * (number + 5)
    assert number == 199


def test_a_few_short_files_need_no_processes(tmp_path, monkeypatch):
    """Starting processes would take longer than the work itself, with spaCy many seconds."""
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", None)
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text(f"{path.name} play.\n")
    found = [block.sentences for block in tokenize_files(list(map(str, paths)), Reading("ptb"), workers=2)]
    assert found == [[[name, "play", "."]] for name in "abc"]


def test_a_killed_process_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 4)
    (tmp_path / "text").write_text("000\n" * 200)
    of_other_tests = set(multiprocessing.active_children())
    blocks = tokenize_files([str(tmp_path / "text")], Reading("ptb"), workers=2)
    next(blocks)
    for process in set(multiprocessing.active_children()) - of_other_tests:
        process.kill()
    with pytest.raises(ElmoError, match="a process that tokenizes the text ended early"):
        list(blocks)


def test_stopping_does_not_wait_for_blocks_that_are_not_wanted_any_more(tmp_path, monkeypatch):
    """Ctrl-C closes the generator. All blocks but the first would take a minute each."""
    (tmp_path / "slow.py").write_text(
        "import time\ndef cut(sentence):\n    time.sleep(60 * (sentence > '1'))\n    return [sentence]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 4)
    (tmp_path / "text").write_text("000\n" + "222\n" * 20)
    blocks = tokenize_files([str(tmp_path / "text")], Reading("slow:cut"), workers=2)
    assert next(blocks).sentences == [["000"]]
    start = time.monotonic()
    blocks.close()
    assert time.monotonic() - start < 10, "half a second, but the machine may be busy"


def test_a_worker_of_a_pool_does_the_work_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python forbids it to start processes of its own."""
    (tmp_path / "text").write_text("They met.\n" * 60_000)
    monkeypatch.setattr("multiprocessing.current_process", lambda: SimpleNamespace(daemon=True))
    monkeypatch.setattr("elmo.text.parallel.ProcessPoolExecutor", None)
    blocks = tokenize_files([str(tmp_path / "text")], Reading("ptb"), workers=2)
    assert sum(len(block.sentences) for block in blocks) == 60_000


@pytest.mark.parametrize(("workers", "expected"), [(None, 3), (2, 2), (5, 5)])
def test_there_is_a_process_for_each_available_core_or_as_many_as_asked_for(workers, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 4)
    monkeypatch.setattr(parallel, "available_cores", lambda: 3)
    start = Mock(side_effect=InterruptedError)  # the number is enough, no process has to start
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", start)
    (tmp_path / "text").write_text("000\n" * 9)
    with pytest.raises(InterruptedError):
        list(tokenize_files([str(tmp_path / "text")], Reading("ptb"), workers=workers))
    assert start.call_args.args == (expected,)


def test_a_single_block_needs_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", None)
    (tmp_path / "text").write_text("don't\n")
    assert list(tokenize_files([str(tmp_path / "text")], Reading("ptb", lowercase=True), workers=2)) == [
        ([["do", "n't"]], 0, [1])
    ]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [("sentences", [1, 2, 3, 4, 5], [1, 2]), ("paragraphs", [1, 2, 2, 4, 5], [1, 2]), ("wrapped", [1, 2, 4, 5], [1])],
)
def test_the_line_of_every_sentence_is_known(tmp_path, monkeypatch, workers, kind, one, two):
    """The line does not depend on blocks or on processes. A wrapped sentence may begin within a line."""
    (tmp_path / "one").write_text("He came\nhome. She\n \n  Left.\nNo\n")
    (tmp_path / "two").write_text("\ufeffHe came\r\nhome.\n")
    for size in (2, 1 << 18):
        monkeypatch.setattr(decoding, "BLOCK_SIZE", size)
        blocks = list(
            tokenize_files([str(tmp_path / "one"), str(tmp_path / "two")], Reading("ptb", kind), workers=workers)
        )
        found = [[line for block in blocks if block.file == file for line in block.lines] for file in (0, 1)]
        assert found == [one, two]
        assert all(len(block.sentences) == len(block.lines) for block in blocks)
