"""The checkpoints of pretraining hold everything that a run needs to continue as if it had never stopped.

A checkpoint holds the states of all rows of the global batch, however many processes wrote it. So a run can be resumed
with any number of processes. Only process 0 writes and reads checkpoints.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.nn.bilm import BiLMState
from elmo.pretrain.objective import Objective
from elmo.pretrain.optimizer import Optimizer
from elmo.pretrain.processes import Processes
from elmo.text.streams import Streams
from elmo.training.checkpoint import (
    CheckpointVersionError,
    optimizer_tensors,
    read_checkpoint,
    require_shapes,
    write_checkpoint,
)

_KEPT = 2
"""How many checkpoints are kept: if the newest is damaged, the run resumes from the one before it."""


@dataclass
class PretrainingProgress:
    """The progress of a run.

    The sums since the last row of metrics are part of it, so that the next row covers all its steps even if the run was
    resumed in between.

    Attributes:
        step: The number of steps made.
        seconds: The time spent on training alone, without evaluating and saving.
        loss_sums: The loss of each direction in nats per prediction, summed since the last row of metrics.
        num_summed: The number of steps since the last row of metrics.
        summed_seconds: The value of `seconds` at the last row of metrics.
        learning_rate: The learning rate of the last step. Earlier versions did not keep it.
        heldout_perplexity: The perplexity of held-out text when it was last measured.
        heldout_step: The step after which it was last measured.
        heldout_text: The checksum of that text. Earlier versions did not keep it.
        best_perplexity: The lowest perplexity of held-out text, if the run keeps the weights that have it.
        best_step: The step after which it was measured.
        num_worse: The number of measurements since then.
    """

    step: int = 0
    seconds: float = 0.0
    loss_sums: tuple[float, ...] = (0.0, 0.0)
    num_summed: int = 0
    summed_seconds: float = 0.0
    learning_rate: float | None = None
    heldout_perplexity: float | None = None
    heldout_step: int | None = None
    heldout_text: str | None = None
    best_perplexity: float | None = None
    best_step: int | None = None
    num_worse: int = 0

    def __post_init__(self) -> None:
        self.loss_sums = tuple(self.loss_sums)  # JSON, which it is read from, has only lists

    def begin_row(self) -> None:
        """Begin the sums for the next row of metrics."""
        self.loss_sums, self.num_summed = (0.0,) * len(self.loss_sums), 0
        self.summed_seconds = self.seconds


def common_tensors(
    objective: Objective, optimizer: Optimizer, copies: Mapping[str, Objective | None]
) -> dict[str, Tensor]:
    """Return the tensors that are the same in every process: the parameters and the optimizer's state.

    Args:
        objective: What is trained.
        optimizer: What updates its parameters.
        copies: Copies of `objective` with other parameters that the run keeps, such as those of the best step, by their
            names in a checkpoint. Those that are None are left out.

    Returns:
        The tensors themselves, not copies, by their names in a checkpoint.
    """
    tensors = {f"parameter/{name}": tensor for name, tensor in objective.state_dict().items()}
    for prefix, copy in copies.items():
        if copy is not None:
            tensors |= {f"{prefix}/{name}": tensor for name, tensor in copy.state_dict().items()}
    return tensors | optimizer_tensors(objective, optimizer.state)


def row_tensors(state: BiLMState, streams: list[Streams]) -> dict[str, Tensor]:
    """Return the tensors that belong to the rows of this process: LSTM states and positions in the streams.

    Returns:
        The tensors themselves, not copies, by their names in a checkpoint. Hidden states are (L, B, P), cells
        (L, B, H), and positions (B,).
    """
    tensors: dict[str, Tensor] = {}
    for number, direction in enumerate(state):
        tensors[f"state/{number}/hidden"] = direction.hidden
        tensors[f"state/{number}/cell"] = direction.cell
    for number, stream in enumerate(streams):
        tensors[f"stream/{number}/count"] = torch.from_numpy(stream.count)
        tensors[f"stream/{number}/offset"] = torch.from_numpy(stream.offset)
    return tensors


def save_pretraining_checkpoint(folder: Path, tensors: Mapping[str, Tensor], progress: PretrainingProgress) -> None:
    """Write a checkpoint, and remove all but the newest two.

    A checkpoint appears under its name only when it is complete.

    Args:
        folder: The folder of checkpoints, which is created if it does not exist.
        tensors: All tensors of the run, with the rows of all processes.
        progress: The progress of the run, whose step names the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for half in folder.glob(".step-*.partial"):  # left by a process that was killed while it wrote
        half.unlink()
    path = folder / f"step-{progress.step:09d}.safetensors"
    try:
        write_checkpoint(path, tensors, progress)
    except OSError:
        with suppress(OSError):  # without a checkpoint, the run has nothing to lose and may begin with other settings
            folder.rmdir()
        raise
    for old in _all(folder)[:-_KEPT]:
        old.unlink()


