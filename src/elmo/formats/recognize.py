"""`load` recognizes the format of a model from its files and reads it.

Read from top to bottom, this module says how each format is recognized: first by the kind of source (`load`), then by
the files of a folder (`_load_folder`) or by the name and content of a single file (`_load_file`). The rest finds the
files that belong to a file: published weights, options and softmax have names of their own in every collection.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, cast

from elmo.errors import ElmoError, renaming
from elmo.formats import allennlp, many_langs, native
from elmo.formats.allennlp import load_allennlp
from elmo.formats.bilm_hdf5 import CHARACTERS, EMBEDDING, OPTIONS, load_bilm
from elmo.formats.files import read_json
from elmo.formats.hdf5 import SUFFIXES, names_of
from elmo.formats.many_langs import load_many_langs
from elmo.formats.model import Model
from elmo.formats.native import load_native
from elmo.formats.sources import (
    ARCHIVES,
    BUNDLED_MODELS,
    bundled_folder,
    did_you_mean,
    fetch_from_hub,
    fetch_model,
    is_bundled,
    is_download,
    is_hub_name,
    local_path,
    require_source,
)
from elmo.formats.tensorflow import find_checkpoint, indexes_in, load_tensorflow, prefix_of
from elmo.targets import is_there

READS = (
    "a model folder (config.json, model.safetensors), published bilm weights (an .hdf5 file next to its options.json), "
    "a bilm-tf checkpoint (its .index file), an AllenNLP task model (weights.th), an ELMoForManyLangs folder "
    "(encoder.pkl, token_embedder.pkl), or an archive of one of these"
)
BILM = (CHARACTERS, "RNN_0", "rnn")
"""The top-level names of a biLM in an HDF5 file. A biLM that reads whole words lacks the first. One of a single
direction that bilm-tf exported has the last instead of the second."""

PARTS = (*BILM, "softmax", EMBEDDING)
"""The top-level names of an HDF5 file that show which parts of a model it contains."""

_OTHER_ARCHIVES = (".xz", ".zst", ".7z", ".rar")
"""The endings of archives and compressed files of kinds that are not read."""

META = "meta.json"
"""The description that the NLPL repository puts next to every model, whatever its family."""

NLPL_WEIGHTS = "model.hdf5"
"""The name of the weights in the NLPL repository, which simple_elmo reads before any other."""


def load(source: str | Path, *, with_softmax: bool = True) -> Model:
    """Read a model from a folder, a file, an archive, the Hugging Face Hub or the cache of downloads.

    The format is recognized from the names and contents of the files (`docs/formats.md` lists the signs).

    Args:
        source: A path; or, as a string, a repository `owner/name` or `owner/name@revision` on the Hub, the name of a
            published model such as `nlpl:162` (`elmo models` lists them), or the address of an archive or of HDF5
            weights with their options next to them. The string `en` always means the package's own English model; a
            folder of that name is `./en` or `Path("en")`.
        with_softmax: Whether to read the softmax and its words, if there are any. Embedding needs neither, and they may
            be larger than all else.

    Returns:
        The model on the CPU, with its weights in float32.

    Raises:
        ElmoError: If there is nothing at `source`, if the format is not recognized, or if the files are damaged or
            do not fit together. The message is one sentence.

    Example:
        >>> load("elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5").config.lstm.projection_dim
        128
    """
    require_source(source)
    if not str(source):
        raise ElmoError("the name of the model is empty; is it a variable that is not set?")
    # The name comes before any path, so that it means the same in every working directory.
    if is_bundled(source):
        if (own := Path(source)).is_dir() and _has_model(own):
            warnings.warn(
                f"{source} is the package's own model; for the folder {own.absolute()}, pass ./{source}", stacklevel=2
            )
        return _load_bundled(str(source), with_softmax)
    if is_download(source):
        return _load_download(str(source), with_softmax)
    path = local_path(source)
    exists = is_there(path)
    if exists and path.is_dir():
        return _load_folder(path, with_softmax)
    # A checkpoint may be named by its prefix, which is the name of no file.
    if prefix := prefix_of(path):
        return load_tensorflow(prefix, with_softmax=with_softmax)
    if exists:
        return _load_file(path, with_softmax)
    if isinstance(source, str) and is_hub_name(source):
        return _load_hub(source, with_softmax)
    raise ElmoError(f"{path}: no such file or folder{did_you_mean(source)}")


def _load_bundled(name: str, with_softmax: bool) -> Model:
    folder = bundled_folder(name)
    model = load_native(folder, with_softmax=with_softmax)
    # A wheel leaves out the softmax, which a package of its own puts into the same folder.
    has_softmax = (folder / native.SOFTMAX).exists()
    addition = "" if has_softmax else f" without its softmax, which pip install 'elmo-torch[{name}-softmax]' adds"
    model.origin = f"the package's own {BUNDLED_MODELS[name]} model{addition}, {model.origin}"
    return model


def _load_download(name: str, with_softmax: bool) -> Model:
    """Read a published model, or one given by its address, from the cache."""
    path = fetch_model(name)
    with renaming(path.parent, name):
        model = _load_file(path, with_softmax)
    model.origin = f"download: {name} holds {model.origin}"
    return model


def _load_hub(name: str, with_softmax: bool) -> Model:
    """Read the model of a repository, from its files or from the only archive among them."""
    folder = fetch_from_hub(name)
    archives = [path for kind in ARCHIVES for path in folder.glob(kind)]
    with renaming(folder, name):  # a folder of the cache, with a hash for its name: nobody would know what it is
        # Next to the files of a model, an archive holds something else, such as the logs of the training.
        if len(archives) == 1 and not _has_model(folder):
            model = _load_file(archives[0], with_softmax)
        else:
            model = _load_folder(folder, with_softmax, is_named=False)
    model.origin = f"Hugging Face Hub: {name} holds {model.origin}"
    return model


def _has_model(folder: Path) -> bool:
    """Return whether a folder has files that contain a model's weights, in any format."""
    names = (native.WEIGHTS, allennlp.WEIGHTS, many_langs.TOKENS, many_langs.ENCODER)
    if any((folder / name).exists() for name in names) or indexes_in(folder):
        return True
    return bool(_weight_files(folder))


