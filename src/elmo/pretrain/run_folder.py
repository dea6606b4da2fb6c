"""Whose a run folder is: one corpus, one recipe, whatever the number of starts."""

from dataclasses import replace
from pathlib import Path

from elmo.config import Recipe
from elmo.errors import ElmoError
from elmo.formats.files import write_all
from elmo.pretrain.recipe import load_recipe, write_recipe
from elmo.text.corpus import Corpus


def claim(folder: Path, corpus: Corpus, recipe: Recipe) -> None:
    """Make the run folder, or see that it is of the same corpus and recipe; the newest recipe is written to it."""
    path = folder / "recipe.yaml"
    checksum = folder / "corpus.sha256"
    if path.exists():
        if _essence(load_recipe(str(path))) != _essence(recipe):
            raise ElmoError(f"{path}: is another recipe; go on with that one, or choose another run folder")
        if checksum.read_text().strip() != corpus.checksum:
            raise ElmoError(f"{folder}: was trained on another corpus than {corpus.folder}; choose another run folder")
    elif folder.exists() and any(folder.iterdir()):
        raise ElmoError(f"{folder}: neither empty nor a run folder; choose another one")
    folder.mkdir(parents=True, exist_ok=True)
    write_all(
        {
            checksum: lambda temporary: temporary.write_text(corpus.checksum + "\n"),
            path: lambda temporary: write_recipe(recipe, temporary),
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
