"""Labelled texts: a label, a tab and the text on each line, JSON lines, or documents in CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from elmo.errors import ElmoError, placing
from elmo.tasks.common.columns import ColumnSentence, read_columns
from elmo.tasks.common.objects import (
    as_tokens,
    begins_object,
    get,
    is_list_of,
    read_object,
    two_columns_or_object,
    without_surrogates,
)
from elmo.text.decoding import read_lines
from elmo.text.rules import split_sentences
from elmo.text.tokenizers import Tokenizer

Sentences = tuple[tuple[str, ...], ...]

SEPARATOR = "|"
"""What separates several labels of a text."""

_HEADER = "label\ttext"


@dataclass(frozen=True)
class TextExample:
    """The sentences of a text, and its labels: sorted, each once, and none if they are unknown."""

    sentences: Sentences
    labels: tuple[str, ...] = ()


def read_texts(path: str | Path, tokenize: Tokenizer, *, several: bool) -> list[TextExample]:
    """Read the labelled texts of a file, plain or compressed, with one on each line.

    A line is `label<TAB>text`, or a JSON object with `label` or `labels`, and the text as `parse_text` reads it. A
    first line `label<TAB>text` is a header. Blank lines are skipped.

    Args:
        path: The file.
        tokenize: Cuts sentences into tokens.
        several: Whether a text may have any number of labels, as `a|b<TAB>text`, instead of exactly one.

    Raises:
        ElmoError: If a line has neither form, or another number of labels; the message names the line.
    """
    examples: list[TextExample] = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or (number == 1 and line.strip().lower() == _HEADER):
            continue
        with placing(f"{path}, line {number}"):
            examples.append(_read_line(line, tokenize, several))
    if not examples:
        raise ElmoError(f"{path}: holds no text; expected a label, a tab and a text on each line, or JSON objects")
    return examples


def read_labelled(path: str | Path, label_comment: str, *, several: bool) -> list[TextExample]:
    """Read the labelled documents of a file of CoNLL-U, whose words are given.

    The labels of a document are in a comment of its sentences, as in "# label = weather". A document begins at a
    comment "# newdoc" or, in a file that has none, at its labels. A file with neither is one document. A document
    without words is left out.

    Args:
        path: The file.
        label_comment: The key of the comment with the labels, which is "label" in this example.
        several: Whether a text may have any number of labels, as in "# label = a|b", instead of exactly one.

    Raises:
        ElmoError: If the file is no CoNLL-U, or a text has another number of labels.
    """
    examples: list[TextExample] = []
    for number, document in enumerate(_documents(path, label_comment), 1):
        values = [value for sentence in document for value in sentence.comments(label_comment)]
        labels = [label for value in values for label in value.split(SEPARATOR) if label.strip() or not several]
        named = next(iter(document[0].comments("newdoc id")), number)
        with placing(f"{path}, document {named}"):
            if not labels and not several:
                raise ElmoError(f"no comment '# {label_comment} = …' has its label; set label_comment in the recipe")
            examples.append(TextExample(_words(document), _checked_labels(labels, several)))
    if not examples:
        raise ElmoError(f"{path}: holds no text; expected CoNLL-U")
    return examples


def read_unlabelled(path: str | Path, label_comment: str, encoding: str = "utf-8") -> Iterator[TextExample]:
    """Yield the documents of a file of CoNLL-U, plain or compressed, without their labels (see `read_labelled`)."""
    return (TextExample(_words(document)) for document in _documents(path, label_comment, encoding))


def parse_text(line: str, tokenize: Tokenizer) -> Sentences:
    """Return the sentences of a line of plain text, or of a JSON object.

    The object has `text`, whose line ends end sentences too, `tokens`, which are one sentence, or `sentences`, which
    are lists of tokens.

    Raises:
        ElmoError: If the object has none of these keys, or there is no token.
    """
    return _sentences_of(read_object(line), tokenize) if begins_object(line) else _cut(line, tokenize)


def first_tokens(sentences: Sentences, num_tokens: int | None) -> Sentences:
    """Return the first `num_tokens` tokens of a text, or all of them if it is None."""
    if num_tokens is None:
        return sentences
    kept: list[tuple[str, ...]] = []
    for sentence in sentences:
        if num_tokens <= 0:
            break
        kept.append(sentence[:num_tokens])
        num_tokens -= len(sentence)
    return tuple(kept)


def _documents(path: str | Path, label_comment: str, encoding: str = "utf-8") -> Iterator[list[ColumnSentence]]:
    document: list[ColumnSentence] = []
    has_documents = False
    for sentence in read_columns(str(path), None, encoding):
        has_documents = has_documents or sentence.begins_document
        begins = sentence.begins_document if has_documents else bool(sentence.comments(label_comment))
        if document and begins:
            yield document
            document = []
        document.append(sentence)
    if document:
        yield document


def _words(document: Sequence[ColumnSentence]) -> Sentences:
    return tuple(sentence.tokens for sentence in document)


def _read_line(line: str, tokenize: Tokenizer, several: bool) -> TextExample:
    expected = "a label, a tab and a text, or a JSON object with label (or labels) and text"
    found = two_columns_or_object(line, expected)
    if isinstance(found, dict):
        return TextExample(_sentences_of(found, tokenize), _checked_labels(_labels_of(found), several))
    names, text = found
    labels = [label for label in names.split(SEPARATOR) if label.strip() or not several]
    return TextExample(_cut(text, tokenize), _checked_labels(labels, several))


def _labels_of(values: dict[str, object]) -> list[str]:
    """Return the labels of a JSON object. Whole numbers count as labels too, because many data sets number theirs."""
    labels = values["labels"] if "labels" in values else [values["label"]] if "label" in values else None
    if labels is None:
        raise ElmoError("key 'label' is missing; expected label, or labels with a list")
    if "label" in values and "labels" in values:
        raise ElmoError("has both keys, label and labels; remove one")
    if not is_list_of(labels, str) and not is_list_of(labels, int):
        raise ElmoError('expected {"label": a text or a whole number} or {"labels": [texts or whole numbers]}')
    return [without_surrogates(str(label)) for label in labels]


def _checked_labels(labels: Sequence[str], several: bool) -> tuple[str, ...]:
    """Return the labels of a text in order, each once, if they are labels and as many as there may be."""
    found = sorted({label.strip() for label in labels})
    for label in found:
        if not label:
            raise ElmoError("the label is empty")
        if any(mark in label for mark in f"{SEPARATOR}\t\n"):
            raise ElmoError(f"label {label!r}: holds a tab, a line end or {SEPARATOR!r}, which separates labels")
    if not several and len(found) != 1:
        names = f" ({', '.join(found)})" if found else ""
        raise ElmoError(
            f"the text has {len(found)} labels{names}; if texts may have any number of labels, set the "
            "recipe's key labels to several (labels=several)"
        )
    return tuple(found)


def _sentences_of(values: dict[str, object], tokenize: Tokenizer) -> Sentences:
    """Return the sentences of a JSON object."""
    if "sentences" in values:
        rows = values["sentences"]
        if not is_list_of(rows, list) or not all(is_list_of(row, str) for row in rows):
            raise ElmoError("key 'sentences': expected a list of sentences, each a list of tokens")
        return _without_empty(as_tokens(row, "sentences") for row in rows)
    if "tokens" in values:
        if not is_list_of(tokens := values["tokens"], str):
            raise ElmoError("key 'tokens': expected a list of texts")
        return _without_empty([as_tokens(tokens, "tokens")])
    if "text" not in values:
        raise ElmoError("key 'text' is missing; expected text, tokens or sentences")
    return _cut(get(values, "text", str), tokenize)


def _cut(text: str, tokenize: Tokenizer) -> Sentences:
    """Cut a text into sentences, which ELMo was trained on, and these into tokens."""
    parts = chain.from_iterable(map(split_sentences, text.splitlines()))
    return _without_empty(tuple(tokenize(part)) for part in parts)


def _without_empty(sentences: Iterable[tuple[str, ...]]) -> Sentences:
    """Leave out empty sentences. At least one other is needed, since pooling takes a mean over tokens."""
    found = tuple(filter(None, sentences))
    if not found:
        raise ElmoError("the text is empty")
    return found
