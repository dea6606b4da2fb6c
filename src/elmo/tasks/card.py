"""What the README.md of a task's run folder says."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

from elmo.pretrain.facts import machine_name
from elmo.tasks import TASKS
from elmo.tasks.checkpoint import Progress
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
    on in this time.
    """

    seed: int
    epochs: int
    best_epoch: int
    seconds: float
    examples_per_second: float
    scores: dict[str, Scores]

    @classmethod
    def of(cls, progress: Progress, num_examples: int, seed: int, scores: dict[str, Scores]) -> Result:
        """The result of a training that has ended, of `num_examples` an epoch."""
        rate = progress.epoch * num_examples / progress.seconds
        return cls(seed, progress.epoch, progress.best_epoch, progress.seconds, rate, scores)

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


class Facts(NamedTuple):
    """What a card tells beside the results: the training set, what ELMo was used, where it was trained."""

    train: str
    elmo: str
    device: torch.device


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, and standard deviation of the sample (0 of one value)."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def describe(values: Sequence[float]) -> str:
    """Values of several runs as "mean ± deviation", one as it is."""
    mean, deviation = spread(values).values()
    return f"{mean:.2f}" if len(values) == 1 else f"{mean:.2f} ± {deviation:.2f}"


def task_card(task: str, facts: Facts, results: Sequence[Result]) -> str:
    """Markdown that says what a model is of, and the scores of its `results`, one for each seed."""
    rows = {
        "task": f"{task}: {TASKS[task]}",
        "trained on": facts.train,
        "ELMo": facts.elmo,
        "epochs": ", ".join(f"{result.epochs} (best: {result.best_epoch})" for result in results),
        "seeds": ", ".join(str(result.seed) for result in results),
        "minutes": describe([result.seconds / 60 for result in results]),
        "machine": machine_name(facts.device),
    }
    parts = list(results[0].scores)
    names = dict.fromkeys(name for result in results for scores in result.scores.values() for name in scores)
    cells = ([name, *(_cell(results, part, name) for part in parts)] for name in names)
    return _TEMPLATE.format(
        task=task,
        title=f"A model for the task {task}",
        facts="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        sets=" | ".join(parts),
        rule="|".join("---" for _ in parts),
        scores="\n".join(f"| {' | '.join(row)} |" for row in cells),
    )


def _cell(results: Sequence[Result], part: str, name: str) -> str:
    values = [result.scores[part][name] for result in results if name in result.scores[part]]
    return describe(values) if values else ""
