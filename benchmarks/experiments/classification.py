"""Train classifiers of texts on real data: without ELMo, with it, and a linear model by scikit-learn to compare with.

Started again, the script skips what is finished, and continues what was stopped.

    python benchmarks/experiments/classification.py runs/ --only ewt-genres
    python benchmarks/experiments/classification.py runs/ --only sst5-sentences --seeds 1 --set training.max_epochs=6

`ewt-genres` are the documents of UD's English Web Treebank, whose ids begin with their genre: answers, email,
newsgroup, reviews or weblog. `sst5-sentences` are the whole sentences of the Stanford Sentiment Treebank, and `letters`
those of `examples/letters`. The script writes the files that `elmo task train classify` reads, trains from several
seeds, and leaves a record of each kind.

The linear model is logistic regression on TF-IDF of words and pairs of words. Its strength of regularization and its
weights of classes are those that are best on the dev set.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from elmo.formats.files import write_all, write_json
from elmo.tasks.classify.data import read_labelled, read_texts
from elmo.tasks.classify.task import score_texts
from elmo.tasks.sst.data import read_trees
from elmo.text.decoding import read_lines

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.records import BASELINE, DATA, parse_with_records, train_and_record
from common.script import positive, script

PARTS = ("train", "dev", "test")
FEELINGS = ("very negative", "negative", "neutral", "positive", "very positive")
LINEAR = "linear"

Row = dict[str, Any]


def genres(path: Path) -> Iterator[Row]:
    """Yield the documents of a treebank with the genre that their ids begin with."""
    label, text = "", list[str]()
    for line in read_lines(path):
        if line.startswith("# newdoc id = "):
            if text:
                yield {"label": label, "text": " ".join(text)}
            label, text = line.removeprefix("# newdoc id = ").partition("-")[0], []
        elif line.startswith("# text = "):
            text.append(line.removeprefix("# text = "))
    yield {"label": label, "text": " ".join(text)}


def feelings(path: Path) -> Iterator[Row]:
    """Yield the sentences of a file of trees with their label in words."""
    for tree in read_trees(path):
        yield {"label": FEELINGS[tree.phrases[-1].label], "tokens": list(tree.with_plain_quotes().tokens)}


def topics(path: Path) -> Iterator[Row]:
    """Yield the letters of a file of CoNLL-U."""
    for text in read_labelled(path, "label", several=False):
        yield {"label": text.labels[0], "sentences": list(map(list, text.sentences))}


SETS: dict[str, tuple[str, Callable[[Path], Iterator[Row]]]] = {
    "ewt-genres": ("pos/ud_ewt_{}.conllu.xz", genres),
    "sst5-sentences": ("sst5/{}.txt.xz", feelings),
    "letters": (str(Path(__file__).resolve().parents[2] / "examples" / "letters" / "{}.conllu"), topics),
}
"""The file of each part of a set, below the data folder or absolute, and what reads it."""


def write_files(name: str, folder: Path, data: Path) -> dict[str, Path]:
    """Write the files of a set, unless they are there, and return them by part."""
    pattern, read = SETS[name]
    folder.mkdir(parents=True, exist_ok=True)
    files = {part: folder / f"{part}.jsonl" for part in PARTS}
    for part, file in files.items():
        if not file.exists():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in read(data / pattern.format(part)))
            write_all({file: lambda path, lines=lines: path.write_text(lines, encoding="utf-8")})
    return files


def train_linear(files: dict[str, Path], record: Path) -> None:
    """Train the linear models, and record the scores of the one that has the best macro F1 on the dev set.

    Nothing is done if there is a record.
    """
    if record.exists():
        print(f"{record}: is there already")
        return
    read = {part: read_texts(file, str.split, several=False) for part, file in files.items()}
    texts = {part: [" ".join(map(" ".join, text.sentences)) for text in read[part]] for part in PARTS}
    labels = {part: [text.labels[0] for text in read[part]] for part in PARTS}

    def fit(strength: float, weights: str | None) -> dict[str, Any]:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
        model = make_pipeline(words, LogisticRegression(C=strength, class_weight=weights, max_iter=5000))
        model.fit(texts["train"], labels["train"])
        found = {part: [(str(label),) for label in model.predict(texts[part])] for part in ("dev", "test")}
        scores = {part: score_texts([text.labels for text in read[part]], found[part]) for part in found}
        return {"C": strength, "class_weight": weights, "scores": scores}

    fitted = [fit(*choice) for choice in product((0.1, 1.0, 10.0, 100.0, 1000.0), (None, "balanced"))]
    best = max(fitted, key=lambda model: model["scores"]["dev"]["macro_f1"])
    record.parent.mkdir(parents=True, exist_ok=True)
    write_all({record: lambda path: write_json(path, best)})
    print(f"{record}: {best}")


@script
def main() -> None:
    """Train what is asked for on each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the folder of runs")
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS), help="these sets only")
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=[LINEAR, BASELINE, "en"],
        default=[LINEAR, BASELINE, "en"],
        help="these kinds of models only",
    )
    parser.add_argument("--seeds", type=positive, default=3, help="seeds of each classifier (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the data sets; default: %(default)s")
    arguments = parse_with_records(parser)
    for name, kind in product(arguments.only, arguments.kinds):
        folder: Path = arguments.root / name
        files = write_files(name, folder, arguments.data)
        if kind == LINEAR:
            train_linear(files, arguments.records / name / LINEAR / "tfidf.json")
            continue
        command = ["task", "train", "classify", *(f"--{part}={file}" for part, file in files.items())]
        command += ["--elmo", kind, "--out", str(folder / kind), "--seeds", str(arguments.seeds)]
        command += [word for setting in arguments.set for word in ("--set", setting)]
        train_and_record(command, folder / kind, arguments.records / name / f"{kind}.json")


if __name__ == "__main__":
    main()
