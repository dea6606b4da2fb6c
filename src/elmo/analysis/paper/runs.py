"""Runs of task models in a folder: each setting is trained once, whichever analyses ask for it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from elmo import formats
from elmo.analysis.paper.finding import Rows
from elmo.nn.devices import use_device
from elmo.tasks import get_task, load_task_recipe
from elmo.tasks.card import Result, spread
from elmo.tasks.elmo.cache import LiveLayers
from elmo.tasks.elmo.input import FrozenLayers
from elmo.tasks.experiment import NO_ELMO, SEED_FOLDER, Experiment, ExperimentConfig, Sets, read_sets
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.run_folder import make_elmo_layers
from elmo.tasks.sampling import choose, share_of
from elmo.tasks.task import Sentence, Task
from elmo.training.metrics import METRICS, Row, read_rows

QUICK_EXAMPLES = {"train": 300, "dev": 150}
QUICK_TOKENS = {"train": 9_000, "dev": 4_500}
"""At most: of documents, fewer."""

QUICK_BATCH = 16

MOST_STEPS = 100
"""Of an epoch on a share of a large training set: more, and the best ones would be far from any measurement."""

Settings = Mapping[str, object]
"""Keys of `ElmoConfig` and their values."""


@dataclass(frozen=True)
class TaskData:
    """What a task is trained and measured on. `name` is what tables call it; `settings` change the task's recipe."""

    name: str
    task: str
    train: str
    dev: str
    settings: Settings = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Outcome:
    """What a setting came to: a result and a run folder for each seed. `metric` of the dev set decides."""

    metric: str
    results: list[Result]
    folders: list[Path]

    @property
    def score(self) -> dict[str, float]:
        """Mean and standard deviation (`sd`) of the dev set's score over seeds."""
        return spread([result.scores["dev"][self.metric] for result in self.results])

    @property
    def seconds(self) -> float:
        """Of all seeds' training."""
        return sum(result.seconds for result in self.results)

    def curves(self) -> list[list[Row]]:
        """The rows of `metrics.csv`, an epoch each, of each seed."""
        return [read_rows(folder / METRICS) for folder in self.folders]


