"""`elmo finetune`: continues training a biLM on any text."""

from __future__ import annotations

import filecmp
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import (
    STOPPED,
    choose_reading,
    device_option,
    examples,
    is_given,
    json_option,
    print_note,
    print_result,
    set_option,
    text_options,
)
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elmo.pretrain.finetuning import FineTuning
    from elmo.text.choice import Choice


@click.command(
    epilog=examples(
        "elmo finetune run/ tuned/ task.txt",
        "elmo finetune run/ tuned/ task.txt --heldout task-dev.txt --epochs 2",
        "elmo finetune lm_weights.hdf5 tuned/ task.txt --new-softmax",
    )
)
@click.argument("model")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("inputs", nargs=-1, required=True, metavar="TEXT...")
@click.option(
    "--epochs",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="N",
    help="How many times to read the text.",
)
@click.option(
    "--learning-rate",
    type=float,
    metavar="RATE",
    help="Learning rate of Adagrad, or of the optimizer set with --set. Default: 0.05, and 0.2 for the "
    "training of a new softmax.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    metavar="N",
    help="Number of pieces (streams) of the text that are read side by side. Default: 128, or fewer for a short text.",
)
@click.option(
    "--heldout",
    type=click.Path(),
    metavar="FILE",
    help="Text to measure perplexity on, read with the same options as TEXT, or as CoNLL-U if it is named so "
    "(x.conllu).",
)
@click.option("--new-softmax", is_flag=True, help="First train a new softmax with the biLM frozen.")
@click.option(
    "--min-count",
    default=3,
    show_default=True,
    metavar="N",
    help="With --new-softmax: predict only words that occur at least this often.",
)
@set_option("Change one key of the training settings. May be repeated. Options such as --epochs take precedence.")
@device_option
@text_options
@json_option
def command(
    model: str,
    folder: Path,
    inputs: tuple[str, ...],
    epochs: float,
    learning_rate: float | None,
    batch_size: int | None,
    heldout: str | None,
    new_softmax: bool,
    min_count: int,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
    **reading: Any,
) -> None:
    """Continue training MODEL on TEXT and write the result to the model folder FOLDER.

    The vocabulary of MODEL is kept, unless --new-softmax makes one from TEXT: other words are predicted as <UNK>, but
    their characters are still read. Perplexity is measured before and after. Most published files hold no softmax; pass
    --new-softmax for those. Ctrl-C saves a checkpoint and stops with exit code 75; the same command, started again,
    continues.
    """
    from elmo.formats import load
    from elmo.pretrain.finetuning import FineTuningStoppedError, finetune, finetuning_config
    from elmo.text.conllu import layout_by_name
    from elmo.text.opening import can_be_read_again
    from elmo.text.reading import expand, read_all
    from elmo.training.recipes import parse_override

    if not new_softmax and is_given("min_count"):
        raise ElmoError("--min-count: has no effect without --new-softmax, which keeps the model's words; leave it out")
    loaded = load(model)
    # As in `elmo pretrain`, options of the command win over --set, and both over the defaults.
    settings = {key.removeprefix("training."): value for key, value in map(parse_override, overrides)}
    if is_given("epochs") or "n_epochs" not in settings:
        settings["n_epochs"] = epochs
    flags = {"learning_rate": learning_rate, "batch_size": batch_size}
    settings |= {key: value for key, value in flags.items() if value is not None}
    finetuning_config(loaded, settings, new_softmax)  # what is wrong with it is said before any text is read
    paths = expand(inputs)
    choice = choose_reading(loaded, paths, **reading)
    measured: Sequence[Sequence[str]] = ()
    if heldout is not None:
        held = expand(heldout)
        # Held-out text may be raw where the text is tokenized, or the other way round. How raw text is cut says nothing
        # about CoNLL-U.
        own: dict[str, Any] = {"tokenizer": None, "text": None} if layout_by_name(held) == "conllu" else {}
        measured = read_all(heldout, choose_reading(loaded, held, **reading | own).reading)
        # Contents are compared, not names: a copy of a training text was trained on just as well.
        known, again = (list(filter(can_be_read_again, each)) for each in (paths, held))
        if shared := [each for each in again if any(filecmp.cmp(each, path, shallow=False) for path in known)]:
            print_note(
                min(map(os.path.realpath, shared)), "is also in the training text, so perplexity on it says little"
            )
    try:
        result = finetune(
            loaded,
            paths,
            folder,
            settings=settings,
            new_softmax=new_softmax,
            heldout=measured,
            device=device,
            reading=choice.reading,
            min_count=min_count,
        )
    except FineTuningStoppedError:
        figures = {"folder": str(folder), "done": False}
        print_result(f"{folder}: stopped; run the same command again to continue", figures, as_json)
        sys.exit(STOPPED)
    _report(folder, result, choice, as_json)


def _report(folder: Path, result: FineTuning, choice: Choice, as_json: bool) -> None:
    text = "held-out text" if result.is_heldout else "the training text itself"
    is_worse = result.after.mean > result.before.mean
    worse = "; it rose, so the model from before is better for such text" if is_worse else ""
    print_result(
        f"{folder}: {result.describe()}, on {text}{choice}{worse}",
        {
            "folder": str(folder),
            "done": True,
            "perplexity_before": result.before.mean,
            "perplexity_after": result.after.mean,
            "measured_on": text,
            "reading": asdict(choice.reading),
        },
        as_json,
    )
