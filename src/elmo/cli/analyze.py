"""`elmo analyze`: repeat the analyses of section 5 of the ELMo paper."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import STOPPED, add_options, device_option, examples, json_option, print_result, set_option
from elmo.cli.table import print_table
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from elmo.analysis.paper.finding import Finding
    from elmo.analysis.paper.runs import TaskData, TaskRuns
    from elmo.analysis.wsd_data import Annotated


MODEL = click.argument("model")
SEMCOR = click.option(
    "--semcor", required=True, metavar="NAME.data.xml", help="SemCor, with its senses next to it in NAME.gold.key.txt."
)


def _apart(ctx: click.Context, param: click.Parameter, out: Path) -> Path:
    """Return the folder for the results; quick ones get their own, so that they never replace full ones."""
    return out / "quick" if ctx.params["quick"] else out


COMMON = (
    click.option(
        "--out",
        required=True,
        type=click.Path(file_okay=False, path_type=Path),
        callback=_apart,
        metavar="FOLDER",
        help="Folder for all results.",
    ),
    click.option(
        "--quick",
        is_flag=True,
        is_eager=True,  # parsed before --out, whose callback asks for it
        help="Use little data and write to FOLDER/quick: a check that everything works, in minutes.",
    ),
    device_option,
    json_option,
)
TASKS = (
    click.option(
        "--task",
        "tasks",
        required=True,
        multiple=True,
        metavar="TASK",
        help="A task of elmo task. May be repeated: all tasks go into one table.",
    ),
    click.option(
        "--train", required=True, multiple=True, metavar="FILE", help="Training set; give one for each --task."
    ),
    click.option(
        "--dev",
        required=True,
        multiple=True,
        metavar="FILE",
        help="Dev set to score on; give one for each --task.",
    ),
    click.option(
        "--name",
        "names",
        multiple=True,
        metavar="NAME",
        help="Name of the task in tables; give one for each --task, or none.",
    ),
    set_option("Change one key of all recipes, or of one task's recipe. May be repeated.", metavar="[TASK:]KEY=VALUE"),
    click.option(
        "--seeds",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        metavar="N",
        help="Number of runs of each setting.",
    ),
)
WIDEST = 40
"""Most places of a cell in a table on the terminal. The files have all of it."""

NER = "--task ner --train train.conll --dev dev.conll"


@click.group(
    epilog=examples(
        f"elmo analyze layers model/ {NER} --out analysis/",
        f"elmo analyze layers model/ {NER} --task sst --train sst/train.txt --dev sst/dev.txt --out analysis/",
        "elmo analyze wsd model/ --semcor semcor.data.xml --senses index.sense senseval2.data.xml --out analysis/",
    )
)
def command() -> None:
    """Repeat the paper's analyses (section 5), and compare your figures with the paper's.

    Each analysis writes its tables and a picture to FOLDER: NAME.json, .md, .png and .svg. If it is interrupted, the
    same command continues where it stopped. Analyses with the same FOLDER share their work: runs of task models and
    ELMo's vectors.
    """


def _of_tasks(short_help: str, more: str = "") -> Callable[[Callable[..., None]], click.Command]:
    """Return the decorator of an analysis of tasks, whose example has the options `more` at its end."""

    def decorate(function: Callable[..., None]) -> click.Command:
        example = f"elmo analyze {function.__name__} model/ {NER} --out analysis/{more}"
        as_command = command.command(short_help=short_help, epilog=examples(example))
        return as_command(MODEL(add_options(*TASKS, *COMMON)(function)))

    return decorate


@_of_tasks("Compare ELMo's layers (Table 2).", " --seeds 3")
def layers(**arguments: Any) -> None:
    """Compare tasks without ELMo, with the last layer of MODEL, and with all layers (Table 2).

    The last layer is used with the scale γ and without it, and all layers are mixed with λ of 1 and of 0.001. Five
    models are trained for each task and seed.
    """
    from elmo.analysis.paper.tasks import analyze_layers, draw_settings

    _analyze_tasks(analyze_layers, draw_settings, **arguments)


@_of_tasks("Compare the places for ELMo in a model (Table 3).")
def placement(**arguments: Any) -> None:
    """Compare ELMo at the input of the lowest RNN, at its output, and at both (Table 3).

    Three models are trained for each task and seed.
    """
    from elmo.analysis.paper.tasks import analyze_placement, draw_settings

    _analyze_tasks(analyze_placement, draw_settings, **arguments)


@_of_tasks("Train on parts of the training set (Figure 1).")
def efficiency(**arguments: Any) -> None:
    """Train on 0.1, 1, 10 and 100 % of the training set, with ELMo and without (Figure 1).

    The analysis also tells in which epoch ELMo passes the best score of the baseline on the whole training set
    (section 5.4). Eight models are trained for each task and seed.
    """
    from elmo.analysis.paper.tasks import analyze_efficiency, draw_efficiency

    _analyze_tasks(analyze_efficiency, draw_efficiency, **arguments)


@_of_tasks("Show the layers' learned weights (Figure 2).")
def weights(**arguments: Any) -> None:
    """Show the weights that tasks learn for the layers, at each place where their recipes use ELMo (Figure 2).

    One model is trained for each task and seed.
    """
    from elmo.analysis.paper.tasks import analyze_weights, draw_weights

    _analyze_tasks(analyze_weights, draw_weights, **arguments)


@_of_tasks("Fine-tune the biLM on the task's text (Table 7).")
def finetuning(device: str, **arguments: Any) -> None:
    """Fine-tune MODEL on the task's text for an epoch, and compare perplexity and scores (Table 7).

    Perplexity is that of the dev set's text. MODEL needs a softmax. It is fine-tuned once for each task, and two
    models are trained for each task and seed.
    """
    from functools import partial

    from elmo.analysis.paper.tasks import analyze_finetuning, draw_finetuning

    _analyze_tasks(partial(analyze_finetuning, device=device), draw_finetuning, device=device, **arguments)


@command.command(
    short_help="Tell word senses apart (Table 5).",
    epilog=examples(
        "elmo analyze wsd model/ --semcor semcor.data.xml --senses index.sense senseval2.data.xml --out analysis/"
    ),
)
@MODEL
@click.argument("tests", nargs=-1, required=True, metavar="TEST.data.xml...")
@SEMCOR
@click.option("--senses", required=True, metavar="FILE", help="WordNet's index.sense, which gives the first sense.")
@add_options(*COMMON)
def wsd(tests: tuple[str, ...], semcor: str, senses: str, **arguments: Any) -> None:
    """Find word senses in each TEST by the nearest sense in SemCor, for each layer and for mixes of layers (Table 5).

    F1 is compared with that of WordNet's first sense, which is also the answer for lemmas that SemCor does not have.
    """
    from elmo.analysis.paper.representations import analyze_wsd, draw_wsd
    from elmo.analysis.wsd_data import DATA, read_first_senses

    sets = {Path(path).name.partition(DATA)[0]: _read_uses(path) for path in tests}
    if len(sets) < len(tests):
        raise ElmoError("TEST: two of the files have the same name; rename one")
    _analyze_vectors(analyze_wsd, draw_wsd, _read_uses(semcor), sets, read_first_senses(senses), **arguments)


@command.command(
    short_help="Tag parts of speech by a linear classifier (Table 6).",
    epilog=examples(
        "elmo analyze pos model/ --ud train.conllu dev.conllu test.conllu --out analysis/",
        "elmo analyze pos model/ --conll2000 train.txt test.txt --out analysis/",
    ),
)
@MODEL
@click.option(
    "--ud", nargs=3, metavar="TRAIN DEV TEST", help="A treebank in CoNLL-U, such as UD's English Web Treebank."
)
@click.option("--conll2000", nargs=2, metavar="TRAIN TEST", help="CoNLL-2000. The end of TRAIN becomes the dev set.")
@add_options(*COMMON)
def pos(ud: Sequence[str] | None, conll2000: Sequence[str] | None, **arguments: Any) -> None:
    """Predict parts of speech (Penn's tags for English) by a linear classifier on each layer of MODEL (Table 6)."""
    from elmo.analysis.paper.representations import TaggedCorpus, analyze_pos, draw_pos, with_dev
    from elmo.analysis.tagged import read_conll2000, read_conllu

    corpora = {"UD": TaggedCorpus(*map(read_conllu, ud))} if ud else {}
    if conll2000:
        corpora["CoNLL-2000"] = with_dev(*map(read_conll2000, conll2000))
    if not corpora:
        raise ElmoError("there is no text to tag; pass --ud, --conll2000 or both")
    _analyze_vectors(analyze_pos, draw_pos, corpora, **arguments)


@command.command(
    short_help='Find the nearest words and uses of "play" (Table 4).',
    epilog=examples("elmo analyze neighbors model/ --semcor semcor.data.xml --static vectors.txt --out analysis/"),
)
@MODEL
@SEMCOR
@click.option("--static", metavar="FILE", help="Static vectors to compare with, in the text format of word2vec.")
@add_options(*COMMON)
def neighbors(semcor: str, static: str | None, **arguments: Any) -> None:
    """Find the nearest words to "play" without context, and in SemCor the uses nearest to the paper's (Table 4).

    For each layer, the analysis also measures how often the nearest use of a word has the same sense.
    """
    from elmo.analysis.paper.representations import analyze_neighbors, draw_neighbors
    from elmo.tasks.common.static_vectors import read_vectors

    text, vectors = _read_uses(semcor), read_vectors(static) if static else None
    _analyze_vectors(analyze_neighbors, draw_neighbors, text, vectors, **arguments)


def _read_uses(path: str) -> list[Annotated]:
    """Read a text whose words have senses, and refuse one without such words before anything is embedded."""
    from elmo.analysis.wsd_data import read_annotated, require_instances

    sentences = list(read_annotated(path))
    require_instances(sentences, path)
    return sentences


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

    new_figure()  # so that a missing package is reported now and not after hours of training
    # Before any task is read, so that a bad MODEL is refused at once.
    name = _describe(model, formats.load(model, with_softmax=False).config)
    found = _tasks(**data)
    runs = [TaskRuns(each, out, model, num_seeds=seeds, device=device, quick=quick) for each in found]
    try:
        finding = analyze(runs, name)
    except KeyboardInterrupt:  # all that is trained so far is kept
        sentence = f"{out}: stopped; run the same command again to continue"
        print_result(sentence, {"out": str(out), "done": False}, as_json)
        sys.exit(STOPPED)
    _write(out, finding, draw, as_json)


def _analyze_vectors(
    analyze: Callable[..., Finding],
    draw: Callable[[Any, Finding], None],
    *data: Any,
    model: str,
    out: Path,
    quick: bool,
    device: str,
    as_json: bool,
) -> None:
    """Run an analysis of the vectors of a model. `data` is what it takes between the model and the folder."""
    from elmo.analysis.pictures import new_figure
    from elmo.embed.embedder import load
    from elmo.nn.processor import prepare_device

    new_figure()
    embedder = load(model, device=prepare_device(device))
    finding = analyze(embedder, *data, out, _describe(model, embedder.config), quick=quick)
    _write(out, finding, draw, as_json)


def _tasks(
    tasks: tuple[str, ...],
    train: tuple[str, ...],
    dev: tuple[str, ...],
    names: tuple[str, ...],
    overrides: tuple[str, ...],
) -> list[TaskData]:
    """Return the data of each task, as given by the options."""
    from elmo.analysis.paper.published import TASK_NAMES
    from elmo.analysis.paper.runs import TaskData, folder_name

    names = names or tuple(TASK_NAMES.get(task, task) for task in tasks)
    if not len(tasks) == len(train) == len(dev) == len(names):
        raise ElmoError("--train, --dev and --name: give each as often as --task, or leave out --name")
    folders = list(map(folder_name, names))
    if len(set(folders)) < len(folders):
        raise ElmoError("--name: two tasks have the same name, or differ in marks and capitals only; rename one")
    if not all(folders):
        raise ElmoError("--name: has no letters or digits, which the name of the task's folder is made of")
    split = _split(overrides)
    # An override without effect is refused: the analysis would be believed to have it, after hours of training.
    if strange := next((name for name, _ in split if name is not None and name not in tasks), None):
        raise ElmoError(f"--set {strange}:…: {strange} is not among the tasks; leave it out, or add --task {strange}")
    rows = zip(names, tasks, train, dev, strict=True)
    return [TaskData(name, task, text, held, _settings(task, split)) for name, task, text, held in rows]


def _split(overrides: Sequence[str]) -> list[tuple[str | None, str]]:
    """Split each override into the name of its task, or None if it is for all of them, and its key and value."""
    from elmo.tasks import TASKS

    # A value may contain a colon too, so a prefix counts only if it is the name of a task.
    cut = (text.partition(":") for text in overrides)
    return [(name, rest) if name in TASKS else (None, f"{name}{colon}{rest}") for name, colon, rest in cut]


def _settings(task: str, overrides: Sequence[tuple[str | None, str]]) -> dict[str, object]:
    """Return the overrides that apply to a task's recipe: those for all tasks, and those with its own name."""
    from elmo.training.recipes import parse_override

    return dict(parse_override(text) for name, text in overrides if name in (None, task))


def _describe(model: str, config: Any) -> str:
    return f"{Path(model).name}, {config.num_layers} layers, {config.width} wide"


def _write(out: Path, finding: Finding, draw: Callable[[Any, Finding], None], as_json: bool) -> None:
    from elmo.analysis.paper.finding import rows_as_text, write_finding

    path, *_ = write_finding(out, finding, draw)
    if not as_json:
        for table in finding.tables:
            click.echo(f"{table.title}\n")
            print_table((table.unit, "", *table.columns), rows_as_text(table), widest=WIDEST)
            click.echo()
    minutes = sum(finding.seconds.values()) / 60
    print_result(f"{path.with_suffix('')}: .json, .md, .png, .svg, {minutes:.1f} minutes", finding.as_json(), as_json)
