"""The best of several seeds is chosen on the dev set, and scores of all of them are put together."""

from __future__ import annotations

from dataclasses import replace

from elmo.tasks.card import task_card
from elmo.tasks.results import Result, best_of, summarize


def make(seed: int, dev: float, test: float, **details: float) -> Result:
    return Result(seed, 3, 2, 1.0, 1.0, {"dev": {"f1": dev}, "test": {"f1": test, **details}})


def test_the_best_seed_is_best_on_the_dev_set() -> None:
    """To choose by the test set would be to train on it."""
    assert best_of([make(0, 80.0, 90.0), make(1, 81.0, 70.0), make(2, 80.5, 95.0)], "f1").seed == 1


def test_of_equal_seeds_the_first_is_chosen() -> None:
    assert best_of([make(3, 80.0, 70.0), make(4, 81.0, 60.0), make(5, 81.0, 90.0)], "f1").seed == 4


def test_a_detail_that_a_seed_lacks_counts_as_0() -> None:
    found = summarize([make(0, 80.0, 70.0), make(1, 81.0, 72.0, f1_LOC=50.0)])
    assert found == {"dev": {"f1": [80.0, 81.0]}, "test": {"f1": [70.0, 72.0], "f1_LOC": [0.0, 50.0]}}


def test_no_results_give_no_scores() -> None:
    assert summarize([]) == {}


def test_a_card_has_the_epochs_of_each_seed_and_the_mean_of_their_minutes() -> None:
    results = [replace(make(seed, 80.0, 70.0), epochs=9, seconds=60.0 * (seed + 1)) for seed in range(2)]
    card = task_card("ner", "train.conll", "none", results, "f1")
    assert "| epochs | 9 (best: 2), 9 (best: 2) |" in card
    assert "| minutes | 1.50 ± 0.71 |" in card


def test_a_bar_in_a_label_does_not_divide_a_cell() -> None:
    card = task_card("ner", "train.conll", "none", [make(0, 80.0, 70.0, **{"f1/LOC|X": 50.0})], "f1")
    assert "| f1/LOC\\|X |  | 50.00 |" in card
