"""Whose a run folder is: one corpus, one recipe, one model to begin with, whatever the number of starts."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from elmo.errors import ElmoError
from elmo.formats.files import checksum, read_json, write_all, write_json
from elmo.formats.model import Model
from elmo.formats.native import TRAINED_FOR
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.schema import from_mapping
from elmo.targets import LOCK, alone_in
from elmo.text.corpus import Corpus
from elmo.training.metrics import BOARD, METRICS
from elmo.training.recipes import without, write_recipe

RECIPE, CHECKSUM, START = "recipe.yaml", "corpus.sha256", "start.json"
_CHANGEABLE = (
    *("n_epochs", "max_steps", "max_minutes"),
    *("log_every_steps", "evaluate_every_steps", "checkpoint_every_minutes"),
)
"""What of a recipe's training may change from start to start: when the run ends, reports and saves."""

_OF_A_KILLED_START = {CHECKSUM, START, LOCK, *(f".{name}.partial" for name in (CHECKSUM, START, RECIPE))}


@dataclass(frozen=True)
class Start:
    """The model that a run begins with: a checksum of its weights, and what the model card says of it."""

    checksum: str
    history: str

    @classmethod
    def of(cls, model: Model) -> Start:
        """A model as it is now."""
        tensors = {f"bilm/{name}": tensor for name, tensor in model.bilm.state_dict().items()}
        if model.softmax is not None:
            tensors |= {f"softmax/{name}": tensor for name, tensor in model.softmax.state_dict().items()}
        trained, before = (model.figures.get(name) for name in (TRAINED_FOR, "started from"))
        history = model.origin + (f", trained for {trained}" if trained else "")
        return cls(checksum(tensors, {}), history + (f"; that from {before}" if before else ""))


def claim_pretraining_run(folder: Path, corpus: Corpus, recipe: Recipe, start: Start | None) -> Start | None:
    """Make the run folder, or see that it is of the same corpus and recipe; the newest recipe is written to it.

    Returns what the run began with. That must be `start`, if one is given. A folder in which nothing was trained yet,
    as after a first start that ran out of memory, is free for another recipe, corpus or start.
    """
    path = folder / RECIPE
    if path.exists():
        try:
            start = _require_same(folder, corpus, recipe, start)
        except ElmoError:
            if not _is_untrained(folder):
                raise
            with alone_in(folder):
                _forget(folder)
    elif folder.exists() and {file.name for file in folder.iterdir()} - _OF_A_KILLED_START:
        raise ElmoError(f"{folder}: neither empty nor a run folder; choose another one")
    with alone_in(folder) if path.exists() else nullcontext():  # not while another process trains there
        mark(folder, corpus, recipe, start)
    return start


def _require_same(folder: Path, corpus: Corpus, recipe: Recipe, start: Start | None) -> Start | None:
    """What the run began with. Raises ElmoError where the folder is of another corpus, recipe or start."""
    path = folder / RECIPE
    if without(load_pretraining_recipe(str(path)), _CHANGEABLE) != without(recipe, _CHANGEABLE):
        raise ElmoError(f"{path}: is another recipe; go on with that one, or choose another run folder")
    if _read_checksum(folder / CHECKSUM) != corpus.checksum:
        raise ElmoError(f"{folder}: was trained on another corpus than {corpus.folder}; choose another run folder")
    begun = _read_start(folder)
    if start is not None and (begun is None or begun.checksum != start.checksum):
        other = "another model" if begun else "random weights"
        raise ElmoError(f"{folder}: was begun with {other}; choose another folder")
    return begun


def _is_untrained(folder: Path) -> bool:
    """Whether the folder holds nothing but what a start leaves before its first checkpoint."""
    names = {path.name for path in folder.iterdir()}
    return CHECKSUM in names and names <= {*_OF_A_KILLED_START, RECIPE, METRICS, BOARD}


def _forget(folder: Path) -> None:
    """Remove what a start leaves before its first checkpoint."""
    for name in (RECIPE, CHECKSUM, START, METRICS):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / BOARD, ignore_errors=True)


def mark(folder: Path, corpus: Corpus, recipe: Recipe, start: Start | None) -> None:
    """Make the folder and write down whose it is."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = {} if start is None else {folder / START: lambda path: write_json(path, asdict(start))}
    write_all(
        {
            **begun,
            folder / CHECKSUM: lambda path: path.write_text(corpus.checksum + "\n"),
            folder / RECIPE: lambda path: write_recipe(recipe, path),
        }
    )


def _read_checksum(path: Path) -> str:
    """The checksum of the corpus that a run was begun with."""
    if not path.is_file():
        raise ElmoError(f"{path}: is missing; get it back from a copy of the run, or choose another run folder")
    text = path.read_bytes().decode(errors="replace").strip()
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ElmoError(
            f"{path}: is damaged (no SHA-256); write the checksum there that stands in the corpus.json of the corpus "
            "that the run was trained on, or choose another run folder"
        )
    return text


def _read_start(folder: Path) -> Start | None:
    if not (folder / START).exists():
        return None
    return from_mapping(Start, read_json(folder / START), str(folder / START))


def is_begun_with(folder: Path, model: Model) -> bool:
    """Whether there is a run in the folder, and began with this very model."""
    begun = _read_start(folder)
    return begun is not None and begun.checksum == Start.of(model).checksum
