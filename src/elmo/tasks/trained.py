"""A task with a trained model, as `elmo.tasks.load` returns it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.tasks.prediction import predict
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.task import Task, TaskModel
from elmo.text.choice import choose_cut
from elmo.text.query import tokenizer_for_query

E = TypeVar("E")
P = TypeVar("P")


@dataclass
class TrainedTask(Generic[E, P]):
    """A task with a trained model, ready to predict.

    Attributes:
        task: The task.
        recipe: The recipe that the model was trained with.
        model: The model.
        text: How the training text of its biLM was cut, if that is known.
    """

    task: Task[Any, E, P]
    recipe: TaskRecipe
    model: TaskModel[E, P]
    text: TextConfig | None = None

    def __repr__(self) -> str:
        """Name the task and its model, whose layers and recipe would fill the screen."""
        num_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"TrainedTask({self.task.name!r}, {type(self.model).__name__}, {num_parameters:,} parameters)"

    @property
    def batch_size(self) -> int:
        """The number of examples that training put into a batch.

        With `elmo.layer_norm`, a prediction depends a little on the other examples of its batch. The scores of the
        training are found again with batches of this size, except that numbers which training kept in a float16 cache
        (`elmo.cache_dtype`) are computed in float32 here.
        """
        return self.recipe.training.batch_size

    def tokenizer_for(self, sample: str | None) -> str:
        """Return the name of the tokenizer for plain text that is predicted together.

        It is that of the task's files. If those have tokens already, it is that of the biLM's training text, unless
        the sample looks tokenized already, with spaces around its punctuation marks. If the sample looks like raw text
        and no tokenizer is known for it, there is a warning.

        Args:
            sample: The beginning of the text, or all of it. None if it can't be looked at, and is then taken for
                tokenized.

        Raises:
            ElmoError: If the sample looks like raw text, and the biLM names a function from outside of this package.
        """
        name = self.task.tokenizer(self.recipe)
        if name != "whitespace" or sample is None:
            return name
        for note in choose_cut(self.text, sample, text="sentences").notes:
            warnings.warn(note, stacklevel=3)
        return tokenizer_for_query(sample, name, self.text)

    def predict(self, examples: Iterable[E]) -> list[P]:
        """Predict examples in batches as large as those of the training (see `prediction.predict`).

        Args:
            examples: Examples of the task, as `task.read` and `task.parse` return them.

        Returns:
            The prediction for each example, of the task's own type.

        Raises:
            ElmoError: If an example is a string or a list. For texts, call `elmo.tasks.predict`.
        """
        examples = list(examples)  # they are read several times, which a generator can't be
        for example in examples:
            if isinstance(example, str | list):
                kind = "a string" if isinstance(example, str) else "a list"
                raise ElmoError(
                    f"`examples`: expected examples of the task {self.task.name}, found {kind}; for texts, call "
                    "elmo.tasks.predict(trained, texts)"
                )
        return predict(self.task, self.model, examples, self.batch_size)
