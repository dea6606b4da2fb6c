"""Measure the speed of pretraining, compared with the plain implementation in `plain_bilm.py` on the same batches.

Both train from the same initial values, without dropout, and the relative difference of their losses is reported. The
vocabulary has 100,000 words, and the batch is 128 x 20 with 8192 negatives.

`roofline_share` is the speed of the model's operations (the multiplications and additions of its products, forward and
twice that backward, in the char encoder on a batch's distinct words, the LSTMs and the softmax), divided by the speed
that products of large matrices reach in the same run. What the optimizer computes, and all else, counts as lost time.

    python benchmarks/speed/pretrain.py --json
    python benchmarks/speed/pretrain.py --json --sizes mini --batch-size 32 --steps 500 --plain-steps 500
    python benchmarks/speed/pretrain.py --json --sizes small en --precisions float32 --corpus CORPUS --steps 12

The last command reads a folder that `elmo prepare` made instead: natural text repeats more words in a batch. With
`--as-recipe`, ours is trained as its recipe says (its optimizer, its dropout), which the plain implementation can't do,
so that losses are not compared.
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

from elmo.nn.precision import PRODUCTS
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.objective import Batches, TrainingBatch
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import peak_rss_mb, report
from common.script import script

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
    # All words but the first few stand once before the random ones, so that the vocabulary has the size asked for.
    ids = np.concatenate([random.permutation(len(words)), ids])
    ends = np.cumsum(random.integers(5, 45, len(ids) // 20))
    with (folder / "text.txt").open("w") as file:
        for start, end in pairwise(ends):
            file.write(" ".join(words[i] for i in ids[start:end]) + "\n")
    return prepare([str(folder / "text.txt")], folder / "corpus", min_count=1, max_vocabulary=vocabulary_size)


def measure(size: str, precision: str, corpus: Corpus, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train both for the plain steps and ours for all, and return medians over the steps after the first two."""
    num_steps, num_plain, batch_size = arguments.steps, arguments.plain_steps, arguments.batch_size
    settings = {} if arguments.as_recipe else SETTINGS
    settings = settings | {"training.batch_size": batch_size, "training.precision": precision}
    recipe = load_pretraining_recipe(size, settings)
    run = Pretrainer(corpus, folder / size / precision, recipe, device=arguments.device)
    device = run.processes.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    plain = None if arguments.as_recipe else PlainTrainer(run.objective.state_dict(), run.recipe)
    before = large_product_speed(device, PRODUCTS[precision])
    # One after the other, not in turn: each would have to allocate again what it frees for the other.
    found, ours, operations = train(run.train_on, recipe, corpus, device, num_steps)
    large = max(before, large_product_speed(device, PRODUCTS[precision]))
    seconds = statistics.median(ours[2:])
    result = {
        "name": f"pretrain/{size}/{batch_size}x{recipe.training.unroll_steps}/{device.type}/{precision}",
        "optimizer": recipe.training.optimizer,
        "tokens_per_second": round(run.predictions_per_step / seconds),
        "gflops_per_second": round(statistics.median(operations[2:]) / seconds / 1e9),
        "large_products_gflops_per_second": round(large / 1e9),
        "roofline_share": round(statistics.median(operations[2:]) / seconds / large, 3),
        "peak_rss_mb": peak_rss_mb(),  # with the weights of the plain implementation, which has not trained yet
        **({} if device.type == "cpu" else {"peak_device_mb": torch.cuda.max_memory_allocated() >> 20}),
    }
    if plain is None:
        return result
    expected, theirs, _ = train(lambda batch: [plain.step(batch)], recipe, corpus, device, num_plain)
    plain_seconds = statistics.median(theirs[2:])
    differences = [abs(a - b) / b for a, b in zip(found, expected, strict=False)]
    return result | {
        "plain_tokens_per_second": round(run.predictions_per_step / plain_seconds),
        "ratio_to_plain": round(plain_seconds / seconds, 2),
        "loss_difference": differences[-1],
        "largest_loss_difference": max(differences),
        "steps_compared": num_plain,
    }


def train(
    step: Callable[[TrainingBatch], list[float]], recipe: Recipe, corpus: Corpus, device: torch.device, num_steps: int
) -> tuple[list[float], list[float], list[int]]:
    """Train on the first batches of the corpus.

    Returns:
        For each step the mean loss of the directions, the seconds, and the model's operations.
    """
    batches = Batches(corpus, recipe.training, recipe.bidirectional)
    losses: list[float] = []
    seconds: list[float] = []
    operations: list[int] = []
    for number in range(1, num_steps + 1):
        batch = batches.read(number).to(device)
        operations.append(count_operations(recipe, batch))
        start = time.perf_counter()
        losses.append(statistics.fmean(step(batch)))
        seconds.append(time.perf_counter() - start)
    return losses, seconds, operations


def count_operations(recipe: Recipe, batch: TrainingBatch) -> int:
    """Count the multiplications and additions of a step's products: 2 forward and 4 backward for each weight used."""
    lstm, characters = recipe.lstm, recipe.char_cnn
    projection = lstm.projection_dim * lstm.dim if lstm.has_projection else 0
    of_layer = 4 * lstm.dim * 2 * lstm.projection_dim + projection
    num_words = recipe.training.n_negative_samples_batch if batch.negatives[0] is not None else 0
    of_token = lstm.n_layers * of_layer + num_words * lstm.projection_dim
    filters = characters.num_filters
    of_type = 2 * characters.n_highway * filters**2 + filters * lstm.projection_dim
    num_tokens = sum(tokens.numel() for tokens in batch.tokens)
    return 6 * (num_tokens * of_token + len(batch.characters) * of_type)


def large_product_speed(device: torch.device, dtype: torch.dtype, repeats: int = 6) -> float:
    """Return the operations a second that products of large square matrices reach, the best of some."""
    size = 8192 if device.type == "cuda" else 2048  # a GPU is done with smaller ones before it has been told to start
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    seconds: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


@script
def main() -> None:
    """Measure the sizes and precisions asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["mini", "small"], help="the recipes to train with")
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"], help="the precisions to train in")
    parser.add_argument(
        "--device", default="cpu", choices=["cpu", "cuda"], help="where to compute; default: %(default)s"
    )
    parser.add_argument("--batch-size", type=int, default=128, help="the number of streams; default: %(default)s")
    parser.add_argument("--steps", type=int, default=12, help="the number of steps of ours")
    parser.add_argument(
        "--plain-steps",
        type=int,
        default=7,
        help="the number of steps of the plain implementation, whose losses are compared",
    )
    parser.add_argument("--corpus", type=Path, help="a corpus folder to train on instead of made-up words")
    parser.add_argument("--as-recipe", action="store_true", help="train ours as its recipe says, and nothing else")
    parser.add_argument("--quick", action="store_true", help="only the size mini, few steps")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.steps, arguments.plain_steps = ["mini"], 4, 4
    if not 3 <= arguments.plain_steps <= arguments.steps:
        parser.error("--plain-steps: at least 3, and not more than --steps")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus = Corpus.open(arguments.corpus) if arguments.corpus else make_corpus(folder, 100_000)
        results = [
            measure(size, precision, corpus, folder, arguments)
            for size in arguments.sizes
            for precision in arguments.precisions
        ]
    for result in results[1:]:
        del result["peak_rss_mb"]  # it may be that of a result before it
    report(results, arguments.json)


if __name__ == "__main__":
    main()
