"""The paper's tasks: for each a reader, a model and a metric; and one trainer for all (Peters et al. 2018, sec. 4).

Each task has a folder with the code that only this task needs: `task.py` and, where needed, `data.py`, `model.py`,
`layers.py` and `metric.py`. `common` holds what at least two tasks use, and `elmo` where their ELMo vectors come from.
A task provides, besides its entry in `TASKS`:

1. **A recipe**: a frozen dataclass derived from `recipe.TaskRecipe`, which has the sections `elmo`, `training` and
   `words` (null where a model has none), and `recipes/<task>.yaml` with the published values. The page on recipes
   describes each key as the dataclass's docstring does, under `Attributes`. If it has a key `tokenizer`, it passes that
   to `recipe.require_tokenizer_without_code` in `__post_init__`: a recipe may come from a stranger.
2. **Examples**: an immutable type of its own, such as a frozen dataclass of tuples. An example is what one row of a
   batch holds: tokens, and what is to be predicted. Its `repr` shows all of that, in the same way in each process,
   since a run folder knows its sets by checksums of it. So an example holds no `set` or `frozenset`.
3. **A model**: a `task.TaskModel`. `loss(examples)` and `predict(examples)` take lists of examples, not tensors, since
   only the model knows what tensors it needs. It gets an `ElmoInput`, keeps it as `self.elmo`, and calls it with the
   batch's sentences: `self.elmo(sentences)` gives vectors for the task's input and output. These have a width of 0
   where ELMo isn't wanted, so that a model can always concatenate them.
4. **A task**: a subclass of `task.Task` that makes all of these, scores predictions, and writes them. It has the four
   attributes and the abstract methods of that class; all else there has a default. Its only instance is `TASK` in the
   folder's `task.py`.

`experiment.Experiment` does everything else: batches, ELMo's vectors (live, cached on disk, or from a biLM trained
along), early stopping, checkpoints and exact resume, several seeds, the run folder and its card, and the command
`elmo task`. The vectors of the recipe's files are put into each `WordEmbedding` of a model that will be trained.

Programs use the functions of this module:

```python
import elmo.tasks

elmo.tasks.train("ner", train="train.conll", dev="dev.conll", folder="entities", elmo="en")
tagger = elmo.tasks.load("entities")
scores = elmo.tasks.evaluate(tagger, "test.conll")
(found,) = elmo.tasks.predict(tagger, ["They met in Espoo ."])
print(found["entities"])
```
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from elmo.errors import ElmoError, placing
from elmo.nn.devices import use_device
from elmo.tasks.experiment import NO_ELMO, Experiment, ExperimentConfig
from elmo.tasks.finetune import finetune_for_task
from elmo.tasks.results import Result
from elmo.tasks.run_folder import load_run
from elmo.tasks.task import TASKS, Scores, get_task, load_task_recipe
from elmo.tasks.trained import TrainedTask
from elmo.text.choice import SAMPLE_CHARACTERS
from elmo.text.tokenizers import get_tokenizer

__all__ = [
    "NO_ELMO",
    "TASKS",
    "Result",
    "TrainedTask",
    "evaluate",
    "get_task",
    "load",
    "load_task_recipe",
    "predict",
    "train",
]


def train(
    task: str,
    *,
    train: str | Path,
    dev: str | Path,
    folder: str | Path,
    elmo: str | Path | None,
    test: str | Path | None = None,
    recipe: str | None = None,
    settings: Mapping[str, object] | None = None,
    num_seeds: int = 1,
    finetune: str | Path | None = None,
    with_bilm: bool = True,
    cache: str | Path | None = None,
    device: str = "auto",
) -> list[Result]:
    """Train a task model, as `elmo task train` does.

    The same call again goes on where an earlier one was interrupted, and returns the results of one that is finished.

    Training seeds torch's random numbers, which all threads of a process share. Trainings in several threads at the
    same time therefore can't be repeated exactly; use processes.

    Args:
        task: A name from `TASKS`, such as "ner".
        train: The training set, a file in the task's format (see docs/tasks.md).
        dev: The dev set. Its score decides which epoch is kept and when training stops.
        folder: The run folder, which gets the trained model, its card and its figures.
        elmo: Any model that `elmo.load` reads. None, or "none", trains the task's baseline.
        test: A test set to be scored once, with the model that is kept.
        recipe: The path of a YAML file, or the name of a recipe of the package. None takes the task's own recipe.
        settings: Keys of the recipe to change, with dots, and their values: `{"training.max_epochs": 5}`.
        num_seeds: How many seeds to train, one after the other. The best model on `dev` is kept.
        finetune: If given, the biLM is first trained further on the text of the training set, written to this model
            folder, and used from there (see docs/tasks.md).
        with_bilm: Whether the run folder gets a copy of the biLM. Without one, `elmo` must stay where it is. A model of
            ELMoForManyLangs has no copy.
        cache: A folder in which ELMo's vectors are kept, for other trainings with the same files.
        device: "auto", "cpu", "cuda" or one GPU such as "cuda:1".

    Returns:
        The result of each seed: its scores by set, the best epoch, and the training's time.

    Raises:
        ElmoError: If a file, a setting or the folder can't be used, which shows before anything is trained; or, during
            the training, if the loss is not finite or the disk is full.
        KeyboardInterrupt: If Ctrl-C or SIGTERM interrupted the training. Everything is saved.

    Example:
        ```python
        (result,) = elmo.tasks.train("ner", train="train.conll", dev="dev.conll", folder="entities", elmo="en")
        print(result.scores["dev"]["f1"])
        ```
    """
    config = ExperimentConfig(
        task,
        load_task_recipe(task, recipe, settings),
        Path(folder),
        train=str(train),
        dev=str(dev),
        test=None if test is None else str(test),
        elmo=NO_ELMO if elmo is None else elmo,
        with_bilm=with_bilm,
        cache=None if cache is None else Path(cache),
        num_seeds=num_seeds,
        device=device,
    )
    experiment = Experiment(config)
    if finetune is not None:
        finetune_for_task(experiment, Path(finetune))
        experiment = experiment.with_elmo(Path(finetune))
    results = experiment.run()
    # On Ctrl-C or SIGTERM the trainer saves everything and returns as if it were finished. A program that called this
    # function must not go on with results that are not there.
    if not experiment.is_done:
        raise KeyboardInterrupt
    return results


def load(folder: str | Path, *, device: str | torch.device = "auto") -> TrainedTask[Any, Any]:
    """Load a trained task model.

    Args:
        folder: A run folder of `train` or `elmo task train`.
        device: "auto", "cpu", "cuda" or one GPU such as "cuda:1".

    Returns:
        The model with its task and recipe, for `evaluate` and `predict`.

    Raises:
        ElmoError: If the folder holds no trained model, or a damaged one.
    """
    return load_run(Path(folder), use_device(device))


def evaluate(trained: TrainedTask[Any, Any], file: str | Path) -> Scores:
    """Score a trained model on a file.

    Args:
        trained: A model from `load`.
        file: A file in the task's format, with the right answers.

    Returns:
        All scores of the task by name, in percent. Those whose name begins with `confusion/` are counts. A file with
        nothing to find in it, such as one without names for ner, causes a warning.

    Raises:
        ElmoError: If the file is not in the task's format.
    """
    _require_trained(trained)
    examples = trained.task.read(str(file), trained.recipe)
    if note := trained.task.note_on_gold(examples, trained.recipe):  # a part of a test set may have nothing to score
        warnings.warn(f"{file}: {note}", stacklevel=2)
    return trained.task.score(examples, trained.predict(examples))


def predict(
    trained: TrainedTask[Any, Any], texts: Iterable[str], *, tokenizer: str | None = None
) -> list[dict[str, object]]:
    """Predict from plain text, as `elmo task predict --json` does.

    For predictions as Python objects, such as the spans of ner, make examples and call `trained.predict(examples)`.

    Args:
        trained: A model from `load`.
        texts: What `elmo task predict` takes as a line: a sentence; for snli and squad, two texts with a tab between
            them; for coref, a document, whose sentences are lines; for classify, a text of any number of sentences.
        tokenizer: "whitespace" for text that is tokenized already, "ptb" for raw English, or another name that
            `elmo.get_tokenizer` knows. By default it is the one of the task's files; if those have tokens already, raw
            texts are cut as the training text of the biLM was. All texts are cut by the same one.

    Returns:
        A dictionary for each text. It has the tokens that were read (squad has the paragraph), and what was predicted:

        - ner: `entities` with `start`, `end` (one past the last token), `type` and `text`
        - tag: a list of values for each target, such as `upos`
        - sst, snli, classify: `label` (of several labels: `labels`) and `probabilities`
        - srl: `frames` with the `predicate` and its `arguments`
        - coref: `clusters` of mentions
        - squad: `answer`, `score`, and `start` and `end` in characters of the paragraph

    Raises:
        ElmoError: If a text is not in the form that the task takes; it names the text by its number.

    Example:
        ```python
        tagger = elmo.tasks.load("entities")
        (found,) = elmo.tasks.predict(tagger, ["They met in Espoo ."])
        print(found["entities"])  # [{'start': 3, 'end': 4, 'type': 'LOC', 'text': 'Espoo'}]
        ```
    """
    _require_trained(trained)
    if isinstance(texts, str | bytes):
        raise ElmoError("`texts`: expected a list of texts, found a string; did you mean [text]?")
    if not isinstance(texts, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ElmoError(f"`texts`: expected a list of texts, found {type(texts).__name__}")
    # Iterating over these gives the names of the columns, which would be predicted as texts.
    if isinstance(texts, Mapping) or getattr(texts, "ndim", 1) != 1:
        raise ElmoError(f"`texts`: expected a list of texts, found {type(texts).__name__}; pass one column of it")
    task, texts = trained.task, list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - lists of tokens, as `embed` takes
            raise ElmoError(
                f"text {number}: expected a string, found {type(text).__name__}; join tokens with spaces, and pass "
                "`tokenizer='whitespace'`"
            )
    tokenize = get_tokenizer(tokenizer or trained.tokenizer_for("\n".join(texts)[:SAMPLE_CHARACTERS]))
    examples: list[Any] = []
    for number, text in enumerate(texts):
        with placing(f"text {number}"):
            examples.append(task.named(task.parse(text, tokenize), "", number))
    return [task.as_json(*pair) for pair in zip(examples, trained.predict(examples), strict=True)]


def _require_trained(trained: object) -> None:
    """Raise an ElmoError for what is no trained model, such as the name of its folder."""
    if not isinstance(trained, TrainedTask):
        raise ElmoError(f"`trained`: expected what elmo.tasks.load returns, found {type(trained).__name__}")
