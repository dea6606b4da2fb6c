"""What `elmo task predict` reads: examples without answers, from plain text or in a task's own format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elmo.errors import ElmoError
from elmo.tasks.task import Task, parse_file
from elmo.tasks.trained import TrainedTask
from elmo.text.choice import sample_of
from elmo.text.opening import kind_by_name
from elmo.text.tokenizers import get_tokenizer

PLAIN = "plain"
"""The value of `--text` for text without any format."""

CHUNK, CHUNK_TOKENS = 512, 16_384
"""Most examples, and about how many tokens, are predicted together.

A chunk is large enough to sort its examples by length, and small enough that the output of a pipe is not held up.
"""


def layout_of(task: Task[Any, Any, Any], path: str) -> str:
    """Return the format that the name of a file stands for: one of the task's `layouts`, or plain text.

    Raises:
        ElmoError: If it stands for CoNLL-U, and the task does not read that.
    """
    kind = kind_by_name(path)
    if kind == ".conllu" and "conllu" not in task.layouts:
        raise ElmoError(
            f"{path}: is CoNLL-U by its name, which {task.name} does not read; give plain text, or pass --text plain "
            "if it is that"
        )
    return next((known for known in task.layouts if kind == f".{known}"), PLAIN)


def read_unanswered(
    trained: TrainedTask[Any, Any], path: str, layout: str, encoding: str, tokenizer: str | None
) -> Iterator[Any]:
    """Return the examples of a file, which are read one by one.

    Args:
        trained: A trained model.
        path: The file, or "-".
        layout: `PLAIN`, or one of the task's `layouts`.
        encoding: The encoding of the file.
        tokenizer: The name of the tokenizer for plain text. None takes the one that fits the training set.

    Raises:
        ElmoError: If the task has no such layout, or the tokenizer is unknown or has nothing to do.
    """
    task = trained.task
    if layout == PLAIN:
        sample = sample_of([path], encoding)
        name = tokenizer or trained.tokenizer_for("" if sample is None else sample.text)
        return parse_file(task, path, encoding, get_tokenizer(name))
    if layout not in task.layouts:
        raise ElmoError(f"--text {layout}: {task.name} reads {', '.join((PLAIN, *task.layouts))}")
    if tokenizer is not None:
        raise ElmoError(f"--tokenizer {tokenizer}: {path} is read as {layout}, whose words are given; leave it out")
    return task.read_layout(path, layout, trained.recipe, encoding)
