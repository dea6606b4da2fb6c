"""The README.md of a task's run folder."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.formats.card import table_rows
from elmo.tasks.results import Result, best_of, describe_scores, mean_and_deviation, summarize
from elmo.tasks.task import TASKS

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

ELMo: Peters et al. 2018, *Deep contextualized word representations*.
"""


def task_card(task: str, train: str, elmo: str, results: Sequence[Result], metric: str) -> str:
    """Write the card in Markdown: what the model was trained on, what ELMo it uses, and the scores of all seeds.

    Args:
        task: The name of the task.
        train: A description of the training set.
        elmo: A description of the ELMo model.
        results: The results of all seeds. The card is for the model of the best one.
        metric: The score that decides which one is the best.
    """
    best = best_of(results, metric)
    # With one seed, the table of scores is that of this model. With several, it has their means.
    rows = {
        "task": f"{task}: {TASKS[task]}",
        "trained on": train,
        "ELMo": elmo,
        "epochs": ", ".join(f"{result.epochs} (best: {result.best_epoch})" for result in results),
        "seed" if len(results) == 1 else "seeds": ", ".join(str(result.seed) for result in results),
        **({"this model": f"seed {best.seed}, {describe_scores([best], metric)}"} if len(results) > 1 else {}),
        "minutes": mean_and_deviation([result.seconds / 60 for result in results]),
        "machine": ", ".join(dict.fromkeys(result.machine for result in results)),
    }
    summary = summarize(results)
    names = dict.fromkeys(name for scores in summary.values() for name in scores)
    cells = (
        [n.replace("|", "\\|"), *(mean_and_deviation(scores[n]) if n in scores else "" for scores in summary.values())]
        for n in names
    )
    return _TEMPLATE.format(
        task=task,
        title=f"A model for the task {task}",
        facts=table_rows(rows),
        sets=" | ".join(summary),
        rule="|".join("---" for _ in summary),
        scores="\n".join(f"| {' | '.join(row)} |" for row in cells),
    )
