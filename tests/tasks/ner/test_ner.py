"""A sentence's named entities do not depend on other sentences, and are read and written in columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from comparing import loss_depends_on_seed
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.tasks.common.spans import Span
from elmo.tasks.common.static_vectors import set_word_vectors
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.ner.task import TASK, NerExample, NerRecipe
from elmo.training.recipes import read_recipe
from recipes import make_task_model

Recipe = Callable[..., NerRecipe]


make_model = partial(make_task_model, TASK)


def test_the_recipe_is_the_published_one() -> None:
    """The recipe follows appendix A.7, and where that says nothing, the published configuration."""
    recipe = read_recipe(NerRecipe, "ner", ("ner",))
    assert (recipe.characters.dim, recipe.characters.filters, recipe.characters.width) == (16, 128, 3)
    assert (recipe.words.dim, recipe.lstm, recipe.dropout) == (50, (200, 100), 0.5)
    elmo = recipe.elmo
    assert (elmo.at, elmo.dropout, elmo.penalty, elmo.layer_norm) == ("input", 0.0, 0.1, False)
    training = recipe.training
    assert (training.optimizer, training.learning_rate, training.clip_norm) == ("adam", 0.001, 5.0)
    assert (training.batch_size, training.patience, training.plateau_factor) == (64, 25, None)


@pytest.mark.parametrize("at", [None, "input", "output", "both"])
@pytest.mark.parametrize("scheme", ["BIO", "BIOUL"])
def test_loss_and_predictions_do_not_depend_on_other_sentences(
    at: str | None, scheme: str, recipe: Recipe, examples: list[NerExample], bilm: Model
) -> None:
    """The loss of a batch is the mean of its sentences' own losses. 1e-4 of losses of about 10 is float32 rounding."""
    settings = recipe(scheme=scheme, elmo__vectors="live", **({"elmo__at": at} if at else {}))
    model = make_model(settings, examples, bilm if at else None).eval()
    alone = torch.stack([model.loss([example]) for example in examples[:6]])
    torch.testing.assert_close(model.loss(examples[:6]), alone.mean(), rtol=1e-5, atol=1e-4)
    assert model.predict(examples[:6]) == [model.predict([example])[0] for example in examples[:6]]


@pytest.mark.parametrize(("scheme", "tags"), [("BIO", "O B-A I-A"), ("BIOUL", "O B-A I-A U-A L-A")])
def test_the_recipe_says_in_which_scheme_tags_are_predicted(scheme: str, tags: str, recipe: Recipe) -> None:
    model = make_model(recipe(scheme=scheme), [NerExample(("a",), (Span(0, 1, "A"),))])
    assert model.tags == tags.split()


def test_the_model_learns_its_training_set(recipe: Recipe, examples: list[NerExample]) -> None:
    model = make_model(recipe(dropout=0.0), examples)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(120):
        optimizer.zero_grad()
        model.loss(examples[:8]).backward()
        optimizer.step()
    assert model.predict(examples[:8]) == [example.spans for example in examples[:8]]
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(("below", "above"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5)])
def test_dropout_is_applied_in_the_bilstms_and_above_them(
    below: float, above: float, recipe: Recipe, examples: list[NerExample]
) -> None:
    model = make_model(recipe(dropout=0.3), examples)
    assert (model.rnn.dropout, model.dropout.p) == (0.3, 0.3)
    model.rnn.dropout, model.dropout.p = below, above
    assert loss_depends_on_seed(model, examples[:4]) == (below + above > 0)


@pytest.mark.parametrize("number", [1, 3])
def test_sentences_without_tokens(number: int, recipe: Recipe, examples: list[NerExample], bilm: Model) -> None:
    """A tokenizer may make such sentences of unusual lines. They may be in a batch with others, or alone."""
    empty = [NerExample(())] * number
    model = make_model(recipe(elmo__vectors="live", elmo__at="both"), examples, bilm).eval()
    assert model.predict(empty) == [()] * number
    assert model.predict([examples[0], *empty]) == [*model.predict(examples[:1]), *[()] * number]


def test_the_vocabulary_has_words_of_the_file_and_repeated_ones(recipe: Recipe, tmp_path: Path) -> None:
    """The file's words come first, then words that occur twice, unless the file has them in lower case."""
    (tmp_path / "v.txt").write_text("play 1 2\nEspoo 3 4\nlast 5 6\n")
    examples = [NerExample(("Play", "new", "new", "once", "Play"), (Span(0, 1, "X"), Span(2, 3, "A")))]
    assert TASK.vocabularies(examples, recipe()) == {"types": ["A", "X"], "words": ["Play", "new"]}
    settings = recipe(words__vectors=str(tmp_path / "v.txt"), words__max_words=2, words__dim=2)
    vocabularies = TASK.vocabularies(examples, settings)
    assert vocabularies["words"] == ["play", "Espoo", "new"]
    model = TASK.model(settings, vocabularies, ElmoInput(None, settings.elmo, None))
    set_word_vectors(model, settings.words)
    assert model.words([["Espoo", "play", "Play"]])[0].tolist() == [[3, 4], [1, 2], [1, 2]]


