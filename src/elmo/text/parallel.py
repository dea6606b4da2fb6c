"""Tokenizing files in several processes, in order and with a bounded number of blocks on the way."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice

from elmo.cores import available_cores
from elmo.errors import ElmoError
from elmo.text.reading import Progress, read_units, tokenize_block
from elmo.text.tokenizers import get_tokenizer


@dataclass(frozen=True)
class _Task:
    """How blocks are tokenized; sent to the workers along with each block."""

    tokenizer: str
    text: str
    lowercase: bool

    def run(self, block: str) -> list[list[str]]:
        return tokenize_block(block, get_tokenizer(self.tokenizer), self.text, self.lowercase)

    def run_joined(self, block: str) -> str:
        """The sentences as one string, which travels between processes faster than a list of lists."""
        return "\n".join(map(" ".join, self.run(block)))


def tokenize_files(
    paths: Iterable[str],
    *,
    tokenizer: str,
    text: str,
    encoding: str,
    lowercase: bool,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Generator[list[list[str]]]:
    """The sentences of files in blocks, empty ones among them: the same whatever the number of `workers`.

    Splitting lines at whitespace is quicker than sending them to another process: that, text of a single block and
    `workers=1` run in this one.
    """
    task = _Task(tokenizer, text, lowercase)
    blocks = (block for path in paths for block in read_units(path, text, encoding, progress))
    workers = workers or available_cores()
    if workers == 1 or (tokenizer == "whitespace" and text == "sentences"):
        yield from map(task.run, blocks)
        return
    first = list(islice(blocks, 2))
    if len(first) < 2:
        yield from map(task.run, first)
    else:
        yield from _run_in_pool(task, chain(first, blocks), workers)


def _run_in_pool(task: _Task, blocks: Iterable[str], workers: int) -> Generator[list[list[str]]]:
    # not "fork": other threads may hold locks (those of torch and numpy do)
    context = multiprocessing.get_context("spawn")
    if sys.platform == "win32":
        workers = min(workers, 61)  # more processes Windows can't wait for
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker)
    on_the_way: deque[Future[str]] = deque()
    try:
        for block in blocks:
            on_the_way.append(pool.submit(task.run_joined, block))
            if len(on_the_way) > workers + 1:
                yield _split(on_the_way.popleft().result())
        while on_the_way:
            yield _split(on_the_way.popleft().result())
    except BrokenProcessPool:
        raise ElmoError(
            "a process that cuts the text ended early: for want of memory (then fewer workers), or since a script "
            'calls this without `if __name__ == "__main__":`'
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _split(joined: str) -> list[list[str]]:
    return list(map(str.split, joined.split("\n")))


def start_worker() -> None:
    """Leave Ctrl-C to the main process, and don't outlive it when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
