"""The run folder of a task is self-contained, and is read with care."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

import make_tensorflow
from bridge import make_model
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats import sources
from elmo.tasks import TASKS, get_task, load_task_recipe
from elmo.tasks.experiment import Experiment
from elmo.tasks.ner.task import NerModel
from elmo.tasks.run_folder import VOCABULARIES, RunConfig, StoredRun, load_run, read_results, read_run
from elmo.tasks.tag.lemma_rules import LemmaRule
from experiments import FINISHED, Recipe, make_config, names

RESULT: dict[str, Any] = {
    "seed": 0,
    "epochs": 3,
    "best_epoch": 2,
    "seconds": 60.0,
    "examples_per_second": 9.5,
    "scores": {"dev": {"f1": 90.0}},
}


def test_a_run_folder_is_self_contained(files: Path, recipe: Recipe) -> None:
    """The folder gives the same scores in another process after it was moved and the biLM's own folder was removed."""
    config = make_config(files, recipe(training__max_epochs=25))
    (result,) = Experiment(config).run()
    assert names(config.folder) == FINISHED | {"bilm"}
    assert names(config.folder / "bilm") == {"README.md", "config.json", "model.safetensors"}
    assert result.scores.keys() == {"dev", "test"}
    assert result.scores["dev"]["f1"] > 30
    config.folder.rename(files / "moved")
    shutil.rmtree(files / "model")
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom elmo.tasks.run_folder import load_run\n"
        "from elmo.tasks.prediction import predict\nrun = load_run(Path('moved'))\n"
        "examples = run.task.read('test.conll', run.recipe)\n"
        "print(json.dumps(run.task.score(examples, predict(run.task, run.model, examples))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=files, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == result.scores["test"]


def test_the_card_has_the_figures(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe())
    (result,) = Experiment(config).run()
    card = (config.folder / "README.md").read_text()
    assert "| ELMo | model, 3 layers, 12 wide, at the input, cached |" in card
    assert "| trained on | train.conll, 40 examples |" in card
    assert f"| f1 | {result.scores['dev']['f1']:.2f} | {result.scores['test']['f1']:.2f} |" in card


def test_a_run_is_no_bilm_but_holds_one(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe())
    Experiment(config).run()
    name = re.escape(str(config.folder))
    with pytest.raises(ElmoError, match=f"{name}: is the run folder of a task, not a biLM; its biLM is {name}/bilm$"):
        formats.load(config.folder)
    assert formats.load(config.folder / "bilm").bilm


def test_without_a_copy_the_bilm_must_stay(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), with_bilm=False)
    Experiment(config).run()
    assert names(config.folder) == FINISHED
    load_run(config.folder)
    (files / "model").rename(files / "gone")
    with pytest.raises(ElmoError, match=r"run: its biLM can't be loaded: .*model: no such file or folder"):
        load_run(config.folder)
    other = make_model()
    torch.nn.init.ones_(other.bilm.char_encoder.embedding.weight)
    formats.save_native(other, files / "model")
    with pytest.raises(ElmoError, match=r"run: was not trained with the biLM that is now .*model"):
        load_run(config.folder)


def test_a_copy_that_is_gone_is_named(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1))
    Experiment(config).run()
    shutil.rmtree(config.folder / "bilm")
    with pytest.raises(ElmoError, match=r"run: its biLM .*run/bilm is missing; put it back$"):
        load_run(config.folder)


def test_a_copy_may_be_asked_for_afterwards(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), with_bilm=False)
    Experiment(config).run()
    Experiment(replace(config, with_bilm=True)).run()
    shutil.rmtree(files / "model")
    load_run(config.folder)


