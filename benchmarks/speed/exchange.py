"""Measure what two processes on this machine exchange at a training step, and how long it takes.

The sizes are those of the recipe `small`, with 128 x 20 tokens in all processes together and 8192 negatives. Gradients
have the shape that a step gives them and random values: targets follow Zipf's law, and the gradient of the softmax has
rows for them and for the negatives. The plain way, for comparison, exchanges the whole dense matrix.

    python benchmarks/speed/exchange.py --json
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from elmo.nn.bilm import BiLM
from elmo.nn.softmax import Softmax, draw_negatives
from elmo.pretrain.objective import Objective
from elmo.pretrain.optimizer import clip_gradients, make_optimizer
from elmo.pretrain.processes import Processes, Volume, average_gradients
from elmo.pretrain.recipe import load_pretraining_recipe

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import peak_rss_mb, report
from common.script import script

NUM_PROCESSES, NEGATIVES = 2, 8192


def touched(num_words: int, num_targets: int, num_negatives: int, seed: int, rank: int) -> torch.Tensor:
    """Return the ids of the rows in the softmax's gradient on process `rank`: its targets, and everyone's negatives."""
    random = np.random.default_rng([seed, rank])
    targets = np.exp(random.random(num_targets) * np.log(num_words)).astype(np.int64) - 1
    negatives = [draw_negatives(num_words, num_negatives, np.random.default_rng([seed, d])).ids for d in (0, 1)]
    return torch.cat([torch.from_numpy(targets.clip(0)), *negatives]).unique()


def run_process(num_words: int, num_steps: int) -> dict[str, Any]:
    """Measure in one process, and return medians over the steps after the first."""
    processes = Processes.join("cpu")
    recipe = load_pretraining_recipe("small", {"training.batch_size": 128})
    training, dim = recipe.training, recipe.lstm.projection_dim
    num_targets = 2 * len(processes.rows(training.batch_size)) * training.unroll_steps
    softmax = Softmax(num_words, dim)
    objective, weight = Objective(BiLM(recipe.bilm), softmax, training.dropout), softmax.weight
    optimizer = make_optimizer(objective, training, [weight])
    seconds: list[float] = []
    volumes: list[Volume] = []
    for step in range(num_steps):
        for parameter in objective.parameters():
            parameter.grad = torch.randn_like(parameter) if parameter is not weight else None
        ids = touched(num_words, num_targets, training.n_negative_samples_batch, step, processes.rank)
        weight.grad = torch.sparse_coo_tensor(
            ids.unsqueeze(0), torch.randn(len(ids), dim), weight.shape, is_coalesced=True, check_invariants=False
        )
        dist.barrier()
        start = time.perf_counter()
        volumes.append(average_gradients(objective.parameters(), processes.size))
        seconds.append(time.perf_counter() - start)
        clip_gradients(objective.parameters(), training.all_clip_norm_val)
        optimizer.step()
    peak = peak_rss_mb()
    weight.grad = None
    plain = [plain_seconds(objective, processes.size) for _ in range(min(num_steps, 4))]
    processes.leave()
    rows, exchange, whole = (statistics.median(x[1:]) for x in ([v.rows for v in volumes], seconds, plain))
    return {
        "name": f"exchange/small/{num_words}-words/float32",
        "num_processes": processes.size,
        "batch_size": training.batch_size,
        "bytes_per_step": round(volumes[-1].dense + rows),
        "softmax_rows_bytes": round(rows),
        "softmax_dense_bytes": weight.nbytes,
        "softmax_ratio": round(weight.nbytes / rows, 1),
        "exchange_seconds": round(exchange, 4),
        "plain_exchange_seconds": round(whole, 4),
        "ratio_to_plain": round(whole / exchange, 2),
        "peak_rss_mb": peak,
    }


def plain_seconds(objective: Objective, size: int) -> float:
    """Return the seconds that it takes to exchange all gradients as dense ones."""
    for parameter in objective.parameters():
        parameter.grad = torch.zeros_like(parameter)
    dist.barrier()
    start = time.perf_counter()
    for parameter in objective.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(size)
    return time.perf_counter() - start


def measure(num_words: int, num_steps: int) -> dict[str, Any]:
    """Start the processes, each with one thread, and return what process 0 measured."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(NUM_PROCESSES)}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--process", str(num_words), "--steps", str(num_steps)],
            env=os.environ | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
        )
        for rank in range(NUM_PROCESSES)
    ]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit("a process failed")
    return json.loads(outputs[0])


@script
def main() -> None:
    """Measure both vocabularies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, nargs="+", default=[100_000, 800_000], help="sizes of the vocabulary")
    parser.add_argument("--steps", type=int, default=12, help="how many steps are measured; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error("--steps: the first step is not measured; give at least 2")
    if min(arguments.words) < NEGATIVES:
        parser.error(f"--words: {NEGATIVES:,} of them are negatives; give at least as many")
    if arguments.process:
        print(json.dumps(run_process(arguments.process, arguments.steps)))
        return
    results = [measure(words, 4 if arguments.quick else arguments.steps) for words in arguments.words]
    report(results, arguments.json)


if __name__ == "__main__":
    main()
