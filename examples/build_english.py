"""Make the package's own English model from a folder of texts: prepare, pretrain, measure and pack it.

The script writes `src/elmo/models/en`. DATA has the texts in `lm/`, and the texts that models are measured on in `lm/`,
`pos/` and `wsd/`, each file plain or compressed. WORK keeps the corpus, the runs, the figures and the packed model. The
same command, started again, continues where it stopped, even in the middle of a training. Each step is a command that
you could type.

    python examples/build_english.py ../shared/data work/ --kenlm kenlm/build/bin
    python examples/build_english.py ../shared/data work/ --corpus corpus/ --run run/  # a run that is done
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from elmo import formats
from elmo.errors import ElmoError
from elmo.formats import sources
from elmo.formats.card import model_card, table_rows
from elmo.formats.model import Model
from elmo.formats.native_files import SOFTMAX, WEIGHTS
from elmo.pretrain.run_folder import text_facts
from elmo.text.corpus import Corpus
from elmo.training.machine import machine_name

TEXTS = ("en_wiki2014", "en_wiki_recent", "en_books", "en_misc")
SOURCES = "Wikipedia (CC BY-SA), books, speeches and other free texts (public domain)"
VALID = "en_heldout_valid"
STAGES: tuple[tuple[str, ...], ...] = (
    ("training.max_steps=5950",),
    ("training.max_steps=10840", "training.seed=1", "training.learning_rate=0.005"),
    ("training.max_steps=7019", "training.seed=2", "training.learning_rate=0.004"),
)
"""The settings of runs of 108, 122 and 80 minutes, each of which starts from the model of the run before it."""
BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "experiments" / "default_model.py"
MOST_BYTES = 30_000_000
"""The largest size of the weights, and of the softmax."""

LIMITS = """\
- It is a small model that was trained for hours on a CPU. Larger ones, and newer kinds of models, know more.
- Of its text, two thirds are encyclopedia articles as of 2015, a quarter is books from before 1929: it has read little
  of today's spoken language, no posts and hardly any news, and it has those texts' views of people and peoples.
- It reads text that is tokenized as in the Penn Treebank (`--tokenizer ptb`), in upper and lower case.
- It has read Wikipedia articles and novels: tests made from these may hold sentences that it knows.
- It predicts single words from left to right and from right to left. It is not meant for writing text.
"""
LICENSE = """\
The files of the model are under Apache-2.0, as the package is. They hold none of the texts, but for a list of their
most frequent words.
"""


def run(*command: object) -> str:
    """Show a command, run it, and return what it printed."""
    words = [str(word) for word in command]
    print("\n$ python " + " ".join(f"'{word}'" if " " in word else word for word in words), flush=True)
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            printed, _ = process.communicate()
        except KeyboardInterrupt:
            process.wait()  # it gets Ctrl-C, too, and a training saves its state then
            raise SystemExit("stopped; the same command continues") from None
    if process.returncode:
        raise SystemExit(f"the command ended with exit code {process.returncode}; see above")
    return printed


def elmo(*arguments: object) -> None:
    """Run a command of `elmo`."""
    print(run("-m", "elmo", *arguments), end="")


def find(folder: Path, name: str) -> Path:
    """Return the path of a text in the folder, compressed or not."""
    found = sorted(folder.glob(f"{name}.txt*"))
    if not found:
        raise ElmoError(f"{folder}: has no {name}.txt, plain or compressed")
    return found[0]


def train(arguments: argparse.Namespace) -> None:
    """Prepare the corpus, unless it is there, and pretrain until the last run is done."""
    texts: Path = arguments.data / "lm"
    if not arguments.corpus.exists():
        source = ("--language", "en", "--license", SOURCES)
        how = ("--tokenizer", "ptb", "--text", "paragraphs", "--max-vocabulary", 50_000)
        elmo("prepare", arguments.corpus, *(find(texts, name) for name in TEXTS), *how, *source)
    start: tuple[object, ...] = ()
    for number, own in enumerate(STAGES, 1):
        folder = arguments.run if number == len(STAGES) else arguments.work / f"run-{number}"
        settings = [word for text in (*own, *arguments.overrides) for word in ("--set", text)]
        how = ("--recipe", "en", *settings, *start, "--heldout", find(texts, VALID))
        done = json.loads(run("-m", "elmo", "pretrain", arguments.corpus, folder, *how, "--json"))
        print(done)
        if not done["done"]:
            raise SystemExit(f"{folder}: stopped; the same command continues")
        start = ("--from", folder)


def measure(arguments: argparse.Namespace, model: Path) -> Path:
    """Measure a model as it is shipped, not as it was trained, and return the file of the figures."""
    path: Path = arguments.work / "figures.json"
    kenlm = ("--kenlm", arguments.kenlm, "--corpus", arguments.corpus) if arguments.kenlm else ()
    baseline = ("--baseline", arguments.baseline) if arguments.baseline else ()
    quick = ("--quick",) if arguments.quick else ()
    path.write_text(run(BENCHMARK, model, "--json", "--data", arguments.data, *kenlm, *baseline, *quick))
    return path


def measured(results: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the rows of the card's table, from what `benchmarks/experiments/default_model.py` found."""
    for result in results:
        kind, _, name = str(result["name"]).partition("/")
        layers = "mean" not in name
        if kind == "perplexity":
            value = f"{result['perplexity']:.1f}"
            if "directions" in result:
                value += " (" + ", ".join(f"{direction:.1f}" for direction in result["directions"]) + ")"
            if "model_is_lower_by" in result:
                share = result["model_is_lower_by"]
                value += f", the model's is {abs(share):.0%} {'lower' if share > 0 else 'higher'}"
            yield f"perplexity of {name.replace('/', ', ')}", value
        elif kind == "pos":
            noisy = f", {result['noisy']:.1f} with typos in one of five longer words" if "noisy" in result else ""
            yield f"tags of UD EWT, %: {name}", f"{result['clean']:.1f}{noisy}"
        elif kind == "wsd" and layers:
            yield f"word senses, F1 of five sets: {name}", f"{result['all']:.1f}"
        elif kind == "senses" and layers:
            word, _, layer = name.partition("/")
            value = f"{result['same']:.0f} % (by chance {result['chance']:.0f} %)"
            yield f"uses of “{word}” in SemCor whose nearest has their sense: {layer}", value


