"""What ELMo does for task models: the analyses that train them (Peters et al. 2018, sec. 5.1, 5.2, 5.4, 5.5 and A.1).

Each takes one `TaskRuns` for each task, which trains a setting at most once. Analyses of the same folder therefore
share their runs: the baseline, for example, is a column of Table 2 and a curve of Figure 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from elmo import formats
from elmo.analysis.paper.finding import (
    Cell,
    Finding,
    FindingPart,
    Rows,
    Table,
    axis_label,
    draw_panels,
    once,
    series_of,
)
from elmo.analysis.paper.published import (
    AFTER,
    AVERAGE,
    BASELINE,
    BEFORE,
    BEST_EPOCH,
    BOTH,
    EPOCHS,
    INPUT,
    LAYER_SCORES,
    MIX,
    OUTPUT,
    PASSED_IN,
    PERPLEXITIES,
    PLACE_SCORES,
    TOP,
    TOP_UNSCALED,
    TUNED_SCORES,
)
from elmo.analysis.paper.runs import Outcome, Settings, TaskRuns, score_rows, score_unit
from elmo.analysis.pictures import draw_curves, draw_ratios, draw_shares
from elmo.embed.fingerprint import fingerprint
from elmo.errors import ElmoError
from elmo.formats.files import write_text
from elmo.formats.model import Model, require_softmax
from elmo.formats.safetensors import read_tensors
from elmo.pretrain.finetuning import finetune
from elmo.tasks.checkpoint import WEIGHTS
from elmo.tasks.elmo.cache import reads_lower_case
from elmo.text.reading import Reading
from elmo.training.metrics import METRICS, read_rows
from elmo.training.run_folder import checksum_of_examples

# Which layers, and where to include ELMo (Tables 2 and 3): one score for each task and setting.

# "layers": "all" is said even though most recipes have it, because the recipe of a task may have "top".
LAYER_SETTINGS: dict[str, Settings] = {
    TOP: {"layers": "top"},
    TOP_UNSCALED: {"layers": "top", "gamma": False},
    AVERAGE: {"layers": "all", "penalty": 1.0},
    MIX: {"layers": "all", "penalty": 0.001},
}

PLACE_SETTINGS: dict[str, Settings] = {
    INPUT: {"at": "input"},
    BOTH: {"at": "both"},
    OUTPUT: {"at": "output"},
}


def analyze_layers(tasks: Sequence[TaskRuns], model: str) -> Finding:
    """Train each task without ELMo and with each choice of layers.

    The choices are the last layer only, with and without the scale γ, and all layers, with strong and weak
    regularization toward their mean.

    Source: Peters et al. 2018, section 5.1, Table 2 and appendix A.2.
    """
    for task in tasks:
        task.require_same_runs([None, *LAYER_SETTINGS.values()])
    found = {
        task.name: {
            BASELINE: task.baseline(),
            **{name: task.with_elmo(settings) for name, settings in LAYER_SETTINGS.items()},
        }
        for task in tasks
    }
    return _score_finding("layers", "Which layers (Table 2)", model, tasks, found, LAYER_SCORES)


def analyze_placement(tasks: Sequence[TaskRuns], model: str) -> Finding:
    """Train each task with ELMo at the input of the lowest RNN, at its output, and at both.

    Source: Peters et al. 2018, section 5.2 and Table 3.
    """
    for task in tasks:
        task.require_same_runs(PLACE_SETTINGS.values())
    found = {task.name: {name: task.with_elmo(settings) for name, settings in PLACE_SETTINGS.items()} for task in tasks}
    return _score_finding("placement", "Where to include ELMo (Table 3)", model, tasks, found, PLACE_SCORES)


def _score_finding(
    name: str,
    title: str,
    model: str,
    tasks: Sequence[TaskRuns],
    found: Mapping[str, Mapping[str, Outcome]],
    paper: Mapping[str, Mapping[str, float]],
) -> Finding:
    """Return a finding with one table: the dev score of each task (row) and setting (column)."""
    means, spread = score_rows(found)
    table = Table(title, score_unit(tasks), list(next(iter(found.values()))), means, paper, spread)
    seconds = {
        f"{row}, {column}": outcome.seconds for row, outcomes in found.items() for column, outcome in outcomes.items()
    }
    return Finding(name, title, model, tasks[0].quick, [table], seconds)


def draw_settings(figure: Any, finding: Finding) -> None:
    """Draw a panel for each task of Table 2 or 3, those of the paper above ours."""
    draw_panels(figure, finding.tables[0])


# How many training examples and epochs ELMo saves (Figure 1 and section 5.4).

SHARES = (0.001, 0.01, 0.1, 1.0)
"""Shares of the training set, as in the paper."""

WITH, WITHOUT = "with ELMo", "baseline"


def analyze_efficiency(tasks: Sequence[TaskRuns], model: str, shares: Sequence[float] = SHARES) -> Finding:
    """Train each task on each share with and without ELMo, and compare the epochs on the last share.

    Source: Peters et al. 2018, section 5.4 and Figure 1.
    """
    tables: list[Table] = []
    epochs: dict[str, dict[str, float | str]] = {}
    seconds: dict[str, float] = {}
    for task in tasks:
        task.require_same_runs([{}, None], shares)
    for task in tasks:
        found = {
            WITH: {share: task.with_elmo(share=share) for share in shares},
            WITHOUT: {share: task.baseline(share) for share in shares},
        }
        # The columns say how many examples a share has, so every task needs a table of its own.
        columns = {share: f"{100 * share:g} %, {task.num_examples(share):,}" for share in shares}
        rows = {name: {columns[share]: outcome for share, outcome in cells.items()} for name, cells in found.items()}
        means, spread = score_rows(rows)
        tables.append(Table(task.name, f"dev {task.metric} (%)", [*columns.values()], means, spread=spread))
        epochs[task.name] = compare_epochs(found[WITHOUT][shares[-1]], found[WITH][shares[-1]])
        seconds |= {
            f"{task.name}, {name}, {share:g}": outcome.seconds
            for name, outcomes in found.items()
            for share, outcome in outcomes.items()
        }
    return efficiency_finding(model, tasks[0].quick, tables, epochs, seconds)


def efficiency_finding(
    model: str, quick: bool, tables: Sequence[Table], epochs: Rows, seconds: Mapping[str, float]
) -> Finding:
    """Return the finding of a table for each task, and the epochs of each (see `compare_epochs`)."""
    unit = "epochs to the baseline's best score, first seed"
    common = Table("Epochs (sec. 5.4)", unit, [BEST_EPOCH, PASSED_IN], epochs, EPOCHS, digits=0)
    return Finding("efficiency", "Sample efficiency (Figure 1)", model, quick, [*tables, common], dict(seconds))


def compare_epochs(baseline: Outcome, elmo: Outcome) -> dict[str, float | str]:
    """Return the epoch in which the first seed's baseline is best, and that in which ELMo passes it (or "never")."""
    column = f"dev_{baseline.metric}"
    scores = [[row[column] for row in read_rows(outcome.folders[0] / METRICS)] for outcome in (baseline, elmo)]
    best = max(scores[0])
    passed = [epoch for epoch, score in enumerate(scores[1], 1) if score > best]  # to equal it is not to pass it
    return {BEST_EPOCH: float(scores[0].index(best) + 1), PASSED_IN: float(passed[0]) if passed else "never"}


