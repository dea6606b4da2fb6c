"""One label for a whole example: what a model says, and how a set is scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from torch import Tensor

from elmo.errors import ElmoError
from elmo.tasks.task import Scores


class LabelPrediction(NamedTuple):
    """The likeliest label, and the probability of each."""

    label: str
    probabilities: dict[str, float]


def label_predictions(scores: Tensor, labels: Sequence[str]) -> list[LabelPrediction]:
    """The predictions of a batch, from the scores (B, K) of K `labels` before the softmax."""
    rows: list[list[float]] = scores.softmax(dim=1).tolist()
    return [LabelPrediction(labels[row.index(max(row))], dict(zip(labels, row, strict=True))) for row in rows]


def combine_labels(predictions: Sequence[LabelPrediction]) -> LabelPrediction:
    """What several models say of one example: the mean of their probabilities."""
    labels = list(predictions[0].probabilities)
    shares = {label: fmean(found.probabilities[label] for found in predictions) for label in labels}
    return LabelPrediction(max(labels, key=shares.__getitem__), shares)


def score_labels(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Scores:
    """Accuracy in percent, in all and of the examples of each label; and the confusion matrix.

    "accuracy/A" is there for labels that occur in `gold`; "confusion/A/B" is the number of examples of A that were
    taken for B, for all pairs of `labels`. Raises ElmoError for a label in `gold` that is none of them.
    """
    if strange := next((label for label in gold if label not in labels), None):
        raise ElmoError(f"the model's labels are {', '.join(labels)}, but an example's is {strange}")
    cells = Counter(zip(gold, predicted, strict=True))
    totals = Counter(gold)
    scores = {"accuracy": 100 * sum(cells[label, label] for label in labels) / len(gold)}
    scores |= {f"accuracy/{label}": 100 * cells[label, label] / totals[label] for label in labels if totals[label]}
    return scores | {f"confusion/{a}/{b}": float(cells[a, b]) for a in labels for b in labels}
