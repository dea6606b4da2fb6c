"""Ties a run folder to one corpus, one recipe and one model to begin with, however often the run is started."""

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
"""The settings that may be different when a run is started again: when it ends, reports and saves."""

_OF_A_KILLED_START = {CHECKSUM, START, LOCK, *(f".{name}.partial" for name in (CHECKSUM, START, RECIPE))}


@dataclass(frozen=True)
class Start:
    """The model that a run begins with.

    Attributes:
        checksum: A checksum of its weights.
        history: How it was trained, for the model card.
    """

    checksum: str
    history: str

    @classmethod
    def of(cls, model: Model) -> Start:
        """Describe a model as it is now."""
        tensors = {f"bilm/{name}": tensor for name, tensor in model.bilm.state_dict().items()}
        if model.softmax is not None:
            tensors |= {f"softmax/{name}": tensor for name, tensor in model.softmax.state_dict().items()}
        trained, before = (model.figures.get(name) for name in (TRAINED_FOR, "started from"))
        history = model.origin + (f", trained for {trained}" if trained else "")
        return cls(checksum(tensors, {}), history + (f"; that from {before}" if before else ""))


def claim_pretraining_run(folder: Path, corpus: Corpus, recipe: Recipe, start: Start | None) -> Start | None:
    """Create a run folder, or check that an existing one belongs to this run, and write the recipe to it.

    A folder in which nothing was trained yet, such as after a first start that ran out of memory, may be used for
    another recipe, corpus or start.

    Args:
        folder: The run folder.
        corpus: The corpus to train on.
        recipe: The recipe. Compared with an earlier start, only when the run ends, reports and saves may be different.
        start: The model to begin with; None for random weights, or for the model that an earlier start began with.

    Returns:
        The model that the run began with, or None if it began with random weights.

    Raises:
        ElmoError: If the folder belongs to another run or is not a run folder, or if another process trains there.
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
                mark(folder, corpus, recipe, start)
            return start
    elif folder.exists() and {file.name for file in folder.iterdir()} - _OF_A_KILLED_START:
        raise ElmoError(f"{folder}: is neither empty nor a run folder; choose another one")
    with alone_in(folder) if path.exists() else nullcontext():  # refuses the folder while another process trains there
        mark(folder, corpus, recipe, start)
    return start


def require_claimed(folder: Path, corpus: Corpus, recipe: Recipe, start: Start | None) -> None:
    """Check that the folder still belongs to this run: until training locks it, another process may claim it.

    Raises:
        ElmoError: If another run has claimed the folder since this one did.
    """
    if (folder / RECIPE).exists() and _require_same(folder, corpus, recipe, start) != start:
        raise ElmoError(f"{folder}: another process has begun another run there; choose another folder")


def _require_same(folder: Path, corpus: Corpus, recipe: Recipe, start: Start | None) -> Start | None:
    """Return what the run began with; an ElmoError if the folder belongs to another corpus, recipe or start."""
    path = folder / RECIPE
    if without(load_pretraining_recipe(str(path)), _CHANGEABLE) != without(recipe, _CHANGEABLE):
        raise ElmoError(f"{path}: holds another recipe; continue with that one, or choose another run folder")
    if _read_checksum(folder / CHECKSUM) != corpus.checksum:
        raise ElmoError(f"{folder}: was trained on another corpus than {corpus.folder}; choose another run folder")
    begun = _read_start(folder)
    if start is not None and (begun is None or begun.checksum != start.checksum):
        other = "another model" if begun else "random weights"
        raise ElmoError(f"{folder}: was begun with {other}; choose another folder")
    return begun


def _is_untrained(folder: Path) -> bool:
    """Whether the folder holds only files that a start leaves there before its first checkpoint."""
    names = {path.name for path in folder.iterdir()}
    return CHECKSUM in names and names <= {*_OF_A_KILLED_START, RECIPE, METRICS, BOARD}


def _forget(folder: Path) -> None:
    """Remove the files that a start leaves in a folder before its first checkpoint."""
    for name in (RECIPE, CHECKSUM, START, METRICS):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / BOARD, ignore_errors=True)


def mark(folder: Path, corpus: Corpus, recipe: Recipe, start: Start | None) -> None:
    """Create a run folder if it does not exist, and record which corpus, recipe and start it belongs to."""
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
    """Read the checksum of the corpus that a run was begun with."""
    if not path.is_file():
        raise ElmoError(f"{path}: is missing; restore it from a copy of the run, or choose another run folder")
    text = path.read_bytes().decode(errors="replace").strip()
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ElmoError(
            f"{path}: is damaged (not a SHA-256 checksum); replace its content with the checksum in the corpus.json of "
            "the corpus that the run was trained on, or choose another run folder"
        )
    return text


def _read_start(folder: Path) -> Start | None:
    if not (folder / START).exists():
        return None
    return from_mapping(Start, read_json(folder / START), str(folder / START))


def is_begun_with(folder: Path, model: Model) -> bool:
    """Whether the folder holds a run that began with exactly this model."""
    begun = _read_start(folder)
    return begun is not None and begun.checksum == Start.of(model).checksum
