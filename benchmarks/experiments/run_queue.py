"""Work through a list of long runs in the background, and say what is done, what runs and how many hours are left.

    nohup python benchmarks/experiments/run_queue.py runs.yaml queue/ --jobs 2 &
    python benchmarks/experiments/run_queue.py runs.yaml queue/ --status

`runs.yaml` lists the runs in the order in which they start:

    - name: wnut17
      command: python {root}/benchmarks/experiments/paper_tasks.py runs/ --elmo en --only wnut17 --seeds 3
      hours: 4          # an estimate of the whole run, for the hours left
    - name: wnut17-page
      command: python {root}/benchmarks/pages/results.py results.md
      after: [wnut17]   # starts when these are done

`{root}` is the folder of this repository, and `python` the one that runs the queue. Other paths are taken from the
current folder. `table_one.yaml` is the list of what docs/results.md still lacks.

Each run has one thread and the lowest priority. Its output is appended to `queue/NAME.log`, and `queue/NAME.json` has
its state. A queue that was killed can be started again: it skips finished runs and repeats the commands of the others,
which have to continue where they stopped, as ours do. A failed run is tried once more each time the queue is started.
A run is finished when its command ends with exit code 0. With exit code 75, `elmo` and the scripts here say that they
were stopped: such a run is continued when the queue is started again.
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
STOPPED = 75  # the exit code of what was stopped and can be continued
SAVE_SECONDS = 60  # how much of a run's time may be lost if the queue is killed


@dataclass(frozen=True)
class Run:
    """One entry of the list; `hours` is an estimate, 0 where none is given."""

    name: str
    command: str
    hours: float = 0.0
    after: tuple[str, ...] = ()


@dataclass
class State:
    """The state of a run: its command, the seconds spent on it so far, and its exit code if it has ended.

    `is_running` says whether a queue has started it and not stopped it since. It stays true if the queue is killed.
    """

    command: str
    seconds: float = 0.0
    exit_code: int | None = None
    is_running: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the run ended without an error."""
        return self.exit_code == 0


@dataclass
class Job:
    """A run that is running. `earlier_seconds` were spent on it before this queue started it."""

    run: Run
    process: subprocess.Popen[bytes]
    earlier_seconds: float
    start: float

    @property
    def seconds(self) -> float:
        """The seconds spent on the run so far."""
        return self.earlier_seconds + time.monotonic() - self.start


class ListError(Exception):
    """The list of runs, or the state of one, can't be used. The message says why."""


