"""What the README.md of a task's run folder says."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from elmo.formats.card import table_rows
from elmo.tasks.registry import TASKS
from elmo.tasks.task import Scores

_TEMPLATE = """\
---
library_name: elmo-torch
tags: [elmo, {task}]
---
# {title}

| training | |
|---|---|
{facts}

| score | {sets} |
|---|{rule}|
{scores}

```
elmo task predict path/to/this/folder text.txt
```

Model: Peters et al. 2018, *Deep contextualized word representations*, section 4 and appendix.
"""


@dataclass(frozen=True)
class Result:
    """What came of a training. `scores` are those of each set under the weights of `best_epoch` ("dev", "test").

    `seconds` are those of training and of measuring the dev set after each epoch; `examples_per_second` those trained
    on in this time; `machine` is what it was done on.
    """

    seed: int
    epochs: int
    best_epoch: int
    seconds: float
    examples_per_second: float
    scores: dict[str, Scores]
    machine: str = ""

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, and standard deviation of the sample (0 of one value)."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def mean_and_deviation(values: Sequence[float]) -> str:
    """Values of several runs as "mean ± deviation", one as it is."""
    mean, deviation = spread(values).values()
    return f"{mean:.2f}" if len(values) == 1 else f"{mean:.2f} ± {deviation:.2f}"


def summarize(results: Sequence[Result]) -> dict[str, dict[str, list[float]]]:
    """Each score of each set, of all `results`, seed by seed; a detail that one of them lacks is 0 there."""
    parts = results[0].scores if results else {}
    names = {part: dict.fromkeys(name for result in results for name in result.scores[part]) for part in parts}
    return {part: {n: [r.scores[part].get(n, 0.0) for r in results] for n in known} for part, known in names.items()}


def describe_scores(results: Sequence[Result], metric: str) -> str:
    """The score that counts, of each set, as "dev f1 92.00 ± 0.10, test f1 90.00 ± 0.20"."""
    return ", ".join(
        f"{part} {metric} {mean_and_deviation(values[metric])}" for part, values in summarize(results).items()
    )


def best_of(results: Sequence[Result], metric: str) -> Result:
    """That of the seed that is best on the dev set, the first of equals."""
    return max(results, key=lambda result: result.scores["dev"][metric])


def task_card(task: str, train: str, elmo: str, results: Sequence[Result], metric: str) -> str:
    """Markdown that says what a model is of: the training set, what ELMo was used, and the scores of the `results`, one
    for each seed; of several the model is the best one."""
    best = best_of(results, metric)
    rows = {
        "task": f"{task}: {TASKS[task]}",
        "trained on": train,
        "ELMo": elmo,
        "epochs": ", ".join(f"{result.epochs} (best: {result.best_epoch})" for result in results),
        "seeds": ", ".join(str(result.seed) for result in results),
        **({"this model": f"seed {best.seed}, {describe_scores([best], metric)}"} if len(results) > 1 else {}),
        "minutes": mean_and_deviation([result.seconds / 60 for result in results]),
        "machine": ", ".join(dict.fromkeys(result.machine for result in results)),
    }
    summary = summarize(results)
    names = dict.fromkeys(name for scores in summary.values() for name in scores)
    cells = ([n, *(mean_and_deviation(scores[n]) if n in scores else "" for scores in summary.values())] for n in names)
    return _TEMPLATE.format(
        task=task,
        title=f"A model for the task {task}",
        facts=table_rows(rows),
        sets=" | ".join(summary),
        rule="|".join("---" for _ in summary),
        scores="\n".join(f"| {' | '.join(row)} |" for row in cells),
    )
