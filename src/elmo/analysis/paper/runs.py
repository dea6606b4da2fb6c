"""Runs of task models in a folder. Each setting is trained only once, even if several analyses need it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, product
from pathlib import Path
from typing import Any

from elmo import formats
from elmo.analysis.paper.finding import Rows
from elmo.nn.devices import use_device
from elmo.tasks import get_task, load_task_recipe
from elmo.tasks.elmo.cache import LiveLayers
from elmo.tasks.elmo.input import FrozenLayers, make_elmo_layers
from elmo.tasks.experiment import NO_ELMO, Experiment, ExperimentConfig, choose, read_sets, share_of
from elmo.tasks.finetune import finetuning_text
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.results import Result, spread
from elmo.tasks.run_folder import seed_folder
from elmo.tasks.task import Task

QUICK_EXAMPLES = {"train": 300, "dev": 150}
QUICK_TOKENS = {"train": 9_000, "dev": 4_500}
"""Most examples, and most tokens, of a quick run. Long examples such as documents reach the limit of tokens first."""

QUICK_BATCH = 16

# The patience and the number of epochs of a recipe are counted in epochs. On a tenth of WNUT-17 an epoch had six steps,
# and training stopped before the baseline had found its first name. Epochs on a share therefore repeat its examples.
MOST_STEPS = 100
"""Most steps of an epoch on a share of the training set. With more, evaluations could miss the best model."""

Settings = Mapping[str, object]
"""Keys of `ElmoConfig` and their values."""


@dataclass(frozen=True)
class TaskData:
    """The data of a task. `name` is its name in tables, and `settings` change keys of its recipe."""

    name: str
    task: str
    train: str
    dev: str
    settings: Settings = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Outcome:
    """The outcome of one setting: a result and a run folder for each seed. `metric` is the metric of its score."""

    metric: str
    results: list[Result]
    folders: list[Path]

    @property
    def score(self) -> dict[str, float]:
        """The mean and the standard deviation (`sd`) of the dev score over seeds."""
        return spread([result.scores["dev"][self.metric] for result in self.results])

    @property
    def seconds(self) -> float:
        """The training time of all seeds."""
        return sum(result.seconds for result in self.results)


class TaskRuns:
    """The runs of a task in a folder, with and without a model.

    The sets are read once, and ELMo's vectors of their sentences are computed once, however many runs use them.

    Args:
        data: The data of the task.
        folder: The folder for runs and vectors. Quick runs need a separate one.
        elmo: The model.
        num_seeds: The number of runs of each setting.
        device: The device to train on.
        quick: Whether to use only a few examples and epochs.
    """

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
        self.recipe = load_task_recipe(data.task, None, changes | dict(data.settings))  # the user's settings win
        self._vectors, self._num_seeds, self._device = folder / "vectors", num_seeds, device
        self.folder = folder / "runs" / folder_name(data.name)
        sets = read_sets(self._config(self.recipe, folder, elmo))
        self.sets = {name: self._some(name, found) for name, found in sets.items()}
        self._layers: dict[tuple[object, ...], FrozenLayers] = {}

    @property
    def name(self) -> str:
        """The name of the task in tables."""
        return self.data.name

    @property
    def metric(self) -> str:
        """The name of the metric in tables."""
        return self.task.metric.replace("f1", "F1")

    def baseline(self, share: float = 1.0) -> Outcome:
        """Train without ELMo, on a share of the training set."""
        return self._run("baseline", self.recipe, share, NO_ELMO)

    def with_elmo(self, settings: Settings | None = None, share: float = 1.0, elmo: str | None = None) -> Outcome:
        """Train with ELMo.

        Args:
            settings: Keys of `ElmoConfig` that differ from the recipe.
            share: The share of the training set to train on.
            elmo: A model to use instead of the usual one.
        """
        name, recipe = self._named(settings or {}, is_tuned=elmo is not None)
        return self._run(name, recipe, share, elmo or self.elmo)

    def require_same_runs(self, settings: Iterable[Settings | None], shares: Iterable[float] = (1.0,)) -> None:
        """Refuse runs in the folder that were begun in another way, before any is trained: each may take hours.

        Args:
            settings: Keys of `ElmoConfig` for each run with ELMo, as in `with_elmo`; None stands for the baseline.
            shares: The shares of the training set to train each of them on.

        Raises:
            ElmoError: If there is such a run.
        """
        for each, share in product(settings, shares):
            name, recipe = ("baseline", self.recipe) if each is None else self._named(each)
            elmo, folder = NO_ELMO if each is None else self.elmo, self._folder_of(name, share)
            if folder.exists():  # an experiment reads the biLM and the files of word vectors
                Experiment(self._config(self._part(recipe, share), folder, elmo), self.sets).require_same_run()

    def _named(self, settings: Settings, *, is_tuned: bool = False) -> tuple[str, TaskRecipe]:
        own = self.recipe.elmo
        # Settings that the recipe has anyway are dropped, so that they lead to the same run, and only one is trained.
        changes: dict[str, Any] = {k: value for k, value in settings.items() if value != getattr(own, k)}
        name = ",".join(["elmo", *(["tuned"] if is_tuned else []), *(f"{k}={value}" for k, value in changes.items())])
        return name, replace(self.recipe, elmo=replace(own, **changes))

    def _folder_of(self, name: str, share: float) -> Path:
        # "repeated" tells these runs from those of earlier versions, whose epochs on a share were short.
        return self.folder / (name if share == 1 else f"{name},share={share:g},repeated")

    def num_examples(self, share: float) -> int:
        """Return the number of examples in a share of the training set."""
        return len(share_of(self.sets["train"], self.task, self._part(self.recipe, share)))

    def _run(self, name: str, recipe: TaskRecipe, share: float, elmo: str) -> Outcome:
        folder = self._folder_of(name, share)
        layers = None if elmo == NO_ELMO else self._shared_layers(recipe, elmo)
        experiment = Experiment(self._config(self._part(recipe, share), folder, elmo), self.sets, layers)
        results = experiment.run()
        if not experiment.is_done:
            raise KeyboardInterrupt  # a run ends early only if it was interrupted, and everything is saved
        return Outcome(self.task.metric, results, [seed_folder(folder, result.seed) for result in results])

    def _part(self, recipe: TaskRecipe, share: float) -> TaskRecipe:
        """Return a recipe for a share of the training set.

        Its epochs have about as many steps as those of the whole set. Patience is counted in epochs, and epochs of a
        few examples would use it up before anything is learned.
        """
        if share == 1:
            return recipe
        training = recipe.training
        steps = math.ceil(training.share * len(self.sets["train"]) / training.batch_size)
        changes = {"share": share * training.share, "epoch_steps": min(steps, MOST_STEPS)}
        return replace(recipe, training=replace(training, **changes))

    def _config(self, recipe: TaskRecipe, folder: Path, elmo: str) -> ExperimentConfig:
        data, seeds = self.data, self._num_seeds
        if seeds == 1:  # the same place as with several seeds, so that seeds can be added later
            folder = seed_folder(folder, recipe.training.seed)
        options: dict[str, Any] = {"with_bilm": False, "num_seeds": seeds, "device": self._device}
        return ExperimentConfig(data.task, recipe, folder, data.train, data.dev, elmo=elmo, **options)

    def _shared_layers(self, recipe: TaskRecipe, elmo: str) -> FrozenLayers | None:
        """Return ELMo's vectors of all sentences, on disk, or None if the recipe does not cache them."""
        config = recipe.elmo
        if config.vectors != "cached":
            return None
        key = (elmo, config.state, config.cache_dtype, config.lowercase)
        if key not in self._layers:
            live = make_elmo_layers(formats.load(elmo, with_softmax=False), config, use_device(self._device))
            assert isinstance(live, LiveLayers)
            sentences = self.task.all_sentences(chain.from_iterable(self.sets.values()))
            self._layers[key] = live.cached(sentences, self._vectors)
        return self._layers[key]

    def texts(self, name: str, lowercase: bool) -> dict[str, list[tuple[str, ...]]]:
        """Return what a biLM can be fine-tuned on in the whole file of a set (see `finetuning_text`).

        Quick runs return only a few sentences.
        """
        examples = self._some(name, self.task.read(getattr(self.data, name), self.recipe))
        return finetuning_text(self.task, examples, lowercase)

    def _some(self, name: str, examples: Sequence[Any]) -> Sequence[Any]:
        """Return the examples of a set that are used: all of them, or a few if quick."""
        if not self.quick:
            return examples
        chosen = choose(examples, QUICK_EXAMPLES[name])
        ends = accumulate(map(self.task.length, chosen))
        return [example for example, end in zip(chosen, ends, strict=True) if end <= QUICK_TOKENS[name]] or chosen[:1]


def score_unit(tasks: Sequence[TaskRuns]) -> str:
    """Return the unit of the scores of several tasks, which may have different metrics."""
    return f"dev score (%): {', '.join(f'{task.name} {task.metric}' for task in tasks)}"


def score_rows(found: Mapping[str, Mapping[str, Outcome]]) -> tuple[Rows, Rows]:
    """Return the means of scores by row and column, and their standard deviations if there are several seeds."""
    means = {row: {column: outcome.score["mean"] for column, outcome in cells.items()} for row, cells in found.items()}
    spread = {
        row: {column: outcome.score["sd"] for column, outcome in cells.items() if len(outcome.results) > 1}
        for row, cells in found.items()
    }
    return means, {row: cells for row, cells in spread.items() if cells}


def folder_name(name: str) -> str:
    """Turn the name of a task into that of its folder."""
    return re.sub(r"\W+", "-", name.lower()).strip("-")
