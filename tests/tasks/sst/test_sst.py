"""The model of sentiment has the published recipe and sizes, and its task reads trees, trains and predicts."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import RunMain, run
from comparing import loss_depends_on_seed
from elmo.errors import ElmoError
from elmo.formats import Model, save_native
from elmo.schema import from_mapping, to_mapping
from elmo.tasks.common.labels import LabelPrediction
from elmo.tasks.common.modules import Packing
from elmo.tasks.common.static_vectors import set_word_vectors
from elmo.tasks.experiment import Experiment, ExperimentConfig
from elmo.tasks.sst.task import BINARY, FINE, TASK, SstExample, SstModel, SstRecipe
from elmo.text.tokenizers import get_tokenizer
from elmo.training.recipes import read_recipe
from recipes import make_task_model, recipe_maker

SMALL = {
    "words.dim": 12,
    "hidden": 32,
    "head": [64, 32],
    "dropout.words": 0.1,
    "dropout.hidden": 0.1,
    "dropout.pooled": 0.0,
    "dropout.head": [0.0, 0.0],
    "elmo.dropout": 0.1,
    "training.batch_size": 16,
    "training.learning_rate": 0.005,
    "training.max_epochs": 14,
    "training.patience": 20,
}
WORDS = dict(zip(("awful", "bad", "plain", "good", "superb"), range(5), strict=True))
"""The words that decide a label in the small trees. Each sentence has one of them."""

make_recipe = recipe_maker(SstRecipe, "sst", SMALL)


def make_tree(words: list[str]) -> str:
    """Make a tree that branches to the right. A phrase has the label of the deciding word in it, or 2 without one."""

    def label(part: list[str]) -> int:
        return next((WORDS[word] for word in part if word in WORDS), 2)

    leaf = f"({label(words[:1])} {words[0]})"
    return leaf if len(words) == 1 else f"({label(words)} {leaf} {make_tree(words[1:])})"


def make_trees(number: int, seed: int = 0) -> str:
    """Make trees of sentences of 2 to 8 words, one of which decides."""
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    for _ in range(number):
        words = [f"w{w}" for w in rng.integers(6, size=int(rng.integers(1, 8)))]
        words.insert(int(rng.integers(len(words) + 1)), list(WORDS)[int(rng.integers(5))])
        lines.append(make_tree(words) + "\n")
    return "".join(lines)


@pytest.fixture
def trees(tmp_path: Path, bilm: Model) -> Path:
    """Write train.txt, dev.txt and a biLM in `model`, and return their folder."""
    (tmp_path / "train.txt").write_text(make_trees(60))
    (tmp_path / "dev.txt").write_text(make_trees(20, seed=1))
    save_native(bilm, tmp_path / "model")
    return tmp_path


make_model = partial(make_task_model, TASK)


def test_the_recipe_is_the_published_one() -> None:
    """Appendix A.8 states four tokens, 300 dimensions, two ReLU layers, Adam at 1e-4, lambda 0.001, and ELMo in and
    out. What it does not say (dropout, widths of the head, batches, clipping) is from the configuration that was
    published later."""
    recipe = read_recipe(SstRecipe, "sst", ("sst",))
    assert (recipe.min_phrase, recipe.hidden, recipe.head, recipe.binary) == (4, 300, (1200, 600), False)
    assert (recipe.words.dim, recipe.words.trainable) == (300, False)
    assert (recipe.elmo.at, recipe.elmo.dropout, recipe.elmo.penalty, recipe.elmo.layer_norm) == (
        "both",
        0.5,
        0.001,
        False,
    )
    dropout, training = recipe.dropout, recipe.training
    assert (dropout.words, dropout.hidden, dropout.pooled, dropout.head) == (0.5, 0.25, 0.1, (0.2, 0.3))
    assert (training.optimizer, training.learning_rate, training.clip_norm) == ("adam", 0.0001, 5.0)
    assert (training.batch_size, training.max_epochs, training.patience) == (100, 40, 5)


@pytest.mark.parametrize(("with_elmo", "attended"), [(False, 600), (True, 1200)])
def test_the_published_widths(with_elmo: bool, attended: int, bilm: Model) -> None:
    """With ELMo at the output, the attention reads two biLSTMs, concatenated. ELMo's vectors are 12 wide here."""
    recipe = read_recipe(SstRecipe, "sst", ("sst",), {"elmo.vectors": "live"})
    model = make_model(recipe, [SstExample(("a",), FINE[0])], bilm if with_elmo else None)
    widths = {name: tuple(p.shape) for name, p in model.named_parameters() if "weight_ih" in name or p.dim() == 2}
    assert widths["hidden.0.weight"] == (300, 312 if with_elmo else 300)
    assert widths["encoder.directions.0.weight_ih"] == (1200, 300)
    assert ("output_encoder.directions.0.weight_ih" in widths) == with_elmo
    assert widths["integrator.directions.0.weight_ih"] == (1200, 3 * attended)
    assert [widths[f"head.{layer}.weight"] for layer in ("0.0", "1.0", "2")] == [(1200, 2400), (600, 1200), (5, 600)]


