"""Checkpoints: all that a run needs to go on as if it had never stopped, in one safetensors file each.

A checkpoint holds all rows of the global batch, whatever the number of processes that wrote it: it can go on on any
other number. Process 0 alone writes and reads it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats.files import read_tensors, write_all, write_tensors
from elmo.nn.bilm import BiLMState
from elmo.pretrain.objective import Objective
from elmo.pretrain.optimizer import Optimizer
from elmo.pretrain.processes import Processes
from elmo.text.streams import Streams

_KEPT = 2


@dataclass
class PretrainingProgress:
    """Where a run is. The sums run from the last row of metrics on, so that a resumed row has no gap.

    `loss_sums` are nats per direction summed over `num_summed` steps. `seconds` counts training only. Held-out text
    was last measured after `heldout_step`.
    """

    step: int = 0
    seconds: float = 0.0
    loss_sums: tuple[float, ...] = (0.0, 0.0)
    num_summed: int = 0
    summed_seconds: float = 0.0
    heldout_perplexity: float | None = None
    heldout_step: int | None = None


def common_tensors(objective: Objective, optimizer: Optimizer) -> dict[str, Tensor]:
    """What every process holds alike, by its name in a checkpoint: parameters and the optimizer's state of them.

    They are the tensors themselves, not copies. The optimizer's state must be there before the first step.
    """
    tensors = {f"parameter/{name}": tensor for name, tensor in objective.state_dict().items()}
    for name, parameter in objective.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer/{key}/{name}"] = value
    return tensors


def row_tensors(state: BiLMState, streams: list[Streams]) -> dict[str, Tensor]:
    """What belongs to the rows that a process reads, by its name in a checkpoint; no copies either."""
    tensors: dict[str, Tensor] = {}
    for number, direction in enumerate(state):
        tensors[f"state/{number}/hidden"] = direction.hidden
        tensors[f"state/{number}/cell"] = direction.cell
    for number, stream in enumerate(streams):
        tensors[f"stream/{number}/count"] = torch.from_numpy(stream.count)
        tensors[f"stream/{number}/offset"] = torch.from_numpy(stream.offset)
    return tensors


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], progress: PretrainingProgress) -> Path:
    """Write a checkpoint, whole or not at all, and drop all but the newest two. `tensors` hold all rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for half in folder.glob(".step-*.partial"):  # of a start that was killed while it wrote
        half.unlink()
    path = folder / f"step-{progress.step:09d}.safetensors"
    metadata = {"progress": json.dumps(asdict(progress))}
    write_all({path: lambda temporary: write_tensors(temporary, tensors, metadata)})
    for old in _all(folder)[:-_KEPT]:
        old.unlink()
    return path


def resume(
    folder: Path, common: Mapping[str, Tensor], rows: Mapping[str, Tensor], processes: Processes
) -> PretrainingProgress | None:
    """Put the newest checkpoint into the tensors it was taken from; returns where the run is, None without one.

    Each process gets its `rows` of it. Without a checkpoint all start from the values of process 0. An `ElmoError`
    where another process, on another machine's disk, sees a newer one than process 0 does.
    """
    newest = processes.collect(max((path.name for path in _all(folder)), default=""))
    if max(newest) > newest[0]:
        raise ElmoError(
            f"{folder}: {max(newest)} is not where process 0 looks for it; use a disk that all machines share, or let "
            "the machine that has it be the first (torchrun --node-rank 0)"
        )
    saved: dict[str, Tensor] = {}

    def read() -> PretrainingProgress | None:
        tensors, progress = _read_newest(folder)
        saved.update(tensors)
        for name, tensor in common.items() if progress else ():
            tensor.copy_(saved[name])
        return progress

    progress = processes.on_first(read)
    processes.share(common.values())
    if progress is not None:
        processes.share_out(saved, rows)
    return progress


def _read_newest(folder: Path) -> tuple[dict[str, Tensor], PretrainingProgress | None]:
    """The newest whole checkpoint; a damaged one is set aside under another name, with a warning."""
    for path in reversed(_all(folder)):
        try:
            tensors, metadata = read_tensors(path)
        except ElmoError as error:
            path.rename(path.with_suffix(".damaged"))
            warnings.warn(f"{error}; set aside, going on from the checkpoint before", stacklevel=2)
        else:
            progress = PretrainingProgress(**json.loads(metadata["progress"]))
            progress.loss_sums = tuple(progress.loss_sums)
            return tensors, progress
    if damaged := sorted(folder.glob("step-*.damaged")):
        raise ElmoError(f"{damaged[-1]}: is damaged, and no checkpoint is whole; start anew in another run folder")
    return {}, None


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))
