"""The paper's analyses of tasks train each setting only once, and make tables and pictures of the results."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bridge import make_model
from elmo import formats
from elmo.analysis.paper import published, tasks
from elmo.analysis.paper.finding import Finding
from elmo.analysis.paper.runs import Outcome, TaskData, TaskRuns
from elmo.analysis.pictures import new_figure
from elmo.embed.fingerprint import fingerprint
from elmo.errors import ElmoError
from elmo.formats import save_native
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.tasks.experiment import Experiment, ExperimentConfig
from elmo.tasks.results import Result
from elmo.tasks.run_folder import load_run
from elmo.tasks.trainer import Trainer
from elmo.text.corpus import Corpus
from elmo.training.metrics import METRICS, read_rows
from recipes import SENTENCES, write_names

SMALL = {
    "scheme": "BIO",
    "words.dim": 6,
    "characters.dim": 4,
    "characters.filters": 6,
    "lstm": [8],
    "training.batch_size": 4,
    "training.learning_rate": 0.03,
    "training.max_epochs": 3,
    "training.epoch_steps": 1,
}
SMALL_SQUAD = {
    "tokenizer": "whitespace",
    "words.dim": 6,
    "characters": {"dim": 4, "filters": 6, "width": 3},
    "size": 4,
    "training.max_epochs": 1,
}

MakeRuns = Callable[..., TaskRuns]


@pytest.fixture
def make_runs(tmp_path: Path) -> MakeRuns:
    """Return a function that sets up the task of named entities with eight sentences and a biLM that has a softmax."""
    for name, sentences in (("train", SENTENCES), ("dev", SENTENCES[1:6])):
        write_names(tmp_path / f"{name}.conll", sentences)
    save_native(make_model(softmax=True), tmp_path / "model")

    def make(**options: Any) -> TaskRuns:
        files = (str(tmp_path / f"{name}.conll") for name in ("train", "dev"))
        data = TaskData(options.pop("name", "NER"), "ner", *files, SMALL | options.pop("settings", {}))
        return TaskRuns(data, tmp_path / "out", str(tmp_path / "model"), device="cpu", **options)

    return make


@pytest.fixture
def forbid_training(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def forbid() -> None:
        monkeypatch.setattr(Trainer, "train", lambda self: pytest.fail("trained again"))

    return forbid


def draws(draw: Callable[[Any, Finding], None], finding: Finding) -> list[str]:
    """Draw a picture and return the titles of its panels."""
    pytest.importorskip("matplotlib")
    figure = new_figure()
    draw(figure, finding)
    return [axes.get_title() for axes in figure.axes]


def test_a_setting_is_trained_only_once(make_runs: MakeRuns, forbid_training, tmp_path: Path) -> None:
    """A setting that the recipe already has shares the run of the recipe. All runs share one computation of vectors."""
    task = make_runs()
    plain, top = task.with_elmo(), task.with_elmo({"layers": "top"})
    weights = [load_file(run.folders[0] / "weights.safetensors") for run in (plain, top)]
    assert not torch.equal(weights[0]["emit.weight"], weights[1]["emit.weight"])
    folders = [folder.relative_to(task.folder) for folder in plain.folders + top.folders]
    assert folders == [Path("elmo/seed-0"), Path("elmo,layers=top/seed-0")]
    assert [load_run(run.folders[0]).model.elmo.mixes["input"].top_only for run in (plain, top)] == [False, True]
    assert len(list((tmp_path / "out" / "vectors").iterdir())) == 1
    forbid_training()
    again = make_runs()
    assert again.with_elmo({"at": "input", "layers": "all"}) == plain
    assert again.with_elmo({"layers": "top"}) == top


def test_shared_vectors_change_no_result(make_runs: MakeRuns, tmp_path: Path) -> None:
    """A run that shares vectors has the same scores and weights, to the bit, as a run of `elmo task`."""
    task = make_runs()
    shared = task.with_elmo().results[0]
    files = (str(tmp_path / f"{name}.conll") for name in ("train", "dev"))
    (own,) = Experiment(
        ExperimentConfig("ner", task.recipe, tmp_path / "own", *files, elmo=task.elmo, device="cpu")
    ).run()
    assert (shared.scores, shared.best_epoch) == (own.scores, own.best_epoch)
    runs = [load_run(folder).model.state_dict() for folder in (tmp_path / "own", task.folder / "elmo" / "seed-0")]
    assert all(torch.equal(tensor, runs[1][name]) for name, tensor in runs[0].items())


def test_a_share_is_trained_on_in_a_folder_of_its_own(make_runs: MakeRuns) -> None:
    """The share is taken of the recipe's own: four of eight sentences, then two of these. Epochs have as many steps."""
    task = make_runs(settings={"training.share": 0.5, "training.batch_size": 1})
    assert [task.num_examples(share) for share in (1.0, 0.5)] == [4, 2]
    folders = [task.baseline(share).folders[0] for share in (1.0, 0.5)]
    assert [folder.parent.name for folder in folders] == ["baseline", "baseline,share=0.5,repeated"]
    assert [read_rows(folder / METRICS)[0]["step"] for folder in folders] == [4, 4]
    assert [load_run(folder).recipe.training.share for folder in folders] == [0.5, 0.25]


