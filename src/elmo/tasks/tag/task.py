"""Tagging: reads CoNLL-U or columns, scores as the CoNLL 2018 shared task does, and writes all back with new tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from elmo.errors import ElmoError
from elmo.tasks.common.columns import ColumnSentence, from_text, read_columns
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.tag.lemma_rules import LemmaRule
from elmo.tasks.tag.metric import score_tags
from elmo.tasks.tag.model import TagModel, TagPrediction, TagRecipe
from elmo.tasks.task import Scores, Sentence, Task, Vocabularies
from elmo.text.conllu import EMPTY
from elmo.text.tokenizers import Tokenizer

MOST_UNKNOWN = 0.1
"""A dev set gets a note if a larger share of its words has a part of speech that the training set lacks.

There are few parts of speech, so hardly any word should have a new one.
"""


class Tag(Task[TagRecipe, ColumnSentence, TagPrediction]):
    """Reads CoNLL-U or columns, scores as the CoNLL 2018 shared task does, and keeps what it doesn't predict."""

    name = "tag"
    metric = "mean"
    recipe = TagRecipe
    model = TagModel
    reading = ("columns",)
    reading_text = ("targets",)  # which must be among the columns
    takes_sentence = True
    layouts = ("conllu", "columns")

    def read(self, path: str, recipe: TagRecipe) -> list[ColumnSentence]:
        """Read the sentences of a file of CoNLL-U, or of the recipe's columns."""
        if examples := list(read_columns(path, recipe.columns)):
            return examples
        raise ElmoError(f"{path}: holds no sentence; expected {'columns' if recipe.columns else 'CoNLL-U'}")

    def read_layout(self, path: str, layout: str, recipe: TagRecipe, encoding: str) -> Iterator[ColumnSentence]:
        """Yield the sentences of a file of CoNLL-U, or of the recipe's columns."""
        if layout == "columns" and recipe.columns is None:
            raise ElmoError(f"{path}: the model was trained on CoNLL-U, so no columns are known; use `layout='conllu'`")
        return read_columns(path, None if layout == "conllu" else recipe.columns, encoding)

    def parse(self, line: str, tokenize: Tokenizer) -> ColumnSentence:
        """Make an example from a sentence."""
        return from_text(line, tokenize)

    def sentences(self, example: ColumnSentence) -> Sequence[Sentence]:
        """Return the one sentence of the example."""
        return [example.tokens]

    def note_on_gold(self, examples: Sequence[ColumnSentence], recipe: TagRecipe) -> str | None:
        """Return a note on a set that has no value other than `_` in the recipe's targets."""
        values = chain.from_iterable(example.column(target) for target in recipe.targets for example in examples)
        has_gold = any(value != EMPTY for value in values)
        return None if has_gold else f"has no value in its columns {', '.join(recipe.targets)}"

    def note_on_dev(self, train: Sequence[ColumnSentence], dev: Sequence[ColumnSentence]) -> str | None:
        """Return a note on parts of speech that the training set lacks, as if columns were in another order."""
        if not all("upos" in example.names for example in (*train, *dev)):
            return None
        known = set(chain.from_iterable(example.column("upos") for example in train))
        values = list(chain.from_iterable(example.column("upos") for example in dev))
        share = sum(value not in known for value in values) / len(values)
        if share <= MOST_UNKNOWN:
            return None
        return f"{share:.0%} of its words have an upos that the training set lacks; are the columns in the same order?"

    def vocabularies(
        self, train: Sequence[ColumnSentence], recipe: TagRecipe, file_words: FileWords | None = None
    ) -> Vocabularies:
        """Return the `targets`, the `labels of` each, and the `words` with a vector of their own, those of files first.

        The labels of lemmas are rules, written as text. There are `lemmas` as well then, those of the training set.
        """
        labels: dict[str, list[str]] = {}
        lemmas: set[str] = set()
        for target in recipe.targets:
            if target == "lemma":
                values, lemmas = _lemma_rules(train, recipe.min_rule_count)
            else:
                values = set(chain.from_iterable(example.column(target) for example in train))
            if values - {EMPTY}:
                labels[target] = sorted(values)
        if not labels:
            raise ElmoError(f"the training set has no value in its columns {', '.join(recipe.targets)}")
        return {
            "targets": list(labels),
            **{f"labels of {target}": values for target, values in labels.items()},
            **({"lemmas": sorted(lemmas)} if "lemma" in labels else {}),
            "words": choose_words(self.all_sentences(train), recipe.words, file_words),
        }

    def score(self, examples: Sequence[ColumnSentence], predictions: Sequence[TagPrediction]) -> Scores:
        """Return the percentage of words that are right for each target, and more (see `metric.score_tags`).

        Targets for which the examples have no value are left out, of the mean too, unless there is no other.
        """
        gold = {t: [value for example in examples for value in example.column(t)] for t in predictions[0]}
        targets = [t for t, values in gold.items() if any(value != EMPTY for value in values)] or list(gold)
        return score_tags(gold, {t: [value for found in predictions for value in found[t]] for t in targets})

    def as_text(self, example: ColumnSentence, prediction: TagPrediction) -> str:
        """Write the lines that were read, with the predicted columns in place of theirs."""
        return example.with_columns(prediction)

    def as_json(self, example: ColumnSentence, prediction: TagPrediction) -> dict[str, object]:
        """Return `tokens`, and a list of values for each target."""
        return {"tokens": list(example.tokens), **{name: list(values) for name, values in prediction.items()}}


def _lemma_rules(train: Sequence[ColumnSentence], min_count: int) -> tuple[set[str], set[str]]:
    """Return the rules, as text, that occur often enough in a training set, and its lemmas.

    Both are empty if it has no lemmas. A word that is spelled like an empty value has a rule of its own, but that alone
    teaches nothing.

    Raises:
        ElmoError: If there are lemmas, but no rule occurs `min_count` times.
    """
    pairs = Counter(pair for e in train for pair in zip(e.tokens, e.column("lemma"), strict=True))
    known = {(form, lemma): count for (form, lemma), count in pairs.items() if form == EMPTY or lemma != EMPTY}
    lemmas = {lemma for _, lemma in known}
    if not lemmas - {EMPTY}:
        return set(), set()
    counts = Counter[str]()
    for (form, lemma), count in known.items():
        counts[str(LemmaRule.of(form, lemma))] += count
    rules = {rule for rule, count in counts.items() if count >= min_count}
    if not rules:
        raise ElmoError(
            f"min_rule_count: no rule for lemmas occurs {min_count} times in the training set; choose a lower number"
        )
    return rules, lemmas


TASK = Tag()
