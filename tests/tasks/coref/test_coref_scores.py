"""Coreference is scored as in the official scorer's test cases, and by the definitions."""

from __future__ import annotations

from itertools import permutations
from statistics import harmonic_mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.coref.data import Clusters, Mention
from elmo.tasks.coref.metric import AVERAGED, score_clusters

Figures = tuple[float, float]
"""Recall and precision."""

ABC, ALL, SINGLE = "a bc def", "abcdef", "a b c d e f"

CASES: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "A-1": (ABC, ABC, (100, 100, 100, 100, 100, 100)),
    "A-2": (ABC, "a de", (33.333, 100, 38.889, 100, 60, 90)),
    "A-3": (ABC, "a bcx defy z", (100, 60, 100, 50.926, 88.571, 66.429)),
    "A-4": (ABC, "a bcx dy z", (33.333, 33.333, 55.556, 40.476, 73.333, 55)),
    "A-5": (ABC, "a bcxB dy z", (33.333, 25, 55.556, 31.25, 68.889, 51.667)),
    "A-6": (ABC, "a bcx dy Bz", (33.333, 25, 55.556, 35.417, 73.333, 55)),
    "A-7": (ABC, "a bcxb dy z", (33.333, 33.333, 55.556, 40.476, 73.333, 55)),
    "A-8": (ABC, "a bcx dy bz", (33.333, 33.333, 55.556, 40.476, 73.333, 55)),
    "A-9": (ABC, "a bcx dy bbbbbbbbbbz", (33.333, 33.333, 55.556, 40.476, 73.333, 55)),
    "A-10": (ABC, SINGLE, (0, 0, 50, 100, 72.222, 36.111)),
    "A-11": (ABC, ALL, (100, 60, 100, 38.889, 22.222, 66.667)),
    "A-12": (ABC, "a x y c d e z", (0, 0, 36.111, 57.143, 72.222, 30.952)),
    "A-13": (ABC, "axycdez", (33.333, 16.667, 47.222, 12.245, 13.333, 40)),
    "B-1": ("ab cde", "bcx de", (33.333, 33.333, 43.333, 53.333, 60, 60)),
    "C-1": ("ab cde fg", "bcx de fg", (50, 50, 59.524, 66.667, 73.333, 73.333)),
    "D-1": ("12345 67 89ABC", "12345 6789ABC", (100, 90, 100, 76.19, 61.111, 91.667)),
    "E-1": ("12345 67 89ABC", "1234589ABC 67", (100, 90, 100, 58.333, 55.556, 83.333)),
    "F-1": ("ABCD", "AB CD", (66.667, 100, 50, 100, 66.667, 33.333)),
    "G-1": ("AB CD", "ABCD", (100, 66.667, 100, 50, 33.333, 66.667)),
    "H-1": ("ABCD", "ABCD", (100, 100, 100, 100, 100, 100)),
    "I-1": ("ABCD", "AB CD", (66.667, 100, 50, 100, 66.667, 33.333)),
    "J-1": ("ABC", "AC", (50, 100, 44.444, 100, 80, 80)),
    "K-1": ("BCDEGHJ", "ABC DEF GHI", (50, 50, 24.49, 44.444, 40, 13.333)),
    "L-1": ("ABC DEFG", "AB CD FGH", (40, 50, 41.667, 61.905, 68.571, 45.714)),
    "M-1": (ALL, ALL, (100, 100, 100, 100, 100, 100)),
    "M-2": (ALL, SINGLE, (0, 0, 16.667, 100, 28.571, 4.762)),
    "M-3": (ALL, "ab cde f", (60, 100, 38.889, 100, 66.667, 22.222)),
    "M-4": (ALL, "abcxyz", (40, 40, 25, 25, 50, 50)),
    "M-5": (ALL, "a b c x y z", (0, 0, 8.333, 50, 28.571, 4.762)),
    "M-6": (ALL, "ab cxy z", (20, 33.333, 13.889, 38.889, 50, 16.667)),
    "N-1": (SINGLE, SINGLE, (0, 0, 100, 100, 100, 100)),
    "N-2": (SINGLE, ALL, (0, 0, 100, 16.667, 4.762, 28.571)),
    "N-3": (SINGLE, "ab cde f", (0, 0, 100, 50, 36.111, 72.222)),
    "N-4": (SINGLE, "a b c x y z", (0, 0, 50, 50, 50, 50)),
    "N-5": (SINGLE, "abcxyz", (0, 0, 50, 8.333, 4.762, 28.571)),
    "N-6": (SINGLE, "ab cxy z", (0, 0, 50, 22.222, 19.444, 38.889)),
}
"""The official scorer's test cases TC-… have a key and a response, as clusters of letters, and what version 8.01 gives:
recall and precision of MUC, of B³ and of CEAF-e. B is a mention that overlaps b. A letter that is repeated in a
response is the same mention."""


def clusters(text: str) -> Clusters:
    """Return clusters with a mention for each letter."""
    return tuple(tuple(Mention(ord(letter), ord(letter) + 1) for letter in word) for word in text.split())


@pytest.mark.parametrize("case", CASES)
def test_published_cases(case: str) -> None:
    """Scores agree to the three digits that are given here."""
    key, response, figures = CASES[case]
    scores = score_clusters([clusters(key)], [clusters(response)])
    found = [scores[f"{metric}_{figure}"] for metric in AVERAGED for figure in ("recall", "precision")]
    assert found == pytest.approx(figures, abs=6e-4)


