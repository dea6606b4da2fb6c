"""Measure what an index of contextual vectors misses and costs, with vectors stored in float16 or product-quantized.

`search/exact/…` is the search to compare with: it multiplies the query's vector with the float32 vectors of all tokens,
in memory. `recall_at_10` is the share of its ten nearest uses that `ContextIndex.find_neighbors` returns, and
`recall_of_vectors` is the share that the stored vectors find alone, before the candidates are embedded again.
`queries_per_second` and `searches_per_second` are the rates of these two. The first includes embedding the query and
its candidates, and finding words without context. `build_seconds` include the vectors of words without context, but not
embedding the text, which `search/embed` measures. Queries are tokens of sentences that follow the indexed text. `any`
searches all tokens, and `word` the uses of the query's word, which occurs at least 100 times.

    python benchmarks/speed/search.py --model model/ --text text.txt --json

The text has a sentence on each line, with spaces between tokens. Without --model and --text, weights are random and the
text is made up. That measures the costs, but says nothing about the recall on real vectors.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo import formats
from elmo.analysis.search import ContextIndex, build_index
from elmo.analysis.search.vectors import KINDS
from elmo.analysis.vectors import unit
from elmo.embed import Embedder
from elmo.errors import ElmoError
from elmo.formats.model import Model

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.english import make_text, read_text
from common.machine import report, seconds_of, timed
from common.models import random_model
from common.script import script

TOP, FREQUENT, QUERY_TOKENS = 10, 100, 20_000

Text = list[list[str]]
Query = tuple[list[str], int]
Array = NDArray[Any]


class Recorded(Embedder):
    """Embeds a text once, into a file, so that its time doesn't count for each way to store the vectors."""

    def record(self, text: Text, path: Path) -> None:
        """Embed the top layer of the text, as vectors of length 1."""
        ends = np.cumsum([len(sentence) for sentence in text]).tolist()
        self.places = {tuple(tokens): end - len(tokens) for tokens, end in zip(text, ends, strict=True)}
        self.vectors = np.memmap(path, np.float32, "w+", shape=(ends[-1], self.width))
        for vectors, end in zip(super().stream(text, layers="top"), ends, strict=True):
            self.vectors[end - len(vectors) : end] = unit(vectors)

    def stream(self, sentences: Iterable[Sequence[str]], **options: Any) -> Iterator[NDArray[np.float32]]:
        """Yield the recorded vectors. Layer 0 is not recorded, and computed as usual."""
        if options["layers"] == "token":
            yield from super().stream(sentences, **options)
            return
        for tokens in sentences:
            start = self.places[tuple(tokens)]
            yield self.vectors[start : start + len(tokens)]


def measure(model: Model, precision: Any, text: Text, rest: Text, num_queries: int, folder: Path) -> Iterator[Any]:
    """Measure each way to store the vectors."""
    (folder / "text").write_text("\n".join(map(" ".join, text)), encoding="utf-8")
    embedder = Recorded(model, precision=precision)
    seconds = seconds_of(lambda: embedder.record(text, folder / "vectors"))
    num_tokens = len(embedder.vectors)
    yield {
        "name": f"search/embed/{embedder.width}/{embedder.precision}",
        "num_tokens": num_tokens,
        "tokens_per_second": round(num_tokens / seconds),
    }
    tokens = [token for sentence in text for token in sentence]
    queries = choose_queries(rest, tokens, num_queries)
    plain = Embedder(model, precision=precision)
    exact = Exact(text, tokens, embedder.vectors)
    targets = [unit(plain.embed([sentence], layers="top")[0][place]) for sentence, place in queries]
    indices: dict[str, tuple[ContextIndex, dict[str, Any]]] = {}
    for kind in KINDS:
        seconds, built = timed(
            lambda kind=kind: build_index(embedder, [str(folder / "text")], folder / kind, kind=kind)
        )
        figures = {"bytes_per_token": round(built.num_bytes / num_tokens, 1), "build_seconds": round(seconds, 1)}
        indices[kind] = ContextIndex(folder / kind, plain), figures
    for words in ("any", "word"):
        only = [sentence[place] if words == "word" else None for sentence, place in queries]
        seconds, found = timed(lambda only=only: [exact.nearest(*pair) for pair in zip(targets, only, strict=True)])
        wanted = [exact.different(numbers)[:TOP] for numbers in found]
        yield {
            "name": f"search/exact/{words}",
            "recall_at_10": 1,
            "searches_per_second": round(len(queries) / seconds, 1),
            "bytes_per_token": 4 * embedder.width,
        }
        for kind, (index, figures) in indices.items():
            found = ask(index, queries, targets, wanted, exact, words == "word")
            yield {"name": f"search/{kind}/{words}", **found, **figures}


