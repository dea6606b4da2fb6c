"""Packages that only some of the code needs, and how to get them."""

from __future__ import annotations

import importlib
from typing import Any

from elmo.errors import ElmoError

EXTRAS = {
    "faiss": "analysis",
    "gensim": "static",
    "matplotlib": "analysis",
    "pyarrow": "parquet",
    "spacy": "spacy",
    "starlette": "explore",
    "tensorboard": "train",
    "uvicorn": "explore",
    "zstandard": "zstd",
}
"""The extra of `elmo-torch` that brings each."""


def missing(package: str, purpose: str) -> ElmoError:
    """What to say where a package isn't there."""
    return ElmoError(f"{purpose} needs {package}, which is not installed: pip install 'elmo-torch[{EXTRAS[package]}]'")


def import_extra(name: str, purpose: str) -> Any:
    """A package of `EXTRAS` or one of its modules; an ElmoError says what needs it if it isn't installed, or broken."""
    package = name.split(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == package:
            raise missing(package, purpose) from None
        raise ElmoError(f"{purpose} needs {package}, which can't be imported: {error}") from error
