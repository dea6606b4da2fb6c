"""Small valid files with a few bits or pieces changed."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from attack import models
from attack.models import SUBJECTS, Subject
from attack.trees import names_in, snapshot
from attack.workers import Handler, Outcome, Part, chance, last_lines, try_call

SECONDS = 10.0
TRACEBACK, SLOW, MEMORY, SILENT, LEFT = "traceback", "over 10 s", "memory", "silent change", "left or changed"

RUNS = ("pretraining", "index", "task")
"""Subjects that take the longest to load, and so are tried less often than the others."""

UNREAD = ("README.md",)
"""Files that are only for people and are never loaded."""


def make(folder: Path, seed: int) -> Handler:
    """Make the valid files, and return a function that mutates one of them and loads it."""
    models.make_all(models.make_subjects, folder)

    @cache
    def wanted(subject: Subject) -> str:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            shutil.copytree(folder / subject.name, Path(name) / "copy")
            return subject.digest(Path(name) / "copy" / subject.target)

    def handle(number: int, work: Path) -> Outcome:
        generator = chance(seed, PART.name, number)
        weights = np.array([1 if subject.name in RUNS else 4 for subject in SUBJECTS], float)
        subject = SUBJECTS[int(generator.choice(len(SUBJECTS), p=weights / weights.sum()))]
        before = wanted(subject)
        shutil.copytree(folder / subject.name, work / "copy")
        file = _choose(work / "copy" / subject.target, generator)
        name, data = file.relative_to(work / "copy").as_posix(), file.read_bytes()
        kind, changed = mutate(data, generator)
        file.write_bytes(changed)
        tempfile.tempdir = str(work / "temporary")
        (work / "temporary").mkdir(exist_ok=True)
        all_before = names_in(work) if subject.writes else snapshot(work)
        tried = try_call(lambda: subject.digest(work / "copy" / subject.target))
        failed: list[str] = []
        result = "refused" if tried.sentence else "as before" if tried.value == before else f"otherwise: {file.name}"
        if tried.traceback or "\n" in tried.sentence:
            result = "traceback"
            failed.append(TRACEBACK)
        elif result.startswith("otherwise") and any(end in name for end in subject.checked):
            failed.append(SILENT)
        if tried.seconds > SECONDS:
            failed.append(SLOW)
        if tried.memory > 8 * len(changed) + (64 << 20):
            failed.append(MEMORY)
        if subject.writes:
            left = [name for name in names_in(work) - all_before if "partial" in name or name.startswith("temporary/")]
        else:
            after = snapshot(work)
            left = [name for name in after | all_before if after.get(name) != all_before.get(name)]
        if left:
            failed.append(LEFT)
        says = f"{name}, {kind}: {last_lines(tried.traceback) or tried.sentence or result} {left or ''} {tried.memory}"
        return Outcome(subject.name, result, failed, says)

    return handle


def _choose(target: Path, generator: np.random.Generator) -> Path:
    """Return one of the files that are read. Small ones, such as settings, are as likely as large ones."""
    if target.is_file():
        found = [path for path in target.parent.iterdir() if path.name not in UNREAD]
    else:
        found = [path for path in target.rglob("*") if path.is_file() and path.name not in UNREAD]
    found = sorted(path for path in found if "tensorboard" not in path.parts and path.stat().st_size)
    return found[int(generator.integers(len(found)))]


def mutate(data: bytes, generator: np.random.Generator) -> tuple[str, bytes]:
    """Change data in one of six ways at random, and return what was done and the changed data."""
    while True:
        kind, changed = _mutate_once(data, generator)
        if changed != data:
            return kind, changed


def _mutate_once(data: bytes, generator: np.random.Generator) -> tuple[str, bytes]:
    size = len(data)
    head = int(generator.integers(2))  # half of all changes are in the first bytes, where many formats have a header
    place = int(generator.integers(min(size, 256) if head else size))
    length = int(generator.integers(1, min(64, size) + 1))
    match int(generator.integers(6)):
        case 0:
            out = bytearray(data)
            for _ in range(int(generator.integers(1, 5))):
                out[place] ^= 1 << int(generator.integers(8))
                place = int(generator.integers(size))
            return f"bits flipped to {place}", bytes(out)
        case 1:
            return f"cut off at {place}", data[:place]
        case 2:
            return f"{length} bytes put in at {place}", data[:place] + generator.bytes(length) + data[place:]
        case 3:
            return f"{length} bytes taken out at {place}", data[:place] + data[place + length :]
        case 4:
            other = int(generator.integers(size))
            first, second = sorted((place, other))
            length = min(length, second - first, size - second)
            one, two = data[first : first + length], data[second : second + length]
            swapped = data[:first] + two + data[first + length : second] + one + data[second + length :]
            return f"{length} bytes swapped at {first} and {second}", swapped
        case _:
            return f"{length} bytes doubled at {place}", data[: place + length] + data[place:]


PART = Part("mutations", 10_000, (TRACEBACK, SLOW, MEMORY, SILENT, LEFT), SECONDS, SLOW, TRACEBACK, make)
