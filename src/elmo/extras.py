"""Optional packages, which only parts of the code need, and how to install them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from elmo.errors import ElmoError

EXTRAS = {
    "faiss": "analysis",
    "flair": "flair",
    "gensim": "static",
    "jinja2": "explore",
    "matplotlib": "analysis",
    "pyarrow": "parquet",
    "ray": "ray",
    "sentence_transformers": "sentence-transformers",
    "sentencex": "sentences",
    "sklearn": "sklearn",
    "spacy": "spacy",
    "starlette": "explore",
    "tensorboard": "tensorboard",
    "uvicorn": "explore",
    "zstandard": "zstd",
}
"""The extra of `elmo-torch` that installs each package."""


def missing(package: str, purpose: str) -> ElmoError:
    """Return the error for a package of `EXTRAS` that is not installed; `purpose` says what needs it."""
    return ElmoError(f"{purpose} needs {package}, which is not installed: pip install 'elmo-torch[{EXTRAS[package]}]'")


def import_extra(name: str, purpose: str) -> Any:
    """Import a package of `EXTRAS`, or a module in one.

    Args:
        name: The package or module.
        purpose: What needs it, for the message: "an index", "a figure".

    Raises:
        ElmoError: If the package is not installed, is another version without the module, or can't be imported.
    """
    package = name.split(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        lacking = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        if lacking.split(".")[0] == package:
            if sys.modules.get(package) is None:
                raise missing(package, purpose) from None
            raise ElmoError(
                f"{purpose} needs another version of {package}, since the one that is installed has no module "
                f"{lacking}: pip install 'elmo-torch[{EXTRAS[package]}]'"
            ) from None
        raise ElmoError(f"{purpose} needs {package}, which can't be imported: {error}") from error
