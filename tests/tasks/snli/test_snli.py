"""ESIM predicts textual entailment as published, and its task reads and writes pairs and has commands."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge import make_model
from commands import run, set_options
from comparing import loss_depends_on_seed
from elmo.errors import ElmoError
from elmo.formats import Model, save_native
from elmo.tasks.common.labels import LabelPrediction, label_predictions
from elmo.tasks.common.static_vectors import set_word_vectors
from elmo.tasks.snli.task import TASK, PairExample, SnliModel, SnliRecipe, soft_align
from elmo.text.tokenizers import get_tokenizer
from elmo.training.recipes import read_recipe
from recipes import make_task_model, recipe_maker

LABELS = ("entailment", "neutral", "contradiction")
SMALL = {
    "words.dim": 8,
    "size": 10,
    "dropout": 0.1,
    "elmo.dropout": 0.1,
    "with_elmo.attention_dropout": 0.1,
    "training.batch_size": 8,
    "training.learning_rate": 0.01,
    "training.max_epochs": 2,
}

make_recipe = recipe_maker(SnliRecipe, "snli", SMALL)


def make_pairs(number: int = 40, seed: int = 0) -> list[PairExample]:
    """Make pairs of a premise of 2 to 7 words, and a hypothesis that names one of them, denies it, or names another."""
    rng = np.random.default_rng(seed)
    pairs: list[PairExample] = []
    for place in range(number):
        words = [f"w{w}" for w in rng.permutation(9)[: int(rng.integers(2, 8))]]
        label = LABELS[place % 3]
        last = "other" if label == "neutral" else str(rng.choice(words))
        negation = ["not"] if label == "contradiction" else []
        pairs.append(PairExample(tuple(words), ("there", "is", *negation, last), label))
    return pairs


def write_pairs(path: Path, pairs: list[PairExample]) -> None:
    rows = [
        {"gold_label": e.label, "sentence1": " ".join(e.premise), "sentence2": " ".join(e.hypothesis)} for e in pairs
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def build(recipe: SnliRecipe, bilm: Model | None = None) -> SnliModel:
    return make_task_model(TASK, recipe, make_pairs(), bilm)


def test_the_recipe_is_the_published_one() -> None:
    """Appendix A.3 states most of it. Patience, epochs and no dropout for ELMo are from the published configuration."""
    recipe = read_recipe(SnliRecipe, "snli", ("snli",))
    assert (recipe.words.dim, recipe.words.trainable, recipe.size, recipe.dropout) == (300, False, 300, 0.5)
    assert (recipe.with_elmo.attention_dropout, recipe.with_elmo.l2) == (0.5, 0.0001)
    elmo, training = recipe.elmo, recipe.training
    assert (elmo.at, elmo.dropout, elmo.penalty, elmo.layer_norm) == ("both", 0.0, 0.001, True)
    assert (training.optimizer, training.learning_rate, training.clip_norm) == ("adam", 0.0004, 5.0)
    assert (training.batch_size, training.max_epochs, training.patience) == (32, 75, 5)
    assert (training.plateau_factor, training.plateau_patience, training.weight_decay) == (0.5, 1, 0.0)


def test_sizes_are_the_published_ones() -> None:
    """Chen et al. 2017 count 4.3 million parameters without word vectors. ELMo widens biLSTM and attention."""
    model = build(read_recipe(SnliRecipe, "snli", ("snli",)))
    sizes = {name: tuple(p.shape) for name, p in model.named_parameters() if p.dim() > 1 and name != "words.weight"}
    assert sorted(sizes.values()) == sorted([(1200, 300)] * 8 + [(300, 2400), (300, 2400), (3, 300)])
    assert sum(p.numel() for name, p in model.named_parameters() if name != "words.weight") == 4_326_303
    recipe, bilm = make_recipe(), make_model()
    with_elmo, width = build(recipe, bilm), bilm.config.width
    weights = dict(with_elmo.named_parameters())
    assert weights["encoder.layers.0.directions.0.weight_ih"].shape == (40, 8 + width)
    assert weights["project.1.weight"].shape == (10, 4 * (20 + width))


def test_attention_equals_a_plain_loop() -> None:
    """The loop takes each pair alone and without padding. 1e-6 is float32 rounding."""
    torch.manual_seed(0)
    a, b = torch.randn(3, 5, 4), torch.randn(3, 6, 4)
    lengths = [(5, 2), (1, 6), (3, 1)]
    mask_a, mask_b = (torch.arange(n) < torch.tensor(lengths)[:, side, None] for side, n in enumerate((5, 6)))
    in_b, in_a = soft_align(a, b, mask_a, mask_b)
    for row, (m, n) in enumerate(lengths):
        for own, other, found in ((a[row, :m], b[row, :n], in_b[row]), (b[row, :n], a[row, :m], in_a[row])):
            for place, token in enumerate(own):
                weights = [float(torch.dot(token, candidate).exp()) for candidate in other]
                mean = sum(w * candidate for w, candidate in zip(weights, other, strict=True)) / sum(weights)
                torch.testing.assert_close(found[place], mean, atol=1e-6, rtol=1e-5)
    assert in_b.isfinite().all()
    assert in_a.isfinite().all()


@pytest.mark.parametrize("at", [None, "input", "output", "both"])
def test_loss_and_predictions_do_not_depend_on_other_pairs(at: str | None) -> None:
    """Layer norm is off, since as published it is over the whole batch. 1e-5 is float32 rounding."""
    pairs = make_pairs(7)
    settings = make_recipe(elmo__vectors="live", elmo__layer_norm=False, **({"elmo__at": at} if at else {}))
    model = build(settings, make_model() if at else None).eval()
    alone = torch.stack([model.loss([pair]) for pair in pairs])
    torch.testing.assert_close(model.loss(pairs), alone.mean(), atol=1e-5, rtol=1e-5)
    for pair, found in zip(pairs, model.predict(pairs), strict=True):
        assert found.probabilities == pytest.approx(model.predict([pair])[0].probabilities, abs=1e-5)
        assert sum(found.probabilities.values()) == pytest.approx(1)


def plain_scores(model: SnliModel, pair: PairExample) -> torch.Tensor:
    """Compute Chen et al. 2017, sec. 3, for one pair: each sentence goes through each layer alone, without padding."""
    a, b = (
        torch.cat([model.encoder(torch.cat([model.words([s]), elmo.input], 2), torch.tensor([len(s)])), elmo.output], 2)
        for s in (pair.premise, pair.hypothesis)
        for elmo in [model.elmo([s])]
    )
    pooled: list[torch.Tensor] = []
    for own, other in ((a, b), (b, a)):
        found = (own @ other.transpose(1, 2)).softmax(2) @ other
        compared = model.project(torch.cat([own, found, own - found, own * found], 2))
        composed = model.composer(compared, torch.tensor([own.shape[1]]))
        pooled += [composed.mean(1), composed.amax(1)]
    return model.classify(torch.cat(pooled, 1))


@pytest.mark.parametrize("at", [None, "input", "both"])
def test_scores_equal_those_of_sentences_read_one_by_one(at: str | None) -> None:
    """The model sends all sentences of a batch through each layer at once. 1e-5 is float32 rounding."""
    pairs = make_pairs(6)
    settings = make_recipe(elmo__vectors="live", elmo__layer_norm=False, **({"elmo__at": at} if at else {}))
    model = build(settings, make_model() if at else None).eval()
    plain = torch.cat([plain_scores(model, pair) for pair in pairs])
    torch.testing.assert_close(model.scores(pairs), plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("dropout", "attention", "with_elmo"), [(0.0, 0.0, True), (0.5, 0.0, False), (0.0, 0.5, True), (0.0, 0.5, False)]
)
def test_each_dropout_is_used(dropout: float, attention: float, with_elmo: bool) -> None:
    """The dropout after the attention is only for models with ELMo."""
    own = {"dropout": dropout, "with_elmo__attention_dropout": attention}
    settings = make_recipe(elmo__vectors="live", elmo__dropout=0.0, **own)
    model = build(settings, make_model() if with_elmo else None)
    assert loss_depends_on_seed(model, make_pairs(4)) == (dropout > 0 or (attention > 0 and with_elmo))


def test_only_a_model_with_elmo_has_more_regularization() -> None:
    """With ELMo, the loss has the squares of the weight matrices of LSTMs and linear layers, and of nothing else."""
    pairs, settings = make_pairs(4), make_recipe(elmo__vectors="live", with_elmo__l2=0.5)
    plain, model = build(settings).eval(), build(settings, make_model()).eval()
    assert plain.l2 == 0
    assert plain.project[0].p == 0
    assert model.project[0].p == 0.1
    loss = model.loss(pairs)
    model.l2 = 0.0
    kept = [p for name, p in model.named_parameters() if "weight" in name and name != "words.weight"]
    assert len(kept) == 8 + 3
    torch.testing.assert_close(loss - model.loss(pairs), 0.5 * sum(p.square().sum() for p in kept))


def test_the_model_learns_its_training_set() -> None:
    pairs = make_pairs(12)
    model = build(make_recipe(dropout=0.0))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(80):
        optimizer.zero_grad()
        model.loss(pairs).backward()
        optimizer.step()
    assert [found.label for found in model.predict(pairs)] == [pair.label for pair in pairs]
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_word_vectors_of_a_file_are_fixed(tmp_path: Path) -> None:
    """Random vectors are trained, since fixed ones would only say which word it is."""
    (tmp_path / "v.txt").write_text("w1 1 2\nw2 3 4\n")
    settings = make_recipe(words__vectors=str(tmp_path / "v.txt"), words__dim=2)
    model = build(settings)
    set_word_vectors(model, settings.words)
    assert model.words([["w2", "w1"]])[0].tolist() == [[3, 4], [1, 2]]
    assert not model.words.weight.requires_grad
    assert build(make_recipe()).words.weight.requires_grad


PTB = get_tokenizer("ptb")


def line(label: object = "yes", premise: object = "A dog runs.", hypothesis: object = "It moves.") -> str:
    return json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis, "pairID": 7})


def read(path: Path, **settings: Any) -> list[PairExample]:
    """Read a file of pairs that are labelled "yes" or "no"."""
    return TASK.read(str(path), make_recipe(labels=["yes", "no"], **settings))


def test_labelled_pairs_are_read(tmp_path: Path) -> None:
    """The file may be compressed. Pairs without a majority are skipped, even if something else is wrong with them."""
    with lzma.open(tmp_path / "pairs.jsonl.xz", "wt") as file:
        file.write("\n".join([line(), "", line("-", ""), line("no", "Don't!", "Do.")]) + "\n")
    assert read(tmp_path / "pairs.jsonl.xz") == [
        PairExample(("A", "dog", "runs", "."), ("It", "moves", "."), "yes"),
        PairExample(("Do", "n't", "!"), ("Do", "."), "no"),
    ]
    assert read(tmp_path / "pairs.jsonl.xz", tokenizer="whitespace")[0].premise == ("A", "dog", "runs.")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (line("maybe"), "key 'gold_label': 'maybe' is none of yes, no"),
        (line(3), "key 'gold_label': expected text, found int"),
        (line(hypothesis=None), "key 'sentence2': expected text, found NoneType"),
        (line(premise=" "), "premise: the sentence is empty"),
        ('{"gold_label": "yes", "sentence1": "A"}', "key 'sentence2' is missing"),
        ('{"sentence1": "A", "sentence2": "B"}', "key 'gold_label' is missing"),
        ("[1]", "expected a JSON object, found list"),
        ('{"gold_label":', r"not valid JSON \(Expecting value, at character 15\)"),
        ("yes\tA\tB", r"not valid JSON \(Expecting value, at character 1\)"),
    ],
)
def test_errors_in_a_file_of_pairs(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(f"{line()}\n{text}\n")
    with pytest.raises(ElmoError, match=rf"pairs\.jsonl, line 2: {says}$"):
        read(tmp_path / "pairs.jsonl")


def test_a_file_without_pairs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(line("-") + "\n\n")
    with pytest.raises(ElmoError, match=r"pairs\.jsonl: holds no pair; expected JSON objects with gold_label, "):
        read(tmp_path / "pairs.jsonl")


def test_lone_surrogates_are_replaced() -> None:
    """JSON can express half of a character, but no file can hold it, so that a run would fail when it is written."""
    text = r'{"sentence1": "caf\ud83d", "sentence2": "\ud83d\ude00"}'
    assert TASK.parse(text, str.split) == PairExample(("caf\ufffd",), ("\U0001f600",))


@pytest.mark.parametrize("text", ["A dog runs.\tIt moves.", line(label="anything"), f" {line()}"])
def test_pairs_to_predict_have_no_label(text: str) -> None:
    assert TASK.parse(text, PTB) == PairExample(("A", "dog", "runs", "."), ("It", "moves", "."))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A dog runs.", "expected premise and hypothesis with one tab .* found 0 tabs"),
        ("A\tB\tC", "found 2 tabs"),
        ("A\t ", "hypothesis: the sentence is empty"),
        ("\tB", "premise: the sentence is empty"),
        ('{"sentence1": "A"}', "key 'sentence2' is missing"),
    ],
)
def test_errors_in_pairs_to_predict(text: str, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        TASK.parse(text, PTB)


@pytest.mark.external
def test_published_sets_have_as_many_pairs_as_stated(shared: Path) -> None:
    for name, number in {"train": 75_784, "snli_dev": 9_842, "snli_test": 9_824}.items():
        path = shared / "data" / "nli" / f"{name}.jsonl.xz"
        assert len(TASK.read(str(path), make_recipe(tokenizer="whitespace"))) == number


def test_predictions_are_written_as_text_and_json() -> None:
    (prediction,) = label_predictions(torch.tensor([[0.0, 2.0, 1.0]]), LABELS)
    assert prediction.label == "neutral"
    example = PairExample(("A", "dog"), ("It",))
    text = "neutral\tentailment=0.090\tneutral=0.665\tcontradiction=0.245\n"
    assert TASK.as_text(example, prediction) == text
    values = TASK.as_json(example, LabelPrediction("x", {"x": 1.0}))
    assert values == {"label": "x", "probabilities": {"x": 1.0}, "sentence1": "A dog", "sentence2": "It"}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"labels": ["a", "a", "b"]}, "labels: expected two or more, each once"),
        ({"labels": ["a"]}, "labels: expected two or more, each once"),
        ({"dropout": -1.0}, "dropout: -1.0 is not in"),
        ({"size": 0}, "size: 0 is not positive"),
        ({"with_elmo__attention_dropout": 1.0}, "with_elmo.attention_dropout: 1.0 is not in"),
        ({"with_elmo__l2": -1.0}, "with_elmo.l2: -1.0 is not zero or a positive number"),
    ],
)
def test_errors_in_settings(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make_recipe(**setting)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run and return the folder, with test.jsonl and the run in `run`. The published halving of the rate is
    off, because it would stop so short a training."""
    folder = tmp_path_factory.mktemp("snli")
    write_pairs(folder / "train.jsonl", make_pairs(60))
    write_pairs(folder / "test.jsonl", make_pairs(21, seed=1))
    save_native(make_model(), folder / "model")
    recipe = {**SMALL, "training.max_epochs": 20, "training.plateau_factor": None}
    files = ["--train", f"{folder}/train.jsonl", "--dev", f"{folder}/test.jsonl", "--test", f"{folder}/test.jsonl"]
    where = ["--elmo", f"{folder}/model", "--out", f"{folder}/run", "--device", "cpu"]
    run("task", "train", "snli", *files, *set_options(recipe), "--set", "training.patience=20", *where)
    return folder


