"""The tagger learns all columns with one model, and its task reads and writes CoNLL-U and other columns."""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import elmo.tasks
from bridge import make_model
from commands import run, set_options
from comparing import loss_depends_on_seed
from elmo.errors import ElmoError
from elmo.formats import save_native
from elmo.tasks.common.columns import ColumnSentence, read_columns
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.prediction import predict
from elmo.tasks.tag.lemma_rules import LemmaRule
from elmo.tasks.tag.model import LabelHead, LemmaHead, TagRecipe
from elmo.tasks.tag.task import TASK
from recipes import make_task_model, recipe_maker
from running import has_rows, rows_without_times, started, wait_until

SMALL = {
    "words.dim": 6,
    "word_dropout": 0.1,
    "characters.dim": 6,
    "characters.filters": 8,
    "lstm": [8, 8],
    "dropout": 0.1,
    "training.batch_size": 8,
    "training.learning_rate": 0.02,
    "training.max_epochs": 3,
}
STEMS = ["dog", "cat", "House", "tree", "NATO", "é\u0301l"]


def make_conllu(number: int = 30, seed: int = 0) -> str:
    """Make sentences of nouns, with a plural in -s, and verbs, with a past tense in -ed.

    Each has a comment, a range and an empty node, none of which is a word.
    """
    rng = np.random.default_rng(seed)
    blocks: list[str] = []
    for n in range(number):
        lines = [f"# sent_id = {n}", "1-2\tx\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No"]
        for place in range(1, int(rng.integers(3, 9))):
            stem, is_plural = str(rng.choice(STEMS)), bool(rng.integers(2))
            if rng.integers(2):
                feats = "Number=Plur|Own=A" if is_plural else "Number=Sing"
                columns = [stem + "s" * is_plural, stem, "NOUN", "NNS" if is_plural else "NN", feats]
            else:
                columns = [stem + ("ed" if is_plural else ""), stem, "VERB", "_", "Tense=Past" if is_plural else "_"]
            lines.append("\t".join([str(place), *columns, "0", "root", "_", f"id={place}"]))
        blocks.append("\n".join([*lines, "8.1\tx\t_\t_\t_\t_\t_\t_\t_\t_"]) + "\n\n")
    return "".join(blocks)


make_recipe = recipe_maker(TagRecipe, "tag", SMALL)


make_tagger = partial(make_task_model, TASK)


@pytest.fixture
def examples(tmp_path: Path) -> list[ColumnSentence]:
    path = tmp_path / "examples.conllu"
    path.write_text(make_conllu(), encoding="utf-8")
    return list(read_columns(str(path), None))