def test_the_epochs_of_a_share_have_a_limit_of_steps(make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmo.analysis.paper.runs.MOST_STEPS", 3)
    (folder,) = make_runs(settings={"training.batch_size": 1}).baseline(0.25).folders
    assert read_rows(folder / METRICS)[0]["step"] == 3


def test_vectors_of_words_in_lower_case_are_computed_separately(make_runs: MakeRuns, tmp_path: Path) -> None:
    task = make_runs()
    for lowercase in (False, True):
        task.with_elmo({"lowercase": lowercase})
    assert len(list((tmp_path / "out" / "vectors").iterdir())) == 2


def test_more_seeds_join_the_first_one(make_runs: MakeRuns) -> None:
    """Each seed is trained only once, even if fewer seeds are asked for later."""
    task = make_runs()
    first = [task.baseline().results[0], task.with_elmo().results[0]]
    several = make_runs(num_seeds=2)
    both = [several.baseline(), several.with_elmo()]
    assert [outcome.results[0] for outcome in both] == first
    assert [len(outcome.results) for outcome in both] == [2, 2]
    assert [make_runs().baseline().results, make_runs().with_elmo().results] == [[result] for result in first]


def test_settings_go_before_those_of_quick_runs(make_runs: MakeRuns, tmp_path: Path) -> None:
    """A quick run otherwise has small batches and few epochs."""
    assert make_runs(quick=True, settings={"training.batch_size": 7}).recipe.training.batch_size == 7
    files = (str(tmp_path / f"{name}.conll") for name in ("train", "dev"))
    task = TaskRuns(TaskData("NER", "ner", *files, {"scheme": "BIO"}), tmp_path / "out", "none", quick=True)
    assert (task.recipe.training.batch_size, task.recipe.training.max_epochs) == (16, 4)


def test_quick_runs_take_few_tokens(make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """In some tasks examples are whole documents, so that a few hundred of them would take too long."""
    assert len(make_runs(quick=True).sets["train"]) == len(SENTENCES)
    monkeypatch.setattr("elmo.analysis.paper.runs.QUICK_TOKENS", {"train": 9, "dev": 1})
    task = make_runs(quick=True)
    assert sum(map(task.task.length, task.sets["train"])) <= 9 < sum(len(text.split()) for text in SENTENCES)
    assert len(task.sets["dev"]) == 1


def test_an_interrupt_ends_the_analysis(make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Trainer[Any, Any]) -> None:
        self.stopped = True

    monkeypatch.setattr(Trainer, "train", stop)
    with pytest.raises(KeyboardInterrupt):
        make_runs().baseline()


def test_layers_has_its_five_settings(make_runs: MakeRuns) -> None:
    task = make_runs(num_seeds=2)
    finding = tasks.analyze_layers([task], "m")
    (table,) = finding.tables
    assert table.columns == [published.BASELINE, *tasks.LAYER_SETTINGS]
    assert list(table.spread["NER"]) == table.columns
    assert table.here["NER"][published.TOP] == task.with_elmo({"layers": "top"}).score["mean"]
    assert table.here["NER"][published.AVERAGE] == task.with_elmo({"penalty": 1.0}).score["mean"]
    assert table.paper["SRL"][published.BASELINE] == 81.6
    assert draws(tasks.draw_settings, finding) == ["SQuAD, paper", "SNLI, paper", "SRL, paper", "NER"]


def test_the_last_layer_is_tried_without_its_scale(make_runs: MakeRuns) -> None:
    """As in appendix A.2, gamma stays 1 in this setting, whereas it is trained in the usual one."""
    task = make_runs()
    (table,) = tasks.analyze_layers([task], "m").tables
    assert table.columns.index(published.TOP_UNSCALED) == table.columns.index(published.TOP) + 1
    scaled, unscaled = (
        tasks.read_mixes(task.with_elmo(tasks.LAYER_SETTINGS[name]).folders[0])["input"][tasks.GAMMA]
        for name in (published.TOP, published.TOP_UNSCALED)
    )
    assert unscaled == 1
    assert scaled != 1


def test_all_layers_are_used_whichever_the_recipe_names(make_runs: MakeRuns) -> None:
    task = make_runs(settings={"elmo.layers": "top"})
    tasks.analyze_layers([task], "m")
    names = {folder.name for folder in task.folder.iterdir()}
    assert names == {
        *("baseline", "elmo", "elmo,gamma=False"),
        *("elmo,layers=all,penalty=0.001", "elmo,layers=all,penalty=1.0"),
    }


def test_placement_puts_elmo_where_it_says(make_runs: MakeRuns) -> None:
    task = make_runs()
    finding = tasks.analyze_placement([task], "m")
    assert list(finding.tables[0].here["NER"]) == [published.INPUT, published.BOTH, published.OUTPUT]
    assert not finding.tables[0].spread
    mixes = {folder.name: sorted(tasks.read_mixes(folder / "seed-0")) for folder in task.folder.iterdir()}
    assert mixes == {"elmo": ["input"], "elmo,at=both": ["input", "output"], "elmo,at=output": ["output"]}


def test_weights_are_those_of_the_run(make_runs: MakeRuns) -> None:
    task = make_runs(num_seeds=2, settings={"elmo.at": "both"})
    finding = tasks.analyze_weights([task], "m")
    here = finding.tables[0].here
    assert list(here) == ["NER, input", "NER, output"]
    for place in ("input", "output"):
        mixes = [load_run(folder).model.elmo.mixes[place] for folder in task.with_elmo().folders]
        expected = torch.stack([mix.scores.softmax(0) for mix in mixes]).mean(0).tolist()
        row = here[f"NER, {place}"]
        assert [row[f"layer {layer}"] for layer in range(3)] == pytest.approx(expected)
        assert row[tasks.GAMMA] == pytest.approx(sum(mix.gamma.item() for mix in mixes) / 2)
    assert draws(tasks.draw_weights, finding) == [""]


def test_the_top_layer_has_no_weights(make_runs: MakeRuns) -> None:
    with pytest.raises(ElmoError, match=r"NER: elmo\.layers: top has no weights to analyze"):
        tasks.analyze_weights([make_runs(settings={"elmo.layers": "top"})], "m")


def test_another_run_of_a_later_task_is_refused_before_any_is_trained(make_runs: MakeRuns, forbid_training) -> None:
    make_runs(name="later").with_elmo()
    forbid_training()
    later = make_runs(name="later", settings={"elmo.dropout": 0.1})
    with pytest.raises(ElmoError, match=r"was started with elmo\.dropout"):
        tasks.analyze_weights([make_runs(), later], "m")


def test_a_fine_tuned_model_has_no_warm_state(make_runs: MakeRuns, forbid_training) -> None:
    """That is said before anything is trained."""
    task = make_runs(settings={"elmo.state": "warm"})
    forbid_training()
    with pytest.raises(ElmoError, match=r"NER: elmo\.state: a fine-tuned model has no warm state; set it to zero"):
        tasks.analyze_finetuning([task], "m", "cpu")


def test_efficiency_has_both_models_on_each_share(make_runs: MakeRuns, forbid_training) -> None:
    task = make_runs()
    finding = tasks.analyze_efficiency([task], "m", (0.5, 1.0))
    table, epochs = finding.tables
    assert table.columns == ["50 %, 4", "100 %, 8"]
    assert table.here[tasks.WITH]["100 %, 8"] == task.with_elmo().score["mean"]
    assert table.here[tasks.WITHOUT]["50 %, 4"] == task.baseline(0.5).score["mean"]
    assert epochs.here == {"NER": tasks.compare_epochs(task.baseline(), task.with_elmo())}
    assert draws(tasks.draw_efficiency, finding) == ["NER"]
    forbid_training()
    assert tasks.analyze_efficiency([make_runs()], "m", (0.5, 1.0)) == finding


def make_outcome(folder: Path, scores: list[float]) -> Outcome:
    folder.mkdir()
    rows = (f"{epoch},{epoch},{score}\n" for epoch, score in enumerate(scores, 1))
    (folder / "metrics.csv").write_text("step,epoch,dev_f1\n" + "".join(rows))
    return Outcome("f1", [Result(0, len(scores), 1, 1.0, 1.0, {"dev": {"f1": max(scores)}})], [folder])


@pytest.mark.parametrize(("scores", "passed"), [([1.0, 3.0, 3.5, 9.0], 3.0), ([3.0, 2.0], "never")])
def test_epochs_to_the_baselines_best(tmp_path: Path, scores: list[float], passed: float | str) -> None:
    """The baseline is best in its second epoch, with a score of 3. An equal score does not count as better."""
    baseline = make_outcome(tmp_path / "baseline", [1.0, 3.0, 2.0, 3.0])
    found = tasks.compare_epochs(baseline, make_outcome(tmp_path / "elmo", scores))
    assert found == {published.BEST_EPOCH: 2.0, published.PASSED_IN: passed}


def lines_of(folder: Path) -> list[str]:
    """Return the sentences of a corpus in their order."""
    corpus = Corpus.open(folder)
    types = corpus.types()
    return [" ".join(types[i] for i in corpus.tokens[start:end]) for start, end in pairwise(corpus.starts)]


def test_finetuning_tunes_once_on_the_task_and_trains_with_both(
    make_runs: MakeRuns, forbid_training, tmp_path: Path
) -> None:
    """The words of the text are in the softmax's vocabulary, so that an epoch lowers perplexity, which is that of the
    dev set. Each model has vectors of its own."""
    task = make_runs()
    finding = tasks.analyze_finetuning([task], "m", "cpu")
    perplexity, scores = finding.tables
    assert perplexity.here["NER"][published.AFTER] < perplexity.here["NER"][published.BEFORE]
    dev = [sentence.split() for sentence in SENTENCES[1:6]]
    for when, source in ((published.BEFORE, task.elmo), (published.AFTER, task.folder / "finetuning")):
        wanted = Perplexity.of(score_sentences(formats.load(source), dev)).mean
        assert perplexity.here["NER"][when] == pytest.approx(wanted, rel=1e-4)
    assert len(list((tmp_path / "out" / "vectors").iterdir())) == 2
    assert scores.here["NER"][published.BEFORE] == task.with_elmo().score["mean"]
    assert (task.folder / "elmo,tuned" / "seed-0" / "results.json").exists()
    assert lines_of(task.folder / "finetuning" / "corpus") == SENTENCES
    assert draws(tasks.draw_finetuning, finding) == ["Perplexity (Table 7)", "Scores (appendix A.1)"]
    forbid_training()
    assert tasks.analyze_finetuning([make_runs()], "m", "cpu") == finding


def test_sentences_are_tuned_on_and_not_their_phrases(tmp_path: Path) -> None:
    (tmp_path / "trees.txt").write_text("(3 (2 a) (3 (2 very) (3 (3 good) (2 play))))\n")
    data = TaskData("SST-5", "sst", *[str(tmp_path / "trees.txt")] * 2, {"min_phrase": 2})
    task = TaskRuns(data, tmp_path / "out", "none", device="cpu")
    assert len(task.sets["train"]) == 3
    assert task.texts("train", lowercase=False) == {"": [("a", "very", "good", "play")]}


def test_models_are_tuned_on_contexts_and_on_questions_separately(tmp_path: Path) -> None:
    """Table 7 reports both. As published, the task is trained with the model that was tuned on the contexts."""
    questions = [{"question": q, "id": q, "answers": [{"text": "w1", "answer_start": 0}]} for q in ("w3 w4 ?", "w4 ?")]
    paragraphs = [{"context": "w1 w2 w0 w5 .", "qas": questions}]
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    save_native(make_model(softmax=True), tmp_path / "model")
    data = TaskData("SQuAD", "squad", *[str(tmp_path / "squad.json")] * 2, SMALL_SQUAD)
    task = TaskRuns(data, tmp_path / "out", str(tmp_path / "model"), device="cpu")
    finding = tasks.analyze_finetuning([task], "m", "cpu")
    perplexity, scores = finding.tables
    assert set(perplexity.here) == {"SQuAD, contexts", "SQuAD, questions"} <= set(perplexity.paper)
    assert set(scores.here) == {"SQuAD"}
    texts = {folder.name: lines_of(folder / "corpus") for folder in task.folder.glob("finetuning*")}
    assert texts == {"finetuning": ["w1 w2 w0 w5 ."], "finetuning-questions": ["w3 w4 ?", "w4 ?"]}
    config = json.loads((task.folder / "elmo,tuned" / "seed-0" / "config.json").read_text())
    assert config["fingerprint"] == fingerprint(formats.load(task.folder / "finetuning"))


def test_a_model_without_softmax_is_not_tuned(make_runs: MakeRuns, tmp_path: Path) -> None:
    save_native(make_model(), tmp_path / "bare")
    task = make_runs()
    task.elmo = str(tmp_path / "bare")
    with pytest.raises(ElmoError, match=r"has no softmax.*elmo finetune --new-softmax"):
        tasks.analyze_finetuning([task], "m", "cpu")
    assert not (task.folder / "finetuning").exists()
