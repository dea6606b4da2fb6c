"""The tasks by name, and their recipes."""

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
