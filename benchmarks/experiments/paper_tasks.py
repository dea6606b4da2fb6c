"""Train all models of docs/results.md, one after the other.

Started again, the script skips the models that are finished, and continues the one that was stopped.

    python benchmarks/experiments/paper_tasks.py runs/ --vectors static50.txt static100.txt static300.txt
    python benchmarks/experiments/paper_tasks.py runs/ --elmo en --reduced --only wnut17 sst5 --seeds 1
    python benchmarks/experiments/paper_tasks.py runs/ --count --records benchmarks/records

`--vectors` are files of static word vectors (`elmo static`). Each task takes the file whose vectors have the width in
its recipe; without one, its word vectors start at random. The record of a model gets each seed when it is finished, and
`pages/results.py` writes its page from the records. A seed that is recorded is not trained again, even where its run
folder is gone. A record that another command made is an error.
`--reduced` changes the recipes so that training a model takes at most three hours on two processor cores.
`--count` trains nothing, and writes the number of examples in each training set to the file `examples.json` of the
records.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from elmo.errors import ElmoError
from elmo.formats.files import write_all, write_json
from elmo.tasks import get_task, load_task_recipe
from elmo.tasks.experiment import share_of
from elmo.text.decoding import read_lines
from elmo.training.recipes import parse_override

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.records import BASELINE, DATA, EXAMPLES, parse_with_records, read_examples, train_and_record
from common.script import positive, script


@dataclass(frozen=True)
class Plan:
    """The data and settings of a training.

    `files` are the training, dev and test sets below the data folder, each of which may be several with commas between
    them. `settings` change the recipe, and so do `reduced` ones for training on a processor. With a `subset`, the
    script writes and uses a training set that has only the pairs of its `SUBSETS`. Plans that aren't defaults are
    only trained if they are asked for: those in another language than English need a biLM of their own.
    """

    name: str
    task: str
    files: tuple[str, str, str]
    seeds: int = 5
    settings: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    subset: str = ""
    is_default: bool = True


def parts(pattern: str) -> tuple[str, str, str]:
    """Return the files of a data set that comes in three parts."""
    return pattern.format("train"), pattern.format("dev"), pattern.format("test")


WNUT17 = parts("ner/wnut17_{}.conll.xz")
CONLL2002 = (
    "ner/conll2002_esp_train.conll.xz",
    "ner/conll2002_esp_testa.conll.xz",
    "ner/conll2002_esp_testb.conll.xz",
)
WIKIGOLD = ("ner/wikineural_val.conll.xz", "ner/wikineural_test.conll.xz", "ner/wikigold.conll.xz")
SST5 = parts("sst5/{}.txt.xz")
NLI = ("nli/train.jsonl.xz", "nli/snli_dev.jsonl.xz", "nli/snli_test.jsonl.xz")
PROPBANK = parts("srl/propbank_ewt_{}.gold_conll.xz")
ONTOGUM = parts("coref/ontogum_{}.conll.xz")
LITBANK = parts("coref/litbank_{}.conll.xz")
SQUAD = (
    "squad/squadshifts_new_wiki.json.xz#40:,squad/squadshifts_amazon_reviews.json.xz,squad/squadshifts_reddit.json.xz",
    "squad/squadshifts_new_wiki.json.xz#:40",
    "squad/squad_dev-v1.1.json.xz",
)

NER_TENTH = ("training.share=0.1", "training.epoch_steps=50")  # about as many steps as an epoch of wnut17
NER_HUNDREDTH = ("training.share=0.01", "training.epoch_steps=50")
SNLI_TENTH = ("training.share=0.1", "training.epoch_steps=150")
SRL_TENTH = ("training.share=0.1",)
SRL_HUNDREDTH = ("training.share=0.01", "training.epoch_steps=50")  # about as many steps as an epoch of propbank10
SRL_THOUSANDTH = ("training.share=0.001", "training.epoch_steps=50")

PATIENT_NER = ("training.patience=10",)
SHORT_NER = ("training.max_epochs=15", "training.patience=4")
SHORT_SST = ("training.learning_rate=0.001", "training.max_epochs=4")
SHORT_SNLI = (
    "dropout=0.2",
    "with_elmo.attention_dropout=0.2",
    "training.learning_rate=0.001",
    "training.plateau_patience=2",
    "training.max_minutes=170",
)
SHORT_SRL = (
    "lstm.size=200",
    "lstm.layers=4",
    "training.optimizer=adam",
    "training.learning_rate=0.001",
    "training.patience=10",
    "training.max_minutes=170",
    "training.clip_norm=null",  # this and the next as in the recipe when the records were made
    "training.clip_value=1.0",
)
SHORT_DOCUMENTS = ("max_sentences=20",)
SHORT_COREF = (*SHORT_DOCUMENTS, "training.max_epochs=20", "training.patience=5")
SHORT_SQUAD = ("training.max_minutes=170",)

CAPTIONS = "snli-captions"
SUBSETS = {CAPTIONS: ("cad", "sick", "snli_sample")}
"""The sources of the pairs in each part of a training set."""

PLANS = (
    Plan("wnut17", "ner", WNUT17, reduced=PATIENT_NER),
    Plan("wnut17-10", "ner", WNUT17, settings=NER_TENTH, reduced=PATIENT_NER),
    Plan("wikigold", "ner", WIKIGOLD, settings=("token_column=-2",), reduced=SHORT_NER),
    Plan("conll2002", "ner", CONLL2002, reduced=SHORT_NER, is_default=False),
    Plan("conll2002-10", "ner", CONLL2002, settings=NER_TENTH, reduced=PATIENT_NER, is_default=False),
    Plan("conll2002-1", "ner", CONLL2002, seeds=3, settings=NER_HUNDREDTH, reduced=PATIENT_NER, is_default=False),
    Plan("sst5", "sst", SST5, reduced=SHORT_SST),
    Plan("sst5-published", "sst", SST5, seeds=3, is_default=False),  # `sst5` if nothing is reduced
    Plan("sst2", "sst", SST5, settings=("binary=true",), reduced=SHORT_SST),
    Plan("snli", "snli", NLI, seeds=3, reduced=SHORT_SNLI),
    Plan("snli-captions", "snli", NLI, seeds=3, reduced=SHORT_SNLI, subset=CAPTIONS),
    Plan("snli-captions-10", "snli", NLI, seeds=3, settings=SNLI_TENTH, reduced=SHORT_SNLI, subset=CAPTIONS),
    Plan("propbank", "srl", PROPBANK, seeds=3, reduced=SHORT_SRL),
    Plan("propbank10", "srl", PROPBANK, seeds=3, settings=SRL_TENTH, reduced=SHORT_SRL),
    Plan("propbank1", "srl", PROPBANK, seeds=3, settings=SRL_HUNDREDTH, reduced=SHORT_SRL),
    Plan("propbank0.1", "srl", PROPBANK, seeds=3, settings=SRL_THOUSANDTH, reduced=SHORT_SRL),
    Plan("ontogum", "coref", ONTOGUM, seeds=3, reduced=SHORT_COREF),
    Plan("ontogum-long", "coref", ONTOGUM, seeds=3, settings=SHORT_DOCUMENTS, is_default=False),
    Plan("litbank", "coref", LITBANK, seeds=3, reduced=SHORT_COREF),
    Plan("litbank-long", "coref", LITBANK, seeds=3, settings=SHORT_DOCUMENTS, is_default=False),
    Plan("squad", "squad", SQUAD, seeds=3, reduced=SHORT_SQUAD),
)


def command_of(plan: Plan, kind: str, arguments: argparse.Namespace) -> list[str]:
    """Return the arguments of `elmo` that train one model of the plan. `kind` is also the name of its folder."""
    train = _training_set(plan, arguments)
    dev, test = (_below(arguments.data, names) for names in plan.files[1:])
    files = ["--train", train, "--dev", dev, "--test", test]
    recipe = load_task_recipe(plan.task)
    settings = [*plan.settings, *(plan.reduced if arguments.reduced else ()), *arguments.set]
    if recipe.words is not None and (vectors := arguments.vectors.get(recipe.words.dim)):
        settings.append(f"words.vectors={vectors}")
    elmo = arguments.elmo if kind != BASELINE else BASELINE
    out, seeds = arguments.root / plan.name / kind, min(plan.seeds, arguments.seeds or plan.seeds)
    command = ["task", "train", plan.task, *files, "--elmo", elmo, "--out", str(out), "--seeds", str(seeds)]
    return [*command, "--device", arguments.device, *(word for setting in settings for word in ("--set", setting))]


def _below(data: Path, files: str) -> str:
    """Return the paths of a plan's files."""
    return ",".join(str(data / file) for file in files.split(","))