def draw_efficiency(figure: Any, finding: Finding) -> None:
    """Draw a panel for each task."""
    tables = finding.tables[:-1]  # the last one compares epochs
    figure.set_size_inches(max(6.0, 4.5 * len(tables)), 4)
    for place, table in enumerate(tables, 1):
        axes = figure.add_subplot(1, len(tables), place)
        draw_curves(axes, table.columns, series_of(table), table.unit)
        axes.set_title(table.title)
        axes.set_xlabel("share of the training set, examples")


# The weights that tasks learn for the layers (Figure 2).

GAMMA = "γ"


def analyze_weights(tasks: Sequence[TaskRuns], model: str) -> Finding:
    """Train each task with its recipe, and read the weights of the scalar mix at each place of ELMo.

    With several seeds, the weights are means.

    Raises:
        ElmoError: If a recipe uses only the top layer.

    Source: Peters et al. 2018, section 5.5 and Figure 2.
    """
    if top := next((task.name for task in tasks if task.recipe.elmo.layers == "top"), None):
        raise ElmoError(f"{top}: elmo.layers: top has no weights to analyze; set it to all")
    for task in tasks:
        task.require_same_runs([{}])
    here: dict[str, dict[str, float]] = {}
    seconds: dict[str, float] = {}
    for task in tasks:
        outcome = task.with_elmo()
        found = [read_mixes(folder) for folder in outcome.folders]
        for place in found[0]:
            values = {name: sum(mixes[place][name] for mixes in found) / len(found) for name in found[0][place]}
            here[f"{task.name}, {place}"] = values
        seconds[task.name] = outcome.seconds
    columns = list(next(iter(here.values())))
    title = "Learned layer weights (Figure 2)"
    table = Table(title, "weights after the softmax, and scale", columns, here, digits=2)
    return Finding("weights", title, model, tasks[0].quick, [table], seconds)


def read_mixes(folder: Path) -> dict[str, dict[str, float]]:
    """Read the weight of each layer after the softmax, and γ, at each place of ELMo in the model of a run."""
    tensors, _ = read_tensors(folder / WEIGHTS)
    start, end = "elmo.mixes.", ".scores"
    places = [name[len(start) : -len(end)] for name in tensors if name.startswith(start) and name.endswith(end)]
    return {
        place: {
            **{
                f"layer {layer}": weight
                for layer, weight in enumerate(torch.softmax(tensors[f"{start}{place}{end}"], 0).tolist())
            },
            GAMMA: tensors[f"{start}{place}.gamma"].item(),
        }
        for place in sorted(places)
    }


