"""Models that are named instead of given as a path: of the package, on the Hugging Face Hub, published elsewhere."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from elmo.errors import ElmoError
from elmo.formats.download import AbsentError, http_errors, is_address
from elmo.formats.hdf5 import SUFFIXES
from elmo.formats.model_cache import OPTIONS, WEIGHTS, fetch, file_name
from elmo.formats.published import PublishedModel, find_by_address, find_published, published_models

MODELS = Path(__file__).parents[1] / "models"
BUNDLED_MODELS = {"en": "English"}
"""The models of the package, name to language."""

_HUB_NAME = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
_OTHER_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+://")
ARCHIVES = ["*.zip", "*.tar.gz", "*.tar.bz2", "*.tar"]
"""The names of archives that are read."""

HUB_FILES = [
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
    "*options_file",
    *ARCHIVES,
]
"""The files that models consist of, in all the formats that we read."""


def is_bundled(source: str | Path) -> bool:
    """Return whether `source` names a model of the package.

    Only the string itself does. A folder of that name can be given as `./en` or `Path("en")`.
    """
    return isinstance(source, str) and source in BUNDLED_MODELS


def require_source(source: object) -> None:
    """Raise an ElmoError for what can't name a model, such as None or a model that is already loaded."""
    if not isinstance(source, str | os.PathLike):
        raise ElmoError(f"`model`: expected a path, a name or an address, found {type(source).__name__}")


def as_text(source: str | Path) -> str:
    """Return a string that means the same source: a path becomes absolute, since `en` alone would be the package's."""
    require_source(source)
    return source if isinstance(source, str) else str(Path(source).absolute())


def did_you_mean(source: str | Path) -> str:
    """Return the end of a message that says which model a word may stand for, or nothing if it stands for none.

    Args:
        source: What was taken for a path. It may be part of a model's name, such as "original", or its language.
    """
    word = str(source).strip().lower()
    names = [name for name, language in BUNDLED_MODELS.items() if word in (name, language.lower())]
    if not names:  # whole words alone: `in_language` would take hu-corpus for Hungarian
        names = [
            name
            for name, model in published_models().items()
            if word in (name.lower(), name.partition(":")[2].lower(), model.code, model.language.lower())
        ]
    if not names and ":" in word:  # a path rarely has one, so the name of a published model is misspelt
        names = get_close_matches(word, published_models(), 1, 0.8)
    return f"; did you mean {' or '.join(names[:3])}? (elmo models lists all)" if names else ""


def refuse_address(source: str | Path) -> None:
    """Raise an ElmoError for an address that is not fetched, such as `s3://…`, which would be taken for a path."""
    if _OTHER_ADDRESS.match(str(source)) and not is_address(str(source)):
        is_file = str(source).lower().startswith("file:")
        advice = "pass the path alone" if is_file else "download it, and pass the path"
        raise ElmoError(f"{source} is an address that can't be fetched; {advice}")


def local_path(source: str | Path) -> Path:
    """Return the path that `source` is, with the user's home directory for `~`.

    Raises:
        ElmoError: If it is an address, or there is no such home directory.
    """
    refuse_address(source)
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise ElmoError(f"{source}: there is no home directory for ~; pass the whole path") from None


def bundled_folder(name: str) -> Path:
    """Return the folder of one of the models in `BUNDLED_MODELS`.

    Raises:
        ElmoError: If this copy of the package was built without the model.
    """
    folder = MODELS / name
    if not folder.is_dir():
        raise ElmoError(
            f"{name}: this copy of the package was built without its {BUNDLED_MODELS[name]} model ({folder}); install "
            f"a released wheel, or name another model (a folder called {name} is ./{name})"
        )
    return folder


def is_hub_name(source: str) -> bool:
    """Return whether `source` is of the form `owner/name` or `owner/name@revision` with no local folder `owner`.

    Where there is such a folder, a path was meant, and its typing error must not become a request to the Hub.
    """
    return bool(_HUB_NAME.fullmatch(source)) and not Path(source).parent.exists()


