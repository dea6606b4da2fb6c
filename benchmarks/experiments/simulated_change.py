"""Measure how well `elmo change` finds words whose meaning was made to change.

Nobody knows which words of a text have changed, so change is simulated, as in Schlechtweg & Schulte im Walde 2020 and
Shoemark et al. 2019: the text is divided into two periods at random, in which every word means the same. Then pairs of
words of about the same frequency are merged in the second period, where each use of one word is written as the other.
The word that is written has two senses in the second period, and must be found. The other word of the pair is left out
of the ranking. The index is built with `build_index`, and words are ranked with `ChangeIndex`, as the commands do it.

`auc` is the probability that a merged word ranks above another one (0.5 by guessing), and `precision` is the share of
merged words among as many words at the top as there are merged ones.

    python benchmarks/experiments/simulated_change.py ../shared/data/lm/en_books.txt.xz --json
    python benchmarks/experiments/simulated_change.py ../shared/data/lm/en_wiki2014.txt.xz --json
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import elmo
from elmo.analysis.change import MEASURES, ChangeIndex, RankedWord
from elmo.analysis.search import build_index
from elmo.errors import ElmoError
from elmo.text.reading import Reading, read_sentences

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.english import first_sentences
from common.machine import report
from common.script import script

BLOCK = 20
"""The number of consecutive sentences in the same period, so that a passage with its peculiarities is not in both."""

MOST_USES = 2000
"""Words with more uses in a period are not merged: they are mostly function words."""


@dataclass(frozen=True)
class Simulation:
    """Two periods of a text, and the words that were merged in the second one."""

    periods: tuple[list[list[str]], list[list[str]]]
    merged: frozenset[str]
    removed: frozenset[str]


def simulate(sentences: Sequence[list[str]], min_count: int, share: float, seed: int) -> Simulation:
    """Divide a text into two periods, and merge pairs of words in the second one.

    Args:
        sentences: The text.
        min_count: How many uses in each period a merged word has at least.
        share: How many pairs are merged, as a share of the words with so many uses; at most 0.5.
        seed: The seed of the division and of the choice.

    Raises:
        ElmoError: If the text has too few such words.
    """
    random = np.random.default_rng(seed)
    of_block = random.integers(0, 2, len(sentences) // BLOCK + 1)
    periods = [[s for number, s in enumerate(sentences) if of_block[number // BLOCK] == period] for period in (0, 1)]
    counts = [Counter(token for sentence in period for token in sentence) for period in periods]
    least = {word: min(counts[0][word], counts[1][word]) for word in counts[0]}
    # Names and numbers are left out: they would be found, but mean little.
    words = [word for word, n in least.items() if min_count <= n <= MOST_USES and word.isalpha() and word.islower()]
    words.sort(key=lambda word: (counts[1][word], word))
    # Neighbors in the order of frequency, so that about half of the merged uses are those of the other word.
    pairs = [words[start : start + 2] for start in range(0, len(words) - 1, 2)]
    num_pairs = max(1, int(share * len(words)))
    if num_pairs > len(pairs):
        raise ElmoError(
            f"{len(words)} words have {min_count} uses in both periods, too few to merge {num_pairs} pairs; give more "
            "text, or a smaller --min-count or --share"
        )
    chosen = random.choice(len(pairs), num_pairs, replace=False)
    becomes: dict[str, str] = {}
    for number in chosen.tolist():
        kept, removed = random.permutation(pairs[number]).tolist()
        becomes[removed] = kept
    late = [[becomes.get(token, token) for token in sentence] for sentence in periods[1]]
    return Simulation((periods[0], late), frozenset(becomes.values()), frozenset(becomes))


def rank_all(model: Any, simulation: Simulation, layer: int, kind: Any, min_count: int) -> list[RankedWord]:
    """Index the two periods, and rank their words."""
    with TemporaryDirectory() as work:
        folder = Path(work)
        for name, period in zip(("early", "late"), simulation.periods, strict=True):
            (folder / f"{name}.txt").write_text("\n".join(map(" ".join, period)), encoding="utf-8")
        (folder / "periods.tsv").write_text("file\tperiod\nearly\tearly\nlate\tlate\n")
        texts = [str(folder / f"{name}.txt") for name in ("early", "late")]
        build_index(model, texts, folder / "index", layer=layer, kind=kind, metadata=folder / "periods.tsv")
        return ChangeIndex(folder / "index", "period").rank(min_count=min_count)


def area_under_curve(values: np.ndarray, is_positive: np.ndarray) -> float:
    """Return the probability that a random positive value is above a random negative one; half of it if equal."""
    above = (values[is_positive][:, None] > values[~is_positive]).mean()
    return float(above + (values[is_positive][:, None] == values[~is_positive]).mean() / 2)


def score(ranked: Sequence[RankedWord], simulation: Simulation) -> dict[str, Any]:
    """Return how well each measure finds the merged words."""
    chosen = [one for one in ranked if one.word not in simulation.removed]
    is_merged = np.array([one.word in simulation.merged for one in chosen])
    figures: dict[str, Any] = {"num_words": len(chosen), "num_merged": int(is_merged.sum())}
    for measure in MEASURES:
        values = np.array([getattr(one, measure) for one in chosen])
        first = np.argsort(-values, kind="stable")[: is_merged.sum()]
        figures[f"auc_{measure}"] = round(area_under_curve(values, is_merged), 4)
        figures[f"precision_{measure}"] = round(float(is_merged[first].mean()), 4)
    return figures


@script
def main() -> None:
    """Simulate change in each text, and rank its words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, metavar="TEXT", help="texts with a paragraph on each line")
    parser.add_argument("--model", default="en", help="a name or path that elmo.load takes; default: %(default)s")
    parser.add_argument("--layers", type=int, nargs="+", default=[2], help="the layers to index, one after the other")
    parser.add_argument("--vectors", nargs="+", default=["float16"], help="how the index stores them: float16, pq")
    parser.add_argument("--tokenizer", default="ptb", help="how the texts are cut; default: %(default)s")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="tokens of the text that are used")
    parser.add_argument("--every", type=int, default=5, help="of so many blocks of sentences, one is used")
    parser.add_argument(
        "--min-count",
        type=int,
        default=50,
        help="how often a word must occur in each period to be changed or ranked; default: %(default)s",
    )
    parser.add_argument(
        "--share", type=float, default=0.05, help="how many pairs are merged, as a share of the words (at most 0.5)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random choices")
    parser.add_argument("--quick", action="store_true", help="20,000 tokens, words with 8 uses or more")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.tokens, arguments.min_count = 20_000, 8
    model = elmo.load(arguments.model)
    results: list[dict[str, Any]] = []
    for path in arguments.texts:
        read = filter(None, read_sentences([str(path)], Reading(arguments.tokenizer, "paragraphs")))
        # Spread over the file, which begins with the books of one author, or the articles of one letter.
        spread = (s for number, s in enumerate(read) if number // BLOCK % arguments.every == 0)
        sentences = first_sentences(spread, arguments.tokens)
        simulation = simulate(sentences, arguments.min_count, arguments.share, arguments.seed)
        for layer in arguments.layers:
            for kind in arguments.vectors:
                ranked = rank_all(model, simulation, layer, kind, arguments.min_count)
                name = f"change/{path.name.partition('.')[0]}/layer{layer}/{kind}"
                results.append({"name": name, "num_tokens": sum(map(len, sentences)), **score(ranked, simulation)})
    report(results, arguments.json)


if __name__ == "__main__":
    main()
