"""Models that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

from elmo.errors import ElmoError

MODELS = Path(__file__).parents[1] / "models"
NAMES = {"en": "English"}


def is_bundled(source: str | Path) -> bool:
    """Whether `source` names a model of the package.

    Only the string itself does: a folder of that name is `./en`, or `Path("en")`.
    """
    return isinstance(source, str) and source in NAMES


def bundled_folder(name: str) -> Path:
    """The model folder of one of `NAMES`; an `ElmoError` where this copy of the package was made without it."""
    folder = MODELS / name
    if not folder.is_dir():
        raise ElmoError(
            f"{name}: this copy of the package is without its {NAMES[name]} model ({folder}); install a released "
            f"wheel, or name another model (a folder called {name} is ./{name})"
        )
    return folder