def training_figures(model: Model, corpus: Corpus) -> dict[str, str]:
    """Return the facts of the run about its training, and those that it wasn't told."""
    facts = text_facts(corpus)
    told = {"its files": ", ".join(TEXTS), "its language": "en", "its license": SOURCES}
    here = {"trained on": machine_name(torch.device("cpu"))}
    return facts | told | here | dict(model.figures) | facts


def describe(model: Model, found: Mapping[str, Any]) -> str:
    """Return the card: the model's figures, what was measured, limits and license."""
    rows = table_rows(dict(measured(found["results"])))
    compared = [result["trained_for"] for result in found["results"] if result["name"].endswith("/baseline")]
    baseline = f"; *baseline*: of the same size, trained as published for {compared[0]}" if compared else ""
    about = (
        "By `python benchmarks/experiments/default_model.py`. Perplexity is of the whole vocabulary, the mean of both "
        "directions (forward, backward); words outside of the vocabulary must be predicted as one. *5-gram*: of the "
        f"same text and vocabulary, modified Kneser-Ney smoothing{baseline}. Tags: a linear "
        "classifier on one layer; *words* knows words as a whole only. Senses: the nearest mean of a sense's uses in "
        "SemCor, or the nearest use."
    )
    sections = {"Measured": f"{about}\n\n| | |\n|---|---|\n{rows}", "Limits": LIMITS, "License": LICENSE}
    return model_card(model, model.figures, {"language": "en", "license": "apache-2.0"}, sections=sections, source="en")


def pack(arguments: argparse.Namespace) -> None:
    """Round the run's weights, measure and describe that, and put it into the package."""
    half: Path = arguments.work / "half"
    formats.save_native(formats.load(arguments.run), half, storage=arguments.storage)
    for name in (WEIGHTS, SOFTMAX):
        size = (half / name).stat().st_size
        if size > MOST_BYTES:
            raise ElmoError(f"{half / name}: {size:,} bytes are more than the {MOST_BYTES:,} that a package may hold")
    figures: Path = arguments.figures or measure(arguments, half)
    model = formats.load(half)
    model.figures = training_figures(model, Corpus.open(arguments.corpus))
    model.card = describe(model, json.loads(figures.read_text(encoding="utf-8")))
    formats.save_native(model, arguments.into, storage=arguments.storage)
    elmo("info", arguments.into)
    print("\n".join(f"{path}: {path.stat().st_size:,} bytes" for path in sorted(arguments.into.iterdir())))


def main() -> None:
    """Take all steps, or those after a finished run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder whose subfolders lm, pos and wsd hold the texts")
    parser.add_argument("work", type=Path, help="the folder for corpus, runs and figures")
    parser.add_argument(
        "--corpus", type=Path, help="a prepared corpus; default: WORK/corpus, made where it isn't there"
    )
    parser.add_argument("--run", type=Path, help="a finished run on that corpus; default: WORK/run, trained to its end")
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the recipe of each run",
    )
    parser.add_argument("--kenlm", type=Path, help="the folder with KenLM's programs: a 5-gram model to compare with")
    parser.add_argument("--baseline", help="a model of the same size, trained otherwise, to compare with")
    parser.add_argument(
        "--figures", type=Path, help="what benchmarks/experiments/default_model.py --json printed; default: measured"
    )
    parser.add_argument("--quick", action="store_true", help="measure on the beginnings of all texts")
    parser.add_argument(
        "--storage",
        default="float16",
        choices=["float16", "bf16", "float32"],
        help="the type of the stored weights; default: %(default)s",
    )
    parser.add_argument("--into", type=Path, default=sources.MODELS / "en", help="default: the package itself")
    arguments = parser.parse_args()
    is_trained = arguments.run is not None
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.corpus = arguments.corpus or arguments.work / "corpus"
    arguments.run = arguments.run or arguments.work / "run"
    try:
        if not is_trained:
            train(arguments)
        pack(arguments)
    except ElmoError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
