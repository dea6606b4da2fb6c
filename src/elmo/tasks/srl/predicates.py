"""Finds predicates in plain text by a rule over word forms alone, learned from the training set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

LONGEST_ENDING = 4
RARE = 3
"""Forms that occur in training at most this often tell how unknown forms behave."""
ENOUGH = 5
"""The number of occurrences that an ending must have to be used."""


def count_predicates(sentences: Iterable[tuple[Sequence[str], Collection[int]]]) -> list[str]:
    """Count how often each form was a predicate and how often it occurred, in lower case: "run 13 15".

    `sentences` are tokens and the indices of predicates.
    """
    predicates, tokens = Counter[str](), Counter[str]()
    for words, places in sentences:
        forms = [word.lower() for word in words]
        tokens.update(forms)
        predicates.update(forms[place] for place in set(places))
    return [f"{form} {predicates[form]} {number}" for form, number in tokens.most_common()]


class PredicateFinder:
    """Takes a word for a predicate if its form was one in at least half of its occurrences in training.

    An unknown form is judged by its ending: the longest one, of up to four letters, that was frequent enough among rare
    forms of the training set. `counts` are what `count_predicates` returns.
    """

    def __init__(self, counts: Iterable[str]) -> None:
        self._known: dict[str, bool] = {}
        predicates, tokens = Counter[str](), Counter[str]()
        for line in counts:
            form, *numbers = line.rsplit(" ", 2)
            hits, total = map(int, numbers)
            self._known[form] = 2 * hits >= total
            for ending in _endings(form) if total <= RARE else ():
                predicates[ending] += hits
                tokens[ending] += total
        self._endings = {ending: 2 * predicates[ending] >= n for ending, n in tokens.items() if n >= ENOUGH}

    def __call__(self, tokens: Sequence[str]) -> list[int]:
        """Return the indices of the predicates."""
        return [place for place, token in enumerate(tokens) if self._is_predicate(token.lower())]

    def _is_predicate(self, form: str) -> bool:
        if form in self._known:
            return self._known[form]
        return next((self._endings[ending] for ending in _endings(form) if ending in self._endings), False)


def _endings(form: str) -> list[str]:
    """Return the proper endings of a form, the longest first."""
    return [form[-length:] for length in range(LONGEST_ENDING, 0, -1) if length < len(form)]
