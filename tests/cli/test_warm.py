"""`elmo warm` stores a state in a model folder, and `elmo embed --state warm` starts from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import make_bilm_hdf5
from bridge import WORDS, make_model
from commands import RunMain
from elmo import formats
from elmo.cli import warm
from elmo.embed import Embedder
from elmo.embed.warm import mean_state
from elmo.targets import alone_in

SENTENCES = [["A", "new", "play", "."], ["Fußball", "spielen"], ["A", "new", "play", "."]]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with `model`, `published`, `text.txt` and `blank.txt` the current one."""
    formats.save_native(make_model(), tmp_path / "model")
    make_bilm_hdf5.make(tmp_path / "published")
    (tmp_path / "text.txt").write_text("A new play .\n\nFußball spielen\nA new play .", encoding="utf-8")
    (tmp_path / "blank.txt").write_text("\n \n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def elmo(folder: Path, run_main: RunMain) -> Run:
    """Return a function that runs `elmo ARGUMENTS` in `folder` and returns exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        return run_main([*arguments])

    return run


def test_a_folder_that_is_being_trained_in_is_refused(elmo: Run, folder: Path) -> None:
    """Otherwise a state of the old weights could be stored next to new weights."""
    with alone_in(folder / "model"):
        code, _, err = elmo("warm", "model", "text.txt")
    assert (code, err) == (2, "elmo: model: another process is writing it; wait for that one, or end it\n")
    assert not (folder / "model" / "warm.safetensors").exists()


def test_it_stores_the_mean_state_of_the_text(elmo: Run, folder: Path) -> None:
    code, out, _ = elmo("warm", "model", "text.txt")
    assert (code, out) == (0, f"{Path('model/warm.safetensors')}: warm state of 3 sentences, 10 tokens\n")
    Path("with-boundaries.txt").write_text("<S> </S>\n" + Path("text.txt").read_text())
    assert elmo("warm", "model", "with-boundaries.txt")[1] == out, "boundaries are no words of a text"
    found = formats.load(folder / "model")
    assert found.warm_state is not None
    for direction, wanted in zip(found.warm_state, mean_state(found, SENTENCES), strict=True):
        assert torch.equal(direction.hidden, wanted.hidden)
        assert torch.equal(direction.cell, wanted.cell)


def test_a_folder_under_the_home_folder(elmo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell leaves ~ as it is in quotation marks. Other commands find such a model."""
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    assert elmo("warm", "~/model", "text.txt")[0] == 0
    assert (folder / "model" / "warm.safetensors").is_file()


def test_json_and_max_sentences(elmo: Run, folder: Path) -> None:
    """Blank lines do not count as sentences. A second run replaces the state."""
    elmo("warm", "model", "text.txt")
    first = (folder / "model" / "warm.safetensors").read_bytes()
    code, out, _ = elmo("warm", "model", "text.txt", "--max-sentences", "2", "--json")
    assert code == 0
    found = json.loads(out)
    assert found.pop("reading")["tokenizer"] == "whitespace"
    assert found == {"file": str(Path("model/warm.safetensors")), "num_sentences": 2, "num_tokens": 6}
    assert (folder / "model" / "warm.safetensors").read_bytes() != first


def test_info_embed_and_convert_use_the_state(elmo: Run, folder: Path) -> None:
    assert json.loads(elmo("info", "model", "--json")[1])["has_warm_state"] is False
    assert "warm" not in elmo("info", "model")[1]
    elmo("warm", "model", "text.txt")
    elmo("convert", "model", "copy")
    assert "12 wide, and a warm state." in elmo("info", "copy")[1]
    assert json.loads(elmo("info", "copy", "--json")[1])["has_warm_state"] is True
    code, _, error = elmo("embed", "copy", "text.txt", "vectors.npz", "--state", "warm", "--device", "cpu")
    assert code == 0, error
    expected = Embedder(formats.load(folder / "model")).embed(SENTENCES, layers="all", state="warm")
    with np.load(folder / "vectors.npz") as stored:
        np.testing.assert_allclose(stored["2"], expected[1], rtol=0, atol=2e-6)  # entry 1 is the blank line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["warm", "model", "nowhere.txt"], "elmo: nowhere.txt: no such file\n"),
        (["warm", "nowhere", "text.txt"], "elmo: nowhere: no such file or folder\n"),
        (
            ["warm", "model", "blank.txt"],
            "elmo: the text has no tokens, so there is no mean state",
        ),
        (["warm", "published", "text.txt"], "elmo: published: is not a native model folder, so the state cannot"),
        (
            ["embed", "model", "text.txt", "v.h5", "--state", "warm"],
            "elmo: --state: this model has no warm state, or one that belongs to other weights; add one to "
            "the model folder with 'elmo warm MODEL TEXT'\n",
        ),
    ],
)
def test_bad_input_is_one_sentence(elmo: Run, folder: Path, arguments: list[str], says: str) -> None:
    before = sorted(folder.rglob("*"))
    code, out, error = elmo(*arguments)
    assert (code, out) == (2, "")
    assert error.startswith(says)
    assert error.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


# --- token vectors


def layer_0(folder: Path, source: str, sentences: list[list[str]] = SENTENCES) -> list[np.ndarray]:
    return Embedder(formats.load(folder / source, with_softmax=False)).embed(sentences, layers="token")


