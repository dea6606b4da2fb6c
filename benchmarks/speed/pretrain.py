"""Measure the speed of pretraining, compared with the plain implementation in `plain_bilm.py` on the same batches.

Both train from the same initial values, without dropout, and the relative difference of their losses is reported. The
vocabulary has 100,000 words, and the batch is 128 x 20 with 8192 negatives. The floor of a step is the time that its
matrix products take alone, one after the other.

    python benchmarks/speed/pretrain.py --json
    python benchmarks/speed/pretrain.py --json --sizes mini --batch-size 32 --steps 500 --plain-steps 500
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plain_bilm import PlainTrainer
from products import Products

from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.objective import Batches, TrainingBatch
from elmo.pretrain.recipe import PretrainingConfig, load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import peak_rss_mb, report

SETTINGS: dict[str, object] = {
    "training.unroll_steps": 20,
    "training.n_negative_samples_batch": 8192,
    "training.dropout": 0.0,
    "training.optimizer": "adagrad",
    "training.learning_rate": 0.2,
    "training.all_clip_norm_val": 10.0,
    "training.warmup": 0.0,
    "training.decay": 0.0,
}
"""What both train with, whatever the recipe says: the published optimizer, without dropout."""


def make_corpus(folder: Path, vocabulary_size: int) -> Corpus:
    """Make a corpus with Zipf's distribution of words and with English lengths of words and sentences."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.poisson(7, 2 * vocabulary_size), 1, 20)
    words = ["".join(chr(97 + letter) for letter in random.integers(0, 26, length)) for length in lengths]
    ids = np.exp(random.random(2_000_000) * np.log(len(words))).astype(int) - 1
    # each word occurs at least once, so that the vocabulary has the size that is asked for
    ids = np.concatenate([random.permutation(len(words)), ids])
    ends = np.cumsum(random.integers(5, 45, len(ids) // 20))
    with (folder / "text.txt").open("w") as file:
        for start, end in pairwise(ends):
            file.write(" ".join(words[i] for i in ids[start:end]) + "\n")
    return prepare([str(folder / "text.txt")], folder / "corpus", min_count=1, max_vocabulary=vocabulary_size)


def measure(size: str, precision: str, corpus: Corpus, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train both for the plain steps and ours for all, and return medians over the steps after the first two."""
    num_steps, num_plain, batch_size = arguments.steps, arguments.plain_steps, arguments.batch_size
    recipe = load_pretraining_recipe(
        size, SETTINGS | {"training.batch_size": batch_size, "training.precision": precision}
    )
    run = Pretrainer(corpus, folder / size / precision, recipe, device=arguments.device)
    device = run.processes.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    plain = PlainTrainer(run.objective.state_dict(), run.recipe)
    # One after the other, not in turn: each would have to allocate again what it frees for the other.
    found, ours = train(run.train_on, corpus, recipe.training, device, num_steps)
    expected, theirs = train(lambda batch: [plain.step(batch)], corpus, recipe.training, device, num_plain)
    differences = [abs(a - b) / b for a, b in zip(found, expected, strict=False)]
    seconds, plain_seconds = statistics.median(ours[2:]), statistics.median(theirs[2:])
    on_cpu = device.type == "cpu"
    products = count(
        run if on_cpu else Pretrainer(corpus, folder / size / f"counted-{precision}", recipe, device="cpu")
    )
    return {
        "name": f"pretrain/{size}/{batch_size}x{recipe.training.unroll_steps}/{device.type}/{precision}",
        "tokens_per_second": round(run.predictions_per_step / seconds),
        "plain_tokens_per_second": round(run.predictions_per_step / plain_seconds),
        "ratio_to_plain": round(plain_seconds / seconds, 2),
        **({"ratio_to_own_products": round(seconds / products.seconds(), 2)} if on_cpu else {}),
        "gflops_per_second": round(products.num_operations / seconds / 1e9),
        "loss_difference": differences[-1],
        "largest_loss_difference": max(differences),
        "steps_compared": num_plain,
        **({} if on_cpu else {"peak_device_mb": torch.cuda.max_memory_allocated() >> 20}),
    }


def train(
    step: Callable[[TrainingBatch], list[float]],
    corpus: Corpus,
    training: PretrainingConfig,
    device: torch.device,
    num_steps: int,
) -> tuple[list[float], list[float]]:
    """Return the mean loss of the directions and the seconds of each step on the first batches of the corpus."""
    batches = Batches(corpus, training, bidirectional=True)
    losses: list[float] = []
    seconds: list[float] = []
    for number in range(1, num_steps + 1):
        batch = batches.read(number).to(device)
        start = time.perf_counter()
        losses.append(statistics.fmean(step(batch)))
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def count(run: Pretrainer) -> Products:
    """Record the products of one step, all in this thread, since those of other threads can't be seen."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Products() as products:
        run.train_on(run.batches.read(run.progress.step + 1))
    torch.set_num_threads(num_threads)
    return products


def main() -> None:
    """Measure the sizes and precisions asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["mini", "small"])
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=12, help="the number of steps of ours")
    parser.add_argument(
        "--plain-steps",
        type=int,
        default=7,
        help="the number of steps of the plain implementation, whose losses are compared",
    )
    parser.add_argument("--quick", action="store_true", help="only the size mini, few steps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.steps, arguments.plain_steps = ["mini"], 4, 4
    if not 3 <= arguments.plain_steps <= arguments.steps:
        parser.error("--plain-steps: at least 3, and not more than --steps")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus = make_corpus(folder, 100_000)
        results = [
            measure(size, precision, corpus, folder, arguments)
            for size in arguments.sizes
            for precision in arguments.precisions
        ]
    if len(results) == 1:  # the peak of several results would be that of the largest one so far
        results[0]["peak_rss_mb"] = peak_rss_mb()
    report(results, arguments.json)


if __name__ == "__main__":
    main()
