"""A run folder is a model folder with a card, and belongs to a single run."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmo.errors import ElmoError
from elmo.formats import load
from elmo.formats.card import read_figures
from elmo.formats.native import save_warm_state
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.pretrain.run_folder import CLAIM, text_facts
from elmo.targets import alone_in
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from running import assert_same_end, train


def test_run_folder_is_a_model_folder(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = train(corpus, tmp_path / "run", recipe())
    model = load(tmp_path / "run")
    assert model.vocabulary is not None
    assert model.vocabulary.words == corpus.vocabulary().words
    for name, tensor in run.model.bilm.state_dict().items():
        assert torch.equal(model.bilm.state_dict()[name], tensor)
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"{corpus.num_tokens:,} tokens" in card
    assert "\nlanguage: en\n---\n" in card
    assert "| its language | en |" in card
    assert "| its license | cc0-1.0 |" in card
    assert "| its tokens | tokenizer whitespace, case kept |" in card
    assert re.search(rf", {torch.get_num_threads()} threads? \|", card)


def test_the_card_names_the_language_that_the_tokenizer_says(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    german = replace(corpus, source={}, settings=replace(corpus.settings, tokenizer="spacy:de"))
    train(german, tmp_path / "run", recipe(max_steps=1))
    card = (tmp_path / "run" / "README.md").read_text()
    assert "\nlanguage: de\n---\n" in card
    assert "| its language | de |" in card


def test_a_file_in_the_place_of_the_run_folder_is_refused(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ElmoError, match="run: is not a folder; name one"):
        Pretrainer(corpus, tmp_path / "run", recipe(), device="cpu")
    assert (tmp_path / "run").read_text() == "mine"


def test_damaged_figures_are_replaced(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """They may be damaged before a start, while the run trains, or when it has ended. No training is lost for them."""
    facts = tmp_path / "run" / "training.json"
    train(corpus, tmp_path / "run", recipe(max_steps=2))
    facts.write_text('{"figures": {"a": "b",}}')
    train(corpus, tmp_path / "run", recipe(max_steps=4), after_step=lambda _: facts.write_text("{"))
    figures = read_figures(tmp_path / "run")
    assert figures["trained for"].startswith("4 steps, ")
    facts.write_text("{")
    train(corpus, tmp_path / "run", recipe(max_steps=4))
    assert read_figures(tmp_path / "run") == figures


def test_the_card_says_how_long_a_run_was_trained(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """A step makes 4 x 6 predictions in each direction."""
    run = Pretrainer(corpus, tmp_path / "run", recipe(), device="cpu")
    run.progress.step, run.progress.seconds = 100, 150.0
    assert run.figures()["trained for"] == "100 steps, 2,400 predictions a direction, 2.5 minutes"


@pytest.mark.parametrize("name", ["model.safetensors", "softmax.safetensors"])
def test_damaged_weights_are_replaced(name: str, corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """A run needs only its checkpoint to continue, and the checkpoint has all weights."""
    for folder in ("run", "whole"):
        train(corpus, tmp_path / folder, recipe(max_steps=2))
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes()[:-1])
    for folder in ("run", "whole"):
        train(corpus, tmp_path / folder, recipe(max_steps=4))
    assert path.read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_two_processes_do_not_train_in_one_folder(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    with pytest.raises(ElmoError, match="run: another process is writing it; wait for that one, or end it"):
        train(corpus, tmp_path / "run", recipe(), after_step=lambda _: train(corpus, tmp_path / "run", recipe()))
    assert not (tmp_path / "run" / ".lock").exists()
    assert train(corpus, tmp_path / "run", recipe()).is_done


def test_a_start_that_is_refused_changes_no_recipe(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    def start_another(step: int) -> None:
        with pytest.raises(ElmoError, match="another process is writing it"):
            Pretrainer(corpus, tmp_path / "run", recipe(max_minutes=5.0), device="cpu")

    train(corpus, tmp_path / "run", recipe(), after_step=start_another)
    assert load_pretraining_recipe(str(tmp_path / "run" / "recipe.yaml")).training.max_minutes is None


def test_a_finished_run_started_again_keeps_what_was_added(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm state is kept until further steps change the weights. Starting on another machine or with held-out text
    only writes the card again, which still says where the model was trained."""
    train(corpus, tmp_path / "run", recipe(max_steps=3))
    bilm = load(tmp_path / "run").bilm
    save_warm_state(bilm.initial_state(1), tmp_path / "run", bilm)
    train(corpus, tmp_path / "run", recipe(max_steps=3))
    assert load(tmp_path / "run").warm_state is not None
    trained_on = read_figures(tmp_path / "run")["trained on"]
    with monkeypatch.context() as patch:
        patch.setattr("elmo.pretrain.run_folder.machine_name", lambda device: "another one")
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=3), heldout=[["the", "cat"]], device="cpu").train()
    assert load(tmp_path / "run").warm_state is not None
    assert read_figures(tmp_path / "run")["trained on"] == trained_on
    assert "held-out perplexity when last measured" in read_figures(tmp_path / "run")
    train(corpus, tmp_path / "run", recipe(max_steps=4))
    assert load(tmp_path / "run").warm_state is None