def has_checkpoint(folder: Path) -> bool:
    """Return whether a folder of checkpoints has one."""
    return bool(_all(folder))


def resume_pretraining(
    folder: Path, common: Mapping[str, Tensor], rows: Mapping[str, Tensor], processes: Processes
) -> PretrainingProgress | None:
    """Load the newest checkpoint into the tensors of a run, in place.

    Without a checkpoint, all processes take over the values that `common` has in process 0.

    Args:
        folder: The folder of checkpoints, which need not exist.
        common: The tensors that are the same in every process.
        rows: The tensors that belong to the rows of this process.
        processes: The processes of the run, all of which must call this.

    Returns:
        The progress of the run, or None if there is no checkpoint.

    Raises:
        ElmoError: If all checkpoints are damaged, if another version wrote the newest one, if its tensors are not those
            of this run, or if another process, on another machine's disk, sees a newer checkpoint than process 0 does.
    """
    newest = processes.collect(max((path.name for path in _all(folder)), default=""))
    if max(newest) > newest[0]:
        raise ElmoError(
            f"{folder}: {max(newest)} is not on the disk of process 0; use a disk that all machines share, or start "
            "the machine that has the checkpoint as the first one (torchrun --node-rank 0)"
        )
    saved: dict[str, Tensor] = {}

    def read() -> PretrainingProgress | None:
        path, tensors, progress = _read_newest(folder)
        if progress is None:
            return None
        saved.update(tensors)
        if any(name.startswith("optimizer/") for name in common.keys() ^ (saved.keys() - rows.keys())):
            raise ElmoError(
                f"{folder}: is of a run that trains other parameters (freeze_bilm); start that run, or choose another "
                "run folder"
            )
        shapes = {name: tensor.shape for name, tensor in common.items()}
        require_shapes(shapes | processes.shapes_of(rows), saved, path)
        for name, tensor in common.items():
            tensor.copy_(saved[name])
        return progress

    progress = processes.on_first(read)
    processes.broadcast(common.values())
    if progress is not None:
        processes.scatter(saved, rows)
    return progress


def _read_newest(folder: Path) -> tuple[Path, dict[str, Tensor], PretrainingProgress | None]:
    """Read the newest checkpoint that is not damaged; damaged ones are renamed, with a warning.

    Returns:
        Its file, its tensors, and its progress, which is None if there is no checkpoint.
    """
    for path in reversed(_all(folder)):
        try:
            return path, *read_checkpoint(path, PretrainingProgress)
        except CheckpointVersionError as error:  # the version that wrote it can go on with it, so it keeps its name
            raise ElmoError(f"{error}; continue with that version, or choose another run folder") from None
        except ElmoError:
            damaged = path.rename(path.with_suffix(".damaged"))
            warnings.warn(f"{path}: is damaged; it was renamed to {damaged.name}, and is not used", stacklevel=2)
    if damaged := sorted(folder.glob("step-*.damaged")):
        raise ElmoError(f"{damaged[-1]}: is damaged, and no checkpoint is left; start again in another run folder")
    return folder, {}, None


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))
