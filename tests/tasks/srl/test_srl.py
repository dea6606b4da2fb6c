"""Semantic roles are predicted for given predicates or for those that are found in plain text."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import RunMain, run, set_options
from comparing import adds_by_index, loss_depends_on_seed
from elmo import tasks
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.tasks.common.spans import Span
from elmo.tasks.common.static_vectors import set_word_vectors
from elmo.tasks.prediction import predict
from elmo.tasks.srl import model as srl_model
from elmo.tasks.srl.frames import Frame, format_frames
from elmo.tasks.srl.model import PredicateFinder, SrlExample, SrlRecipe, count_predicates
from elmo.tasks.srl.task import TASK
from elmo.training.recipes import read_recipe
from recipes import make_task_model, recipe_maker

SMALL = {"words.dim": 6, "words.min_count": 1, "predicate_dim": 4, "lstm.size": 8, "lstm.layers": 3}
NAMES, VERBS = ("Ann", "Bo", "Cy"), ("sees", "hears", "likes")

make_recipe = recipe_maker(SrlRecipe, "srl", SMALL)


def make_examples(number: int = 30, seed: int = 0) -> list[SrlExample]:
    """Make sentences such as "Ann sees Bo then Bo likes Cy Cy", in which ARG0 comes before a verb and ARG1 after it."""
    rng = np.random.default_rng(seed)
    examples: list[SrlExample] = []
    for _ in range(number):
        tokens: list[str] = []
        frames: list[Frame] = []
        for _ in range(int(rng.integers(1, 3))):
            start, length = len(tokens), int(rng.integers(1, 3))
            tokens += [str(rng.choice(NAMES)), str(rng.choice(VERBS)), *rng.choice(NAMES, length).tolist(), "then"]
            roles = ((start, start + 1, "ARG0"), (start + 1, start + 2, "V"), (start + 2, start + 2 + length, "ARG1"))
            frames.append(Frame(start + 1, tuple(Span(*role) for role in roles), "VBZ"))
        examples.append(SrlExample(tuple(tokens), tuple(frames)))
    return examples


make_model = partial(make_task_model, TASK)


def test_the_recipe_is_the_published_one() -> None:
    """The clipping is that of He et al., as the loss is. The dropout on ELMo is from the published settings."""
    recipe = read_recipe(SrlRecipe, "srl", ("srl",))
    assert recipe.words is not None
    assert (recipe.words.dim, recipe.words.trainable, recipe.predicate_dim) == (100, True, 100)
    assert (recipe.lstm.size, recipe.lstm.layers, recipe.dropout) == (300, 8, 0.1)
    elmo, training = recipe.elmo, recipe.training
    assert (elmo.at, elmo.dropout, elmo.penalty, elmo.layer_norm) == ("input", 0.1, 0.001, False)
    assert (training.optimizer, training.learning_rate) == ("adadelta", 1.0)
    assert (training.clip_norm, training.clip_value) == (1.0, None)
    assert (training.batch_size, training.max_epochs, training.patience) == (80, 500, 200)


@pytest.mark.parametrize("number", [1, 3])
def test_the_recipe_says_how_many_lstms_there_are(number: int) -> None:
    model = make_model(make_recipe(lstm__layers=number), make_examples())
    assert (len(model.rnn.layers), model.rnn.width) == (number, 8)


def test_the_final_layer_starts_orthonormal() -> None:
    """So it is published (A.5). 1e-5 is float32 rounding."""
    weight = make_model(make_recipe(), make_examples()).emit.weight
    assert len(weight) < weight.shape[1]
    torch.testing.assert_close(weight @ weight.t(), torch.eye(len(weight)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("settings", [{}, {"elmo__at": "input"}, {"elmo__at": "both"}, {"words": None}])
def test_loss_and_predictions_do_not_depend_on_other_predicates(settings: dict[str, Any], bilm: Model) -> None:
    """The loss of a batch is the mean of its predicates' own losses. 1e-4 of losses of about 10 is float32 rounding."""
    examples = make_examples()
    recipe = make_recipe(elmo__vectors="live", **settings)
    if settings == {"words": None}:
        recipe = read_recipe(
            SrlRecipe,
            "srl",
            ("srl",),
            {k: v for k, v in SMALL.items() if "words" not in k} | {"words": None, "elmo.vectors": "live"},
        )
    model = make_model(recipe, examples, bilm if settings else None).eval()
    torch.nn.init.normal_(model.emit.bias)
    frames = [SrlExample(e.tokens, (frame,)) for e in examples[:6] for frame in e.frames or ()]
    alone = torch.stack([model.loss([example]) for example in frames])
    torch.testing.assert_close(model.loss(frames), alone.mean(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(model.loss(examples[:6]), alone.mean(), rtol=1e-5, atol=1e-4)
    predicted = model.predict(examples[:6])
    assert predicted == [model.predict([example])[0] for example in examples[:6]]
    assert [frame for each in predicted for frame in each] == [model.predict([example])[0][0] for example in frames]


def test_gradients_are_added_in_one_order(bilm: Model) -> None:
    """All rows of a sentence share its vectors. If their gradients were added in any order, a training on several
    threads that was stopped would not continue to the bit."""
    examples = make_examples()
    model = make_model(make_recipe(elmo__at="both", elmo__vectors="live"), examples, bilm)
    assert not adds_by_index(model.loss(examples))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_dropout_makes_the_loss_random(share: float) -> None:
    examples = [SrlExample(e.tokens, e.frames[:1]) for e in make_examples(4) if e.frames]
    assert loss_depends_on_seed(make_model(make_recipe(dropout=share), examples), examples) == (share > 0)


def test_word_vectors_of_a_file_are_used(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("Ann 1 2\nBo 3 4\n")
    settings = make_recipe(words__vectors=str(tmp_path / "v.txt"), words__dim=2)
    model = make_model(settings, make_examples())
    set_word_vectors(model, settings.words)
    assert model.words is not None
    assert model.words([["Bo", "Ann"]])[0].tolist() == [[3, 4], [1, 2]]


def test_predictions_are_well_formed_whatever_the_weights_are() -> None:
    """Tags are valid BIO, with V at the predicate and nowhere else, although random weights would choose others."""
    examples = make_examples()
    model = make_model(make_recipe(), examples).eval()
    for seed in range(5):
        torch.manual_seed(seed)
        torch.nn.init.normal_(model.emit.weight, std=30.0)
        for example, frames in zip(examples, model.predict(examples), strict=True):
            for gold, frame in zip(example.frames or (), frames, strict=True):
                assert (frame.predicate, frame.tag) == (gold.predicate, gold.tag)
                assert [span.start for span in frame.spans if span.type == "V"] == [gold.predicate]


def test_learns_who_does_what() -> None:
    """The roles of a name depend on which predicate of the sentence is asked for."""
    examples = make_examples()
    model = make_model(make_recipe(dropout=0.0), examples)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(examples).backward()
        optimizer.step()
    assert all(parameter.grad is not None for parameter in model.parameters())
    new = make_examples(20, seed=1)
    assert TASK.score(new, predict(TASK, model, new))["f1"] > 95
    text = SrlExample(("Bo", "likes", "Cy", "Cy", "then"))
    spans = (Span(0, 1, "ARG0"), Span(1, 2, "V"), Span(2, 4, "ARG1"))
    assert model.eval().predict([text]) == [(Frame(1, spans),)]


def test_sentences_with_many_predicates_and_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more predicates than are processed at once, and some sentences have no predicate or no token."""
    monkeypatch.setattr(srl_model, "MOST_TOKENS", 60)
    examples = make_examples()
    model = make_model(make_recipe(), examples).eval()
    empty = [SrlExample(()), SrlExample(("then",)), SrlExample(("Ann",), ())]
    assert model.predict(empty) == [(), (), ()]
    many = examples * 3
    found = model.predict([*empty, *many])
    assert found[:3] == [(), (), ()]
    assert found[3:33] == model.predict(examples)
    assert [len(frames) for frames in found[3:]] == [len(example.frames or ()) for example in many]


def test_vocabularies_count_each_sentence_once() -> None:
    """A sentence counts once, however many of its predicates are trained on."""
    frames = Frame(0, (Span(0, 1, "V"), Span(1, 3, "ARG1"))), Frame(2, (Span(2, 3, "V"), Span(0, 1, "R-ARG0")))
    examples = [SrlExample(("go", "on", "going"), (frame,)) for frame in frames]
    assert TASK.vocabularies(examples, make_recipe()) == {
        "roles": ["ARG1", "R-ARG0", "V"],
        "predicates": ["go 1 1", "on 0 1", "going 1 1"],
        "words": ["go", "on", "going"],
    }


def test_all_predicates_of_a_sentence_are_counted_whatever_share_is_trained_on(tmp_path: Path) -> None:
    """Otherwise predicates that were not drawn would count as words that are not predicates."""
    both = [Frame(0, (Span(0, 1, "V"),)), Frame(2, (Span(2, 3, "V"),))]
    (tmp_path / "a.props").write_text(format_frames(("go", "on", "going"), both))
    recipe = make_recipe(format="conll2005")
    first, second = TASK.read_train(str(tmp_path / "a.props"), recipe)
    assert first != second
    for part in ([first], [second], [first, second]):
        assert TASK.vocabularies(part, recipe)["predicates"] == ["go 1 1", "on 0 1", "going 1 1"]


TAGGED = [
    (["They", "Run", "to", "run"], {1}),
    (["the", "run", "ended"], [2, 2]),
    (["booking", "parking", "hosting", "lasting", "morning", "sing"], (0, 1, 2, 3, 5)),
]


def test_forms_are_counted_in_lower_case() -> None:
    """A predicate whose place is given twice counts once."""
    counts = count_predicates(TAGGED)
    assert counts[0] == "run 1 3"
    assert {"ended 1 1", "they 0 1", "morning 0 1", "sing 1 1"} < set(counts)
    assert len(counts) == 11


def test_known_forms_are_predicates_if_half_of_their_occurrences_were() -> None:
    find = PredicateFinder(["run 1 3", "walk 1 2", "see 9 9", "two words 1 1"])
    assert find(["RUN", "walk", "Walk", "see", "new", "two words"]) == [1, 2, 3, 5]
    assert find([]) == []


def test_new_forms_are_judged_by_their_longest_frequent_ending() -> None:
    """Five of the six rare forms in -ing are predicates; a single form in -ning is not enough to go by."""
    find = PredicateFinder(count_predicates(TAGGED))
    assert find(["googling", "raining", "morning", "googled", "x"]) == [0, 1]
    assert PredicateFinder(["string 0 900", *count_predicates(TAGGED)])(["googling"]) == [0]
    assert PredicateFinder([f"{letter}ing 0 2" for letter in "abcd"] + count_predicates(TAGGED))(["mixing"]) == []


def test_the_longest_ending_that_counts_has_four_letters() -> None:
    """Of the forms in -ing a fifth are predicates, and of those in -ting half, although none in -ating is."""
    counts = [("ting 1 1", "ating 0 1", "ling 0 3")[n % 3] for n in range(15)]
    find = PredicateFinder([f"{letter}{line}" for letter, line in zip("bcdefghijklmnop", counts, strict=True)])
    assert find(["muting", "mulling", "dating"]) == [0, 2]


@pytest.mark.parametrize(
    ("counts", "found"), [(["a 3 3", "a 2 2"], [0]), (["a 3 3", "a 1 1"], []), (["a 4 4"] * 2, [])]
)
def test_endings_need_five_occurrences_in_forms_of_three_at_most(counts: list[str], found: list[int]) -> None:
    assert PredicateFinder([f"{number}{line}" for number, line in enumerate(counts)])(["data"]) == found


def test_scores_all_predicates_and_verbs_alone() -> None:
    """In this example the verb is right, and the noun's one argument is not found."""
    verb = Frame(0, (Span(0, 1, "V"), Span(1, 2, "ARG1")), "VBD")
    noun = Frame(1, (Span(0, 1, "ARG0"), Span(1, 2, "V")), "NN")
    example = SrlExample(("saw", "sales"), (verb, noun))
    scores = TASK.score([example], [(verb, noun._replace(spans=(Span(1, 2, "V"),)))])
    assert scores["precision"] == 100
    assert scores["recall"] == 50
    assert (scores["verbs_f1"], scores["verbs_perfect"], scores["perfect"]) == (100, 100, 50)
    assert (scores["f1/ARG1"], scores["f1/ARG0"]) == (100, 0)
    untagged = SrlExample(("saw", "sales"), (verb._replace(tag=""),))
    assert "verbs_f1" not in TASK.score([untagged], [(verb,)])


def test_frames_are_read_and_written(tmp_path: Path) -> None:
    frames = (Frame(1, (Span(0, 1, "ARG1"), Span(1, 2, "V"), Span(2, 4, "C-ARG1"))), Frame(3, (Span(3, 4, "V"),)))
    example = SrlExample(("Bo", "seems", "to", "sleep"), frames)
    text = TASK.as_text(example, frames)
    (tmp_path / "a").write_text(text + "Yes\t-\n")
    assert TASK.read(str(tmp_path / "a"), make_recipe(format="conll2005")) == [example, SrlExample(("Yes",), ())]
    assert TASK.read_train(str(tmp_path / "a"), make_recipe(format="conll2005")) == [
        SrlExample(example.tokens, (frame,)) for frame in frames
    ]
    pieces = [{"start": 0, "end": 1, "text": "Bo"}, {"start": 2, "end": 4, "text": "to sleep"}]
    assert TASK.as_json(example, frames) == {
        "tokens": ["Bo", "seems", "to", "sleep"],
        "frames": [
            {"predicate": 1, "text": "seems", "arguments": [{"role": "ARG1", "pieces": pieces}]},
            {"predicate": 3, "text": "sleep", "arguments": []},
        ],
    }
    (tmp_path / "b").write_text("Yes\t-\n")
    train = TASK.read_train(str(tmp_path / "b"), make_recipe(format="conll2005"))
    assert TASK.note_on_gold(train, make_recipe()) == "has no predicate in it"


def test_predictions_for_a_file_have_its_lemmas(tmp_path: Path) -> None:
    """The official script compares them, and counts all arguments of a predicate with another lemma as missed."""
    (tmp_path / "gold").write_text("Bo\t-\t(ARG0*)\t*\nsaw\tsee\t(V*)\t*\nsales\tsale\t*\t(V*)\n\n")
    (example,) = TASK.read(str(tmp_path / "gold"), make_recipe(format="conll2005"))
    predicted = tuple(
        Frame(frame.predicate, (Span(frame.predicate, frame.predicate + 1, "V"),)) for frame in example.frames
    )
    assert [line.split("\t")[1] for line in TASK.as_text(example, predicted).splitlines()[:3]] == ["-", "see", "sale"]
    assert "see" not in repr(example), "the checksum of a run that was started earlier is the same"


def test_text_is_parsed_with_and_without_marked_predicates() -> None:
    assert TASK.parse("Bo sleeps", str.split) == SrlExample(("Bo", "sleeps"))
    assert TASK.parse("{ laughs } Bo sleeps", str.split).tokens == ("{", "laughs", "}", "Bo", "sleeps")
    line = json.dumps({"tokens": ["Bo", "sleeps"], "predicates": [1]})
    assert TASK.parse(line, str.split) == SrlExample(("Bo", "sleeps"), (Frame(1),))
    line = json.dumps({"tokens": ["Bo", "likes", "caf\ud83d"], "predicates": [2, 1, 1]})
    assert TASK.parse(line, str.split) == SrlExample(("Bo", "likes", "caf\ufffd"), (Frame(1), Frame(2)))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"tokens": ["Bo"]}', "expected .*tokens.*predicates"),
        ('{"tokens": "Bo", "predicates": [0]}', "expected .*tokens.*predicates"),
        ('{"tokens": ["Bo"], "predicates": [true]}', "expected .*tokens.*predicates"),
        ('{"tokens": ["Bo"], "predicates": [-1]}', "predicates: no token has the index -1; there are 1"),
        ('{"tokens": ["Bo"], "predicates": [1]}', "predicates: no token has the index 1"),
        ('{"tokens": ', "not valid JSON"),
        ('{"tokens": ["New York"], "predicates": []}', "tokens: 'New York' is empty or holds white space"),
        ('{"tokens": ["a", ""], "predicates": []}', "tokens: '' is empty or holds white space"),
    ],
)
def test_errors_in_marked_text(line: str, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        TASK.parse(line, str.split)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"format": "conll2009"}, "format: 'conll2009' is none of gold_conll, conll2012, conll2005"),
        ({"dropout": 1.0}, "dropout: 1.0 is not in"),
        ({"lstm__layers": 0}, "lstm.layers: 0 is not positive"),
        ({"predicate_dim": 0}, "predicate_dim: 0 is not positive"),
        ({"words": None, "elmo__at": "output"}, "words: null leaves no vectors for tokens; choose elmo.at=input or"),
    ],
)
def test_errors_in_settings(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make_recipe(**setting)


def test_a_model_without_any_vectors_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("".join(format_frames(e.tokens, e.frames or ()) for e in make_examples(3, 0)))
    sets = {"train": tmp_path / "train", "dev": tmp_path / "train"}
    settings = {"words": None, "format": "conll2005"}
    with pytest.raises(ElmoError, match="words: null leaves no vectors for tokens without ELMo at the input"):
        tasks.train("srl", **sets, folder=tmp_path / "run", elmo=None, settings=settings, device="cpu")
    assert not (tmp_path / "run").exists()


def test_train_evaluate_and_predict_by_commands(tmp_path: Path, run_main: RunMain) -> None:
    """Predicates of plain text are found, and those of marked text are used. A run from before `clip_value` existed,
    whose recipe clips the gradients' norm, gets the same scores."""
    for seed, name in enumerate(("train", "dev")):
        lines = (format_frames(e.tokens, e.frames or ()) for e in make_examples(30 - 10 * seed, seed))
        (tmp_path / name).write_text("".join(lines))
    settings = {**SMALL, "format": "conll2005", "dropout": 0.0, "training.optimizer": "adam", "training.max_epochs": 6}
    settings |= {"training.learning_rate": 0.02, "training.batch_size": 8}
    train = ["task", "train", "srl", "--elmo", "none", "--device", "cpu", "--train", f"{tmp_path}/train"]
    train += ["--dev", f"{tmp_path}/dev", "--out", f"{tmp_path}/run"]
    run(*train, *set_options(settings))
    evaluate = ["task", "evaluate", f"{tmp_path}/run", f"{tmp_path}/dev", "--json", "--device", "cpu"]
    scores = json.loads(run(*evaluate))["scores"]
    assert scores["f1"] > 90
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["recipe"]["training"]["clip_value"], config["recipe"]["words"]["unknown"]
    config["recipe"]["training"]["clip_norm"] = 1.0
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert json.loads(run(*evaluate))["scores"] == scores
    marked = json.dumps({"tokens": ["Bo", "smells", "Cy"], "predicates": [1]})
    text = run("task", "predict", f"{tmp_path}/run", "-", "--device", "cpu", text=f"Ann likes Cy\nthen\n{marked}\n")
    first, second, third, _ = text.split("\n\n")
    assert first == "Ann\t-\t(ARG0*)\nlikes\tlikes\t(V*)\nCy\t-\t(ARG1*)"
    assert second == "then\t-"
    assert third.splitlines()[1] == "smells\tsmells\t(V*)"
    _, _, error = run_main(["task", "predict", f"{tmp_path}/run", f"{tmp_path}/dev", "--device", "cpu"])
    assert error.startswith(f"elmo: {tmp_path}/dev: most lines are columns, which are read as words; give text, or")


def test_elmo_alone_is_enough() -> None:
    TASK.require_usable(read_recipe(SrlRecipe, "srl", ("srl",), {"words": None}), True)


def test_no_predicates_are_looked_for_where_none_are_given() -> None:
    examples = [SrlExample(("Ann", "sees"), (Frame(1, (Span(1, 2, "V"),)),))]
    model = make_model(make_recipe(), examples).eval()
    assert model.predict([SrlExample(("Ann", "sees"), ())]) == [()]
    assert len(model.predict([SrlExample(("Ann", "sees"))])[0]) == 1


def test_endings_are_shorter_than_their_form() -> None:
    assert PredicateFinder(["ing 3 3", "aing 0 2", "ong 0 3", "ung 0 3"])(["ming"]) == []


def test_an_ending_is_one_of_predicates_if_half_of_its_forms_are() -> None:
    assert PredicateFinder([f"{letter}ing 1 2" for letter in "abc"])(["ding"]) == [0]


def test_the_vector_of_the_predicate_starts_about_as_long_as_word_vectors() -> None:
    model = make_model(make_recipe(predicate_dim=400), make_examples())
    assert model.predicate.norm(dim=1).tolist() == pytest.approx([1, 1], abs=0.2)
