"""Records of finished trainings: what `experiments/paper_tasks.py` leaves and `pages/results.py` reads."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from elmo.formats.files import read_json, write_all, write_json
from elmo.tasks import TASKS, get_task
from elmo.tasks.card import Result, summarize
from elmo.tasks.run_folder import read_config, read_results

BASELINE = "none"
"""The name of a training without ELMo; those with it have any other name."""

RECORDS = Path(__file__).parents[1] / "records"
"""The records of docs/results.md, a folder for each data set."""


@dataclass(frozen=True)
class Run:
    """A finished training on `data`, without ELMo or with it (`kind`): its task, recipe, command, result by seed."""

    data: str
    kind: str
    task: str
    recipe: Mapping[str, Any]
    command: str
    results: Sequence[Result]

    @property
    def metric(self) -> str:
        """The score that counts."""
        return get_task(self.task).metric

    def scores(self, part: str) -> list[float]:
        """That score of a set, seed by seed; empty if it wasn't measured."""
        return self.all_scores(part).get(self.metric, [])

    def all_scores(self, part: str) -> Mapping[str, list[float]]:
        """All scores of a set by name, seed by seed."""
        return summarize(self.results).get(part, {})


def write_record(folder: Path, command: Sequence[str], path: Path) -> None:
    """Keep of a finished run folder, which `command` made, what the page needs; files by their names alone, as anyone
    may have them elsewhere.
    """
    config, recipe = read_config(folder)
    results = [result.as_json() for result in read_results(folder)]
    record = {"task": config.task, "command": shown(command), "recipe": _without_paths(recipe), "results": results}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_all({path: lambda path: write_json(path, record)})


def read_records(root: Path) -> list[Run]:
    """All records of a folder: data by data in the order of the tasks, the baseline first."""
    runs = [read_record(path) for path in root.glob("*/*.json")]
    order = list(TASKS)
    return sorted(runs, key=lambda run: (order.index(run.task), run.data, run.kind != BASELINE, run.kind))


def read_record(path: Path) -> Run:
    """What `write_record` wrote."""
    record = cast("dict[str, Any]", read_json(path))
    results = [Result(**result) for result in record["results"]]
    return Run(path.parent.name, path.stem, record["task"], record["recipe"], record["command"], results)


def shown(command: Iterable[str]) -> str:
    """A command as the page shows it."""
    return shlex.join(_without_folders(command))


def _without_folders(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        key, equals, value = word.rpartition("=")
        yield f"{key}{equals}{','.join(file.rstrip('/').rpartition('/')[2] for file in value.split(','))}"


def _without_paths(value: Any) -> Any:
    """Plain values, with the names of files in place of their paths."""
    if isinstance(value, Mapping):
        return {key: _without_paths(each) for key, each in cast("Mapping[str, Any]", value).items()}
    return value.rpartition("/")[2] if isinstance(value, str) and value.startswith("/") else value
