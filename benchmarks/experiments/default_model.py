"""What a model is good for: perplexity, parts of speech, typos, and senses of words (Peters et al. 2018, sec. 5.3).

Each part runs if its data is given. If no data is given, all parts run on the files of `--data`.

Perplexity is measured with the full softmax, on each file separately, with the state carried from sentence to sentence.
`--heldout` is raw text with a paragraph on each line; `--tokenized` has a sentence on each line, with spaces between
tokens. `--corpus` and `--kenlm` compare it with a 5-gram model of the training text (see `ngram.py`), and `--baseline`
with another biLM.

`--pos` has CoNLL-U files with tags in column 5. A linear classifier on each layer is compared with one that knows words
only as wholes, on the test text as it is and with typos in one of five longer words.

`--wsd` is a folder with SemCor, the test sets in the format of Raganato et al. (2017) and WordNet's `index.sense`. It
gives F1 of the nearest sense for each layer, compared with WordNet's first sense, and for some words how often the
nearest use has the same sense, and the nearest uses of queries.

    python benchmarks/experiments/default_model.py --json --corpus corpus/ --kenlm kenlm/build/bin
    python benchmarks/experiments/default_model.py run/ --json --pos en_ewt-ud-{train,dev,test}.conllu
    python benchmarks/experiments/default_model.py run/ --json --wsd WSD/ --pictures pictures/
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from ngram import measure as measure_ngram

from elmo import formats
from elmo.analysis import Tagged, read_conllu
from elmo.analysis.pos import most_frequent_tag
from elmo.analysis.senses import gather_uses, nearest_uses, plot_uses, sense_label, separation
from elmo.analysis.typos import evaluate_typos
from elmo.analysis.wsd import Score, evaluate_wsd
from elmo.analysis.wsd_data import Annotated, read_annotated, read_first_senses
from elmo.embed import Embedder
from elmo.embed.engine import PRECISIONS
from elmo.embed.layers import Layers, layer_name
from elmo.errors import ElmoError
from elmo.formats.model import Model
from elmo.nn.devices import use_device
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.text.corpus import Corpus
from elmo.text.reading import PLAIN, Reading, read_sentences

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import report
from common.records import DATA, WSD_TESTS
from common.script import script

HELDOUT, TOKENIZED = "lm/en_heldout_test.txt", "lm/wikitext2_valid.txt"
POS, WSD = "pos/ud_ewt_{}.conllu", "wsd"
QUERIES = {
    "play": ("They went to see a new play on Broadway .", "The children play in the park ."),
    "bank": ("She borrowed the money from a bank .", "We sat on the bank of the river ."),
    "spring": ("It rains a lot here in the spring .", "The lock has a broken spring in it ."),
}
RAW = Reading("ptb", "paragraphs")
"""How raw held-out text is read."""

NEAREST = 5
QUICK_POS = (600, 200, 400)
"""The numbers of sentences to train, tune and test on with `--quick`."""
QUICK_SEMCOR, QUICK_TEXT = 4000, 100
"""The numbers of sentences of SemCor and of each text with `--quick`."""


def measure_perplexity(model: Model, path: Path, tokenized: bool, quick: bool) -> dict[str, Any]:
    """Measure the perplexity of one text."""
    text = read_sentences([path], PLAIN if tokenized else RAW)
    found = Perplexity.of(score_sentences(model, islice(text, QUICK_TEXT if quick else None)))
    return {
        "name": f"perplexity/{path.name.split('.')[0]}",
        "perplexity": round(found.mean, 2),
        "directions": [round(value, 2) for value in found.directions],
        "num_tokens": found.num_tokens,
        "oov_rate": round(found.oov_rate, 4),
    }


def measure_perplexities(model: Model, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure the perplexity of each text, and of raw texts also what it is compared with."""
    quick: bool = arguments.quick
    for path in arguments.heldout:
        own = measure_perplexity(model, path, False, quick)
        yield own
        for name, other in _to_beat(model, arguments, path):
            lower = round(1 - own["perplexity"] / other["perplexity"], 4)
            yield {**other, "name": f"{own['name']}/{name}", "model_is_lower_by": lower}
    yield from (measure_perplexity(model, path, True, quick) for path in arguments.tokenized)


