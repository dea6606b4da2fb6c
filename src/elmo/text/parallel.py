"""Tokenizes files in several processes, in order and with a bounded number of blocks in memory.

Every process imports this module and what it imports. That must not include NumPy, let alone torch, with which each
process would take 200 MB and two seconds to start.
"""

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
from elmo.text.reading import Advance, read_units, tokenize_block
from elmo.text.tokenizers import get_tokenizer


@dataclass(frozen=True)
class _Task:
    """The settings for tokenizing a block. They are sent to the workers along with each block."""

    tokenizer: str
    text: str
    lowercase: bool

    def run(self, block: str) -> list[list[str]]:
        return tokenize_block(block, get_tokenizer(self.tokenizer), self.text, self.lowercase)

    def run_joined(self, block: str) -> str:
        """Return the sentences as one string, which is sent between processes faster than a list of lists."""
        return "\n".join(map(" ".join, self.run(block)))


def tokenize_files(
    paths: Iterable[str],
    *,
    tokenizer: str,
    text: str,
    encoding: str,
    lowercase: bool,
    workers: int | None = None,
    advance: Advance | None = None,
) -> Generator[list[list[str]]]:
    """Yield the tokenized sentences of files in blocks. Sentences may be empty.

    Args:
        paths: The files.
        tokenizer: As in `read_sentences`, like `text`, `encoding` and `lowercase`.
        text: The layout of the files.
        encoding: The encoding of the files.
        lowercase: Whether to lower-case the tokens.
        workers: The number of processes, by default one per core. It does not change the result. This process does
            the work itself if it is 1, if all the text fits into one block, or if lines are only split at whitespace,
            which is faster than sending them to another process.
        advance: A callback that receives the number of bytes read from a file since its last call.

    Raises:
        ElmoError: If a file cannot be read, or a worker process ends early.
    """
    task = _Task(tokenizer, text, lowercase)
    blocks = (block for path in paths for block in read_units(path, text, encoding, advance))
    workers = workers or available_cores()
    if workers == 1 or (tokenizer == "whitespace" and text == "sentences"):
        yield from map(task.run, blocks)
        return
    # A short text is finished before a process has started.
    first = list(islice(blocks, 2))
    if len(first) < 2:
        yield from map(task.run, first)
    else:
        yield from _run_in_pool(task, chain(first, blocks), workers)


def _run_in_pool(task: _Task, blocks: Iterable[str], workers: int) -> Generator[list[list[str]]]:
    # "fork" would copy locks that other threads hold at that moment (torch and NumPy have such threads).
    context = multiprocessing.get_context("spawn")
    if sys.platform == "win32":
        workers = min(workers, 61)  # Windows cannot wait for more processes
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker)
    on_the_way: deque[Future[str]] = deque()
    try:
        for block in blocks:
            on_the_way.append(pool.submit(task.run_joined, block))
            # `pool.map` would read all blocks at once. A block for each worker and one more keep all of them busy, and
            # results are taken in the order of the text.
            if len(on_the_way) > workers + 1:
                yield _split(on_the_way.popleft().result())
        while on_the_way:
            yield _split(on_the_way.popleft().result())
    except BrokenProcessPool:
        raise ElmoError(
            "a process that tokenizes the text ended early: either memory ran out (use fewer workers), or a script "
            'calls this without `if __name__ == "__main__":`'
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _split(joined: str) -> list[list[str]]:
    # Tokens contain no whitespace (see `Tokenizer`), so that this gives back what was joined.
    return list(map(str.split, joined.split("\n")))


def start_worker() -> None:
    """Let a worker process leave Ctrl-C to the main process, and end when the main process ends."""
    # A terminal sends Ctrl-C to all processes at once. The main one then ends the others in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # If the main process is killed, it cannot end anybody, and workers would wait for their next block forever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