def test_one_model_learns_all_targets(examples: list[ColumnSentence]) -> None:
    """Every column can be told from the form and the words around it or is learned by heart, so that at least nine
    words in ten are right."""
    model = make_tagger(make_recipe(dropout=0.0, word_dropout=0.0), examples, make_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(examples).backward()
        optimizer.step()
    scores = TASK.score(examples, predict(TASK, model, examples))
    assert list(scores)[:6] == ["upos", "xpos", "feats", "lemma", "all_tags", "mean"]
    assert min(scores[name] for name in ("upos", "xpos", "feats", "lemma")) > 90


def test_targets_that_a_set_has_no_value_for_are_not_scored(tmp_path: Path) -> None:
    """Any lemma would be right where the right one is `_`, and 100 % of nothing would raise the mean."""
    path = tmp_path / "no-lemmas.conllu"
    lines = [line.split("\t") for line in make_conllu().split("\n")]
    path.write_text("\n".join("\t".join([*line[:2], "_", *line[3:]]) if len(line) > 1 else line[0] for line in lines))
    examples = list(read_columns(str(path), None))
    wrong = [{name: ["X"] * len(example.tokens) for name in ("upos", "lemma")} for example in examples]
    assert TASK.score(examples, wrong) == {"upos": 0, "mean": 0}
    only = [{"lemma": found["lemma"]} for found in wrong]
    assert TASK.score(examples, only)["mean"] == 100


def test_batches_and_padding_change_nothing(examples: list[ColumnSentence]) -> None:
    model = make_tagger(make_recipe(), examples, make_model()).eval()
    alone = [model.predict([example])[0] for example in examples]
    assert model.predict(examples) == alone
    parts = [model.loss([example]).item() * len(example.tokens) for example in examples]
    whole = model.loss(examples).item() * sum(len(example.tokens) for example in examples)
    assert sum(parts) == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("width", [2, 4, 6])
def test_the_first_lstm_has_no_residual_connection_whatever_the_width(
    width: int, examples: list[ColumnSentence]
) -> None:
    """All others have one. With words of width 4, the first one's input is as wide as its output, 16."""
    model = make_tagger(make_recipe(words__dim=width, characters__widths=[2], characters__filters=12), examples).eval()
    read: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    for rnn in model.rnns:
        rnn.register_forward_hook(lambda _, given, made: (read.append(given[0]), written.append(made))[0])
    model.heads[0].register_forward_pre_hook(lambda _, given: read.append(given[0]))
    model.loss(examples[:1])
    assert read[0].shape[2] == width + 12
    torch.testing.assert_close(read[1], written[0], rtol=0, atol=0)
    torch.testing.assert_close(read[2], (written[0] + written[1])[0], rtol=0, atol=0)


@pytest.mark.parametrize("own", [{}, {"dropout": 0.5}, {"word_dropout": 0.5}])
def test_each_dropout_is_used(own: dict[str, float], examples: list[ColumnSentence]) -> None:
    model = make_tagger(make_recipe(**{"dropout": 0.0, "word_dropout": 0.0, **own}), examples)
    assert loss_depends_on_seed(model, examples) == bool(own)


def test_dropout_is_before_each_lstm_and_each_head(examples: list[ColumnSentence]) -> None:
    """Before an LSTM, the same numbers are dropped at all tokens of a sentence. A head reads each token by itself; that
    of the lemma reads the characters, too."""
    model = make_tagger(make_recipe(dropout=0.5, word_dropout=0.0), examples)
    read: dict[torch.nn.Module, torch.Tensor] = {}
    modules = [*model.rnns, *(head.score for head in model.heads if isinstance(head, LabelHead))]
    for module in modules:
        module.register_forward_pre_hook(lambda module, given: read.update({module: given[0]}))
    model.eval().loss(examples[:1])
    whole = dict(read)
    torch.manual_seed(0)
    model.train().loss(examples[:1])
    parts = [(whole[module].squeeze(0), read[module].squeeze(0)) for module in modules]
    before, after = parts[len(model.rnns) + model.targets.index("lemma")]
    width = model.characters.width
    parts.append((before[:, -width:], after[:, -width:]))
    for number, (before, after) in enumerate(parts):
        is_dropped = (after == 0) & (before != 0)
        assert 0.3 < is_dropped.sum() / (before != 0).sum() < 0.7
        is_same = bool((after == 0)[:, (before != 0).all(0)].float().std(0).eq(0).all())
        assert is_same == (number < len(model.rnns))


def test_the_loss_is_smoothed() -> None:
    """A share of the probability is spread evenly over all labels."""
    head = LabelHead(3, ["a", "b"])
    vectors = torch.randn(4, 3)
    logs = head(vectors).log_softmax(1)
    right = logs[range(4), [0, 1, 1, 0]]
    expected = -(0.8 * right + 0.2 * logs.mean(1)).mean()
    torch.testing.assert_close(head.loss(vectors, [""] * 4, ["a", "b", "b", "a"], 0.2), expected)


def test_the_recipe_says_how_much_the_loss_is_smoothed(examples: list[ColumnSentence]) -> None:
    models = [make_tagger(make_recipe(label_smoothing=share), examples).eval() for share in (0.0, 0.3)]
    assert models[0].loss(examples).item() != pytest.approx(models[1].loss(examples).item(), rel=1e-3)


def test_the_loss_is_the_sum_over_the_targets(examples: list[ColumnSentence]) -> None:
    model, example = make_tagger(make_recipe(label_smoothing=0.0), examples).eval(), examples[0]
    scores: list[torch.Tensor] = []
    for head in model.heads:
        head.register_forward_hook(lambda _, given, made: scores.append(made))
    loss = model.loss([example])
    expected = 0.0
    for target, head, found in zip(model.targets, model.heads, scores, strict=True):
        assert isinstance(head, LabelHead)
        places = [head.label_id(*pair) for pair in zip(example.tokens, example.column(target), strict=True)]
        expected += F.cross_entropy(found, torch.tensor(places)).item()
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_a_column_without_values_in_the_training_set_is_no_target(examples: list[ColumnSentence]) -> None:
    """The labels of lemmas are rules. A column without values in the training set is not a target."""
    found = TASK.vocabularies(examples, make_recipe(targets=["lemma", "deps", "xpos"]))
    assert found["targets"] == ["lemma", "xpos"]
    assert {LemmaRule.parse(rule).case for rule in found["labels of lemma"]} == {"lower", "title", "upper"}
    assert found["labels of xpos"] == ["NN", "NNS", "_"]
    with pytest.raises(ElmoError, match="the training set has no value in its columns deps"):
        TASK.vocabularies(examples, make_recipe(targets=["deps"]))


def test_the_best_rule_that_can_be_applied_is_chosen() -> None:
    """The first rule cuts off five letters. A word that no rule fits is its own lemma."""
    rules = [LemmaRule.of("walkeding", "walk"), LemmaRule.of("dogs", "dog"), LemmaRule.of("dog", "dog")]
    head = LemmaHead(3, [*map(str, rules)])
    torch.nn.init.eye_(head.score.weight)
    torch.nn.init.zeros_(head.score.bias)
    scores = torch.tensor([[3.0, 2, 1]] * 3)
    assert head.best(scores, ["standeding", "cats", "s"]) == ["stand", "cat", "s"]
    assert LemmaHead(3, [str(rules[0])]).best(scores, ["a", "ab", "abc"]) == ["a", "ab", "abc"]


@pytest.mark.parametrize(("bonus", "lemma"), [(0.0, "buses"), (0.9, "buses"), (1.1, "bus"), (2.1, "bus")])
def test_a_rule_that_gives_a_known_lemma_gains(bonus: float, lemma: str) -> None:
    """The rule that cuts off two letters is third, a point behind the first. The second's lemma is unknown, too."""
    rules = [LemmaRule.of("dog", "dog"), LemmaRule.of("dogs", "dog"), LemmaRule.of("foxes", "fox")]
    head = LemmaHead(3, [*map(str, rules)], {"bus", "dog"}, bonus)
    torch.nn.init.eye_(head.score.weight)
    torch.nn.init.zeros_(head.score.bias)
    assert head.best(torch.tensor([[3.0, 2.5, 2.0]] * 2), ["buses", "dog"]) == [lemma, "dog"]


def test_the_recipe_says_how_much_a_known_lemma_gains(examples: list[ColumnSentence]) -> None:
    """Random weights choose unknown lemmas, too, but not if the others gain more than scores differ."""
    are_known: list[bool] = []
    for bonus in (0.0, 1e4):
        recipe = make_recipe(targets=["lemma"], known_lemma_bonus=bonus)
        found = make_tagger(recipe, examples).eval().predict(examples)
        known = set(TASK.vocabularies(examples, recipe)["lemmas"])
        are_known.append({lemma for prediction in found for lemma in prediction["lemma"]} <= known)
    assert are_known == [False, True]


def test_lemmas_of_the_training_set_are_known(examples: list[ColumnSentence]) -> None:
    """A model of an earlier version, which did not keep the lemmas, still loads."""
    recipe = make_recipe(known_lemma_bonus=4)
    vocabularies = TASK.vocabularies(examples, recipe)
    assert set(vocabularies["lemmas"]) == {lemma for example in examples for lemma in example.column("lemma")} - {"_"}
    older = {name: values for name, values in vocabularies.items() if name != "lemmas"}
    TASK.model(recipe, older, ElmoInput(None, recipe.elmo, None))
    assert "lemmas" not in TASK.vocabularies(examples, make_recipe(targets=["upos"]))


def test_parts_of_speech_in_another_column_are_noted(examples: list[ColumnSentence]) -> None:
    assert TASK.note_on_dev(examples, examples) is None
    swapped = [
        replace(e, names=tuple({"upos": "lemma", "lemma": "upos"}.get(name, name) for name in e.names))
        for e in examples
    ]
    note = TASK.note_on_dev(examples, swapped)
    assert note == "100% of its words have an upos that the training set lacks; are the columns in the same order?"


@pytest.mark.parametrize(("number", "is_noted"), [(10, False), (9, True)])
def test_a_tenth_of_new_parts_of_speech_is_not_noted(number: int, is_noted: bool, tmp_path: Path) -> None:
    sets: list[list[ColumnSentence]] = []
    for first in ("NOUN", "X"):
        path = tmp_path / f"{first}.conllu"
        tags = [first, *["NOUN"] * (number - 1)]
        path.write_text("".join(f"{n}\ta\t_\t{tag}" + "\t_" * 6 + "\n" for n, tag in enumerate(tags, 1)))
        sets.append(list(read_columns(str(path), None)))
    assert ("11% of its words have an upos that" in str(TASK.note_on_dev(*sets))) == is_noted


def test_lemmas_without_annotation_are_not_learned() -> None:
    """An underscore says that the lemma is unknown, unless the form is an underscore, too."""
    head = LemmaHead(3, [str(LemmaRule.of("dogs", "dog")), str(LemmaRule.of("_", "_"))])
    assert [head.label_id(*pair) for pair in (("cats", "cat"), ("cats", "_"), ("_", "_"), ("cat", "dog"))] == [
        0,
        -100,
        1,
        -100,
    ]
    assert head.loss(torch.zeros(1, 3), ["cats"], ["_"], 0.0).item() == 0


def test_a_treebank_without_lemmas_teaches_none(tmp_path: Path) -> None:
    """That holds even if one of its words is an underscore."""
    path = tmp_path / "bare.conllu"
    rows = ("1\tdogs\t_\tNOUN", "2\t_\t_\tPUNCT")
    path.write_text("".join(f"{row}\t_\t_\t0\troot\t_\t_\n" for row in rows) + "\n")
    assert TASK.vocabularies([*read_columns(str(path), None)], make_recipe())["targets"] == ["upos"]


@pytest.mark.parametrize("second", ["cats\tcat", "dogs\tdog"])
def test_rare_rules_are_left_out(second: str, tmp_path: Path) -> None:
    """A rule is as frequent as all its words are together, of which some may be the same."""
    path = tmp_path / "a.conllu"
    rows = ("1\tdogs\tdog", f"2\t{second}", "3\twent\tgo")
    path.write_text("".join(f"{row}\t_\t_\t_\t0\troot\t_\t_\n" for row in rows) + "\n")
    found = [*read_columns(str(path), None)]
    for least, number in ((1, 2), (2, 1)):
        assert len(TASK.vocabularies(found, make_recipe(min_rule_count=least))["labels of lemma"]) == number


def test_lemmas_whose_rules_are_all_rare_are_refused(examples: list[ColumnSentence]) -> None:
    with pytest.raises(ElmoError, match="min_rule_count: no rule for lemmas occurs 9999 times"):
        TASK.vocabularies(examples, make_recipe(min_rule_count=9999))


def test_a_batch_without_a_known_label_teaches_nothing(examples: list[ColumnSentence], tmp_path: Path) -> None:
    """It may hold the only target of the model, in sentences that are not annotated."""
    model = make_tagger(make_recipe(targets=["lemma"]), examples)
    path = tmp_path / "bare.conllu"
    path.write_text("1\tdogs\t_\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n")
    loss = model.loss([*read_columns(str(path), None)])
    loss.backward()
    assert loss.item() == 0
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


def test_a_set_without_values_is_refused(tmp_path: Path) -> None:
    """With such a dev set, every epoch would be the best one: any lemma is right where the gold one is `_`."""
    (tmp_path / "train.conllu").write_text(make_conllu())
    (tmp_path / "dev.conllu").write_text("1\tdogs\t_\t_\t_\t_\t0\troot\t_\tid=1\n\n")
    train, dev = tmp_path / "train.conllu", tmp_path / "dev.conllu"
    for sets, says in (((train, dev), "dev set"), ((dev, train), "training set")):
        with pytest.raises(
            ElmoError, match=rf"\.conllu: the {says} has no value in its columns upos, xpos, feats, lemma"
        ):
            elmo.tasks.train("tag", train=sets[0], dev=sets[1], folder=tmp_path / "run", elmo="none", settings=SMALL)
    assert TASK.note_on_gold(list(read_columns(str(dev), None)), make_recipe(targets=["upos", "misc"])) is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"columns": []}, "columns: expected the names of all columns"),
        ({"columns": ["word", "xpos"]}, "columns: expected the names of all columns"),
        ({"columns": ["form", "xpos", "xpos"]}, "columns: expected the names of all columns"),
        ({"targets": ["chunk"]}, "targets: 'chunk' is none of lemma, upos, xpos, feats, head"),
        ({"targets": ["form"]}, "targets: 'form' is none of .*; set targets to some of these"),
        ({"targets": []}, "targets: names no column"),
        ({"lstm": []}, "lstm: there is no layer"),
        ({"label_smoothing": 1.0}, "label_smoothing: 1.0 is not in"),
    ],
)
def test_wrong_recipes_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make_recipe(**settings)


