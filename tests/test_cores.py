"""The number of threads and processes follows the cores that this process may use, not those of the machine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from elmo import cores
from elmo.cores import bound_cores  # itself, not what the fixture below puts in its place
from elmo.nn import devices
from threads import torch_threads

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
    # Control groups of version 2, as Docker shows them in a container and as systemd nests them. The tightest counts.
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
    # Control groups of version 1, with mounts of two names and with a path of the host, which a container doesn't see.
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


def test_only_cores_that_this_process_may_run_on_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system can't say which these are, all of the machine count."""
    monkeypatch.setattr("os.cpu_count", lambda: 128)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {3, 5, 8}, raising=False)
    for platform, expected in (("linux", 3), ("darwin", 128)):
        monkeypatch.setattr(sys, "platform", platform)
        assert bound_cores() == expected


@pytest.mark.parametrize("files", NO_LIMIT)
def test_without_a_quota_all_cores_count(files: Files, tmp_path: Path) -> None:
    assert cores.available_cores(write(tmp_path, files)) == 8


@pytest.mark.parametrize(("files", "expected"), LIMITS)
def test_a_quota_counts_in_cores(files: Files, expected: int, tmp_path: Path) -> None:
    assert cores.available_cores(write(tmp_path, files)) == expected


@pytest.fixture
def fresh_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return `elmo.nn.devices` as it is in a new process, where torch has started a thread for each of four cores."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert devices.__spec__ is not None
    assert devices.__spec__.loader is not None
    module = importlib.util.module_from_spec(devices.__spec__)
    devices.__spec__.loader.exec_module(module)
    monkeypatch.setattr(module, "bound_cores", lambda: 4)
    monkeypatch.setattr(module, "physical_cores", lambda: 4)
    monkeypatch.setattr(module, "available_cores", lambda: 1)
    monkeypatch.setattr(module, "used_threads", lambda: None)  # another test may have chosen a number
    with torch_threads(4):
        yield module


@pytest.mark.parametrize(
    ("variable", "in_program", "expected"),
    [(None, None, 1), (None, 3, 3), ("OMP_NUM_THREADS", None, 4), ("MKL_NUM_THREADS", None, 4)],
    ids=["lowered", "set in the program", "set in the environment", "set for MKL"],
)
def test_torch_keeps_to_the_quota_unless_somebody_chose_a_number(
    fresh_devices: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    in_program: int | None,
    expected: int,
) -> None:
    """A number of threads that is set later is kept in any case."""
    if variable is not None:
        monkeypatch.setenv(variable, "4")
    if in_program is not None:
        torch.set_num_threads(in_program)
    fresh_devices.find_device("cpu")
    assert torch.get_num_threads() == expected
    torch.set_num_threads(2)
    fresh_devices.find_device("cpu")
    assert torch.get_num_threads() == 2


def test_torch_keeps_to_the_quota_where_it_has_a_thread_for_each_physical_core(
    fresh_devices: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch with MKL starts no more, even if each core can run two threads."""
    monkeypatch.setattr(fresh_devices, "bound_cores", lambda: 8)
    fresh_devices.find_device("cpu")
    assert torch.get_num_threads() == 1


def test_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four threads that may be used are on two cores. If the system does not say which are, all eight count."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 4, 5}, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cores.physical_cores(tmp_path) == 8
    for number in range(8):
        path = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(f"{number % 4},{number % 4 + 4}\n")
    assert cores.physical_cores(tmp_path) == 2


@pytest.mark.parametrize(("granted", "expected"), [(4, 2), (1, 1)], ids=["no quota", "a quota below"])
def test_torch_never_gets_more_threads_than_it_has(
    fresh_devices: ModuleType, monkeypatch: pytest.MonkeyPatch, granted: int, expected: int
) -> None:
    """On two cores with two threads each, torch with MKL starts two threads. More would only share their arithmetic."""
    monkeypatch.setattr(fresh_devices, "physical_cores", lambda: 2)
    monkeypatch.setattr(fresh_devices, "available_cores", lambda: granted)
    torch.set_num_threads(2)
    fresh_devices.find_device("cpu")
    assert torch.get_num_threads() == expected
