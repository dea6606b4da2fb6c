"""Batches hold all examples once, of similar length, and in the same order for the same seed and epoch."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.common.batches import (
    POOL_BATCHES,
    cut_to_fit,
    lengths_of,
    number_distinct_words,
    pad_ids,
    padding_mask,
    plan_epoch,
    plan_evaluation,
    spread_out,
)

CPU = torch.device("cpu")


@given(lengths=st.lists(st.integers(0, 50), max_size=200), batch_size=st.integers(1, 9), seed=st.integers(0, 99))
def test_every_example_is_in_one_batch(lengths: list[int], batch_size: int, seed: int) -> None:
    for batches in (plan_epoch(lengths, batch_size, seed, 1), plan_evaluation(lengths, batch_size)):
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        assert all(0 < len(batch) <= batch_size for batch in batches)


@given(costs=st.lists(st.integers(0, 50), max_size=60), most=st.integers(1, 200))
def test_a_piece_holds_as_many_examples_as_fit(costs: list[int], most: int) -> None:
    """One more example would be too many. A single example is a piece even if it costs more than the limit."""

    def fit(part: list[int]) -> bool:
        return len(part) == 1 or len(part) * max(part) <= most

    found = [costs[piece] for piece in cut_to_fit(costs, most)]
    assert [cost for part in found for cost in part] == costs
    assert all(part and fit(part) for part in found)
    assert not any(fit([*part, after[0]]) for part, after in pairwise(found))


def test_seed_and_epoch_determine_the_batches() -> None:
    lengths = [n % 17 for n in range(100)]
    assert plan_epoch(lengths, 8, 0, 3) == plan_epoch(lengths, 8, 0, 3)
    plans = [plan_epoch(lengths, 8, seed, epoch) for seed, epoch in [(0, 3), (0, 4), (1, 3)]]
    assert all(a != b for n, a in enumerate(plans) for b in plans[:n])


def test_examples_of_a_batch_have_similar_lengths() -> None:
    """Padding stays below a tenth, whereas batches drawn at random from these lengths would be almost half padding."""
    lengths = [1 + n % 40 for n in range(16 * POOL_BATCHES * 2)]
    batches = plan_epoch(lengths, 16, 0, 0)
    longest = [max(lengths[i] for i in batch) for batch in batches]
    assert sum(lengths) > 0.9 * sum(16 * length for length in longest)
    assert longest not in (sorted(longest), sorted(longest, reverse=True))


def test_examples_and_their_batches_come_in_another_order_in_each_epoch() -> None:
    """Even the batches of sentences of one length hold other sentences than before, and no epoch begins with all of the
    short ones."""
    first, second = ({frozenset(batch) for batch in plan_epoch([5] * 80, 8, 0, epoch)} for epoch in (0, 1))
    assert not first & second
    for epoch in (0, 1):
        shortest = [min(batch) for batch in plan_epoch(range(80), 8, 0, epoch)]  # each example's number is its length
        assert shortest != sorted(shortest)


def test_evaluation_sorts_by_the_keys() -> None:
    """Negative lengths put the longest first, so that a lack of memory shows at once. Equal keys keep their order."""
    assert plan_evaluation([-3, -9, -1, -9], 2) == [[1, 3], [0, 2]]


def test_padding_is_false_in_masks_and_zero_in_ids() -> None:
    sentences = [["A", "b", "A"], ["c"], ["b", "New"]]
    mask = padding_mask(lengths_of(sentences), CPU)
    assert mask.tolist() == [[True] * 3, [True, False, False], [True, True, False]]
    assert pad_ids([[3, 4], [5]], CPU).tolist() == [[3, 4], [5, 0]]
    assert pad_ids([[], []], CPU).shape == (2, 0)
    assert pad_ids([], CPU).shape == (0, 0)
    types, tokens = number_distinct_words(sentences, CPU)
    assert types == ["", "A", "b", "c", "New"]
    assert tokens.tolist() == [[1, 2, 1], [3, 0, 0], [2, 4, 0]]
    vectors = tokens.unsqueeze(2) * 1.5
    assert torch.equal(spread_out(vectors[mask], mask), vectors)
