"""Several models predict together, in Python and by a command, if their predictions can be combined."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge import make_model
from commands import run, set_options
from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError
from elmo.formats import save_native
from elmo.tasks import load_task_recipe
from elmo.tasks.ensemble import load_ensemble, predict_together
from elmo.tasks.prediction import predict
from elmo.tasks.snli.task import TASK as SNLI
from elmo.tasks.snli.task import PairExample
from elmo.tasks.squad.model import SquadPrediction, SquadRecipe
from elmo.tasks.squad.task import TASK as SQUAD
from elmo.training.recipes import read_recipe

SMALL = {"words.dim": 6, "size": 6, "training.batch_size": 8, "training.learning_rate": 0.02, "training.max_epochs": 2}
LABELS = ("entailment", "neutral", "contradiction")
OTHER_LABELS = '["entailment", "neutral", "contradiction", "unsure"]'


def spans_of(starts: list[float], ends: list[float]) -> SquadPrediction:
    return SquadPrediction((0, 0), 0.0, np.array(starts, np.float32), np.array(ends, np.float32))


def test_spans_are_combined_by_the_mean_probabilities_of_their_bounds() -> None:
    """By hand, the means are 0.35 0.3 0.35 and 0.2 0.5 0.3. Of spans up to two tokens, (0, 1) gives 0.175, (1, 1) 0.15,
    and (2, 2) 0.105. Alone, the first model predicts (0, 1), and the second one (1, 1)."""
    recipe = read_recipe(SquadRecipe, "squad", ("squad",), {"longest_answer": 2})
    first = spans_of([0.6, 0.1, 0.3], [0.1, 0.6, 0.3])
    second = spans_of([0.1, 0.5, 0.4], [0.3, 0.4, 0.3])
    joint = SQUAD.combine(recipe, [first, second])
    assert (joint.bounds, joint.score) == ((0, 1), pytest.approx(0.175))
    np.testing.assert_allclose(joint.starts, [0.35, 0.3, 0.35], atol=1e-6)
    np.testing.assert_allclose(joint.ends, [0.2, 0.5, 0.3], atol=1e-6)


def write_pairs(path: Path, number: int) -> None:
    """Write pairs about a dog. Some of them share a premise."""
    rows = (
        {"gold_label": LABELS[n % 3], "sentence1": f"A dog {n % 5} runs .", "sentence2": f"It is {n} ."}
        for n in range(number)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def train(folder: Path, name: str, *more: str, elmo: str = "model") -> None:
    files = ["--train", f"{folder}/train.jsonl", "--dev", f"{folder}/test.jsonl"]
    where = ["--elmo", elmo if elmo == "none" else f"{folder}/{elmo}", "--out", f"{folder}/{name}", "--device", "cpu"]
    run("task", "train", "snli", *files, *set_options(SMALL), *more, *where)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train five runs of snli: two with the same biLM, one without, and two that can't be combined with these."""
    folder = tmp_path_factory.mktemp("ensemble")
    write_pairs(folder / "train.jsonl", 30)
    write_pairs(folder / "test.jsonl", 12)
    save_native(make_model(), folder / "model")
    train(folder, "a")
    train(folder, "b", "--set", "training.seed=1")
    train(folder, "c", elmo="none")
    train(folder, "labels", "--set", f"labels={OTHER_LABELS}", elmo="none")
    train(folder, "words", "--set", "tokenizer=whitespace", elmo="none")
    return folder


