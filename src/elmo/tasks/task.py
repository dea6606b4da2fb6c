"""What a task provides (see `elmo.tasks`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from elmo.tasks.common.static_vectors import FileWords, set_word_vectors
from elmo.tasks.common.words import WordEmbedding
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import TaskRecipe
from elmo.text.tokenizers import Tokenizer

R = TypeVar("R", bound=TaskRecipe)
E = TypeVar("E")
P = TypeVar("P")

Sentence = Sequence[str]
Scores = dict[str, float]
"""Figures of a set by name; names with a slash ("f1/LOC") are details that stay out of summaries."""

Vocabularies = Mapping[str, Sequence[str]]
"""All that a model knows by name, such as tags and words: lists of strings, by the lists' names."""


class TaskModel(nn.Module, ABC, Generic[E, P]):
    """A model of a task: examples in, loss and predictions out. `elmo` is where its ELMo vectors come from.

    `labels` are what it chooses one of, for tasks with a label for each example.
    """

    labels: tuple[str, ...] = ()

    def __init__(self, elmo: ElmoInput) -> None:
        super().__init__()
        self.elmo = elmo

    @abstractmethod
    def loss(self, examples: Sequence[E]) -> Tensor:
        """The mean loss of a batch, a scalar. The penalty of ELMo's mixes is no part of it: the trainer adds that."""

    @abstractmethod
    def predict(self, examples: Sequence[E]) -> list[P]:
        """A prediction for each example of a batch, whatever it holds of the truth. Called without gradients."""

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


class Task(ABC, Generic[R, E, P]):
    """One task. `metric` is the score of the dev set that decides, the higher the better."""

    name: str
    metric: str
    recipe: type[R]
    reading: tuple[str, ...] = ()
    """Keys of the recipe that say how a file is read, whatever was trained."""

    def files(self, path: str) -> list[str]:
        """The files that a path given to `read` stands for."""
        return [path]

    @abstractmethod
    def read(self, path: str, recipe: R) -> list[E]:
        """The examples of a file of the task's own format, with what is to be predicted; one at least."""

    def read_train(self, path: str, recipe: R) -> list[E]:
        """As `read`, for the training set, of which a task may use more than what it is measured on."""
        return self.read(path, recipe)

    def require_gold(self, examples: Sequence[E]) -> None:
        """Raise ElmoError for a set that nothing can be learned from, or measured on: it "has no name in it"."""

    def pieces(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        """What of a plain text makes an example each, with the number of its first line: a line that isn't blank."""
        return ((number, line) for number, line in enumerate(lines, 1) if line.strip())

    @abstractmethod
    def parse(self, line: str, tokenize: Tokenizer) -> E:
        """An example from one of the `pieces` of a plain text. Raises ElmoError for one that isn't of the form."""

    def named(self, example: E, source: str, number: int) -> E:
        """An example of a plain text with a name to be known by, where it has one; the `number`-th of `source`."""
        return example

    def tokenizer(self, recipe: R) -> str:
        """The name of the tokenizer that fits what the model was trained on (see `get_tokenizer`)."""
        return "whitespace"

    @abstractmethod
    def sentences(self, example: E) -> Sequence[Sentence]:
        """The token sequences that ELMo is asked for, whose lengths decide which examples share a batch."""

    @abstractmethod
    def vocabularies(self, train: Sequence[E], recipe: R, found: FileWords | None = None) -> Vocabularies:
        """What a model is to know by name, from the training set and files that the recipe names.

        `found` is what the recipe's files of word vectors have of all sets together, by default of the training set.
        """

    @abstractmethod
    def model(self, recipe: R, vocabularies: Vocabularies, elmo: ElmoInput) -> TaskModel[E, P]:
        """A model with random weights."""

    def initialize(self, model: TaskModel[E, P], recipe: R) -> None:
        """Put the vectors of the recipe's files into a model that will be trained and is still on the CPU."""
        for part in model.modules():
            if isinstance(part, WordEmbedding) and recipe.words is not None:
                set_word_vectors(part, recipe.words)

    @abstractmethod
    def score(self, examples: Sequence[E], predictions: Sequence[P]) -> Scores:
        """All figures of a set, `metric` among them."""

    @abstractmethod
    def as_text(self, example: E, prediction: P) -> str:
        """An example and its prediction in the task's file format, with a line end where it has lines."""

    @abstractmethod
    def as_json(self, example: E, prediction: P) -> dict[str, object]:
        """An example and its prediction as plain values."""

    def as_file(self, examples: Sequence[E], predictions: Sequence[P]) -> str:
        """The predictions of a whole set in the task's file format."""
        return "".join(map(self.as_text, examples, predictions))

    def combine(self, recipe: R, predictions: Sequence[P]) -> P:
        """What several models say together, from their predictions for one example. Only for tasks with ensembles."""
        raise NotImplementedError

    def all_sentences(self, examples: Iterable[E]) -> Iterator[Sentence]:
        """The token sequences of all examples."""
        return (sentence for example in examples for sentence in self.sentences(example))

    def texts(self, example: E) -> Mapping[str, Sequence[Sentence]]:
        """The sentences that a biLM can be fine-tuned on before the task is trained, by what kind of text they are.

        The first kind is what the published biLM was fine-tuned on. A task of only one kind of text calls it "".
        """
        return {"": self.sentences(example)}

    def length(self, example: E) -> int:
        """The number of tokens."""
        return sum(map(len, self.sentences(example)))

    def order(self, example: E) -> Any:
        """A key to sort examples by before they are predicted: the longest come first, and examples for which ELMo
        reads the same sentence are next to one another."""
        return -self.length(example)
