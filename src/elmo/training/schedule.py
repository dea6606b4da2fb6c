"""The learning rate and the seed of each step of a training, which pretraining and tasks share."""


def schedule(done: float, warmup: float, decay: float) -> float:
    """Return the factor of the learning rate after the share `done` of a run.

    The factor rises linearly from 0 to 1 over the first `warmup` of the run, and falls linearly to 0 over the last
    `decay` of it. All three arguments are shares of the run, from 0 to 1.
    """
    rise = 1.0 if done >= warmup else done / warmup
    fall = 1.0 if decay == 0 else min(1.0, (1 - done) / decay)
    return max(0.0, min(rise, fall))


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """Return the seed of one step.

    It depends on nothing else, so that a training that was resumed draws the same dropout masks. Trainings with
    neighboring seeds share no random numbers in their first million steps. The ranks are far apart, too: `seed + rank`
    would be the seed of the previous rank's next step.

    Args:
        seed: The seed of the training.
        step: The number of the step.
        rank: The rank of the process, where several train together.
    """
    return seed * 1_000_003 + step + rank * 2_654_435_769
