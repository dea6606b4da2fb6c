"""Train with each of the given recipes in one of two processes, and write the results down for `test_distributed`.

    torchrun --nproc-per-node 2 two_processes.py CORPUS FOLDER NAME=RECIPE ...

A run is written to FOLDER/NAME, without the `+` or `-` that NAME may end in; `-` means that process 0 trains it alone.
Results are written to FOLDER/rank-RANK.json. The argument `exchange`, without a recipe, exchanges known gradients. The
run `elsewhere` has FOLDER/parts as its folder in process 1.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from elmo.errors import ElmoError
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.processes import Processes, average_gradients
from elmo.pretrain.recipe import load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.training.metrics import MetricsFile

IDS = ([4711, 3, 9, 3], [9, 12])
"""The rows that each process touches. The gradients of a repeated row are added up."""
V, P = 5000, 8


def train(corpus: Corpus, folder: Path, recipe: str) -> dict[str, Any]:
    try:
        run = Pretrainer(corpus, folder, load_pretraining_recipe(recipe), heldout=[["word1", "word3"]], device="cpu")
    except ElmoError as error:
        return {"error": str(error)}
    start = run.progress.step
    run.train()
    parameters = b"".join(p.detach().numpy().tobytes() for p in run.objective.parameters())
    return {
        "start": start,
        "parameters": sha256(parameters).hexdigest(),
        "heldout": run.progress.heldout_perplexity,
        "seed": torch.initial_seed(),
    }


def train_unreported(corpus: Corpus, folder: Path, recipe: str) -> dict[str, Any]:
    """Train while no metrics can be written, and return the error."""
    write = MetricsFile.add

    def fail(*row: object) -> None:
        raise OSError("no space")

    MetricsFile.add = fail
    try:
        return train(corpus, folder, recipe)
    except ElmoError as error:
        return {"error": str(error)}
    finally:
        MetricsFile.add = write


def exchange(rank: int) -> dict[str, Any]:
    """Exchange a row-sparse gradient, a dense one, one that process 0 lacks and one that no process has."""
    words, dense, only_one, nobody = parameters = [nn.Parameter(torch.zeros(n, P)) for n in (V, 2, 2, 2)]
    ids = torch.tensor(IDS[rank])
    rows = torch.arange(ids.numel() * P).view(-1, P) + 100.0 * rank
    words.grad = torch.sparse_coo_tensor(ids.unsqueeze(0), rows, (V, P), check_invariants=True)
    dense.grad = torch.full_like(dense, 1.0 + rank)
    if rank == 1:
        only_one.grad = torch.ones_like(only_one)
    volume = average_gradients(parameters, 2)
    assert nobody.grad is None
    assert words.grad.is_coalesced()
    return {
        "words": words.grad.indices()[0].tolist(),
        "rows": words.grad.values().tolist(),
        "dense": dense.grad.unique().tolist(),
        "only_one": only_one.grad.unique().tolist(),
        "volume": volume._asdict(),
    }


def main() -> None:
    processes = Processes.join("cpu")
    corpus, folder, rank = Corpus.open(Path(sys.argv[1])), Path(sys.argv[2]), processes.rank
    findings: dict[str, Any] = {}
    for name, _, recipe in (argument.partition("=") for argument in sys.argv[3:]):
        if not recipe:
            findings[name] = exchange(rank)
        elif name == "elsewhere":
            findings[name] = train(corpus, folder / (name, "parts")[rank], recipe)
        elif name == "unreported":
            findings[name] = train_unreported(corpus, folder / name, recipe)
        elif not name.endswith("-"):
            findings[name] = train(corpus, folder / name.rstrip("+"), recipe)
        elif rank == 0:
            place = os.environ.pop("LOCAL_RANK")  # as if torchrun had not started it
            findings[name] = train(corpus, folder / name.rstrip("-"), recipe)
            os.environ["LOCAL_RANK"] = place
    group = weakref.ref(dist.group.WORLD)
    processes.leave()
    findings["still connected"] = group() is not None
    (folder / f"rank-{rank}.json").write_text(json.dumps(findings))


if __name__ == "__main__":
    main()
