"""Run all analyses of the paper's section 5 with one model, by the commands `elmo analyze …`, and time each.

`--data` is a folder with `ner/wnut17_{train,dev}.conll`, `sst5/{train,dev}.txt`,
`srl/propbank_ewt_{train,dev}.gold_conll`, `squad/squadshifts_{new_wiki,amazon_reviews,reddit}.json`, `wsd/` (SemCor,
the five sets of Raganato et al. 2017, `wordnet30_index.sense`) and `pos/` (`ud_ewt_{train,dev,test}.conllu`,
`conll2000_{train,test}.txt`), each file plain or compressed. `--tasks snli` needs `nli/snli_dev.jsonl` as well, and
`nli/snli-captions.jsonl`, which `paper_tasks.py runs/ --only snli-captions` makes in `runs/snli-captions`. `--out` gets
tables and pictures, from which `pages/analysis.py` makes docs/analysis.md. If the script is started again, it continues
where it stopped.

Without `--quick`, the five analyses of tasks make 14 or 15 runs for each task and seed. With a small model on 2 cores,
NER and SST-5 (trained on whole sentences, without their phrases) take a night; SRL and SQuAD as published take days.
`--tasks` chooses tasks, and `--set training.max_minutes=15` limits each run. The other analyses take less than an hour.

    python benchmarks/experiments/paper_analyses.py --quick --json
    python benchmarks/experiments/paper_analyses.py --model run/ --out analysis/ --seeds 3 --set ner:words.vectors=v.txt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elmo.analysis.paper.finding import Finding, read_finding
from elmo.cli.main import cli
from elmo.errors import ElmoError

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.machine import report
from common.records import DATA, WSD_TESTS
from common.script import positive, script

FILES = {
    "ner": ("NER", "ner/wnut17_train.conll", "ner/wnut17_dev.conll"),
    "sst": ("SST-5", "sst5/train.txt", "sst5/dev.txt"),
    "srl": ("SRL", "srl/propbank_ewt_train.gold_conll", "srl/propbank_ewt_dev.gold_conll"),
    "squad": (
        "SQuAD",
        "squad/squadshifts_new_wiki.json#40:,squad/squadshifts_amazon_reviews.json,squad/squadshifts_reddit.json",
        "squad/squadshifts_new_wiki.json#:40",
    ),
    "snli": ("SNLI", "nli/snli-captions.jsonl", "nli/snli_dev.jsonl"),
}
"""The name of each task, its training set and its dev set, which are those of docs/results.md."""

USUAL = [task for task in FILES if task != "snli"]
"""The tasks whose data needn't be made first."""

SETTINGS = {"sst": ["sst:min_phrase=null"]}
"""Settings of tasks that would take days: a tenth of the examples."""

OF_TASKS = ("layers", "placement", "efficiency", "weights", "finetuning")
OF_VECTORS = ("wsd", "pos", "neighbors")


def arguments_of(name: str, data: Path, tasks: Sequence[str], static: str | None) -> list[str]:
    """Return the arguments of an analysis after the model."""

    def file(name: str) -> str:
        path, mark, articles = name.partition("#")  # only questions of SQuAD have articles
        found = sorted(data.glob(f"{path}*"))
        if not found:
            raise ElmoError(f"{data / path}: no such file, plain or compressed; see --data")
        return f"{found[0]}{mark}{articles}"

    if name == "pos":
        ud = [file(f"pos/ud_ewt_{part}.conllu") for part in ("train", "dev", "test")]
        return ["--ud", *ud, "--conll2000", *(file(f"pos/conll2000_{part}.txt") for part in ("train", "test"))]
    if name in OF_VECTORS:
        semcor = ["--semcor", file("wsd/semcor.data.xml")]
        if name == "neighbors":
            return [*semcor, *(["--static", static] if static else [])]
        tests = [file(f"wsd/{each}.data.xml") for each in WSD_TESTS]
        return [*tests, *semcor, "--senses", file("wsd/wordnet30_index.sense")]
    own: list[str] = []
    for task in tasks:
        title, train, dev = FILES[task]
        own += ["--task", task, "--name", title, "--train", ",".join(map(file, train.split(",")))]
        own += ["--dev", file(dev)]
        own += [part for setting in SETTINGS.get(task, []) for part in ("--set", setting)]
    return own


def measure(all_arguments: Mapping[str, Sequence[str]], model: str, out: Path) -> Iterator[dict[str, Any]]:
    """Run the analyses one after the other, and return the figures and the time of each."""
    for name, arguments in all_arguments.items():
        command = ["analyze", name, model, *arguments, "--out", str(out)]
        with redirect_stdout(StringIO()):
            cli.main(command, standalone_mode=False)
        finding = read_finding(out / "quick" if "--quick" in arguments else out, name)
        # Not by the clock: what an interrupted run computed is not computed again.
        yield {"name": f"analysis/{name}", "seconds": round(sum(finding.seconds.values()), 1), **figures(finding)}


def figures(finding: Finding) -> dict[str, Any]:
    """Return our tables, with numbers rounded."""
    tables = {
        table.title: {
            row: {name: round(cell, 2) if isinstance(cell, float) else cell for name, cell in cells.items()}
            for row, cells in table.here.items()
        }
        for table in finding.tables
    }
    return {"quick": finding.quick, "tables": tables}


@script
def main() -> None:
    """Run the analyses that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en", help="a name or path that elmo.load takes")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the data sets; default: %(default)s")
    parser.add_argument("--out", type=Path, help="where to write results; default: a temporary folder")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[*OF_TASKS, *OF_VECTORS],
        choices=[*OF_TASKS, *OF_VECTORS],
        help="these analyses only",
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=USUAL,
        choices=list(FILES),
        help=f"the tasks of the analyses of task models; default: {' '.join(USUAL)}",
    )
    parser.add_argument("--static", help="static vectors for neighbors, in word2vec's text format")
    parser.add_argument(
        "--seeds", type=positive, default=1, help="how many seeds each task model is trained with; default: %(default)s"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        dest="overrides",
        help="change keys of recipes, as in elmo analyze",
    )
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda or auto")
    parser.add_argument("--quick", action="store_true", help="little data, a few epochs")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    common = ["--device", arguments.device, *(["--quick"] if arguments.quick else [])]
    of_tasks = ["--seeds", str(arguments.seeds), *(part for text in arguments.overrides for part in ("--set", text))]
    chosen = {
        name: [
            *arguments_of(name, arguments.data, arguments.tasks, arguments.static),
            *common,
            *(of_tasks if name in OF_TASKS else []),
        ]
        for name in arguments.only
    }
    with TemporaryDirectory() as temporary:
        report([*measure(chosen, arguments.model, arguments.out or Path(temporary))], arguments.json)


if __name__ == "__main__":
    main()
