"""Measure the perplexity of a sentence's first tokens, by the state that the LSTMs start from: zeros, warm or carried.

Token 1 is the first one that a direction predicts, from nothing but the boundary: forward, it is the first token of the
sentence, and backward, the last one. `all` are all predictions, including the boundary at the other end. `change` is
the difference of the mean loss from that with zeros, in nats over the same tokens, with its standard error, for which
sentences are independent and the tokens of a sentence are not. A change of 0.005 is half a percent of perplexity.

The settings are `zero`; `warm`, the mean state over the training text (see `elmo warm`), which should not be the text
that is scored; `carry`, 32 rows of consecutive batches as in training; `carry-1`, from each sentence to the next one of
its document; and `carry-shuffled`, with the sentences in random order.

    python benchmarks/experiments/warm.py run/ train.txt heldout.txt --tokenizer ptb --text paragraphs --json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo import formats
from elmo.embed.warm import mean_state
from elmo.formats.model import Model, State
from elmo.pretrain.perplexity import SentenceScore, score_sentences
from elmo.text.reading import TEXTS, Reading, expand, read_sentences

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import report
from common.script import script

NUM_FIRST = 3
SETTINGS: dict[str, tuple[State, int]] = {
    "zero": ("zero", 32),
    "warm": ("warm", 32),
    "carry": ("carry", 32),
    "carry-1": ("carry", 1),
    "carry-shuffled": ("carry", 32),
}

Text = Sequence[Sequence[str]]
Losses = dict[str, list[NDArray[np.float64]]]
"""The losses of each kind of prediction, an array for each sentence that has such predictions."""


def losses_of(scores: Sequence[SentenceScore]) -> Losses:
    """Return the losses of each kind of prediction (`forward_1`, `backward_all`, …), in the order of the sentences."""
    losses: Losses = {}
    for number, name in enumerate(("forward", "backward")[: len(scores[0].predictions)]):
        rows = [np.array(score.predictions[number])[:: -1 if number else 1] for score in scores]
        for place in range(NUM_FIRST):
            losses[f"{name}_{place + 1}"] = [-row[place : place + 1] for row in rows if len(row) > place]
        losses[f"{name}_all"] = [-row for row in rows]
    return losses


def measure(model: Model, text: Text, setting: str) -> Losses:
    """Return the losses of one setting."""
    state, batch_size = SETTINGS[setting]
    order = np.arange(len(text))
    if setting == "carry-shuffled":
        np.random.default_rng(0).shuffle(order)
    scores = list(score_sentences(model, [text[place] for place in order.tolist()], state, batch_size))
    return losses_of([scores[place] for place in np.argsort(order).tolist()])


def figures(losses: Losses, zero: Losses) -> Iterator[tuple[str, float]]:
    """Return perplexities, and changes compared with the state zero."""
    for name, values in losses.items():
        changes = [value - start for value, start in zip(values, zero[name], strict=True)]
        yield name, round(float(np.exp(np.concatenate(values).mean())), 2)
        yield f"{name}_change", round(float(np.concatenate(changes).mean()), 4)
        yield f"{name}_error", round(standard_error(changes), 4)


def standard_error(clusters: Sequence[NDArray[np.float64]]) -> float:
    """Return the standard error of the mean of all values, of which only those of different clusters are independent.

    With one value in each cluster, this is the usual standard error.
    """
    values = np.concatenate(clusters)
    sums = np.array([(cluster - values.mean()).sum() for cluster in clusters])
    return float(np.sqrt((sums**2).sum()) / len(values))


@script
def main() -> None:
    """Compute the state, then score the held-out text in each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model that has its softmax and vocabulary")
    parser.add_argument("train", help="text that the warm state is computed from")
    parser.add_argument("heldout", help="text to score")
    parser.add_argument("--tokenizer", default="whitespace", help="how the texts are cut; default: %(default)s")
    parser.add_argument(
        "--text", choices=TEXTS, default="sentences", help="what a line of the texts holds; default: %(default)s"
    )
    parser.add_argument(
        "--train-sentences",
        type=int,
        default=5000,
        help="how many sentences the mean state is computed from; default: %(default)s",
    )
    parser.add_argument(
        "--heldout-sentences", type=int, default=2000, help="how many sentences are measured; default: %(default)s"
    )
    parser.add_argument(
        "--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="these starts of sentences only"
    )
    parser.add_argument("--quick", action="store_true", help="500 sentences for the state, 100 to score")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.train_sentences, arguments.heldout_sentences = 500, 100

    def read(path: str, num_sentences: int) -> list[list[str]]:
        sentences = read_sentences(expand([path]), Reading(arguments.tokenizer, arguments.text))
        return list(islice(filter(None, sentences), num_sentences))

    model = formats.load(arguments.model)
    model.warm_state = mean_state(model, read(arguments.train, arguments.train_sentences))
    text = read(arguments.heldout, arguments.heldout_sentences)
    shared = {"num_sentences": len(text), "num_tokens": sum(map(len, text))}
    zero = measure(model, text, "zero")
    results: list[dict[str, Any]] = []
    for setting in arguments.settings:
        losses = zero if setting == "zero" else measure(model, text, setting)
        name = f"perplexity/{Path(arguments.model).name}/{setting}"
        results.append({"name": name, **dict(figures(losses, zero)), **shared})
    report(results, arguments.json)


if __name__ == "__main__":
    main()
