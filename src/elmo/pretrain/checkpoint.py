"""Checkpoints: all that a run needs to go on as if it had never stopped, in one safetensors file each."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats.files import read_tensors, write_all, write_tensors
from elmo.nn.bilm import BiLMState
from elmo.nn.lstm import LSTMState
from elmo.pretrain.objective import Objective
from elmo.text.streams import Streams

_KEPT = 2


@dataclass
class Progress:
    """Where a run is. The sums run from the last row of metrics on, so that a resumed row has no gap.

    `loss_sums` are nats per direction summed over `num_summed` steps. `seconds` counts training only.
    """

    step: int = 0
    seconds: float = 0.0
    loss_sums: tuple[float, ...] = (0.0, 0.0)
    num_summed: int = 0
    summed_seconds: float = 0.0
    heldout_perplexity: float | None = None


def save_checkpoint(
    folder: Path,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    state: BiLMState,
    streams: list[Streams],
    progress: Progress,
) -> Path:
    """Write a checkpoint, whole or not at all, and drop all but the newest two."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"parameter/{name}": tensor for name, tensor in objective.state_dict().items()}
    for name, parameter in objective.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer/{key}/{name}"] = value
    for number, direction in enumerate(state):
        tensors[f"state/{number}/hidden"] = direction.hidden
        tensors[f"state/{number}/cell"] = direction.cell
    for number, stream in enumerate(streams):
        tensors[f"stream/{number}/count"] = torch.from_numpy(stream.count)
        tensors[f"stream/{number}/offset"] = torch.from_numpy(stream.offset)
    path = folder / f"step-{progress.step:09d}.safetensors"
    metadata = {"progress": json.dumps(asdict(progress))}
    write_all({path: lambda temporary: write_tensors(temporary, tensors, metadata)})
    for old in _all(folder)[:-_KEPT]:
        old.unlink()
    return path


def resume(
    folder: Path, objective: Objective, optimizer: torch.optim.Optimizer, streams: list[Streams]
) -> tuple[BiLMState, Progress] | None:
    """Put the newest checkpoint into the objects it was taken from; None when there is none.

    A damaged one is set aside under another name, with a warning, and the one before is taken. Returns the LSTM
    state and where the run is.
    """
    damaged: ElmoError | None = None
    for path in reversed(_all(folder)):
        try:
            tensors, metadata = read_tensors(path)
        except ElmoError as error:
            damaged = error
            path.rename(path.with_suffix(".damaged"))
            warnings.warn(f"{error}; set aside, going on from the checkpoint before", stacklevel=2)
        else:
            return _restore(tensors, metadata, objective, optimizer, streams)
    if damaged is not None:
        raise ElmoError(f"{folder}: no checkpoint is whole ({damaged}); start anew in another run folder")
    return None


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))


def _restore(
    tensors: dict[str, Tensor],
    metadata: dict[str, str],
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    streams: list[Streams],
) -> tuple[BiLMState, Progress]:
    device = next(objective.parameters()).device
    objective.load_state_dict(_under("parameter/", tensors))
    for name, parameter in objective.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            value.copy_(tensors[f"optimizer/{key}/{name}"])
    for number, stream in enumerate(streams):
        stream.count = tensors[f"stream/{number}/count"].numpy()
        stream.offset = tensors[f"stream/{number}/offset"].numpy()
    state = tuple(
        # Copies: rounding depends on how memory is aligned, which in a file is by chance.
        LSTMState(*(tensors[f"state/{number}/{part}"].to(device, copy=True) for part in ("hidden", "cell")))
        for number in range(len(streams))
    )
    progress = Progress(**json.loads(metadata["progress"]))
    progress.loss_sums = tuple(progress.loss_sums)
    return state, progress


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
