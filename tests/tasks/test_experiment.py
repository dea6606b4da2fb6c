"""An experiment turns files into trained models, for one or several seeds, and may be started again."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

import make_words
from bridge import make_model
from elmo import formats
from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.tasks import load_task_recipe
from elmo.tasks.checkpoint import CHECKPOINT, WEIGHTS
from elmo.tasks.elmo.cache import LiveLayers, remove_cache
from elmo.tasks.experiment import Experiment, ExperimentConfig
from elmo.tasks.finetune import finetune_for_task, finetuning_text
from elmo.tasks.ner.task import TASK, NerExample
from elmo.tasks.prediction import predict
from elmo.tasks.results import Result
from elmo.tasks.run_folder import CACHE, load_run
from elmo.tasks.trainer import Trainer
from elmo.training.metrics import read_rows
from experiments import FINISHED, Recipe, interrupt, make_config, names


def test_the_speed_of_a_training_counts_examples(files: Path, recipe: Recipe) -> None:
    """Each of two epochs has all 40 of them."""
    (result,) = Experiment(make_config(files, recipe(training__max_epochs=2), elmo=None)).run()
    assert result.examples_per_second * result.seconds == pytest.approx(2 * 40)


@pytest.mark.parametrize("vectors", ["live", "trained"])
def test_cached_vectors_train_as_live_ones(vectors: str, files: Path, recipe: Recipe) -> None:
    """Losses of the first epoch agree to the rounding of 32-bit vectors, but not with a biLM that is trained along."""
    curves: dict[str, float] = {}
    for kind in ("cached", vectors):
        config = make_config(files, recipe(elmo__vectors=kind, training__max_epochs=1), kind)
        Experiment(config).run()
        curves[kind] = read_rows(config.folder / "metrics.csv")[0]["loss"]
        assert not (config.folder / "vectors").exists()
    same = curves["cached"] == pytest.approx(curves[vectors], rel=1e-5)
    assert same == (vectors == "live")


def test_a_given_cache_folder_is_kept_and_used(files: Path, recipe: Recipe) -> None:
    found: list[tuple[str, int, int]] = []
    for number in range(2):
        config = make_config(files, recipe(training__max_epochs=1), f"run{number}", cache=files / "cache")
        Experiment(config).run()
        (file,) = (files / "cache").iterdir()
        found.append((file.name, file.stat().st_ino, file.stat().st_mtime_ns))
    assert found[0] == found[1]


def test_a_bilm_that_was_trained_along_is_in_the_run(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(elmo__vectors="trained", training__learning_rate=0.01))
    (result,) = Experiment(config).run()
    run = load_run(config.folder)
    examples = run.task.read(config.dev, run.recipe)
    assert run.task.score(examples, predict(run.task, run.model, examples)) == result.scores["dev"]
    tuned = load_file(config.folder / WEIGHTS)["elmo.layers.bilm.forward_lstm.layers.0.bias"]
    original = load_file(config.folder / "bilm" / "model.safetensors")["forward_lstm.layers.0.bias"]
    assert not torch.equal(tuned, original)


@pytest.mark.parametrize("vectors", ["cached", "trained"])
def test_a_bilm_of_whole_words(vectors: str, files: Path, recipe: Recipe) -> None:
    """The biLM is kept in the run folder with its list of words, which it needs to read text."""
    make_words.make(files / "words")
    config = make_config(files, recipe(elmo__vectors=vectors, training__max_epochs=1), elmo="words")
    (result,) = Experiment(config).run()
    shutil.rmtree(files / "words")
    run = load_run(config.folder)
    examples = run.task.read(config.dev, run.recipe)
    assert run.task.score(examples, predict(run.task, run.model, examples)) == result.scores["dev"]


def save_in_lower_case(folder: Path) -> None:
    """Replace the model of the folder by one whose training text was in lower case."""
    model = make_model()
    model.text = TextConfig(lowercase=True)
    shutil.rmtree(folder)
    formats.save_native(model, folder)


def test_a_bilm_in_lower_case_reads_lower_case(files: Path, recipe: Recipe) -> None:
    """The run records it, so that one that began with the case kept, as earlier versions did, can't go on otherwise."""
    save_in_lower_case(files / "model")
    config = make_config(files, recipe(training__max_epochs=1))
    Experiment(config).run()
    values = json.loads((config.folder / "config.json").read_text())
    assert values["recipe"]["elmo"]["lowercase"] is True
    elmo = load_run(config.folder).model.elmo
    assert torch.equal(elmo([["Ann", "RAN"]]).input, elmo([["ann", "ran"]]).input)
    del values["recipe"]["elmo"]["lowercase"]
    (config.folder / "config.json").write_text(json.dumps(values))
    elmo = load_run(config.folder).model.elmo
    assert not torch.allclose(elmo([["Ann", "RAN"]]).input, elmo([["ann", "ran"]]).input)
    with pytest.raises(ElmoError, match=r"run: was started with elmo\.lowercase: false, not true; choose another run"):
        Experiment(config).run()
    kept = make_config(files, recipe(training__max_epochs=1, elmo__lowercase=False))
    Experiment(kept).run()