def _to_beat(model: Model, arguments: argparse.Namespace, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure the models to compare with. The 5-gram model takes minutes, so it is left out with `--quick`."""
    if arguments.baseline:
        baseline = _load(arguments.baseline, arguments)
        trained_for = baseline.figures.get("trained for", "")
        yield "baseline", {**measure_perplexity(baseline, path, False, arguments.quick), "trained_for": trained_for}
    if arguments.kenlm and arguments.corpus and not arguments.quick:
        corpus = Corpus.open(arguments.corpus)
        if model.vocabulary is None or model.vocabulary.words != corpus.vocabulary().words:
            raise ElmoError(
                f"{arguments.corpus}: has another vocabulary than the model; no 5-gram model compares with it"
            )
        if replace(corpus.reading, encoding=RAW.encoding, language=None) != RAW:
            raise ElmoError(f"{arguments.corpus}: was not read like the held-out text, which ptb tokenizes")
        yield "5-gram", measure_ngram(corpus, path, arguments.kenlm)


def _load(source: str, arguments: argparse.Namespace) -> Model:
    return formats.load(source).to(use_device(arguments.device))


def measure_pos(embedder: Embedder, parts: Sequence[Sequence[Tagged]]) -> Iterator[dict[str, Any]]:
    """Measure the accuracy of each layer and of the baselines, on clean text and with typos, in percent."""
    yield {"name": "pos/most frequent tag", "clean": _percent(most_frequent_tag(parts[0], parts[2]))}
    for name, scores in evaluate_typos(embedder, *parts, layers=_layers(embedder)).items():
        yield {"name": f"pos/{name}", **{key: _percent(value) for key, value in vars(scores).items()}}


def measure_wsd(
    embedder: Embedder, semcor: Sequence[Annotated], tests: Mapping[str, Sequence[Annotated]], first: Path
) -> Iterator[dict[str, Any]]:
    """Measure F1 of each layer and of the baseline, in percent."""
    for name, scores in evaluate_wsd(embedder, semcor, tests, read_first_senses(first)).items():
        each = {test: _percent(score.f1) for test, score in scores.items()}
        together = sum(scores.values(), Score())
        yield {"name": f"wsd/{name}", "all": _percent(together.f1), **each, "num_instances": together.num_instances}


def measure_senses(embedder: Embedder, semcor: Sequence[Annotated], pictures: Path | None) -> Iterator[dict[str, Any]]:
    """Measure how well each layer separates the senses of some words, and find nearest uses in the last one."""
    for word, queries in QUERIES.items():
        for layer in _layers(embedder):
            found = separation(gather_uses(embedder, semcor, word, layer))
            yield {
                "name": f"senses/{word}/{layer_name(layer)}",
                "same": _percent(found.same),
                "chance": _percent(found.chance),
                "num_uses": found.num_uses,
                "num_senses": found.num_senses,
            }
        uses = gather_uses(embedder, semcor, word)
        for query in queries:
            nearest = nearest_uses(embedder, uses, word, query.split(), top=NEAREST)
            shown = [
                (round(cosine, 3), sense_label(uses.senses[number]), " ".join(uses.sentences[number]))
                for cosine, number in nearest
            ]
            yield {"name": f"nearest/{word}", "query": query, "uses": shown}
        if pictures:
            plot_uses(pictures / f"{word}.png", uses, f"Uses of “{word}” in SemCor, last layer")


def _layers(embedder: Embedder) -> list[Layers]:
    return [*range(embedder.num_layers), "mean"]


def _percent(share: float) -> float:
    return round(100 * share, 4)


def _find(folder: Path, pattern: str) -> Path:
    """Find a file in the folder or in the folders in it, compressed or not."""
    found = sorted(folder.rglob(f"{pattern}*"))
    if not found:
        raise ElmoError(f"{folder}: has no file {pattern}, plain or compressed")
    return found[0]


@script
def main() -> None:
    """Measure the parts whose data is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="en", help="a name or path that elmo.load takes; default: en")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="the folder with the data of all parts; default: %(default)s"
    )
    parser.add_argument("--heldout", nargs="+", type=Path, default=[], help="raw text, which the tokenizer ptb cuts")
    parser.add_argument(
        "--tokenized",
        nargs="+",
        type=Path,
        default=[],
        help="text with a sentence on each line and spaces between tokens",
    )
    parser.add_argument("--corpus", type=Path, help="the prepared training text, for a 5-gram model")
    parser.add_argument("--kenlm", type=Path, help="the folder with KenLM's programs, for a 5-gram model")
    parser.add_argument("--baseline", help="another model, to compare its perplexity")
    parser.add_argument(
        "--pos", nargs=3, type=Path, metavar=("TRAIN", "DEV", "TEST"), help="files of CoNLL-U with tags in column 5"
    )
    parser.add_argument(
        "--wsd", type=Path, metavar="FOLDER", help="SemCor, the test sets of word senses, and index.sense"
    )
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="where to write pictures of the words' uses")
    parser.add_argument(
        "--precision",
        default="float32",
        choices=list(PRECISIONS),
        help="the precision of embedding; default: %(default)s",
    )
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda or auto")
    parser.add_argument("--quick", action="store_true", help="use only the beginnings of all texts")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    if bool(arguments.kenlm) != bool(arguments.corpus):
        parser.error("a 5-gram model takes both --kenlm and --corpus")
    if not (arguments.heldout or arguments.tokenized or arguments.pos or arguments.wsd):
        data: Path = arguments.data
        arguments.heldout, arguments.tokenized = [_find(data, HELDOUT)], [_find(data, TOKENIZED)]
        arguments.pos = [_find(data, POS.format(part)) for part in ("train", "dev", "test")]
        arguments.wsd = data / WSD
    report([*_measure(arguments)], arguments.json)


def _measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    start = time.perf_counter()

    def timed(part: str) -> dict[str, Any]:
        nonlocal start
        start, before = time.perf_counter(), start
        return {"name": f"seconds/{part}", "seconds": round(start - before, 1)}

    quick: bool = arguments.quick
    model = _load(arguments.model, arguments)
    if arguments.heldout or arguments.tokenized:
        yield from measure_perplexities(model, arguments)
        yield timed("perplexity")
    embedder = Embedder(model, device=arguments.device, precision=arguments.precision)
    if arguments.pos:
        sizes = QUICK_POS if quick else (None, None, None)
        yield from measure_pos(
            embedder, [read_conllu(path)[:size] for path, size in zip(arguments.pos, sizes, strict=True)]
        )
        yield timed("pos")
    if arguments.wsd:
        semcor, *tests = (
            list(read_annotated(_find(arguments.wsd, f"{name}.data.xml"))) for name in ("semcor", *WSD_TESTS)
        )
        known = semcor[:QUICK_SEMCOR] if quick else semcor
        yield from measure_wsd(
            embedder, known, dict(zip(WSD_TESTS, tests, strict=True)), _find(arguments.wsd, "*index.sense")
        )
        yield timed("wsd")
        if arguments.pictures:
            arguments.pictures.mkdir(parents=True, exist_ok=True)
        yield from measure_senses(embedder, semcor, arguments.pictures)
        yield timed("senses")


if __name__ == "__main__":
    main()
