"""Text classification: labelled texts of up to a page, their scores, and what is written for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import cast

from elmo.tasks.classify.data import (
    SEPARATOR,
    TextExample,
    first_tokens,
    parse_text,
    read_labelled,
    read_texts,
    read_unlabelled,
)
from elmo.tasks.classify.model import ClassifyModel, ClassifyRecipe, LabelsPrediction, TextPrediction
from elmo.tasks.common.labels import LabelPrediction, combine_labels, label_line, mean_probabilities
from elmo.tasks.common.scores import percent
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.conllu import is_conllu
from elmo.text.tokenizers import Tokenizer, get_tokenizer
from elmo.wording import counted

FEWEST_TEXTS = 20
"""Nothing is said about the labels of fewer texts: one that occurs once is then no sign of a mistake."""


class Classify(Task[ClassifyRecipe, TextExample, TextPrediction]):
    """Reads labels with texts, and scores as scikit-learn does."""

    name = "classify"
    metric = "macro_f1"
    recipe = ClassifyRecipe
    model = ClassifyModel
    reading = ("tokenizer", "label_comment")
    reading_text = ("labels", "max_tokens")
    shared = ("labels", "max_tokens")
    layouts = ("conllu",)

    def read(self, path: str, recipe: ClassifyRecipe) -> list[TextExample]:
        """Read the labelled texts of a file, as far as the recipe's `max_tokens`."""
        if is_conllu(path):
            found = read_labelled(path, recipe.label_comment, several=recipe.several)
        else:
            found = read_texts(path, get_tokenizer(recipe.tokenizer), several=recipe.several)
        # What the model doesn't read need not be in caches and lists of words.
        return [replace(text, sentences=first_tokens(text.sentences, recipe.max_tokens)) for text in found]

    def read_layout(self, path: str, layout: str, recipe: ClassifyRecipe, encoding: str) -> Iterator[TextExample]:
        """Yield the documents of a file of CoNLL-U without their labels."""
        return read_unlabelled(path, recipe.label_comment, encoding)

    def tokenizer(self, recipe: ClassifyRecipe) -> str:
        """Return the recipe's tokenizer."""
        return recipe.tokenizer

    def parse(self, line: str, tokenize: Tokenizer) -> TextExample:
        """Make an example from a text, or from a JSON object with `text`, `tokens` or `sentences`."""
        return TextExample(parse_text(line, tokenize))

    def sentences(self, example: TextExample) -> Sequence[Sentence]:
        """Return the sentences of the text."""
        return example.sentences

    def note_on_gold(self, examples: Sequence[TextExample], recipe: ClassifyRecipe) -> str | None:
        """Return a note on a set without two texts with different labels."""
        if len({example.labels for example in examples}) > 1:
            return None
        labels = SEPARATOR.join(examples[0].labels)
        return f"has no two texts with different labels; each has {f'the label {labels!r}' if labels else 'none'}"

    def note_on_train(self, train: Sequence[TextExample]) -> str | None:
        """Return a note if there are more than half as many labels as texts, or if only one text has a label."""
        counts = Counter(label for example in train for label in example.labels)
        if len(train) >= FEWEST_TEXTS and len(counts) > len(train) / 2:
            return f"has {len(counts)} labels for {len(train)} texts; the label comes first, then a tab and the text"
        single = [label for label, number in counts.items() if number == 1]
        if not single or len(train) < FEWEST_TEXTS:
            return None
        others = f" and {counted(len(single) - 1, 'other')} occur" if len(single) > 1 else " occurs"
        return (
            f"the label {single[0]!r}{others} only once; is it misspelled, or is the first line a header, which has to "
            "be 'label', a tab and 'text'?"
        )

    def note_on_dev(self, train: Sequence[TextExample], dev: Sequence[TextExample]) -> str | None:
        """Return a note on labels that no text of the training set has."""
        known = {label for example in train for label in example.labels}
        unknown = Counter(label for example in dev for label in example.labels if label not in known)
        if not unknown:
            return None
        label = unknown.most_common(1)[0][0]
        return f"has {counted(unknown.total(), 'label')} that the training set lacks, such as {label!r}"

    def note_on_plain(self, model: TaskModel[TextExample, TextPrediction], sample: str) -> str | None:
        """Return a note on texts that have labels of the model before them, as in a file to train or evaluate with."""
        columns = [line.partition("\t") for line in sample.split("\n") if line.strip()]
        known = set(cast("ClassifyModel", model).labels)
        named = [label for label, tab, _ in columns if tab and known.issuperset(map(str.strip, label.split(SEPARATOR)))]
        if len(named) <= len(columns) / 2:
            return None
        return (
            f"most lines begin with a label of the model, such as {named[0]!r}, which is read as a part of the text; "
            "leave that column out, or score the file with 'elmo task evaluate'"
        )

    def vocabularies(
        self, train: Sequence[TextExample], recipe: ClassifyRecipe, file_words: FileWords | None = None
    ) -> Vocabularies:
        """Return the `labels`, how many texts have each (`label_counts`), `num_texts`, and the `words`."""
        counts = sorted(Counter(label for example in train for label in example.labels).items())
        return {
            "labels": [label for label, _ in counts],
            "label_counts": [str(count) for _, count in counts],
            "num_texts": [str(len(train))],
            "words": choose_words(self.all_sentences(train), recipe.words, file_words),
        }

    def combine(self, recipe: ClassifyRecipe, predictions: Sequence[TextPrediction]) -> TextPrediction:
        """Combine predictions by the mean of their probabilities."""
        if recipe.several:
            return LabelsPrediction.of(mean_probabilities([prediction.probabilities for prediction in predictions]))
        return combine_labels(cast("Sequence[LabelPrediction]", predictions))

    def score(self, examples: Sequence[TextExample], predictions: Sequence[TextPrediction]) -> Scores:
        """Return accuracy, macro F1, micro F1 and the F1 of each label (see `score_texts`)."""
        return score_texts([example.labels for example in examples], list(map(_labels, predictions)))

    def as_text(self, example: TextExample, prediction: TextPrediction) -> str:
        """Write a line with the labels, and after tabs each label's probability as label=0.123, the highest first."""
        ranked = dict(sorted(prediction.probabilities.items(), key=lambda item: -item[1]))
        return label_line(SEPARATOR.join(_labels(prediction)), ranked)

    def as_json(self, example: TextExample, prediction: TextPrediction) -> dict[str, object]:
        """Return `sentences`, `probabilities` by label, and `label`, or a list of `labels` if there may be several."""
        name = "label" if isinstance(prediction, LabelPrediction) else "labels"
        found = prediction.label if isinstance(prediction, LabelPrediction) else list(prediction.labels)
        sentences = list(map(list, example.sentences))
        return {"sentences": sentences, name: found, "probabilities": prediction.probabilities}