def _training_set(plan: Plan, arguments: argparse.Namespace) -> str:
    """Return the paths of a plan's training set, which `make_training_set` makes for a plan with a `subset`."""
    if plan.subset:
        return str(arguments.root / plan.subset / f"{plan.subset}.jsonl")
    return _below(arguments.data, plan.files[0])


def make_training_set(plan: Plan, arguments: argparse.Namespace) -> str:
    """Return the paths of a plan's training set, after making it if that is needed."""
    files = _training_set(plan, arguments)
    if plan.subset and not Path(files).exists():
        choose_sources(arguments.data / plan.files[0], SUBSETS[plan.subset], Path(files))
    return files


def choose_sources(pairs: Path, sources: Collection[str], out: Path) -> None:
    """Copy the lines of a file of JSON lines whose `source` is one of these.

    A queue may train both kinds of models at the same time. So each process writes a temporary file of its own.
    """
    lines = [line for line in read_lines(pairs) if json.loads(line)["source"] in sources]
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent) as folder:
        chosen = Path(folder) / out.name
        chosen.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        chosen.replace(out)


def count_examples(plan: Plan, arguments: argparse.Namespace) -> int:
    """Return how many examples a plan trains on: sentences of `ner`, predicates of `srl`, and so on."""
    recipe = load_task_recipe(plan.task, settings=dict(map(parse_override, plan.settings)))
    task = get_task(plan.task)
    return len(share_of(task.read_train(make_training_set(plan, arguments), recipe), task, recipe))


