"""A task's run folder: a finished model with all that it needs, to be loaded anywhere; of several seeds the best one,
and with it the folder of each, which shares its biLM.

`config.json` (task, recipe, what it was trained on), `vocabularies.json`, `weights.safetensors`, `bilm/` (a model
folder, where ELMo is used), `README.md`, `results.json`, `metrics.csv`; and a checkpoint until training is done.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import torch

from elmo import formats
from elmo.embed.embedder import Embedder
from elmo.embed.fingerprint import fingerprint
from elmo.errors import ElmoError
from elmo.formats.files import read_json, remove_partial, write_all, write_json
from elmo.formats.model import Model, require_warm_state, without_softmax
from elmo.formats.native import is_native, save_native
from elmo.schema import from_mapping, to_mapping
from elmo.tasks.card import Result
from elmo.tasks.checkpoint import WEIGHTS, load_weights
from elmo.tasks.elmo.cache import LiveLayers
from elmo.tasks.elmo.input import ElmoInput, FrozenLayers, TrainedLayers
from elmo.tasks.recipe import ElmoConfig, TaskRecipe
from elmo.tasks.registry import get_task
from elmo.tasks.task import Task, TaskModel, Vocabularies
from elmo.text.reading import is_there
from elmo.training.metrics import BOARD, METRICS
from elmo.training.recipes import without

CONFIG, VOCABULARIES, RESULTS, CARD = "config.json", "vocabularies.json", "results.json", "README.md"
BILM, CACHE = "bilm", "vectors"
SHARED_BILM = f"../{BILM}"
FORMAT = 1
CHANGEABLE = ("max_epochs", "patience", "max_minutes", "checkpoint_every_minutes")
"""What of a recipe's training may change from start to start of a run that isn't done."""

LARGEST_VOCABULARIES = 1 << 30
"""In bytes: some fifty million words."""

E = TypeVar("E")
P = TypeVar("P")


@dataclass(frozen=True)
class RunConfig:
    """What `config.json` says, beside the recipe.

    `bilm` is where ELMo's model is, from the folder on, and `fingerprint` its checksum, both None without ELMo;
    `train`, `dev` and `test` are checksums of the sets.
    """

    format: int
    task: str
    bilm: str | None
    fingerprint: str | None
    train: str
    dev: str
    test: str | None = None


@dataclass
class TrainedTask(Generic[E, P]):
    """A task's model, ready to predict (see `trainer.predict`)."""

    task: Task[Any, E, P]
    recipe: TaskRecipe
    model: TaskModel[E, P]


def load_run(folder: Path, device: torch.device | str = "cpu") -> TrainedTask[Any, Any]:
    """The model of a run folder, as of its best epoch."""
    if not (folder / CONFIG).is_file():
        raise ElmoError(f"{folder}: no run folder of a task; make one with 'elmo task train'")
    config, values = read_config(folder)
    if not (folder / WEIGHTS).is_file():
        raise ElmoError(f"{folder}: its training hasn't finished an epoch yet; the same 'elmo task train' goes on")
    task = get_task(config.task)
    recipe: TaskRecipe = from_mapping(task.recipe, values, f"{folder / CONFIG}: recipe")
    bilm = _load_bilm(folder, config)
    elmo = make_elmo_input(bilm, recipe.elmo, make_elmo_layers(bilm, recipe.elmo, device))
    model = task.model(recipe, _read_vocabularies(folder / VOCABULARIES), elmo).to(device)
    load_weights(folder, model)
    return TrainedTask(task, recipe, model)


class _Lists(dict[str, list[str]]):
    """Lists by their names; one that a model asks for must be there."""

    def __init__(self, lists: dict[str, list[str]], path: Path) -> None:
        super().__init__(lists)
        self._path = path

    def __missing__(self, name: str) -> list[str]:
        raise ElmoError(f"{self._path}: key {name!r} is missing; the file is damaged, get it again or train again")


def _read_vocabularies(path: Path) -> Vocabularies:
    """The lists of strings that a model knows."""
    found = read_json(path, LARGEST_VOCABULARIES)
    if isinstance(found, dict):
        lists = cast("dict[str, object]", found)
        if all(isinstance(words, list) and all(isinstance(word, str) for word in words) for words in lists.values()):
            return _Lists(cast("dict[str, list[str]]", lists), path)
    raise ElmoError(f"{path}: holds something else than lists of strings; get it again or train again")


def _load_bilm(folder: Path, config: RunConfig) -> Model | None:
    """The biLM that a run was trained with, and no other; None without ELMo."""
    if config.bilm is None:
        return None
    source = find_bilm(folder, config.bilm)
    bilm = formats.load(source)
    # Runs of earlier versions know their biLM by its warm state, too, whether they start from it or not.
    if config.fingerprint not in (fingerprint(bilm), fingerprint(bilm, with_warm_state=True)):
        raise ElmoError(f"{folder}: was trained with another biLM than what is now {source}; put that one there")
    return bilm


def is_run(folder: Path) -> bool:
    """Whether a folder is a task's run folder, finished or not."""
    if not (folder / CONFIG).is_file():
        return False
    values = read_json(folder / CONFIG)
    return isinstance(values, dict) and {"task", "recipe"} <= values.keys()