def test_the_card_names_a_few_files_of_many(tmp_path: Path) -> None:
    """With the names of tens of thousands of files, the figures of a model would be too long to be read again."""
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text("They saw it .\n" * 3)
    facts = text_facts(prepare(str(tmp_path / "*.txt"), tmp_path / "corpus"))
    assert facts["its files"] == "0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more files"


@pytest.mark.parametrize("card", [None, "# My model, in my words\n"])
def test_the_card_is_for_people_alone(
    card: str | None, corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the card is removed or edited, the warm state and the figures stay, and so do the edits."""
    folder = tmp_path / "run"
    train(corpus, folder, recipe(max_steps=3))
    bilm = load(folder).bilm
    save_warm_state(bilm.initial_state(1), folder, bilm)
    figures, text = read_figures(folder), (folder / "README.md").read_text()
    (folder / "README.md").unlink() if card is None else (folder / "README.md").write_text(card)
    monkeypatch.setattr("elmo.pretrain.run_folder.machine_name", lambda device: "another one")
    train(corpus, folder, recipe(max_steps=3))
    assert load(folder).warm_state is not None
    assert read_figures(folder) == figures
    assert (folder / "README.md").read_text() == (card or text)


def test_a_finished_run_of_an_earlier_version_stays_as_it_is(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions kept the figures in the card alone, which must not be lost."""
    folder = tmp_path / "run"
    train(corpus, folder, recipe(max_steps=3))
    bilm = load(folder).bilm
    save_warm_state(bilm.initial_state(1), folder, bilm)
    (folder / "training.json").unlink()
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")  # without what it records now
    card = (folder / "README.md").read_text()
    monkeypatch.setattr("elmo.pretrain.run_folder.machine_name", lambda device: "another one")
    train(corpus, folder, recipe(max_steps=3))
    assert (folder / "README.md").read_text() == card
    assert load(folder).warm_state is not None
    assert train(corpus, folder, recipe(max_steps=4)).is_done
    assert read_figures(folder)["trained for"].startswith("4 steps, ")


def test_a_start_without_a_checkpoint_leaves_the_folder_free(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a start ran out of memory, one with a smaller batch may use the folder, which then has the new recipe."""

    def fail(run: Pretrainer) -> list[float]:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Pretrainer, "step", fail)
        with pytest.raises(MemoryError):
            train(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=8))
    assert (tmp_path / "run" / "recipe.yaml").exists()
    train(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=4))
    train(corpus, tmp_path / "whole", recipe(max_steps=2, batch_size=4))
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    with pytest.raises(ElmoError, match=r"recipe\.yaml: the run was started with training\.batch_size: 4, not 8; cont"):
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=8), device="cpu")


def test_a_folder_that_another_run_claimed_meanwhile_is_left_to_it(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """Two starts find the folder without a checkpoint. The first must not train when the second has set its recipe."""
    first = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=4), device="cpu")
    second = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=8), device="cpu")
    with pytest.raises(ElmoError, match=r"recipe\.yaml: the run was started with training\.batch_size: 8, not 4; cont"):
        first.train()
    second.train()
    train(corpus, tmp_path / "whole", recipe(max_steps=2, batch_size=8))
    assert_same_end(tmp_path / "whole", tmp_path / "run")


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks of files")
def test_a_process_that_only_looks_at_the_folder_keeps_no_training_from_it(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """Of two starts at once, the second holds the lock of training while it finds out that the folder is taken. The
    first waits for that moment instead of giving up."""
    run = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=1), device="cpu")
    looks, trained = threading.Event(), threading.Event()

    def look() -> None:
        with alone_in(run.folder, CLAIM, wait=True), alone_in(run.folder):
            looks.set()
            assert not trained.wait(0.2)

    with ThreadPoolExecutor() as pool:
        looked = pool.submit(look)
        looks.wait()
        run.train()
        trained.set()
        looked.result()
    assert run.progress.step == 1


@pytest.mark.parametrize(
    ("checksum", "says"),
    [
        (None, r"corpus\.sha256: is missing"),
        (b"", r"corpus\.sha256: is damaged"),
        (b"\xff\xfe", r"corpus\.sha256: is damaged"),
        (b"a" * 63, r"corpus\.sha256: is damaged"),
        (b"a" * 64, "run: was trained on another corpus"),
    ],
)
def test_a_run_goes_on_with_its_corpus_alone(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, checksum: bytes | None, says: str
) -> None:
    """Damage to the checksum that is kept in the run folder is not reported as another corpus."""
    train(corpus, tmp_path / "run", recipe(max_steps=1))
    (tmp_path / "run" / "corpus.sha256").unlink()
    if checksum is not None:
        (tmp_path / "run" / "corpus.sha256").write_bytes(checksum)
    with pytest.raises(ElmoError, match=says):
        Pretrainer(corpus, tmp_path / "run", recipe(), device="cpu")


def test_a_folder_of_something_else_is_refused(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ElmoError, match="neither empty nor a run folder"):
        Pretrainer(corpus, tmp_path, recipe(), device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
