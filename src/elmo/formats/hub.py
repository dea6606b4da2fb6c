"""Fetches models from the Hugging Face Hub once; later they are read from the cache, even offline."""

from __future__ import annotations

import re
from pathlib import Path

from elmo.errors import ElmoError

_NAME = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
_FILES = [
    "README.md",
    "*.json",
    "*.safetensors",
    "*.hdf5",
    "*.h5",
    "*.txt",
    "*.txt.gz",
    "*.index",
    "*.data-*",
    "checkpoint",
    "*.th",
    "*.pkl",
    "*.dic",
    "*.zip",
    "*.tar.gz",
]
"""The files that models consist of, in all the formats that we read."""


def is_name(source: str) -> bool:
    """Return whether `source` is of the form `owner/name` or `owner/name@revision` with no local folder `owner`."""
    return bool(_NAME.fullmatch(source)) and not Path(source).parent.exists()


def fetch(name: str) -> Path:
    """Fetch the files of a repository that belong to a model.

    Files in the cache are used if they are the same as on the Hub, or if the Hub can't be reached.

    Args:
        name: A repository for which `is_name` is true.

    Returns:
        The folder of the files in the cache.

    Raises:
        ElmoError: If the Hub does not have the repository, or can't be reached and the cache does not have it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        HTTPError,  # pyright: ignore[reportPrivateImportUsage] - it belongs to the HTTP library
        LocalEntryNotFoundError,
    )

    found = _NAME.fullmatch(name)
    assert found is not None
    try:
        folder = snapshot_download(found["repository"], revision=found["revision"], allow_patterns=_FILES)
    except LocalEntryNotFoundError:
        raise ElmoError(
            f"{name}: no such file or folder, not in the cache, and the Hugging Face Hub can't be reached"
        ) from None
    except (HTTPError, HFValidationError, OSError) as error:
        reason = next(filter(None, map(str.strip, str(error).split("\n"))), type(error).__name__)
        raise ElmoError(f"{name}: no such file or folder, nor could the Hugging Face Hub give it ({reason})") from None
    return Path(folder)
