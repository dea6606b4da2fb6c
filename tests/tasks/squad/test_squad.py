"""Question answering has the published recipe and sizes, and its task reads, trains, predicts and writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge import make_model
from commands import run, set_options
from comparing import loss_depends_on_seed
from elmo.errors import ElmoError
from elmo.formats import save_native
from elmo.tasks.common.static_vectors import set_word_vectors
from elmo.tasks.elmo.cache import LiveLayers
from elmo.tasks.elmo.input import TrainedLayers
from elmo.tasks.ensemble import load_ensemble
from elmo.tasks.experiment import Experiment, ExperimentConfig
from elmo.tasks.prediction import predict
from elmo.tasks.squad.data import SquadExample, parse_question, read_squad
from elmo.tasks.squad.model import SquadModel, SquadPrediction, SquadRecipe
from elmo.tasks.squad.task import TASK
from elmo.text.corpus import Corpus
from elmo.training.recipes import read_recipe
from recipes import make_task_model, recipe_maker

SMALL = {
    "tokenizer": "whitespace",
    "words.dim": 12,
    "characters": {"dim": 4, "filters": 6, "width": 3},
    "size": 8,
    "dropout": 0.0,
    "longest_answer": 3,
    "elmo.dropout": 0.0,
    "training.batch_size": 8,
    "training.optimizer": "adam",
    "training.learning_rate": 0.02,
    "training.ema_decay": 0.5,
    "training.max_epochs": 12,
}
NAMES, PLACES = ["Ann", "Bo", "Cy", "Di"], ["Espoo", "New York", "Lyon", "Old York Hill"]

make_recipe = recipe_maker(SquadRecipe, "squad", SMALL)


def write_squad(path: Path, number: int = 24, seed: int = 0) -> Path:
    """Write paragraphs that say where one to three people are, and a question about each of them."""
    rng = np.random.default_rng(seed)
    paragraphs: list[dict[str, Any]] = []
    for _ in range(number):
        people = [NAMES[n] for n in rng.permutation(4)[: int(rng.integers(1, 4))]]
        places = [PLACES[int(rng.integers(4))] for _ in people]
        text = " ".join(f"{name} is in {place} ." for name, place in zip(people, places, strict=True))
        questions = [
            {
                "id": f"{len(paragraphs)}-{name}",
                "question": f"where is {name} ?",
                "answers": [{"text": place, "answer_start": text.index(f"{name} is") + len(name) + 7}],
            }
            for name, place in zip(people, places, strict=True)
        ]
        paragraphs.append({"context": text, "qas": questions})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "Trips", "paragraphs": paragraphs}]}))
    return path


@pytest.fixture
def examples(tmp_path: Path) -> list[SquadExample]:
    return read_squad(write_squad(tmp_path / "a.json", 8), str.split)


build = partial(make_task_model, TASK)


def test_the_recipe_is_the_published_one() -> None:
    """The recipe is that of appendix A.4. The epochs, 0.999 and the sizes of characters are from the published code."""
    recipe = read_recipe(SquadRecipe, "squad", ("squad",))
    assert (recipe.words.dim, recipe.words.trainable) == (300, False)
    assert (recipe.characters.dim, recipe.characters.filters, recipe.characters.width) == (20, 100, 5)
    assert (recipe.size, recipe.dropout, recipe.longest_answer) == (90, 0.2, 17)
    elmo, training = recipe.elmo, recipe.training
    assert (elmo.at, elmo.dropout, elmo.penalty, elmo.layer_norm) == ("both", 0.5, 0.0, False)
    assert (training.optimizer, training.learning_rate, training.clip_norm) == ("adadelta", 1.0, None)
    assert training.epsilon == 1e-8, "that of TensorFlow, which the published code leaves as it is"
    assert (training.batch_size, training.ema_decay, training.max_epochs) == (45, 0.999, 24)


def test_sizes_are_the_published_ones(examples: list[SquadExample]) -> None:
    """GRUs have 90 units in each direction and linear layers 180. ELMo widens the first GRU's input and attention."""
    recipe, bilm = read_recipe(SquadRecipe, "squad", ("squad",), {"elmo.vectors": "live"}), make_model()
    width = bilm.config.width
    for model, extra in ((build(recipe, examples), 0), (build(recipe, examples, bilm), width)):
        sizes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        assert sizes["encoder.directions.0.weight_ih"] == (270, 400 + extra)
        assert sizes["attention.scores.weight"] == (3, 180 + extra)
        assert sizes["merge.weight"] == (180, 4 * (180 + extra))
        assert sizes["self_encoder.directions.1.weight_hh"] == (270, 90)
        assert sizes["self_merge.weight"] == (180, 540)
        assert sizes["start_encoder.directions.0.weight_ih"] == (270, 180)
        assert sizes["end_encoder.directions.0.weight_ih"] == (270, 360)
        assert sizes["start.weight"] == sizes["end.weight"] == (1, 180)


