"""The interface that every task implements, `Task` and its `TaskModel` (see `elmo.tasks`), and the tasks by name."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError, placing
from elmo.tasks.common.static_vectors import FileWords
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import TaskRecipe
from elmo.text.decoding import shown_name
from elmo.text.tokenizers import Tokenizer
from elmo.training.recipes import read_recipe

R = TypeVar("R", bound=TaskRecipe)
E = TypeVar("E")
P = TypeVar("P")

Sentence = Sequence[str]
Scores = dict[str, float]
"""The scores of a set, by name. A name with a slash, such as "f1/LOC", is a detail that summaries leave out."""

Vocabularies = Mapping[str, Sequence[str]]
"""Everything that a model knows by name, such as its tags and words: lists of strings, by the name of the list."""


class TaskModel(nn.Module, ABC, Generic[E, P]):
    """The model of a task: it takes examples, and gives a loss or predictions.

    Attributes:
        elmo: Where the model gets its ELMo vectors from.
        labels: The labels that the model chooses from, for tasks with labels of whole examples.
    """

    labels: tuple[str, ...] = ()

    def __init__(self, elmo: ElmoInput) -> None:
        super().__init__()
        self.elmo = elmo

    @abstractmethod
    def loss(self, examples: Sequence[E]) -> Tensor:
        """Return the mean loss of a batch, a scalar.

        The penalty on the weights of ELMo's scalar mixes is not included: the trainer adds it.
        """

    @abstractmethod
    def predict(self, examples: Sequence[E]) -> list[P]:
        """Return one prediction for each example of a batch.

        Gold answers that the examples hold are not used. The caller turns gradients off and puts the model into
        evaluation mode.
        """

    @property
    def device(self) -> torch.device:
        """The device that the parameters are on."""
        return next(self.parameters()).device


class Task(ABC, Generic[R, E, P]):
    """One task: how its files are read, which model it trains, and how predictions are scored and written.

    Attributes:
        name: The name of the task, as in `elmo task train NAME`.
        metric: The score of the dev set that decides which epoch is the best; higher is better.
        recipe: The class of the task's recipe.
        model: The class of the task's model. A new model has random weights. A trained one is made again by the same
            call, so the constructor reads no file: all that it needs is in the recipe and in the vocabularies.
    """

    name: str
    metric: str
    recipe: type[R]
    model: Callable[[R, Vocabularies, ElmoInput], TaskModel[E, P]]
    reading: tuple[str, ...] = ()
    """The keys of the recipe that decide how a file is read, and that may differ from one file to another.

    `--set` of `elmo task evaluate` and `elmo task text` accepts them. Other keys of the recipe would change nothing
    there, with the exceptions of `reading_text` and of the size of batches.
    """

    reading_text: tuple[str, ...] = ()
    """More keys of the recipe that decide which text is read from a file.

    `--set` of `elmo task text` accepts them. `elmo task evaluate` does not: a trained model has its own values, such
    as its number of labels, and its scores would be wrong with others.
    """

    shared: tuple[str, ...] = ()
    """The keys of the recipe that all models of an ensemble must have in common, besides the labels and the tokenizer.
    """

    takes_sentence: bool = False
    """Whether an example is made from a sentence, so that a paragraph can be split into several."""

    layouts: tuple[str, ...] = ()
    """The formats besides plain text in which examples without gold answers can be given, for `--text` of `elmo task
    predict`. A file whose name ends with one of them, such as "x.conllu.xz", is read as such.
    """

    def read_layout(self, path: str, layout: str, recipe: R, encoding: str) -> Iterator[E]:
        """Yield the examples of a file in one of the `layouts`.

        Raises:
            ElmoError: If the file is not in the format.
        """
        raise NotImplementedError

    def files(self, path: str) -> list[str]:
        """Return the files that a path given to `read` stands for: one, unless the task allows several in one path."""
        return [path]

    def require_usable(self, recipe: R, has_elmo: bool) -> None:
        """Raise ElmoError if a model of this recipe can't be built with ELMo, or without it."""

    @abstractmethod
    def read(self, path: str, recipe: R) -> list[E]:
        """Read the examples of a file in the task's own format, with their gold answers.

        Returns:
            At least one example.

        Raises:
            ElmoError: If the file is not in the format, or holds no example.
        """

    def read_train(self, path: str, recipe: R) -> list[E]:
        """Read a training set. A task may train on more than it is scored on, such as the phrases inside sentences."""
        return self.read(path, recipe)

    def note_on_gold(self, examples: Sequence[E], recipe: R) -> str | None:
        """Return why nothing can be learned from a set or measured on it, or None if something can.

        It continues a sentence that begins with the name of the set: "has no entity in it". A training or dev set with
        a note is refused; a test set is not. If the recipe asks for a share of the training set, the share grows until
        there is no note.
        """

    def note_on_train(self, train: Sequence[E]) -> str | None:
        """Return what looks like a mistake in a training set, or None. Callers put the name of its file before it."""

    def note_on_dev(self, train: Sequence[E], dev: Sequence[E]) -> str | None:
        """Return what looks like a mistake in a dev set, for this training set, in the same way."""

    def note_on_plain(self, model: TaskModel[E, P], sample: str) -> str | None:
        """Return what looks like a mistake in the beginning of a plain text that a model is to predict, or None."""

    def pieces(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Split a plain text into the pieces that become one example each; by default every line that is not blank.

        Returns:
            Pairs of the number of a piece's first line, counted from 1, and its text.
        """
        return ((number, line) for number, line in enumerate(lines, 1) if line.strip())

    @abstractmethod
    def parse(self, line: str, tokenize: Tokenizer) -> E:
        """Make an example, without gold answers, from one of the `pieces` of a plain text.

        Raises:
            ElmoError: If the piece does not have the form that the task expects.
        """

    def named(self, example: E, source: str, number: int) -> E:
        """Return an example of a plain text with a name, if the task names its examples.

        Args:
            example: The example.
            source: The name of the file that it was read from.
            number: Its place among the examples of that file.
        """
        return example

    def tokenizer(self, recipe: R) -> str:
        """Return the name of the tokenizer that cuts plain text as the training data is cut (see `get_tokenizer`)."""
        return "whitespace"

    @abstractmethod
    def sentences(self, example: E) -> Sequence[Sentence]:
        """Return the token sequences of an example that ELMo embeds.

        Their total length decides which examples share a batch.
        """

    @abstractmethod
    def vocabularies(self, train: Sequence[E], recipe: R, file_words: FileWords | None = None) -> Vocabularies:
        """Collect everything that a model has to know by name from the training set.

        A run that goes on, or is repeated, must get the same lists in the same order, so none may be in the order of a
        `set`. Numbers that a model needs are written as strings; the model's constructor may raise a ValueError,
        TypeError or IndexError for those of a damaged file.

        Args:
            train: The training set.
            recipe: The recipe, which may name files of word vectors.
            file_words: Which words of all sets the files have vectors for. None looks up those of the training set
                alone.
        """

    @abstractmethod
    def score(self, examples: Sequence[E], predictions: Sequence[P]) -> Scores:
        """Score predictions against the gold answers of a set.

        Returns:
            `metric` and any other scores, in percent; those that begin with "confusion/" are counts. All are finite: a
            score that is not defined, such as a share of nothing, is 0. Training ends with an error if `metric` of the
            dev set is not finite.
        """

    @abstractmethod
    def as_text(self, example: E, prediction: P) -> str:
        """Write an example and its prediction in the task's file format, with line ends where the format has lines."""

    @abstractmethod
    def as_json(self, example: E, prediction: P) -> dict[str, object]:
        """Return an example and its prediction as plain values for a JSON object.

        The tokens are among them, or the text itself where the prediction counts characters.
        """

    def note_on_file(self, examples: Sequence[E]) -> str | None:
        """Return why `as_file` can't write predictions for a set, or None if it can.

        It continues a sentence that begins with the name of the set.
        """

    def as_file(self, examples: Sequence[E], predictions: Sequence[P]) -> str:
        """Write the predictions of a whole set in the task's file format."""
        return "".join(map(self.as_text, examples, predictions))

    def combine(self, recipe: R, predictions: Sequence[P]) -> P:
        """Join the predictions of several models for the same example into one.

        Raises:
            NotImplementedError: If the task has no ensembles.
        """
        raise NotImplementedError

    def all_sentences(self, examples: Iterable[E]) -> Iterator[Sentence]:
        """Return the token sequences of all examples, one after the other."""
        return (sentence for example in examples for sentence in self.sentences(example))

    def texts(self, example: E) -> Mapping[str, Sequence[Sentence]]:
        """Return the sentences that a biLM can be fine-tuned on before the task is trained, by the kind of their text.

        The first kind is the one that the published biLM was fine-tuned on. A task with a single kind of text names it
        "".
        """
        return {"": self.sentences(example)}

    def length(self, example: E) -> int:
        """Return the number of tokens of an example."""
        return sum(map(len, self.sentences(example)))

    def order(self, example: E) -> Any:
        """Return the key by which examples are sorted before they are predicted.

        The longest examples come first. A task whose examples share sentences also puts those next to each other, so
        that ELMo reads a sentence only once.
        """
        # The longest first, so that a lack of memory shows at once and not after an hour.
        return -self.length(example)


def parse_pieces(
    task: Task[Any, E, Any], pieces: Iterable[tuple[int, str]], path: str, tokenize: Tokenizer
) -> Iterator[E]:
    """Yield the examples of a plain text, which have no gold answers. Sentences without a token are left out.

    Args:
        task: The task.
        pieces: The text of each example, with the number of its first line (see `Task.pieces`).
        path: The file that they are from, or `-` for the standard input.
        tokenize: The tokenizer that the text needs.

    Raises:
        ElmoError: If the text does not have the form that the task expects. It names the file and the line.
    """
    name = Path(path).name.partition(".")[0] if path != "-" else ""
    for number, (line, text) in enumerate(pieces):
        with placing(f"{shown_name(path)}, line {line}"):
            example = task.named(task.parse(text, tokenize), name, number)
        # A line that looks blank may hold characters without width, of which no tokenizer makes a token.
        if not task.takes_sentence or task.length(example):
            yield example


TASKS = {
    "ner": "Named entities: spans in a sentence.",
    "sst": "Sentiment: from very negative to very positive, of a sentence.",
    "snli": "Textual entailment: does one sentence follow from another?",
    "srl": "Semantic roles: who did what to whom, for each predicate of a sentence.",
    "coref": "Coreference: the mentions in a document that are of the same thing.",
    "squad": "Question answering: the words of a paragraph that answer a question.",
    "tag": "Tagging: part of speech, features, lemma, or any other column, of each word of a sentence.",
    "classify": "Text classification: one or several labels of a text of up to a page.",
}
"""The tasks: the name of each one's folder and recipe, and what it is about."""


def get_task(name: str) -> Task[Any, Any, Any]:
    """Return a task.

    Args:
        name: A name from `TASKS`, such as "ner".

    Raises:
        ElmoError: If there is no such task, or it lacks one of the attributes that have no default.
    """
    if name not in TASKS:
        raise ElmoError(f"task {name!r} is unknown; choose one of {', '.join(TASKS)}")
    # Every task's module imports this one for its base classes, so this one can only import them when it is asked.
    task = importlib.import_module(f"elmo.tasks.{name}.task").TASK
    # Python refuses to make a task without one of the methods, but says nothing of an attribute. Without this check, a
    # task without `metric` would fail after its first epoch.
    if missing := next((attribute for attribute in Task.__annotations__ if not hasattr(task, attribute)), None):
        raise ElmoError(f"task {name!r}: {type(task).__name__} has no attribute {missing}; set it in the class")
    return task


def load_task_recipe(task: str, recipe: str | None = None, settings: Mapping[str, object] | None = None) -> TaskRecipe:
    """Read the recipe of a task.

    Args:
        task: The name of the task.
        recipe: The name of a recipe of the package, or the path of a YAML file. None takes the task's own recipe.
        settings: Keys of the recipe to change, with dots, and their values: `{"training.max_epochs": 5}`.

    Returns:
        The recipe, of the task's own class.

    Raises:
        ElmoError: If the task or the recipe is unknown, or a key or value is not allowed.
    """
    return read_recipe(get_task(task).recipe, recipe or task, tuple(TASKS), settings)
