"""Batches: all examples once, of like length, the same again for the same seed and epoch."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.common.batches import POOL_BATCHES, cut_to_fit, plan_epoch, plan_evaluation


@given(lengths=st.lists(st.integers(0, 50), max_size=200), batch_size=st.integers(1, 9), seed=st.integers(0, 99))
def test_every_example_comes_once(lengths: list[int], batch_size: int, seed: int) -> None:
    for batches in (plan_epoch(lengths, batch_size, seed, 1), plan_evaluation(lengths, batch_size)):
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        assert all(0 < len(batch) <= batch_size for batch in batches)


@given(costs=st.lists(st.integers(0, 50), max_size=60), most=st.integers(1, 200))
def test_pieces_hold_as_many_as_fit(costs: list[int], most: int) -> None:
    """One more would be too many; one alone is always taken."""

    def fit(part: list[int]) -> bool:
        return len(part) == 1 or len(part) * max(part) <= most

    found = [costs[piece] for piece in cut_to_fit(costs, most)]
    assert [cost for part in found for cost in part] == costs
    assert all(part and fit(part) for part in found)
    assert not any(fit([*part, after[0]]) for part, after in pairwise(found))


def test_a_function_of_seed_and_epoch() -> None:
    lengths = [n % 17 for n in range(100)]
    assert plan_epoch(lengths, 8, 0, 3) == plan_epoch(lengths, 8, 0, 3)
    plans = [plan_epoch(lengths, 8, seed, epoch) for seed, epoch in [(0, 3), (0, 4), (1, 3)]]
    assert all(a != b for n, a in enumerate(plans) for b in plans[:n])


def test_batches_are_of_like_length_in_no_order() -> None:
    """Padding stays below a tenth, where shuffled batches of these lengths would have almost half."""
    lengths = [1 + n % 40 for n in range(16 * POOL_BATCHES * 2)]
    batches = plan_epoch(lengths, 16, 0, 0)
    longest = [max(lengths[i] for i in batch) for batch in batches]
    assert sum(lengths) > 0.9 * sum(16 * length for length in longest)
    assert longest not in (sorted(longest), sorted(longest, reverse=True))


def test_evaluation_follows_the_keys() -> None:
    """The longest come first, so that what doesn't fit in memory shows at once; equal ones keep their order."""
    assert plan_evaluation([-3, -9, -1, -9], 2) == [[1, 3], [0, 2]]
