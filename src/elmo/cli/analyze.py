"""`elmo analyze`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from elmo.cli.shared import device_option, examples, json_option, print_result
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from elmo.analysis.paper.finding import Finding
    from elmo.analysis.paper.runs import TaskData, TaskRuns
    from elmo.embed.embedder import Embedder

Command = TypeVar("Command", bound=Callable[..., Any])

MODEL = click.argument("model")
SEMCOR = click.option(
    "--semcor", required=True, metavar="NAME.data.xml", help="SemCor, its senses beside it in NAME.gold.key.txt."
)


def _apart(ctx: click.Context, param: click.Parameter, out: Path) -> Path:
    """Where results go: quick ones take the place of no others."""
    return out / "quick" if ctx.params["quick"] else out


COMMON = (
    click.option(
        "--out",
        required=True,
        type=click.Path(path_type=Path),
        callback=_apart,
        metavar="DIR",
        help="For all that is made.",
    ),
    click.option(
        "--quick", is_flag=True, is_eager=True, help="Little data, into DIR/quick: shows in minutes that all works."
    ),
    device_option,
    json_option,
)
TASKS = (
    click.option("--task", "tasks", required=True, multiple=True, help="As in elmo task; several go into one table."),
    click.option("--train", required=True, multiple=True, help="Text to train on; one for each --task."),
    click.option("--dev", required=True, multiple=True, help="Text to measure on; one for each --task."),
    click.option("--name", "names", multiple=True, help="What tables call the task; for each --task, or for none."),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="[TASK:]KEY=VALUE",
        help="Change one key of the recipes, or of one task's.",
    ),
    click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Runs of each setting."),
)
NER = "--task ner --train train.conll --dev dev.conll"


def options(*groups: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """A decorator that adds options in their order."""

    def add(function: Command) -> Command:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return add


@click.group(
    epilog=examples(
        f"elmo analyze layers model/ {NER} --out analysis/",
        f"elmo analyze layers model/ {NER} --task sst --train sst/train.txt --dev sst/dev.txt --out analysis/",
        "elmo analyze wsd model/ --semcor semcor.data.xml --senses index.sense senseval2.data.xml --out analysis/",
    )
)
def command() -> None:
    """The paper's analyses (section 5), the paper's figures beside ours.

    Each writes DIR/NAME.json, .md (tables), .png and .svg, and started again it goes on where it was. What several need
    is made once where they share DIR: runs of task models, and ELMo's vectors.
    """


@command.command(epilog=examples(f"elmo analyze layers model/ {NER} --out analysis/ --seeds 3"))
@MODEL
@options(TASKS, COMMON)
def layers(**arguments: Any) -> None:
    """Table 2: tasks without ELMo, with MODEL's last layer, and with all, λ 1 and 0.001. Four runs a task and seed."""
    from elmo.analysis.paper.layers import analyze_layers, draw

    _analyze_tasks(analyze_layers, draw, **arguments)


@command.command(epilog=examples(f"elmo analyze placement model/ {NER} --out analysis/"))
@MODEL
@options(TASKS, COMMON)
def placement(**arguments: Any) -> None:
    """Table 3: ELMo at the input of the lowest RNN, at its output, at both. Three runs a task and seed."""
    from elmo.analysis.paper.placement import analyze_placement, draw

    _analyze_tasks(analyze_placement, draw, **arguments)


@command.command(epilog=examples(f"elmo analyze efficiency model/ {NER} --out analysis/"))
@MODEL
@options(TASKS, COMMON)
def efficiency(**arguments: Any) -> None:
    """Figure 1: 0.1, 1, 10 and 100 % of the training set, with ELMo and without. Eight runs a task and seed.

    And of all of it, in which epoch ELMo passes the baseline's best score (section 5.4).
    """
    from elmo.analysis.paper.efficiency import analyze_efficiency, draw

    _analyze_tasks(analyze_efficiency, draw, **arguments)


