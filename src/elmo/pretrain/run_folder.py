"""Whose a run folder is: one corpus, one recipe, whatever the number of starts."""

from dataclasses import replace
from pathlib import Path

from elmo.config import Recipe
from elmo.errors import ElmoError
from elmo.formats.files import write_all
from elmo.pretrain.recipe import load_recipe, write_recipe
from elmo.text.corpus import Corpus

RECIPE, CHECKSUM = "recipe.yaml", "corpus.sha256"
_OF_A_KILLED_START = {CHECKSUM, f".{CHECKSUM}.partial", f".{RECIPE}.partial"}


def claim(folder: Path, corpus: Corpus, recipe: Recipe) -> None:
    """Make the run folder, or see that it is of the same corpus and recipe; the newest recipe is written to it."""
    path, checksum = folder / RECIPE, folder / CHECKSUM
    if path.exists():
        if _essence(load_recipe(str(path))) != _essence(recipe):
            raise ElmoError(f"{path}: is another recipe; go on with that one, or choose another run folder")
        if checksum.read_text().strip() != corpus.checksum:
            raise ElmoError(f"{folder}: was trained on another corpus than {corpus.folder}; choose another run folder")
    elif folder.exists() and {file.name for file in folder.iterdir()} - _OF_A_KILLED_START:
        raise ElmoError(f"{folder}: neither empty nor a run folder; choose another one")
    mark(folder, corpus, recipe)


def mark(folder: Path, corpus: Corpus, recipe: Recipe) -> None:
    """Make the folder and write down whose it is."""
    folder.mkdir(parents=True, exist_ok=True)
    write_all(
        {
            folder / CHECKSUM: lambda path: path.write_text(corpus.checksum + "\n"),
            folder / RECIPE: lambda path: write_recipe(recipe, path),
        }
    )


def _essence(recipe: Recipe) -> Recipe:
    """A recipe without what may change from start to start: when the run ends, reports and saves."""
    changeable = {
        "n_epochs": 1.0,
        "max_steps": None,
        "max_minutes": None,
        "log_every_steps": 1,
        "evaluate_every_steps": None,
        "checkpoint_every_minutes": 1.0,
    }
    return replace(recipe, training=replace(recipe.training, **changeable))