SETTINGS = set_options(SMALL)
TRAIN = ["task", "train", "tag", "--train", "train.conllu", "--dev", "dev.conllu", "--device", "cpu", *SETTINGS]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a tagger and return the folder, with `run`, the files it was trained on, and `dev.conllu.xz`."""
    folder = tmp_path_factory.mktemp("tag")
    write_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(*TRAIN, "--elmo", "model", "--out", "run").startswith("run: dev mean ")
    return folder


def write_files(folder: Path) -> None:
    for name, seed in (("train", 0), ("dev", 1)):
        (folder / f"{name}.conllu").write_text(make_conllu(seed=seed), encoding="utf-8")
    (folder / "dev.conllu.xz").write_bytes(lzma.compress((folder / "dev.conllu").read_bytes()))
    save_native(make_model(), folder / "model")


def test_tags_of_conllu_are_replaced(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The format is known by a file's name, compressed or not, and CoNLL-U may be piped. Only columns 3 to 6 change."""
    monkeypatch.chdir(trained)
    found = run("task", "predict", "run", "dev.conllu")
    assert run("task", "predict", "run", "dev.conllu.xz") == found
    text = Path("dev.conllu").read_text(encoding="utf-8")
    assert run("task", "predict", "run", "-", "--text", "conllu", text=text) == found

    def others(text: str) -> list[list[str]]:
        rows = [line.split("\t") for line in text.split("\n")]
        return [row[:2] + row[6:] if row[0].isdecimal() else row for row in rows]

    assert others(found) == others(text)
    run("task", "evaluate", "run", "dev.conllu", "--predictions", "out.conllu")
    assert Path("out.conllu").read_text(encoding="utf-8") == found


