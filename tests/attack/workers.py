"""Processes that run the cases, are killed when a case takes too long, and report the result of each case."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import ElmoError

FORK = multiprocessing.get_context("fork")
"""With fork, a child has all modules imported already, and starts within milliseconds."""


@dataclass
class Outcome:
    """The outcome of a case: its `result` in a word, the columns in which it `failed`, and what it `says` to people."""

    kind: str
    result: str = ""
    failed: list[str] = field(default_factory=list[str])
    says: str = ""


Handler = Callable[[int, Path], Outcome]
"""A function that runs the case of a number in an empty folder."""


@dataclass
class Part:
    """One of the four parts: its columns that must be 0, how long a case may take, and how a case is run."""

    name: str
    count: int
    columns: tuple[str, ...]
    seconds: float
    late: str
    """The column in which a case counts that took longer."""
    died: str
    """The column in which a case counts whose process died."""
    make: Callable[[Path, int], Handler]
    """The function that makes what all cases need, given a folder and a seed, and returns one that runs a case."""


@dataclass
class Row:
    """The outcomes of all cases of a part."""

    part: Part
    count: int = 0
    left: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])
    results: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0


def chance(seed: int, part: str, number: int) -> np.random.Generator:
    """Return the generator of a case's random numbers."""
    return np.random.default_rng([seed, *part.encode(), number])


def in_child(function: Callable[[], object]) -> None:
    """Call a function, which must succeed, in a child process, so that this one has no threads and can fork."""
    process = FORK.Process(target=function)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{function}: exit code {process.exitcode}")


def run_cases(part: Part, handle: Handler, numbers: Iterable[int], folder: Path, seed: int, until: float) -> Row:
    """Run cases in two processes until the time `until`, and print failures as they occur."""
    row, start = Row(part), time.monotonic()
    waiting = list(numbers)[::-1]
    workers: list[_Worker] = []
    while workers or (waiting and time.monotonic() < until):
        while waiting and len(workers) < 2 and time.monotonic() < until:
            workers.append(_Worker(handle, folder))
            workers[-1].give(waiting.pop(), part.seconds)
        wait([worker.connection for worker in workers], timeout=0.5)
        for worker in list(workers):
            outcome = worker.take(part)
            if outcome is None:
                continue
            _count(row, worker.number, outcome, seed)
            if worker.is_alive and not outcome.failed and waiting and time.monotonic() < until:
                worker.give(waiting.pop(), part.seconds)
            else:  # after a failure the next case gets a new process, because memory is measured by how it grows
                worker.end()
                workers.remove(worker)
    row.left, row.seconds = len(waiting), time.monotonic() - start
    return row


def _count(row: Row, number: int, outcome: Outcome, seed: int) -> None:
    row.count += 1
    row.results[f"{outcome.kind}: {outcome.result}"] += 1
    for column in outcome.failed:
        row.failed[column] += 1
    if outcome.failed:
        again = f"python -m attack --only {row.part.name} --seed {seed} --case {number}"
        print(f"{again}\n  {outcome.kind}: {', '.join(outcome.failed)}: {outcome.says}", flush=True)


class _Worker:
    """A process that runs one case after the other."""

    def __init__(self, handle: Handler, folder: Path) -> None:
        self.connection, theirs = FORK.Pipe()
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.process = FORK.Process(target=_serve, args=(theirs, handle, self.folder))
        self.process.start()
        theirs.close()
        self.number, self.deadline, self.is_alive = -1, 0.0, True

    def give(self, number: int, seconds: float) -> None:
        """Have a case run. It may take half as long again as `seconds`, for what the case itself does not count."""
        self.number, self.deadline = number, time.monotonic() + 1.5 * seconds + 20
        self.connection.send(number)

    def take(self, part: Part) -> Outcome | None:
        """Return the outcome of the case if there is one yet."""
        if self.connection.poll():
            try:
                found = self.connection.recv()
            except (EOFError, ConnectionResetError):
                self.process.join()
                self.is_alive = False
                return Outcome("?", "died", [part.died], f"its process died ({self.process.exitcode})")
            if isinstance(found, str):
                raise RuntimeError(f"case {self.number}: this program has a defect\n{found}")
            return found
        if time.monotonic() > self.deadline:
            self.is_alive = False
            return Outcome("?", "killed", [part.late], "had to be killed")
        return None

    def end(self) -> None:
        """End the process and all that it started."""
        with suppress(OSError):
            self.connection.send(None)
        self.process.join(0 if not self.is_alive else 5)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.join()
        shutil.rmtree(self.folder, ignore_errors=True)


def _serve(connection: Connection, handle: Handler, folder: Path) -> None:
    os.setsid()  # so that the processes that it starts can be ended together with it
    warnings.simplefilter("ignore")
    for number in iter(connection.recv, None):
        work = folder / "case"
        work.mkdir()
        tempfile.tempdir = str(folder)  # a case may set another one
        try:
            connection.send(handle(number, work))
        except BaseException:
            connection.send(traceback.format_exc())
            raise
        finally:
            os.chdir(folder)
            shutil.rmtree(work)


@dataclass
class Tried:
    """The result of a call: its `value`, or the sentence or traceback that it ended in, its time and memory (bytes)."""

    value: Any
    sentence: str
    traceback: str
    seconds: float
    memory: int


def try_call(function: Callable[[], object]) -> Tried:
    """Call a function that may fail, and measure its time and by how much memory this process grew at most."""
    peak, before, start = _peak(), _resident(), time.monotonic()
    value, sentence, trace = None, "", ""
    try:
        value = function()
    except ElmoError as error:
        sentence = str(error)
    except Exception:
        trace = traceback.format_exc()
    seconds, after = time.monotonic() - start, _peak()
    # a call that stays below an earlier peak took no more than the call that made it
    return Tried(value, sentence, trace, seconds, after - before if after > peak else 0)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def last_lines(text: str) -> str:
    """Return the end of a traceback, which says where the error was raised and what it is."""
    return " | ".join(line.strip() for line in text.strip().splitlines()[-3:])[-400:]


def start_child(function: Callable[[], object], folder: Path, log: Path) -> int:
    """Fork a child that calls `function` in `folder` and writes to `log`, and return its process id.

    It exits as the command `elmo` would.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.chdir(folder)
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        function()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def command(*arguments: str) -> Callable[[], None]:
    """Return a function that runs the command `elmo ARGUMENTS`, to be called in a child."""

    def call() -> None:
        from elmo.cli.main import main

        sys.argv = ["elmo", *arguments]
        main()

    return call


def exit_code(pid: int) -> int:
    """Wait for a child, and return its exit code, or minus the number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