def test_paragraphs_are_cut_by_the_tokenizer_of_the_recipe(tmp_path: Path) -> None:
    answer = {"text": "Ghent.", "answer_start": 3}
    paragraph = {"context": "In Ghent.", "qas": [{"id": "1", "question": "Where?", "answers": [answer]}]}
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    for tokenizer, tokens in (("whitespace", ("In", "Ghent.")), ("ptb", ("In", "Ghent", "."))):
        (example,) = TASK.read(str(tmp_path / "a.json"), make_recipe(tokenizer=tokenizer))
        assert example.context.tokens == tokens


def test_words_of_a_paragraph_count_once_however_many_questions_it_has() -> None:
    found = [parse_question(f"Ann is in Lyon .\twhere is {name} ?", str.split) for name in ("she", "Ann")]
    assert TASK.vocabularies(found, make_recipe(words__min_count=2))["words"] == ["is", "Ann", "where", "?"]


@pytest.mark.parametrize("at", [None, "input", "output", "both"])
def test_loss_and_predictions_do_not_depend_on_neighbours(at: str | None, examples: list[SquadExample]) -> None:
    """An example alone has the same loss and prediction as among others; 1e-5 is float32 rounding."""
    settings = make_recipe(elmo__vectors="live", **({"elmo__at": at} if at else {}))
    model = build(settings, examples, make_model() if at else None).eval()
    alone = torch.stack([model.loss([example]) for example in examples])
    torch.testing.assert_close(model.loss(examples), alone.mean(), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        for example, found in zip(examples, model.predict(examples), strict=True):
            (single,) = model.predict([example])
            assert found.bounds == single.bounds
            np.testing.assert_allclose(found.starts, single.starts, atol=1e-5)
            np.testing.assert_allclose(found.ends, single.ends, atol=1e-5)
            assert len(found.starts) == len(example.context.tokens)
            assert found.starts.sum() == pytest.approx(1)


def test_few_long_paragraphs_are_attended_to_at_a_time(
    examples: list[SquadExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 800 pairs of tokens are compared at once, of two texts of about twenty tokens or of one longer text."""
    model = build(make_recipe(), examples)
    whole = predict(TASK, model, examples)
    sizes: list[tuple[int, int]] = []
    predict_part = model.predict

    def watched(part: Sequence[SquadExample]) -> list[SquadPrediction]:
        sizes.append((len(part), max(map(TASK.length, part))))
        return predict_part(part)

    monkeypatch.setattr(model, "predict", watched)
    monkeypatch.setattr("elmo.tasks.prediction.MOST_PAIRS", 800)
    parts = predict(TASK, model, examples)
    assert all(number * longest**2 <= 800 or number == 1 for number, longest in sizes)
    assert len(examples) > len(sizes) > 3
    assert [found.bounds for found in parts] == [found.bounds for found in whole]


def test_the_shortest_texts_work() -> None:
    """In a paragraph of one token, self-attention has nothing else to attend to."""
    example = parse_question("Espoo\tWhere?", str.split)
    model = build(make_recipe(), [example]).eval()
    with torch.no_grad():
        (found,) = model.predict([example])
    assert found.bounds == (0, 0)
    assert found.score == pytest.approx(1)


def test_answers_are_no_longer_than_the_recipe_says() -> None:
    """Random weights would choose longer ones, too."""
    found = [parse_question(f"a b c d e f g h i j k l {n}\twhere ?", str.split) for n in range(6)]
    widest: list[int] = []
    for longest in (17, 2):
        model = build(make_recipe(longest_answer=longest), found).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        with torch.no_grad():
            bounds = [prediction.bounds for prediction in model.predict(found)]
        widest.append(max(last - first + 1 for first, last in bounds))
    assert widest[0] > 2 >= widest[1]


def test_models_with_other_limits_of_answers_are_not_combined(tmp_path: Path) -> None:
    sets = [str(write_squad(tmp_path / "a.json", 1))] * 2
    for longest in (2, 3):
        recipe = make_recipe(longest_answer=longest, training__max_epochs=1)
        Experiment(ExperimentConfig("squad", recipe, tmp_path / f"run{longest}", *sets, device="cpu")).run()
    with pytest.raises(ElmoError, match=r"run3: has the setting longest_answer=3, but .*run2 has longest_answer=2"):
        load_ensemble([tmp_path / "run2", tmp_path / "run3"])


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_dropout_is_used(share: float, examples: list[SquadExample]) -> None:
    assert loss_depends_on_seed(build(make_recipe(dropout=share), examples), examples[:3]) == (share > 0)


def test_word_vectors_of_a_file_are_fixed(examples: list[SquadExample], tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("Ann 1 2\nis 3 4\n")
    settings = make_recipe(words__vectors=str(tmp_path / "v.txt"), words__dim=2)
    model = build(settings, examples)
    set_word_vectors(model, settings.words)
    assert model.words([["is", "Ann"]])[0].tolist() == [[3, 4], [1, 2]]
    assert not model.words.weight.requires_grad


def plain_scores(model: SquadModel, example: SquadExample) -> list[torch.Tensor]:
    """Compute Clark and Gardner 2017, sec. 2.1, for one question, without padding and dropout."""

    def encode(tokens: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        elmo, mask = model.elmo([tokens]), torch.ones(1, len(tokens), dtype=torch.bool)
        x = torch.cat([model.words([tokens]), model.characters([tokens]), elmo.input], 2)
        return torch.cat([model.encoder(x, mask), elmo.output], 2), mask

    (context, mask), (question, question_mask) = encode(example.context.tokens), encode(example.question)
    x = torch.relu(model.merge(model.attention(context, question, mask, question_mask)))
    found = model.self_attention(model.self_encoder(x, mask), mask)
    x = x + torch.relu(model.self_merge(found))
    first = model.start_encoder(x, mask)
    last = model.end_encoder(torch.cat([x, first], 2), mask)
    return [model.start(first)[0, :, 0], model.end(last)[0, :, 0]]


@pytest.mark.parametrize("at", [None, "input", "output", "both"])
def test_predictions_are_those_of_the_published_formula(at: str | None, examples: list[SquadExample]) -> None:
    settings = make_recipe(elmo__vectors="live", **({"elmo__at": at} if at else {}))
    model = build(settings, examples, make_model() if at else None).eval()
    torch.nn.init.normal_(model.merge.bias)  # zeros at first, of which half would be cut off in any case
    with torch.no_grad():
        for example, found in zip(examples, model.predict(examples), strict=True):
            starts, ends = (scores.softmax(0).numpy() for scores in plain_scores(model, example))
            np.testing.assert_allclose(found.starts, starts, atol=1e-6)
            np.testing.assert_allclose(found.ends, ends, atol=1e-6)


def test_dropout_is_where_the_published_program_has_it(
    examples: list[SquadExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after the GRU that reads paragraph and question, before and after the next one, and once behind it."""
    dropped: list[tuple[int, float, bool]] = []

    def watched(x: torch.Tensor, share: float, training: bool) -> torch.Tensor:
        dropped.append((x.shape[2], share, training))
        return x

    monkeypatch.setattr("elmo.tasks.squad.model.variational_dropout", watched)
    build(make_recipe(dropout=0.2), examples).train().loss(examples)
    assert dropped == [(width, 0.2, True) for width in (12 + 6, 16, 12 + 6, 16, 16, 16, 16)]


def test_linear_layers_start_as_published(examples: list[SquadExample]) -> None:
    """Weights are within the bounds of Glorot and Bengio 2010, and biases are zero."""
    model = build(make_recipe(), examples)
    for layer in (model.merge, model.self_merge, model.start, model.end):
        bound = (6 / sum(layer.weight.shape)) ** 0.5
        assert 0.8 * bound < layer.weight.abs().max() <= bound
        assert not layer.bias.any()


def test_dropout_is_the_same_at_all_tokens() -> None:
    example = parse_question("a a a\tb", str.split)
    model = build(make_recipe(dropout=0.5), [example]).train()
    read: list[torch.Tensor] = []
    model.encoder.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    with torch.no_grad():
        model.predict([example])
    dropped = read[0] == 0  # what the RNN reads of a paragraph that has one word three times
    assert (dropped == dropped[:, :1]).all()
    assert 0.2 < dropped.float().mean() < 0.8


def test_answers_are_found_after_training_on_them(examples: list[SquadExample]) -> None:
    """All answers are found word by word, and every parameter gets a gradient."""
    model = build(make_recipe(), examples)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(examples).backward()
        optimizer.step()
    with torch.no_grad():
        found = model.eval().predict(examples)
    assert TASK.score(examples, found) == {"f1": 100, "exact_match": 100}
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_characters_are_dropped_where_the_convolution_reads_them(examples: list[SquadExample]) -> None:
    """As in the published program, a fifth of the numbers is dropped before the convolution, not after it."""
    model = build(make_recipe(dropout=0.2), examples)
    seen: list[torch.Tensor] = []
    convolution = model.characters.encoder.convolutions[0]
    convolution.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.train().loss(examples)
    assert 0.15 < torch.cat([x.flatten() for x in seen]).eq(0).float().mean() < 0.25


def make_questions() -> list[SquadExample]:
    """Return questions in mixed order, on paragraphs of which two are of one length. Their number fills no batch."""
    texts = ["Ann is in Lyon .", "Bo is in Espoo .", "Cy is there .", "Di is in New York with Ann ."]
    lines = [f"{text}\twhere is {'really ' * n}{text.split()[0]} ?" for n in range(7) for text in texts]
    return [parse_question(line, str.split) for line in lines]


@pytest.mark.parametrize("batch_size", [3, 5, 100])
def test_elmo_reads_a_paragraph_once(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a paragraph's questions and their batches make no difference; 1e-5 is float32 rounding."""
    found = make_questions()
    model = build(make_recipe(elmo__vectors="live"), found, make_model())
    layers = model.elmo.layers
    assert isinstance(layers, LiveLayers)
    seen: list[tuple[str, ...]] = []
    embed = layers.embedder.embed

    def watched(sentences: Sequence[Sequence[str]], **options: Any) -> list[Any]:
        seen.extend(map(tuple, sentences))
        return embed(sentences, **options)

    monkeypatch.setattr(layers.embedder, "embed", watched)
    predictions = predict(TASK, model, found, batch_size)
    assert sorted(seen) == sorted({text for example in found for text in TASK.sentences(example)})
    other = build(make_recipe(elmo__vectors="live"), found, make_model())
    for example, prediction in zip(found, predictions, strict=True):
        (alone,) = predict(TASK, other, [example])
        np.testing.assert_allclose(prediction.starts, alone.starts, atol=1e-5)
        np.testing.assert_allclose(prediction.ends, alone.ends, atol=1e-5)


def test_a_bilm_that_is_trained_along_reads_a_paragraph_once_in_a_batch() -> None:
    found = make_questions()
    model = build(make_recipe(elmo__vectors="trained"), found, make_model())
    seen: list[int] = []
    assert isinstance(model.elmo.layers, TrainedLayers)
    model.elmo.layers.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    together = predict(TASK, model, found, len(found))
    assert seen == [4, 28]
    for example, prediction in zip(found[:4], together, strict=False):
        (alone,) = predict(TASK, model, [example])
        np.testing.assert_allclose(prediction.starts, alone.starts, atol=1e-5)
    model.train().loss([replace(example, spans=((0, 0),)) for example in found])
    assert seen[-2:] == [28, 28]


def make_prediction(starts: list[float], ends: list[float], bounds: tuple[int, int] = (0, 0)) -> SquadPrediction:
    return SquadPrediction(bounds, 0.25, np.array(starts, np.float32), np.array(ends, np.float32))


def test_an_answer_is_written_as_the_paragraph_spells_it() -> None:
    """The answer is spelled as in the paragraph, with all its white space, which a line of text replaces by blanks."""
    example = parse_question('{"context": "She left New\\n York.", "question": "Which city?"}', TOKENIZE)
    found = make_prediction([0] * 5, [0] * 5, (2, 3))
    assert TASK.as_text(example, found) == "New York\t0.250\n"
    values = TASK.as_json(example, found)
    assert (values["answer"], values["start"], values["end"], values["score"]) == ("New\n York", 9, 18, 0.25)
    named = [SquadExample(example.context, example.question, name) for name in ("a", "é")]
    assert json.loads(TASK.as_file(named, [found, found])) == {"a": "New\n York", "é": "New\n York"}
    with pytest.raises(ElmoError, match="has several questions with the id 'a', and"):
        TASK.as_file([named[0]] * 2, [found, found])


def TOKENIZE(text: str) -> list[str]:  # noqa: N802
    """Split a text at blanks and before full stops."""
    return text.replace(".", " .").split()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"dropout": -1.0}, "dropout: -1.0 is not in"),
        ({"size": 0}, "size: 0 is not positive"),
        ({"longest_answer": 0}, "longest_answer: 0 is not positive"),
    ],
)
def test_bad_settings_are_refused(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make_recipe(**setting)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two seeds with a biLM and return the folder, with test.json and `run/seed-0` and `run/seed-1`."""
    folder = tmp_path_factory.mktemp("squad")
    write_squad(folder / "train.json", 30)
    write_squad(folder / "test.json", 10, seed=1)
    save_native(make_model(), folder / "model")
    files = ["--train", f"{folder}/train.json#:1,{folder}/train.json#1:", "--dev", f"{folder}/test.json"]
    where = ["--elmo", f"{folder}/model", "--out", f"{folder}/run", "--device", "cpu", "--seeds", "2"]
    run("task", "train", "squad", *files, "--test", f"{folder}/test.json", *set_options(SMALL), *where)
    return folder


@pytest.fixture
def folder(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder of `trained` the current one."""
    monkeypatch.chdir(trained)
    return trained


def test_a_whole_experiment_by_commands(folder: Path) -> None:
    """The toy set is learned. Another process computes the same scores and writes the predictions, and both seeds
    together answer well, too."""
    wanted = json.loads(Path("run/seed-0/results.json").read_text())["scores"]["test"]
    assert wanted["f1"] > 60
    elmo = [sys.executable, "-m", "elmo", "task"]
    code = [*elmo, "evaluate", "run/seed-0", "test.json", "--device", "cpu", "--json", "--predictions", "found.json"]
    figures = json.loads(subprocess.run(code, capture_output=True, text=True, check=True).stdout)
    assert figures["scores"] == pytest.approx(wanted)
    found, gold = json.loads(Path("found.json").read_text()), read_squad("test.json", str.split)
    assert list(found) == [example.id for example in gold]
    assert all(found[example.id] in example.context.text for example in gold)
    right = [found[example.id] == example.answers[0] for example in gold]
    assert 100 * sum(right) / len(right) == pytest.approx(wanted["exact_match"])
    joint = json.loads(run("task", "evaluate", "run/seed-0", "run/seed-1", "test.json", "--ensemble", "--json"))
    assert joint["scores"]["f1"] > 60
    assert "| trained on | train.json#:1, train.json#1:, " in Path("run/README.md").read_text()


def test_the_bilm_is_fine_tuned_on_paragraphs(folder: Path) -> None:
    """As published, the biLM reads each paragraph once and no question."""
    settings = set_options(SMALL | {"training.max_epochs": 1})
    files = ["--train", "train.json", "--dev", "test.json", "--device", "cpu"]
    out = ["--elmo", "model", "--finetune", "tuned", "--out", "tuned-run"]
    last = run("task", "train", "squad", *settings, *files, *out).splitlines()[-1]  # click before 8.2 adds stderr
    assert last.startswith("tuned-run: dev f1 ")
    corpus = Corpus.open("tuned/corpus")
    assert corpus.num_sentences == len({example.context.tokens for example in read_squad("train.json", str.split)})
    assert not {"where", "?"} & set(corpus.types())


def test_questions_of_one_id_are_refused_before_they_are_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answering them takes long, and a file of answers has one place for each id."""
    monkeypatch.setattr(SquadModel, "predict", None)
    says = r"^test\.json,test\.json: has several questions with the id '.*'.*; leave out --predictions$"
    with pytest.raises(ElmoError, match=says):
        run("task", "evaluate", "run", "test.json,test.json", "--predictions", "twice.json")


def test_answers_a_question_typed_in_either_form(folder: Path) -> None:
    text = 'Ann is in Lyon .\twhere is Ann ?\n\n{"context": "Ann is in Lyon .", "question": "where is Ann ?"}\n'
    lines = run("task", "predict", "run", "-", text=text).splitlines()
    assert lines[0] == lines[1]
    answer, score = lines[0].split("\t")
    assert answer
    assert 0 < float(score) <= 1
    found = json.loads(run("task", "predict", "run", "-", "--json", text=text).splitlines()[0])
    assert found["context"][found["start"] : found["end"]] == found["answer"] == answer
