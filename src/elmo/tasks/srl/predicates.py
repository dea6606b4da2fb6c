"""Which words of a plain text are predicates: a rule of word forms alone, learned from the training set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

LONGEST_ENDING = 4
RARE = 3
"""Forms that training has this often or less tell how new ones behave."""
ENOUGH = 5
"""Occurrences that an ending must have to be believed."""


def count_predicates(sentences: Iterable[tuple[Sequence[str], Collection[int]]]) -> list[str]:
    """Each form of the sentences, in lower case, with how often it was a predicate and how often it was there at all:
    "run 13 15". `sentences` are tokens and the places of predicates."""
    predicates, tokens = Counter[str](), Counter[str]()
    for words, places in sentences:
        forms = [word.lower() for word in words]
        tokens.update(forms)
        predicates.update(forms[place] for place in set(places))
    return [f"{form} {predicates[form]} {number}" for form, number in tokens.most_common()]


class PredicateFinder:
    """Says that a word is a predicate if its form was one in at least half of its occurrences in training.

    A form that wasn't there is judged by its longest ending, of up to four letters, that forms had which were rare in
    training. `counts` are what `count_predicates` gives.
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
        """The places of the predicates."""
        return [place for place, token in enumerate(tokens) if self._is_predicate(token.lower())]

    def _is_predicate(self, form: str) -> bool:
        if form in self._known:
            return self._known[form]
        return next((self._endings[ending] for ending in _endings(form) if ending in self._endings), False)


def _endings(form: str) -> list[str]:
    """The endings of a form, the longest first, none of them the whole of it."""
    return [form[-length:] for length in range(LONGEST_ENDING, 0, -1) if length < len(form)]
