"""`make demo` finds its text on every machine, and all its steps run."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from bridge import make_model
from elmo import formats
from elmo.extras import EXTRAS
from scripts import load_script

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"
SENSES = DEMO.with_name("senses.py")
NOT_INSTALLED = sorted({*EXTRAS, "pandas", "ray", "sklearn"} - {"matplotlib"})
"""Packages that the tests need, but not the demo."""


@pytest.fixture
def demo() -> ModuleType:
    return load_script(DEMO)


@pytest.mark.parametrize("has_topics", [True, False])
def test_there_is_text_with_and_without_the_help_topics(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, has_topics: bool
) -> None:
    """Some builds of Python leave `pydoc_data` out, and then docstrings of the standard library are used instead."""
    if not has_topics:
        monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    found = demo.paragraphs()
    assert sum(len(paragraph.split()) for paragraph in found) > 20_000
    assert len(found) == len(set(found))


def test_a_folder_of_something_else_stays(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work").write_text("of years")
    (tmp_path / "sentences.txt").write_text("They saw a new play .\n")  # the README has its readers make this file
    monkeypatch.setattr(sys, "argv", ["demo.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        demo.main()
    assert "exists, and was not made by this demo; remove it, or name another folder" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"work", "sentences.txt"}


@pytest.mark.slow
def test_all_steps_run(tmp_path: Path) -> None:
    """Three seconds of training are enough, and so are the packages that `make demo` installs."""
    (tmp_path / "without").mkdir()
    blocks = "".join(f"sys.modules[{name!r}] = None\n" for name in NOT_INSTALLED)
    (tmp_path / "without" / "sitecustomize.py").write_text(f"import sys\n{blocks}")
    paths = os.pathsep.join([str(tmp_path / "without"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, DEMO, tmp_path / "demo", "--minutes", "0.05"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    verbs = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("$ elmo ")]
    assert verbs == ["prepare", "pretrain", "perplexity", "embed", "neighbors", "embed"]
    assert "held-out perplexity" in done.stdout
    assert (tmp_path / "demo" / "vectors.h5").exists()
    assert (tmp_path / "demo" / "senses" / "bank.png").exists()


def test_senses_are_told_apart_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With any model, the script prints a figure and the nearest uses of every word, and draws a picture of each."""
    formats.save_native(make_model(), tmp_path / "model")
    arguments = [tmp_path / "model", "--pictures", tmp_path / "pictures", "--top", "2"]
    monkeypatch.setattr(sys, "argv", [str(SENSES), *map(str, arguments)])
    runpy.run_path(str(SENSES), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count("the nearest other use has the same sense in ") == 3
    assert "\n  bank (river): They walked along the bank of the river .\n" in printed
    for word in ("play", "bank", "spring"):
        assert (tmp_path / "pictures" / f"{word}.png").read_bytes().startswith(b"\x89PNG")


def test_the_sentences_of_the_demo_use_each_word_once_in_two_senses() -> None:
    """A word that occurred twice in a sentence would have two places, but only one sense."""
    rows = [line.split("\t") for line in (SENSES.parent / "uses.tsv").read_text(encoding="utf-8").splitlines()]
    assert Counter(word for word, *_ in rows) == {"play": 20, "bank": 20, "spring": 20}
    assert all(sentence.split().count(word) == 1 for word, _, sentence in rows)
    assert set(Counter((word, sense) for word, sense, _ in rows).values()) == {10}
