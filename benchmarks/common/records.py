"""Records of finished trainings: scripts in `experiments/` write them, and scripts in `pages/` read them."""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

from common.machine import peak_rss_mb
from elmo.cli.shared import STOPPED
from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json
from elmo.schema import from_mapping
from elmo.tasks import TASKS, get_task
from elmo.tasks.results import Result, summarize
from elmo.tasks.run_folder import read_config, read_results, seed_folder

BASELINE = "none"
"""The name of a training without ELMo. Trainings with ELMo have other names."""

STATIC = "static"
"""The name of a training without ELMo that has static vectors of the biLM's text."""

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
"""The data that most trainings need, if it is next to the repository."""

WSD_TESTS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")
"""The test sets of word senses, in the data's folder `wsd`."""

RECORDS = Path(__file__).parents[1] / "records"
"""The records of docs/results.md, with a folder for each data set."""

EXAMPLES = "examples.json"
"""A file of the records' folder: the number of examples in each training set, by the name of the data."""


@dataclass(frozen=True)
class Run:
    """A finished training on `data`, without ELMo or with it (`kind`), with a result for each seed."""

    data: str
    kind: str
    task: str
    recipe: Mapping[str, Any]
    command: str
    results: Sequence[Result]

    @property
    def metric(self) -> str:
        """The name of the task's main score."""
        return get_task(self.task).metric

    @property
    def share(self) -> float:
        """The share of the training set that it was trained on. Records of before the key existed have none."""
        return self.recipe["training"].get("share", 1)

    def scores(self, part: str) -> list[float]:
        """Return the main score on a set for each seed. The list is empty if it wasn't measured."""
        return self.all_scores(part).get(self.metric, [])

    def all_scores(self, part: str) -> Mapping[str, list[float]]:
        """Return all scores on a set by name, each with a number for each seed."""
        return summarize(self.results).get(part, {})

    def minutes(self) -> str:
        """Return the minutes of the shortest and the longest training. Seeds may be of different machines."""
        minutes = sorted(round(result.seconds / 60) for result in self.results)
        return "–".join(str(minute) for minute in dict.fromkeys((minutes[0], minutes[-1])))


