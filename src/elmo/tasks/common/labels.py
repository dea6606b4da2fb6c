"""Tasks with labels for whole examples: predictions, how they are written, ensembles and scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from torch import Tensor

from elmo.errors import ElmoError
from elmo.tasks.task import Scores


class LabelPrediction(NamedTuple):
    """The most likely label, and the probability of each label."""

    label: str
    probabilities: dict[str, float]


def label_predictions(scores: Tensor, labels: Sequence[str]) -> list[LabelPrediction]:
    """Return the predictions of a batch, given the scores (B, K) of K `labels` before the softmax."""
    # Plain numbers, so that predictions hold no memory of the device and can be written as they are.
    rows: list[list[float]] = scores.softmax(dim=1).tolist()
    return [LabelPrediction(labels[row.index(max(row))], dict(zip(labels, row, strict=True))) for row in rows]


def label_line(label: str, probabilities: Mapping[str, float], *more: str) -> str:
    """Write a line with tabs between a label, the probability of each label as label=0.123, and `more` texts."""
    shares = (f"{name}={share:.3f}" for name, share in probabilities.items())
    return "\t".join([label, *shares, *more]) + "\n"


def combine_labels(predictions: Sequence[LabelPrediction]) -> LabelPrediction:
    """Combine what several models predict for one example, by the mean of their probabilities."""
    shares = mean_probabilities([found.probabilities for found in predictions])
    return LabelPrediction(max(shares, key=shares.__getitem__), shares)


def mean_probabilities(members: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean probability of each label over several models."""
    # By name, not by place: models that were trained apart may have their labels in another order.
    return {label: fmean(found[label] for found in members) for label in members[0]}


def score_labels(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Scores:
    """Return accuracy in percent, overall and for the examples of each label, and the confusion matrix.

    Args:
        gold: The true labels of the examples, at least one.
        predicted: The predicted labels.
        labels: All labels of the model.

    Returns:
        "accuracy"; "accuracy/A" for each label A that occurs in `gold`; and for all pairs of `labels` "confusion/A/B",
        the number of examples of A that were predicted as B.

    Raises:
        ElmoError: If `gold` has a label that is not among `labels`.
    """
    if strange := next((label for label in gold if label not in labels), None):
        raise ElmoError(f"the model's labels are {', '.join(labels)}, but an example's is {strange}")
    cells = Counter(zip(gold, predicted, strict=True))
    totals = Counter(gold)
    scores = {"accuracy": 100 * sum(cells[label, label] for label in labels) / len(gold)}
    scores |= {f"accuracy/{label}": 100 * cells[label, label] / totals[label] for label in labels if totals[label]}
    return scores | {f"confusion/{a}/{b}": float(cells[a, b]) for a in labels for b in labels}
