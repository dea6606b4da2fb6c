"""Fine-tuning the biLM on the text of a task before the task is trained (Peters et al. 2018, sec. 3.4)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elmo.errors import ElmoError
from elmo.formats import load
from elmo.formats.files import write_text
from elmo.pretrain.finetuning import (
    FineTuning,
    finetune_on_corpus,
    finetuning_config,
    is_finetuned,
    new_softmax_config,
    prepare_corpus,
)
from elmo.tasks.elmo.cache import distinct, reads_lower_case
from elmo.tasks.experiment import Experiment
from elmo.tasks.task import Task


def finetuning_text(
    task: Task[Any, Any, Any], examples: Iterable[Any], lowercase: bool
) -> dict[str, list[tuple[str, ...]]]:
    """Return the distinct sentences of examples that have tokens, as the biLM reads them, by kind (see `Task.texts`).

    Args:
        task: The task.
        examples: Its examples.
        lowercase: Whether the biLM reads words in lower case.
    """
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for example in examples:
        for kind, sentences in task.texts(example).items():
            found.setdefault(kind, {}).update(distinct(sentences, lowercase))
    return {kind: list(sentences) for kind, sentences in found.items()}


def finetune_for_task(experiment: Experiment, folder: Path) -> FineTuning | None:
    """Fine-tune the experiment's model on the text of its training set, and write it to the model folder `folder`.

    For squad, paragraphs and questions are different kinds of text; the first one of them, the paragraphs, is used. A
    folder that is finished already is left as it is.

    Returns:
        The perplexity of the dev set's text before and after; None if the folder was finished already.

    Raises:
        ElmoError: If the experiment has no model, or needs a warm state that the fine-tuned model does not have; if its
            run folder holds another run; or if `folder` is inside the run folder or holds something else.
        FineTuningStoppedError: If Ctrl-C or SIGTERM interrupted the fine-tuning.
    """
    config, task, model = experiment.config, experiment.task, experiment.bilm
    if model is None:
        raise ElmoError("`finetune`: without ELMo there is nothing to fine-tune; name a model, or leave it out")
    if config.folder.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise ElmoError(f"{folder}: is inside the run folder; name another folder for the fine-tuned model")
    if config.recipe.elmo.state == "warm" and not (is_finetuned(model, folder) and load(folder).warm_state is not None):
        raise ElmoError(
            f"elmo.state: warm needs a warm state, and fine-tuning makes none for {folder}; choose zero, or fine-tune "
            "with 'elmo finetune', add the state with 'elmo warm', and use the result as the model"
        )
    experiment.require_same_run(is_tuned_later=True)

    lowercase = reads_lower_case(config.recipe.elmo, model.text)

    def sentences_of(path: str) -> list[tuple[str, ...]]:
        return next(iter(finetuning_text(task, task.read(path, config.recipe), lowercase).values()))

    new_softmax = model.softmax is None
    with TemporaryDirectory(prefix="elmo-") as work:
        path = Path(work) / f"{config.task}.txt"
        lines = (f"{' '.join(sentence)}\n" for sentence in sentences_of(config.train))
        write_text(path, "".join(lines))
        corpus = prepare_corpus(model, [str(path)], folder, new_softmax, lowercase=lowercase)
    # The text is prepared even if the model is complete: that refuses a folder that was fine-tuned on other text.
    if is_finetuned(model, folder):
        return None
    tuning = finetuning_config(model, {}, new_softmax, corpus)
    return finetune_on_corpus(
        model,
        corpus,
        folder,
        tuning,
        softmax_config=new_softmax_config(tuning, {}) if new_softmax else None,
        heldout=sentences_of(config.dev),
        device=config.device,
    )
