"""What `elmo task predict` reads: examples without answers, from plain text or in a task's own format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elmo.cli.shared import print_note
from elmo.errors import ElmoError
from elmo.tasks.task import Task, parse_pieces
from elmo.tasks.trained import TrainedTask
from elmo.text.choice import note_on_pipes, note_on_sentences, sample_of
from elmo.text.decoding import read_lines
from elmo.text.languages import require_language_code
from elmo.text.opening import kind_by_name
from elmo.text.reading import SPLIT, Reading, raw_sentences
from elmo.text.suspicion import note_on_layout
from elmo.text.tokenizers import get_tokenizer, language_of

PLAIN = "plain"
"""The value of `--text` for text without any format."""

CHUNK, CHUNK_TOKENS = 512, 16_384
"""The largest number of examples that are predicted together, and roughly that of their tokens.

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
            "if the file holds plain text"
        )
    return next((known for known in task.layouts if kind == f".{known}"), PLAIN)


def read_unanswered(
    trained: TrainedTask[Any, Any],
    path: str,
    layout: str,
    encoding: str,
    tokenizer: str | None = None,
    language: str | None = None,
) -> Iterator[Any]:
    """Return the examples of a file, which are read one by one.

    Args:
        trained: A trained model.
        path: The file, or "-".
        layout: `PLAIN`, one of the task's `layouts`, or one of `reading.SPLIT` if an example is made from a sentence.
        encoding: The encoding of the file.
        tokenizer: The name of the tokenizer for plain text. None takes the one that fits the training set.
        language: The language by whose rules paragraphs are split. None takes that of the tokenizer, or of the text
            that the biLM was trained on.

    Raises:
        ElmoError: If the task has no such layout, or the tokenizer or the language is unknown or has nothing to do.
    """
    task = trained.task
    known = (PLAIN, *(SPLIT if task.takes_sentence else ()), *task.layouts)
    if layout not in known:
        raise ElmoError(f"--text {layout}: {task.name} reads {', '.join(known)}")
    if language is not None and layout not in SPLIT:
        raise ElmoError(
            f"--language {language}: {path} is read as {layout}, which is not split into sentences; leave it out"
        )
    if layout in task.layouts:
        if tokenizer is not None:
            raise ElmoError(f"--tokenizer {tokenizer}: {path} is read as {layout}, whose words are given; leave it out")
        return task.read_layout(path, layout, trained.recipe, encoding)
    require_language_code(language)
    sample = sample_of([path], encoding)
    notes: list[str | None] = []
    if tokenizer is None:
        tokenizer = trained.tokenizer_for(None if sample is None else sample.text)
        if sample is None and tokenizer == "whitespace":
            notes.append(note_on_pipes(trained.text, [path]))
    if sample is not None:
        notes.append(task.note_on_plain(trained.model, sample.text))
        # Only for tasks of sentences that also read CoNLL-U, because the note may recommend it.
        if task.takes_sentence and "conllu" in task.layouts:
            notes.append(note_on_layout(sample.text, layout if layout in SPLIT else "sentences"))
    if layout in SPLIT:
        language = language or language_of(tokenizer) or (trained.text and trained.text.language)
        notes.append(note_on_sentences(layout, language))
        pieces = raw_sentences(path, Reading(text=layout, encoding=encoding, language=language))
    else:
        pieces = task.pieces(read_lines(path, encoding))
    for note in filter(None, notes):
        print_note(path, note)
    return parse_pieces(task, pieces, path, get_tokenizer(tokenizer))
