"""Runs a whole training of a task: reads data, makes vocabularies, trains one or several seeds, and writes scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from elmo import formats
from elmo.embed.embedder import lasting_source
from elmo.embed.fingerprint import fingerprint
from elmo.errors import ElmoError
from elmo.formats.files import write_all, write_json, write_text
from elmo.formats.model import Model, require_warm_state
from elmo.nn.devices import use_device
from elmo.schema import require_count, require_seed
from elmo.targets import require_folder
from elmo.tasks.card import task_card
from elmo.tasks.checkpoint import CHECKPOINT
from elmo.tasks.claim import Claim, require_run_folder
from elmo.tasks.common.static_vectors import FileWords, describe_words, find_words, set_word_vectors
from elmo.tasks.elmo.cache import LiveLayers, reads_lower_case, remove_cache
from elmo.tasks.elmo.input import ElmoInput, FrozenLayers, TrainedLayers, make_elmo_layers
from elmo.tasks.notes import notes_on_data
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.results import Result
from elmo.tasks.run_folder import BILM, CACHE, CARD, FORMAT, RESULTS, RunConfig, read_results
from elmo.tasks.task import Task, get_task
from elmo.tasks.trainer import Trainer
from elmo.training.machine import machine_name
from elmo.training.metrics import require_tensorboard
from elmo.training.run_folder import checksum_of_examples

E = TypeVar("E")

NO_ELMO = "none"


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
        elmo: Any model that `elmo.load` reads, or the string "none" for a baseline.
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
    elmo: str | Path = NO_ELMO
    with_bilm: bool = True
    cache: Path | None = None
    num_seeds: int = 1
    device: str = "auto"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        require_count("`num_seeds`", self.num_seeds)
        # Before any seed is trained, check that the last one is a possible seed, too.
        require_seed("training.seed", self.recipe.training.seed + self.num_seeds - 1)


Sets = Mapping[str, Sequence[Any]]
"""The examples of a task by the name of their set: "train", "dev", and "test" if there is one."""


def read_sets(config: ExperimentConfig) -> Sets:
    """Read the files of an experiment."""
    task = get_task(config.task)
    sets = {"train": task.read_train(config.train, config.recipe), "dev": task.read(config.dev, config.recipe)}
    return sets if config.test is None else {**sets, "test": task.read(config.test, config.recipe)}


def choose(examples: Sequence[E], num_examples: int) -> Sequence[E]:
    """Return `num_examples` examples, or all if there are fewer, in a random order that is always the same.

    A larger number gives the same examples and more.
    """
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0)).tolist()
    return [examples[index] for index in order[:num_examples]]


def share_of(train: Sequence[Any], task: Task[Any, Any, Any], recipe: TaskRecipe) -> Sequence[Any]:
    """Return the share of a training set that the recipe asks for. A larger share contains a smaller one.

    If the task cannot be trained on so few examples, for instance because no sentence has a name in it, examples are
    added until it can.
    """
    share = recipe.training.share
    if share == 1:
        return train
    shuffled = choose(train, len(train))
    for number in range(max(1, round(share * len(train))), len(train)):
        if task.note_on_gold(shuffled[:number], recipe) is None:
            return shuffled[:number]
    return train


class Experiment:
    """An experiment whose files are read. `run` trains it; the same experiment continues where an earlier one stopped.

    Args:
        config: What to do.
        sets: The examples, if they are already read. Experiments on the same data can share them.
        layers: The source of frozen ELMo layers, if experiments share one.

    Attributes:
        config: What to do.
        task: The task.
        device: The device to train on.
        bilm: The biLM; None without ELMo.
        sets: The examples. The training set is the recipe's share of what was read.
        vocabularies: The lists of strings that the model will know.
        results: The results of the seeds that the last call of `run` trained, or found trained.
        notes: Sentences for the user who starts the training, on the word vectors and on what looks like a mistake in
            the data.

    Raises:
        ElmoError: If a file cannot be read, the training set has nothing to learn, the dev set has nothing to measure,
            or the settings contradict each other. A test set may have nothing to measure: no decision depends on it.
    """

    def __init__(self, config: ExperimentConfig, sets: Sets | None = None, layers: FrozenLayers | None = None) -> None:
        if config.tensorboard:
            require_tensorboard()
        self.config, self.task = config, get_task(config.task)
        self.device = use_device(config.device)
        # Before files are read, and before a biLM is fine-tuned for this experiment: both may take long.
        require_run_folder(config.folder, config.num_seeds)
        self.bilm: Model | None = None if config.elmo == NO_ELMO else formats.load(config.elmo)
        self._check_bilm()
        sets = read_sets(config) if sets is None else sets
        for name, path, examples in (("training", config.train, sets["train"]), ("dev", config.dev, sets["dev"])):
            if note := self.task.note_on_gold(examples, config.recipe):
                raise ElmoError(f"{path}: the {name} set {note}")
        self.sets: Sets = {**sets, "train": share_of(sets["train"], self.task, config.recipe)}
        self._given_layers = layers
        self._frozen_layers = layers  # shared by all seeds; without `layers`, made when the first seed is trained
        file_words = self._find_words()
        self.vocabularies = self.task.vocabularies(self.sets["train"], config.recipe, file_words)
        of_vectors = config.recipe.words and describe_words(config.recipe.words, file_words)
        examples = (config.train, sets["train"]), (config.dev, sets["dev"])
        self.notes = [*filter(None, [of_vectors]), *notes_on_data(self.task, config.recipe, self.bilm, *examples)]
        self.results: list[Result] = []

    def with_elmo(self, elmo: Path) -> Experiment:
        """Return the same experiment with another ELMo model, without reading the files again.

        The original must not have run yet. `elmo` is always a folder, even if it is called `en`.
        """
        other = copy(self)
        other.config, other.bilm = replace(self.config, elmo=elmo), formats.load(elmo)
        other._check_bilm()
        return other

    @property
    def is_done(self) -> bool:
        """Whether all seeds are trained."""
        return len(self.results) == self.config.num_seeds

    def run(self) -> list[Result]:
        """Train all seeds that are not trained yet, until the end or an interrupt, and return `results`."""
        config, claim = self.config, self._claim()
        self.results = []  # those of an earlier call are found again in their folders
        with claim.held():
            for seed in claim.seeds:
                with claim.held_seed(seed) as folder:
                    known = read_results(folder)
                    result = known[0] if known else self._train(folder, claim.recipe_of(seed))
                    if result is None:
                        return self.results
                    (folder / CHECKPOINT).unlink(missing_ok=True)  # a kill may have left it next to the results
                self.results.append(result)
            if config.num_seeds > 1:
                claim.keep_best(self.results, self.task.metric)
                self._write_card(config.folder, self.results)
            if config.cache is None:
                # Windows removes no file that is still mapped into memory, and elsewhere it would go on taking space.
                self._frozen_layers = self._given_layers
                remove_cache(config.folder / CACHE)
        return self.results

    def require_same_run(self, *, is_tuned_later: bool = False) -> None:
        """Refuse a folder that `run` would refuse, for callers that train others or fine-tune the biLM first.

        Args:
            is_tuned_later: Whether ELMo will be fine-tuned first, so that its checksum isn't known yet. A run without
                ELMo, or with ELMo as it is now, then counts as a different one.

        Raises:
            ElmoError: If the folder holds a run of other settings, text or biLM, or trained seeds that this run lacks.
        """
        self._claim().require_same(is_tuned_later=is_tuned_later)

    def _claim(self) -> Claim:
        """Return the claim to the run folder, which names all examples and the biLM by their checksums."""
        config, recipe = self.config, self.config.recipe
        bilm = checksum = None
        if self.bilm is not None:
            found = lasting_source(config.elmo)
            source = str(found.resolve() if isinstance(found, Path) else found)
            checksum = fingerprint(self.bilm, with_warm_state=recipe.elmo.state == "warm")
            bilm = BILM if config.with_bilm else source
        sets = {name: checksum_of_examples(examples) for name, examples in self.sets.items()}
        run_config = RunConfig(FORMAT, config.task, bilm=bilm, fingerprint=checksum, **sets)
        # A run records whether its biLM reads words in lower case, even if the recipe leaves that to the biLM.
        lowercase = reads_lower_case(recipe.elmo, self.bilm and self.bilm.text)
        recipe = replace(recipe, elmo=replace(recipe.elmo, lowercase=lowercase))
        seeds = range(recipe.training.seed, recipe.training.seed + config.num_seeds)
        return Claim(config.folder, seeds, run_config, recipe, self.vocabularies, self.bilm)

    def _find_words(self) -> FileWords | None:
        """Look up the words of all sets in the recipe's files of word vectors, counting each distinct sentence once."""
        words = self.config.recipe.words
        if words is None or not words.files:
            return None
        return find_words(set(map(tuple, self.task.all_sentences(chain.from_iterable(self.sets.values())))), words)

    def _check_bilm(self) -> None:
        """Refuse settings that do not fit the biLM, or a run without one, before the run folder is made."""
        self.task.require_usable(self.config.recipe, self.bilm is not None)
        vectors = self.config.recipe.elmo.vectors
        if self.config.cache is not None and (self.bilm is None or vectors != "cached"):
            reason = "without ELMo" if self.bilm is None else f"with elmo.vectors: {vectors}"
            raise ElmoError(f"cache {self.config.cache}: {reason} no vectors are kept; leave it out")
        if self.config.cache is not None:
            require_folder(self.config.cache)
        if self.bilm is None:
            return
        if self.bilm.lexicon is not None and self.config.with_bilm:
            raise ElmoError(
                f"{self.config.elmo}: a model of ELMoForManyLangs has no copy in a run folder; pass `with_bilm=False`"
            )
        if self.config.recipe.elmo.state == "warm":
            require_warm_state(self.bilm.warm_state)

    def _train(self, folder: Path, recipe: TaskRecipe) -> Result | None:
        """Train one seed in its folder, and return its result, or None if it was interrupted."""
        seed, sets = recipe.training.seed, self.sets
        torch.manual_seed(seed)
        elmo = ElmoInput(self.bilm, recipe.elmo, self._make_layers())
        model = self.task.model(recipe, self.vocabularies, elmo)
        set_word_vectors(model, recipe.words)
        model.to(self.device)
        tensorboard = self.config.tensorboard
        trainer: Trainer[Any, Any] = Trainer(
            self.task, model, recipe.training, folder, sets["train"], sets["dev"], tensorboard=tensorboard
        )
        trainer.train()
        if trainer.stopped:
            return None
        scores = {name: trainer.evaluate(examples) for name, examples in sets.items() if name != "train"}
        done, seconds = trainer.progress, trainer.progress.seconds
        rate, machine = done.num_trained / seconds, machine_name(self.device)
        result = Result(seed, done.epoch, done.best_epoch, seconds, rate, scores, machine)
        # The results come last, since they say that the seed is finished.
        self._write_card(folder, [result])
        write_all({folder / RESULTS: lambda path: write_json(path, result.as_json())})
        return result

    def _make_layers(self) -> FrozenLayers | TrainedLayers | None:
        """Return the source of ELMo's layers for the next seed.

        Layers that are cached are computed when the first seed asks for them, which can take hours on a large set.
        """
        elmo_config = self.config.recipe.elmo
        if elmo_config.vectors == "trained":
            return make_elmo_layers(self.bilm, elmo_config, self.device)  # each seed trains a copy of its own
        if self._frozen_layers is None:
            layers = cast("LiveLayers | None", make_elmo_layers(self.bilm, elmo_config, self.device))
            if layers is not None and elmo_config.vectors == "cached":
                sentences = self.task.all_sentences(chain.from_iterable(self.sets.values()))
                layers = layers.cached(sentences, self.config.cache or self.config.folder / CACHE)
            self._frozen_layers = layers  # only now: if there is no cache, the next call has to make it
        return self._frozen_layers

    def _write_card(self, folder: Path, results: Sequence[Result]) -> None:
        config = self.config
        files = ", ".join(Path(file).name for file in self.task.files(config.train))
        train = f"{files}, {len(self.sets['train']):,} examples"
        text = task_card(config.task, train, self._describe_elmo(), results, self.task.metric)
        write_all({folder / CARD: lambda path: write_text(path, text)})

    def _describe_elmo(self) -> str:
        if self.bilm is None:
            return "none: the baseline"
        elmo_config, name = self.config.recipe.elmo, Path(self.config.elmo).name
        width, place = self.bilm.config.width, "input and output" if elmo_config.at == "both" else elmo_config.at
        layers = f"{self.bilm.config.num_layers} layers" if elmo_config.layers == "all" else "the top layer"
        return f"{name}, {layers}, {width} wide, at the {place}, {elmo_config.vectors}"
