"""Measure memory and speed of pretraining with 800,000 words, 8192 negatives and a batch of 128 x 20, on the CPU.

Each stage runs in a process of its own, whose peak of resident memory is printed. `train` makes a few steps and writes
a checkpoint and the model folder, `resume` makes one more step from that checkpoint and writes both again, and
`evaluate` scores sentences of the corpus by the whole softmax, in blocks, as held-out text is scored. The peak includes
the checkpoint in `resume`, and the weights, which are mapped, in `evaluate`.

    python benchmarks/speed/large_vocabulary.py --json
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from elmo.formats import load
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.pretrain.recipe import load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.training.metrics import read_rows
from pretrain import make_corpus

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import peak_rss_mb, report, seconds_of, timed
from common.script import in_own_process, script

STAGES = ("train", "resume", "evaluate")
RUNS = "large-vocabulary"


def train(size: str, loss: str, folder: Path, batch_size: int, steps: int) -> dict[str, Any]:
    """Train up to `steps` and save, from a checkpoint if there is one, and return the median speed of these steps."""
    settings = {"batch_size": batch_size, "loss": loss, "n_negative_samples_batch": 8192, "unroll_steps": 20}
    settings |= {"max_steps": steps, "log_every_steps": 1}
    recipe = load_pretraining_recipe(size, {f"training.{key}": value for key, value in settings.items()})
    run = Pretrainer(Corpus.open(folder / "corpus"), folder / RUNS / size, recipe, device="cpu")
    done = run.progress.step
    seconds = seconds_of(run.train)
    rows = [row for row in read_rows(folder / RUNS / size / "metrics.csv") if row["step"] > done]
    speeds = [row["tokens_per_second"] for row in rows]
    return {
        "tokens_per_second": round(statistics.median(speeds[1:] or speeds)),
        "batch": f"{batch_size} x 20",
        "saving_seconds": round(seconds - sum(run.predictions_per_step / speed for speed in speeds), 1),
    }


def evaluate(size: str, folder: Path, num_sentences: int) -> dict[str, Any]:
    """Score sentences of the corpus by the whole softmax, batch by batch."""
    model, corpus = load(folder / RUNS / size), Corpus.open(folder / "corpus")
    types = corpus.types()
    bounds = list(pairwise(corpus.starts[: num_sentences + 1].tolist()))
    sentences = [[types[i] for i in corpus.tokens[start:end]] for start, end in bounds]
    batch_size = min(32, num_sentences)
    seconds, result = timed(lambda: Perplexity.of(score_sentences(model, sentences, batch_size=batch_size)))
    return {"tokens_per_second": round(result.num_tokens / seconds, 1), "tokens": result.num_tokens}


def measure(stage: str, size: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one stage in this process."""
    if stage == "evaluate":
        figures = evaluate(size, folder, arguments.sentences)
    else:
        steps = arguments.steps + (stage == "resume")
        figures = train(size, arguments.loss, folder, arguments.batch_size, steps)
    vocabulary = Corpus.open(folder / "corpus").vocabulary_size
    name = f"large-vocabulary/{size}/{stage}-{arguments.loss}/float32"
    return {"name": name, **figures, "vocabulary": vocabulary, "peak_rss_mb": peak_rss_mb()}


@script
def main() -> None:
    """Measure the sizes asked for, each stage in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["small", "paper"], help="the recipes to train with")
    parser.add_argument("--vocabulary", type=int, default=800_000, help="the number of words; default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=128, help="the number of streams; default: %(default)s")
    parser.add_argument("--loss", choices=["sampled", "full"], default="sampled", help="training.loss")
    parser.add_argument("--steps", type=int, default=3, help="how many steps to train; default: %(default)s")
    parser.add_argument("--sentences", type=int, default=32, help="the number of sentences that are scored")
    parser.add_argument("--folder", type=Path, help="where to keep the corpus and the runs; default: they are removed")
    parser.add_argument("--stage", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="only the size small, 200,000 words, a batch of 16 x 20")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    if arguments.stage:
        stage, size = arguments.stage
        print(json.dumps(measure(stage, size, arguments.folder, arguments)))
        return
    if arguments.quick:
        arguments.sizes, arguments.vocabulary, arguments.batch_size, arguments.sentences = ["small"], 200_000, 16, 4
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
        if not (folder / "corpus").exists():
            make_corpus(folder, arguments.vocabulary)
        if (kept := Corpus.open(folder / "corpus").vocabulary_size) != arguments.vocabulary:
            parser.error(f"{folder}: its corpus has a vocabulary of {kept:,} words; name another folder")
        for size in arguments.sizes:
            shutil.rmtree(folder / RUNS / size, ignore_errors=True)  # an earlier run
        settings = {"--folder": folder, "--batch-size": arguments.batch_size, "--steps": arguments.steps}
        settings |= {"--sentences": arguments.sentences, "--loss": arguments.loss}
        options = [str(part) for item in settings.items() for part in item]
        results = [in_own_process([*options, "--stage", stage, size]) for size in arguments.sizes for stage in STAGES]
    report(results, arguments.json)


if __name__ == "__main__":
    main()
