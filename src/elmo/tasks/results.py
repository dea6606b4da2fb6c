"""The results of a training, and summaries of those of several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from elmo.tasks.task import Scores


@dataclass(frozen=True)
class Result:
    """The result of training one seed.

    Attributes:
        seed: The seed.
        epochs: The number of epochs.
        best_epoch: The epoch whose weights are kept.
        seconds: The time for training, and for evaluating the dev set after each epoch.
        examples_per_second: The number of examples trained on, divided by `seconds`.
        scores: The scores of each set ("dev", "test") with the weights of `best_epoch`.
        machine: A description of the machine.
    """

    seed: int
    epochs: int
    best_epoch: int
    seconds: float
    examples_per_second: float
    scores: dict[str, Scores]
    machine: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the result as plain values."""
        return asdict(self)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the mean and the sample standard deviation of values. The deviation of a single value is 0."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def mean_and_deviation(values: Sequence[float]) -> str:
    """Write the values of several runs as "mean ± deviation", and a single value alone."""
    mean, deviation = spread(values).values()
    return f"{mean:.2f}" if len(values) == 1 else f"{mean:.2f} ± {deviation:.2f}"


def summarize(results: Sequence[Result]) -> dict[str, dict[str, list[float]]]:
    """Collect each score of each set from all `results`, in their order.

    A detail that a result lacks counts as 0 there.
    """
    # The names of all results: the F1 of a type, for instance, is there only if gold answers or predictions have it.
    parts = results[0].scores if results else {}
    names = {part: dict.fromkeys(name for result in results for name in result.scores[part]) for part in parts}
    return {part: {n: [r.scores[part].get(n, 0.0) for r in results] for n in known} for part, known in names.items()}


def describe_scores(results: Sequence[Result], metric: str) -> str:
    """Describe the deciding score of each set, as in "dev f1 92.00 ± 0.10, test f1 90.00 ± 0.20"."""
    return ", ".join(
        f"{part} {metric} {mean_and_deviation(values[metric])}" for part, values in summarize(results).items()
    )


def best_of(results: Sequence[Result], metric: str) -> Result:
    """Return the result of the seed that is best on the dev set, or the first of these if several are equal."""
    return max(results, key=lambda result: result.scores["dev"][metric])
