"""The learning rate has a warm-up, a level part and a decay, and no two steps share a seed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from elmo.training.schedule import schedule, step_seed


def test_schedule() -> None:
    """The rate rises linearly, stays level and falls linearly."""
    assert [schedule(x, 0.1, 0.5) for x in (0, 0.05, 0.1, 0.5, 0.75, 1)] == pytest.approx([0, 0.5, 1, 1, 0.5, 0])
    assert [schedule(x, 0.0, 1.0) for x in (0, 0.25, 1)] == pytest.approx([1, 0.75, 0])
    assert [schedule(x, 0.0, 0.0) for x in (0, 0.5, 1)] == [1, 1, 1]
    assert schedule(1.1, 0.0, 0.5) == 0, "minutes may be up a little late"


def test_steps_of_other_seeds_and_ranks_have_other_seeds() -> None:
    steps = [(seed, step, rank) for seed in range(3) for step in range(100) for rank in range(3)]
    assert len({step_seed(*each) for each in steps}) == len(steps)


def test_the_seeds_of_a_million_steps_are_those_of_one_training() -> None:
    """The first million steps of one training have seeds below those of the next one."""
    trainings = [(seed, rank) for seed in range(3) for rank in range(8)]
    bounds = sorted((step_seed(seed, 0, rank), step_seed(seed, 999_999, rank)) for seed, rank in trainings)
    assert all(last < first for (_, last), (first, _) in pairwise(bounds))
