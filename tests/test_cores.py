"""Threads and processes are as many as the process may use, not as many as the machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmo import cores

Files = dict[str, str]

NO_LIMIT: list[Files] = [
    {},
    {"proc/self/cgroup": "0::/\n"},
    {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"},
    {"proc/self/cgroup": "1:cpu:/a\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n"},
    {"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/cpu.max": "100000 100000\n"},
    {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "something new\n"},
]
LIMITS: list[tuple[Files, int]] = [
    # version 2, as Docker shows it inside a container, and as systemd nests groups: the tightest one counts
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
    ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}, 3),
    (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
        },
        1,
    ),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 3),
    # version 1: mounts of two names, and the path of the host, which a container doesn't see
    (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/0123\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
        2,
    ),
    (
        {
            "proc/self/cgroup": "5:cpuacct,cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        4,
    ),
]


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "bound_cores", lambda: 8)


def write(root: Path, files: Files) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("files", NO_LIMIT)
def test_without_a_quota_all_cores_count(files: Files, tmp_path: Path) -> None:
    assert cores.available_cores(write(tmp_path, files)) == 8


@pytest.mark.parametrize(("files", "expected"), LIMITS)
def test_a_quota_counts_in_cores(files: Files, expected: int, tmp_path: Path) -> None:
    assert cores.available_cores(write(tmp_path, files)) == expected


COUNT_THREADS = """
import sys, torch
from elmo import cores
from elmo.nn import devices
devices.bound_cores = lambda: torch.get_num_threads()
devices.available_cores = lambda: 1
if "set" in sys.argv:
    torch.set_num_threads(3)
    devices.bound_cores = lambda: 2
devices.find_device("cpu")
print(torch.get_num_threads())
torch.set_num_threads(2)
devices.find_device("cpu")
print(torch.get_num_threads())
"""


@pytest.mark.parametrize(
    ("variables", "arguments", "expected"),
    [({}, [], "1 2"), ({}, ["set"], "3 2"), ({"OMP_NUM_THREADS": "2"}, [], "2 2")],
    ids=["lowered", "set in the program", "set in the environment"],
)
def test_torch_keeps_to_the_quota_unless_somebody_chose_a_number(
    variables: dict[str, str], arguments: list[str], expected: str
) -> None:
    rest = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [sys.executable, "-c", COUNT_THREADS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=rest | variables)
    assert done.stdout.split() == expected.split()


def test_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of a processor's eight, on two cores; where the system does not tell, all are counted."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 4, 5}, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cores.physical_cores(tmp_path) == 8
    for number in range(8):
        path = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(f"{number % 4},{number % 4 + 4}\n")
    assert cores.physical_cores(tmp_path) == 2
