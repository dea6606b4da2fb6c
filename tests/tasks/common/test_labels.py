"""In tasks with one label for an example, predictions of several models are combined, and labels are scored."""

from __future__ import annotations

import pytest

from elmo.errors import ElmoError
from elmo.tasks.common.labels import LabelPrediction, combine_labels, score_labels


def test_labels_are_combined_by_the_mean_of_their_probabilities() -> None:
    """The combined label may be no model's first choice. The order of the labels makes no difference."""
    first = LabelPrediction("a", {"a": 0.55, "b": 0.45, "c": 0.0})
    second = LabelPrediction("c", {"c": 0.55, "b": 0.45, "a": 0.0})
    joint = combine_labels([first, second])
    assert joint.label == "b"
    assert joint.probabilities == pytest.approx({"a": 0.275, "b": 0.45, "c": 0.275})
    assert combine_labels([first]) == first


def test_scores_of_labels() -> None:
    """Accuracies are in percent. The confusion matrix has counts, by the true label and then the predicted one."""
    scores = score_labels(["a", "a", "b", "a"], ["a", "b", "b", "a"], ["a", "b", "c"])
    assert scores["accuracy"] == 75
    assert {name: value for name, value in scores.items() if value and name.startswith("confusion")} == {
        "confusion/a/a": 2,
        "confusion/a/b": 1,
        "confusion/b/b": 1,
    }
    assert {name: value for name, value in scores.items() if name.startswith("accuracy/")} == {
        "accuracy/a": pytest.approx(200 / 3),
        "accuracy/b": 100,
    }
    assert len(scores) == 1 + 2 + 9


def test_labels_that_a_model_does_not_know_are_refused() -> None:
    """Settings unlike the training's lead to such labels: `elmo task evaluate run test.txt --set binary=true`."""
    with pytest.raises(ElmoError, match="the model's labels are very good, bad, but an example's is good"):
        score_labels(["bad", "good"], ["bad", "very good"], ["very good", "bad"])
