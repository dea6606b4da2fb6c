"""The published fixtures of bilm-tf and of AllenNLP: sentences, and the vectors that TensorFlow computed for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest

from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE
from oracle import Array

SENTENCES_FILES = {"allennlp": "sentences.json", "bilm_tf": "lm_embeddings_sentences.json"}
PUBLISHED = 2e-6
"""Float32 rounding of TensorFlow and of this package. Compared with float64, TensorFlow's alone is up to 1.4e-6."""


@dataclass
class Release:
    """A set of fixtures: 30 sentences in batches of three, and their top layer as computed with carried state."""

    folder: Path
    batches: list[list[list[str]]]
    top: list[list[Array]]

    @property
    def files(self) -> tuple[str, str]:
        """The paths of the options and of the weights."""
        return str(self.folder / OPTIONS_FILE), str(self.folder / WEIGHTS_FILE)

    @property
    def sentences(self) -> list[list[str]]:
        return [sentence for batch in self.batches for sentence in batch]

    @property
    def tops(self) -> list[Array]:
        """The top layers of `sentences`."""
        return [top for batch in self.top for top in batch]


def read_release(folder: Path) -> Release:
    columns = json.loads((folder / SENTENCES_FILES[folder.name]).read_text(encoding="utf-8"))
    batches = [[column[i].split() for column in columns] for i in range(10)]
    top: list[list[Array]] = [[] for _ in batches]
    for k in range(3):
        with h5py.File(folder / f"lm_embeddings_{k}.hdf5") as file:
            for i in range(10):
                top[i].append(np.concatenate(file[str(i)][()], axis=1))  # the halves of the two directions
    return Release(folder, batches, top)


@pytest.fixture(params=SENTENCES_FILES)
def release(request: pytest.FixtureRequest, shared: Path) -> Release:
    return read_release(shared / "fixtures" / request.param)