def fetch_from_hub(name: str) -> Path:
    """Fetch the files of a repository that belong to a model.

    Files in the cache are used if they are the same as on the Hub, or if the Hub can't be reached.

    Args:
        name: A repository for which `is_hub_name` is true.

    Returns:
        The folder of the files in the cache.

    Raises:
        ElmoError: If the Hub does not have the repository, or can't be reached and the cache does not have it.
    """
    # Imported only here, because it takes time that reading a local model need not take.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    found = _HUB_NAME.fullmatch(name)
    assert found is not None
    try:
        folder = snapshot_download(found["repository"], revision=found["revision"], allow_patterns=HUB_FILES)
    except LocalEntryNotFoundError:
        raise ElmoError(
            f"{name}: no such file or folder, not in the cache, and the Hugging Face Hub can't be reached"
        ) from None
    except (*http_errors(), OSError, ValueError) as error:  # of an invalid name, or of an answer that isn't the Hub's
        reason = next(filter(None, map(str.strip, str(error).split("\n"))), type(error).__name__)
        raise ElmoError(f"{name}: no such file or folder, nor could the Hugging Face Hub give it ({reason})") from None
    return Path(folder)


def is_download(source: str | Path) -> bool:
    """Return whether `source` is the name of a published model, such as `nlpl:162`, or an address.

    Raises:
        ElmoError: If it names a collection of models and none of its models.
    """
    return isinstance(source, str) and (is_address(source) or find_published(source) is not None)


def fetch_model(source: str) -> Path:
    """Download a model, unless it is in the cache.

    Args:
        source: A name or address for which `is_download` is true. The address of HDF5 weights stands for their options
            too: `x_options.json` for `x_weights.hdf5`, or else `options.json`.

    Returns:
        The archive, or the weights, whose options are in the same folder.

    Raises:
        ElmoError: As `elmo.formats.model_cache.fetch` does.
    """
    model = find_by_address(source) if is_address(source) else find_published(source)
    if model is not None:
        files = _files_of(model)
        return fetch(model.name, files) / list(files)[-1]
    if Path(file_name(source)).suffix not in SUFFIXES:
        return fetch(source, {file_name(source): source}) / file_name(source)
    places = _options_next_to(source)
    for options in places:
        try:
            fetch(source, {OPTIONS: options})
        except AbsentError:
            if options == places[-1]:
                raise
        else:
            break
    return fetch(source, {WEIGHTS: source}) / WEIGHTS


def _options_next_to(weights: str) -> list[str]:
    """Return the addresses at which the options of weights may be, the likeliest first."""
    folder, _, name = weights.partition("?")[0].rpartition("/")
    pair = f"{name.rpartition('.')[0].replace('weights', 'options')}.json"
    return [f"{folder}/{options}" for options in dict.fromkeys((pair, OPTIONS))]


def fetch_pair(options: str | Path, weights: str | Path) -> tuple[Path, Path]:
    """Download those of a model's two files that are given by their addresses, and return both paths."""
    given = {OPTIONS: options, WEIGHTS: weights}
    files = {file: each for file, each in given.items() if isinstance(each, str) and is_address(each)}
    if not files:
        return local_path(options), local_path(weights)
    address = list(files.values())[-1]
    model = find_by_address(address)
    # A published model has one copy, however it is asked for. The same weights may be given with several options.
    if model and set(files.items()) <= set(_files_of(model).items()):
        name = model.name
    elif len(files) == 1 or files[OPTIONS] == _options_next_to(address)[0]:
        name = address
    else:
        name = f"{address}#{files[OPTIONS]}"
    folder = fetch(name, files)
    paths = [folder / file if file in files else local_path(each) for file, each in given.items()]
    return paths[0], paths[1]


def _files_of(model: PublishedModel) -> dict[str, str]:
    """Return the addresses of a published model's files, by the names that they get in the cache."""
    names = (OPTIONS, WEIGHTS) if len(model.files) == 2 else map(file_name, model.files)
    return dict(zip(names, model.files, strict=True))