@pytest.fixture
def with_words(folder: Path) -> Path:
    """Give the folder's `model` a softmax, and so a vocabulary, and return the folder."""
    formats.save_native(make_model(softmax=True), folder / "model")
    return folder


def test_types_of_the_vocabulary(elmo: Run, with_words: Path) -> None:
    """Words of the vocabulary get the stored vectors, which are rounded, and other words those that are computed."""
    sentences = [*SENTENCES, WORDS[3:]]
    exact = layer_0(with_words, "model", sentences)
    code, out, _ = elmo("warm", "model", "--types")
    path = with_words / "model" / "types.safetensors"
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    assert (code, out) == (0, f"{Path('model/types.safetensors')}: float16 vectors of {len(WORDS)} words, {size}\n")
    found = formats.load(with_words / "model").types
    assert found is not None
    assert found.read(WORDS)[1] == []
    errors = [np.abs(a - b).max() for a, b in zip(exact, layer_0(with_words, "model", sentences), strict=True)]
    assert max(errors) < 1e-3
    assert errors[-1] > 1e-6
    assert not (with_words / "model" / "warm.safetensors").exists()


def test_types_of_a_text_replace_others(elmo: Run, with_words: Path) -> None:
    """The new types are the sentence boundaries and the most frequent words. With float32 their vectors are exact."""
    exact = layer_0(with_words, "model")
    elmo("warm", "model", "--types")
    code, out, _ = elmo("warm", "model", "text.txt", "--types", "float32", "--max-types", "4", "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["num_types"], facts["storage"], facts["reading"]["tokenizer"]) == (4, "float32", "whitespace")
    assert facts["num_bytes"] == (with_words / "model" / "types.safetensors").stat().st_size
    found = formats.load("model").types
    assert found is not None
    assert found.read(["<S>", "</S>", "A", "new", "play", "spielen"])[1] == [4, 5]
    for one, other in zip(exact, layer_0(with_words, "model"), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)


def test_info_convert_and_no_types(elmo: Run, with_words: Path) -> None:
    assert json.loads(elmo("info", "model", "--json")[1])["num_types"] == 0
    elmo("warm", "model", "--types")
    elmo("convert", "model", "copy")
    assert json.loads(elmo("info", "copy", "--json")[1])["num_types"] == len(WORDS)
    assert f"12 wide; those of {len(WORDS)} words are stored." in elmo("info", "copy")[1]
    path = Path("copy/types.safetensors")
    assert elmo("warm", "copy", "--no-types")[:2] == (0, f"{path}: removed\n")
    assert elmo("warm", "copy", "--no-types")[:2] == (0, f"{path}: was not there\n")
    assert formats.load("copy").types is None


@pytest.mark.parametrize("options", [[], ["--types", "float16"]])
def test_reading_a_text_shows_progress(
    options: list[str], elmo: Run, with_words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = Mock(side_effect=lambda what, unit, total, items: items)
    monkeypatch.setattr(warm, "show_progress", show)
    assert elmo("warm", "model", "text.txt", *options)[0] == 0
    assert [call.args[:3] for call in show.call_args_list] == [("reading", "sentences", None)]


@pytest.mark.parametrize("option", ["--types", "--no-types"])
def test_a_damaged_file_is_replaced_or_removed(elmo: Run, with_words: Path, option: str) -> None:
    (with_words / "model" / "types.safetensors").write_bytes(b"no")
    assert elmo("info", "model")[0] == 2
    assert elmo("warm", "model", option)[0] == 0
    assert elmo("info", "model")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["model"], "elmo: a warm state is a mean over a text; name the text, or pass --types for the vectors of"),
        (["model", "--types"], "elmo: model: has no vocabulary; name a text whose words are to be stored\n"),
        (["model", "nowhere.txt", "--types", "float16"], "elmo: nowhere.txt: no such file\n"),
        (["model", "--types", "--no-types"], "elmo: --types and --no-types can't be used together; leave one out"),
        (["model", "text.txt", "--no-types"], "elmo: --no-types reads no text; leave out TEXT\n"),
        (["model", "text.txt", "--max-types", "3"], "elmo: --max-types says how many words --types stores; pass"),
        (
            ["model", "--types", "--max-sentences", "3"],
            "elmo: --max-sentences has no effect with --types; leave it out",
        ),
        (["model", "--types", "--encoding", "latin-1"], "elmo: --encoding has no effect without a TEXT; leave it out"),
        (
            ["model", "--no-types", "--tokenizer", "ptb"],
            "elmo: --tokenizer has no effect with --no-types; leave it out",
        ),
        (["published", "--types"], "elmo: published: is not a native model folder, so the vectors cannot be stored"),
        (["en", "--types"], "elmo: en: is the package's own model; make a copy with 'elmo convert en FOLDER'\n"),
        (
            ["en", "--no-types"],
            "elmo: en: is the package's own model, so it has no stored vectors that could be removed\n",
        ),
        (
            ["published", "--no-types"],
            "elmo: published: is not a native model folder, so it has no stored vectors that could",
        ),
    ],
)
def test_bad_input_about_types_is_one_sentence(elmo: Run, folder: Path, arguments: list[str], says: str) -> None:
    (folder / "blank.txt").write_text("\n")
    before = sorted(folder.rglob("*"))
    code, out, error = elmo("warm", *arguments)
    assert (code, out) == (2, "")
    assert error.startswith(says)
    assert error.count("\n") == 1
    assert sorted(folder.rglob("*")) == before