def read_results(folder: Path) -> list[Result]:
    """What came of each seed of a run folder; nothing as long as it isn't finished."""
    path = folder / RESULTS
    if not is_there(path):
        return []
    values = cast("dict[str, Any]", read_json(path))
    try:
        return [Result(**run) for run in values.get("runs", [values])]
    except (AttributeError, TypeError) as error:
        raise ElmoError(f"{path}: holds something else than results ({error}); train anew") from None


def make_elmo_layers(
    bilm: Model | None, config: ElmoConfig, device: torch.device | str
) -> LiveLayers | TrainedLayers | None:
    """Where a task's ELMo vectors come from, apart from a cache. A biLM that will be trained is a copy of `bilm`'s."""
    if bilm is None:
        return None
    state = require_warm_state(bilm.warm_state) if config.state == "warm" else None
    if config.vectors == "trained":
        return TrainedLayers(deepcopy(bilm.bilm), bilm.to_ids, state)
    return LiveLayers(Embedder(bilm, device=device), config)


def make_elmo_input(bilm: Model | None, config: ElmoConfig, layers: FrozenLayers | TrainedLayers | None) -> ElmoInput:
    """New scalar mixes of `layers`, which are those of `bilm`."""
    return ElmoInput(config, layers, *((bilm.config.num_layers, bilm.config.width) if bilm else ()))


def read_config(folder: Path) -> tuple[RunConfig, Mapping[str, Any]]:
    """What a run folder is of, and its recipe's values."""
    values = read_json(folder / CONFIG)
    if not isinstance(values, dict) or "recipe" not in values:
        raise ElmoError(f"{folder / CONFIG}: key 'recipe' is missing; is it a run folder of a task?")
    values = cast("dict[str, Any]", values)
    config = from_mapping(RunConfig, {k: v for k, v in values.items() if k != "recipe"}, str(folder / CONFIG))
    if config.format > FORMAT:
        raise ElmoError(f"{folder / CONFIG}: format {config.format} is newer than this program; update elmo-torch")
    return config, values["recipe"]


def claim_task_run(folder: Path, config: RunConfig, recipe: TaskRecipe, vocabularies: Vocabularies) -> None:
    """Make `folder`, which is there and held by this process, a run folder, or see that it is one of the same task,
    recipe, data and biLM. What a process that was killed left half-written there is removed, and all of one that had
    trained nothing yet, as one that ran out of memory, if this is another run."""
    if (folder / CONFIG).exists():
        read_config(folder)  # or it is no run folder
        try:
            require_same(folder, config, recipe, vocabularies)
        except ElmoError:
            visible = {file.name for file in folder.iterdir() if file.name[0] != "."}
            if not visible <= {CONFIG, VOCABULARIES, METRICS, BOARD, BILM, CACHE}:
                raise
            (folder / METRICS).unlink(missing_ok=True)
            for name in (BILM, BOARD):
                shutil.rmtree(folder / name, ignore_errors=True)
    elif any(file.name[0] != "." for file in folder.iterdir()):
        raise ElmoError(f"{folder}: neither empty nor a run folder of a task; choose another one")
    remove_partial(folder)
    # The configuration first: a kill between the two leaves what is known to be a run folder.
    write_all(
        {
            folder / CONFIG: lambda path: write_config(path, config, to_mapping(recipe)),
            folder / VOCABULARIES: lambda path: write_json(path, vocabularies),
        }
    )


def require_same(folder: Path, config: RunConfig, recipe: TaskRecipe, vocabularies: Vocabularies) -> None:
    """Raise ElmoError for a run folder of another task, recipe, data or biLM."""
    before, values = read_config(folder)
    known = from_mapping(get_task(before.task).recipe, values, f"{folder / CONFIG}: recipe")
    essence = without(known, CHANGEABLE), replace(before, bilm=None)
    if essence != (without(recipe, CHANGEABLE), replace(config, bilm=None)):
        raise ElmoError(f"{folder}: is of another recipe, text or biLM; choose another run folder")
    if (folder / RESULTS).exists() and known != recipe:
        raise ElmoError(f"{folder}: is finished, with other settings; choose another run folder")
    kept = {name: list(words) for name, words in vocabularies.items()}
    if (folder / VOCABULARIES).exists() and read_json(folder / VOCABULARIES, LARGEST_VOCABULARIES) != kept:
        raise ElmoError(f"{folder}: knows other words than the recipe's files hold now; choose another run folder")


def write_config(path: Path, config: RunConfig, recipe: Mapping[str, Any]) -> None:
    """Write what `read_config` reads."""
    write_json(path, {**to_mapping(config), "recipe": recipe})


def keep_bilm(model: Model, folder: Path) -> None:
    """Keep what ELMo's vectors need of a model as the model folder `folder`, once."""
    if not is_native(folder):
        save_native(replace(without_softmax(model), warm_state=model.warm_state), folder)


def find_bilm(folder: Path, name: str) -> Path | str:
    """Where the biLM of a run folder is: in the folder or beside it, or else where it was trained from."""
    if name == SHARED_BILM and not (folder / name).exists():
        raise ElmoError(f"{folder}: its biLM is {folder / name}, which all seeds of a run share, and isn't there")
    return folder / name if (folder / name).exists() else name


def checksum_of_examples(examples: Sequence[object]) -> str:
    """A checksum of what examples hold, which prints all of it."""
    digest = hashlib.blake2b(digest_size=16)
    for example in examples:
        digest.update(f"{example!r}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()