@pytest.mark.parametrize(
    ("words", "lowercase", "says"), [("same", False, False), ("other", False, True), ("lower", True, False)]
)
def test_a_bilm_that_does_not_know_the_words_is_noted(
    words: str, lowercase: bool, says: bool, files: Path, recipe: Recipe
) -> None:
    """A biLM of another language is an example. Words are looked up in the case in which the biLM reads them."""
    known = {word for line in (files / "train.conll").read_text().split("\n") for word in line.split()[:1]}
    vocabulary = {"same": known, "other": {"a", "b"}, "lower": {word.lower() for word in known}}[words]
    model = make_model()
    model.text = TextConfig(lowercase=lowercase, oov_rate=0.01, language="fi")
    formats.save_native(model, files / "finnish")
    (files / "finnish" / "vocabulary.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *sorted(vocabulary)]) + "\n")
    notes = Experiment(make_config(files, recipe(), elmo="finnish")).notes
    assert len(notes) == says
    pattern = r".*train\.conll: 100% of the first \d+ tokens are not among the model's words .* of the model \(fi\)"
    assert all(re.match(pattern, note) for note in notes)
    assert Experiment(make_config(files, recipe(), "baseline", elmo=None)).notes == []


def test_a_dev_set_with_the_sentences_of_the_training_set_is_noted(files: Path, recipe: Recipe) -> None:
    """Of fewer than fifty sentences nothing is said."""
    lines = [f"word{number}\tB-LOC\n" for number in range(100)]
    (files / "train.conll").write_text("\n".join(lines[:60]))
    for first, says in ((0, ["100%"]), (20, ["67%"]), (40, []), (60, [])):
        (files / "dev.conll").write_text("\n".join(lines[first : first + 60]))
        notes = Experiment(make_config(files, recipe(), elmo=None)).notes
        assert [re.search(r"dev\.conll: (\S+) of its sentences are in the training", n)[1] for n in notes] == says  # pyright: ignore[reportOptionalSubscript]
    (files / "dev.conll").write_text("\n".join(lines[:49]))
    assert Experiment(make_config(files, recipe(), elmo=None)).notes == []


def test_texts_that_are_cut_unlike_the_bilms_are_noted(tmp_path: Path) -> None:
    pairs = [
        {"gold_label": label, "sentence1": f"A man sings {n}.", "sentence2": "He sings."}
        for n, label in enumerate(["neutral", "entailment"])
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    model = make_model()
    pattern = r".*cut by tokenizer ptb, .* was cut by words; .*--set tokenizer=words"
    for tokenizer, is_other in (("words", True), ("ptb", False)):
        model.text = TextConfig(tokenizer)
        formats.save_native(model, tmp_path / tokenizer)
        file = str(tmp_path / "pairs.jsonl")
        config = ExperimentConfig(
            "snli", load_task_recipe("snli"), tmp_path / "run", file, file, elmo=tmp_path / tokenizer, device="cpu"
        )
        notes = [note for note in Experiment(config).notes if "tokenizer" in note]
        assert len(notes) == is_other
        assert all(re.match(pattern, note) for note in notes)


def test_a_bilm_in_lower_case_is_tuned_on_lower_case(files: Path, recipe: Recipe) -> None:
    save_in_lower_case(files / "model")
    result = finetune_for_task(Experiment(make_config(files, recipe())), files / "tuned")
    tuned = formats.load(files / "tuned")
    assert tuned.text is not None
    assert tuned.text.lowercase
    assert tuned.vocabulary is not None
    assert [name for name in ("Ann", "ann") if name in tuned.vocabulary] == ["ann"]
    assert result is not None
    assert result.before.oov_rate < 0.1, "the text that is measured is in lower case, too"


def test_the_dev_set_is_measured_before_and_after_a_fine_tuning(files: Path, recipe: Recipe) -> None:
    (files / "short.conll").write_text("Ann\tB-PER\n")
    config = replace(make_config(files, recipe()), dev=str(files / "short.conll"))
    result = finetune_for_task(Experiment(config), files / "tuned")
    assert result is not None
    assert result.before.num_tokens == result.after.num_tokens == 1


def test_each_of_several_seeds_has_the_result_that_it_has_alone(files: Path, recipe: Recipe) -> None:
    """Each seed has the result that it has alone. The folder gets the best model, with mean and deviation of all."""
    settings = recipe(training__max_epochs=4)
    experiment = Experiment(make_config(files, settings, num_seeds=3))
    results, folder = experiment.run(), experiment.config.folder
    assert [result.seed for result in results] == [0, 1, 2]
    assert names(folder) == FINISHED - {"metrics.csv"} | {"bilm", "seed-0", "seed-1", "seed-2"}
    assert names(folder / "seed-1") == FINISHED
    alone = make_config(files, replace(settings, training=replace(settings.training, seed=1)), "alone")
    assert Experiment(alone).run()[0].scores == results[1].scores
    summary = json.loads((folder / "results.json").read_text())
    f1 = [result.scores["dev"]["f1"] for result in results]
    assert summary["dev"]["f1"] == pytest.approx({"mean": statistics.mean(f1), "sd": statistics.stdev(f1)})
    assert f"| f1 | {statistics.mean(f1):.2f} ± {statistics.stdev(f1):.2f} |" in (folder / "README.md").read_text()
    best = max(results, key=lambda result: result.scores["dev"]["f1"])
    assert summary["best_seed"] == best.seed
    scores = ", ".join(f"{part} f1 {best.scores[part]['f1']:.2f}" for part in ("dev", "test"))
    assert f"| this model | seed {best.seed}, {scores} |" in (folder / "README.md").read_text()
    for path, result in ((folder, best), (folder / "seed-2", results[2])):
        run = load_run(path)
        examples = run.task.read(experiment.config.test or "", run.recipe)
        assert run.task.score(examples, predict(run.task, run.model, examples)) == result.scores["test"]
    (folder / "seed-2").rename(files / "moved")
    with pytest.raises(ElmoError, match=r"moved: its biLM .*bilm, which all seeds of a run share, is missing"):
        load_run(files / "moved")


def test_each_seed_starts_from_weights_of_its_own(files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[int, list[torch.Tensor]] = {0: [], 1: []}
    train = Trainer.train

    def watched(self: Trainer[Any, Any]) -> None:
        started[self.config.seed].append(self.model.get_parameter("emit.weight").detach().clone())
        train(self)

    monkeypatch.setattr(Trainer, "train", watched)
    for out in ("run", "again"):
        Experiment(make_config(files, recipe(training__max_epochs=1), out, num_seeds=2)).run()
    (first, repeated), (other, _) = started[0], started[1]
    assert torch.equal(first, repeated)
    assert not torch.equal(first, other)


def test_sentences_to_finetune_on_are_distinct_as_the_bilm_reads_them() -> None:
    """Two sentences that differ in case are one sentence for a biLM that reads lower case."""
    examples = [NerExample(tuple(text.split(" ")), ()) for text in ("Ann met Bo", "ANN met bo", "Ann met Bo")]
    examples += [NerExample(("New York", "met"), ()), NerExample((), ())]
    cased = [("Ann", "met", "Bo"), ("ANN", "met", "bo"), ("New_York", "met")]
    assert finetuning_text(TASK, examples, lowercase=False) == {"": cased}
    assert finetuning_text(TASK, examples, lowercase=True) == {"": [("ann", "met", "bo"), ("new_york", "met")]}


def test_a_cache_that_the_disk_cannot_hold_is_refused(
    files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called again, the same object makes the cache. It trained from vectors that were computed each time, instead."""
    usage = shutil.disk_usage(files)
    message = r"vectors: ELMo's vectors of [0-9,]+ tokens take 0 MB, but only 0 MB are free"
    experiment = Experiment(make_config(files, recipe()))
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=1000))
        for _ in range(2):
            with pytest.raises(ElmoError, match=message):
                experiment.run()
    made: list[Path] = []
    cached = LiveLayers.cached
    monkeypatch.setattr(LiveLayers, "cached", lambda self, *args: made.append(args[1]) or cached(self, *args))
    experiment.run()
    assert made == [experiment.config.folder / CACHE]


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_the_same_experiment_continues(
    num_seeds: int, files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If stopped in the last seed's second epoch, it takes the other steps, and ends as if it had not been stopped.

    Once finished, it trains nothing.
    """

    def scores(results: list[Result]) -> list[Any]:
        return [(result.seed, result.epochs, result.scores) for result in results]

    wanted = Experiment(make_config(files, recipe(), "whole", num_seeds=num_seeds)).run()
    config = make_config(files, recipe(), num_seeds=num_seeds)
    with monkeypatch.context() as patch:
        interrupt(patch, 15 * (num_seeds - 1) + 7)
        experiment = Experiment(config)
        assert len(experiment.run()) == num_seeds - 1
        assert not experiment.is_done
    last = config.folder if num_seeds == 1 else config.folder / "seed-1"
    assert (last / CHECKPOINT).exists()
    with mock.patch.object(Trainer, "step", autospec=True, side_effect=Trainer.step) as step:
        assert scores(Experiment(config).run()) == scores(wanted)
    assert step.call_count == 15 - 7
    assert not (last / CHECKPOINT).exists()
    monkeypatch.setattr(Trainer, "step", None)
    assert scores(Experiment(config).run()) == scores(wanted)


def test_a_seed_may_be_finished_by_itself(files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on sharing the biLM of all seeds, so that the others can be trained afterwards."""
    config = make_config(files, recipe(), num_seeds=2)
    with monkeypatch.context() as patch:
        interrupt(patch, 7)
        assert Experiment(config).run() == []
    (alone,) = Experiment(make_config(files, recipe(), "run/seed-0")).run()
    assert not (config.folder / "seed-0" / "bilm").exists()
    load_run(config.folder / "seed-0")
    first, second = Experiment(config).run()
    assert first == alone
    assert second.seed == 1


def test_a_test_set_that_was_not_there_before(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    Experiment(replace(config, test=None)).run()
    with pytest.raises(
        ElmoError, match="run: was started with no test set, and now has one; choose another run folder"
    ):
        Experiment(config).run()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"folder": Path("a.txt")}, r"a\.txt: is not a folder"),
        ({"folder": Path("a.txt"), "num_seeds": 2}, r"a\.txt: is not a folder"),
        ({"cache": Path("a.txt")}, r"a\.txt: is not a folder"),
        ({"elmo": "none-there"}, "none-there"),
    ],
)
def test_what_is_wrong_is_found_before_files_are_read(
    changes: dict[str, Any], says: str, files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files take minutes to read."""
    monkeypatch.chdir(files)
    Path("a.txt").write_text("mine")
    config = replace(make_config(files, recipe()), train="missing.conll")
    with pytest.raises(ElmoError, match=says):
        Experiment(replace(config, **changes))
    assert Path("a.txt").read_text() == "mine"


def test_the_last_seed_is_checked_before_the_first_is_trained(files: Path, recipe: Recipe) -> None:
    with pytest.raises(ElmoError, match=r"training\.seed: 4294967296 is not between 0 and 4294967295"):
        make_config(files, recipe(training__seed=2**32 - 1), num_seeds=2)
    make_config(files, recipe(training__seed=2**32 - 1))


@pytest.mark.parametrize("number", [0, -1])
def test_there_is_at_least_one_seed(number: int, files: Path, recipe: Recipe) -> None:
    with pytest.raises(ElmoError, match="num_seeds"):
        make_config(files, recipe(), num_seeds=number)


def test_an_object_continues_its_own_run(files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """If its run is called again, each seed has one result, as from a new object."""
    experiment = Experiment(make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2))
    with monkeypatch.context() as patch:
        interrupt(patch, 7)
        assert [result.seed for result in experiment.run()] == [0]
    for _ in range(2):
        assert [result.seed for result in experiment.run()] == [0, 1]
        assert experiment.is_done
    summary = json.loads((experiment.config.folder / "results.json").read_text())
    assert [each["seed"] for each in summary["runs"]] == [0, 1]


def test_a_continued_run_may_end_at_another_time(files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """What decides when to end and when to save may change in a run that is not finished. It trains what is left."""
    config = make_config(files, recipe(), elmo=None)
    with monkeypatch.context() as patch:
        interrupt(patch, 7)
        assert Experiment(config).run() == []
    longer = {"max_epochs": 4, "patience": 9, "max_minutes": 60.0, "checkpoint_every_minutes": 1.0}
    settings = recipe(**{f"training__{name}": value for name, value in longer.items()})
    assert all(getattr(config.recipe.training, name) != value for name, value in longer.items())
    (result,) = Experiment(make_config(files, settings, elmo=None)).run()
    assert [row["epoch"] for row in read_rows(config.folder / "metrics.csv")] == [1, 2, 3, 4]
    assert result.epochs == 4


@pytest.mark.parametrize(
    ("elmo", "vectors", "reason"),
    [(None, "cached", "without ELMo"), ("model", "live", "elmo.vectors: live"), ("model", "trained", "trained")],
)
def test_a_cache_for_nothing_is_refused(
    elmo: str | None, vectors: str, reason: str, files: Path, recipe: Recipe
) -> None:
    config = make_config(files, recipe(elmo__vectors=vectors), elmo=elmo, cache=files / "cache")
    with pytest.raises(ElmoError, match=f"^cache .*cache: .*{reason}.* no vectors are kept; leave it out"):
        Experiment(config)
    assert not (files / "cache").exists()


def test_an_interrupt_while_a_seed_is_measured_is_obeyed(
    files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = Trainer.evaluate

    def interrupted(self: Trainer[Any, Any], examples: Any) -> Any:
        self.stop()
        return evaluate(self, examples)

    config = make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", interrupted)
        assert Experiment(config).run() == []
    assert not (config.folder / "seed-1").exists()
    assert len(Experiment(config).run()) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files are mapped")
def test_a_cache_is_let_go_before_it_is_removed(files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows removes no file that is still mapped into memory, and elsewhere it goes on taking space."""
    mapped: dict[str, bool] = {}

    def looking(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        mapped[name] = str(files) in Path("/proc/self/maps").read_text()
        return call(*arguments)

    evaluate = Trainer.evaluate
    monkeypatch.setattr(Trainer, "evaluate", lambda *arguments: looking("trained", evaluate, *arguments))
    monkeypatch.setattr("elmo.tasks.experiment.remove_cache", partial(looking, "removed", remove_cache))
    Experiment(make_config(files, recipe(training__max_epochs=1))).run()
    assert mapped == {"trained": True, "removed": False}
    assert str(files) not in Path("/proc/self/maps").read_text()


def test_tasks_know_their_names() -> None:
    from elmo.tasks import TASKS, get_task

    assert get_task("ner") is TASK
    assert all(get_task(name).name == name for name in TASKS)
    with pytest.raises(ElmoError, match="task 'pos' is unknown; choose one of ner"):
        get_task("pos")


@pytest.mark.parametrize("missing", ["name", "metric", "recipe", "model"])
def test_an_attribute_that_a_task_lacks_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from elmo.tasks import TASKS, get_task

    attributes = {name: value for name, value in vars(type(TASK)).items() if name != missing}
    module = SimpleNamespace(TASK=type("Mine", type(TASK).__bases__, attributes)())
    monkeypatch.setitem(TASKS, "mine", "A task from outside.")
    monkeypatch.setitem(sys.modules, "elmo.tasks.mine.task", module)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ElmoError, match=f"task 'mine': Mine has no attribute {missing}; set it in the class"):
        get_task("mine")


@pytest.mark.parametrize(("part", "name"), [("train", "the training set"), ("dev", "the dev set")])
def test_a_set_without_entities_is_refused(part: str, name: str, files: Path, recipe: Recipe) -> None:
    """Training would learn nothing from such a set. On such a dev set every epoch would be the best one."""
    (files / f"{part}.conll").write_text("Ann\tO\n")
    with pytest.raises(ElmoError, match=rf"{part}\.conll: {name} has no entity in it"):
        Experiment(make_config(files, recipe()))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("vectors", "optimizer"), [("cached", "adam"), ("live", "adam"), ("trained", "adam"), ("cached", "adadelta")]
)
def test_trains_on_a_gpu_and_predicts_anywhere(
    vectors: str, optimizer: str, files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training is also stopped within an epoch and started again."""
    settings = recipe(elmo__vectors=vectors, training__max_epochs=10, training__optimizer=optimizer)
    config = replace(make_config(files, settings), device="cuda")
    make_step = Trainer.step

    def stop(self: Trainer[Any, Any], batch: Any) -> None:
        make_step(self, batch)
        self.stopped = self.progress.step == 7

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stop)
        assert Experiment(config).run() == []
    Experiment(config).run()
    found = {device: load_run(config.folder, device) for device in ("cuda", "cpu")}
    examples = TASK.read(config.dev, config.recipe)
    on_gpu, on_cpu = (predict(run.task, run.model, examples) for run in found.values())
    assert on_gpu == on_cpu