def test_a_mention_that_the_key_lacks_counts_as_often_as_it_is_found() -> None:
    """The official scorer removes repetitions of the key's mentions alone. These are its figures."""
    scores = score_clusters([clusters("ab")], [clusters("ac bc")])
    assert (scores["b3_recall"], scores["b3_precision"]) == (50, 25)
    assert (scores["ceafe_recall"], scores["ceafe_precision"]) == (50, 25)
    assert (scores["mentions_recall"], scores["mentions_precision"]) == pytest.approx((100, 200 / 3))
    repeated = score_clusters([clusters("ab")], [clusters("ab ac")])
    assert (repeated["b3_precision"], repeated["ceafe_precision"]) == pytest.approx((200 / 3, 50))


def test_a_cluster_that_is_given_twice_counts_once() -> None:
    key, response = clusters("ab cd"), clusters("ab cx")
    assert score_clusters([key], [(*response, response[0])]) == score_clusters([key], [response])


def plain_scores(key: Clusters, response: Clusters) -> dict[str, Figures]:
    """Return recall and precision by their definitions, over every pair and assignment. No mention may occur twice."""

    def muc(a: Clusters, b: Clusters) -> float:
        links = sum(len(cluster) - 1 for cluster in a)
        parts = 0
        for cluster in a:
            inside = [{m for m in cluster if m in other} for other in b]
            parts += sum(map(bool, inside)) + len(cluster) - sum(map(len, inside))
        return (sum(map(len, a)) - parts) / links if links else 0

    def b3(a: Clusters, b: Clusters) -> float:
        shares = [
            max((len({*cluster} & {*other}) for other in b if mention in other), default=0) / len(cluster)
            for cluster in a
            for mention in cluster
        ]
        return sum(shares) / len(shares) if shares else 0

    def ceafe(a: Clusters, b: Clusters) -> float:
        short, long = sorted([a, b], key=len)
        best = max(
            sum(2 * len({*x} & {*y}) / (len(x) + len(y)) for x, y in zip(short, order, strict=False))
            for order in permutations(long, len(short))
        )
        return best / len(a) if a else 0

    return {
        name: (metric(key, response), metric(response, key))
        for name, metric in zip(AVERAGED, (muc, b3, ceafe), strict=True)
    }


partitions = st.lists(st.integers(0, 4), min_size=9, max_size=9).map(
    lambda of: tuple(
        cluster
        for number in range(4)
        if (cluster := tuple(Mention(place, place + 1) for place, own in enumerate(of) if own == number))
    )
)
"""Clusters of some of nine mentions. A mention with the number 4 is in none."""


@given(partitions, partitions)
def test_scores_equal_their_definitions(key: Clusters, response: Clusters) -> None:
    """The tolerance of 1e-9 is float64 rounding."""
    scores = score_clusters([key], [response])
    for name, figures in plain_scores(key, response).items():
        assert (scores[f"{name}_recall"], scores[f"{name}_precision"]) == pytest.approx(
            (100 * figures[0], 100 * figures[1]), abs=1e-9
        )
    wanted, found = ({mention for cluster in side for mention in cluster} for side in (key, response))
    assert scores["mentions_recall"] == pytest.approx(100 * len(wanted & found) / len(wanted) if wanted else 0)
    assert scores["mentions_precision"] == pytest.approx(100 * len(wanted & found) / len(found) if found else 0)
    for name in (*AVERAGED, "mentions"):
        both = scores[f"{name}_recall"], scores[f"{name}_precision"]
        assert scores[f"{name}_f1"] == pytest.approx(harmonic_mean(both), abs=1e-9)
    assert scores["f1"] == pytest.approx(sum(scores[f"{name}_f1"] for name in AVERAGED) / 3)


@given(partitions, partitions)
def test_key_and_response_are_recall_and_precision(key: Clusters, response: Clusters) -> None:
    """Recall and precision change places if key and response do."""
    there, back = score_clusters([key], [response]), score_clusters([response], [key])
    for name in AVERAGED:
        assert there[f"{name}_recall"] == pytest.approx(back[f"{name}_precision"])


def test_documents_count_together() -> None:
    """Numerators and denominators are added up. The result is not the mean of the documents' scores."""
    scores = score_clusters([clusters("ab"), clusters("abcdef")], [clusters("ab"), clusters("ab")])
    assert scores["muc_recall"] == pytest.approx(100 * 2 / 6)
    assert scores["b3_recall"] == pytest.approx(100 * (2 + 2 / 3) / 8)
    assert scores["mentions_recall"] == pytest.approx(100 * 4 / 8)
    assert score_clusters([clusters("ab"), clusters("cd")], [(), ()])["f1"] == 0


def test_a_mention_in_two_key_clusters_belongs_to_the_last() -> None:
    """The official scorer does the same for MUC and B³. Such a mention is counted once."""
    scores = score_clusters([clusters("ab bc")], [clusters("ab")])
    assert (scores["mentions_recall"], scores["muc_recall"]) == (pytest.approx(200 / 3), 0)
    assert scores["b3_recall"] == pytest.approx(100 * (2 / 2 + 1 / 2) / 4)