@command.command(epilog=examples(f"elmo analyze weights model/ {NER} --out analysis/"))
@MODEL
@options(TASKS, COMMON)
def weights(**arguments: Any) -> None:
    """Figure 2: what weights tasks give the layers, at each place of ELMo in their recipes. One run a task and seed."""
    from elmo.analysis.paper.weights import analyze_weights, draw

    _analyze_tasks(analyze_weights, draw, **arguments)


@command.command(epilog=examples(f"elmo analyze finetuning model/ {NER} --out analysis/"))
@MODEL
@options(TASKS, COMMON)
def finetuning(device: str, **arguments: Any) -> None:
    """Table 7: perplexity of the dev text before and after an epoch on the task's text, and the task's scores.

    MODEL needs a softmax. Two runs a task and seed, and the fine-tuning.
    """
    from functools import partial

    from elmo.analysis.paper.finetuning import analyze_finetuning, draw

    _analyze_tasks(partial(analyze_finetuning, device=device), draw, device=device, **arguments)


@command.command(
    epilog=examples(
        "elmo analyze wsd model/ --semcor semcor.data.xml --senses index.sense senseval2.data.xml --out analysis/"
    )
)
@MODEL
@click.argument("tests", nargs=-1, required=True, metavar="TEST.data.xml...")
@SEMCOR
@click.option("--senses", required=True, help="WordNet's index.sense, for the first sense.")
@options(COMMON)
def wsd(tests: tuple[str, ...], semcor: str, senses: str, out: Path, quick: bool, **arguments: Any) -> None:
    """Table 5: senses of the words of each TEST by the nearest sense in SemCor, F1 for each layer and for mixes.

    Beside it WordNet's first sense, which also answers for lemmas that SemCor hasn't.
    """
    from elmo.analysis.paper.wsd import analyze_wsd, draw
    from elmo.analysis.wsd_data import DATA, read_annotated, read_first_senses

    sets = {Path(path).name.partition(DATA)[0]: list(read_annotated(path)) for path in tests}
    if len(sets) < len(tests):
        raise ElmoError("two of the tests have the same name; rename one")
    text, first = list(read_annotated(semcor)), read_first_senses(senses)

    def analyze(embedder: Embedder, model: str) -> Finding:
        return analyze_wsd(embedder, text, sets, first, out, model, quick=quick)

    _analyze_vectors(analyze, draw, out=out, **arguments)


@command.command(
    epilog=examples(
        "elmo analyze pos model/ --ud train.conllu dev.conllu test.conllu --out analysis/",
        "elmo analyze pos model/ --conll2000 train.txt test.txt --out analysis/",
    )
)
@MODEL
@click.option("--ud", nargs=3, metavar="TRAIN DEV TEST", help="UD's English Web Treebank, or another, in CoNLL-U.")
@click.option("--conll2000", nargs=2, metavar="TRAIN TEST", help="CoNLL-2000; the end of TRAIN is its dev set.")
@options(COMMON)
def pos(ud: Sequence[str] | None, conll2000: Sequence[str] | None, out: Path, quick: bool, **arguments: Any) -> None:
    """Table 6: tags (Penn's in English) by a linear classifier on each layer of MODEL."""
    from elmo.analysis.paper.pos import TaggedCorpus, analyze_pos, draw, with_dev
    from elmo.analysis.tagged import read_conll2000, read_conllu

    corpora = {"UD": TaggedCorpus(*map(read_conllu, ud))} if ud else {}
    if conll2000:
        corpora["CoNLL-2000"] = with_dev(*map(read_conll2000, conll2000))
    if not corpora:
        raise ElmoError("no text to tag: pass --ud, --conll2000 or both")

    def analyze(embedder: Embedder, model: str) -> Finding:
        return analyze_pos(embedder, corpora, out, model, quick=quick)

    _analyze_vectors(analyze, draw, out=out, **arguments)


