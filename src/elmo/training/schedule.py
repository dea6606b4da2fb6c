"""The schedule of the learning rate, which pretraining and tasks share."""


def schedule(done: float, warmup: float, decay: float) -> float:
    """Return the factor of the learning rate after the share `done` of a run.

    The factor rises linearly from 0 to 1 over the first `warmup` of the run, and falls linearly to 0 over the last
    `decay` of it. All three arguments are shares of the run, from 0 to 1.
    """
    rise = 1.0 if done >= warmup else done / warmup
    fall = 1.0 if decay == 0 else min(1.0, (1 - done) / decay)
    return max(0.0, min(rise, fall))