@pytest.fixture
def folder(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder of `trained` the current one."""
    monkeypatch.chdir(trained)
    return trained


def test_train_evaluate_and_predict_by_commands(folder: Path) -> None:
    """The toy set is learned, another process computes the same scores, and a typed pair gets a label."""
    wanted = json.loads(Path("run/results.json").read_text())["scores"]["test"]
    assert wanted["accuracy"] > 60
    code = [sys.executable, "-m", "elmo", "task", "evaluate", "run", "test.jsonl", "--device", "cpu", "--json"]
    figures = json.loads(subprocess.run(code, capture_output=True, text=True, check=True).stdout)
    assert figures["scores"] == wanted
    lines = run("task", "evaluate", "run", "test.jsonl", "--device", "cpu").splitlines()
    assert any(line.startswith("confusion/entailment/neutral ") for line in lines)
    assert lines[-1].startswith(f"accuracy {wanted['accuracy']:.2f} on 21 examples, ")
    pair = "w1 w2 w3\tthere is not w2\n"
    label, *shares = run("task", "predict", "run", "-", "--device", "cpu", text=pair).split("\t")
    assert label in LABELS
    assert [share.split("=")[0] for share in shares] == list(LABELS)


def test_labels_belong_to_a_model(folder: Path) -> None:
    """A label that the model doesn't know is refused before anything is predicted, with the line of its file."""
    Path("other.jsonl").write_text(line("other"))
    with pytest.raises(ElmoError, match=r"^other\.jsonl, line 1: key 'gold_label': 'other' is none of "):
        run("task", "evaluate", "run", "other.jsonl")
    with pytest.raises(ElmoError, match=r"^--set labels: has no effect here; keys that do for snli: tokenizer, train"):
        run("task", "evaluate", "run", "other.jsonl", "--set", "labels=['yes',other]")
    assert run("task", "text", "snli", "other.jsonl", "--set", "labels=['yes',other]") == "A dog runs .\nIt moves .\n"


def test_predicts_pairs_in_either_form(folder: Path) -> None:
    """Pairs are cut by the recipe's tokenizer unless another one is asked for."""
    text = 'w1 w2.\tthere\'s w2\n\n{"sentence1": "w1 w2.", "sentence2": "there\'s w2"}\n'
    found = [json.loads(line) for line in run("task", "predict", "run", "-", "--json", text=text).splitlines()]
    probabilities = [example.pop("probabilities") for example in found]
    assert found[0] == found[1]
    assert probabilities[0] == pytest.approx(probabilities[1])  # rounding may differ between places in a batch
    assert (found[0]["sentence1"], found[0]["sentence2"]) == ("w1 w2 .", "there 's w2")
    whitespace = run("task", "predict", "run", "-", "--json", "--tokenizer", "whitespace", text=text)
    assert json.loads(whitespace.splitlines()[0])["sentence1"] == "w1 w2."


def test_an_error_in_a_line_to_predict_names_the_line(folder: Path) -> None:
    Path("pairs.tsv").write_text("w1\tw2\n\nw1 w2\n")
    with pytest.raises(ElmoError, match=r"pairs\.tsv, line 3: expected premise and hypothesis with one tab"):
        run("task", "predict", "run", "pairs.tsv")