class TaskRuns:
    """A task's runs in `folder`, with the model `elmo` or without. Its sets are read once, and once ELMo's vectors of
    their sentences are computed, however many runs use them. `quick` runs, of a few examples and epochs, are to have a
    folder of their own."""

    def __init__(
        self,
        data: TaskData,
        folder: Path,
        elmo: str,
        *,
        num_seeds: int = 1,
        device: str = "auto",
        quick: bool = False,
    ) -> None:
        self.data, self.elmo, self.quick = data, elmo, quick
        self.task: Task[Any, Any, Any] = get_task(data.task)
        changes: dict[str, object] = {}
        if quick:
            batch = min(QUICK_BATCH, load_task_recipe(data.task).training.batch_size)
            changes = {"training.batch_size": batch, "training.max_epochs": 4}
        self.recipe = load_task_recipe(data.task, None, changes | dict(data.settings))
        self._vectors, self._num_seeds, self._device = folder / "vectors", num_seeds, device
        self.folder = folder / "runs" / _slug(data.name)
        sets = read_sets(self._job(self.recipe, folder, elmo))
        self.sets = {name: self._some(name, found) for name, found in sets.items()}
        self._layers: dict[tuple[object, ...], FrozenLayers] = {}

    @property
    def name(self) -> str:
        """What tables call the task."""
        return self.data.name

    @property
    def metric(self) -> str:
        """What the scores are."""
        return self.task.metric.replace("f1", "F1")

    def baseline(self, share: float = 1.0) -> Outcome:
        """Without ELMo."""
        return self._run("baseline", self.recipe, share, NO_ELMO)

    def with_elmo(self, settings: Settings | None = None, share: float = 1.0, elmo: str | None = None) -> Outcome:
        """With ELMo, as the recipe says but for `settings`; `share` of the training set is trained on.

        The model is another one where `elmo` names it.
        """
        own = self.recipe.elmo
        changes: dict[str, Any] = {k: value for k, value in (settings or {}).items() if value != getattr(own, k)}
        tuned = ["tuned"] if elmo else []
        name = ",".join(["elmo", *tuned, *(f"{key}={value}" for key, value in changes.items())])
        return self._run(name, replace(self.recipe, elmo=replace(own, **changes)), share, elmo or self.elmo)

    def num_examples(self, share: float) -> int:
        """How many examples of the training set a share is."""
        return len(share_of(self.sets["train"], self.task, self._part(self.recipe, share)))

    def _run(self, name: str, recipe: TaskRecipe, share: float, elmo: str) -> Outcome:
        folder = self.folder / (name if share == 1 else f"{name},share={share:g},repeated")
        layers = None if elmo == NO_ELMO else self._shared_layers(recipe, elmo)
        experiment = Experiment(self._job(self._part(recipe, share), folder, elmo), self.sets, layers)
        results = experiment.run()
        if not experiment.is_done:
            raise KeyboardInterrupt  # it was one that ended the run; all is saved
        return Outcome(self.task.metric, results, [folder / SEED_FOLDER.format(result.seed) for result in results])

    def _part(self, recipe: TaskRecipe, share: float) -> TaskRecipe:
        """A recipe with a share of its own share, and epochs of about as many steps as with all: patience is counted in
        epochs, and those of a handful of examples would use it up before anything is learned."""
        if share == 1:
            return recipe
        training = recipe.training
        steps = math.ceil(training.share * len(self.sets["train"]) / training.batch_size)
        changes = {"share": share * training.share, "epoch_steps": min(steps, MOST_STEPS)}
        return replace(recipe, training=replace(training, **changes))

    def _job(self, recipe: TaskRecipe, folder: Path, elmo: str) -> ExperimentConfig:
        data, seeds = self.data, self._num_seeds
        if seeds == 1:  # where it would be among several, so that more can join it
            folder = folder / SEED_FOLDER.format(recipe.training.seed)
        options: dict[str, Any] = {"with_bilm": False, "num_seeds": seeds, "device": self._device}
        return ExperimentConfig(data.task, recipe, folder, data.train, data.dev, elmo=elmo, **options)

    def _shared_layers(self, recipe: TaskRecipe, elmo: str) -> FrozenLayers | None:
        """ELMo's vectors of all sentences, on disk; None where the recipe wants none kept."""
        config = recipe.elmo
        key = (elmo, config.state, config.cache_dtype)
        if config.vectors == "cached" and key not in self._layers:
            live = make_elmo_layers(formats.load(elmo), config, use_device(self._device))
            assert isinstance(live, LiveLayers)
            self._layers[key] = live.cached(self.sentences(), self._vectors)
        return self._layers.get(key) if config.vectors == "cached" else None

    def texts(self, name: str) -> dict[str, list[tuple[str, ...]]]:
        """The distinct sentences of a set's file, whole, by what kind of text they are (see `Task.texts`).

        Only a few of them if quick.
        """
        found: dict[str, list[Sentence]] = {}
        for example in self._some(name, self.task.read(getattr(self.data, name), self.recipe)):
            for kind, sentences in self.task.texts(example).items():
                found.setdefault(kind, []).extend(sentences)
        return {kind: _distinct(sentences) for kind, sentences in found.items()}

    def _some(self, name: str, examples: Sequence[Any]) -> Sequence[Any]:
        """The examples of a set that are used."""
        if not self.quick:
            return examples
        chosen = choose(examples, QUICK_EXAMPLES[name])
        ends = accumulate(map(self.task.length, chosen))
        return [example for example, end in zip(chosen, ends, strict=True) if end <= QUICK_TOKENS[name]] or chosen[:1]

    def sentences(self) -> list[tuple[str, ...]]:
        """All distinct sentences of the sets."""
        return distinct_sentences(self.task, self.sets, *self.sets)


def score_unit(tasks: Sequence[TaskRuns]) -> str:
    """What the scores of several tasks are, each of which may have a metric of its own."""
    return f"dev score (%): {', '.join(f'{task.name} {task.metric}' for task in tasks)}"


def score_rows(found: Mapping[str, Mapping[str, Outcome]]) -> tuple[Rows, Rows]:
    """The rows of a table of scores: their means, and their standard deviations where there are several seeds."""
    means = {row: {column: outcome.score["mean"] for column, outcome in cells.items()} for row, cells in found.items()}
    spread = {
        row: {column: outcome.score["sd"] for column, outcome in cells.items() if len(outcome.results) > 1}
        for row, cells in found.items()
    }
    return means, {row: cells for row, cells in spread.items() if cells}


def distinct_sentences(task: Task[Any, Any, Any], sets: Sets, *names: str) -> list[tuple[str, ...]]:
    """The sentences that the examples of some sets hold, each once and none empty."""
    examples = chain.from_iterable(sets[name] for name in names)
    return _distinct(task.all_sentences(examples))


def _distinct(sentences: Iterable[Sentence]) -> list[tuple[str, ...]]:
    return [sentence for sentence in dict.fromkeys(map(tuple, sentences)) if sentence]


def _slug(name: str) -> str:
    """A name as that of a folder."""
    return re.sub(r"\W+", "-", name.lower()).strip("-")