def test_plain_text_is_tagged(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    lines = run("task", "predict", "run", "-", "--tokenizer", "ptb", text="The dogs.\n\ncats\n").split("\n")
    assert lines[0] == "# text = The dogs."
    assert [line.split("\t")[1] for line in lines[1:4]] == ["The", "dogs", "."]
    assert lines[2].endswith("SpaceAfter=No")
    assert "_" not in lines[2].split("\t")[2:4]
    assert lines[4:6] == ["", "# text = cats"]
    rows = run("task", "predict", "run", "-", "--json", text="The dogs\n").split("\n")
    assert list(json.loads(rows[0])) == ["tokens", "upos", "xpos", "feats", "lemma"]


def test_sentences_are_printed(trained: Path) -> None:
    first = (trained / "dev.conllu").read_text(encoding="utf-8").split("\n\n")[0].split("\n")
    words = [line.split("\t")[1] for line in first if line.split("\t")[0].isdecimal()]
    assert run("task", "text", "tag", trained / "dev.conllu").split("\n")[0] == " ".join(words)


def test_spaces_in_words_are_printed_as_prepare_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text("1\tNew York\tNew York\tPROPN\t_\t_\t0\troot\t_\t_\n\n")
    assert run("task", "text", "tag", path) == "New_York\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dev.conllu", "--text", "json"], "--text json: tag reads plain, paragraphs, wrapped, conllu, columns"),
        (["dev.conllu", "--tokenizer", "ptb"], "--tokenizer ptb: dev.conllu is read as conllu, whose words are given"),
        (["dev.conllu", "--text", "columns"], "the model was trained on CoNLL-U, so no columns are known"),
    ],
)
def test_what_cannot_be_read_is_refused(
    trained: Path, arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    with pytest.raises(ElmoError, match=says):
        run("task", "predict", "run", *arguments)


def test_any_column_of_plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The column is the chunk of CoNLL-2000. In CoNLL-U, which has no column for it, the chunk goes to misc."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the DT B-NP\ndog NN I-NP\nruns VBZ B-VP\n\nit PRP B-NP\n")
    where = ["--train", "text.txt", "--dev", "text.txt", "--elmo", "none", "--out", "run"]
    settings = ["--set", "columns=[form, xpos, chunk]", "--set", "targets=[chunk]"]
    run("task", "train", "tag", *where, *SETTINGS, *settings)
    assert run("task", "text", "tag", "text.txt", *settings) == "the dog runs\nit\n"
    found = run("task", "predict", "run", "text.txt", "--text", "columns")
    assert [line.split("\t")[:2] for line in found.splitlines() if line] == [
        ["the", "DT"],
        ["dog", "NN"],
        ["runs", "VBZ"],
        ["it", "PRP"],
    ]
    (line,) = run("task", "predict", "run", "-", text="dog\n").splitlines()[1:2]
    assert line.split("\t")[-1] in ("chunk=B-NP", "chunk=I-NP", "chunk=B-VP")