def test_the_model_of_the_package_stays_a_name(files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trained model does not look for a folder of the same name in the place where it was trained."""
    monkeypatch.setattr(sources, "MODELS", files / "package")
    shutil.copytree(files / "model", files / "package" / "en")
    (files / "en").mkdir()
    monkeypatch.chdir(files)
    config = replace(make_config(files, recipe(training__max_epochs=1), with_bilm=False), elmo="en")
    Experiment(config).run()
    assert json.loads((config.folder / "config.json").read_text())["bilm"] == "en"
    load_run(config.folder)


def test_a_checkpoint_of_tensorflow_is_found_from_another_folder(
    files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named by what its files have in common, which is itself no file."""
    make_tensorflow.make(files / "tf")
    monkeypatch.chdir(files)
    elmo = f"tf/{make_tensorflow.PREFIX}"
    config = replace(make_config(files, recipe(training__max_epochs=1), with_bilm=False), elmo=elmo)
    Experiment(config).run()
    monkeypatch.chdir(files.parent)
    load_run(config.folder)


def test_the_baseline_has_no_bilm(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    Experiment(config).run()
    assert names(config.folder) == FINISHED
    assert "none: the baseline" in (config.folder / "README.md").read_text()
    load_run(config.folder)


def test_loading_a_run_draws_no_random_numbers(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1))
    Experiment(config).run()
    before = torch.get_rng_state()
    load_run(config.folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_task_of_another_version_is_named_with_its_file(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    Experiment(config).run()
    path = config.folder / "config.json"
    path.write_text(path.read_text().replace('"ner"', '"parse"'))
    says = r"run/config\.json: task 'parse' is unknown to this program, which has ner, "
    with pytest.raises(ElmoError, match=says):
        load_run(config.folder)
    with pytest.raises(ElmoError, match=says):
        Experiment(config)


SECTIONS = {"elmo", "training", "words", "characters", "spans", "dropout"}
"""The keys that the recipe of every run has. They are sections, whose own keys may be missing."""


@pytest.mark.parametrize("task", TASKS)
def test_keys_that_runs_of_earlier_versions_lack_have_a_default(task: str) -> None:
    """Without one, no run that was trained before the key was added could be loaded or continued."""
    kind = get_task(task).recipe
    parts = [kind, *(hint for hint in get_type_hints(kind).values() if is_dataclass(hint))]
    for part in parts:
        required = {each.name for each in fields(part) if each.default is each.default_factory is MISSING}
        assert required <= (SECTIONS if part is kind else set())


def test_words_of_a_run_stay_as_they_are(files: Path, recipe: Recipe) -> None:
    (files / "v.txt").write_text("Ann 1 2\nBo 3 4\n")
    words = {"words__vectors": str(files / "v.txt"), "words__dim": 2, "words__trainable": False}
    config = make_config(files, recipe(training__max_epochs=1, **words), elmo=None)
    Experiment(config).run()
    model = load_run(config.folder).model
    assert isinstance(model, NerModel)
    assert model.words([["Ann", "Bo"]])[0].tolist() == [[1, 2], [3, 4]]
    (files / "v.txt").write_text("Bo 3 4\nAnn 1 2\n")
    with pytest.raises(ElmoError, match="run: was started with other words than the recipe's files hold now"):
        Experiment(config).run()


def test_damaged_vocabularies_are_named(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    Experiment(config).run()
    for content, says in (
        ("null", "holds something other than lists of strings"),
        ('{"words": "all"}', "holds something other than lists of strings"),
        ('{"words": [1]}', "holds something other than lists of strings"),
        ('{"words": []}', "key '.*' is missing"),
        ("{", "not valid JSON"),
    ):
        (config.folder / "vocabularies.json").write_text(content)
        with pytest.raises(ElmoError, match=rf"vocabularies.json.*: {says}"):
            load_run(config.folder)


@pytest.mark.parametrize(
    ("task", "settings", "name", "words"),
    [
        ("srl", {}, "predicates", ["sings"]),
        ("classify", {"class_weights": "balanced"}, "label_counts", ["many"]),
        ("classify", {"class_weights": "balanced"}, "num_texts", []),
        ("tag", {}, "labels of lemma", ["lower"]),
        ("tag", {}, "labels of lemma", ["1"]),
    ],
)
def test_damaged_numbers_and_rules_are_named(
    task: str, settings: Mapping[str, Any], name: str, words: list[str], tmp_path: Path
) -> None:
    """Some lists hold more than words, as strings."""
    lists = {
        "words": ["Ann"],
        "predicates": ["sings 1 2"],
        "roles": ["ARG0"],
        "labels": ["yes", "no"],
        "label_counts": ["1", "2"],
        "num_texts": ["3"],
        "targets": ["lemma"],
        "labels of lemma": [str(LemmaRule.of("sings", "sing"))],
        "lemmas": ["sing"],
    }
    recipe = replace(load_task_recipe(task), **settings)
    stored = StoredRun(tmp_path, RunConfig(1, task, None, None, train="", dev=""), recipe, lists, {}, None)
    with pytest.raises(ElmoError, match="weights"):  # there are none, but the model was made
        stored.load()
    with pytest.raises(ElmoError, match=rf"{VOCABULARIES}: is damaged \(.+\); get it again or train again"):
        replace(stored, vocabularies={**lists, name: words}).load()


def test_vocabularies_may_be_larger_than_settings(files: Path, recipe: Recipe) -> None:
    """A list of half a million words takes more bytes than any settings. Here, spaces at the end take as many."""
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    results = Experiment(config).run()
    with (config.folder / "vocabularies.json").open("a") as file:
        file.write(" " * 4_000_000)
    load_run(config.folder)
    assert Experiment(config).run() == results


def test_a_run_folder_may_be_named_by_way_of_the_home_folder(
    files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    Experiment(config).run()
    monkeypatch.setenv("HOME", str(config.folder.parent))
    monkeypatch.setenv("USERPROFILE", str(config.folder.parent))
    assert read_run(Path("~", config.folder.name)).folder == config.folder


@pytest.mark.parametrize(
    ("name", "says"),
    [(".", "is not the run folder of a task"), ("model", "model: is a biLM and not the run folder of a task")],
)
def test_a_folder_that_is_not_a_run_folder_is_refused(name: str, says: str, files: Path) -> None:
    with pytest.raises(ElmoError, match=says):
        load_run(files / name)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([], "holds something other than results; train again"),
        ({"runs": 1}, "holds something other than results; train again"),
        ({"runs": [[]]}, "expected a mapping of keys, found list"),
        (RESULT | {"scores": {"dev": 90.0}}, r"scores: dev: expected a mapping of keys, found 90\.0"),
        (RESULT | {"scores": {"dev": {"f1": "90"}}}, "scores: dev: f1: expected float, found '90'"),
        (RESULT | {"epochs": 1.5}, r"epochs: expected int, found 1\.5"),
    ],
)
def test_results_that_someone_edited_are_refused(values: object, says: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(RESULT))
    assert [result.scores for result in read_results(tmp_path)] == [RESULT["scores"]]
    (tmp_path / "results.json").write_text(json.dumps(values))
    with pytest.raises(ElmoError, match=f"results.json: {says}"):
        read_results(tmp_path)
