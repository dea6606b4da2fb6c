"""Optional packages, which only parts of the code need, and how to install them."""

from __future__ import annotations

import importlib
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
        ElmoError: If the package is not installed or can't be imported.
    """
    package = name.split(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == package:
            raise missing(package, purpose) from None
        raise ElmoError(f"{purpose} needs {package}, which can't be imported: {error}") from error
