"""A text classifier has the class weights and scores of scikit-learn, learns, and works by commands."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import elmo.tasks
from commands import RunMain, run, set_options
from comparing import loss_depends_on_seed
from elmo.errors import ElmoError
from elmo.formats import Model, save_native
from elmo.tasks.classify.data import TextExample
from elmo.tasks.classify.model import ClassifyRecipe, LabelsPrediction, balanced_weights
from elmo.tasks.classify.task import TASK, score_texts
from elmo.tasks.common.labels import LabelPrediction
from elmo.tasks.trainer import Trainer
from recipes import make_task_model, recipe_maker

SMALL = {
    "words.dim": 8,
    "characters.dim": 4,
    "characters.filters": 6,
    "lstm": [8],
    "dropout": 0.1,
    "tokenizer": "whitespace",
    "training.batch_size": 8,
    "training.learning_rate": 0.02,
    "training.max_epochs": 8,
}
TOPICS = {"animals": ["cat", "dog"], "plants": ["oak", "rose"], "stars": ["sun", "sirius"]}

make_recipe = recipe_maker(ClassifyRecipe, "classify", SMALL)


def make_texts(number: int, seed: int = 0, *, several: bool = False) -> list[TextExample]:
    """Make texts of 1 to 4 sentences of 1 to 6 words, with one word of each topic that is a label of the text."""
    rng = np.random.default_rng(seed)
    texts: list[TextExample] = []
    for _ in range(number):
        text = [[f"w{w}" for w in rng.integers(6, size=int(rng.integers(1, 7)))] for _ in range(rng.integers(1, 5))]
        labels = [label for label in TOPICS if rng.random() < 0.4] if several else [str(rng.choice(list(TOPICS)))]
        for label in labels:
            sentence = text[int(rng.integers(len(text)))]
            sentence.insert(int(rng.integers(len(sentence) + 1)), str(rng.choice(TOPICS[label])))
        texts.append(TextExample(tuple(map(tuple, text)), tuple(labels)))
    return texts


def write(path: Path, texts: list[TextExample]) -> None:
    rows = [{"labels": text.labels, "sentences": text.sentences} for text in texts]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


make_classifier = partial(make_task_model, TASK)


@pytest.mark.parametrize("at", [None, "input", "output", "both"])
def test_scores_do_not_depend_on_other_texts(at: str | None, bilm: Model) -> None:
    """A text alone has the same scores as in a batch, whose sentences are sorted by length. 1e-5 is rounding."""
    texts = make_texts(9)
    recipe = make_recipe(elmo__vectors="live", **({"elmo__at": at} if at else {}))
    model = make_classifier(recipe, texts, bilm if at else None).eval()
    scores = model.scores(texts)
    torch.testing.assert_close(scores, torch.cat([model.scores([text]) for text in texts]), rtol=0, atol=1e-5)
    assert len({tuple(row) for row in scores.tolist()}) == len(texts)
    model.loss(texts).backward()
    assert all(p.grad is not None and p.grad.any() for name, p in model.named_parameters() if "mixes" not in name)


def test_only_the_first_tokens_are_read(bilm: Model, tmp_path: Path) -> None:
    """The model ignores the other tokens, and a file is cut when it is read, so that its cache holds no more."""
    sentences = (("w1", "cat", "w2"), ("w3", "w4", "w5"))
    recipe = make_recipe(max_tokens=4, elmo__vectors="live")
    short, long = TextExample((sentences[0], ("w3",))), TextExample(sentences)
    model = make_classifier(recipe, make_texts(9), bilm).eval()
    assert torch.equal(model.scores([long]), model.scores([short]))
    model.max_tokens = None
    assert not torch.allclose(model.scores([long]), model.scores([short]))
    write(tmp_path / "a", [replace(long, labels=("animals",))])
    assert TASK.read(str(tmp_path / "a"), recipe)[0].sentences == short.sentences


def test_the_recipe_says_how_files_are_read(tmp_path: Path) -> None:
    """It names the tokenizer of texts, and the comment of CoNLL-U that holds the label."""
    recipe = make_recipe(tokenizer="whitespace", label_comment="topic")
    (tmp_path / "a.tsv").write_text("a\tIt rains.\n")
    assert TASK.read(str(tmp_path / "a.tsv"), recipe)[0].sentences == (("It", "rains."),)
    (tmp_path / "a.conllu").write_text("# label = x\n# topic = y\n1\tHi" + "\t_" * 8 + "\n\n")
    assert TASK.read(str(tmp_path / "a.conllu"), recipe)[0].labels == ("y",)


@pytest.mark.parametrize(("below", "above"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5)])
def test_each_dropout_is_used(below: float, above: float) -> None:
    """One is before the biLSTMs, and one behind pooling. The recipe has one share for both."""
    texts = make_texts(4)
    model = make_classifier(make_recipe(dropout=0.3), texts)
    assert (model.rnn.dropout, model.dropout.p) == (0.3, 0.3)
    model.rnn.dropout, model.dropout.p = below, above
    assert loss_depends_on_seed(model, texts) == (below > 0 or above > 0)


def test_the_loss_is_the_cross_entropy() -> None:
    """With one label, the cross-entropy is that of a softmax, and with several, that of a sigmoid for each."""
    texts = make_texts(9)
    model = make_classifier(make_recipe(), texts).eval()
    shares = [found.probabilities for found in model.predict(texts)]
    expected = -np.mean([np.log(share[text.labels[0]]) for share, text in zip(shares, texts, strict=True)])
    assert model.loss(texts).item() == pytest.approx(expected, rel=1e-5)
    texts = make_texts(9, several=True)
    model = make_classifier(make_recipe(labels="several"), texts).eval()
    terms = [
        np.log(share if label in text.labels else 1 - share)
        for found, text in zip(model.predict(texts), texts, strict=True)
        for label, share in found.probabilities.items()
    ]
    assert model.loss(texts).item() == pytest.approx(-np.mean(terms), rel=1e-5)


def test_vocabularies_count_the_texts_of_each_label() -> None:
    texts = [TextExample((("x",),), (label,)) for label in "bab"]
    found = TASK.vocabularies(texts, make_recipe())
    assert (found["labels"], found["label_counts"], found["num_texts"]) == (["a", "b"], ["1", "2"], ["3"])


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    """With several labels, each label is a question of yes or no."""
    weight = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    gold = np.array([0] * 5 + [1] * 2 + [2])
    found = balanced_weights([5, 2, 1], 8, several=False)[1]
    assert_allclose(found, weight("balanced", classes=np.arange(3), y=gold), rtol=1e-6)
    found = balanced_weights([5, 8], 8, several=True)
    assert_allclose(found[:, 0], weight("balanced", classes=np.arange(2), y=np.array([1] * 5 + [0] * 3)), rtol=1e-6)
    assert found.isfinite().all(), "all texts have the second label"


def test_balanced_losses_are_weighted() -> None:
    """The weight of a text depends on its label alone, whatever the other texts of its batch are."""
    texts = [replace(text, labels=(label,)) for text, label in zip(make_texts(4), "aaab", strict=True)]
    recipe = make_recipe(class_weights="balanced")
    model, plain = make_classifier(recipe, texts).eval(), make_classifier(make_recipe(), texts).eval()
    for text, share in zip(texts, [4 / 6, 4 / 6, 4 / 6, 2.0], strict=True):
        assert model.loss([text]).item() == pytest.approx(share * plain.loss([text]).item(), rel=1e-5)
    assert model.loss(texts).item() == pytest.approx(np.mean([model.loss([text]).item() for text in texts]), rel=1e-5)
    recipe = make_recipe(class_weights="balanced", labels="several")
    texts = [TextExample((("x",),), ("a",)), *[TextExample((("y",),))] * 3]
    model, plain = make_classifier(recipe, texts).eval(), make_classifier(make_recipe(labels="several"), texts).eval()
    for text, share in zip(texts, [2.0, 4 / 6, 4 / 6, 4 / 6], strict=True):
        assert model.loss([text]).item() == pytest.approx(share * plain.loss([text]).item(), rel=1e-5)


Labels = st.lists(st.sampled_from("abcd"), unique=True, max_size=3)


@given(st.lists(st.tuples(Labels, Labels), min_size=1, max_size=12))
def test_scores_of_several_labels_are_those_of_scikit_learn(pairs: list[tuple[list[str], list[str]]]) -> None:
    """The scores are over the labels that occur, since scikit-learn can't know of others."""
    metrics = pytest.importorskip("sklearn.metrics")
    gold, found = zip(*pairs, strict=True)
    known = sorted({label for pair in pairs for labels in pair for label in labels})
    scores = score_texts(gold, found)
    if not known:
        assert scores == {"accuracy": 100, "macro_f1": 0, "micro_f1": 0}
        return
    # scikit-learn would take a single column for a task with one label. A last column, for a label that no text has,
    # prevents that.
    true, predicted = (np.array([[label in row for label in (*known, "")] for row in rows]) for rows in (gold, found))
    assert scores["accuracy"] == pytest.approx(100 * metrics.accuracy_score(true, predicted))

    def f1(average: str | None) -> Any:
        return 100 * metrics.f1_score(true, predicted, labels=range(len(known)), average=average, zero_division=0)

    assert (scores["macro_f1"], scores["micro_f1"]) == pytest.approx((f1("macro"), f1("micro")))
    shown = {f"f1/{label}": own for label, own, of in zip(known, f1(None), true.T, strict=False) if of.any()}
    assert {name: value for name, value in scores.items() if "/" in name} == pytest.approx(shown)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abc")), min_size=1, max_size=12))
