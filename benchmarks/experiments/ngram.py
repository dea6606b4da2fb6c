"""Measure the baseline of a biLM: a 5-gram model with modified Kneser-Ney smoothing of the same text and vocabulary.

It needs KenLM's programs `lmplz` and `query` (https://kheafield.com/code/kenlm/). Words outside of the corpus's
vocabulary count as one word, as they do for the biLM, and a sentence of n tokens has n + 1 predictions.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from elmo.text.corpus import Corpus
from elmo.text.reading import expand, read_sentences

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import report
from common.script import script

UNKNOWN = "@UNK@"
"""KenLM refuses its own <unk> in a text."""


def training_sentences(corpus: Corpus, max_tokens: int | None) -> Iterator[list[str]]:
    """Yield sentences of the corpus in random order, up to `max_tokens`."""
    words = np.array([*corpus.vocabulary().words, UNKNOWN], dtype=object)
    words[2] = UNKNOWN
    num_tokens = 0
    for sentence in np.random.default_rng(0).permutation(corpus.num_sentences):
        ids = corpus.tokens[corpus.starts[sentence] : corpus.starts[sentence + 1]]
        num_tokens += len(ids)
        if max_tokens is not None and num_tokens > max_tokens:
            return
        yield words[np.minimum(ids, corpus.vocabulary_size)].tolist()


def write(path: Path, sentences: Iterable[list[str]]) -> tuple[int, int]:
    """Write a sentence on each line, and return the numbers of tokens and sentences."""
    num_tokens = num_sentences = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for sentence in sentences:
            file.write(" ".join(sentence) + "\n")
            num_tokens += len(sentence)
            num_sentences += 1
    return num_tokens, num_sentences


def measure(
    corpus: Corpus, heldout: Path, kenlm: Path, order: int = 5, max_tokens: int | None = None
) -> dict[str, Any]:
    """Estimate on the corpus, and score the held-out text, which is read like the text of the corpus."""
    vocabulary = corpus.vocabulary()
    sentences = (s for s in read_sentences(expand([str(heldout)]), corpus.reading) if s)
    with tempfile.TemporaryDirectory() as folder:
        text, scored, model = (Path(folder) / name for name in ("train.txt", "heldout.txt", "model.arpa"))
        num_tokens, _ = write(text, training_sentences(corpus, max_tokens))
        num_scored, num_sentences = write(scored, ([w if w in vocabulary else UNKNOWN for w in s] for s in sentences))
        with text.open() as source, model.open("w") as target:
            estimate = [kenlm / "lmplz", "-o", str(order), "-S", "30%", "-T", folder, "--skip_symbols"]
            subprocess.run(estimate, stdin=source, stdout=target, check=True)
        with scored.open() as source:
            query = [kenlm / "query", "-v", "summary", model]
            output = subprocess.run(query, stdin=source, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {
        "name": f"ngram/{order}/kneser-ney",
        "train_tokens": num_tokens,
        "vocabulary_size": corpus.vocabulary_size,
        "num_predictions": num_scored + num_sentences,
        "perplexity": float(re.findall(r"Perplexity including OOVs:\s+([\d.e+]+)", output)[0]),
    }


@script
def main() -> None:
    """Measure, and print a line or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="a folder made by elmo prepare")
    parser.add_argument("heldout", type=Path, help="text to score, read like the text of the corpus")
    parser.add_argument("--kenlm", type=Path, required=True, help="the folder with lmplz and query")
    parser.add_argument(
        "--order", type=int, default=5, help="the largest number of words in an n-gram; default: %(default)s"
    )
    parser.add_argument("--max-tokens", type=int, help="train on this many tokens of the corpus, chosen at random")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    result = measure(corpus, arguments.heldout, arguments.kenlm, arguments.order, arguments.max_tokens)
    report([result], arguments.json)


if __name__ == "__main__":
    main()
