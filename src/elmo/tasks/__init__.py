"""The paper's tasks: for each a reader, a model and a metric; and one trainer for all (Peters et al. 2018, sec. 4).

Each task has a folder of its own, which holds everything that serves it alone: `task.py`, and where it has them `data`,
`model`, `metric` and its own layers. `common` holds what at least two tasks use, and `elmo` where their ELMo vectors
come from. A task provides, besides its entry in `TASKS`:

1. **A recipe**: a frozen dataclass derived from `recipe.TaskRecipe`, which has the sections `elmo`, `training` and
   `words` (null where a model has none), and `recipes/<task>.yaml` with the published values.
2. **Examples**: an immutable type of its own. An example is what one row of a batch holds: tokens, and what is to be
   predicted.
3. **A model**: a `task.TaskModel`. `loss(examples)` and `predict(examples)` take lists of examples, not tensors, since
   only the model knows what tensors it needs. It gets an `ElmoInput`, keeps it as `self.elmo`, and calls it with the
   batch's sentences: `self.elmo(sentences)` gives vectors for the task's input and output. These have a width of 0
   where ELMo isn't wanted, so that a model can always concatenate them.
4. **A task**: a subclass of `task.Task` that makes all of these, scores predictions, and writes them. Its only instance
   is `TASK` in the folder's `task.py`.

`experiment.Experiment` does everything else: batches, ELMo's vectors (live, cached on disk, or from a biLM trained
along), early stopping, checkpoints and exact resume, several seeds, the run folder and its card, and the command
`elmo task`. The vectors of the recipe's files are put into each `WordEmbedding` of a model that will be trained.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from elmo.errors import ElmoError
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.task import Task
from elmo.training.recipes import read_recipe

TASKS = {
    "ner": "Named entities: spans in a sentence.",
    "sst": "Sentiment: from very negative to very positive, of a sentence.",
    "snli": "Textual entailment: does one sentence follow from another?",
    "srl": "Semantic roles: who did what to whom, for each predicate of a sentence.",
    "coref": "Coreference: the mentions in a document that are of the same thing.",
    "squad": "Question answering: the words of a paragraph that answer a question.",
}
"""The tasks: the name of each one's folder and recipe, and what it is about."""


def load_task_recipe(task: str, source: str | None = None, changes: Mapping[str, object] | None = None) -> TaskRecipe:
    """The recipe of a task: its own, or that of another name or YAML file; `changes` are keys with dots and values."""
    return read_recipe(get_task(task).recipe, source or task, tuple(TASKS), changes or {})


def get_task(name: str) -> Task[Any, Any, Any]:
    """The task of this name."""
    if name not in TASKS:
        raise ElmoError(f"task {name!r} is unknown; choose one of {', '.join(TASKS)}")
    return importlib.import_module(f"elmo.tasks.{name}.task").TASK