def test_sentences_are_read_and_written(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("0\tIn\tO\n1\tNew\tI-LOC\n2\tYork\tI-LOC\n")
    (example,) = TASK.read(str(tmp_path / "a"), recipe(token_column=1))
    assert example == NerExample(("In", "New", "York"), (Span(1, 3, "LOC"),))
    assert TASK.as_text(example, example.spans) == "In\tO\nNew\tB-LOC\nYork\tI-LOC\n\n"
    assert TASK.as_json(example, example.spans) == {
        "tokens": ["In", "New", "York"],
        "entities": [{"start": 1, "end": 3, "type": "LOC", "text": "New York"}],
    }
    assert TASK.parse("In New York", str.split) == NerExample(("In", "New", "York"))


CONLLU = """\
# sent_id = 1
1\tIn\tin\tADP\t_\t_\t2\tcase\t_\t_
2\tNew\tNew\tPROPN\t_\t_\t0\troot\t_\tNER=B-LOC
3\tYork\tYork\tPROPN\t_\t_\t2\tflat\t_\tname=I-PER|NER=I-LOC|SpaceAfter=No

"""


def test_conllu_has_its_tags_in_misc(recipe: Recipe, tmp_path: Path) -> None:
    """Tags are read from misc and are written there, too. Everything else stays as it was."""
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU)
    (example,) = TASK.read(str(path), recipe())
    assert (example.tokens, example.spans) == (("In", "New", "York"), (Span(1, 3, "LOC"),))
    changed = CONLLU.replace("case\t_\t_", "case\t_\tNER=O")
    assert TASK.as_text(example, example.spans) == changed.replace("NER=I-LOC|SpaceAfter=No", "SpaceAfter=No|NER=I-LOC")
    (other,) = TASK.read(str(path), recipe(misc_key="name"))
    assert other.spans == (Span(2, 3, "PER"),)
    (unanswered,) = TASK.read_layout(str(path), "conllu", recipe(misc_key="name"), "utf-8")
    assert unanswered.spans == ()
    assert "NER=B-LOC|name=O\n" in TASK.as_text(unanswered, ())


def test_conllu_without_tags_names_its_keys(recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU)
    with pytest.raises(ElmoError, match=r"a.conllu: no word has a tag Entity=… .*: NER, SpaceAfter, name"):
        TASK.read(str(path), recipe(misc_key="Entity"))
    with pytest.raises(ElmoError, match=r"a.conllu, sentence 1, word 3: 'No' is not a tag such as"):
        TASK.read(str(path), recipe(misc_key="SpaceAfter"))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"scheme": "IOB1"}, "scheme: 'IOB1' is neither BIO nor BIOUL"),
        ({"dropout": 1.5}, "dropout: 1.5 is not in"),
        ({"lstm": []}, "lstm: there is no layer"),
        ({"lstm": [4, 0]}, "lstm: 0 is not positive"),
        ({"training__seed": -1}, "training.seed: -1 is not between 0 and 4294967295"),
        ({"training__weight_decay": -0.1}, "training.weight_decay: -0.1 is not zero or a positive number"),
        ({"words__size": 3}, "words: unknown key 'size'"),
        ({"training__optimizer": "lion"}, "training.optimizer: 'lion' is none of adam"),
        ({"training__patience": 0}, "training.patience: 0 is not positive"),
        ({"training__epoch_steps": 0}, "training.epoch_steps: 0 is not positive"),
        (
            {"training__plateau_factor": 2.0},
            "training.plateau_factor: 2.0 is above 1, and would raise",
        ),
        ({"elmo__penalty": float("nan")}, "elmo.penalty: nan is not zero or a positive number"),
        ({"training__clip_norm": 0.0}, "training.clip_norm: 0.0 is not positive"),
        ({"training__clip_value": -1.0}, "training.clip_value: -1.0 is not positive"),
        ({"words__dim": 0}, "words.dim: 0 is not positive"),
        ({"characters__filters": 0}, "characters.filters: 0 is not positive"),
        ({"characters__width": 60}, "characters.width: 60 is more than the 50 characters of a word"),
    ],
)
def test_errors_in_settings(setting: dict[str, Any], says: str, recipe: Recipe) -> None:
    with pytest.raises(ElmoError, match=says):
        recipe(**setting)
