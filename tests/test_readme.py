"""Every command and line of Python in the README and in the tour runs, in the order in which a reader tries them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import make_bilm_hdf5
from elmo.cli.main import VERBS
from pages import blocks, commands, python_of, run_commands

ROOT = Path(__file__).parents[1]
README, TOUR = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tour.md"))
SHORTER = {
    "elmo pretrain corpus run": "elmo pretrain corpus run --recipe tiny --max-steps 3 --set training.batch_size=4",
    "elmo pretrain corpus-of-treebank bilm": "elmo pretrain corpus-of-treebank bilm --max-steps 3 "
    "--set training.batch_size=4",
    "elmo task train ner": "elmo task train ner --set training.max_epochs=1 --set lstm=[8,8]",
    "elmo task train tag": "elmo task train tag --set training.max_epochs=1 --set lstm=[8,8]",
    "elmo explore": "elmo explore --help",
}
"""Replacements that let a command of half an hour, or one that serves until it is stopped, end within seconds."""

TAGS = {"They": "PRP", "saw": "VBD"}
COMMANDS = [*commands(README), *commands(TOUR)]
ELMO = [command for command in COMMANDS if command.startswith("elmo ")]


pytestmark = pytest.mark.xdist_group("readme")  # one worker runs these tests, and the commands only once


def conllu(sentence: str) -> str:
    """Return a sentence in CoNLL-U, with Penn tags only."""
    rows = enumerate(sentence.split(), 1)
    return "".join(f"{n}\t{word}\t_\t_\t{TAGS[word]}" + 5 * "\t_" + "\n" for n, word in rows) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the README assumes its reader to have."""
    folder = tmp_path_factory.mktemp("readme")
    paragraph = "They saw a new play on Broadway. Children play in the park, and he made a spectacular play.\n"
    (folder / "text").mkdir()
    for name in ("text/one.txt", "text/two.txt", "heldout.txt", "new-text.txt", "task.txt"):
        (folder / name).write_text(paragraph * 20, encoding="utf-8")
    (folder / "sentences.txt").write_text("They saw a new play on Broadway .\nChildren play in the park .\n")
    for name in ("train", "dev", "test"):
        (folder / f"{name}.conll").write_text("They\tO\nsaw\tO\nAnn\tB-person\nLee\tI-person\n\n" * 4)
        # Equal sentences are pretrained on once, but words have to occur twice to be in the vocabulary.
        sentences = ["They saw", "They saw They", "saw They saw", "They They saw saw"]
        (folder / f"{name}.conllu").write_text("".join(map(conllu, sentences)))
    make_bilm_hdf5.make_published(folder)
    return folder


@pytest.fixture(scope="module")
def after_commands(folder: Path) -> Iterator[Path]:
    """Run the commands in order in the folder, which stays the working directory, and return it."""
    with chdir(folder):
        run_commands(COMMANDS, SHORTER)
        yield folder


def test_commands_run_in_order(after_commands: Path) -> None:
    assert {shlex.split(command)[1] for command in ELMO} >= set(VERBS)
    assert (after_commands / "run" / "model.safetensors").exists()


@pytest.mark.usefixtures("after_commands")
def test_python_runs_after_the_commands() -> None:
    (english,), (embed, layer) = blocks(README, "python"), blocks(TOUR, "python")
    exec(english, names := {})
    assert [vectors.shape for vectors in names["vectors"]] == [(6, 384), (6, 384)]
    assert [layers.shape for layers in names["layers"]] == [(3, 6, 384), (3, 6, 384)]
    exec(embed, names := {})
    vectors, layers = names["vectors"], names["layers"]
    assert [v.shape for v in vectors] == [(6, 64), (3, 64)]
    assert [v.shape for v in layers] == [(3, 6, 64), (3, 3, 64)]
    np.testing.assert_allclose(layers[1].mean(axis=0), vectors[1], atol=1e-6)
    exec(layer, names)
    assert names["first"].shape == names["second"].shape == (2, 6, 64)
    assert names["mask"].tolist() == [[True] * 6, [True] * 3 + [False] * 3]


@pytest.mark.usefixtures("after_commands")
def test_python_of_the_page_on_it_runs() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'elmo-torch[sklearn]'")
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(python_of(page), names)
    assert [array.shape for array in names["vectors"]] == [(6, 384), (6, 384)]
    np.testing.assert_allclose(names["first"], names["vectors"][0], atol=1e-6)
    np.testing.assert_allclose(names["mixed"][1].detach(), names["layers"][:, 1].mean(dim=0), atol=1e-6)
    (vectors,) = names["layer"].eval()(names["characters"])["elmo_representations"]
    np.testing.assert_allclose(names["same"], vectors.detach(), atol=5e-6)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    targets = [command.split()[1] for command in COMMANDS if command.startswith("make ")]
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_ci_runs_the_tests_that_make_test_leaves_out() -> None:
    root = Path(__file__).parents[1]
    recipes = dict(re.findall(r"^(test|test-all): setup\n\t(.+)$", (root / "Makefile").read_text(), re.M))
    assert recipes == {"test": "$(PYTEST) $(TESTS)", "test-all": "$(PYTEST) --slow $(TESTS)"}
    commands = (root / ".ci" / "run").read_text().splitlines()[-3:]
    assert commands == ["make lint", "make site", "make test-all"]
    assert re.findall(r"- run: (make .+)", (root / ".github" / "workflows" / "ci.yml").read_text()) == commands