def test_a_file_of_other_columns_is_told_from_conllu(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("EU NNP B-ORG\n")
    with pytest.raises(
        ElmoError, match=r"a\.conll, line 1: 1 column between tabs; .* and the line is 'EU NNP B-ORG' .*need a recipe"
    ):
        TASK.read(str(tmp_path / "a.conll"), make_recipe())


@pytest.mark.slow
def test_a_killed_training_is_the_same_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training, with a biLM that is trained along, is killed with SIGKILL and started again."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    changes = {"elmo.vectors": "trained", "training.checkpoint_every_minutes": 0.000001, "training.max_epochs": 6}
    arguments = [*TRAIN, *set_options(changes), "--elmo", "model", "--out"]
    with started(sys.executable, "-m", "elmo", *arguments, "killed") as process:
        wait_until(partial(has_rows, tmp_path / "killed", 1), process)
        process.kill()
    assert not Path("killed/results.json").exists()
    for name in ("killed", "whole"):
        run(*arguments, name)
    curves = [rows_without_times(tmp_path / name) for name in ("killed", "whole")]
    assert len(curves[0]) == 6
    assert curves[0] == curves[1]
    for weights in ("weights.safetensors", "bilm/model.safetensors"):
        assert Path("killed", weights).read_bytes() == Path("whole", weights).read_bytes()
