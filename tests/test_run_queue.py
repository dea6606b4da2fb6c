"""The queue makes long runs in order, a few at a time, and continues after it was stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "experiments" / "run_queue.py"
PATIENCE = 60.0  # seconds; no test waits so long unless something hangs


class Queue:
    """A list of runs, its folder, and the script."""

    def __init__(self, folder: Path) -> None:
        self.list, self.folder, self.here = folder / "runs.yaml", folder / "queue", folder

    def write(self, *runs: dict[str, Any]) -> None:
        self.list.write_text(yaml.safe_dump(list(runs)))

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(SCRIPT), str(self.list), str(self.folder), *options]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=self.here)

    def run(self, *options: str) -> tuple[int, str]:
        process = self.start(*options)
        output, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, output + errors

    def state(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / f"{name}.json").read_text())


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def append(word: str) -> str:
    return f"sh -c 'echo {word} >> order.txt; echo said {word}'"


def test_runs_are_made_in_order_and_only_once(queue: Queue) -> None:
    queue.write(
        {"name": "one", "command": append("one"), "hours": 2},
        {"name": "two", "command": append("two"), "after": ["one"]},
    )
    code, output = queue.run("--jobs", "2")
    assert code == 0
    assert output.endswith("0.0 hours left, 2 at a time\n")
    assert (queue.folder / "two.log").read_text() == "said two\n"
    assert queue.run()[0] == 0
    assert (queue.here / "order.txt").read_text() == "one\ntwo\n", "neither ran twice"


def test_python_and_the_repository_are_those_of_the_queue(queue: Queue) -> None:
    """A list names neither, so that it can be run on every machine."""
    queue.write({"name": "one", "command": """python -c "import sys; print(sys.executable, '{root}', sep=chr(10))" """})
    assert queue.run()[0] == 0
    assert (queue.folder / "one.log").read_text().splitlines() == [sys.executable, str(SCRIPT.parents[2])]


def test_the_list_of_the_papers_tasks_can_be_run(queue: Queue) -> None:
    queue.list = SCRIPT.with_name("table_one.yaml")
    code, output = queue.run("--status", "--jobs", "2")
    assert code == 0, output
    assert output.splitlines()[0].endswith("next")


def test_the_status_names_the_next_run_and_the_hours_left(queue: Queue) -> None:
    queue.write(
        {"name": "one", "command": append("one"), "hours": 3},
        {"name": "two", "command": append("two"), "hours": 5},
    )
    code, output = queue.run("--status", "--jobs", "1")
    assert code == 0
    assert [line.split()[-1] for line in output.splitlines()[:2]] == ["next", "waiting"]
    assert "8.0 hours left, 1 at a time" in output
    assert not (queue.here / "order.txt").exists()


def test_a_run_that_failed_is_tried_again_and_those_after_it_wait(queue: Queue) -> None:
    queue.write(
        {"name": "one", "command": "sh -c 'test -e there'"},
        {"name": "two", "command": append("two"), "after": ["one"]},
        {"name": "three", "command": append("three")},
    )
    code, output = queue.run()
    assert code == 1
    assert "failed with exit code 1; see" in output
    assert "can't start, because one failed" in queue.run("--status")[1]
    assert (queue.here / "order.txt").read_text() == "three\n"
    (queue.here / "there").touch()
    assert queue.run()[0] == 0
    assert (queue.here / "order.txt").read_text() == "three\ntwo\n"


def test_a_run_that_was_stopped_has_not_failed(queue: Queue) -> None:
    """`elmo` ends with 75 if a signal from outside of the queue stops it. The queue continues it at its next start."""
    queue.write(
        {"name": "one", "command": "sh -c 'test -e there || exit 75'"},
        {"name": "two", "command": append("two"), "after": ["one"]},
    )
    code, output = queue.run()
    assert code == 1
    assert "two: not started, because a run that it waits for did not finish" in output
    assert "failed" not in queue.run("--status")[1]
    (queue.here / "there").touch()
    assert queue.run()[0] == 0
    assert (queue.here / "order.txt").read_text() == "two\n"


def test_a_stopped_queue_stops_its_runs_and_can_be_continued(queue: Queue) -> None:
    """The run saves on SIGTERM, as our trainings do. When it is started again, it only succeeds if it had saved."""
    on_stop = 'trap "touch saved; exit 143" TERM'
    saves = f"sh -c 'test -e saved && exit 0; {on_stop}; touch begun; while :; do sleep 0.05; done'"
    queue.write({"name": "one", "command": saves})
    process = queue.start()
    wait_for((queue.here / "begun").exists)
    assert "running" in queue.run("--status")[1]
    assert queue.run()[0] == 2, "two queues would start each run twice"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert (queue.here / "saved").exists()
    assert queue.state("one")["exit_code"] is None
    assert queue.run()[0] == 0
    assert queue.state("one")["exit_code"] == 0


def test_what_a_killed_run_has_started_is_stopped(queue: Queue) -> None:
    """The run is killed. Its child would go on alone, next to the same run once the queue is started again."""
    queue.write({"name": "one", "command": "sh run.sh"})
    (queue.here / "child.sh").write_text("trap 'touch stopped; exit' TERM\ntouch begun\nwhile :; do sleep 0.05; done\n")
    (queue.here / "run.sh").write_text("echo $$ > pid\nsh child.sh &\nwait\n")
    process = queue.start()
    wait_for((queue.here / "begun").exists)
    os.kill(int((queue.here / "pid").read_text()), signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    wait_for((queue.here / "stopped").exists)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux, which tells in /proc that a run ended")
def test_a_run_that_ends_while_the_queue_is_stopped_is_done(queue: Queue) -> None:
    """The queue is suspended until the run has ended, and is then asked to stop."""
    queue.write({"name": "one", "command": "sh -c 'echo $$ > new; mv new pid; kill -STOP $PPID'"})
    process = queue.start()
    wait_for((queue.here / "pid").exists)
    state = Path("/proc", (queue.here / "pid").read_text().strip(), "stat")
    wait_for(lambda: state.read_text().split()[2] == "Z")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert queue.state("one")["exit_code"] == 0


def test_the_status_says_what_runs_and_what_waits_for_it(queue: Queue) -> None:
    """A run that was stopped earlier is not shown as running until the queue starts it again."""
    waits = "sh -c 'touch begun; while :; do sleep 0.05; done'"
    queue.write(
        {"name": "one", "command": waits},
        {"name": "two", "command": "true", "after": ["one"]},
        {"name": "three", "command": "true"},
    )
    queue.folder.mkdir()
    (queue.folder / "three.json").write_text(json.dumps({"command": "true", "seconds": 5.0, "exit_code": None}))
    process = queue.start()
    wait_for((queue.here / "begun").exists)
    lines = queue.run("--status")[1].splitlines()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert [line.split(" h  ")[1] for line in lines[:3]] == ["running", "waiting for one", "waiting"]
    lines = queue.run("--status")[1].splitlines()
    assert [line.split(" h  ")[1] for line in lines[:3]] == ["next", "waiting for one", "waiting"]


def test_after_a_kill_no_run_works_twice(queue: Queue) -> None:
    queue.write({"name": "one", "command": "sh -c 'test -e pid && exit 0; echo $$ > new; mv new pid; sleep 600'"})
    process = queue.start()
    wait_for((queue.here / "pid").exists)
    process.kill()
    process.communicate(timeout=PATIENCE)
    code, output = queue.run()
    assert code == 2
    assert "a run left by one, is working here" in output
    os.killpg(int((queue.here / "pid").read_text()), signal.SIGKILL)
    wait_for(lambda: queue.run()[0] == 0)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "expected a list of runs"),
        ([{"name": "one"}], "run 1: expected the keys name and command"),
        ([{"name": "../one", "command": "true"}], "run 1: name: '../one' is also the name of files"),
        ([{"name": "one", "command": "echo 'a"}], "run 1: command: No closing quotation in"),
        ([{"name": "one", "command": "true", "hours": "long"}], "run 1: hours: expected a number, found 'long'"),
        ([{"name": "one", "command": "true"}] * 2, "'one' is listed twice"),
        ([{"name": "one", "command": "true", "after": ["two"]}], "waits for 'two', which must be listed before it"),
    ],
)
def test_a_wrong_list_is_refused(queue: Queue, runs: list[dict[str, Any]], message: str) -> None:
    queue.write(*runs)
    code, output = queue.run()
    assert code == 2
    assert message in output
    assert not queue.folder.exists()


def test_a_folder_that_cannot_be_made_is_refused(queue: Queue) -> None:
    queue.write({"name": "one", "command": "true"})
    queue.folder.touch()
    code, output = queue.run()
    assert code == 2
    assert f"{queue.folder}: can't be made (File exists)" in output


def test_another_command_under_the_same_name_is_refused(queue: Queue) -> None:
    queue.write({"name": "one", "command": "true"})
    assert queue.run()[0] == 0
    queue.write({"name": "one", "command": "false"})
    code, output = queue.run()
    assert code == 2
    assert "was made by another command" in output
