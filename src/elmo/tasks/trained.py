"""A task with a trained model, as `elmo.tasks.load` returns it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from elmo.config import TextConfig
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.task import Task, TaskModel
from elmo.tasks.trainer import predict
from elmo.text.choice import looks_tokenized
from elmo.text.tokenizers import is_code

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

    @property
    def batch_size(self) -> int:
        """The number of examples that training put into a batch.

        With `elmo.layer_norm`, a prediction depends a little on the other examples of its batch. The scores of the
        training are found again with batches of this size.
        """
        return self.recipe.training.batch_size

    def tokenizer_for(self, sample: str) -> str:
        """Return the name of the tokenizer for plain text: the one that fits the training set.

        Training sets of most tasks are tokenized. Raw text is then cut as the training text of the biLM was, if that
        is known.

        Args:
            sample: The text, or its beginning.
        """
        name, own = self.task.tokenizer(self.recipe), self.text
        if name != "whitespace" or own is None or own.tokenizer == "whitespace" or is_code(own.tokenizer):
            return name
        return own.tokenizer if looks_tokenized(sample) is False else name

    def predict(self, examples: Sequence[E]) -> list[P]:
        """Predict examples in batches as large as those of the training (see `trainer.predict`)."""
        return predict(self.task, self.model, examples, self.batch_size)
