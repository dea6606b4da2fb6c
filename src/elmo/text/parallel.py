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
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from elmo.cores import available_cores
from elmo.errors import ElmoError
from elmo.text import decoding
from elmo.text.decoding import Advance
from elmo.text.reading import Reading, TextBlock, read_text_blocks, tokenize_block

_handing_over = threading.Lock()
"""Held by a worker process all the time except while it tokenizes.

It may be ended only while it tokenizes: if it ended while it hands over a result, the main process would wait for the
rest.
"""


class TokenizedBlock(NamedTuple):
    """The sentences of a block, which may be empty; the number of its file; and the line where each sentence begins.

    Files are counted from 0, lines from 1.
    """

    sentences: list[list[str]]
    file: int
    lines: list[int]


def tokenize_files(
    paths: Iterable[str],
    reading: Reading,
    *,
    workers: int | None = None,
    advance: Advance | None = None,
) -> Generator[TokenizedBlock]:
    """Yield the tokenized sentences of files in blocks.

    Args:
        paths: The files.
        reading: How to read them.
        workers: The number of processes, by default one per core. It does not change the result. This process does
            the work itself if it is 1, if all the text fits into one block, if lines are only split at whitespace,
            which is faster than sending them to another process, or if this process may have none of its own, as the
            workers of a `multiprocessing.Pool`.
        advance: A callback that receives the number of bytes read from a file since its last call.

    Raises:
        ElmoError: If a file cannot be read, or a worker process ends early.
    """
    blocks = (
        block._replace(file=file)
        for file, path in enumerate(paths)
        for block in read_text_blocks(path, reading, advance)
    )
    workers = 1 if multiprocessing.current_process().daemon else workers or available_cores()
    if workers == 1 or (reading.tokenizer == "whitespace" and reading.text == "sentences"):
        yield from (_placed(block, *tokenize_block(block, reading)) for block in blocks)
        return
    # A short text, such as a few pages, is finished before another process has even started.
    first: list[TextBlock] = []
    size = 0
    for block in blocks:
        first.append(block)
        size += len(block.text)
        if len(first) > 1 and size > decoding.BLOCK_SIZE:
            yield from _run_in_pool(reading, chain(first, blocks), workers)
            return
    yield from (_placed(block, *tokenize_block(block, reading)) for block in first)


def _tokenize_elsewhere(block: TextBlock, reading: Reading) -> tuple[str, Sequence[int]]:
    """Tokenize a block in another process, and return the sentences as one string.

    A string is sent between processes faster than a list of lists.
    """
    _handing_over.release()
    try:
        sentences, lines = tokenize_block(block, reading)
        return "\n".join(map(" ".join, sentences)), lines
    finally:
        _handing_over.acquire()


def _placed(block: TextBlock, sentences: list[list[str]], lines: Sequence[int]) -> TokenizedBlock:
    """Add its place to the result of a block, whose lines were counted from 0."""
    return TokenizedBlock(sentences, block.file, [block.line + line for line in lines])


def _run_in_pool(reading: Reading, blocks: Iterable[TextBlock], workers: int) -> Generator[TokenizedBlock]:
    # "fork" would copy locks that other threads hold at that moment (torch and NumPy have such threads).
    context = multiprocessing.get_context("spawn")
    if sys.platform == "win32":
        workers = min(workers, 61)  # Windows cannot wait for more processes
    stop, stopping = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_tokenizing, initargs=(stop,))
    on_the_way: deque[tuple[TextBlock, Future[tuple[str, Sequence[int]]]]] = deque()
    try:
        for block in blocks:
            with _held_interrupts():
                future = pool.submit(_tokenize_elsewhere, block, reading)
            # The text of the block is with its worker now, and not needed here.
            on_the_way.append((block._replace(text=""), future))
            # `pool.map` would read all blocks at once. A block for each worker and one more keep all of them busy, and
            # results are taken in the order of the text.
            if len(on_the_way) > workers + 1:
                yield _taken(*on_the_way.popleft())
        while on_the_way:
            yield _taken(*on_the_way.popleft())
    except BrokenProcessPool:
        raise ElmoError(
            "a process that tokenizes the text ended early: either memory ran out (use fewer workers), or a script "
            'calls this without `if __name__ == "__main__":`'
        ) from None
    except BaseException:  # Ctrl-C, or an error of whoever reads this, where the generator is closed
        stopping.close()  # without it, each worker would first finish the blocks that it has, which takes long
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        stopping.close()
        stop.close()


@contextmanager
def _held_interrupts() -> Generator[None]:
    """Have Ctrl-C wait until the end of the context, and never reach processes that are started in it.

    It would stop them with a traceback of their own while they import what they need.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _taken(block: TextBlock, result: Future[tuple[str, Sequence[int]]]) -> TokenizedBlock:
    joined, lines = result.result()
    # Tokens contain no whitespace (see `Tokenizer`), so that this gives back what was joined.
    sentences = list(map(str.split, joined.split("\n"))) if lines else []  # of "" it would make one sentence
    return _placed(block, sentences, lines)


def _start_tokenizing(stop: Connection) -> None:
    """Start a worker process that ends at once when the other end of `stop` is closed, wherever it is in a text."""
    start_worker()
    _handing_over.acquire()

    def end() -> None:
        wait([stop])
        _handing_over.acquire()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def start_worker() -> None:
    """Let a worker process leave Ctrl-C to the main process, and end when the main process ends."""
    # A terminal sends Ctrl-C to all processes at once. The main one then ends the others in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # If the main process is killed, it cannot end anybody, and workers would wait for their next block forever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
