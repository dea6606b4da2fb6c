"""The package's own model is found by its name anywhere, and is not confused with a folder of that name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import elmo
from bridge import assert_equal, make_model
from commands import RunMain
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats import sources

SENTENCES = "They saw a new play .\nw1 w2 w3\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a tiny model `en` into a package, move to a user's folder with a text, and return the model's folder."""
    monkeypatch.setattr(sources, "MODELS", tmp_path / "package" / "models")
    formats.save_native(make_model(softmax=True), tmp_path / "package" / "models" / "en", {"perplexity": "39.7"})
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("text.txt").write_text(SENTENCES * 40)
    return tmp_path / "package" / "models" / "en"


def test_models_lie_in_the_package() -> None:
    assert Path(elmo.__file__).parent / "models" == sources.MODELS


def test_the_name_is_resolved_wherever_a_model_is_asked_for(own: Path) -> None:
    """`elmo.load`, the layer for task models, and the readers beneath them all resolve the name."""
    wanted = make_model(softmax=True)
    found = formats.load("en")
    assert_equal(found.bilm, wanted.bilm)
    assert_equal(found.softmax, wanted.softmax)
    assert found.origin.startswith("the package's own English model, native: en holds ")
    vectors = elmo.load("en").embed([["They", "saw"]])
    np.testing.assert_array_equal(vectors[0], elmo.load(own).embed([["They", "saw"]])[0])
    assert_equal(elmo.Elmo.from_pretrained("en").bilm, wanted.bilm)


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "en"],
        ["embed", "en", "text.txt", "vectors.npz"],
        ["perplexity", "en", "text.txt"],
        ["neighbors", "en", "text.txt", "--word", "play", "--in", "A play ."],
        ["convert", "en", "copy"],
        ["finetune", "en", "tuned", "text.txt", "--batch-size", "2", "--set", "max_steps=2", "--device", "cpu"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_take_the_name(arguments: list[str], own: Path, run_main: RunMain) -> None:
    code, out, err = run_main(arguments)
    assert code == 0, err
    assert out.strip()


def test_a_folder_of_that_name_needs_its_path(own: Path, run_main: RunMain) -> None:
    """`en` must mean the same in every folder, and many data sets have a folder of that name."""
    formats.save_native(make_model("three_layers"), Path("en"))
    with pytest.warns(UserWarning, match=r"^en is the package's own model; for the folder /.*/en, pass \./en$"):
        assert formats.load("en").config.lstm.n_layers == 2
    for source in ("./en", Path("en"), Path("en").resolve()):
        assert formats.load(source).config.lstm.n_layers == 3
    code, out, _ = run_main(["info", "./en"])
    assert (code, "3 LSTM layers" in out) == (0, True)


def test_a_folder_of_that_name_without_a_model_is_no_matter(own: Path) -> None:
    """Many data sets have a folder for each language."""
    Path("en").mkdir()
    Path("en", "text.txt").touch()
    assert formats.load("en").origin.startswith("the package's own English model")


def test_warm_puts_nothing_into_the_package_or_a_folder_of_that_name(own: Path, run_main: RunMain) -> None:
    """The warm state of one model in the folder of another would have wrong sizes or, worse, the right ones."""
    formats.save_native(make_model(), Path("en"))
    before = [sorted(path.name for path in folder.iterdir()) for folder in (own, Path("en"))]
    code, _, err = run_main(["warm", "en", "text.txt"])
    assert code == 2
    assert "make a copy with 'elmo convert en FOLDER'" in err
    assert [sorted(path.name for path in folder.iterdir()) for folder in (own, Path("en"))] == before
    assert run_main(["warm", "./en", "text.txt"])[0] == 0
    assert (Path("en") / "warm.safetensors").exists()


def test_a_package_without_the_model_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.setattr(sources, "MODELS", tmp_path / "nothing")
    with pytest.raises(ElmoError, match=r"^en: this copy of the package was built without .* is \./en\)$"):
        elmo.load("en")
    code, out, err = run_main(["info", "en"])
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_wheel_has_no_softmax_and_says_what_installs_it(own: Path, run_main: RunMain) -> None:
    for name in ("softmax.safetensors", "vocabulary.txt"):
        (own / name).unlink()
    code, out, err = run_main(["perplexity", "en", "text.txt"])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "English model without its softmax, which pip install 'elmo-torch[en-softmax]' adds" in err
    code, out, err = run_main(["embed", "en", "text.txt", "vectors.npz"])
    assert code == 0, err


def test_what_is_shipped_is_whole_and_small() -> None:
    """The model and the files that predict words are at most 30 MB each, and the card says what was measured."""
    folder = sources.bundled_folder("en")
    model = formats.load("en")
    assert model.softmax is not None
    assert model.vocabulary is not None
    assert (folder / "model.safetensors").stat().st_size <= 30e6
    assert sum((folder / name).stat().st_size for name in ("softmax.safetensors", "vocabulary.txt")) <= 30e6
    assert all(f"\n## {title}\n" in (model.card or "") for title in ("Measured", "Limits", "License"))
