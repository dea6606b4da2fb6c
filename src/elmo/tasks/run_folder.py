"""The run folder of a task: a finished model with everything that is needed to load it on any machine.

It holds `config.json` (the task, the recipe, and checksums of what it was trained on), `vocabularies.json`,
`weights.safetensors`, `bilm/` (a model folder, if ELMo is used), `README.md`, `results.json`, `metrics.csv`, and a
checkpoint until training is finished. With several seeds, each has a subfolder that is such a run folder, with the
checkpoint and `metrics.csv`. The folder itself holds the rest: the model of the best seed, the results of all, and the
`bilm/` that they share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from elmo import formats
from elmo.embed.fingerprint import fingerprint
from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json
from elmo.formats.model import Model, without_softmax
from elmo.formats.native import is_native, save_native
from elmo.formats.safetensors import read_tensors, write_tensors
from elmo.formats.sources import local_path
from elmo.schema import from_mapping, to_mapping
from elmo.tasks.checkpoint import WEIGHTS, fill
from elmo.tasks.common.objects import is_list_of
from elmo.tasks.elmo.input import ElmoInput, make_elmo_layers
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.results import Result
from elmo.tasks.task import TASKS, Vocabularies, get_task
from elmo.tasks.trained import TrainedTask

CONFIG, VOCABULARIES, RESULTS, CARD = "config.json", "vocabularies.json", "results.json", "README.md"
BILM, CACHE = "bilm", "vectors"
SHARED_BILM = f"../{BILM}"
FORMAT = 1

_SEED = re.compile("seed-(0|[1-9][0-9]*)")
"""The name of the subfolder in which one of several seeds is trained."""

LARGEST_VOCABULARIES = 1 << 30
"""The largest size of `vocabularies.json` in bytes: room for some fifty million words."""


@dataclass(frozen=True)
class RunConfig:
    """The contents of `config.json`, except the recipe.

    Attributes:
        format: The version of the run folder's format.
        task: The name of the task.
        bilm: Where the biLM is: `bilm` or `../bilm` for a copy, relative to the run folder; otherwise its path or its
            name, such as "en". None without ELMo.
        fingerprint: The checksum of the biLM. None without ELMo.
        train: The checksum of the training set.
        dev: The checksum of the dev set.
        test: The checksum of the test set, if there is one.
    """

    format: int
    task: str
    bilm: str | None
    fingerprint: str | None
    train: str
    dev: str
    test: str | None = None


@dataclass(frozen=True)
class StoredRun:
    """What a run folder holds of its model, read into memory: enough to load the model, or to write the folder again.

    Attributes:
        folder: The run folder that was read.
        config: What the run was trained on.
        recipe: The recipe.
        vocabularies: The lists of strings that the model knows.
        weights: The weights of the best epoch.
        bilm: The biLM. None without ELMo.
    """

    folder: Path
    config: RunConfig
    recipe: TaskRecipe
    vocabularies: Vocabularies
    weights: Mapping[str, Tensor]
    bilm: Model | None

    def load(self, device: torch.device | str = "cpu") -> TrainedTask[Any, Any]:
        """Make the model on a device.

        Raises:
            ElmoError: If the vocabularies are damaged, or the weights do not match them and the recipe.
        """
        task = get_task(self.config.task)
        elmo = ElmoInput(self.bilm, self.recipe.elmo, make_elmo_layers(self.bilm, self.recipe.elmo, device))
        try:
            with torch.random.fork_rng(devices=[]):  # the first weights are random, and are replaced below
                model = task.model(self.recipe, self.vocabularies, elmo).to(device)
        except ElmoError:
            raise
        except (IndexError, TypeError, ValueError) as error:  # some lists hold numbers or rules, written as strings
            where = self.folder / VOCABULARIES
            raise ElmoError(f"{where}: is damaged ({error}); get it again or train again") from error
        fill(model.state_dict(), self.weights, self.folder / WEIGHTS)
        return TrainedTask(task, self.recipe, model, None if self.bilm is None else self.bilm.text)

    def save(self, folder: Path) -> None:
        """Write a run folder that `load_run` can read on any machine, even if the biLM was in another folder.

        The exception is a biLM of ELMoForManyLangs, which no format of this package can hold: it stays in its place.
        """
        config = self.config
        folder.mkdir(parents=True, exist_ok=True)
        if self.bilm is not None and self.bilm.lexicon is None:
            save_native(_what_vectors_need(self.bilm), folder / BILM)
            config = replace(config, bilm=BILM)
        write_all(
            {
                folder / VOCABULARIES: lambda path: write_json(path, self.vocabularies),
                folder / WEIGHTS: lambda path: write_tensors(path, self.weights),
                folder / CONFIG: lambda path: write_config(path, config, to_mapping(self.recipe)),
            }
        )


def read_run(folder: Path) -> StoredRun:
    """Read the model of a run folder, with the weights of its best epoch.

    Args:
        folder: The run folder. `~` at the beginning is the home folder, as in the names of models.

    Raises:
        ElmoError: If the folder is not a run folder, has not finished an epoch yet, is damaged, or its biLM is missing
            or a different one.
    """
    folder = local_path(folder)
    if not (folder / CONFIG).is_file():
        if started := started_seeds(folder):
            raise ElmoError(
                f"{folder}: not all of its seeds are trained; run the same 'elmo task train' again to continue, or "
                f"name the folder of a seed, such as {seed_folder(folder, started[0])}"
            )
        raise ElmoError(f"{folder}: is not the run folder of a task; make one with 'elmo task train'")
    config, values = read_config(folder)
    if not (folder / WEIGHTS).is_file():
        raise ElmoError(
            f"{folder}: its training has not finished an epoch yet; run the same 'elmo task train' again to continue"
        )
    recipe: TaskRecipe = from_mapping(get_task(config.task).recipe, values, f"{folder / CONFIG}: recipe")
    bilm = _load_bilm(folder, config)
    vocabularies = _read_vocabularies(folder / VOCABULARIES)
    return StoredRun(folder, config, recipe, vocabularies, read_tensors(folder / WEIGHTS)[0], bilm)


def load_run(folder: Path, device: torch.device | str = "cpu") -> TrainedTask[Any, Any]:
    """Load the model of a run folder on a device. `read_run` says which errors there may be."""
    return read_run(folder).load(device)


class _Lists(dict[str, list[str]]):
    """Lists of strings by name. The error for a name that is missing says which file is damaged."""

    def __init__(self, lists: dict[str, list[str]], path: Path) -> None:
        super().__init__(lists)
        self._path = path

    def __missing__(self, name: str) -> list[str]:
        raise ElmoError(f"{self._path}: key {name!r} is missing; the file is damaged, get it again or train again")


def _read_vocabularies(path: Path) -> Vocabularies:
    """Read the lists of strings that a model knows."""
    match read_json(path, LARGEST_VOCABULARIES):
        case {**lists} if all(is_list_of(words, str) for words in lists.values()):
            return _Lists(lists, path)
        case _:
            raise ElmoError(f"{path}: holds something other than lists of strings; get it again or train again")


def _load_bilm(folder: Path, config: RunConfig) -> Model | None:
    """Load the biLM that a run was trained with, and refuse any other one. Return None without ELMo."""
    if config.bilm is None:
        return None
    # A copy is in the folder or next to it. Any other biLM is where it was when the run was trained.
    path = folder / config.bilm
    source = path if path.exists() else config.bilm
    if source in (BILM, SHARED_BILM):
        shared = ", which all seeds of a run share," if source == SHARED_BILM else ""
        raise ElmoError(f"{folder}: its biLM {path}{shared} is missing; put it back")
    try:
        bilm = formats.load(source, with_softmax=False)
    except ElmoError as error:
        raise ElmoError(f"{folder}: its biLM can't be loaded: {error}") from error
    # Earlier versions included the warm state in the fingerprint, whether a run used it or not.
    if config.fingerprint not in (fingerprint(bilm), fingerprint(bilm, with_warm_state=True)):
        raise ElmoError(f"{folder}: was not trained with the biLM that is now {source}; put the original one there")
    return bilm


def is_run(folder: Path) -> bool:
    """Return whether a folder is the run folder of a task, finished or not."""
    if not (folder / CONFIG).is_file():
        return False
    values = read_json(folder / CONFIG)
    return isinstance(values, dict) and {"task", "recipe"} <= values.keys()


def seed_folder(run: Path, seed: int) -> Path:
    """Return the subfolder in which one of several seeds is trained."""
    return run / f"seed-{seed}"


def is_seed_folder(name: str) -> bool:
    """Return whether this is the name of a folder that `seed_folder` returns."""
    return _SEED.fullmatch(name) is not None


def started_seeds(run: Path) -> list[int]:
    """Return the seeds whose training was started in a subfolder of a run folder, whether it is finished or not."""
    found = (_SEED.fullmatch(path.name) for path in run.glob("seed-*"))
    return sorted(int(match[1]) for match in found if match and is_run(run / match[0]))


def read_results(folder: Path) -> list[Result]:
    """Read the results of each seed of a run folder; empty if the run is not finished."""
    path = folder / RESULTS
    if not os.path.lexists(path):
        return []
    values = read_json(path)
    runs: object = cast("dict[str, object]", values).get("runs", [values]) if isinstance(values, dict) else None
    if not isinstance(runs, list):
        raise ElmoError(f"{path}: holds something other than results; train again")
    return [from_mapping(Result, run, str(path)) for run in cast("list[object]", runs)]


def read_config(folder: Path) -> tuple[RunConfig, Mapping[str, Any]]:
    """Read what a run folder was trained on, and the values of its recipe.

    Earlier versions had no `elmo.lowercase`: the biLM read words as they are.
    """
    values = read_json(folder / CONFIG)
    if not isinstance(values, dict) or "recipe" not in values:
        if is_native(folder):
            raise ElmoError(f"{folder}: is a biLM and not the run folder of a task, which 'elmo task train' makes")
        raise ElmoError(f"{folder / CONFIG}: key 'recipe' is missing; is it a run folder of a task?")
    values = cast("dict[str, Any]", values)
    config = from_mapping(RunConfig, {k: v for k, v in values.items() if k != "recipe"}, str(folder / CONFIG))
    if config.format > FORMAT:
        raise ElmoError(f"{folder / CONFIG}: format {config.format} is newer than this program; update elmo-torch")
    if config.task not in TASKS:
        known = ", ".join(TASKS)
        raise ElmoError(f"{folder / CONFIG}: task {config.task!r} is unknown to this program, which has {known}")
    match values["recipe"]:
        case {"elmo": {**elmo}} as recipe:
            return config, {**recipe, "elmo": {"lowercase": False, **elmo}}
        case recipe:
            return config, recipe


def write_config(path: Path, config: RunConfig, recipe: Mapping[str, Any]) -> None:
    """Write the file that `read_config` reads."""
    write_json(path, {**to_mapping(config), "recipe": recipe})


def keep_bilm(model: Model, folder: Path) -> None:
    """Save what ELMo's vectors need of a model as the model folder `folder`, unless it is already there."""
    if not is_native(folder):
        save_native(_what_vectors_need(model), folder)


def _what_vectors_need(model: Model) -> Model:
    return without_softmax(model).copy_with(warm_state=model.warm_state)
