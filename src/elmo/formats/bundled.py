"""The models that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

from elmo.errors import ElmoError

MODELS = Path(__file__).parents[1] / "models"
NAMES = {"en": "English"}


def is_bundled(source: str | Path) -> bool:
    """Return whether `source` names a model of the package.

    Only the string itself does. A folder of that name can be given as `./en` or `Path("en")`.
    """
    return isinstance(source, str) and source in NAMES


def bundled_folder(name: str) -> Path:
    """Return the folder of one of the models in `NAMES`.

    Raises:
        ElmoError: If this copy of the package was built without the model.
    """
    folder = MODELS / name
    if not folder.is_dir():
        raise ElmoError(
            f"{name}: this copy of the package was built without its {NAMES[name]} model ({folder}); install a "
            f"released wheel, or name another model (a folder called {name} is ./{name})"
        )
    return folder