def test_scores_of_one_label_are_those_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    """The model doesn't know the label d, and never finds it."""
    metrics = pytest.importorskip("sklearn.metrics")
    gold, found = map(list, zip(*pairs, strict=True))
    scores = score_texts(gold, found)
    assert scores["accuracy"] == pytest.approx(100 * metrics.accuracy_score(gold, found))
    assert scores["micro_f1"] == pytest.approx(scores["accuracy"])
    assert scores["macro_f1"] == pytest.approx(100 * metrics.f1_score(gold, found, average="macro", zero_division=0))


@pytest.mark.parametrize(("source", "several"), [("none", False), ("model", False), ("none", True), ("model", True)])
def test_a_trained_model_learns_and_is_loaded_with_the_same_scores(
    source: str, several: bool, bilm: Model, tmp_path: Path
) -> None:
    """One word of a topic decides. With one label, always guessing the most frequent one has a macro F1 of 19 %. With
    several, always guessing all has one of 55 %."""
    save_native(bilm, tmp_path / "model")
    for seed, name in enumerate(("train", "dev")):
        write(tmp_path / name, make_texts(120 if name == "train" else 20, seed, several=several))
    settings = SMALL | {"labels": "several" if several else "one", "class_weights": "balanced"}
    (result,) = elmo.tasks.train(
        "classify",
        train=tmp_path / "train",
        dev=tmp_path / "dev",
        folder=tmp_path / "run",
        elmo=source if source == "none" else str(tmp_path / source),
        settings=settings,
        device="cpu",
    )
    assert result.scores["dev"]["macro_f1"] > 80
    trained = elmo.tasks.load(tmp_path / "run", device="cpu")
    assert elmo.tasks.evaluate(trained, tmp_path / "dev") == result.scores["dev"]
    plant, both = elmo.tasks.predict(trained, ["w1 w2 . rose w3", '{"tokens": ["cat", "w1", "sun"]}'])
    if several:
        assert (plant["labels"], both["labels"]) == (["plants"], ["animals", "stars"])
    else:
        assert plant["label"] == "plants"
        assert both["label"] != "plants"