NO_DROPOUT = {"words": 0.0, "hidden": 0.0, "pooled": 0.0, "head": [0.0, 0.0]}


@pytest.mark.parametrize(
    "own", [{}, {"words": 0.5}, {"hidden": 0.5}, {"pooled": 0.5}, {"head": [0.5, 0.0]}, {"head": [0.0, 0.5]}], ids=str
)
def test_each_dropout_is_used(own: dict[str, Any]) -> None:
    examples = [SstExample(tuple(text.split()), FINE[1]) for text in ("a good play of words", "bad and long")]
    model = make_model(make_recipe(dropout=NO_DROPOUT | own), examples)
    assert loss_depends_on_seed(model, examples) == bool(own)


def test_dropout_of_words_leaves_elmo_alone(bilm: Model) -> None:
    examples = [SstExample(("a", "good", "play"), FINE[1])]
    recipe = make_recipe(dropout=NO_DROPOUT | {"words": 0.9}, elmo__vectors="live", elmo__dropout=0.0)
    model = make_model(recipe, examples, bilm).train()
    read: list[torch.Tensor] = []
    model.hidden.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    model.scores(examples)
    torch.testing.assert_close(read[0][..., model.words.width :], model.elmo([examples[0].tokens]).input)


def test_word_vectors_of_a_file_are_fixed(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("good 1 2\nbad 3 4\n")
    settings = make_recipe(words__vectors=str(tmp_path / "v.txt"), words__dim=2)
    model = make_model(settings, [SstExample(("a", "bad", "play"), FINE[0])])
    set_word_vectors(model, settings.words)
    assert model.words([["bad", "good"]])[0].tolist() == [[3, 4], [1, 2]]
    assert not model.words.weight.requires_grad


def plain_scores(model: SstModel, tokens: tuple[str, ...]) -> torch.Tensor:
    """Compute McCann et al. 2017, sec. 5, for one sentence, with the changes of Peters et al. 2018, appendix A.8."""
    packing = Packing.of(torch.tensor([len(tokens)]), len(tokens), model.device)
    elmo = model.elmo([tokens])
    encoded = model.encoder(model.hidden(torch.cat([model.words([tokens]), elmo.input], 2)), packing)
    if model.output_encoder is not None:
        encoded = torch.cat([encoded, model.output_encoder(elmo.output, packing)], 2)
    attended = (encoded @ encoded.transpose(1, 2)).softmax(2) @ encoded
    integrated = model.integrator(torch.cat([encoded, encoded - attended, encoded * attended], 2), packing)
    return model.head(model.pooling(integrated, torch.ones(1, len(tokens), dtype=torch.bool)))


@pytest.mark.parametrize("at", [None, "input", "output", "both"])
def test_scores_are_those_of_the_published_formula(at: str | None, bilm: Model) -> None:
    examples = [SstExample(tuple(text.split()), FINE[1]) for text in ("w0 good", "a b c d e superb f", "x")]
    recipe = make_recipe(elmo__vectors="live", **({"elmo__at": at} if at else {}))
    model = make_model(recipe, examples, bilm if at else None).eval()
    plain = torch.cat([plain_scores(model, example.tokens) for example in examples])
    torch.testing.assert_close(model.scores(examples), plain, rtol=0, atol=1e-5)


@pytest.mark.parametrize("at", [None, "input", "output", "both"])
def test_scores_do_not_depend_on_other_sentences(at: str | None, bilm: Model) -> None:
    """A sentence alone has the same scores as in a batch with longer ones, even if it has no tokens. 1e-5 is float32
    rounding."""
    texts = ["w0 good", "a b c d e superb f", "x", "", "one two three four"]
    examples = [SstExample(tuple(text.split()), FINE[1]) for text in texts]
    recipe = make_recipe(elmo__vectors="live", **({"elmo__at": at} if at else {}))
    model = make_model(recipe, examples, bilm if at else None).eval()
    scores = model.scores(examples)
    alone = torch.cat([model.scores([example]) for example in examples])
    torch.testing.assert_close(scores, alone, rtol=0, atol=1e-5)
    assert len({tuple(row) for row in scores.tolist()}) == len(texts), (
        "the test proves nothing: some sentences have equal scores"
    )
    loss = model.loss(examples)
    torch.testing.assert_close(loss, -scores.log_softmax(1)[:, 1].mean())
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for name, p in model.named_parameters() if "mixes" not in name)


