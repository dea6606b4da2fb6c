"""Runs a whole training of a task: reads data, makes vocabularies, trains one or several seeds, and writes scores."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch

from elmo import formats
from elmo.embed.fingerprint import fingerprint
from elmo.errors import ElmoError
from elmo.formats.files import write_all, write_json, write_text
from elmo.formats.model import Model, require_warm_state
from elmo.formats.sources import is_bundled
from elmo.nn.devices import use_device
from elmo.targets import alone_in
from elmo.tasks.card import Result, best_of, spread, summarize, task_card
from elmo.tasks.checkpoint import CHECKPOINT, WEIGHTS
from elmo.tasks.common.static_vectors import FileWords, describe_words, find_words
from elmo.tasks.elmo.cache import LiveLayers
from elmo.tasks.elmo.input import FrozenLayers, TrainedLayers
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.run_folder import (
    BILM,
    CACHE,
    CARD,
    CONFIG,
    FORMAT,
    RESULTS,
    SHARED_BILM,
    VOCABULARIES,
    RunConfig,
    checksum_of_examples,
    claim_task_run,
    keep_bilm,
    make_elmo_input,
    make_elmo_layers,
    read_config,
    read_results,
    require_same,
    write_config,
)
from elmo.tasks.sampling import share_of
from elmo.tasks.task import get_task
from elmo.tasks.trainer import Trainer
from elmo.training.machine import machine_name

NO_ELMO = "none"
SEED_FOLDER = "seed-{}"


@dataclass(frozen=True)
class ExperimentConfig:
    """What `elmo task train` is asked to do.

    Attributes:
        task: The name of the task.
        recipe: Its recipe.
        folder: The run folder.
        train: The training set, as a path that the task can read.
        dev: The dev set.
        test: The test set, which is scored at the end.
        elmo: Any model that `elmo.load` reads, or "none" for a baseline.
        with_bilm: Whether the run folder gets a copy of the biLM. Without a copy, `elmo` must still be there when the
            trained model is loaded.
        cache: The folder in which ELMo's vectors are cached. None caches them in the run folder until it is finished.
        num_seeds: The number of seeds, counted from the recipe's. Several seeds are trained one after the other, each
            in its own subfolder, and the run folder itself becomes the one that is best on the dev set.
        device: The device to train on.
        tensorboard: Whether metrics are written for TensorBoard as well.
    """

    task: str
    recipe: TaskRecipe
    folder: Path
    train: str
    dev: str
    test: str | None = None
    elmo: str = NO_ELMO
    with_bilm: bool = True
    cache: Path | None = None
    num_seeds: int = 1
    device: str = "auto"
    tensorboard: bool = False


Sets = Mapping[str, Sequence[Any]]
"""The examples of a task by the name of their set: "train", "dev", and "test" if there is one."""


def read_sets(job: ExperimentConfig) -> Sets:
    """Read the files of an experiment."""
    task = get_task(job.task)
    sets = {"train": task.read_train(job.train, job.recipe), "dev": task.read(job.dev, job.recipe)}
    return sets if job.test is None else {**sets, "test": task.read(job.test, job.recipe)}


class Experiment:
    """An experiment whose files are read. `run` trains it; the same experiment continues where an earlier one stopped.

    Only the recipe's share of the training set is kept.

    Args:
        job: What to do.
        sets: The examples, if they are already read. Experiments on the same data can share them.
        layers: The source of frozen ELMo layers, if experiments share one.

    Attributes:
        results: The results of the seeds that are trained so far.

    Raises:
        ElmoError: If a file cannot be read, a set has nothing to learn or measure, or the settings contradict each
            other.
    """

    def __init__(self, job: ExperimentConfig, sets: Sets | None = None, layers: FrozenLayers | None = None) -> None:
        self.job, self.task = job, get_task(job.task)
        self.device = use_device(job.device)
        sets = read_sets(job) if sets is None else sets
        for name, path, examples in (("training", job.train, sets["train"]), ("dev", job.dev, sets["dev"])):
            try:
                self.task.require_gold(examples)
            except ElmoError as error:
                raise ElmoError(f"{path}: the {name} set {error}") from None
        self.sets: Sets = {**sets, "train": share_of(sets["train"], self.task, job.recipe)}
        self._given_layers = layers
        found = self._find_words()
        self.vocabularies = self.task.vocabularies(self.sets["train"], job.recipe, found)
        self.note = job.recipe.words and describe_words(job.recipe.words, found)
        """One sentence on the word vectors for the user who starts the training, or None."""
        self.bilm: Model | None = None if job.elmo == NO_ELMO else formats.load(job.elmo)
        self.results: list[Result] = []
        self._check_bilm()

    def with_elmo(self, elmo: str) -> Experiment:
        """Return the same experiment with another ELMo model, without reading the files again.

        The original must not have run yet.
        """
        other = copy(self)
        other.job, other.bilm = replace(self.job, elmo=elmo), formats.load(elmo)
        other._check_bilm()
        return other

    @property
    def is_done(self) -> bool:
        """Whether all seeds are trained."""
        return len(self.results) == self.job.num_seeds

    def run(self) -> list[Result]:
        """Train all seeds that are not trained yet, until the end or an interrupt, and return `results`."""
        job = self.job
        self._check_folder()
        job.folder.mkdir(parents=True, exist_ok=True)
        with alone_in(job.folder):
            return self._run_seeds()

    def _run_seeds(self) -> list[Result]:
        job = self.job
        start = job.recipe.training.seed
        for seed in range(start, start + job.num_seeds):
            result = self._run_seed(seed)
            if result is None:
                return self.results
            self.results.append(result)
        if job.num_seeds > 1:
            self._choose_best()
            self._write_card(job.folder, self.results)
        if job.cache is None:
            shutil.rmtree(job.folder / CACHE, ignore_errors=True)
        return self.results

    def _find_words(self) -> FileWords | None:
        """Look up the words of all sets in the recipe's files of word vectors, counting each distinct sentence once."""
        words = self.job.recipe.words
        if words is None or not words.files:
            return None
        return find_words(set(map(tuple, self.task.all_sentences(chain.from_iterable(self.sets.values())))), words)

    def _check_bilm(self) -> None:
        """Refuse settings that do not fit the biLM, before the run folder is made."""
        vectors = self.job.recipe.elmo.vectors
        if self.job.cache is not None and (self.bilm is None or vectors != "cached"):
            reason = "without ELMo" if self.bilm is None else f"with elmo.vectors: {vectors}"
            raise ElmoError(f"--cache {self.job.cache}: {reason} no vectors are kept; leave out --cache")
        if self.bilm is None:
            return
        if self.bilm.lexicon is not None and self.job.with_bilm:
            raise ElmoError(f"{self.job.elmo}: a model of ELMoForManyLangs has no copy in a run folder; pass --no-bilm")
        if self.job.recipe.elmo.state == "warm":
            require_warm_state(self.bilm.warm_state)

    def _check_folder(self) -> None:
        """Refuse a run folder that holds something else.

        A folder is either for one seed or for several, and the seeds of one folder differ in nothing else.
        """
        folder = self.job.folder
        seeds, names = set(folder.glob(SEED_FOLDER.format("*"))), [path.name for path in folder.glob("[!.]*")]
        if self.job.num_seeds == 1 and seeds:
            raise ElmoError(f"{folder}: holds a run of several seeds; choose another run folder, or the same --seeds")
        if self.job.num_seeds > 1 and names and not seeds:
            raise ElmoError(f"{folder}: neither empty nor a run of several seeds; choose another one")
        for path in seeds:
            if (path / CONFIG).exists():
                seed = int(path.name.removeprefix(SEED_FOLDER.format("")))
                require_same(path, self._config, self._recipe_of(seed), self.vocabularies)

    def _folder_of(self, seed: int) -> Path:
        return self.job.folder if self.job.num_seeds == 1 else self.job.folder / SEED_FOLDER.format(seed)

    def _recipe_of(self, seed: int) -> TaskRecipe:
        return replace(self.job.recipe, training=replace(self.job.recipe.training, seed=seed))

    def _run_seed(self, seed: int) -> Result | None:
        """Return the result of one seed, or None if it was interrupted."""
        folder, job = self._folder_of(seed), self.job
        recipe = self._recipe_of(seed)
        folder.mkdir(exist_ok=True)
        # A second process may train one of the seeds by itself. It locks only that seed's folder, so lock it here too.
        with alone_in(folder) if folder != job.folder else nullcontext():
            return self._train_seed(seed, folder, recipe)

    def _train_seed(self, seed: int, folder: Path, recipe: TaskRecipe) -> Result | None:
        job = self.job
        claim_task_run(folder, self._config, recipe, self.vocabularies)
        if self.bilm is not None and job.with_bilm:
            keep_bilm(self.bilm, job.folder / BILM)
        if known := read_results(folder):
            (folder / CHECKPOINT).unlink(missing_ok=True)  # a process that was killed after writing results left it
            return known[0]
        trainer = self._trainer(folder, recipe)
        trainer.train()
        if trainer.stopped:
            return None
        scores = {name: trainer.evaluate(examples) for name, examples in self.sets.items() if name != "train"}
        done, seconds = trainer.progress, trainer.progress.seconds
        rate, machine = trainer.num_trained / seconds, machine_name(self.device)
        result = Result(seed, done.epoch, done.best_epoch, seconds, rate, scores, machine)
        self._write_card(folder, [result])
        write_all({folder / RESULTS: lambda path: write_json(path, result.as_json())})
        (folder / CHECKPOINT).unlink(missing_ok=True)
        return result

    def _trainer(self, folder: Path, recipe: TaskRecipe) -> Trainer[Any, Any]:
        torch.manual_seed(recipe.training.seed)
        elmo = make_elmo_input(self.bilm, recipe.elmo, self._layers)
        model = self.task.model(recipe, self.vocabularies, elmo)
        self.task.initialize(model, recipe)
        train, dev = self.sets["train"], self.sets["dev"]
        model.to(self.device)
        tensorboard = self.job.tensorboard
        return Trainer(self.task, model, recipe.training, folder, train, dev, tensorboard=tensorboard)

    @property
    def _layers(self) -> FrozenLayers | TrainedLayers | None:
        """The source of ELMo's layers. Seeds share frozen layers, but each one trains a new copy of the biLM."""
        if self.job.recipe.elmo.vectors == "trained":
            return make_elmo_layers(self.bilm, self.job.recipe.elmo, self.device)
        return self._frozen_layers

    @cached_property
    def _frozen_layers(self) -> FrozenLayers | None:
        if self._given_layers is not None:
            return self._given_layers
        config = self.job.recipe.elmo
        live = make_elmo_layers(self.bilm, config, self.device)
        if not isinstance(live, LiveLayers) or config.vectors == "live":
            return cast("LiveLayers | None", live)
        sentences = self.task.all_sentences(chain.from_iterable(self.sets.values()))
        return live.cached(sentences, self.job.cache or self.job.folder / CACHE)

    @cached_property
    def _config(self) -> RunConfig:
        job = self.job
        is_file = Path(job.elmo).exists() and not is_bundled(job.elmo)
        source = Path(job.elmo).resolve() if is_file else job.elmo
        kept = BILM if job.num_seeds == 1 else SHARED_BILM
        return RunConfig(
            FORMAT,
            job.task,
            bilm=None if self.bilm is None else (kept if job.with_bilm else str(source)),
            fingerprint=None
            if self.bilm is None
            else fingerprint(self.bilm, with_warm_state=job.recipe.elmo.state == "warm"),
            **{name: checksum_of_examples(examples) for name, examples in self.sets.items()},
        )

    def _choose_best(self) -> None:
        """Turn the run folder into that of the seed that is best on the dev set."""
        folder, best = self.job.folder, best_of(self.results, self.task.metric)
        source = self._folder_of(best.seed)
        config, recipe = read_config(source)
        bilm = BILM if self.bilm is not None and self.job.with_bilm else config.bilm
        results = {"best_seed": best.seed, "runs": [result.as_json() for result in self.results]}
        summary = summarize(self.results)
        results |= {part: {name: spread(values) for name, values in scores.items()} for part, scores in summary.items()}
        write_all(
            {
                folder / VOCABULARIES: lambda path: shutil.copyfile(source / VOCABULARIES, path),
                folder / WEIGHTS: lambda path: shutil.copyfile(source / WEIGHTS, path),
                folder / CONFIG: lambda path: write_config(path, replace(config, bilm=bilm), recipe),
                folder / RESULTS: lambda path: write_json(path, results),
            }
        )

    def _write_card(self, folder: Path, results: Sequence[Result]) -> None:
        job = self.job
        files = ", ".join(Path(file).name for file in self.task.files(job.train))
        train = f"{files}, {len(self.sets['train']):,} examples"
        text = task_card(job.task, train, self._describe_elmo(), results, self.task.metric)
        write_all({folder / CARD: lambda path: write_text(path, text)})

    def _describe_elmo(self) -> str:
        if self.bilm is None:
            return "none: the baseline"
        config, name = self.job.recipe.elmo, Path(self.job.elmo).name
        width, place = self.bilm.config.width, "input and output" if config.at == "both" else config.at
        layers = f"{self.bilm.config.num_layers} layers" if config.layers == "all" else "the top layer"
        return f"{name}, {layers}, {width} wide, at the {place}, {config.vectors}"
