"""Fine-tuning the biLM on a task's text (Peters et al. 2018, sec. 3.4, appendix A.1 and Table 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmo import formats
from elmo.analysis.paper.finding import Cell, Finding, Table
from elmo.analysis.paper.panels import axis_label, lines_of
from elmo.analysis.paper.parts import FindingPart, once
from elmo.analysis.paper.published import AFTER, BEFORE, PERPLEXITIES, TUNED_SCORES
from elmo.analysis.paper.runs import Outcome, TaskRuns, score_rows, score_unit
from elmo.analysis.pictures import draw_lines, draw_ratios
from elmo.embed.fingerprint import fingerprint
from elmo.formats.model import Model, require_softmax
from elmo.pretrain.finetune import default_batch_size, default_settings, finetune, prepare_corpus
from elmo.pretrain.recipe import PretrainingConfig
from elmo.schema import from_mapping
from elmo.tasks.run_folder import checksum_of_examples


def analyze_finetuning(tasks: Sequence[TaskRuns], model: str, device: str = "auto") -> Finding:
    """Fine-tune the model on the training text of each task for one epoch, and train the task with and without that.

    Perplexity is measured on the text of the development set. If a task has several kinds of text (contexts and
    questions in SQuAD), a model is fine-tuned on each kind, and the task is trained with that of the first.

    Raises:
        ElmoError: If the model has no softmax.

    Source: Peters et al. 2018, section 3.4, appendix A.1 and Table 7.
    """
    perplexities: dict[str, dict[str, Cell]] = {}
    outcomes: dict[str, dict[str, Outcome]] = {}
    seconds: dict[str, float] = {}
    for task in tasks:
        model_folder = task.folder / "finetuning"
        train, dev = task.texts("train"), task.texts("dev")
        for number, kind in enumerate(train):
            row = f"{task.name}, {kind}" if kind else task.name
            folder = model_folder if number == 0 else model_folder.with_name(f"finetuning-{kind}")
            part = _tune(formats.load(task.elmo), train[kind], dev[kind], folder, device)
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
    model: Model, train: Sequence[Sequence[str]], dev: Sequence[Sequence[str]], folder: Path, device: str
) -> FindingPart:
    """Fine-tune the model into `folder` for an epoch on `train`; return the perplexities of `dev` before and after."""
    require_softmax(model, "give it one with 'elmo finetune --new-softmax', and analyze the result")

    def tune() -> dict[str, float]:
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / "train.txt"
        text.write_text("".join(f"{' '.join(sentence)}\n" for sentence in train), encoding="utf-8")
        corpus = prepare_corpus(model, [str(text)], folder, new_softmax=False)
        training = from_mapping(PretrainingConfig, default_settings(model), "training")
        training = replace(training, batch_size=default_batch_size(corpus, training.unroll_steps))
        result = finetune(model, corpus, folder, training, heldout=dev, device=device)
        if result is None:
            raise KeyboardInterrupt  # training ends early only if it was interrupted, and everything is saved
        return {BEFORE: result.before.mean, AFTER: result.after.mean}

    of: dict[str, object] = {
        "model": fingerprint(model),
        "train": checksum_of_examples(train),
        "dev": checksum_of_examples(dev),
    }
    return once(folder / "perplexity.json", of, tune)


def draw(figure: Any, finding: Finding) -> None:
    """Draw the perplexities (on a logarithmic scale) and the scores before and after fine-tuning."""
    figure.set_size_inches(10, 4.5)
    for place, table in enumerate(finding.tables, 1):
        axes = figure.add_subplot(1, 2, place)
        draw_lines(axes, table.columns, lines_of(table), axis_label(table), with_values=False)
        axes.set_title(table.title)
        if place == 1:
            draw_ratios(axes)
