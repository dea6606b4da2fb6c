"""Measure what bulk embedding costs besides computing: reading, writing, and passing arrays between processes.

The model is of the size `small` with random weights, in int8 where there are native kernels, and the text is
made up. `write/…` is the time that a file format takes for sentences of 25 tokens of 3 x 256 float32, including the
directory; `write/h5py` is the HDF5 library itself. `bulk/…` embeds the top layer of a text in memory, into a file, and
on two processes of one thread each.

    python benchmarks/speed/bulk.py --json
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from elmo import _native
from elmo.embed import Embedder
from elmo.embed.hdf5 import HDF5Writer
from elmo.embed.layers import Entry, VectorLayout
from elmo.embed.npz import NpzWriter
from elmo.embed.parallel import ParallelEmbedder
from elmo.embed.parquet import ParquetWriter
from elmo.formats import load, save_native
from elmo.text.reading import Reading, read_sentences

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.english import make_text
from common.machine import report, seconds_of
from common.models import random_model
from common.script import script

WRITERS = {"h5": HDF5Writer, "npz": NpzWriter, "parquet": ParquetWriter}
TOKENS, NUM_LAYERS, WIDTH = 25, 3, 256
WINDOW = 200
"""Sentences that are written together."""


@script
def main() -> None:
    """Measure reading, writing and everything together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="how often each is measured; the median counts")
    parser.add_argument("--quick", action="store_true", help="few tokens, once")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else arguments.repeats
    with tempfile.TemporaryDirectory() as folder:
        results = [
            *measure_reading(Path(folder), repeats),
            *measure_writing(Path(folder), 1_000 if arguments.quick else 10_000, repeats),
            *measure_whole(Path(folder), 5_000 if arguments.quick else 60_000, repeats),
        ]
    report(results, arguments.json)


def measure_reading(folder: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Return the tokens a second of each tokenizer."""
    text = make_text(100_000)
    path = folder / "text.txt"
    path.write_text("\n".join(map(" ".join, text)), encoding="utf-8")
    for tokenizer in ("whitespace", "ptb"):
        num_tokens = sum(map(len, read_sentences([str(path)], Reading(tokenizer))))
        seconds = _median(lambda name=tokenizer: sum(1 for _ in read_sentences([str(path)], Reading(name))), repeats)
        yield {"name": f"read/{tokenizer}", "tokens_per_second": round(num_tokens / seconds)}


def measure_writing(folder: Path, num_sentences: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Return the microseconds a sentence of each format."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((WINDOW, NUM_LAYERS, TOKENS, WIDTH), np.float32)
    window = [Entry(["token"] * TOKENS, array) for array in vectors]
    runs: dict[str, Callable[[Path], object]] = {
        **{name: lambda place, kind=kind: _write(kind, place, window, num_sentences) for name, kind in WRITERS.items()},
        "h5py": lambda place: _write_by_library(place / "data", window, num_sentences),
    }
    for name, run in runs.items():
        seconds: list[float] = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(dir=folder) as place:
                seconds.append(seconds_of(lambda place=place, run=run: run(Path(place))))
        yield {
            "name": f"write/{name}",
            "microseconds_per_sentence": round(1e6 * statistics.median(seconds) / num_sentences, 1),
        }


def _write(
    kind: type[HDF5Writer | NpzWriter | ParquetWriter], folder: Path, window: list[Entry], num_sentences: int
) -> None:
    writer = kind(folder, VectorLayout(WIDTH, NUM_LAYERS, False), np.dtype(np.float32), {}, {})
    for _ in range(num_sentences // WINDOW):
        writer.add(window)
    writer.finish()
    writer.close()


def _write_by_library(path: Path, window: list[Entry], num_sentences: int) -> None:
    with h5py.File(path, "w") as file:
        for number in range(num_sentences):
            file.create_dataset(str(number), data=window[number % WINDOW].vectors)


def measure_whole(folder: Path, num_tokens: int, repeats: int) -> list[dict[str, Any]]:
    """Return the tokens a second of computing alone, with writing, and on two processes, measured in turn."""
    precision = "int8" if "int8" in _native.available() else "float32"
    save_native(random_model("small"), folder / "model")
    text = make_text(num_tokens)
    alone = Embedder(load(folder / "model"), precision=precision)
    with ParallelEmbedder(folder / "model", ["cpu", "cpu"], precision=precision) as parallel:
        runs: dict[str, Callable[[], object]] = {
            "memory": lambda: sum(1 for _ in alone.stream(text, layers="top")),
            "file": lambda: alone.write(folder / "vectors.h5", text, layers="top", overwrite=True),
            "two-processes": lambda: parallel.write(folder / "vectors.h5", text, layers="top", overwrite=True),
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            run()
        for _ in range(repeats):
            for name, run in runs.items():
                seconds[name].append(seconds_of(run))
    rates = {name: sum(map(len, text)) / statistics.median(values) for name, values in seconds.items()}
    return [
        {
            "name": f"bulk/small/{name}/{precision}",
            "tokens_per_second": round(rate),
            "ratio_to_memory": round(rate / rates["memory"], 3),
        }
        for name, rate in rates.items()
    ]


def _median(run: Callable[[], object], repeats: int) -> float:
    return statistics.median(seconds_of(run) for _ in range(repeats))


if __name__ == "__main__":
    main()