def draw_weights(figure: Any, finding: Finding) -> None:
    """Draw a bar for each task and place."""
    found = series_of(finding.tables[0])
    figure.set_size_inches(7, 1.4 + 0.5 * len(found))
    rows = {each.label: {name: value for name, value in each.values.items() if name != GAMMA} for each in found}
    draw_shares(figure.add_subplot(), rows, "share of each layer (lines: below 1/3, dots: above 2/3)")


# Fine-tuning the biLM on a task's text (Table 7 and appendix A.1).


def analyze_finetuning(tasks: Sequence[TaskRuns], model: str, device: str = "auto") -> Finding:
    """Fine-tune the model on the training text of each task for one epoch, and train the task with and without that.

    Perplexity is measured on the text of the dev set. If a task has several kinds of text (contexts and
    questions in SQuAD), a model is fine-tuned on each kind, and the task is trained with that of the first.

    Raises:
        ElmoError: If the model has no softmax, or a task starts from the warm state, which a fine-tuned model lacks.

    Source: Peters et al. 2018, section 3.4, appendix A.1 and Table 7.
    """
    perplexities: dict[str, dict[str, Cell]] = {}
    outcomes: dict[str, dict[str, Outcome]] = {}
    seconds: dict[str, float] = {}
    if warm := next((task.name for task in tasks if task.recipe.elmo.state == "warm"), None):
        raise ElmoError(f"{warm}: elmo.state: a fine-tuned model has no warm state; set it to zero")
    for task in tasks:
        task.require_same_runs([{}])
    for task in tasks:
        model_folder = task.folder / "finetuning"
        loaded = formats.load(task.elmo)
        lowercase = reads_lower_case(task.recipe.elmo, loaded.text)
        train, dev = (task.texts(name, lowercase) for name in ("train", "dev"))
        # The model of the first kind has the plain name of the folder, which is where the task finds it below. In SQuAD
        # that is the model of the contexts, as in the paper.
        for number, kind in enumerate(train):
            row = f"{task.name}, {kind}" if kind else task.name
            folder = model_folder if number == 0 else model_folder.with_name(f"finetuning-{kind}")
            part = _tune(loaded, train[kind], dev[kind], folder, device, Reading(lowercase=lowercase))
            perplexities[row] = part.value
            seconds[f"{row}, fine-tuning"] = part.seconds
        outcomes[task.name] = {BEFORE: task.with_elmo(), AFTER: task.with_elmo(elmo=str(model_folder))}
        seconds |= {f"{task.name}, {name}": outcome.seconds for name, outcome in outcomes[task.name].items()}
    means, spread = score_rows(outcomes)
    tables = [
        Table("Perplexity (Table 7)", "dev perplexity", [BEFORE, AFTER], perplexities, PERPLEXITIES),
        Table("Scores (appendix A.1)", score_unit(tasks), [BEFORE, AFTER], means, TUNED_SCORES, spread),
    ]
    return Finding("finetuning", "Fine-tuning (Table 7)", model, tasks[0].quick, tables, seconds)


def _tune(
    model: Model,
    train: Sequence[Sequence[str]],
    dev: Sequence[Sequence[str]],
    folder: Path,
    device: str,
    reading: Reading,
) -> FindingPart:
    """Fine-tune the model into `folder` for an epoch on `train`; return the perplexities of `dev` before and after."""
    require_softmax(model, "give it one with 'elmo finetune --new-softmax', and analyze the result")

    def tune() -> dict[str, float]:
        with TemporaryDirectory(prefix="elmo-") as work:
            text = Path(work) / "train.txt"
            write_text(text, "".join(f"{' '.join(sentence)}\n" for sentence in train))
            result = finetune(model, [text], folder, reading=reading, heldout=dev, device=device)
        return {BEFORE: result.before.mean, AFTER: result.after.mean}

    inputs: dict[str, object] = {
        "model": fingerprint(model),
        "train": checksum_of_examples(train),
        "dev": checksum_of_examples(dev),
    }
    return once(folder / "perplexity.json", inputs, tune)


def draw_finetuning(figure: Any, finding: Finding) -> None:
    """Draw the perplexities (on a logarithmic scale) and the scores before and after fine-tuning."""
    figure.set_size_inches(10, 4.5)
    for place, table in enumerate(finding.tables, 1):
        axes = figure.add_subplot(1, 2, place)
        draw_curves(axes, table.columns, series_of(table), axis_label(table), with_values=False)
        axes.set_title(table.title)
        if place == 1:
            draw_ratios(axes)