class Exact:
    """The search that compares all vectors."""

    def __init__(self, text: Text, tokens: Sequence[str], vectors: Array) -> None:
        self.sentences = [tuple(sentence) for sentence in text]
        self.starts = np.cumsum([0, *map(len, text)])
        self.vectors = np.array(vectors)
        self.places: dict[str, list[int]] = defaultdict(list)
        for place, token in enumerate(tokens):
            self.places[token].append(place)

    def nearest(self, target: Array, word: str | None) -> list[int]:
        """Return the tokens nearest to a vector of length 1, nearest first, as many as ten different uses take."""
        places = None if word is None else np.array(self.places[word])
        distances = (self.vectors if places is None else self.vectors[places]) @ -target
        few = np.argpartition(distances, min(20 * TOP, len(distances) - 1))[: 20 * TOP]
        nearest = few[np.argsort(distances[few])]
        return (nearest if places is None else places[nearest]).tolist()

    def different(self, tokens: Sequence[int]) -> list[tuple[tuple[str, ...], int]]:
        """Return tokens of the text as sentences and positions, equal ones only once."""
        numbers = (np.searchsorted(self.starts, tokens, side="right") - 1).tolist()
        pairs = zip(tokens, numbers, strict=True)
        return list(
            dict.fromkeys((self.sentences[number], int(token - self.starts[number])) for token, number in pairs)
        )


def choose_queries(rest: Text, tokens: Sequence[str], num_queries: int) -> list[Query]:
    """Choose tokens of `rest` at random that are frequent in the text."""
    frequent = {word for word, count in Counter(tokens).items() if count >= FREQUENT}
    places = [(sentence, place) for sentence in rest for place, word in enumerate(sentence) if word in frequent]
    if not places:
        raise ElmoError(f"no word of the queries' sentences occurs {FREQUENT} times in the text; give more text")
    chosen = np.random.default_rng(0).choice(len(places), min(num_queries, len(places)), replace=False)
    return [places[number] for number in chosen.tolist()]


def ask(
    index: ContextIndex,
    queries: Sequence[Query],
    targets: Sequence[Array],
    wanted: Sequence[Any],
    exact: Exact,
    same_word: bool,
) -> Any:
    """Measure recall and rates of an index."""
    seconds, answers = timed(
        lambda: [
            index.find_neighbors(
                tokens[place], tokens, any_word=not same_word, top=TOP, occurrence=occurrence(tokens, place)
            )
            for tokens, place in queries
        ]
    )
    masks = [index.text.having([tokens[place]]) if same_word else None for tokens, place in queries]
    search_seconds, found = timed(
        lambda: [index.store.nearest(target, 2 * TOP, mask) for target, mask in zip(targets, masks, strict=True)]
    )
    named = [[(use.tokens, use.position) for use in answer.uses] for answer in answers]
    raw = [exact.different(numbers.tolist())[:TOP] for numbers in found]
    return {
        "recall_at_10": recall(named, wanted),
        "recall_of_vectors": recall(raw, wanted),
        "queries_per_second": round(len(queries) / seconds, 1),
        "searches_per_second": round(len(queries) / search_seconds, 1),
        "num_queries": len(queries),
    }


def occurrence(tokens: Sequence[str], place: int) -> int:
    """Return the number of tokens equal to this one up to and including it."""
    return tokens[: place + 1].count(tokens[place])


def recall(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Return the share of the wanted uses that were found."""
    right = sum(len(set(a) & set(b)) for a, b in zip(found, wanted, strict=True))
    return round(right / sum(map(len, wanted)), 4)


@script
def main() -> None:
    """Measure all ways to store the vectors on one text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a trained model, by name or path")
    parser.add_argument("--text", type=Path, help="tokenized text, a sentence a line")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="the size of the index; default: %(default)s")
    parser.add_argument("--queries", type=int, default=200, help="how many words are looked up; default: %(default)s")
    parser.add_argument("--precision", default="float32", help="the precision of embedding")
    parser.add_argument("--quick", action="store_true", help="few tokens, few queries")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    num_tokens, num_queries = (20_000, 10) if arguments.quick else (arguments.tokens, arguments.queries)
    model = formats.load(arguments.model) if arguments.model else random_model("mini" if arguments.quick else "small")
    size = num_tokens + QUERY_TOKENS
    both = read_text(arguments.text, size) if arguments.text else make_text(size)
    ends = np.cumsum([len(sentence) for sentence in both])
    first = int(np.searchsorted(ends, ends[-1] - QUERY_TOKENS))
    if first == 0:
        parser.error(f"--text: expected more than the {QUERY_TOKENS:,} tokens that queries are chosen from")
    with tempfile.TemporaryDirectory() as folder:
        results = list(measure(model, arguments.precision, both[:first], both[first:], num_queries, Path(folder)))
    report(results, arguments.json)


if __name__ == "__main__":
    main()
