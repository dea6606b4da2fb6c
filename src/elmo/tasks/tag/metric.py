"""The scores of tags: those of the CoNLL 2018 shared task's evaluation script on words that are given.

Source: Zeman et al. 2018, sec. 5; https://universaldependencies.org/conll18/evaluation.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from elmo.tasks.common.scores import percent
from elmo.tasks.task import Scores
from elmo.text.conllu import EMPTY

UNIVERSAL = {
    *("Abbr", "Animacy", "Aspect", "Case", "Definite", "Degree", "Evident", "Foreign", "Gender", "Mood", "Number"),
    *("NumType", "Person", "Polarity", "Polite", "Poss", "PronType", "Reflex", "Tense", "VerbForm", "Voice"),
}
"""The features that the shared task compares: those that were universal in 2018. All others are ignored."""

ColumnValues = Mapping[str, Sequence[str]]
"""The values of all words of a set, by the name of the column."""


def split_features(feats: str) -> dict[str, str]:
    """Return the features of a word by name: {"Case": "Nom", "Number": "Sing"} for "Case=Nom|Number=Sing"."""
    if feats == EMPTY:
        return {}
    return {name: value for name, _, value in (item.partition("=") for item in feats.split("|"))}


def universal_features(feats: str) -> tuple[str, ...]:
    """Return what the shared task compares of a column of features."""
    return tuple(sorted(item for item in feats.split("|") if item.partition("=")[0] in UNIVERSAL))


_COMPARED: dict[str, Callable[[str], object]] = {"upos": str, "xpos": str, "feats": universal_features}
"""What is compared of the columns that belong to "all_tags"."""


def score_tags(gold: ColumnValues, predicted: ColumnValues) -> Scores:
    """Return the percentage of words that are right, for each column of `predicted`, and for several together.

    Args:
        gold: The right values of a set of at least one word.
        predicted: The predicted values.

    Returns:
        A score for each column, such as "upos" or "lemma". Where the right lemma is "_", any lemma is right. "all_tags"
        counts words whose `upos`, `xpos` and universal `feats` are all right, as far as they are predicted. "mean" is
        the mean over the columns. "feats/Case" is the F1 of the feature `Case`, whether or not it is universal.
    """
    right = {name: [*map(_comparison(name), gold[name], predicted[name])] for name in predicted}
    scores = {name: percent(sum(values), len(values)) for name, values in right.items()}
    together = [right[name] for name in _COMPARED if name in predicted]
    if len(together) > 1:
        scores["all_tags"] = percent(sum(map(all, zip(*together, strict=True))), len(together[0]))
    scores["mean"] = fmean(scores[name] for name in predicted)
    return scores | (_score_features(gold["feats"], predicted["feats"]) if "feats" in predicted else {})


def _comparison(name: str) -> Callable[[str, str], bool]:
    if name == "lemma":
        return lambda gold, found: gold in (EMPTY, found)
    change = _COMPARED.get(name, str)
    return lambda gold, found: change(gold) == change(found)


def _score_features(gold: Iterable[str], found: Iterable[str]) -> Scores:
    """Return the F1 of each feature: a word's value counts as found if the predicted one is the same."""
    totals: Counter[str] = Counter()
    matches: Counter[str] = Counter()
    for pair, number in Counter(zip(gold, found, strict=True)).items():
        right, predicted = map(split_features, pair)
        for name in [*right, *predicted]:
            totals[name] += number
        for name in right.keys() & predicted.keys():
            if right[name] == predicted[name]:
                matches[name] += number
    return {f"feats/{name}": percent(2 * matches[name], totals[name]) for name in sorted(totals)}