def test_sentences_and_phrases_are_read(tmp_path: Path) -> None:
    """Whole sentences are read, or for training all long enough phrases. Binary labels leave out neutral ones."""
    (tmp_path / "a").write_text(
        f"{make_tree(['so', 'very', 'good', 'a', 'b'])}\n{make_tree(list('abcd'))}\n(0 awful)\n"
    )

    def read(train: bool, **settings: Any) -> list[tuple[str, str]]:
        recipe = make_recipe(**settings)
        found = TASK.read_train(str(tmp_path / "a"), recipe) if train else TASK.read(str(tmp_path / "a"), recipe)
        return [(" ".join(example.tokens), example.label) for example in found]

    sentences = [("so very good a b", "positive"), ("a b c d", "neutral"), ("awful", "very negative")]
    assert read(train=False) == sentences
    assert read(train=True) == [("very good a b", "positive"), *sentences[:2]]
    assert read(train=True, min_phrase=None) == sentences
    assert Counter(read(train=True, min_phrase=1))["b", "neutral"] == 2
    assert read(train=False, binary=True) == [sentences[0], ("awful", "negative")]
    assert read(train=True, binary=True, min_phrase=3) == [
        ("good a b", "positive"),
        ("very good a b", "positive"),
        sentences[0],
    ]
    with pytest.raises(ElmoError, match="a: none of its trees is used; change the recipe's keys binary and min_phrase"):
        read(train=True, min_phrase=6)


def test_quotes_become_those_of_plain_text(tmp_path: Path) -> None:
    """Both words and ELMo get plain quotes, in training and after it. Runs from before the key `quotes` existed keep
    those of the treebank."""
    words = ["``", "good", "''", "`", "b", "'", "-LRB-", "a", "-RRB-"]
    (tmp_path / "a").write_text(make_tree(words) + "\n")
    recipe = make_recipe()
    plain = tuple(get_tokenizer(TASK.tokenizer(recipe))("\" good \" ' b ' ( a )"))
    (example,) = TASK.read(str(tmp_path / "a"), recipe)
    assert TASK.sentences(example) == [plain]
    assert plain[1:] in {phrase.tokens for phrase in TASK.read_train(str(tmp_path / "a"), recipe)}
    assert "``" not in TASK.vocabularies([example], make_recipe(words__min_count=1))["words"]
    values = to_mapping(recipe)
    assert values.pop("quotes") == "plain"
    before = from_mapping(SstRecipe, values, "config.json")
    assert TASK.read(str(tmp_path / "a"), before)[0].tokens == (*words[:6], "(", "a", ")")
    with pytest.raises(ElmoError, match="quotes: 'no' is none of plain, penn"):
        make_recipe(quotes="no")


def test_vocabularies_have_the_labels_of_the_recipe_and_frequent_words() -> None:
    examples = [SstExample(("a", "b", "a"), "neutral")]
    assert TASK.vocabularies(examples, make_recipe(words__min_count=2)) == {"labels": FINE, "words": ["a"]}
    assert TASK.vocabularies(examples, make_recipe(binary=True))["labels"] == BINARY


def test_the_binary_accuracy_sums_the_shares_of_each_side() -> None:
    """Two of four are right. Of the three that are not neutral, two are on the right side by their summed shares."""
    rows = [[0.3, 0.3, 0.0, 0.4, 0.0], [0.0, 0.0, 0.2, 0.5, 0.3], [0.0, 0.1, 0.6, 0.3, 0.0], [0.0, 0.0, 0.6, 0.0, 0.4]]
    found = [LabelPrediction(FINE[int(np.argmax(row))], dict(zip(FINE, row, strict=True))) for row in rows]
    gold = ["very negative", "positive", "neutral", "negative"]
    scores = TASK.score([SstExample(("a",), label) for label in gold], found)
    assert (scores["accuracy"], scores["binary_accuracy"]) == (50, pytest.approx(200 / 3))
    two = [LabelPrediction("negative", {"negative": 0.9, "positive": 0.1})] * 2
    scores = TASK.score([SstExample(("a",), label) for label in BINARY], two)
    assert scores["accuracy"] == 50
    assert "binary_accuracy" not in scores