@pytest.fixture
def folder(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


@pytest.fixture
def pairs(folder: Path) -> list[PairExample]:
    return SNLI.read("test.jsonl", load_task_recipe("snli", None, {"tokenizer": "whitespace"}))


def test_members_with_the_same_bilm_share_its_vectors(
    folder: Path, pairs: list[PairExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The biLM reads each distinct sentence once for both members. Predictions are the means of the members' own, up to
    1e-5, because the vectors of a whole set are computed in other batches than those of a member alone."""
    members = load_ensemble([folder / name for name in ("a", "b", "c")])
    alone = [predict(member.task, member.model, pairs) for member in members]
    sources = [member.model.elmo.layers for member in members]
    seen: list[int] = []
    windows = Embedder.windows

    def count(self: Embedder, sentences: list[tuple[str, ...]], **options: Any) -> object:
        seen.append(len(sentences))
        return windows(self, sentences, **options)

    monkeypatch.setattr(Embedder, "windows", count)
    reported: list[int] = []
    joint = predict_together(members, pairs, 32, reported.append)
    assert sum(reported) == 3 * len(pairs)
    assert seen == [len({sentence for pair in pairs for sentence in (pair.premise, pair.hypothesis)})]
    for found, *own in zip(joint, *alone, strict=True):
        for label, share in found.probabilities.items():
            assert share == pytest.approx(sum(one.probabilities[label] for one in own) / 3, abs=1e-5)
    # The ensemble leaves its members as they were.
    assert all(member.model.elmo.layers is source for member, source in zip(members, sources, strict=True))
    assert predict(members[0].task, members[0].model, pairs) == alone[0]


def test_a_disk_without_room_for_the_vectors(
    folder: Path, pairs: list[PairExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(ElmoError, match="MB are free; set TMPDIR to a folder with more room"):
        predict_together(load_ensemble([folder / "a"]), pairs, 32)


def test_the_command_evaluates_an_ensemble(folder: Path, pairs: list[PairExample]) -> None:
    arguments = ["task", "evaluate", "a", "b", "c", "test.jsonl", "--device", "cpu", "--json"]
    figures = json.loads(run(*arguments, "--ensemble", "--predictions", "found.tsv"))
    assert figures["num_examples"] == 12
    labels = [line.split("\t")[0] for line in Path("found.tsv").read_text().splitlines()]
    right = sum(label == pair.label for label, pair in zip(labels, pairs, strict=True))
    assert figures["scores"]["accuracy"] == pytest.approx(100 * right / 12)
    with pytest.raises(ElmoError, match="3 run folders were given: add --ensemble"):
        run(*arguments)


def test_an_ensemble_of_one_model_predicts_as_the_model_does(folder: Path) -> None:
    plain, joint = (
        json.loads(run("task", "evaluate", "a", "test.jsonl", "--json", "--device", "cpu", *more))["scores"]
        for more in ([], ["--ensemble"])
    )
    assert joint == plain


def test_each_model_predicts_in_batches_of_its_own_size(folder: Path, pairs: list[PairExample]) -> None:
    """With layer norm, predictions depend on the batch. They must not depend on which model is named first."""
    config = json.loads(Path("b/config.json").read_text())
    config["recipe"]["training"]["batch_size"] = 1
    shutil.copytree("b", "single")
    Path("single/config.json").write_text(json.dumps(config))
    ensemble = load_ensemble([Path("a"), Path("single")])
    alone = [member.predict(pairs) for member in ensemble]
    others = predict(ensemble[1].task, ensemble[1].model, pairs, 8)
    assert any(
        one.probabilities != pytest.approx(two.probabilities, abs=1e-4)
        for one, two in zip(alone[1], others, strict=True)
    )
    for members in (ensemble, ensemble[::-1]):
        for found, *own in zip(predict_together(members, pairs), *alone, strict=True):
            for label, share in found.probabilities.items():
                assert share == pytest.approx(sum(one.probabilities[label] for one in own) / 2, abs=1e-5)
    for found, other in zip(predict_together(ensemble[1:], pairs, 8), others, strict=True):
        assert found.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    run("task", "evaluate", "single", "a", "test.jsonl", "--ensemble", "--device", "cpu", "--predictions", "own.tsv")
    found = predict_together(ensemble[::-1], pairs)
    assert Path("own.tsv").read_text() == SNLI.as_file(pairs, found)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            "labels",
            "labels: has the labels contradiction, entailment, neutral, unsure, but a has contradiction, entailment",
        ),
        (
            "words",
            "words: has the tokenizer whitespace, but a has ptb; the models of an ensemble need the same tokenizer",
        ),
        ("a/../a", r"a/\.\./a: is named twice; name each run folder once"),
        ("model", r"^model: is a biLM and not the run folder of a task"),
    ],
)
def test_models_that_cannot_be_combined_are_refused(folder: Path, other: str, says: str) -> None:
    with pytest.raises(ElmoError, match=f"^{says}"):
        run("task", "evaluate", "a", other, "test.jsonl", "--ensemble", "--device", "cpu")


def test_tasks_without_ensembles_are_refused(folder: Path) -> None:
    """NER has no ensembles, and models of two tasks make none."""
    Path("t.conll").write_text("Ann B-PER\nran O\n")
    files = ["--train", "t.conll", "--dev", "t.conll", "--elmo", "none", "--out", "ner", "--device", "cpu"]
    run("task", "train", "ner", *files, "--set", "training.max_epochs=1", "--set", "words.dim=4")
    with pytest.raises(ElmoError, match=r"^ner: models of the task ner cannot form an ensemble"):
        run("task", "evaluate", "ner", "t.conll", "--ensemble")
    with pytest.raises(
        ElmoError, match=r"^ner: has the task ner, but a has snli; the models of an ensemble need the same task"
    ):
        load_ensemble([Path("a"), Path("ner")], torch.device("cpu"))


def test_texts_that_are_read_differently_are_not_combined(folder: Path) -> None:
    """Probabilities of one label and of several mean different things, and all members must read the same tokens."""
    Path("topics.tsv").write_text("a\tRain .\nb\tSun .\n")
    for name, changes in {"one": [], "several": ["labels=several"], "short": ["max_tokens=3"]}.items():
        files = ["--train", "topics.tsv", "--dev", "topics.tsv", "--elmo", "none", "--out", name, "--device", "cpu"]
        settings = [*changes, "training.max_epochs=1", "words.dim=4", "lstm=[4]"]
        run("task", "train", "classify", *files, *(word for text in settings for word in ("--set", text)))
    for other, says in {"several": "labels=several, max_tokens=[0-9]+", "short": "labels=one, max_tokens=3"}.items():
        with pytest.raises(
            ElmoError, match=rf"^{other}: has the setting {says}, but one has labels=one, .*; the models of"
        ):
            run("task", "evaluate", "one", other, "topics.tsv", "--ensemble", "--device", "cpu")
    with pytest.raises(ElmoError, match=r"^a: has the task snli, but one has classify"):
        load_ensemble([Path("one"), Path("a")])
    shutil.copytree("one", "copy")
    assert len(load_ensemble([Path("one"), Path("copy")])) == 2
