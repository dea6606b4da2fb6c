"""Measure speed and memory of embedding, compared with the plain implementation in `plain_elmo.py` on the same text.

The weights are random, of the sizes `original` and `small` of the published models. The settings are `1`, one sentence
a call; `32`, 32 sentences a call; `bulk`, a text whose types are mostly in the cache; and `bulk-cold`, its first pass.
The ratio compares with the plain implementation at the same setting. In bulk, that one has batches of 1, 8 or 32
sentences, whichever is fastest for 32 sentences. All speeds are medians of the repeats.

`roofline_share` is the speed of the LSTMs' products, if they took all the time, divided by the speed that products of
large matrices reach in the same run and precision. Each size and precision is measured in a process of its own, whose
memory is read before the plain implementation starts.

    python benchmarks/speed/embed.py --json
    python benchmarks/speed/embed.py --json --sizes small --precisions float32 --text sentences.txt
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plain_elmo import PlainElmo

from elmo import _native
from elmo.config import BiLMConfig
from elmo.embed import Embedder
from elmo.embed.engine import Precision
from elmo.embed.kernels import kernels_for
from elmo.embed.torch_kernels import TorchLinear
from elmo.nn.devices import use_device
from elmo.nn.precision import TORCH_TYPES

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.english import first_sentences, make_text, read_text
from common.machine import peak_rss_mb, report, seconds_of
from common.models import RECIPES, precisions_of, random_model
from common.script import in_own_process, script

TOKENS = {"original": (4_000, 150), "small": (16_000, 1_500)}
"""The numbers of tokens in bulk, and with one sentence a call."""
GPU_TOKENS = (500_000, 1_500)
QUICK = (2_000, 200)

Text = Sequence[Sequence[str]]


def measure(size: str, precision: Precision, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all settings of one size and precision, as medians of the repeats."""
    device = torch.device(arguments.device)
    in_bulk, in_ones = QUICK if arguments.quick else TOKENS[size] if device.type == "cpu" else GPU_TOKENS
    text = read_text(arguments.text, in_bulk) if arguments.text else make_text(in_bulk)
    texts = {"1": first_sentences(text, in_ones), "32": text[:32], "bulk": text}
    embedder = Embedder(random_model(RECIPES[size]), device=device, precision=precision)
    runs: dict[str, Callable[[], object]] = {
        "1": lambda: [embedder.embed([sentence]) for sentence in texts["1"]],
        "32": lambda: embedder.embed(texts["32"], batch_size=32),
        "bulk": lambda: embedder.embed(text),
    }
    for run in runs.values():
        run()
    peak = peak_rss_mb()
    bilm = random_model(RECIPES[size]).bilm.to(device)
    plain = PlainElmo(bilm.state_dict(), bilm.config)
    difference = _difference(embedder, plain, texts["1"])  # this also warms the plain implementation up
    best = min((1, 8, 32), key=lambda size: seconds_of(lambda: _embed_plainly(plain, texts["32"], size)))
    rates: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(arguments.repeats):
        for name, batch_size in {"1": 1, "32": 32, "bulk": best}.items():
            seconds = seconds_of(lambda name=name, size=batch_size: _embed_plainly(plain, texts[name], size))
            rates[f"plain {name}"].append(_num_tokens(texts[name]) / seconds)
        for name, run in runs.items():
            rates[name].append(_num_tokens(texts[name]) / seconds_of(run))
        new = Embedder(random_model(RECIPES[size]), device=device, precision=precision)  # it has met no word yet
        new.embed([["packs", "the", "weights"]])
        rates["bulk-cold"].append(_num_tokens(text) / seconds_of(lambda new=new: new.embed(text)))
        rates["products"].append(_products_per_second(precision, device))
    median = {name: statistics.median(values) for name, values in rates.items()}
    shared = {
        "peak_rss_mb": peak,
        "weights_mb": sum(parameter.numel() for parameter in bilm.parameters()) * 4 >> 20,
        "gflops_per_second": round(median["products"] / 1e9),
        "native": device.type == "cpu" and precision in _native.available(),
        "threads": torch.get_num_threads(),
        "largest_difference": float(f"{difference:.2g}"),
    }
    results: list[dict[str, Any]] = []
    for setting in ("1", "32", "bulk", "bulk-cold"):
        chosen = texts[setting.removesuffix("-cold")]
        per_token = _operations(bilm.config) * (1 + 2 * len(chosen) / _num_tokens(chosen))
        rate, plain_rate = median[setting], median[f"plain {setting.removesuffix('-cold')}"]
        results.append(
            {
                "name": f"embed/{size}/{setting}{'' if device.type == 'cpu' else '-on-gpu'}/{precision}",
                "tokens_per_second": round(rate),
                "plain_tokens_per_second": round(plain_rate),
                "ratio_to_plain": round(rate / plain_rate, 2),
                "roofline_share": round(rate * per_token / median["products"], 3),
                **shared,
            }
        )
    return results