@command.command(
    epilog=examples("elmo analyze neighbors model/ --semcor semcor.data.xml --static vectors.txt --out analysis/")
)
@MODEL
@SEMCOR
@click.option("--static", metavar="FILE", help="Static vectors to compare with, in word2vec's text format.")
@options(COMMON)
def neighbors(semcor: str, static: str | None, out: Path, quick: bool, **arguments: Any) -> None:
    """Table 4: what is nearest to "play" without context, and in the paper's sentences, in SemCor.

    And how often a word's nearest use has the same sense, layer by layer.
    """
    from elmo.analysis.paper.neighbors import analyze_neighbors, draw
    from elmo.analysis.wsd_data import read_annotated
    from elmo.tasks.common.static_vectors import read_vectors

    text, vectors = list(read_annotated(semcor)), read_vectors(static) if static else None

    def analyze(embedder: Embedder, model: str) -> Finding:
        return analyze_neighbors(embedder, text, vectors, out, model, quick=quick)

    _analyze_vectors(analyze, draw, out=out, **arguments)


def _analyze_tasks(
    analyze: Callable[[list[TaskRuns], str], Finding],
    draw: Callable[[Any, Finding], None],
    *,
    model: str,
    out: Path,
    quick: bool,
    seeds: int,
    device: str,
    as_json: bool,
    **data: tuple[str, ...],
) -> None:
    from elmo import formats
    from elmo.analysis.paper.runs import TaskRuns
    from elmo.analysis.pictures import new_figure

    new_figure()  # a missing package comes to light now, not at the end
    name = _describe(model, formats.load(model).config)
    found = _tasks(**data)
    runs = [TaskRuns(each, out, model, num_seeds=seeds, device=device, quick=quick) for each in found]
    _write(out, analyze(runs, name), draw, as_json)


def _analyze_vectors(
    analyze: Callable[[Embedder, str], Finding],
    draw: Callable[[Any, Finding], None],
    *,
    model: str,
    out: Path,
    device: str,
    as_json: bool,
) -> None:
    from elmo.analysis.pictures import new_figure
    from elmo.embed.embedder import load
    from elmo.nn.devices import use_device

    new_figure()
    embedder = load(model, device=use_device(device))
    _write(out, analyze(embedder, _describe(model, embedder.config)), draw, as_json)


def _tasks(
    tasks: tuple[str, ...],
    train: tuple[str, ...],
    dev: tuple[str, ...],
    names: tuple[str, ...],
    overrides: tuple[str, ...],
) -> list[TaskData]:
    """What the options say of each task."""
    from elmo.analysis.paper.published import TASK_NAMES
    from elmo.analysis.paper.runs import TaskData

    names = names or tuple(TASK_NAMES.get(task, task) for task in tasks)
    if not len(tasks) == len(train) == len(dev) == len(names):
        raise ElmoError("--task, --train, --dev and --name: give each as often as --task, or no --name at all")
    if len(set(names)) < len(names):
        raise ElmoError("--name: two tasks have the same name; give each its own")
    rows = zip(names, tasks, train, dev, strict=True)
    return [TaskData(name, task, text, held, _settings(task, overrides)) for name, task, text, held in rows]


def _settings(task: str, overrides: Sequence[str]) -> dict[str, object]:
    """The keys of a task's recipe that are changed: those without a task's name, and those with its own."""
    from elmo.tasks import TASKS
    from elmo.training.recipes import parse_override

    split = [text.split(":", 1) if text.partition(":")[0] in TASKS else [task, text] for text in overrides]
    return dict(parse_override(text) for name, text in split if name == task)


def _describe(model: str, config: Any) -> str:
    return f"{Path(model).name}, {config.num_layers} layers, {config.width} wide"


def _write(out: Path, finding: Finding, draw: Callable[[Any, Finding], None], as_json: bool) -> None:
    from elmo.analysis.paper.finding import table_markdown, write_finding

    path, *_ = write_finding(out, finding, draw)
    if not as_json:
        for table in finding.tables:
            click.echo(f"{table.title}\n\n{table_markdown(table)}\n")
    minutes = sum(finding.seconds.values()) / 60
    print_result(f"{path.with_suffix('')}: .json, .md, .png, .svg, {minutes:.1f} minutes", finding.as_json(), as_json)
