"""A share of a training set can be trained on, and a model sees no other examples of the set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.tasks.experiment import Experiment, ExperimentConfig, choose, share_of
from elmo.tasks.ner.task import TASK, NerExample, NerRecipe

Recipe = Callable[..., NerRecipe]


def test_shares_contain_one_another(recipe: Recipe, examples: list[NerExample]) -> None:
    shares = [share_of(examples, TASK, recipe(training__share=share)) for share in (0.25, 0.5, 1.0)]
    assert [len(share) for share in shares] == [len(examples) // 4, len(examples) // 2, len(examples)]
    assert shares[0] == shares[1][: len(shares[0])]
    assert shares[1] == choose(examples, len(shares[1]))
    assert shares[2] is examples


def test_examples_are_drawn_in_the_same_random_order_as_by_earlier_versions() -> None:
    """If the order changed, runs that were started earlier would continue with other examples."""
    assert choose(range(5), 5) == [4, 0, 1, 3, 2]
    assert choose(range(40), 10) == [4, 16, 21, 5, 11, 14, 39, 29, 17, 26]


def test_the_size_of_a_share_is_rounded(recipe: Recipe, examples: list[NerExample]) -> None:
    """There is at least one example."""
    shares = [share_of(examples[:10], TASK, recipe(training__share=share)) for share in (0.01, 0.24, 0.26)]
    assert [len(share) for share in shares] == [1, 2, 3]


def test_a_share_is_large_enough_to_be_trained_on(recipe: Recipe, examples: list[NerExample]) -> None:
    """A model could learn nothing from sentences without a name."""
    plain = [NerExample(("a", "b"), ()) for _ in range(30)]
    share = share_of([*plain, examples[0]], TASK, recipe(training__share=0.001))
    assert share[-1] == examples[0]
    assert examples[0] not in share[:-1]


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_a_share_outside_of_0_to_1_is_refused(share: float, recipe: Recipe) -> None:
    with pytest.raises(ElmoError, match=r"training\.share: .* is not in \(0, 1\]"):
        recipe(training__share=share)


def test_a_model_sees_only_its_share(files: Path, recipe: Recipe) -> None:
    """The model's words are those of the share. The dev set stays whole, and the card counts the share's examples."""
    settings = recipe(training__share=0.2, training__max_epochs=1, words__min_count=1)
    config = ExperimentConfig(
        "ner", settings, files / "run", str(files / "train.conll"), str(files / "dev.conll"), device="cpu"
    )
    experiment = Experiment(config)
    experiment.run()
    assert experiment.sets["dev"] == TASK.read(config.dev, settings)
    known = json.loads((config.folder / "vocabularies.json").read_text())["words"]
    trained = {token for example in experiment.sets["train"] for token in example.tokens}
    assert len(experiment.sets["train"]) == 8
    assert set(known) == trained
    assert "8 examples" in (config.folder / "README.md").read_text()
