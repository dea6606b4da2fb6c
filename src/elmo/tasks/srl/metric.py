"""Scores of arguments, as in the script srl-eval.pl of CoNLL-2005 (Carreras and Màrquez 2005)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from elmo.tasks.common.spans import Span, percent, precision_recall_f1
from elmo.tasks.srl.frames import VERB

CONTINUATION = "C-"
"""The prefix of the role of a span that continues the last argument with this role."""


class Argument(NamedTuple):
    """A role, and the tokens that fill it: `pieces` of (start, end), in order."""

    role: str
    pieces: tuple[tuple[int, int], ...]


def arguments_of(spans: Iterable[Span]) -> list[Argument]:
    """Return the arguments of a predicate, with continuations joined to what they continue.

    A continuation that has nothing to continue is an argument of its own.
    """
    found: list[tuple[str, list[tuple[int, int]]]] = []
    latest: dict[str, list[tuple[int, int]]] = {}
    for start, end, kind in sorted(spans):
        role = kind.removeprefix(CONTINUATION)
        if kind == role or role not in latest:
            latest[role] = []
            found.append((role, latest[role]))
        latest[role].append((start, end))
    return [Argument(role, tuple(pieces)) for role, pieces in found]


class ArgumentCounts:
    """Counts the correct, predicted and gold arguments of each role. `V` is not counted."""

    def __init__(self) -> None:
        self.right, self.found, self.wanted = Counter[str](), Counter[str](), Counter[str]()
        self.num_frames = self.num_perfect = 0

    def add(self, gold: Sequence[Span], predicted: Sequence[Span]) -> None:
        """Count the arguments of one predicate. An argument is correct if its role and all its pieces are."""
        wanted, found = ({a for a in arguments_of(spans) if a.role != VERB} for spans in (gold, predicted))
        for counter, arguments in ((self.right, wanted & found), (self.found, found), (self.wanted, wanted)):
            counter.update(argument.role for argument in arguments)
        self.num_frames += 1
        self.num_perfect += wanted == found

    def scores(self) -> dict[str, float]:
        """Return precision, recall and F1 in percent, and the percentage of predicates without a mistake.

        A score whose denominator is 0 is 0.
        """
        totals = precision_recall_f1(self.right.total(), self.found.total(), self.wanted.total())
        return totals | {"perfect": percent(self.num_perfect, self.num_frames)}

    def role_scores(self) -> dict[str, float]:
        """Return precision, recall and F1 of each role, as "precision/ROLE", "recall/ROLE" and "f1/ROLE"."""
        return {
            f"{name}/{role}": value
            for role in sorted(self.wanted | self.found)
            for name, value in precision_recall_f1(self.right[role], self.found[role], self.wanted[role]).items()
        }
