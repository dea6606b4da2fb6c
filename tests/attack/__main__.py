"""Run the parts and print their table, as the docstring of the package describes."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

# This comes before torch is imported. The number of threads changes the rounding, and a process that has threads must
# not be forked.
os.environ["OMP_NUM_THREADS"] = "1"

import torch

from attack import hostile, kills, mutations, pairs
from attack.workers import Row, run_cases

PARTS = {part.name: part for part in (mutations.PART, hostile.PART, pairs.PART, kills.PART)}
MEMORY = Path("/dev/shm")
"""A folder in memory, used if the system has one. The library waits for its files to be on the disk, which is slow."""


def main() -> int:
    """Run the parts that are asked for, and return 0 if nothing failed and nothing was left out."""
    parser = argparse.ArgumentParser(prog="attack", description="The project's attack on itself.")
    parser.add_argument("--only", choices=PARTS, action="append", help="run this part alone; may be repeated")
    parser.add_argument("--count", type=int, help="cases of each part")
    parser.add_argument("--case", type=int, help="this one case alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0, help="of all parts together")
    parser.add_argument("--results", action="store_true", help="tell for each kind what came of its cases")
    options = parser.parse_args()
    torch.set_num_threads(1)
    until = time.monotonic() + 60 * options.minutes
    rows: list[Row] = []
    for part in [PARTS[name] for name in options.only or PARTS]:
        with tempfile.TemporaryDirectory(prefix="attack-", dir=MEMORY if MEMORY.is_dir() else None) as name:
            handle = part.make(Path(name) / "made", options.seed)
            numbers = range(options.count or part.count) if options.case is None else [options.case]
            (Path(name) / "work").mkdir()
            rows.append(run_cases(part, handle, numbers, Path(name) / "work", options.seed, until))
        if options.results or options.case is not None:
            print("\n".join(f"  {result}\t{count}" for result, count in sorted(rows[-1].results.items())))
    for row in rows:
        columns = "  ".join(f"{column} {row.failed[column]}" for column in row.part.columns)
        print(f"{row.part.name:<10} {row.count:>6}  {columns}  ({row.seconds:.0f} s)")
        if otherwise := sorted(result for result in row.results if ": otherwise: " in result):
            print("  loaded otherwise, having no checksum: " + "; ".join(otherwise).replace(": otherwise: ", ", "))
        if row.left:
            print(f"  {row.left} cases were left when the time was up")
    return int(any(row.left or row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
