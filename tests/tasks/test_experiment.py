"""An experiment turns files into a self-contained run folder, for one or several seeds, and may be started again."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import make_many_langs
import make_words
from bridge import make_model
from elmo import formats
from elmo.config import TextConfig
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from elmo.formats import sources
from elmo.targets import alone_in
from elmo.tasks import load_task_recipe
from elmo.tasks.checkpoint import CHECKPOINT, WEIGHTS
from elmo.tasks.elmo.cache import remove_cache
from elmo.tasks.experiment import Experiment, ExperimentConfig
from elmo.tasks.finetune import finetune_for_task, finetuning_text
from elmo.tasks.ner.task import TASK, NerExample, NerModel, NerRecipe
from elmo.tasks.prediction import predict
from elmo.tasks.results import Result
from elmo.tasks.run_folder import VOCABULARIES, RunConfig, StoredRun, load_run, read_results
from elmo.tasks.tag.lemma_rules import LemmaRule
from elmo.tasks.trainer import Trainer
from elmo.training.metrics import read_rows

Recipe = Callable[..., NerRecipe]
RESULT: dict[str, Any] = {
    "seed": 0,
    "epochs": 3,
    "best_epoch": 2,
    "seconds": 60.0,
    "examples_per_second": 9.5,
    "scores": {"dev": {"f1": 90.0}},
}
FINISHED = {"README.md", "config.json", "metrics.csv", "results.json", "vocabularies.json", "weights.safetensors"}


def make_config(
    files: Path, recipe: NerRecipe, out: str = "run", elmo: str | None = "model", **options: Any
) -> ExperimentConfig:
    train, dev, test = (str(files / f"{name}.conll") for name in ("train", "dev", "test"))
    source = "none" if elmo is None else str(files / elmo)
    return ExperimentConfig("ner", recipe, files / out, train, dev, test, source, device="cpu", **options)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


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


def test_a_run_is_no_bilm_but_holds_one(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe())
    Experiment(config).run()
    name = re.escape(str(config.folder))
    with pytest.raises(ElmoError, match=f"{name}: is the run folder of a task, not a biLM; its biLM is {name}/bilm$"):
        formats.load(config.folder)
    assert formats.load(config.folder / "bilm").bilm


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
    """As one of another language does not. Words are looked up as the biLM reads them."""
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


def test_the_baseline_has_no_bilm(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    Experiment(config).run()
    assert names(config.folder) == FINISHED
    assert "none: the baseline" in (config.folder / "README.md").read_text()
    load_run(config.folder)


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


def test_loading_a_run_draws_no_random_numbers(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1))
    Experiment(config).run()
    before = torch.get_rng_state()
    load_run(config.folder)
    assert torch.equal(torch.get_rng_state(), before)


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
    usage = shutil.disk_usage(files)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=1000))
    with pytest.raises(ElmoError, match=r"vectors: ELMo's vectors of [0-9,]+ tokens take 0 MB, but only 0 MB are free"):
        Experiment(make_config(files, recipe())).run()


def interrupt(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Stop the training after this many steps, as a signal would."""
    make_step, made = Trainer[Any, Any].step, iter(range(steps))

    def step(self: Trainer[Any, Any], examples: Any) -> None:
        make_step(self, examples)
        next(made, None)
        if made.__length_hint__() == 0:
            self.stopped = True

    monkeypatch.setattr(Trainer, "step", step)


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_the_same_experiment_continues(
    num_seeds: int, files: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If stopped in the last seed's second epoch, it ends as if it had not been. Once finished, it trains nothing."""

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
    assert scores(Experiment(config).run()) == scores(wanted)
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


def test_hidden_files_make_no_folder_full(files: Path, recipe: Recipe) -> None:
    config = make_config(files, recipe(training__max_epochs=1), elmo=None, num_seeds=2)
    config.folder.mkdir()
    (config.folder / ".gitignore").touch()
    assert len(Experiment(config).run()) == 2


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
    """A list of half a million words is. Spaces stand for them here, which change nothing else."""
    config = make_config(files, recipe(training__max_epochs=1), elmo=None)
    results = Experiment(config).run()
    with (config.folder / "vocabularies.json").open("a") as file:
        file.write(" " * 4_000_000)
    load_run(config.folder)
    assert Experiment(config).run() == results


@pytest.mark.parametrize(
    ("name", "says"),
    [(".", "is not the run folder of a task"), ("model", "model: is a biLM and not the run folder of a task")],
)
def test_a_folder_that_is_not_a_run_folder_is_refused(name: str, says: str, files: Path) -> None:
    with pytest.raises(ElmoError, match=says):
        load_run(files / name)


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