def _embed_plainly(plain: PlainElmo, text: Text, size: int) -> None:
    """Embed batches of `size` sentences."""
    for start in range(0, len(text), size):
        plain.embed(text[start : start + size])


def _num_tokens(text: Text) -> int:
    return sum(map(len, text))


def _operations(config: BiLMConfig) -> int:
    """Return the number of multiplications and additions of the LSTMs for a token."""
    lstm = config.lstm
    per_layer = 8 * lstm.dim * lstm.projection_dim + lstm.dim * lstm.projection_dim * lstm.has_projection
    return 2 * per_layer * lstm.n_layers * (2 if config.bidirectional else 1)


def _products_per_second(precision: str, device: torch.device) -> float:
    """Return the operations a second of a product of large matrices, by the native module or torch if it is faster."""
    if device.type != "cpu":
        square = torch.randn(8192, 8192, device=device, dtype=TORCH_TYPES[precision])
        return 2 * 8192**3 / _median_seconds(lambda: (square @ square)[0, 0].item())
    rows, size = 512, 2048
    random = np.random.default_rng(0)
    x, weight = (random.standard_normal(shape, np.float32) for shape in ((rows, size), (size, size)))
    out = np.empty((rows, size), np.float32)
    linears = [make(weight, None, precision) for make in {kernels_for(precision).linear, TorchLinear}]
    runs = [lambda linear=linear: linear.run(x, out, torch.get_num_threads()) for linear in linears]
    return 2 * rows * size * size / min(map(_median_seconds, runs))


def _median_seconds(run: Callable[[], object]) -> float:
    return statistics.median([seconds_of(run) for _ in range(7)][2:])


def _difference(embedder: Embedder, plain: PlainElmo, text: Text) -> float:
    """Return the largest difference between any two numbers of any layer."""
    pairs = zip(embedder.embed(text, layers="all"), text, strict=True)
    return max(float(np.abs(found - plain.embed([sentence])[0].numpy()).max()) for found, sentence in pairs)


def _in_process_of_its_own(size: str, precision: str) -> list[dict[str, Any]]:
    return in_own_process([*sys.argv[1:], "--alone", "--sizes", size, "--precisions", precision])["results"]


@script
def main() -> None:
    """Measure the sizes and precisions asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", nargs="+", default=list(RECIPES), choices=list(RECIPES), help="the published sizes to embed with"
    )
    parser.add_argument(
        "--precisions", nargs="+", choices=["float32", "bf16", "float16", "int8"], help="these precisions only"
    )
    parser.add_argument(
        "--text", type=Path, help="sentences, one a line with spaces between tokens; default: made-up text"
    )
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda or auto")
    parser.add_argument("--threads", type=int, help="the number of threads; default: as many as torch takes")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is measured; the median counts")
    parser.add_argument("--quick", action="store_true", help="only the size small, few tokens, no repeats")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.repeats = ["small"], 1
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    arguments.device = use_device(arguments.device).type
    precisions = arguments.precisions or precisions_of(arguments.device)
    run = (lambda size, precision: measure(size, precision, arguments)) if arguments.alone else _in_process_of_its_own
    results = [result for size in arguments.sizes for precision in precisions for result in run(size, precision)]
    report(results, arguments.json or arguments.alone)


if __name__ == "__main__":
    main()
