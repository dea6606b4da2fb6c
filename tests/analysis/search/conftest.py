"""Texts, and indexes of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from elmo.analysis.search import build_index
from elmo.embed import Embedder
from indexes import CONLLU, LETTERS, QUERY, WORDS


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    """Make random sentences, with the query and two equal sentences among them."""
    random = np.random.default_rng(0)
    made = [random.choice(WORDS, random.integers(2, 9)).tolist() for _ in range(120)]
    return [*made[:50], QUERY, made[7], *made[50:]]


@pytest.fixture(scope="module")
def text(sentences: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(map(" ".join, sentences)), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def built(model: Embedder, text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "index"
    build_index(model, [text], folder)
    return folder


@pytest.fixture
def index_folder(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the index of the text, which the test may damage."""
    return shutil.copytree(built, tmp_path / "index")


@pytest.fixture(scope="module")
def built_of_tags(model: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    (folder / "text.conllu").write_text(CONLLU, encoding="utf-8")
    build_index(model, [str(folder / "text.conllu")], folder / "index", tagged="upos")
    return folder / "index"


@pytest.fixture
def tagged_folder(built_of_tags: Path, tmp_path: Path) -> Path:
    """Return a copy of the index of a text with parts of speech, which the test may damage."""
    return shutil.copytree(built_of_tags, tmp_path / "index")


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write two texts and two tables about them to the working directory, and return the names of the texts."""
    for name, content in LETTERS.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "dates.tsv").write_text("file\tyear\na\t1843\nb\t1790\n")
    (tmp_path / "places.csv").write_text("place,file\nDown,a.txt\nBath,b.txt\n")
    monkeypatch.chdir(tmp_path)
    return ["a.txt", "b.txt"]
