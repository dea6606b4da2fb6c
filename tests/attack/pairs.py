"""Two processes that write the same target at once."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import elmo
from attack import models
from attack.models import PRETRAIN, TRAIN
from attack.trees import difference, names_in
from attack.workers import Handler, Outcome, Part, chance, command, exit_code, last_lines, start_child

MIXED, UNLOADABLE, TRACEBACK, LEFT, CODES = "mixed", "unloadable", "traceback", "leftovers", "exit codes"

Call = Callable[[], object]


@dataclass(frozen=True)
class Pair:
    """Two calls that write the same `target`."""

    name: str
    target: str
    calls: tuple[Call, Call]


def _save(source: str) -> Call:
    def call() -> None:
        try:
            elmo.Elmo.from_pretrained(source, 1).save_pretrained("target")
        except elmo.ElmoError as error:
            print(f"elmo: {error}", flush=True)
            raise SystemExit(2) from None

    return call


def _commands(name: str, target: str, common: tuple[str, ...], one: tuple[str, ...], two: tuple[str, ...]) -> Pair:
    """Return a pair that calls the same command, with different arguments at the end."""
    return Pair(name, target, (command(*common, *one), command(*common, *two)))


PAIRS = (
    Pair("convert", "target", (command("convert", "one", "target"), command("convert", "two", "target"))),
    Pair(
        "convert to bilm",
        "target",
        (command("convert", "model", "target", "--to", "bilm"), command("convert", "two", "target", "--to", "bilm")),
    ),
    Pair("save_pretrained", "target", (_save("one"), _save("two"))),
    _commands("warm", "model", ("warm", "model", "--device", "cpu"), ("text.txt",), ("other.txt",)),
    _commands(
        "prepare",
        "target",
        ("prepare", "target", "--min-count", "1", "--workers", "1"),
        ("text.txt",),
        ("other.txt",),
    ),
    _commands(
        "index", "target", ("index", "--device", "cpu", "model"), ("text.txt", "target"), ("other.txt", "target")
    ),
    _commands(
        "embed",
        "target.h5",
        ("embed", "--device", "cpu", "model"),
        ("text.txt", "target.h5"),
        ("other.txt", "target.h5"),
    ),
    _commands(
        "pretrain",
        "run",
        (*PRETRAIN, "--max-steps", "4", "--set"),
        ("training.seed=1",),
        ("training.seed=2",),
    ),
    _commands("task train", "run", (*TRAIN, "--set"), ("training.seed=1",), ("training.seed=2",)),
)


def _make_inputs(folder: Path) -> None:
    models.make_inputs(folder / "inputs")
    models.run_command(folder / "inputs", *models.PREPARE)


def make(folder: Path, seed: int) -> Handler:
    """Make the inputs, and return a function that runs a case.

    A case runs two calls at once, and compares the target with that of each call alone.
    """
    models.make_all(_make_inputs, folder)

    @cache
    def alone(pair: Pair, which: int) -> Path:
        """Return the folder after one of the calls alone."""
        work = Path(tempfile.mkdtemp(dir=folder)) / "alone"
        shutil.copytree(folder / "inputs", work)
        log = work.with_name("log")
        if exit_code(start_child(pair.calls[which], work, log)):
            raise RuntimeError(f"{pair.name}: {log.read_text()}")
        return work

    def handle(number: int, work: Path) -> Outcome:
        generator = chance(seed, PART.name, number)
        pair = PAIRS[number % len(PAIRS)]
        wanted = alone(pair, 0), alone(pair, 1)
        shutil.copytree(folder / "inputs", work / "at work")
        (work / "temporary").mkdir(exist_ok=True)
        tempfile.tempdir = str(work / "temporary")
        delays = [0.0, float(generator.choice([0, 0.001, 0.01, 0.05, 0.2]) * generator.random())]
        logs = work / "0.log", work / "1.log"
        begin = time.monotonic() + 0.02
        children: list[int] = []
        for call, delay, log in zip(pair.calls, generator.permutation(delays).tolist(), logs, strict=True):

            def at_once(call: Call = call, delay: float = delay) -> None:
                time.sleep(max(0.0, begin + delay - time.monotonic()))
                call()

            children.append(start_child(at_once, work / "at work", log))
        codes = [exit_code(child) for child in children]
        texts = [log.read_text() for log in logs]
        failed: list[str] = []
        if any("Traceback" in text for text in texts):
            failed.append(TRACEBACK)
        elif 0 not in codes or not set(codes) <= {0, 2}:
            failed.append(CODES)
        target = pair.target
        differences = [difference(work / "at work" / target, one / target) for one in wanted]
        if all(differences):
            failed.append(
                UNLOADABLE if any("can't be read" in text or "missing" in text for text in differences) else MIXED
            )
        elif sorted(codes) == [0, 2] and differences[codes.index(0)]:
            failed.append(MIXED)
        expected = names_in(wanted[0]) | names_in(wanted[1])
        left = [
            name
            for name in names_in(work / "at work") - expected
            if "/checkpoints/" not in name and "/tensorboard/" not in name
        ] + [
            path.name
            for path in (work / "temporary").iterdir()
            if not path.name.startswith("torchinductor")  # torch's cache
        ]
        if left:
            failed.append(LEFT)
        says = f"{codes} {differences if all(differences) else ''} {left or ''} " + " // ".join(map(last_lines, texts))
        return Outcome(pair.name, " and ".join(map(str, sorted(codes))), failed, says)

    return handle


PART = Part("pairs", 300, (MIXED, UNLOADABLE, TRACEBACK, LEFT, CODES), 60.0, CODES, TRACEBACK, make)

if not hasattr(os, "fork"):
    raise SystemExit("this attack needs fork, which this system lacks")
