"""`load`: recognise a model by what its file or folder holds, and read it."""

from pathlib import Path

from elmo.errors import ElmoError
from elmo.formats import bilm_hdf5, native
from elmo.formats.bilm_hdf5 import load_bilm
from elmo.formats.model import Model
from elmo.formats.native import load_native

READS = (
    "a model folder (config.json, model.safetensors) or published bilm weights (an .hdf5 file beside its options.json)"
)


def load(source: str | Path) -> Model:
    """Read a model from a folder or file.

    `source` is a model folder, a folder with bilm HDF5 weights and `options.json`, or one of those two files.
    Raises `ElmoError`, one sentence, for anything else and for files that are damaged or don't fit together.
    """
    path = Path(source)
    if not path.exists():
        raise ElmoError(f"{path}: no such file or folder")
    if path.is_dir():
        return _load_folder(path)
    if path.name in (native.CONFIG, native.WEIGHTS):
        return load_native(path.parent)
    if path.suffix == ".json":
        return load_bilm(_weights_beside(path), path)
    if path.suffix in (".hdf5", ".h5"):
        return load_bilm(path, _options_beside(path))
    raise ElmoError(f"{path}: not a model; expected {READS}")


def _load_folder(folder: Path) -> Model:
    if (folder / native.CONFIG).exists():
        return load_native(folder)
    if any(folder.glob("*options*.json")):
        return load_bilm(weights := _only_weights(folder), _options_beside(weights))
    if list(folder.glob("*.hdf5")):
        raise ElmoError(f"{folder}: has weights but no {bilm_hdf5.OPTIONS}, which says their sizes")
    raise ElmoError(f"{folder}: holds no model; expected {READS}")


def _only_weights(folder: Path) -> Path:
    """The folder's weight file: the only HDF5 file, or the only one named as weights."""
    found = sorted(folder.glob("*.hdf5"))
    named = [path for path in found if "weights" in path.name]
    chosen = found if len(found) == 1 else named
    if len(chosen) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ElmoError(f"{folder}: expected one .hdf5 weight file, found {names}; name the file itself")
    return chosen[0]


def _weights_beside(options: Path) -> Path:
    """The weights of an options file: of a pair, or the folder's only ones."""
    pair = options.with_name(options.stem.replace("options", "weights") + ".hdf5")
    return pair if pair.exists() else _only_weights(options.parent)


def _options_beside(weights: Path) -> Path:
    """The options of a weight file: `options.json`, or published pairs like `x_weights.hdf5` and `x_options.json`."""
    pair = weights.with_name(weights.stem.replace("weights", "options") + ".json")
    for options in (pair, weights.with_name(bilm_hdf5.OPTIONS)):
        if options.exists():
            return options
    raise ElmoError(f"{weights}: no {bilm_hdf5.OPTIONS} beside it, which says the sizes")