def test_commands_label_text_with_one_model_and_evaluate_two_together(tmp_path: Path, run_main: RunMain) -> None:
    """Texts without a label are predicted as text or as JSON, and two models can be evaluated together."""
    for seed, name in enumerate(("train", "dev")):
        write(tmp_path / name, make_texts(80 if name == "train" else 20, seed))
    files = ["--train", str(tmp_path / "train"), "--dev", str(tmp_path / "dev"), "--elmo", "none", "--seeds", "2"]
    folder = tmp_path / "run"
    run("task", "train", "classify", *files, "--out", folder, *set_options(SMALL))
    text = '\n{"text": "w1 cat\\nw2"}\nw3. Rose oak\n'
    rows = [line.split("\t") for line in run("task", "predict", folder, "-", text=text).splitlines()]
    assert [row[0] for row in rows] == ["animals", "plants"]
    assert [row[1].split("=")[0] for row in rows] == ["animals", "plants"], "the most likely label comes first"
    assert sum(float(share.split("=")[1]) for share in rows[0][1:]) == pytest.approx(1, abs=2e-3)
    first, second = map(json.loads, run("task", "predict", folder, "-", "--json", text=text).splitlines())
    assert (first["sentences"], first["label"]) == ([["w1", "cat"], ["w2"]], "animals")
    assert second["sentences"] == [["w3."], ["Rose", "oak"]]
    assert list(second["probabilities"]) == list(TOPICS)
    labelled = tmp_path / "labelled"
    labelled.write_text("label\ttext\nplants\tw1 rose\n animals \tw1 cat\n")
    says = "most lines begin with a label of the model, such as 'plants', which is read as a part of the text; leave"
    assert f"labelled: {says} that column out, " in run_main(["task", "predict", str(folder), str(labelled)])[2]
    labelled.write_text("plants\tw1 rose\nplants too\n\n")
    assert run_main(["task", "predict", str(folder), str(labelled)])[2] == ""
    members = [f"{folder}/seed-{seed}" for seed in (0, 1)]
    scores = json.loads(run("task", "evaluate", *members, str(tmp_path / "dev"), "--ensemble", "--json"))["scores"]
    assert scores["macro_f1"] > 80
    assert run("task", "text", "classify", str(tmp_path / "dev")).splitlines()[0] == " ".join(
        make_texts(1, 1)[0].sentences[0]
    )


