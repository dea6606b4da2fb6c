"""Exact match and F1 are those that were worked out by hand."""

from __future__ import annotations

import pytest

from elmo.tasks.squad.metric import exact_match, f1, normalize, score_answers


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("The Cat", ["cat"]),
        ("an A and the", ["and"]),
        ("theatre another a1", ["theatre", "another", "a1"]),  # articles are whole words
        ("the-end", ["theend"]),  # punctuation is removed first, which joins what it separated
        ("U.S.A.", ["usa"]),
        ("a.", []),
        ("$1,000.50", ["100050"]),
        ("don't", ["dont"]),
        ("don’t", ["don’t"]),  # only ASCII punctuation is removed
        ("“Über” – ÉTÉ", ["“über”", "–", "été"]),
        ("«the» x", ["«", "»", "x"]),  # an article is removed between marks that stay, and leaves a blank
        ("_a_ b", ["b"]),  # the underscore is punctuation, which is removed before articles
        (" two\u00a0words\n", ["two", "words"]),  # any whitespace separates words
    ],
)
def test_answers_are_normalized(answer: str, words: list[str]) -> None:
    assert normalize(answer) == words


@pytest.mark.parametrize(
    ("answer", "gold", "wanted", "same"),
    [
        ("the cat", "A cat!", 1, 1),
        ("black cat", "cat", 2 * (1 / 2) * 1 / (1 / 2 + 1), 0),
        ("cat cat dog", "cat dog dog", 2 / 3, 0),  # a word counts as often as both have it
        ("cat", "dog", 0, 0),
        ("dog black", "black dog", 1, 0),  # only exact match depends on the order
        ("the", "a", 0, 1),  # both are empty, which is a match without a word in common
        ("the", "cat", 0, 0),
    ],
)
def test_an_answer_is_compared_with_a_right_one_word_by_word(
    answer: str, gold: str, wanted: float, same: float
) -> None:
    assert f1(answer, gold) == pytest.approx(wanted)
    assert exact_match(answer, gold) == same


def test_the_best_of_several_right_answers_counts() -> None:
    """The best is chosen for each figure: "old" has a better F1 with its second answer, but no exact match."""
    golds = [["dog", "the cat"], ["very old house", "old house"], ["x"]]
    scores = score_answers(golds, ["cat", "old", "y"])
    assert scores == {"f1": pytest.approx(100 * (1 + 2 / 3 + 0) / 3), "exact_match": pytest.approx(100 / 3)}
