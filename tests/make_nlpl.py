"""Writes small models as the NLPL repository holds them: `model.hdf5`, options, words and `meta.json`, zipped or not.

This does not need `elmo`. It can be called as a script: `python tests/make_nlpl.py some/193.zip`.
"""

from __future__ import annotations

import gzip
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import make_bilm_hdf5
from make_bilm_hdf5 import WEIGHTS_FILE, Options, Weights

ELMO = "Embeddings from Language Models (ELMo)"
WORDS = ["<S>", "</S>", "<UNK>", "og", "i", "det", "på", "som"]


def make_meta(name: str = ELMO, tool: str = "https://github.com/ltgoslo/simple_elmo_training") -> dict[str, Any]:
    """Return the description of a model. `name` is that of its family."""
    return {
        "algorithm": {"command": None, "id": 10, "name": name, "tool": tool, "version": None},
        "contents": [{"filename": "model.hdf5", "format": "hdf5"}, {"filename": "options.json", "format": "json"}],
        "corpus": [{"id": 99, "language": "nob", "lemmatized": False, "tokens": 1000}],
        "dimensions": 1024,
        "id": 193,
        "vocabulary size": len(WORDS),
    }


def make_folder(folder: Path, variant: str = "base", packed_words: bool = False) -> tuple[Path, Options, Weights]:
    """Write the unpacked files, and return the folder, its options and its weights."""
    _, options, weights = make_bilm_hdf5.make(folder, variant)
    (folder / WEIGHTS_FILE).rename(folder / "model.hdf5")
    text = "".join(f"{word}\n" for word in WORDS)
    if packed_words:
        (folder / "vocab.txt.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / "vocab.txt").write_text(text, encoding="utf-8")
    (folder / "meta.json").write_text(json.dumps(make_meta(), indent=2), encoding="utf-8")
    return folder, options, weights


def make_zip(path: Path, folder: Path, inside: str = "") -> Path:
    """Pack the files of a folder as the repository does, deflated, with `inside` before their names."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, inside + file.name)
    return path


if __name__ == "__main__":
    target = Path(sys.argv[1])
    make_zip(target, make_folder(target.with_suffix(""))[0])