def test_a_tie_is_not_positive() -> None:
    found = LabelPrediction("negative", dict(zip(FINE, [0.0, 0.5, 0.0, 0.5, 0.0], strict=True)))
    assert TASK.score([SstExample(("a",), "negative")], [found])["binary_accuracy"] == 100


@pytest.mark.parametrize(("elmo", "binary"), [("none", False), ("model", False), ("none", True)])
def test_a_trained_model_learns_and_is_loaded_with_the_same_scores(elmo: str, binary: bool, trees: Path) -> None:
    """One word decides, so nearly all sentences can be learned. Guessing the most frequent label would be right for
    35 % of them, or 75 % with two labels."""
    source = elmo if elmo == "none" else str(trees / elmo)
    recipe = make_recipe(binary=binary, min_phrase=2)
    config = ExperimentConfig(
        "sst", recipe, trees / "run", str(trees / "train.txt"), str(trees / "dev.txt"), elmo=source, device="cpu"
    )
    (result,) = Experiment(config).run()
    assert result.scores["dev"]["accuracy"] > 80
    arguments = ["task", "evaluate", str(trees / "run"), str(trees / "dev.txt"), "--json", "--device", "cpu"]
    assert json.loads(run(*arguments))["scores"] == result.scores["dev"]


def test_labels_are_predicted_for_plain_text(trees: Path, run_main: RunMain) -> None:
    config = ExperimentConfig(
        "sst",
        make_recipe(min_phrase=2, training__max_epochs=25),
        trees / "run",
        str(trees / "train.txt"),
        str(trees / "dev.txt"),
    )
    Experiment(config).run()
    arguments = ["task", "predict", str(trees / "run"), "-"]
    text = "w1 w2 superb.\n\nw3 awful\n"
    rows = [line.split("\t") for line in run(*arguments, text=text).splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [("very positive", "w1 w2 superb ."), ("very negative", "w3 awful")]
    shares = dict(share.split("=") for share in rows[0][1:-1])
    assert list(shares) == list(FINE)
    assert max(shares, key=lambda label: float(shares[label])) == "very positive"
    assert sum(map(float, shares.values())) == pytest.approx(1, abs=5e-3), "five numbers with three digits"
    found = [json.loads(line) for line in run(*arguments, "--json", text=text).splitlines()]
    assert [(entry["tokens"], entry["label"]) for entry in found] == [
        (["w1", "w2", "superb", "."], "very positive"),
        (["w3", "awful"], "very negative"),
    ]
    assert list(found[0]["probabilities"]) == list(FINE)
    note = "dev.txt: most lines are trees, whose labels and brackets are read as words; give sentences, or"
    assert note in run_main([*arguments[:-1], str(trees / "dev.txt")])[2]
    (trees / "plain.txt").write_text("w1 (3 films) superb\n(w2)\n")
    assert run_main([*arguments[:-1], str(trees / "plain.txt"), "--tokenizer", "whitespace"])[2] == ""


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"hidden": 0}, "hidden: 0 is not positive"),
        ({"min_phrase": 0}, "min_phrase: 0 is not positive"),
        ({"head": [5, -1]}, "head: -1 is not positive"),
        ({"head": [5]}, "dropout.head: 2 numbers for the 1 layers of head"),
        ({"dropout__pooled": 1.0}, "dropout.pooled: 1.0 is not in"),
        ({"dropout__head": [0.1, 2.0]}, "dropout.head: 2.0 is not in"),
    ],
)
def test_errors_in_settings(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make_recipe(**setting)


@pytest.mark.external
@pytest.mark.parametrize(
    ("part", "fine", "binary"),
    [pytest.param("train", 8544, 6920, marks=pytest.mark.slow), ("dev", 1101, 872), ("test", 2210, 1821)],
)
def test_the_published_sets(part: str, fine: int, binary: int, shared: Path) -> None:
    """The sets have as many sentences as Socher et al. 2013, sec. 5.1, state."""
    path = str(shared / "data" / "sst5" / f"{part}.txt.xz")
    assert len(TASK.read(path, make_recipe())) == fine
    assert len(TASK.read(path, make_recipe(binary=True))) == binary
    if part == "train":
        assert len(TASK.read_train(path, make_recipe())) == 93_570
