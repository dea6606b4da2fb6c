"""How many of the processor's cores this process may use."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def available_cores(root: Path = _ROOT) -> int:
    """The cores this process may run on, or fewer where a container limits its processor time; at least 1.

    A scheduler such as Slurm binds a job to some of the cores. Docker and Kubernetes mostly leave all cores visible
    and grant a quota of their time instead: with `--cpus 2`, more than two busy threads are only put to sleep. A
    fraction of a core is rounded up. `root` is the file system that is asked.
    """
    cores = bound_cores()
    quota = min(_quotas(root), default=math.inf)
    return cores if quota >= cores else max(1, math.ceil(quota))


def bound_cores() -> int:
    """The cores this process is bound to, which is how many threads torch starts with."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[float]:
    """The limits on processor time that Linux sets for the control groups of this process, in cores."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # another system, or one without control groups
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":  # version 2: one tree for all controllers
            yield from _quotas_of_groups(root / "sys/fs/cgroup", path)
        elif "cpu" in controllers.split(","):  # version 1: a tree for each controller, under the name of its mount
            for mount in dict.fromkeys((controllers, "cpu")):
                yield from _quotas_of_groups(root / "sys/fs/cgroup" / mount, path)


def _quotas_of_groups(tree: Path, path: str) -> Iterator[float]:
    """The limits of a group and of those around it. Inside a container the tree may begin at the container's own."""
    group = Path(path.lstrip("/"))
    for folder in (tree / group, *(tree / parent for parent in group.parents)):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue  # no such group, or no limit in it that this kernel tells
