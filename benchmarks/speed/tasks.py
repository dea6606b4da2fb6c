"""Measure how fast task models train and predict: without ELMo, with its vectors cached on disk, and without a cache.

Each argument is a task and a file of its format. A model of the task's recipe trains on examples that are chosen at
random for some epochs, the first of which isn't counted, and predicts them. `cache` is the time of computing the
vectors that `cached` reads. In some recipes word vectors of a file are fixed, so that they train faster (see the second
example).

    python benchmarks/speed/tasks.py ner=train.conll sst=train.txt snli=train.jsonl --elmo en --json
    python benchmarks/speed/tasks.py sst=train.txt --elmo en --set words.vectors=static300.txt --examples 1000 --json
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo import formats
from elmo.formats.model import Model
from elmo.nn.devices import use_device
from elmo.tasks import get_task, load_task_recipe
from elmo.tasks.common.static_vectors import set_word_vectors
from elmo.tasks.elmo.cache import LiveLayers
from elmo.tasks.elmo.input import ElmoInput, FrozenLayers, make_elmo_layers
from elmo.tasks.prediction import predict
from elmo.tasks.task import Task
from elmo.tasks.trainer import Trainer
from elmo.training.metrics import read_rows
from elmo.training.recipes import parse_override

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import report, seconds_of, timed
from common.script import script


class Bench:
    """The examples of a task, and how long a model takes for them."""

    def __init__(self, task: Task[Any, Any, Any], file: str, settings: Sequence[str], arguments: Any) -> None:
        self.task, self.repeats = task, 1 if arguments.quick else arguments.repeats
        self.device = use_device(arguments.device)
        self.recipe = load_task_recipe(task.name, None, dict(map(parse_override, settings)))
        found = task.read_train(file, self.recipe)
        size = min(len(found), 2 * self.recipe.training.batch_size if arguments.quick else arguments.examples)
        self.examples = [found[index] for index in np.random.default_rng(0).permutation(len(found))[:size]]
        self.vocabularies = task.vocabularies(self.examples, self.recipe)
        self.num_tokens = sum(map(task.length, self.examples))

    def run(self, bilm: Model | None, folder: Path) -> Iterator[dict[str, Any]]:
        """Measure without ELMo, and with the ELMo of `bilm`."""
        plain = self.measure("none", None, None, folder)
        yield from plain
        if bilm is None:
            return
        live = make_elmo_layers(bilm, replace(self.recipe.elmo, vectors="live"), self.device)
        assert isinstance(live, LiveLayers)
        seconds, cached = timed(lambda: live.cached(self.task.all_sentences(self.examples), folder / "vectors"))
        yield self._row("cache", self.recipe.elmo.cache_dtype, seconds)
        kinds: dict[str, FrozenLayers] = {"cached": cached, "live": live}
        for kind, layers in kinds.items():
            for row, base in zip(self.measure(kind, bilm, layers, folder), plain, strict=True):
                ratio = row["examples_per_second"] / base["examples_per_second"]
                yield {**row, "ratio_to_none": round(ratio, 3)}

    def measure(self, kind: str, bilm: Model | None, layers: FrozenLayers | None, folder: Path) -> list[dict[str, Any]]:
        """Return medians of training and of prediction."""
        torch.manual_seed(0)
        elmo = ElmoInput(bilm, self.recipe.elmo, layers)
        model = self.task.model(self.recipe, self.vocabularies, elmo)
        set_word_vectors(model, self.recipe.words)
        model.to(self.device)
        epochs = self.repeats + 1
        training = replace(self.recipe.training, max_epochs=epochs, patience=epochs)
        place = folder / self.task.name / kind
        Trainer(self.task, model, training, place, self.examples, self.examples[: training.batch_size]).train()
        rates = [row["examples_per_second"] for row in read_rows(place / "metrics.csv")[1:]]
        seconds = [seconds_of(lambda: predict(self.task, model, self.examples)) for _ in range(self.repeats)]
        return [
            self._row("train", kind, len(self.examples) / statistics.median(rates)),
            self._row("predict", kind, statistics.median(seconds)),
        ]

    def _row(self, what: str, setting: str, seconds: float) -> dict[str, Any]:
        return {
            "name": f"{what}/{self.task.name}/{setting}",
            "examples_per_second": round(len(self.examples) / seconds, 1),
            "tokens_per_second": round(self.num_tokens / seconds),
            "num_examples": len(self.examples),
        }


@script
def main() -> None:
    """Measure each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="TASK=FILE", help="a task and its training set")
    parser.add_argument("--elmo", default="none", help="a name or path that elmo.load takes; none for baselines alone")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of all recipes")
    parser.add_argument(
        "--examples", type=int, default=1_000, help="how many examples are measured; default: %(default)s"
    )
    parser.add_argument("--repeats", type=int, default=3, help="how often each is measured; the median counts")
    parser.add_argument("--device", default="auto", help="where to compute: cpu, cuda or auto")
    parser.add_argument("--quick", action="store_true", help="two batches, no repeats")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    bilm = None if arguments.elmo == "none" else formats.load(arguments.elmo)
    results: list[dict[str, Any]] = []
    for word in arguments.files:
        name, equals, file = word.partition("=")
        if not equals:
            parser.error(f"{word}: expected TASK=FILE, such as ner=train.conll")
        with tempfile.TemporaryDirectory() as folder:
            results += Bench(get_task(name), file, arguments.set, arguments).run(bilm, Path(folder))
    report(results, arguments.json)


if __name__ == "__main__":
    main()