def score_texts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Scores:
    """Return the scores of sets of labels in percent.

    A label that the model doesn't know counts as any other: it is never found.

    Args:
        gold: The true labels of each text, each once; at least one text.
        predicted: The predicted labels.

    Returns:
        "accuracy", the share of texts whose labels are all right and none is missing; "macro_f1", the mean F1 of all
        labels that are true or predicted somewhere; "micro_f1", the F1 of all pairs of a text and a label; and
        "f1/A" for each label A that is true somewhere. Without any label, both F1 are 0.
    """
    true = Counter(chain.from_iterable(gold))
    found = Counter(chain.from_iterable(predicted))
    right = Counter(chain.from_iterable(set(a) & set(b) for a, b in zip(gold, predicted, strict=True)))
    # F1 = 2 right / (true + found), the harmonic mean of precision and recall.
    f1 = {label: percent(2 * right[label], true[label] + found[label]) for label in sorted(true | found)}
    return {
        "accuracy": 100 * fmean(set(a) == set(b) for a, b in zip(gold, predicted, strict=True)),
        "macro_f1": fmean(f1.values()) if f1 else 0.0,
        "micro_f1": percent(2 * right.total(), true.total() + found.total()),
        **{f"f1/{label}": f1[label] for label in f1 if true[label]},
    }


def _labels(prediction: TextPrediction) -> tuple[str, ...]:
    return (prediction.label,) if isinstance(prediction, LabelPrediction) else prediction.labels


TASK = Classify()