def parse_with_records(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add the option `--records` to the parser of a script that trains, and parse. By default, they are in `root`."""
    parser.add_argument("--records", type=Path, help="where records are written; default: ROOT/records")
    arguments = parser.parse_args()
    arguments.records = arguments.records or arguments.root / "records"
    return arguments


def write_record(folder: Path, command: Sequence[str], path: Path) -> None:
    """Write what the page needs from a finished run folder, which `command` made.

    Files are recorded by their names without folders, which differ from machine to machine. If there is a record, the
    folder's seeds are added to its own, which such a command made before.

    Raises:
        ElmoError: If the seeds of the record were trained by another recipe, such as that of an earlier version.
    """
    config, recipe = read_config(folder)
    record: dict[str, Any] = {"task": config.task, "command": "", "recipe": _without_paths(recipe), "results": []}
    if path.exists():
        known = cast("dict[str, Any]", read_json(path))
        if _without_seed(known["recipe"]) != _without_seed(record["recipe"]):
            raise ElmoError(f"{path}: was made by another recipe than {folder}; remove it, or choose another --records")
        record = known
    record["command"] = shown(command)
    record["results"] += [result.as_json() for result in read_results(folder)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_all({path: lambda path: write_json(path, record)})


def _without_seed(recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {**recipe, "training": {key: value for key, value in recipe["training"].items() if key != "seed"}}


def is_recorded(command: Sequence[str], record: Path) -> bool:
    """Return whether there is a record of `elmo` with these arguments, and refuse one of other arguments.

    Folders are not compared, since records don't have them.
    """
    if not record.exists():
        return False
    recorded = cast("dict[str, Any]", read_json(record))["command"]
    if recorded != shown(["elmo", *command]):
        raise SystemExit(
            f"{record}: was made by another command; remove it, or choose another --name or --records\n  {recorded}"
        )
    print(f"{record}: is there already, and was made by this command (folders are not compared):\n  {recorded}")
    return True


def train_and_record(command: Sequence[str], folder: Path, record: Path) -> None:
    """Train the seeds that a record lacks, one by one, and record each when it is finished.

    So a record that was begun on another machine is completed without the run folders of its seeds. Started again, a
    training that was stopped goes on.

    Args:
        command: The arguments of `elmo` that train all seeds, from 0 on, in the run folder `folder`.
        folder: Gets a run folder for each seed, by the names that `elmo` gives them.
        record: The file of the record.
    """
    seeds = int(command[command.index("--seeds") + 1])
    recorded = len(read_record(record).results) if record.exists() else 0
    if recorded:
        is_recorded(_with(command, "--seeds", str(recorded)), record)
    for seed in range(recorded, seeds):
        run = seed_folder(folder, seed)
        one = _with(_with(command, "--seeds", "1"), "--out", str(run))
        run_elmo([*one, "--set", f"training.seed={seed}"])
        if not read_results(run):
            raise SystemExit(f"{run}: stopped; run the same command again to continue")
        write_record(run, ["elmo", *_with(command, "--seeds", str(seed + 1))], record)


def _with(command: Sequence[str], option: str, value: str) -> list[str]:
    """Return a command with another value of an option that it has."""
    at = command.index(option) + 1
    return [*command[:at], value, *command[at + 1 :]]


def run_elmo(command: Sequence[str], stdout: IO[str] | None = None) -> int:
    """Run `elmo` with these arguments, and end this program if it fails or is stopped.

    Ctrl-C, and SIGTERM to the process group, reach `elmo`, too. It saves its state then, and this program waits for it.

    Args:
        command: The arguments.
        stdout: The file to write its output to; None for that of this program.

    Returns:
        The peak of its memory, in MB.
    """
    peak = 0
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with subprocess.Popen([sys.executable, "-m", "elmo", *command], stdout=stdout) as process:
            try:
                while process.poll() is None:
                    peak = max(peak, peak_rss_mb(process.pid))
                    time.sleep(0.1)
            except KeyboardInterrupt:
                process.wait()
                raise SystemExit("stopped; run the same command again to continue") from None
    finally:
        signal.signal(signal.SIGTERM, before)
    if process.returncode == STOPPED:  # by a signal that has not reached this program
        print("stopped; run the same command again to continue", file=sys.stderr)
        raise SystemExit(STOPPED)
    if process.returncode:
        raise SystemExit(f"elmo ended with exit code {process.returncode}; see above")
    return peak


def read_records(root: Path) -> list[Run]:
    """Read all records of a folder, in the order of tasks and data sets, the baseline of each first."""
    runs = [read_record(path) for path in root.glob("*/*.json")]
    order = list(TASKS)
    return sorted(runs, key=lambda run: (order.index(run.task), run.data, run.kind != BASELINE, run.kind))


def read_examples(root: Path) -> dict[str, int]:
    """Return the number of examples in the training sets of records, by the name of the data, as far as it is known."""
    path = root / EXAMPLES
    return cast("dict[str, int]", read_json(path)) if path.exists() else {}


def read_record(path: Path) -> Run:
    """Read a file that `write_record` wrote."""
    record = cast("dict[str, Any]", read_json(path))
    try:
        results = [from_mapping(Result, result, str(path)) for result in record["results"]]
        return Run(path.parent.name, path.stem, record["task"], record["recipe"], record["command"], results)
    except (KeyError, TypeError) as error:
        raise ElmoError(f"{path}: is not the record of a training ({error!r})") from None


def write_page_of_records(description: str | None, page: str, write_page: Callable[[Path], str]) -> tuple[Path, Path]:
    """Read the arguments of a script that writes a page from records, and write the page.

    Args:
        description: What the script does.
        page: The page that it usually writes.
        write_page: Makes the page from a folder of records.

    Returns:
        The page, and the folder of records.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help=f"the page to write, such as {page}")
    parser.add_argument("--records", type=Path, default=RECORDS, help="the folder of records; default: %(default)s")
    arguments = parser.parse_args()
    text = write_page(arguments.records)
    write_all({arguments.page: lambda path: path.write_text(text, encoding="utf-8")})
    print(f"{arguments.page}: written from the records in {arguments.records}")
    return arguments.page, arguments.records


def shown(command: Iterable[str]) -> str:
    """Return a command as the page shows it, without the folders of its files."""
    return shlex.join(_without_folders(command))


def _without_folders(words: Iterable[str]) -> Iterator[str]:
    for before, word in pairwise(["", *words]):
        key, equals, value = word.rpartition("=")
        # Of the settings, these alone name files. A slash in another may mean anything.
        if before == "--set" and key != "words.vectors":
            yield word
        else:
            yield f"{key}{equals}{','.join(file.rstrip('/').rpartition('/')[2] for file in value.split(','))}"


def _without_paths(value: Any) -> Any:
    """Return the value with paths replaced by the names of their files."""
    if isinstance(value, Mapping):
        return {key: _without_paths(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_paths(each) for each in cast("Sequence[Any]", value)]
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    return ",".join(file.rpartition("/")[2] for file in value.split(","))
