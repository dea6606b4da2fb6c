"""Predicates of plain text are found by the forms of words in training, and by the endings of new ones."""

from __future__ import annotations

from elmo.tasks.srl.predicates import PredicateFinder, count_predicates

SENTENCES = [
    (["They", "Run", "to", "run"], {1}),
    (["the", "run", "ended"], [2, 2]),
    (["booking", "parking", "hosting", "lasting", "morning", "sing"], (0, 1, 2, 3, 5)),
]


def test_counts_forms_in_lower_case() -> None:
    """A place given twice counts once."""
    counts = count_predicates(SENTENCES)
    assert counts[0] == "run 1 3"
    assert {"ended 1 1", "they 0 1", "morning 0 1", "sing 1 1"} < set(counts)
    assert len(counts) == 11


def test_known_forms_are_predicates_if_they_were_in_half_of_their_occurrences() -> None:
    find = PredicateFinder(["run 1 3", "walk 1 2", "see 9 9", "two words 1 1"])
    assert find(["RUN", "walk", "Walk", "see", "new", "two words"]) == [1, 2, 3, 5]
    assert find([]) == []


def test_new_forms_are_told_by_their_longest_ending_that_is_known_well() -> None:
    """-ing is one in five of six rare forms; -ning, in one form alone, is too rare to tell."""
    find = PredicateFinder(count_predicates(SENTENCES))
    assert find(["googling", "raining", "morning", "googled", "x"]) == [0, 1]
    assert PredicateFinder(["string 0 900", *count_predicates(SENTENCES)])(["googling"]) == [0]
    assert PredicateFinder([f"{letter}ing 0 2" for letter in "abcd"] + count_predicates(SENTENCES))(["mixing"]) == []
