"""Train all taggers of docs/little-text.md: on little text, without ELMo and with a biLM of that text.

Started again, the script skips what is finished, and continues what was stopped.

    python benchmarks/experiments/little_text.py runs/ --only got fro san hbo
    python benchmarks/experiments/little_text.py runs/ --only szeged-20k szeged-100k szeged-1M szeged --seeds 1

For each set it makes the biLM first (`elmo task text`, `elmo prepare`, `elmo pretrain`), unless the plan names one that
exists. Then it trains the tagger from several seeds, without the biLM and with it. `--kinds static` trains it without
the biLM, but with static vectors of the biLM's text (`elmo static`). Each step is a command of `elmo` and is printed. A
record of each remains, from which `pages/little_text.py` writes its page. A seed of a tagger that is recorded is not
trained again. A biLM is only trained again if its folder is gone.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import torch

from elmo.errors import ElmoError
from elmo.formats.files import write_all, write_json
from elmo.text.decoding import read_lines
from elmo.training.machine import machine_name

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.records import BASELINE, DATA, STATIC, is_recorded, parse_with_records, run_elmo, shown, train_and_record
from common.script import positive, script

SHORT = ("--recipe", "auto", "--evaluate-every", "100", "--set", "training.patience=5")
LONG = ("--recipe", "auto", "--evaluate-every", "500", "--set", "training.max_minutes=20")
"""A long text is not learned by heart, and patience could end a run whose learning rate is still high."""

STATIC_OPTIONS = ("--dim", "128", "--min-count", "2", "--epochs", "5")
"""The options of `elmo static`: the width of the tagger's word vectors, and the `--min-count` of the biLM's corpus."""


@dataclass(frozen=True)
class Plan:
    """A tagged corpus, and where the biLM for it comes from.

    Attributes:
        name: The name of the plan, which is that of its folders, too.
        treebank: The path of its files below the data folder, with `{}` in place of the part.
        parts: The names of the training, dev and test part. There may be no test part.
        text: A text to pretrain on, or None for the training set's own sentences.
        prepare: Options of `elmo prepare` that say what the text is like.
        words: How many words of the text to use, counted by spaces, or None for all.
        elmo: A model that exists, instead of a text.
        settings: Keys of the tagger's recipe to change.
        pretrain: Options of `elmo pretrain`.
    """

    name: str
    treebank: str
    parts: tuple[str, ...] = ("train", "valid")
    text: str | None = None
    prepare: tuple[str, ...] = ()
    words: int | None = None
    elmo: str | None = None
    settings: tuple[str, ...] = ()
    pretrain: tuple[str, ...] = SHORT


UD = ("train", "dev", "test")
SZEGED = "pos/ud_hu_szeged_{}.conllu.xz"
NOVELS = "lm/hu_novels.txt.xz"
RAW_HUNGARIAN = ("--tokenizer", "spacy:hu", "--text", "paragraphs", "--language", "hu")
NO_XPOS = ("targets=[upos,feats,lemma]",)

PLANS = (
    *(Plan(name, f"morph/{name}_{{}}.conllu.xz") for name in ("got", "fro", "san", "hbo")),
    *(
        Plan(f"szeged{share}", SZEGED, UD, NOVELS, RAW_HUNGARIAN, words, settings=NO_XPOS, pretrain=options)
        for share, words, options in (
            ("-20k", 20_000, SHORT),
            ("-100k", 100_000, SHORT),
            ("-1M", 1_000_000, LONG),
            ("", None, LONG),
        )
    ),
    Plan("ewt", "pos/ud_ewt_{}.conllu.xz", UD, elmo="en"),
)


def run(command: Sequence[str]) -> tuple[str, int]:
    """Run `elmo` with these arguments, and return what it prints, and its peak of memory in MB."""
    print("$ elmo", *command, flush=True)
    with TemporaryFile("w+", encoding="utf-8") as output:
        peak = run_elmo(command, output)
        output.seek(0)
        return output.read(), peak


def write_text_of(treebank: Path, path: Path) -> None:
    """Write the sentences of a treebank to a file, one on each line, unless that is done."""
    if not path.exists():
        printed, _ = run(["task", "text", "tag", str(treebank)])
        write_all({path: lambda part: part.write_text(printed, encoding="utf-8")})


def take_words(text: Path, number: int, share: Path) -> None:
    """Write the first lines of a text that have `number` words together."""
    lines: list[str] = []
    for line in read_lines(text):
        lines.append(f"{line}\n")
        number -= len(line.split())
        if number <= 0:
            break
    write_all({share: lambda path: path.write_text("".join(lines), encoding="utf-8")})


def make_corpus(plan: Plan, arguments: argparse.Namespace) -> Path:
    """Prepare the text of a plan, unless that is done, and return the folder of the corpus."""
    folder: Path = arguments.root / plan.name
    folder.mkdir(parents=True, exist_ok=True)
    text, corpus = folder / "text.txt", folder / "corpus"
    if plan.text is None:
        write_text_of(arguments.data / plan.treebank.format(plan.parts[0]), text)
    elif plan.words is None:
        text = arguments.data / plan.text
    elif not text.exists():
        take_words(arguments.data / plan.text, plan.words, text)
    run(["prepare", str(corpus), str(text), "--min-count", "2", *plan.prepare])
    return corpus


def make_static(plan: Plan, arguments: argparse.Namespace) -> Path:
    """Train static vectors of the text of a plan, unless that is done, and return their file."""
    if plan.elmo is not None:
        raise ElmoError(f"{plan.name}: its biLM is {plan.elmo}, whose text isn't here; leave it out of --kinds static")
    vectors: Path = arguments.root / plan.name / "static.txt"
    if not vectors.exists():
        run(["static", str(make_corpus(plan, arguments)), str(vectors), *STATIC_OPTIONS])
    return vectors


def make_bilm(plan: Plan, arguments: argparse.Namespace) -> str:
    """Pretrain the biLM of a plan, unless that is done, and return its path."""
    if plan.elmo is not None:
        return plan.elmo
    corpus = make_corpus(plan, arguments)
    heldout, bilm = corpus.parent / "heldout.txt", corpus.parent / "bilm"
    write_text_of(arguments.data / plan.treebank.format(plan.parts[1]), heldout)
    command = ["pretrain", str(corpus), str(bilm), "--heldout", str(heldout), *(arguments.pretrain or plan.pretrain)]
    record: Path = arguments.records / plan.name / "bilm" / f"{arguments.name}.json"
    is_known = is_recorded(command, record)
    printed, megabytes = run([*command, "--json"])  # trains nothing if the biLM is finished
    result = json.loads(printed)
    if not result["done"]:
        raise SystemExit(f"{bilm}: stopped; run the same command again to continue")
    if not is_known:  # the record of the run that the published figures come from stays
        facts = {
            "command": shown(["elmo", *command]),
            "machine": machine_name(torch.device("cpu")),
            "peak_mb": megabytes,
            **result,
            "run": bilm.name,
        }
        record.parent.mkdir(parents=True, exist_ok=True)
        write_all({record: lambda path: write_json(path, facts)})
    return str(bilm)


def train_tagger(plan: Plan, kind: str, arguments: argparse.Namespace) -> None:
    """Train the tagger of a plan from several seeds, with what its `kind` needs."""
    bilm = make_bilm(plan, arguments) if kind == "elmo" else BASELINE
    vectors = [f"words.vectors={make_static(plan, arguments)}"] if kind == STATIC else []
    kind = arguments.name if kind == "elmo" else kind
    files = [str(arguments.data / plan.treebank.format(part)) for part in plan.parts]
    out = arguments.root / plan.name / kind
    command = ["task", "train", "tag", "--elmo", bilm, "--out", str(out), "--seeds", str(arguments.seeds)]
    command += [
        word for option, file in zip(("--train", "--dev", "--test"), files, strict=False) for word in (option, file)
    ]
    command += [word for setting in (*plan.settings, *arguments.set, *vectors) for word in ("--set", setting)]
    train_and_record(command, out, arguments.records / plan.name / f"{kind}.json")


@script
def main() -> None:
    """Make the biLM of each plan that is asked for, and train its taggers."""
    names = [plan.name for plan in PLANS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the folder of runs")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these sets only")
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=[BASELINE, STATIC, "elmo"],
        default=[BASELINE, "elmo"],
        help="these kinds of taggers only; default: %(default)s",
    )
    parser.add_argument("--name", default="elmo", help="the name of the runs with ELMo (default: %(default)s)")
    parser.add_argument("--seeds", type=positive, default=3, help="seeds of each tagger (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the tagger's recipe")
    parser.add_argument(
        "--pretrain",
        type=shlex.split,
        help="options of elmo pretrain, as one argument "
        f"(default: {shlex.join(SHORT)}; from a million words on: {shlex.join(LONG)})",
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="the folder of the treebanks and texts; default: %(default)s"
    )
    arguments = parse_with_records(parser)
    for plan in PLANS:
        if plan.name not in arguments.only:
            continue
        for kind in arguments.kinds:
            train_tagger(plan, kind, arguments)


if __name__ == "__main__":
    main()
