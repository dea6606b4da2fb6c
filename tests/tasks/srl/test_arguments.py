"""Arguments are counted as srl-eval.pl of CoNLL-2005 counts them; cases whose counts can be followed by hand."""

from __future__ import annotations

import pytest

from elmo.tasks.common.spans import Span
from elmo.tasks.srl.metric import Argument, ArgumentCounts, arguments_of

V = Span(2, 3, "V")


def counts(gold: list[Span], predicted: list[Span]) -> tuple[int, int, int, bool]:
    """Right, found, wanted, and whether the predicate is perfect."""
    found = ArgumentCounts()
    found.add([*gold, V], [*predicted, V])
    return found.right.total(), found.found.total(), found.wanted.total(), found.num_perfect == 1


def test_continuations_are_joined() -> None:
    """With the last argument of their role; the first of nothing is an argument, which others go on with."""
    spans = [Span(0, 1, "A0"), Span(2, 3, "C-A0"), Span(3, 4, "A0"), Span(4, 6, "C-A0"), Span(6, 7, "C-A0")]
    assert arguments_of(spans) == [Argument("A0", ((0, 1), (2, 3))), Argument("A0", ((3, 4), (4, 6), (6, 7)))]
    orphans = [Span(0, 1, "C-A1"), Span(2, 3, "C-A1"), Span(3, 4, "R-A1"), Span(5, 6, "C-R-A1"), Span(6, 7, "C-V")]
    assert arguments_of(orphans) == [
        Argument("A1", ((0, 1), (2, 3))),
        Argument("R-A1", ((3, 4), (5, 6))),
        Argument("V", ((6, 7),)),
    ]


@pytest.mark.parametrize(
    ("gold", "predicted", "wanted"),
    [
        ([], [], (0, 0, 0, True)),
        ([Span(0, 2, "A0")], [Span(0, 2, "A0")], (1, 1, 1, True)),
        ([Span(0, 2, "A0")], [Span(0, 2, "A1")], (0, 1, 1, False)),
        ([Span(0, 2, "A0")], [Span(0, 1, "A0")], (0, 1, 1, False)),
        ([Span(0, 2, "A0")], [], (0, 0, 1, False)),
        ([], [Span(0, 2, "A0")], (0, 1, 0, False)),
        # both pieces are one argument: right with both of them, wrong with one
        ([Span(0, 2, "A1"), Span(3, 5, "C-A1")], [Span(0, 2, "A1"), Span(3, 5, "C-A1")], (1, 1, 1, True)),
        ([Span(0, 2, "A1"), Span(3, 5, "C-A1")], [Span(0, 2, "A1")], (0, 1, 1, False)),
        ([Span(0, 2, "A1"), Span(3, 5, "C-A1")], [Span(0, 2, "A1"), Span(3, 5, "A1")], (0, 2, 1, False)),
        # from the same first to the same last token, yet not the same pieces
        ([Span(0, 5, "A1")], [Span(0, 2, "A1"), Span(3, 5, "C-A1")], (0, 1, 1, False)),
        # a continuation of nothing is as good as the argument itself
        ([Span(0, 2, "A1")], [Span(0, 2, "C-A1")], (1, 1, 1, True)),
        # a reference is no argument of the role that it refers to
        ([Span(0, 1, "R-A0")], [Span(0, 1, "A0")], (0, 1, 1, False)),
        # the predicate doesn't count, nor does what continues it
        ([Span(3, 4, "C-V")], [], (0, 0, 0, True)),
    ],
)
def test_counts(gold: list[Span], predicted: list[Span], wanted: tuple[int, int, int, bool]) -> None:
    assert counts(gold, predicted) == wanted


def test_figures() -> None:
    """Of three predicates: the script prints 66.67, 40.00, 50.00 overall, 33.33 perfect, and these for the roles."""
    found = ArgumentCounts()
    found.add([Span(0, 1, "A0"), V, Span(3, 4, "A1"), Span(5, 6, "C-A1")], [Span(0, 1, "A0"), V, Span(3, 4, "A1")])
    found.add([Span(0, 1, "A0"), V, Span(3, 4, "R-A0"), Span(4, 5, "A1")], [Span(0, 1, "A0"), V])
    found.add([V], [V])
    scores = found.scores() | found.role_scores()
    assert {name: round(value, 2) for name, value in scores.items()} == {
        "precision": 66.67,
        "recall": 40.0,
        "f1": 50.0,
        "perfect": 33.33,
        "precision/A0": 100.0,
        "recall/A0": 100.0,
        "f1/A0": 100.0,
        "precision/A1": 0.0,
        "recall/A1": 0.0,
        "f1/A1": 0.0,
        "precision/R-A0": 0.0,
        "recall/R-A0": 0.0,
        "f1/R-A0": 0.0,
    }


def test_nothing_to_count() -> None:
    assert ArgumentCounts().scores() == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "perfect": 0.0}
