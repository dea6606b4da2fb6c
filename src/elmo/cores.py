"""Finds out how many of the machine's cores this process may use."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def available_cores(root: Path = _ROOT) -> int:
    """Return how many cores this process can make use of, which is at least 1.

    That is the number of cores it is bound to, or fewer if a container limits its processor time. A scheduler such as
    Slurm binds a job to some of the cores. Docker and Kubernetes usually leave all cores visible and limit processor
    time instead: with `--cpus 2`, any more than two busy threads are only put to sleep. A fraction of a core is
    rounded up.

    Args:
        root: The root of the file system whose `proc` and `sys` are read.
    """
    cores = bound_cores()
    quota = min(_quotas(root), default=math.inf)
    return cores if quota >= cores else max(1, math.ceil(quota))


def bound_cores() -> int:
    """Return how many cores this process is bound to. Torch starts as many threads, or with MKL `physical_cores`."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_cores(root: Path = _ROOT) -> int:
    """Return the number of physical cores this process may run on. Some processors present each of them as two.

    Two threads on one core share its arithmetic, so computing gains nothing from a second one.

    Args:
        root: The root of the file system whose `sys` is read.
    """
    if sys.platform != "linux":
        return bound_cores()
    cores: set[str] = set()
    for number in os.sched_getaffinity(0):
        try:
            topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
            cores.add((topology / "thread_siblings_list").read_text(encoding="utf-8"))
        except OSError:  # a kernel that does not tell
            return bound_cores()
    return len(cores)


def _quotas(root: Path) -> Iterator[float]:
    """Yield the limits on processor time, in cores, that Linux sets for the control groups of this process."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # another system, or one without control groups
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":  # version 2: a single tree for all controllers
            yield from _quotas_of_groups(root / "sys/fs/cgroup", path)
        elif "cpu" in controllers.split(","):  # version 1: one tree for each controller, by mount
            for mount in dict.fromkeys((controllers, "cpu")):
                yield from _quotas_of_groups(root / "sys/fs/cgroup" / mount, path)


def _quotas_of_groups(tree: Path, path: str) -> Iterator[float]:
    """Yield the limits of a group and of those that contain it. In a container, the tree may start at its own group."""
    group = Path(path.lstrip("/"))
    for folder in (tree / group, *(tree / parent for parent in group.parents)):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
            else:
                quota, period = (
                    (folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8").strip() for name in ("quota", "period")
                )
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue  # no such group, or no limit that this kernel reports