def write_counts(arguments: argparse.Namespace) -> None:
    """Write the number of examples of each training set that is asked for, next to the records."""
    path = arguments.records / EXAMPLES
    counts = {plan.name: count_examples(plan, arguments) for plan in PLANS if plan.name in arguments.only}
    known = read_examples(arguments.records)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_all({path: lambda path: write_json(path, known | counts)})
    print(f"{path}: {', '.join(f'{name} {number:,}' for name, number in counts.items())}")


def train_plan(plan: Plan, arguments: argparse.Namespace) -> None:
    """Train the baseline and the model with ELMo, or only the one that is asked for."""
    make_training_set(plan, arguments)
    for name in [arguments.name if kind == "elmo" else BASELINE for kind in arguments.kinds]:
        folder = arguments.root / plan.name / name
        train_and_record(command_of(plan, name, arguments), folder, arguments.records / plan.name / f"{name}.json")


def read_width(path: Path) -> int:
    """Return the width of the vectors in a file, from the first line that word2vec writes."""
    fields = next(islice(read_lines(path), 1), "").split()
    if len(fields) != 2 or not all(map(str.isdecimal, fields)):
        raise ElmoError(
            f"{path}: expected the number of words and the width in the first line, as 'elmo static' writes them"
        )
    return int(fields[1])


@script
def main() -> None:
    """Train the models of each plan that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the folder of runs")
    parser.add_argument("--elmo", default="en", help="a name or path that elmo.load takes")
    parser.add_argument("--name", default="elmo", help="the name of the runs with ELMo")
    parser.add_argument(
        "--vectors", type=Path, nargs="+", default=[], help="static word vectors in the format of word2vec"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the data sets; default: %(default)s")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[plan.name for plan in PLANS],
        default=[plan.name for plan in PLANS if plan.is_default],
        help=f"only these plans; default: all but {', '.join(plan.name for plan in PLANS if not plan.is_default)}",
    )
    parser.add_argument("--seeds", type=positive, help="the largest number of seeds for each task")
    parser.add_argument(
        "--kinds", nargs="+", choices=[BASELINE, "elmo"], default=[BASELINE, "elmo"], help="these kinds of models only"
    )
    parser.add_argument("--reduced", action="store_true", help="train for hours instead of days on a processor")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of all recipes")
    parser.add_argument("--count", action="store_true", help="only count the examples of the training sets")
    parser.add_argument("--device", default="auto", help="where to compute: cpu, cuda or auto")
    arguments = parse_with_records(parser)
    if arguments.count:
        write_counts(arguments)
        return
    arguments.vectors = {read_width(path): path for path in arguments.vectors}
    for plan in PLANS:
        if plan.name in arguments.only:
            train_plan(plan, arguments)


if __name__ == "__main__":
    main()
