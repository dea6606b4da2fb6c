"""Models on the Hugging Face Hub, by name: fetched once, then read from the cache, offline too."""

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
"""What models of any format that we read consist of."""


def is_name(source: str) -> bool:
    """Whether `source` names a repository (`owner/name`, or `owner/name@revision`), not a file in a folder here."""
    return bool(_NAME.fullmatch(source)) and not Path(source).parent.exists()


def fetch(name: str) -> Path:
    """The folder of a repository's files, from the cache where they are as on the Hub, or where it can't be reached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        HTTPError,  # pyright: ignore[reportPrivateImportUsage] - of the library below it
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
