"""A run folder belongs to one run, and a start that is refused changes nothing in it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import make_many_langs
from bridge import make_model
from elmo import formats
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from elmo.targets import alone_in
from elmo.tasks.checkpoint import CHECKPOINT
from elmo.tasks.experiment import Experiment
from elmo.tasks.ner.task import TASK
from elmo.tasks.run_folder import load_run
from elmo.tasks.trainer import Trainer
from experiments import FINISHED, Recipe, contents, interrupt, make_config, names


def test_an_unfinished_run_of_several_seeds_names_its_seeds(
    files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder itself becomes a run only when the best of all seeds is known."""
    config = make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2)
    interrupt(monkeypatch, 7)
    Experiment(config).run()
    says = (
        r"run: not all of its seeds are trained; run the same .* again to continue, or name .*, such as .*run/seed-0$"
    )
    with pytest.raises(ElmoError, match=says):
        load_run(config.folder)
    load_run(config.folder / "seed-0")


def test_a_full_folder_is_refused_before_files_are_read(
    files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of word vectors take minutes."""
    config = make_config(files, recipe())
    config.folder.mkdir()
    (config.folder / "notes.txt").touch()
    monkeypatch.setattr(type(TASK), "read", None)
    with pytest.raises(ElmoError, match="run: is neither empty nor a run folder of a task; choose another one"):
        Experiment(config)


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_two_processes_do_not_share_a_run(num_seeds: int, files: Path, recipe: Recipe) -> None:
    """The second process is refused before it has written anything."""
    config = make_config(files, recipe(), num_seeds=num_seeds)
    config.folder.mkdir()
    with alone_in(config.folder), pytest.raises(ElmoError, match="run: another process is writing it"):
        Experiment(config).run()
    assert names(config.folder) == set()


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_another_run_is_refused_while_a_process_trains_there(num_seeds: int, files: Path, recipe: Recipe) -> None:
    """It would be of no use to wait for that process."""
    Experiment(make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=num_seeds)).run()
    other = make_config(files, recipe(training__max_epochs=1, dropout=0.3), elmo=None, num_seeds=num_seeds)
    with alone_in(other.folder), pytest.raises(ElmoError, match=r"was started with dropout: 0\.2, not 0\.3"):
        Experiment(other).run()


@pytest.mark.parametrize("num_files", range(2))
def test_a_kill_before_the_first_step_is_survived(
    num_files: int, files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run folder begins with two files. The process dies when `num_files` of them have their names."""
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    calls, replace = iter(range(9)), Path.replace

    def die(self: Path, target: Path) -> Path:
        if next(calls) == num_files:
            for path in config.folder.glob(".*.partial"):  # what a kill would leave
                path.with_name(f".old{path.name}").write_bytes(path.read_bytes())
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            Experiment(config).run()
    assert len(names(config.folder) & {"config.json", "vocabularies.json"}) == num_files
    assert any(name.startswith(".old") for name in names(config.folder))
    Experiment(config).run()
    assert names(config.folder) == FINISHED


def test_a_kill_after_the_results_leaves_no_checkpoint(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    Experiment(config).run()
    (config.folder / CHECKPOINT).write_text("what was about to be removed")
    Experiment(config).run()
    assert names(config.folder) == FINISHED


def test_a_run_belongs_to_one_recipe_text_and_bilm(files: Path, recipe: Recipe) -> None:
    Experiment(make_config(files, recipe(training__max_epochs=1))).run()
    others = [
        (
            make_config(files, recipe(training__max_epochs=1, dropout=0.3)),
            r"^.*/run: was started with dropout: 0\.2, not 0\.3; choose another run folder$",
        ),
        (
            make_config(files, recipe(training__max_epochs=1, training__clip_norm=None)),
            r"run: was started with training\.clip_norm: 5\.0, not null; choose",
        ),
        (
            make_config(files, recipe(training__max_epochs=1), elmo=None),
            "run: was started with a biLM, and now has none; choose",
        ),
        (
            replace(make_config(files, recipe(training__max_epochs=1)), dev=str(files / "test.conll")),
            "run: was started with another dev set; choose",
        ),
        (
            replace(make_config(files, recipe(training__max_epochs=1)), test=None),
            "was started with a test set, and now has none; choose",
        ),
        (make_config(files, recipe(training__max_epochs=2)), r"with other settings \(training\.max_epochs: 1, not 2\)"),
        (make_config(files, recipe(training__max_epochs=1), num_seeds=2), "neither empty nor a run of several seeds"),
        (
            make_config(files, recipe(), "model"),
            r"model: is a biLM and not the run folder of a task, which 'elmo task train' makes$",
        ),
    ]
    for config, says in others:
        with pytest.raises(ElmoError, match=says):
            Experiment(config).run()


def save_with_warm_state(folder: Path, sentence: list[str]) -> None:
    """Give the model of the folder the state in which it is after a sentence."""
    model = formats.load(folder)
    model.warm_state = mean_state(model, [sentence])
    formats.save_native(model.copy_with(card=None), folder)


@pytest.mark.parametrize("state", ["zero", "warm"])
def test_a_run_belongs_to_one_warm_state_if_it_starts_there(state: str, files: Path, recipe: Recipe) -> None:
    save_with_warm_state(files / "model", ["A", "play"])
    config = make_config(files, recipe(elmo__state=state, elmo__vectors="live", training__max_epochs=1))
    results = Experiment(config).run()
    save_with_warm_state(files / "model", ["They"])
    if state == "zero":
        assert Experiment(config).run() == results
    else:
        with pytest.raises(ElmoError, match="run: was started with another biLM; choose another run folder"):
            Experiment(config).run()


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_a_start_that_trained_nothing_leaves_the_folder_free(
    num_seeds: int, files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a start ran out of memory, other settings may use the folder, and the biLM that it left is removed."""

    def fail(trainer: Trainer[Any, Any], *_: object) -> None:
        raise MemoryError

    config = make_config(files, recipe(training__max_epochs=1), num_seeds=num_seeds)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train", fail)
        with pytest.raises(MemoryError):
            Experiment(config).run()
    assert (config.folder / "bilm").exists()
    other = make_config(files, recipe(training__max_epochs=1, dropout=0.3), elmo=None, num_seeds=num_seeds)
    assert other.folder == config.folder
    results = Experiment(other).run()
    assert len(results) == num_seeds
    assert not (config.folder / "bilm").exists()
    with pytest.raises(ElmoError, match=r"run(/seed-0)?: was started with no biLM, and now has one"):
        Experiment(config).run()


def test_seeds_that_trained_nothing_take_another_bilm(
    files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All seeds share one biLM. As soon as one of them is trained with it, there can't be another."""
    other = make_model()
    torch.nn.init.ones_(other.bilm.char_encoder.embedding.weight)  # pyright: ignore[reportOptionalMemberAccess]
    formats.save_native(other, files / "other")
    config = make_config(files, recipe(training__max_epochs=1), num_seeds=2)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train", None)
        with pytest.raises(TypeError):
            Experiment(config).run()
    config = make_config(files, recipe(training__max_epochs=1), elmo="other", num_seeds=2)
    with monkeypatch.context() as patch:
        interrupt(patch, 6)
        assert len(Experiment(config).run()) == 1
    load_run(config.folder / "seed-0")  # refuses another biLM than it was trained with
    with pytest.raises(ElmoError, match="seed-0: was started with another biLM"):
        Experiment(replace(config, elmo=str(files / "model"))).run()
    assert len(Experiment(config).run()) == 2


def test_seeds_of_a_folder_differ_in_nothing_else(files: Path, recipe: Recipe) -> None:
    """All seeds, old and new, have one recipe and one biLM, since the best of them becomes the folder's model."""
    config = make_config(files, recipe(training__max_epochs=1), num_seeds=2)
    results = Experiment(config).run()
    before = (config.folder / "results.json").read_bytes()
    no_elmo = "a biLM, and now has none"
    for changes, elmo, says in (({"dropout": 0.3}, "model", r"dropout: 0\.2, not 0\.3"), ({}, None, no_elmo)):
        other = make_config(files, recipe(training__max_epochs=1, training__seed=2, **changes), elmo=elmo, num_seeds=2)
        with pytest.raises(ElmoError, match=f"seed-[01]: was started with {says}; choose"):
            Experiment(other).run()
    assert sorted(path.name for path in config.folder.glob("seed-*")) == ["seed-0", "seed-1"]
    assert (config.folder / "results.json").read_bytes() == before
    with pytest.raises(
        ElmoError, match=r"run: has the results of seed 0, which the results of seeds 1 to 2 would repla"
    ):
        Experiment(make_config(files, recipe(training__max_epochs=1, training__seed=1), num_seeds=2)).run()
    assert (config.folder / "results.json").read_bytes() == before
    with pytest.raises(ElmoError, match="has the results of seed 0"):  # as before a fine-tuning, which takes long
        Experiment(make_config(files, recipe(training__max_epochs=1, training__seed=1), num_seeds=2)).require_same_run()
    more = make_config(files, recipe(training__max_epochs=1), num_seeds=3)
    assert [result.scores for result in Experiment(more).run()[:2]] == [result.scores for result in results]


def test_a_seed_of_a_newer_version_is_refused_before_others_are_trained(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2)
    (config.folder / "seed-1").mkdir(parents=True)
    values = {"format": 99, "task": "ner", "bilm": None, "fingerprint": None, "train": "", "dev": "", "recipe": {}}
    (config.folder / "seed-1" / "config.json").write_text(json.dumps(values))
    with pytest.raises(ElmoError, match=r"seed-1/config\.json: format 99 is newer than this program"):
        Experiment(config).run()
    assert names(config.folder) == {"seed-1"}


def test_a_run_from_before_a_key_existed_continues(
    files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(files, recipe(training__max_epochs=1))
    results = Experiment(config).run()
    values = json.loads((config.folder / "config.json").read_text())
    del values["recipe"]["training"]["share"]
    (config.folder / "config.json").write_text(json.dumps(values))
    monkeypatch.setattr(Trainer, "step", None)
    assert Experiment(config).run() == results


def test_hidden_files_make_no_folder_full(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2)
    config.folder.mkdir()
    (config.folder / ".gitignore").touch()
    assert len(Experiment(config).run()) == 2


@pytest.mark.parametrize(
    "others",
    [
        ("seed-words/a.txt",),
        ("seed-0-backup/config.json", "README.md", "vectors/glove.txt"),
        ("seed-0/notes.txt",),
        ("seed-0/config.json", "config.json"),
        ("seed-00/a.txt", "weights.safetensors"),
        ("seed-0",),
    ],
)
def test_files_of_the_user_are_no_run_of_several_seeds(others: tuple[str, ...], files: Path, recipe: Recipe) -> None:
    """The name of a folder alone does not make a run of several seeds of the one that it is in."""
    config = make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2)
    for name in others:
        (config.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (config.folder / name).write_text("{}")
    before = contents(config.folder)
    with pytest.raises(ElmoError, match="run: is neither empty nor a run of several seeds; choose another one"):
        Experiment(config).run()
    assert contents(config.folder) == before


def test_runs_of_one_seed_that_a_user_collected_are_not_taken_over(files: Path, recipe: Recipe) -> None:
    """A README of the user's, or a run in the folder itself, would be replaced by the best seed's."""
    settings = recipe(training__max_epochs=1)
    Experiment(make_config(files, settings, "mine/seed-0", elmo=None)).run()
    Experiment(make_config(files, settings, "both", elmo=None)).run()
    shutil.copytree(files / "mine" / "seed-0", files / "both" / "seed-0")
    shutil.copytree(files / "mine", files / "next-to-a-model")
    shutil.copytree(files / "model", files / "next-to-a-model" / "bilm")
    (files / "mine" / "README.md").write_text("My runs.")
    for name in ("mine", "both", "next-to-a-model"):
        before = contents(files / name)
        with pytest.raises(ElmoError, match=f"{name}: is neither empty nor a run of several seeds"):
            Experiment(make_config(files, settings, name, elmo=None, num_seeds=2)).run()
        assert contents(files / name) == before


@pytest.mark.parametrize("elmo", [None, "model"])
def test_only_caches_are_removed_after_a_training(elmo: str | None, files: Path, recipe: Recipe) -> None:
    """A user may keep static vectors under the name of the folder for caches."""
    config = make_config(files, recipe(training__max_epochs=1), elmo=elmo)
    Experiment(config).run()
    assert not (config.folder / "vectors").exists()
    (config.folder / "vectors").mkdir()
    (config.folder / "vectors" / "glove.layers").write_text("mine")
    Experiment(config).run()
    assert contents(config.folder / "vectors") == {"glove.layers": b"mine"}


def test_a_run_of_several_seeds_goes_on_next_to_other_folders(files: Path, recipe: Recipe) -> None:
    """A copy of a seed's folder doesn't matter, nor does the empty one of a start that was killed at once."""
    config = make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2)
    (config.folder / "seed-0").mkdir(parents=True)
    results = Experiment(config).run()
    shutil.copytree(config.folder / "seed-0", config.folder / "seed-0-backup")
    assert Experiment(config).run() == results


def test_a_folder_of_several_seeds_is_refused_to_one_seed(files: Path, recipe: Recipe) -> None:
    Experiment(make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2)).run()
    with pytest.raises(
        ElmoError, match="holds a run of several seeds; choose another run folder, or more than one seed"
    ):
        Experiment(make_config(files, recipe(training__max_epochs=1), elmo=None)).run()


def test_a_refused_experiment_leaves_nothing(files: Path, recipe: Recipe) -> None:
    """The corrected command can then use the name of the folder."""
    make_many_langs.make(files / "unicode")
    (files / "v.txt").write_text("Ann 1 2\nBo 3 4\n")
    narrow = {"words__vectors": str(files / "v.txt"), "words__dim": 3}
    refused = [
        (make_config(files, recipe(), elmo="unicode"), "pass `with_bilm=False`"),
        (make_config(files, recipe(elmo__state="warm")), "no warm state"),
        (make_config(files, recipe(), elmo="nowhere"), "nowhere: no such file or folder"),
        (
            make_config(files, recipe(token_column=7)),
            r"train\.conll, line 1: has 2 columns, and token_column=7 is not one of those before the tag",
        ),
        (make_config(files, recipe(**narrow)), r"words\.dim: is 3, but the vectors of .*v\.txt have 2"),
    ]
    for config, says in refused:
        with pytest.raises(ElmoError, match=says):
            Experiment(config).run()
        assert not config.folder.exists()
    Experiment(make_config(files, recipe(training__max_epochs=1), elmo="unicode", with_bilm=False)).run()
