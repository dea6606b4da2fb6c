"""Notes for the user who starts a training, on what looks like a mistake in its data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

from elmo.formats.model import Model
from elmo.tasks.elmo.cache import as_read, reads_lower_case
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.task import Task
from elmo.text.suspicion import MOST_TOKENS, note_on_words

MOST_IN_BOTH = 0.5
"""A dev set gets a note if a larger share of its sentences is in the training set, too."""

FEWEST_SENTENCES = 50
"""Nothing is said about a dev set of fewer sentences."""


def notes_on_data(
    task: Task[Any, Any, Any],
    recipe: TaskRecipe,
    bilm: Model | None,
    train: tuple[str, Sequence[Any]],
    dev: tuple[str, Sequence[Any]],
) -> list[str]:
    """Return the notes, each a sentence that begins with the name of a file.

    Args:
        task: The task.
        recipe: Its recipe.
        bilm: The biLM; None without ELMo.
        train: The name of the training set's file, and its examples.
        dev: The same for the dev set.
    """
    (train_file, learned), (dev_file, measured) = train, dev
    on_train = [task.note_on_train(learned)]
    if bilm is not None:
        on_train += [_note_on_cut(task, recipe, bilm), _note_on_words(task, recipe, bilm, learned)]
    on_dev = [task.note_on_dev(learned, measured), _note_on_repeats(task, learned, measured)]
    return [f"{train_file}: {note}" for note in on_train if note] + [f"{dev_file}: {note}" for note in on_dev if note]


def _note_on_repeats(task: Task[Any, Any, Any], train: Sequence[Any], dev: Sequence[Any]) -> str | None:
    """Return a note on a dev set whose sentences are in the training set, as when one file is given for both."""
    known = set(map(tuple, task.all_sentences(train)))
    sentences = list(map(tuple, task.all_sentences(dev)))
    if len(sentences) < FEWEST_SENTENCES:
        return None
    share = sum(sentence in known for sentence in sentences) / len(sentences)
    if share <= MOST_IN_BOTH:
        return None
    return f"{share:.0%} of its sentences are in the training set, too, so scores on it say little about other text"


def _note_on_cut(task: Task[Any, Any, Any], recipe: TaskRecipe, bilm: Model) -> str | None:
    """Return a note on texts that are cut by another tokenizer than the training text of the biLM was."""
    own, name = bilm.text, task.tokenizer(recipe)
    if own is None or "whitespace" in (name, own.tokenizer) or name == own.tokenizer:
        return None
    return (
        f"is cut by tokenizer {name}, and the training text of the model was cut by {own.tokenizer}; to cut this in "
        f"the same way, set the recipe's key tokenizer (--set tokenizer={own.tokenizer})"
    )


def _note_on_words(task: Task[Any, Any, Any], recipe: TaskRecipe, bilm: Model, train: Sequence[Any]) -> str | None:
    """Return a note on a training set whose words are not those of the biLM, as in another language."""
    sentences = as_read(task.all_sentences(train), reads_lower_case(recipe.elmo, bilm.text))
    return note_on_words(bilm.text, bilm.vocabulary_file, list(islice(chain.from_iterable(sentences), MOST_TOKENS)))
