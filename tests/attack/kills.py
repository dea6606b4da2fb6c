"""Commands that are killed at a random moment and started again."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from attack import models
from attack.models import PREPARE, PRETRAIN, TRAIN
from attack.trees import difference, names_in
from attack.workers import Handler, Outcome, Part, chance, command, exit_code, last_lines, start_child

UNFINISHED, DIFFERENT, LEFT, TRACEBACK = "not finished again", "different", "leftovers", "traceback"

MOST_KILLS = 3


@dataclass(frozen=True)
class Job:
    """A command and the target that it writes. If the target is complete, it `refuses` it or has nothing left to do."""

    target: str
    arguments: tuple[str, ...]
    refuses: bool = False


JOBS = (
    Job("target", ("convert", "one", "target"), refuses=True),
    Job("target", ("convert", "model", "target", "--to", "bilm"), refuses=True),
    Job("corpus", PREPARE, refuses=True),
    Job("target", ("index", "model", "text.txt", "target", "--device", "cpu"), refuses=True),
    Job("v.h5", ("embed", "model", "text.txt", "v.h5", "--device", "cpu", "--batch-size", "2"), refuses=True),
    Job("v.npz", ("embed", "model", "text.txt", "v.npz", "--device", "cpu", "--batch-size", "2"), refuses=True),
    Job("v.parquet", ("embed", "model", "text.txt", "v.parquet", "--device", "cpu", "--batch-size", "2"), refuses=True),
    Job("run", ("pretrain", "ready", *PRETRAIN[2:])),
    Job("run", TRAIN),
    Job("model", ("warm", "model", "text.txt", "--device", "cpu")),
    Job("types.txt", ("types", "model", "text.txt", "types.txt", "--device", "cpu", "--min-count", "1"), refuses=True),
    Job(
        "static.txt", ("static", "ready", "static.txt", "--dim", "8", "--epochs", "1", "--min-count", "1"), refuses=True
    ),
    Job("tuned", ("finetune", "model", "tuned", "text.txt", "--device", "cpu", "--epochs", "2")),
)


def _make_inputs(folder: Path) -> None:
    models.make_inputs(folder / "inputs")
    models.run_command(folder / "inputs", *PREPARE)
    (folder / "inputs" / "corpus").rename(folder / "inputs" / "ready")


def make(folder: Path, seed: int) -> Handler:
    """Make the inputs, and return a function that runs a case.

    A case kills a command up to three times, and compares its result with that of an undisturbed one.
    """
    models.make_all(_make_inputs, folder)

    @cache
    def undisturbed(job: Job) -> tuple[Path, float]:
        """Return the folder after an undisturbed run of the command, and the seconds that it took."""
        work = Path(tempfile.mkdtemp(dir=folder)) / "work"
        shutil.copytree(folder / "inputs", work)
        log, start = work.with_name("log"), time.monotonic()
        if exit_code(start_child(command(*job.arguments), work, log)):
            raise RuntimeError(f"{job.arguments}: {log.read_text()}")
        return work, time.monotonic() - start

    def handle(number: int, case: Path) -> Outcome:
        generator = chance(seed, PART.name, number)
        job = JOBS[number % len(JOBS)]
        wanted, seconds = undisturbed(job)
        work, log = case / "work", case / "log"
        shutil.copytree(folder / "inputs", work)
        kind = " ".join(job.arguments[:2]) if job.arguments[0] == "task" else job.arguments[0]
        moments = (generator.random(int(generator.choice([1, 1, 1, 2, MOST_KILLS]))) * seconds).tolist()
        code, num_kills = -1, 0
        for moment in moments:
            code = _killed(job, work, log, moment)
            num_kills += code == -signal.SIGKILL
        while_done = difference(work / job.target, wanted / job.target) == ""
        if code:
            code = exit_code(start_child(command(*job.arguments), work, log))
        text, failed = log.read_text(), list[str]()
        if "Traceback" in text:
            failed.append(TRACEBACK)
        # If it was killed after its last file and before its end, its target is complete, and may now be refused.
        if code and not (code == 2 and job.refuses and while_done):
            failed.append(UNFINISHED)
        elif different := difference(work / job.target, wanted / job.target):
            failed.append(DIFFERENT)
            text += f"\n{different}"
        left = {
            name
            for name in names_in(work) - names_in(wanted)
            if "/checkpoints/" not in name and "/tensorboard/" not in name
        }
        left |= {name for name in names_in(work) if name.endswith((".partial", ".lock"))}
        if left:
            failed.append(LEFT)
        says = f"killed after {[round(moment, 4) for moment in moments]} s: {sorted(left) or ''} {last_lines(text)}"
        return Outcome(kind, f"{num_kills} kills", failed, says)

    return handle


def _killed(job: Job, work: Path, log: Path, seconds: float) -> int:
    """Start the command, kill it after some time, and return its exit code, or minus the number of the signal."""
    child = start_child(command(*job.arguments), work, log)

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    # WNOWAIT keeps the process id from being used again, so that the timer cannot kill another process.
    status = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    timer.cancel()
    timer.join()
    assert status is not None
    return exit_code(child)


PART = Part("kills", 500, (UNFINISHED, DIFFERENT, LEFT, TRACEBACK), 60.0, UNFINISHED, TRACEBACK, make)