def test_ensembles_take_the_mean_probability() -> None:
    """The joint labels may differ from those of every model."""
    one = [LabelPrediction("a", {"a": 0.55, "b": 0.45, "c": 0.0}), LabelPrediction("c", {"c": 0.55, "b": 0.45, "a": 0})]
    assert TASK.combine(make_recipe(), one)[0] == "b"
    several = [LabelsPrediction.of({"a": 0.9, "b": 0.4}), LabelsPrediction.of({"b": 0.5, "a": 0.2})]
    assert [found.labels for found in several] == [("a",), ()]
    assert TASK.combine(make_recipe(labels="several"), several) == (("a",), pytest.approx({"a": 0.55, "b": 0.45}))


def test_predictions_as_text_and_json() -> None:
    found = LabelsPrediction.of({"a": 0.6, "b c": 0.75, "d": 0.5})
    example = TextExample((("x", "y"), ("z",)))
    assert TASK.as_text(example, found) == "a|b c\tb c=0.750\ta=0.600\td=0.500\n"
    assert TASK.as_json(example, found) == {
        "sentences": [["x", "y"], ["z"]],
        "labels": ["a", "b c"],
        "probabilities": {"a": 0.6, "b c": 0.75, "d": 0.5},
    }
    assert TASK.as_text(example, LabelsPrediction.of({"a": 0.1})) == "\ta=0.100\n"


def test_an_interrupted_training_is_the_same_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Class weights and labels are restored as well."""
    for seed, name in enumerate(("train", "dev")):
        write(tmp_path / name, make_texts(40, seed, several=True))
    settings = SMALL | {"labels": "several", "class_weights": "balanced", "training.max_epochs": 2}

    def train(folder: str) -> Any:
        paths = {name: tmp_path / name for name in ("train", "dev")}
        return elmo.tasks.train(
            "classify", **paths, folder=tmp_path / folder, elmo="none", settings=settings, device="cpu"
        )

    (whole,) = train("whole")
    step = Trainer.step

    def stopping(trainer: Trainer[Any, Any], batch: Any) -> None:
        if trainer.progress.step == 6:
            trainer.stop()
        step(trainer, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopping)
        with pytest.raises(KeyboardInterrupt):
            train("stopped")
    (again,) = train("stopped")
    assert again.scores == whole.scores
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert weights[0] == weights[1]


def test_what_looks_like_a_mistake_in_the_labels_is_noted() -> None:
    def texts(*labels: str) -> list[TextExample]:
        return [TextExample((("a", "text"),), (label,)) for label in labels]

    plain = texts(*["letter", "novel"] * 15)
    assert TASK.note_on_train(plain) is None
    assert TASK.note_on_train(texts("kind") + plain) == (
        "the label 'kind' occurs only once; is it misspelled, or is the first line a header, which has to be 'label', "
        "a tab and 'text'?"
    )
    assert "'kind' and 1 other occur only once" in str(TASK.note_on_train(texts("kind", "nowel") + plain))
    assert "'kind' and 2 others occur only once" in str(TASK.note_on_train(texts("kind", "nowel", "n") + plain))
    assert "has 30 labels for 30 texts; the label comes first" in str(TASK.note_on_train(texts(*map(str, range(30)))))
    assert TASK.note_on_train(texts("kind", "novel")) is None  # too few to say
    assert TASK.note_on_train(texts("kind", *["letter"] * 18)) is None  # the same
    assert "'kind' occurs only once" in str(TASK.note_on_train(texts("kind", *["letter"] * 19)))
    assert TASK.note_on_train(texts(*"abcdefghij" * 2)) is None
    assert "has 11 labels for 20 texts; " in str(TASK.note_on_train(texts("x", "y", *"abcdefghi" * 2)))
    assert TASK.note_on_dev(plain, plain) is None
    assert (
        TASK.note_on_dev(plain, texts("novel", "nowel")) == "has 1 label that the training set lacks, such as 'nowel'"
    )


def test_texts_that_teach_nothing_are_noted() -> None:
    same = [replace(text, labels=("a",)) for text in make_texts(3)]
    assert TASK.note_on_gold(same, make_recipe()) == "has no two texts with different labels; each has the label 'a'"
    unlabelled = [replace(text, labels=()) for text in same]
    assert TASK.note_on_gold(unlabelled, make_recipe()) == "has no two texts with different labels; each has none"
    assert TASK.note_on_gold([*same, unlabelled[0]], make_recipe()) is None


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"labels": "many"}, "labels: 'many' is none of one, several"),
        ({"class_weights": "equal"}, "class_weights: 'equal' is none of none, balanced"),
        ({"max_tokens": 0}, "max_tokens: 0 is not positive"),
        ({"lstm": []}, "lstm: there is no layer"),
        ({"lstm": [8, 0]}, "lstm: 0 is not positive"),
        ({"dropout": 1.0}, "dropout: 1.0 is not in"),
    ],
)
def test_errors_in_settings(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make_recipe(**setting)
