"""Reads checkpoints of bilm-tf's training: the biLM and its softmax.

A checkpoint has the same tensors as the HDF5 files that bilm-tf exports from it, under other names, and it is the only
published form with the softmax. So `elmo.formats.bilm_hdf5` does all but find the files and read the tensors.
"""

from __future__ import annotations

import re
from pathlib import Path

from elmo.errors import ElmoError
from elmo.formats.bilm_hdf5 import OPTIONS, WORDS, input_of, read_bilm, read_softmax
from elmo.formats.model import Model
from elmo.formats.tensor_bundle import INDEX, read_bundle
from elmo.formats.tensors import Source
from elmo.targets import is_there

LIST = "checkpoint"
_LONGEST_LIST = 1 << 20
"""The file that names the newest checkpoint of a folder, and how many of its characters are read."""


def load_tensorflow(prefix: Path, *, with_softmax: bool = True) -> Model:
    """Read a checkpoint.

    Args:
        prefix: The path of the checkpoint without `.index`. The `options.json`, and the `vocab.txt` if there is one,
            are in the same folder.
        with_softmax: Whether to read the softmax and its words.

    Raises:
        ElmoError: If a file is missing or damaged, or if the files do not fit together.
    """
    options = _options(prefix)
    stored, num_bytes = read_bundle(prefix)
    variables = {name.removeprefix("lm/"): item for name, item in stored.items()}
    source = Source(variables, prefix.with_name(prefix.name + INDEX), num_bytes, "variable")
    bilm, words = read_bilm(source, options, prefix.with_name(WORDS))
    softmax = vocabulary = None
    if with_softmax:
        softmax, vocabulary = read_softmax(source, bilm.config.lstm.projection_dim, prefix.with_name(WORDS))
    origin = f"TensorFlow checkpoint: {source.path.name} lists 'lm/{input_of(bilm.config)}', sizes from {options.name}"
    return Model(bilm, softmax, words or vocabulary, origin)


def indexes_in(folder: Path) -> list[Path]:
    """Return the index files of the checkpoints in a folder.

    Folders that `elmo index` made are left out, since their names often have the same ending.
    """
    return [path for path in folder.glob(f"*{INDEX}") if not (path / "index.json").is_file()]


def find_checkpoint(folder: Path) -> Path | None:
    """Return the prefix of the newest checkpoint in a folder, as its list says, or of the only one; else None.

    Raises:
        ElmoError: If there are several checkpoints and no list that names one of them.
    """
    found = sorted(path.with_name(path.name.removesuffix(INDEX)) for path in indexes_in(folder))
    if (folder / LIST).is_file():
        with (folder / LIST).open(encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_LIST)
        newest = re.search(r'^model_checkpoint_path: "(?:[^"\n]*[/\\])?([^"/\\\n]+)"', text, re.MULTILINE)
        # Only the last part of the path counts: the list has the paths of the machine that trained, with backslashes
        # if that was Windows.
        if newest and folder / newest[1] in found:
            return folder / newest[1]
    if len(found) > 1:
        raise ElmoError(f"{folder}: expected one checkpoint, found {', '.join(path.name for path in found)}; name one")
    return found[0] if found else None


def prefix_of(path: Path) -> Path | None:
    """Return the prefix of the checkpoint that `path` (a file or the prefix itself) belongs to, or None."""
    if path.name == LIST:
        return find_checkpoint(path.parent)
    name = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.name)
    if not name:
        return None
    prefix = path.with_name(name)
    index = prefix.with_name(prefix.name + INDEX)
    return prefix if is_there(index) and index.is_file() else None


def _options(prefix: Path) -> Path:
    options = prefix.with_name(OPTIONS)
    if not options.exists():
        raise ElmoError(f"{prefix}{INDEX}: there is no {OPTIONS} next to it, which gives the sizes; add it")
    return options