def _load_folder(folder: Path, with_softmax: bool, *, is_named: bool = True) -> Model:
    """Read the model of a folder. `is_named` is False if the folder's own name would mean nothing to people."""
    _require_elmo(folder)
    # In other formats there may be a config.json, too, so that it alone is no sign of a native folder.
    if (folder / allennlp.WEIGHTS).exists():
        return load_allennlp(folder)
    if (folder / many_langs.TOKENS).exists() or (folder / many_langs.ENCODER).exists():
        return load_many_langs(folder)
    if native.is_native(folder):
        return load_native(folder, is_named=is_named, with_softmax=with_softmax)
    # bilm-tf's training folder holds checkpoints, and may also hold the weights that were exported from one of them:
    # these are what people use. A checkpoint next to them can still be named itself.
    if not _weight_files(folder) and (checkpoint := find_checkpoint(folder)):
        return load_tensorflow(checkpoint, with_softmax=with_softmax)
    if any(folder.glob("*options*.json")):
        weights = _only_weights(folder)
        return load_bilm(weights, _options_beside(weights), _softmax_beside(weights), with_softmax=with_softmax)
    if (folder / native.CONFIG).exists() and not _weight_files(folder):
        allennlp.refuse_training_folder(folder)
        return load_native(folder, is_named=is_named, with_softmax=with_softmax)  # says what is missing
    if _hdf5_files(folder):
        raise ElmoError(
            f"{folder}: contains weights but no {OPTIONS}, which gives their sizes; add the options, or rename them to "
            f"{OPTIONS} if they have another name (or to x_{OPTIONS} for weights x_weights.hdf5)"
        )
    raise ElmoError(f"{folder}: {_other_folder(folder) or f'contains no model; expected {READS}'}")


def _other_folder(folder: Path) -> str | None:
    """Say what a folder is, and what to do with it, if another command of ours has made it; None otherwise."""
    if (folder / "corpus.json").is_file():
        return "is a corpus and not a model; train a model on it with 'elmo pretrain'"
    if (folder / "index.json").is_file():
        return "is an index and not a model; name the model that it was built with"
    if (folder / "corpus" / "corpus.json").is_file() and (folder / "run").is_dir():
        return "holds a fine-tuning that isn't finished; run the same 'elmo finetune' again"
    return None


def _load_file(path: Path, with_softmax: bool) -> Model:
    # One file of a folder that is a model as a whole.
    if path.name in (native.CONFIG, native.WEIGHTS, allennlp.WEIGHTS, many_langs.TOKENS, many_langs.ENCODER):
        return _load_folder(path.parent, with_softmax)
    if path.suffix == ".json":
        weights = _weights_beside(path)
        return load_bilm(weights, path, _softmax_beside(weights), with_softmax=with_softmax)
    if path.suffix in SUFFIXES:
        return _load_hdf5(path, with_softmax)
    from elmo.formats.archive import is_archive, unpacked  # here, as it imports all that unpacks

    if is_archive(path):
        with unpacked(path) as folder:
            model = _load_folder(folder, with_softmax, is_named=False)
            model.types = model.vocabulary_file = None  # they are in files that are about to be removed
        model.origin = f"archive: {path.name} holds {model.origin}"
        return model
    if path.suffix in _OTHER_ARCHIVES:
        raise ElmoError(
            f"{path}: {path.suffix} files are not read; unpack it, and load what is in it (of archives, .zip, "
            ".tar, .tar.gz and .tar.bz2 are read)"
        )
    raise ElmoError(f"{path}: not a model, or not a complete one; expected {READS}")


