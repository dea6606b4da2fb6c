"""These fixtures give tasks a small set of named entities, a recipe that learns it within seconds, and a tiny biLM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bridge import make_model
from elmo.formats import Model
from elmo.tasks.common.spans import Span, tags_of
from elmo.tasks.ner.data import format_conll
from elmo.tasks.ner.task import NerExample, NerRecipe
from recipes import recipe_maker

NAMES = {"PER": ["Ann", "Bo", "Cy", "Di"], "LOC": ["Espoo", "Ghent", "Lyon"]}
SMALL = {
    "words.dim": 6,
    "characters.dim": 4,
    "characters.filters": 6,
    "lstm": [8, 6],
    "dropout": 0.2,
    "training.batch_size": 8,
    "training.learning_rate": 0.02,
    "training.max_epochs": 3,
    "training.epoch_steps": 1,
}


def make_examples(number: int = 40, seed: int = 0) -> list[NerExample]:
    """Make sentences of 1 to 9 words, each with the name of a person, of one or two words, or of a place."""
    rng = np.random.default_rng(seed)
    examples: list[NerExample] = []
    for _ in range(number):
        tokens = [f"w{w}" for w in rng.integers(8, size=int(rng.integers(0, 8)))]
        kind = ["PER", "LOC"][int(rng.integers(2))]
        name = [str(rng.choice(NAMES[kind])) for _ in range(int(rng.integers(1, 3)) if kind == "PER" else 1)]
        start = int(rng.integers(len(tokens) + 1))
        tokens[start:start] = name
        examples.append(NerExample(tuple(tokens), (Span(start, start + len(name), kind),)))
    return examples


def write_conll(path: Path, examples: list[NerExample]) -> Path:
    texts = (format_conll(e.tokens, tags_of(e.spans, len(e.tokens), "BIO")) for e in examples)
    path.write_text("\n".join(texts))
    return path


make_recipe = recipe_maker(NerRecipe, "ner", SMALL)


@pytest.fixture
def recipe() -> Callable[..., NerRecipe]:
    return make_recipe


@pytest.fixture
def examples() -> list[NerExample]:
    return make_examples()


@pytest.fixture
def bilm() -> Model:
    return make_model()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write train.conll, dev.conll, test.conll and a biLM in `model`, and return their folder."""
    from elmo.formats import save_native

    for seed, name in enumerate(("train", "dev", "test")):
        write_conll(tmp_path / f"{name}.conll", make_examples(40 if name == "train" else 12, seed))
    save_native(make_model(), tmp_path / "model")
    return tmp_path
