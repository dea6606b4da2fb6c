"""Fine-tuning lowers perplexity on new text and keeps the vocabulary; published weights first get a new softmax."""

from __future__ import annotations

import json
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from click.testing import CliRunner

from commands import run
from elmo.cli.main import cli
from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.formats import Model, load
from elmo.formats.native import save_warm_state
from elmo.nn.softmax import AdaptiveSoftmax
from elmo.pretrain.finetuning import (
    FineTuning,
    FineTuningStoppedError,
    default_batch_size,
    finetune,
    finetune_on_corpus,
    prepare_corpus,
)
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.text.reading import Reading

WORDS = ["word1", "new", "word3", "words", "word5"]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a text of another kind: five words in a fixed order, two of them unknown to the model."""
    path = tmp_path_factory.mktemp("task") / "task.txt"
    path.write_text("\n".join(" ".join((WORDS * 4)[i : i + 7]) for i in range(5)) * 40)
    return path


@pytest.fixture(scope="module")
def original(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "model"
    Pretrainer(corpus, folder, recipe(max_steps=20), device="cpu").train()
    return folder


@pytest.fixture
def pretrained(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the model's folder, which the test may change."""
    return Path(shutil.copytree(original, tmp_path / "model"))


def test_perplexity_on_the_task_falls(
    pretrained: Path, task: Path, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    model, folder = load(pretrained), tmp_path / "tuned"
    corpus = prepare_corpus(model, [str(task)], folder, False, workers=1)
    result = finetune_on_corpus(model, corpus, folder, recipe(max_steps=40).training, device="cpu")
    assert not result.is_heldout
    assert result.after.mean < result.before.mean / 2
    tuned = load(folder)
    assert tuned.vocabulary is not None
    assert model.vocabulary is not None
    assert tuned.vocabulary.words == model.vocabulary.words
    assert result.before.oov_rate == pytest.approx(0.4, abs=0.05)
    card = (folder / "README.md").read_text()
    assert f"{result.before.mean:.2f}" in card
    assert f"{result.after.mean:.2f}" in card


def test_weights_that_were_trained_otherwise_are_written(
    pretrained: Path, task: Path, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New weights replace the earlier ones even if their card would show the same steps and minutes."""
    monkeypatch.setattr(Pretrainer, "figures", lambda self: {"trained for": "4 steps, 0.0 minutes"})
    model, folder = load(pretrained), tmp_path / "tuned"
    corpus = prepare_corpus(model, [str(task)], folder, False, workers=1)
    finetune_on_corpus(model, corpus, folder, recipe(max_steps=4).training, device="cpu")
    before = load(folder).bilm.state_dict()
    shutil.rmtree(folder / "run")
    finetune_on_corpus(load(pretrained), corpus, folder, recipe(max_steps=4, learning_rate=0.5).training, device="cpu")
    assert any(not torch.equal(tensor, before[name]) for name, tensor in load(folder).bilm.state_dict().items())


def test_files_are_all_that_a_program_needs(pretrained: Path, task: Path, tmp_path: Path) -> None:
    """The model is named by its folder. Defaults are those of the command, and so is the batch of a short text."""
    settings = {"max_steps": 3}
    with pytest.warns(UserWarning, match=r"task\.txt: 44% of the first 1,361 tokens are not among the model's words"):
        finetune(pretrained, [str(task)], tmp_path / "tuned", settings=settings, device="cpu", workers=1)
    assert load(tmp_path / "tuned").softmax is not None
    training = load_pretraining_recipe(str(tmp_path / "tuned" / "run" / "recipe.yaml")).training
    assert (training.batch_size, training.learning_rate, training.fresh_starts) == (1, 0.05, True)


def test_raw_text_is_cut_as_the_models_own(pretrained: Path, tmp_path: Path) -> None:
    """The call may say how to read it instead, for example as text that is tokenized already."""
    (tmp_path / "raw.txt").write_text("Word1 isn't new. Word3 is.\n" * 20)
    model = load(pretrained)
    model.text = TextConfig("ptb", "paragraphs", lowercase=True)
    given: dict[str, Any] = {"settings": {"max_steps": 1}, "device": "cpu", "workers": 1}
    finetune(model, [tmp_path / "raw.txt"], tmp_path / "own", **given)
    assert Corpus.open(tmp_path / "own" / "corpus").reading == Reading("ptb", "paragraphs", lowercase=True)
    finetune(model, [tmp_path / "raw.txt"], tmp_path / "given", reading=Reading(), **given)
    assert Corpus.open(tmp_path / "given" / "corpus").reading == Reading()
    (tmp_path / "words.conllu").touch()
    with pytest.raises(
        ElmoError, match=r"words\.conllu is CoNLL-U by its name, and .*raw\.txt is not; .* `text=\.\.\.` if"
    ):
        finetune(model, [tmp_path / "raw.txt", tmp_path / "words.conllu"], tmp_path / "mixed", **given)
    (tmp_path / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    model.text, model.vocabulary_file = TextConfig("ptb", oov_rate=0.01), tmp_path / "vocabulary.txt"
    with pytest.warns(UserWarning, match=r"raw\.txt: 100% of the first .* tokens are not among the model's words"):
        finetune(model, [tmp_path / "raw.txt"], tmp_path / "others", **given)
    model.text = None
    with pytest.warns(UserWarning, match=r"raw\.txt: this looks like raw text, and the model does not say how"):
        finetune(model, [tmp_path / "raw.txt"], tmp_path / "unknown", **given)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"evaluate_every_steps": 9}, "training.evaluate_every_steps: fine-tuning measures only before and after"),
        ({"patience": 2}, "training.patience: fine-tuning measures only before and after"),
        ({"optimizer": "muon"}, "`learning_rate`: the default is for Adagrad; choose one for muon"),
        ({"epochs": 2}, "training: unknown key 'epochs'.*did you mean n_epochs"),
        ({"batch_size": 0}, r"^training\.batch_size: 0 is not positive"),
    ],
)
def test_settings_are_checked_first(
    pretrained: Path, task: Path, tmp_path: Path, settings: dict[str, object], says: str
) -> None:
    with pytest.raises(ElmoError, match=says):
        finetune(pretrained, [str(task)], tmp_path / "tuned", settings=settings, device="cpu")
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize("heldout", ["heldout.txt", ["a sentence"], [["a", "sentence"], "another"]])
def test_a_held_out_sentence_is_no_string(pretrained: Path, task: Path, tmp_path: Path, heldout: Any) -> None:
    """A string is a sequence of strings, too, so it would be scored letter by letter."""
    with pytest.raises(ElmoError, match=r"sentence [01]: expected a list of tokens, found a string"):
        finetune(pretrained, [str(task)], tmp_path / "tuned", heldout=heldout, device="cpu")
    assert not (tmp_path / "tuned").exists()


def test_text_in_another_encoding(pretrained: Path, tmp_path: Path) -> None:
    """The error names an argument that the function has."""
    (tmp_path / "text.txt").write_bytes("naïve word1 .\n".encode("latin-1") * 20)
    given: dict[str, Any] = {"settings": {"max_steps": 1}, "device": "cpu", "workers": 1}
    with pytest.raises(ElmoError, match="`encoding='latin-1'` helps"):
        finetune(pretrained, [tmp_path / "text.txt"], tmp_path / "tuned", **given)
    with pytest.warns(UserWarning, match="67% of the first 60 tokens are not among the model's words"):
        finetune(pretrained, [tmp_path / "text.txt"], tmp_path / "tuned", encoding="latin-1", **given)
    assert "naïve" in Corpus.open(tmp_path / "tuned" / "corpus").types()


def test_what_a_killed_start_left_is_removed(pretrained: Path, task: Path, tmp_path: Path) -> None:
    (tmp_path / "tuned" / ".corpus.unfinished-left" / "corpus").mkdir(parents=True)
    prepare_corpus(load(pretrained), [str(task)], tmp_path / "tuned", False, workers=1)
    assert [path.name for path in (tmp_path / "tuned").iterdir()] == ["corpus"]


def test_a_relative_folder(pretrained: Path, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on, the names of temporary folders are absolute even if they are made in a relative one."""
    make = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *given: str(Path(make(*given)).absolute()))
    monkeypatch.chdir(tmp_path)
    corpus = prepare_corpus(load(pretrained), [str(task)], Path("tuned"), False, workers=1)
    assert (corpus.folder, [path.name for path in Path("tuned").iterdir()]) == (Path("tuned/corpus"), ["corpus"])


def test_heldout_text_is_what_is_measured(
    pretrained: Path, task: Path, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    model, heldout = load(pretrained), [["word1", "word3"], ["new"]]
    corpus = prepare_corpus(model, [str(task)], tmp_path / "tuned", False, workers=1)
    before = Perplexity.of(score_sentences(model, heldout))
    training = recipe(max_steps=2).training
    result = finetune_on_corpus(model, corpus, tmp_path / "tuned", training, heldout=heldout, device="cpu")
    assert result.is_heldout
    assert result.before == before
    assert result.after == Perplexity.of(score_sentences(load(tmp_path / "tuned"), heldout))
    assert "| perplexity before, held-out text |" in (tmp_path / "tuned" / "README.md").read_text()


def test_options_and_defaults_reach_the_training(pretrained: Path, task: Path, tmp_path: Path) -> None:
    """By default, sentences at the beginning of a step start from zeros."""
    options = ["--epochs", "0.5", "--learning-rate", "0.125", "--set", "training.max_steps=1", "--device", "cpu"]
    (tmp_path / "heldout.txt").write_text("word1 word3\n")
    options += ["--heldout", str(tmp_path / "heldout.txt"), "--json"]
    figures = json.loads(run("finetune", pretrained, tmp_path / "tuned", task, *options))
    before = Perplexity.of(score_sentences(load(pretrained), [["word1", "word3"]]))
    assert (figures["measured_on"], figures["perplexity_before"]) == ("held-out text", pytest.approx(before.mean))
    training = load_pretraining_recipe(str(tmp_path / "tuned" / "run" / "recipe.yaml")).training
    assert (training.n_epochs, training.learning_rate, training.fresh_starts) == (0.5, 0.125, True)


@pytest.mark.parametrize(
    ("options", "batch_size"), [([], 1), (["--set", "training.batch_size=3"], 3), (["--batch-size", "2"], 2)]
)
def test_the_batch_is_as_asked_for(
    options: list[str], batch_size: int, pretrained: Path, task: Path, tmp_path: Path
) -> None:
    """If no batch size is asked for, the length of the text decides."""
    settings = ["--set", "training.max_steps=1", "--device", "cpu", *options]
    run("finetune", pretrained, tmp_path / "tuned", task, *settings)
    training = load_pretraining_recipe(str(tmp_path / "tuned" / "run" / "recipe.yaml")).training
    assert (training.batch_size, training.learning_rate) == (batch_size, 0.05)


def test_options_win_over_settings(pretrained: Path, task: Path, tmp_path: Path) -> None:
    """The order of the words on the command line doesn't matter. A default is no option: settings win over it."""

    def settings_of(folder: str, *options: str) -> tuple[float, float, int]:
        words = [pretrained, tmp_path / folder, task, "--set", "training.max_steps=1", "--device", "cpu"]
        run("finetune", *words, *options)
        training = load_pretraining_recipe(str(tmp_path / folder / "run" / "recipe.yaml")).training
        return training.n_epochs, training.learning_rate, training.batch_size

    keys = ("n_epochs=3", "learning_rate=0.5", "batch_size=4")
    changes = [word for key in keys for word in ("--set", f"training.{key}")]
    assert settings_of("set", *changes) == (3, 0.5, 4)
    options = ["--epochs", "1", "--learning-rate", "0.25", "--batch-size", "2"]
    assert settings_of("both", *options, *changes) == (1, 0.25, 2)


@pytest.mark.parametrize(("options", "rates"), [([], (0.2, 0.05)), (["--learning-rate", "0.1"], (0.1, 0.1))])
def test_a_new_softmax_learns_faster_than_the_bilm(
    options: list[str], rates: tuple[float, float], pretrained: Path, task: Path, tmp_path: Path
) -> None:
    """It begins with random weights, and the biLM with those that it would lose at the rate of pretraining."""
    settings = ["--new-softmax", "--set", "training.max_steps=1", "--device", "cpu", *options]
    run("finetune", pretrained, tmp_path / "tuned", task, *settings)
    recipes = (load_pretraining_recipe(str(tmp_path / "tuned" / stage / "recipe.yaml")) for stage in ("softmax", "run"))
    assert tuple(recipe.training.learning_rate for recipe in recipes) == rates


def test_published_weights_need_a_new_softmax(
    pretrained: Path, task: Path, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """Without a stored softmax there is nothing to predict with; with a new one, both stages lower perplexity."""
    model = Model(load(pretrained).bilm)
    with pytest.raises(ElmoError, match=r"no softmax.*new_softmax=True"):
        prepare_corpus(model, [str(task)], tmp_path / "refused", False, workers=1)
    assert not (tmp_path / "refused").exists()
    folder, before = tmp_path / "tuned", {k: v.clone() for k, v in model.bilm.state_dict().items()}
    corpus = prepare_corpus(model, [str(task)], folder, True, workers=1)
    training = recipe(max_steps=60).training
    result = finetune_on_corpus(model, corpus, folder, training, softmax_config=training, device="cpu")
    assert result.before.mean < corpus.vocabulary_size
    assert result.after.mean < result.before.mean
    frozen = load(folder / "softmax").bilm.state_dict()
    assert all(torch.equal(before[name], frozen[name]) for name in before)
    tuned = load(folder).bilm.state_dict()
    assert not any(torch.equal(before[name], tuned[name]) for name in before)


def test_an_adaptive_softmax_goes_on_as_one(
    corpus: Corpus, task: Path, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The command takes the loss from the model. It refuses another one, after which the folder can still be used."""
    settings = recipe(max_steps=20, loss="adaptive", adaptive_cutoffs=[12])
    Pretrainer(corpus, tmp_path / "model", settings, device="cpu").train()
    command = ["finetune", str(tmp_path / "model"), str(tmp_path / "tuned"), str(task), "--device", "cpu", "--json"]
    small = ["--set", "training.unroll_steps=6", "--set", "training.max_steps=40"]
    refused = CliRunner().invoke(cli, [*command, *small, "--set", "training.loss=full"])
    assert "the model has an adaptive softmax, which full cannot train" in str(refused.exception)
    figures = json.loads(run(*command, *small))
    assert figures["perplexity_after"] < figures["perplexity_before"] / 2
    tuned = load(tmp_path / "tuned")
    assert isinstance(tuned.softmax, AdaptiveSoftmax)
    assert tuned.softmax.cutoffs == [12, corpus.vocabulary_size]
    info = json.loads(run("info", tmp_path / "tuned", "--json"))
    assert "an adaptive softmax over 43 words" in info["description"]
    score = json.loads(run("perplexity", tmp_path / "tuned", task, "--json"))
    assert score["perplexity"] == pytest.approx(figures["perplexity_after"], rel=1e-6)


def test_a_second_start_continues_and_ends_the_same(
    pretrained: Path, task: Path, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    training = recipe(max_steps=10).training
    results = []
    for _ in range(2):
        model = load(pretrained)
        corpus = prepare_corpus(model, [str(task)], tmp_path / "tuned", False, workers=1)
        results.append(finetune_on_corpus(model, corpus, tmp_path / "tuned", training, device="cpu"))
    assert results[0].after == results[1].after
    with torch.no_grad():
        model.bilm.char_encoder.embedding.weight[0, 0] += 1
    with pytest.raises(ElmoError, match="was begun with another model"):
        finetune_on_corpus(model, corpus, tmp_path / "tuned", training, device="cpu")


@pytest.mark.parametrize("new_softmax", [False, True])
def test_an_interrupt_ends_a_fine_tuning_and_the_same_call_continues_it(
    pretrained: Path,
    task: Path,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    new_softmax: bool,
) -> None:
    """No stage begins before the one before it is done, no model is written too early, and no step is made twice."""
    training, make_step = recipe(max_steps=10).training, Pretrainer.step

    def stop_after_three(run: Pretrainer) -> None:
        make_step(run)
        run.stopped = run.progress.step == 3

    def tune(folder: Path) -> FineTuning:
        model = load(pretrained)
        corpus = prepare_corpus(model, [str(task)], folder, new_softmax, workers=1)
        softmax_config = training if new_softmax else None
        return finetune_on_corpus(model, corpus, folder, training, softmax_config=softmax_config, device="cpu")

    monkeypatch.setattr(Pretrainer, "step", stop_after_three)
    with pytest.raises(FineTuningStoppedError):
        tune(tmp_path / "parts")
    assert not (tmp_path / "parts" / "config.json").exists()
    assert (tmp_path / "parts" / "run").exists() != new_softmax
    monkeypatch.setattr(Pretrainer, "step", make_step)
    with mock.patch.object(Pretrainer, "step", autospec=True, side_effect=make_step) as step:
        tuned = tune(tmp_path / "parts")
    assert step.call_count == (1 + new_softmax) * 10 - 3
    assert tuned == tune(tmp_path / "whole")


def test_a_signal_while_the_new_softmax_is_saved_ends_it(
    pretrained: Path, task: Path, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, save = recipe(max_steps=3).training, Pretrainer.save

    def signalled(run: Pretrainer) -> None:
        signal.raise_signal(signal.SIGTERM)
        save(run)

    monkeypatch.setattr(Pretrainer, "save", signalled)
    model, folder = load(pretrained), tmp_path / "tuned"
    corpus = prepare_corpus(model, [str(task)], folder, True, workers=1)
    with pytest.raises(FineTuningStoppedError):
        finetune_on_corpus(model, corpus, folder, training, softmax_config=training, device="cpu")
    assert (folder / "softmax").exists()
    assert not (folder / "run").exists()


def test_the_command_says_that_it_was_stopped(
    pretrained: Path, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_step = Pretrainer.step

    def interrupt(run: Pretrainer) -> None:
        signal.raise_signal(signal.SIGINT)
        make_step(run)

    monkeypatch.setattr(Pretrainer, "step", interrupt)
    folder = tmp_path / "tuned"
    words = ["finetune", str(pretrained), str(folder), str(task), "--device", "cpu"]
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, result.stdout) == (75, f"{folder}: stopped; run the same command again to continue\n")
    assert json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout) == {"folder": str(folder), "done": False}


def test_a_fine_tuning_may_be_made_longer(
    pretrained: Path, task: Path, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """A new softmax is not trained for further steps. A warm state is kept as long as the weights stay the same."""
    model, folder = load(pretrained), tmp_path / "tuned"
    corpus = prepare_corpus(model, [str(task)], folder, True, workers=1)

    def tune(max_steps: int) -> FineTuning:
        training = recipe(max_steps=max_steps).training
        return finetune_on_corpus(model, corpus, folder, training, softmax_config=training, device="cpu")

    first = tune(5)
    save_warm_state(model.bilm.initial_state(1), folder, load(folder).bilm)
    assert tune(5) == first
    assert load(folder).warm_state is not None
    longer = tune(9)
    assert (longer.before == first.before, longer.after == first.after) == (True, False)
    assert load(folder).warm_state is None


def test_a_softmax_without_its_words_is_refused(pretrained: Path, task: Path, tmp_path: Path) -> None:
    """Training it on the words of another vocabulary would go unnoticed."""
    model = load(pretrained)
    with pytest.raises(ElmoError, match="a softmax, but no vocabulary for it"):
        prepare_corpus(Model(model.bilm, model.softmax), [str(task)], tmp_path / "tuned", False, workers=1)


def test_several_processes_are_refused(
    pretrained: Path, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process would prepare the text and save into the same folder."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ElmoError, match="fine-tuning runs in one process"):
        prepare_corpus(load(pretrained), [str(task)], tmp_path / "tuned", False, workers=1)
    assert not (tmp_path / "tuned").exists()


def test_other_text_in_the_same_folder_is_refused(pretrained: Path, task: Path, tmp_path: Path) -> None:
    model = load(pretrained)
    prepare_corpus(model, [str(task)], tmp_path / "tuned", False, workers=1)
    (tmp_path / "other.txt").write_text("word1 word2\n" * 30)
    with pytest.raises(ElmoError, match="holds a fine-tuning on other text"):
        prepare_corpus(model, [str(tmp_path / "other.txt")], tmp_path / "tuned", False, workers=1)


def test_another_model_is_not_replaced(pretrained: Path, task: Path) -> None:
    """A user may name the model's own folder by mistake, instead of a new one."""
    before = sorted(pretrained.rglob("*"))
    with pytest.raises(ElmoError, match=r"holds README\.md, which does not belong to a fine-tuning; name a new folder"):
        prepare_corpus(load(pretrained), [str(task)], pretrained, False, workers=1)
    assert sorted(pretrained.rglob("*")) == before


@pytest.mark.parametrize("name", ["corpus/notes.txt", "README.md", "corpus.json", "corpus"])
def test_files_of_the_user_stay_as_they_are(name: str, pretrained: Path, task: Path, tmp_path: Path) -> None:
    """They may be anything that stands in the folder, or the folder itself a file."""
    folder = tmp_path / "mine"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("my own notes")
    with pytest.raises(ElmoError, match=rf"mine: holds {re.escape(name.split('/')[0])}, which does not belong to a"):
        prepare_corpus(load(pretrained), [str(task)], folder, False, workers=1)
    with pytest.raises(ElmoError, match="is not a folder"):
        prepare_corpus(load(pretrained), [str(task)], task, False, workers=1)
    assert [path.read_text() for path in folder.rglob("*") if path.is_file()] == ["my own notes"]


def test_a_readme_next_to_a_corpus_is_not_replaced(pretrained: Path, task: Path, tmp_path: Path) -> None:
    model = load(pretrained)
    prepare_corpus(model, [str(task)], tmp_path / "mine", False, workers=1)
    prepare_corpus(model, [str(task)], tmp_path / "mine", False, workers=1)
    (tmp_path / "mine" / "README.md").write_text("my own notes")
    with pytest.raises(ElmoError, match=r"mine: holds README\.md, which does not belong to a fine-tuning"):
        prepare_corpus(model, [str(task)], tmp_path / "mine", False, workers=1)


def test_hidden_folders_of_the_user_stay(pretrained: Path, task: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / ".corpus-sources").mkdir(parents=True)
    (tmp_path / "mine" / ".corpusrc").write_text("mine")
    prepare_corpus(load(pretrained), [str(task)], tmp_path / "mine", False, workers=1)
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {".corpus-sources", ".corpusrc", "corpus"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"device": "tpu"}, "`device`: 'tpu' is unknown"),
        ({"settings": {"loss": "adaptive"}}, "which adaptive cannot train"),
    ],
)
def test_mistakes_leave_no_folder(
    changes: dict[str, Any], says: str, pretrained: Path, task: Path, tmp_path: Path
) -> None:
    with pytest.raises(ElmoError, match=says):
        finetune(pretrained, [task], tmp_path / "tuned", **changes)
    assert not (tmp_path / "tuned").exists()


def test_short_text_has_few_streams(corpus: Corpus) -> None:
    """A text has as many streams as it can fill for 100 steps: four with 2,500 predictions and steps of 6."""
    predictions = corpus.num_tokens + corpus.num_sentences
    assert default_batch_size(corpus, 6) == predictions // 600
    assert default_batch_size(corpus, 10**6) == 1