def _load_hdf5(path: Path, with_softmax: bool) -> Model:
    """Read an HDF5 file that contains weights, or only the softmax or cached token vectors of weights next to it."""
    names = names_of(path, PARTS)
    if not names & set(BILM) and EMBEDDING in names:
        weights = _weights_of(path, EMBEDDING)
        return load_bilm(weights, _options_beside(weights), token_vectors=path, with_softmax=with_softmax)
    if not names & set(BILM) and "softmax" in names:
        weights = _weights_of(path, "softmax")
        return load_bilm(weights, _options_beside(weights), path, with_softmax=with_softmax)
    return load_bilm(path, _options_beside(path), _softmax_beside(path), with_softmax=with_softmax)


def _require_elmo(folder: Path) -> None:
    """Refuse a folder whose `meta.json` names another family of models, such as word2vec or BERT.

    Without this, a reader would complain of missing options or tensors in a model that is not an ELMo at all.
    """
    values = read_json(folder / META) if (folder / META).exists() else None
    if not isinstance(values, dict):
        return
    algorithm: object = cast("dict[str, Any]", values).get("algorithm")
    facts = cast("dict[str, Any]", algorithm) if isinstance(algorithm, dict) else {"name": algorithm}
    text = " ".join(value for value in (facts.get("name"), facts.get("tool")) if isinstance(value, str))
    if text and "elmo" not in text.lower() and "bilm" not in text.lower():
        raise ElmoError(f"{folder / META}: describes a model of another family, {text}; only ELMo models can be read")


# --- Files that belong to a file


def _hdf5_files(folder: Path) -> list[Path]:
    # macOS puts a file "._x" with metadata next to every x in an archive.
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name[0] != ".")


def _weight_files(folder: Path) -> list[Path]:
    return [path for path in _hdf5_files(folder) if names_of(path, BILM)]


def _only_weights(folder: Path) -> Path:
    """Find the weight file of a folder.

    It is the only HDF5 file; or else the only one that contains weights; or else the only one with "weights" in its
    name; or else the one whose name is that of the weights in the NLPL repository.
    """
    found = _hdf5_files(folder)
    named = [path for path in found if "weights" in path.name]
    for chosen in (found, _weight_files(folder), named, [path for path in found if path.name == NLPL_WEIGHTS]):
        if len(chosen) == 1:
            return chosen[0]
    names = ", ".join(path.name for path in found) or "none"
    raise ElmoError(f"{folder}: expected one .hdf5 weight file, found {names}; give the path of the weight file")


def _weights_beside(options: Path) -> Path:
    """Find the weights for an options file: the file of the matching name, or else the folder's only weights."""
    pair = options.with_name(options.stem.replace("options", "weights") + ".hdf5")
    return pair if pair.exists() else _only_weights(options.parent)


def _weights_of(part: Path, kind: str) -> Path:
    """Find the weights next to a file that contains only another part (`kind`) of the model."""
    names = part.name.replace(kind, "weights"), part.name.replace(f"{kind}_weights", "weights")
    pairs = [pair for pair in map(part.with_name, dict.fromkeys(names)) if pair != part and pair.exists()]
    found = pairs or _weight_files(part.parent)
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ElmoError(f"{part}: contains only '{kind}' and needs its model's weights next to it, found {names}")
    return found[0]


def _softmax_beside(weights: Path) -> Path | None:
    """Find the file with the softmax of `weights`.

    It is the file with the matching name; or else the folder's only softmax, if these are the folder's only weights.
    """
    others = [path for path in _hdf5_files(weights.parent) if path != weights]
    found = [path for path in others if names_of(path, PARTS) == {"softmax"}]
    for name in ("softmax", "softmax_weights"):  # our own naming, then that of the published files
        pair = weights.with_name(weights.name.replace("weights", name))
        if pair in found:
            return pair
    # Among several models, nothing tells whose softmax it is; one of another model would give wrong probabilities.
    return found[0] if len(found) == 1 and len(_weight_files(weights.parent)) == 1 else None


def _options_beside(weights: Path) -> Path:
    """Find the options for a weight file.

    They are `x_options.json` for `x_weights.hdf5` or `x_weights_of_y.hdf5`; or else `options.json`; or else the
    folder's only options, if these are the folder's only weights.
    """
    before, mark, _ = weights.stem.partition("weights")
    names = [weights.stem.replace("weights", "options") + ".json", OPTIONS]
    if mark:
        names.insert(1, f"{before}options.json")
    for options in map(weights.with_name, names):
        if options.exists():
            return options
    found = [path for path in weights.parent.glob("*options*.json") if path.name[0] != "." and path.exists()]
    if len(found) == 1 and len(_weight_files(weights.parent)) == 1:
        return found[0]
    raise ElmoError(
        f"{weights}: there is no {OPTIONS} in the same folder, which gives the model's sizes; add it there, or rename "
        f"the options to {OPTIONS} if they have another name"
    )
