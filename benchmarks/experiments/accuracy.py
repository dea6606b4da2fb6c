"""How exact each precision of embedding is, and what that does to a task.

Vectors are compared with those that the modules compute in float64, for random weights of the sizes `original` and
`small` on made-up text, and for trained models on the text that is given. The results of each layer are the largest
error, the root mean square of the errors and of the vectors themselves, and the mean and lowest cosine between a
token's two vectors.

With `--pos`, a linear classifier on single layers of each trained model predicts parts of speech (Peters et al. 2018,
sec. 5.3 and Table 6). It is trained on float32 vectors and tested on those of each precision, as happens to people who
switch, and also trained and tested in the same precision. `same_tags` is the share of tokens that get the same tag as
in float32.

    python benchmarks/experiments/accuracy.py --json
    python benchmarks/experiments/accuracy.py --json --models run/ --pos en_ewt-ud-{train,dev,test}.conllu
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from elmo import formats
from elmo.analysis import Tagged, read_conllu
from elmo.analysis.pos import LinearProbe, all_tags, embed_tokens, fit_probe, most_frequent_tag
from elmo.embed import Embedder
from elmo.embed.engine import Precision
from elmo.formats.model import Model
from elmo.nn.bilm import BiLM
from elmo.nn.devices import use_device
from elmo.text.characters import encode_words, number_types

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.english import first_sentences, make_text
from common.machine import report
from common.models import RECIPES, precisions_of, random_model
from common.script import script

TOKENS, QUICK_TOKENS = 2000, 300
EXACT_BATCH = 16
QUICK_SENTENCES = 1000
"""The number of tagged sentences to train on with `--quick`."""

Text = Sequence[Sequence[str]]


def compare(name: str, model: Model, text: Text, precisions: Sequence[Precision], device: str) -> list[dict[str, Any]]:
    """Measure the errors of each precision in each layer."""
    found = {p: _flat(Embedder(model, precision=p, device=device).embed(text, layers="all")) for p in precisions}
    exact = _flat(_exact(model.bilm, text))
    return [
        {"name": f"accuracy/{name}/layer{layer}/{precision}", **_errors(found[precision][layer], exact[layer])}
        for layer in range(len(exact))
        for precision in precisions
    ]


@torch.inference_mode()
def _exact(bilm: BiLM, text: Text) -> Iterator[NDArray[np.float64]]:
    """Yield all layers (L+1, T, D) of each sentence, computed by the modules in float64."""
    assert bilm.config.char_cnn is not None
    longest = bilm.config.char_cnn.max_characters_per_token
    bilm = bilm.double().cpu()
    for start in range(0, len(text), EXACT_BATCH):
        types, numbered = number_types(text[start : start + EXACT_BATCH])
        tokens = pad_sequence([torch.tensor(row) for row in numbered], batch_first=True)
        lengths = torch.tensor([len(row) for row in numbered])
        layers, _ = bilm(torch.from_numpy(encode_words(types, longest)), tokens, lengths)
        yield from (layers[:, row, 1 : length - 1].numpy() for row, length in enumerate(lengths.tolist()))


def _flat(arrays: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(list(arrays), axis=1)


def _errors(found: NDArray[np.float32], exact: NDArray[np.float64]) -> dict[str, Any]:
    difference = found - exact
    norms = np.linalg.norm(found.astype(np.float64), axis=1) * np.linalg.norm(exact, axis=1)
    cosines = (found * exact).sum(axis=1) / norms
    return {
        "largest_error": _short(np.abs(difference).max()),
        "rms_error": _short(_rms(difference)),
        "rms": _short(_rms(exact)),
        "one_minus_mean_cosine": _short(1 - cosines.mean()),
        "one_minus_lowest_cosine": _short(1 - cosines.min()),
        "num_tokens": len(exact),
    }


def _rms(numbers: NDArray[np.float64]) -> float:
    return float(np.sqrt((numbers**2).mean()))


def _short(value: float) -> float:
    return float(f"{value:.2g}")


def probe(
    name: str, model: Model, parts: Sequence[Sequence[Tagged]], precisions: Sequence[Precision], device: str
) -> list[dict[str, Any]]:
    """Measure the scores of the POS probe on every layer above the first, in each precision."""
    labels, baseline = [all_tags(part) for part in parts], most_frequent_tag(parts[0], parts[2])
    results: list[dict[str, Any]] = []
    for layer in range(1, model.config.num_layers):
        first: LinearProbe | None = None
        expected: list[str] = []
        for precision in precisions:
            embedder = Embedder(model, precision=precision, device=device)
            vectors = [embed_tokens(embedder, part, layer) for part in parts]
            own = fit_probe(vectors[0], labels[0], vectors[1], labels[1])
            first = first or own
            predicted = first.predict(vectors[2])
            expected = expected or predicted
            results.append(
                {
                    "name": f"pos/{name}/layer{layer}/{precision}",
                    "trained_in_float32": round(first.accuracy(vectors[2], labels[2]), 5),
                    "trained_in_same": round(own.accuracy(vectors[2], labels[2]), 5),
                    "same_tags": round(sum(map(str.__eq__, predicted, expected)) / len(expected), 5),
                    "most_frequent_tag": round(baseline, 5),
                    "num_train_tokens": len(labels[0]),
                    "num_test_tokens": len(labels[2]),
                }
            )
    return results


@script
def main() -> None:
    """Compare the precisions that this machine has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes",
        nargs="*",
        default=list(RECIPES),
        choices=list(RECIPES),
        help="the sizes of models with random weights",
    )
    parser.add_argument("--models", nargs="*", default=[], help="trained models")
    parser.add_argument("--pos", nargs=3, metavar=("TRAIN", "DEV", "TEST"), help="CoNLL-U files with tags in column 5")
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda or auto")
    parser.add_argument("--quick", action="store_true", help="only the size small, and less text")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    arguments.device = use_device(arguments.device).type
    precisions = precisions_of(arguments.device)
    sizes = [size for size in arguments.sizes if size == "small" or not arguments.quick]
    num_tokens = QUICK_TOKENS if arguments.quick else TOKENS
    parts = [read_conllu(path) for path in arguments.pos or ()]
    if parts and arguments.quick:
        parts[0] = parts[0][:QUICK_SENTENCES]
    text: Text = first_sentences((list(sentence.tokens) for sentence in parts[1]), num_tokens) if parts else []
    results: list[dict[str, Any]] = []
    for size in sizes:
        model = random_model(RECIPES[size])
        results += compare(f"{size}-random", model, make_text(num_tokens), precisions, arguments.device)
    for source in arguments.models:
        name, device = Path(source).name, arguments.device
        results += compare(name, formats.load(source), text or make_text(num_tokens), precisions, device)
        if parts:
            results += probe(name, formats.load(source), parts, precisions, device)
    report(results, arguments.json)


if __name__ == "__main__":
    main()
