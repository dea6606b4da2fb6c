"""Measure speed and memory of `elmo prepare` on synthetic text of two sizes.

The words of the text follow a Zipf distribution without an end, so that new types keep coming as in natural text. Each
measurement runs in a process of its own. Its peak memory is read from outside (on Linux only), and does not include the
processes that tokenize for it.

    python benchmarks/speed/prepare.py --json
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import peak_rss_mb, report
from common.script import script

MEGABYTE = 1_000_000
SIZES = (100, 400)
QUICK_SIZES = (2, 8)
LETTERS = np.frombuffer(b"etaoinshrdlcumwfgypbvkjxqz", np.uint8)
MAX_LETTERS = 12


@script
def main() -> None:
    """Measure both tokenizers on a small and a large text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"sizes {QUICK_SIZES} MB instead of {SIZES}")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    small, large = QUICK_SIZES if arguments.quick else SIZES
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = {size: folder / f"{size}.txt" for size in (small, large)}
        for size, path in texts.items():
            write_text(path, size * MEGABYTE)
        for tokenizer in ("whitespace", "ptb"):
            pair = [measure(texts[size], size, tokenizer) for size in (small, large)]
            if pair[0]["peak_rss_mb"]:  # it is 0 where it can't be measured
                pair[1]["peak_rss_ratio_to_small"] = round(pair[1]["peak_rss_mb"] / pair[0]["peak_rss_mb"], 3)
            results += pair
    report(results, arguments.json)


def write_text(path: Path, size: int) -> None:
    """Write at least `size` bytes of text, a sentence on each line. It is the same every time."""
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(make_lines(random, 1 << 18))


def make_lines(random: np.random.Generator, num_words: int) -> bytes:
    """Make lines of `num_words` words. A word is its rank, written with at least three of 26 letters as digits."""
    ranks = np.minimum(random.zipf(1.35, num_words), 26**MAX_LETTERS // 2) + 26**2
    characters = np.zeros((num_words, MAX_LETTERS + 2), np.uint8)
    for place in range(MAX_LETTERS):
        characters[:, place] = np.where(ranks > 0, LETTERS[ranks % 26], 0)
        ranks //= 26
    kind = random.random(num_words)
    characters[:, -2] = np.select([kind < 0.05, kind < 0.12], [ord("."), ord(",")], 0)
    characters[:, -1] = np.where(kind < 0.05, ord("\n"), ord(" "))
    return characters[characters > 0].tobytes()


def measure(text: Path, size: int, tokenizer: str) -> dict[str, Any]:
    """Run `elmo prepare` once on a text of `size` MB."""
    corpus = text.with_suffix(f".{tokenizer}")
    command = [sys.executable, "-m", "elmo", "prepare", str(corpus), str(text), "--tokenizer", tokenizer, "--json"]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peaks: dict[int, int] = {}
    while process.poll() is None:
        for pid in (process.pid, *children(process.pid)):
            peaks[pid] = max(peaks.get(pid, 0), peak_rss_mb(pid))
        time.sleep(0.05)
    seconds = time.perf_counter() - begin
    if process.returncode != 0 or process.stdout is None:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    counts = json.loads(process.stdout.read())
    own = peaks.pop(process.pid)
    return {
        "name": f"prepare/{size}MB/{tokenizer}",
        "tokens_per_second": round(counts["num_tokens"] / seconds),
        "seconds": round(seconds, 1),
        "num_tokens": counts["num_tokens"],
        "num_types": counts["num_types"],
        "peak_rss_mb": own,
        "peak_rss_mb_of_workers": sum(peaks.values()),
    }


def children(pid: int) -> list[int]:
    """Return the processes that `pid` started and that are still running."""
    try:
        found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for group in found for child in group]


if __name__ == "__main__":
    main()