def read_runs(path: Path) -> list[Run]:
    """Read the runs of a list, each after those that it waits for.

    Raises:
        ListError: If the file is not such a list, or if a name occurs twice or is unknown.
    """
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ListError(f"{path}: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise ListError(f"{path}: expected a list of runs, each with 'name' and 'command'")
    runs = [_read_run(path, number, entry) for number, entry in enumerate(entries, start=1)]
    earlier: set[str] = set()
    for run in runs:
        if run.name in earlier:
            raise ListError(f"{path}: {run.name!r} is listed twice; give each run a name of its own")
        if unknown := [name for name in run.after if name not in earlier]:
            raise ListError(f"{path}: {run.name!r} waits for {unknown[0]!r}, which must be listed before it")
        earlier.add(run.name)
    return runs


def _read_run(path: Path, number: int, entry: Any) -> Run:
    where = f"{path}: run {number}"
    keys = [field.name for field in dataclasses.fields(Run)]
    if not isinstance(entry, dict) or not {"name", "command"} <= entry.keys() <= set(keys):
        raise ListError(f"{where}: expected the keys name and command, and hours and after where needed")
    name, command, hours, after = (entry.get(key, default) for key, default in zip(keys, ("", "", 0, []), strict=True))
    if not isinstance(name, str) or not name or not name.replace("-", "").replace("_", "").isalnum():
        raise ListError(f"{where}: name: {name!r} is also the name of files; use letters, digits, '-' and '_'")
    if not isinstance(command, str) or not command.strip():
        raise ListError(f"{where}: command: expected what you would type, found {command!r}")
    try:
        shlex.split(command)
    except ValueError as error:
        raise ListError(f"{where}: command: {error} in {command!r}") from None
    if not isinstance(hours, int | float) or not 0 <= hours < float("inf"):
        raise ListError(f"{where}: hours: expected a number, found {hours!r}")
    if not isinstance(after, list) or not all(isinstance(other, str) for other in after):
        raise ListError(f"{where}: after: expected a list of names, found {after!r}")
    return Run(name, command, float(hours), tuple(after))


def read_state(run: Run, folder: Path) -> State:
    """Read the state of a run. A state of another command is an error, since it belongs to another result."""
    path = folder / f"{run.name}.json"
    if not path.exists():
        return State(run.command)
    try:
        state = State(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ListError(f"{path}: is damaged ({error}); remove it to run {run.name!r} again") from error
    if state.command != run.command:
        raise ListError(f"{path}: was made by another command; remove it, or give the run another name")
    return state


def write_state(run: Run, folder: Path, state: State) -> None:
    """Write the state of a run. A kill leaves either the earlier file or the new one."""
    temporary = folder / f".{run.name}.json"
    temporary.write_text(json.dumps(dataclasses.asdict(state)) + "\n", encoding="utf-8")
    temporary.replace(folder / f"{run.name}.json")


def describe(runs: Sequence[Run], folder: Path, jobs: int) -> str:
    """Describe each run on a line, and the hours left if `jobs` of them run at a time."""
    lines: list[str] = []
    left = 0.0
    states = {run.name: read_state(run, folder) for run in runs}
    blocked = {name for name, state in states.items() if state.exit_code}
    is_working = _is_locked(folder)
    free = jobs - (sum(state.is_running for state in states.values()) if is_working else 0)
    for run in runs:
        state = states[run.name]
        hours = state.seconds / 3600
        if not state.is_done:
            left += max(run.hours - hours, 0.0)
        if state.is_done:
            text = "done"
        elif state.exit_code is not None:
            text = f"failed with exit code {state.exit_code}; see {folder / run.name}.log"
        elif is_working and state.is_running:
            text = "running"
        elif failed := blocked.intersection(run.after):
            text = f"can't start, because {', '.join(sorted(failed))} failed or can't start"
            blocked.add(run.name)
        elif unfinished := [name for name in run.after if not states[name].is_done]:
            text = f"waiting for {', '.join(unfinished)}"
        else:
            text = "next" if free > 0 else "waiting"
            free -= 1
        lines.append(f"{run.name:30} {hours:6.1f} of {run.hours:5.1f} h  {text}")
    return "\n".join([*lines, f"{left / jobs:.1f} hours left, {jobs} at a time"])


def work(runs: Sequence[Run], folder: Path, jobs: int) -> bool:
    """Run what isn't done, `jobs` at a time, and return whether all of it ended without errors."""
    running: list[Job] = []
    saved = time.monotonic()
    with _locked(folder) as lock, _noting_signals() as signals, _stopping(running, folder):
        states = {run.name: read_state(run, folder) for run in runs}
        waiting = [run for run in runs if not states[run.name].is_done]
        for run in waiting:  # an earlier queue failed to finish it, or was killed while it ran
            states[run.name] = State(run.command, states[run.name].seconds)
            write_state(run, folder, states[run.name])
        while (waiting or running) and not signals:
            ended = {run.name for run in runs} - {run.name for run in waiting} - {job.run.name for job in running}
            for run in [run for run in waiting if ended.issuperset(run.after)]:
                if not all(states[name].is_done for name in run.after):
                    waiting.remove(run)
                    print(f"{run.name}: not started, because a run that it waits for did not finish", flush=True)
                elif len(running) < jobs:
                    waiting.remove(run)
                    running.append(_start(run, folder, states[run.name], lock))
            time.sleep(0.1)
            is_due = time.monotonic() - saved > SAVE_SECONDS
            for job in list(running):
                exit_code = job.process.poll()
                has_ended = exit_code is not None
                state = _state_of(job, exit_code, is_running=not has_ended)
                if has_ended:
                    running.remove(job)
                    _terminate(job)  # what it has started, if it was killed itself
                    print(f"{job.run.name}: exit code {exit_code}, {job.seconds / 3600:.2f} h", flush=True)
                if is_due or has_ended:
                    states[job.run.name] = state
                    write_state(job.run, folder, state)
            saved = time.monotonic() if is_due else saved
    if signals:
        raise SystemExit(128 + signals[0])
    return all(state.is_done for state in states.values())


def _start(run: Run, folder: Path, state: State, lock: int) -> Job:
    """Start a run in a session of its own, so that Ctrl-C reaches it only once, through the queue.

    The run holds the lock, too. If the queue is killed, no other queue can start the run while it is still running.
    """
    write_state(run, folder, State(run.command, state.seconds, is_running=True))
    program, *words = [word.replace("{root}", str(ROOT)) for word in shlex.split(run.command)]
    with (folder / f"{run.name}.log").open("ab") as log:
        process = subprocess.Popen(
            ["nice", "-n", "19", sys.executable if program == "python" else program, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            pass_fds=[lock],
        )
    print(f"{run.name}: started", flush=True)
    return Job(run, process, state.seconds, time.monotonic())


@contextmanager
def _noting_signals() -> Generator[list[int]]:
    """Yield a list to which SIGINT and SIGTERM add their numbers.

    The queue looks at the list between its steps. A handler that raised an exception could do so between the start of
    a run and the line that notes it.
    """
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _stopping(running: Sequence[Job], folder: Path) -> Generator[None]:
    """Stop the runs that are left at the end, and wait until they have saved their state.

    The exit code of a run that has already ended is kept. After SIGTERM it says nothing.
    """
    try:
        yield
    finally:
        exit_codes = [job.process.poll() for job in running]
        for job in running:
            _terminate(job)
        for job, exit_code in zip(running, exit_codes, strict=True):
            job.process.wait()
            write_state(job.run, folder, _state_of(job, exit_code))


def _state_of(job: Job, exit_code: int | None, *, is_running: bool = False) -> State:
    """Return the state of a run. One that was stopped has not ended."""
    return State(job.run.command, round(job.seconds, 1), None if exit_code == STOPPED else exit_code, is_running)


def _terminate(job: Job) -> None:
    """Send SIGTERM to a run and all that it has started, if they still exist."""
    with suppress(ProcessLookupError):
        os.killpg(job.process.pid, signal.SIGTERM)


def _is_locked(folder: Path) -> bool:
    """Return whether a queue is running in this folder."""
    try:
        with _locked(folder, fcntl.LOCK_SH):  # several may ask at the same time
            return False
    except ListError:
        return True


@contextmanager
def _locked(folder: Path, kind: int = fcntl.LOCK_EX) -> Generator[int]:
    """Keep other queues out of this folder, and yield the descriptor that holds the lock."""
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError as error:
            raise ListError(f"{folder}: another queue, or a run left by one, is working here; see --status") from error
        yield file.fileno()


def main() -> None:
    """Print the state of the runs, or work through them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the list of runs")
    parser.add_argument("folder", type=Path, help="where logs and states are")
    parser.add_argument(
        "--jobs", type=int, default=1, help="how many runs are started at a time (default: %(default)s)"
    )
    parser.add_argument("--status", action="store_true", help="print the state of the runs, and start nothing")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error("--jobs: expected at least 1")
    try:
        runs = read_runs(arguments.runs)
        try:
            arguments.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ListError(f"{arguments.folder}: can't be made ({error.strerror})") from None
        if arguments.status:
            print(describe(runs, arguments.folder, arguments.jobs))
            return
        is_done = work(runs, arguments.folder, arguments.jobs)
    except ListError as error:
        parser.error(str(error))
    print(describe(runs, arguments.folder, arguments.jobs))
    sys.exit(0 if is_done else 1)


if __name__ == "__main__":
    main()
