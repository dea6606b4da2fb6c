"""A small corpus and a recipe that trains on it within seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare


def write_text(path: Path, num_sentences: int = 300, seed: int = 0) -> Path:
    """Write sentences of a small Markov chain, so that there is something to learn, and return their path."""
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    for _ in range(num_sentences):
        word = int(rng.integers(40))
        words = [word]
        for _ in range(int(rng.integers(3, 12))):
            word = (3 * word + int(rng.integers(3))) % 40
            words.append(word)
        lines.append(" ".join(f"word{w}" for w in words))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Return a corpus of 300 sentences over 40 words, which has the three special words as well."""
    folder = tmp_path_factory.mktemp("pretrain")
    return prepare(
        [str(write_text(folder / "text.txt"))],
        folder / "corpus",
        min_count=1,
        workers=1,
        language="en",
        license="cc0-1.0",
    )


@pytest.fixture(scope="session")
def recipe() -> Callable[..., Recipe]:
    """Return a function that makes recipes even smaller than `tiny`: `recipe(max_steps=7)`."""

    def make(**training: Any) -> Recipe:
        settings = {
            "char_cnn.filters": [[1, 4], [2, 8]],
            "lstm.dim": 16,
            "lstm.projection_dim": 8,
            "training.batch_size": 4,
            "training.unroll_steps": 6,
            "training.n_negative_samples_batch": 10,
            "training.log_every_steps": 5,
            "training.max_steps": 30,
        }
        return load_pretraining_recipe("tiny", settings | {f"training.{key}": value for key, value in training.items()})

    return make
