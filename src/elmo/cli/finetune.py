"""Fine-tuning: continues training a biLM on any text (`elmo finetune`), or on that of a task before it is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import choose_reading, device_option, examples, is_given, json_option, print_result, text_options
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from elmo.pretrain.finetune import FineTuning
    from elmo.tasks.experiment import Experiment


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
    help="Learning rate of Adagrad, or of the optimizer set with --set. Default: 0.05, or 0.2 with --new-softmax.",
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
    help="Text to measure perplexity on; it is read with the same options as TEXT.",
)
@click.option("--new-softmax", is_flag=True, help="First train a new softmax with the biLM frozen.")
@click.option(
    "--min-count",
    default=3,
    show_default=True,
    metavar="N",
    help="With --new-softmax: predict only words that occur at least this often.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one key of the training settings. May be repeated. Options such as --epochs win over it.",
)
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

    The vocabulary of MODEL is kept: other words are predicted as <UNK>, but their characters are still read. Perplexity
    is measured before and after. Most published files hold no softmax; pass --new-softmax for those.
    """
    from elmo.formats import load
    from elmo.pretrain.finetune import default_batch_size, default_settings, finetune, prepare_corpus
    from elmo.pretrain.recipe import PretrainingConfig
    from elmo.schema import from_mapping
    from elmo.text.reading import expand, read_some
    from elmo.training.recipes import parse_override

    if not new_softmax and is_given("min_count"):
        raise ElmoError("--min-count: has no effect without --new-softmax, which keeps the model's words; leave it out")
    loaded = load(model)
    # As in `elmo pretrain`, options of the command win over --set, and both over the defaults.
    own = {key.removeprefix("training."): value for key, value in map(parse_override, overrides)}
    if is_given("epochs") or "n_epochs" not in own:
        own["n_epochs"] = epochs
    flags = {"learning_rate": learning_rate, "batch_size": batch_size}
    own |= {key: value for key, value in flags.items() if value is not None}
    settings = default_settings(loaded, new_softmax) | own
    if settings.get("loss") != "adaptive" and "adaptive_cutoffs" not in own:
        # These are the model's cutoffs. A different loss is refused later, with a clearer message.
        settings.pop("adaptive_cutoffs", None)
    training = from_mapping(PretrainingConfig, settings, "training")
    # Rates of other optimizers differ by orders of magnitude, so none is assumed.
    if training.optimizer != "adagrad" and "learning_rate" not in own:
        raise ElmoError(f"--learning-rate: the default is for Adagrad; choose one for {training.optimizer}")
    if training.evaluate_every_steps is not None:
        raise ElmoError(
            "training.evaluate_every_steps: fine-tuning measures only before and after training; leave it out"
        )
    paths, encoding = expand(inputs), reading.pop("encoding")
    reading = choose_reading(loaded, paths, encoding=encoding, **reading).reading(encoding)
    sentences = read_some(heldout, **reading) if heldout else []  # first, as a bad file is noticed only by reading it
    corpus = prepare_corpus(loaded, paths, folder, new_softmax, min_count=min_count, **reading)
    if "batch_size" not in settings:
        training = replace(training, batch_size=default_batch_size(corpus, training.unroll_steps))
    result = finetune(loaded, corpus, folder, training, new_softmax=new_softmax, heldout=sentences, device=device)
    _report(folder, result, as_json)


def _report(folder: Path, result: FineTuning | None, as_json: bool) -> None:
    if result is None:
        print_result(
            f"{folder}: stopped; run the same command again to continue",
            {"folder": str(folder), "done": False},
            as_json,
        )
        return
    text = "held-out text" if result.is_heldout else "the training text itself"
    print_result(
        f"{folder}: perplexity {result.before.mean:,.2f} before, {result.after.mean:,.2f} after, on {text}",
        {
            "folder": str(folder),
            "done": True,
            "perplexity_before": result.before.mean,
            "perplexity_after": result.after.mean,
            "measured_on": text,
        },
        as_json,
    )


def finetune_for_task(experiment: Experiment, folder: Path) -> bool:
    """Fine-tune the experiment's model on the text of its training set, and write it to the model folder `folder`.

    A folder that is finished already is left as it is.

    Returns:
        Whether the fine-tuned model is complete: False if training was interrupted.
    """
    from tempfile import TemporaryDirectory

    from elmo.pretrain.finetune import default_batch_size, default_settings, finetune, is_finetuned, prepare_corpus
    from elmo.pretrain.recipe import PretrainingConfig
    from elmo.schema import from_mapping
    from elmo.tasks.task import distinct_lines

    config, task, model = experiment.config, experiment.task, experiment.bilm
    if model is None:
        raise ElmoError("--finetune: --elmo none leaves nothing to fine-tune; name a model, or leave out --finetune")
    if config.folder.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise ElmoError(f"{folder}: is inside the run folder; name another folder for the fine-tuned model")

    # For squad, paragraphs and questions are different kinds of text; the first one of them, the paragraphs, is used.
    def lines_of(path: str) -> dict[str, None]:
        found = task.read(path, config.recipe)
        return distinct_lines(sentence for example in found for sentence in next(iter(task.texts(example).values())))

    new_softmax = model.softmax is None
    with TemporaryDirectory(prefix="elmo-") as work:
        path = Path(work) / f"{config.task}.txt"
        path.write_text("".join(f"{line}\n" for line in lines_of(config.train)), encoding="utf-8")
        corpus = prepare_corpus(model, [str(path)], folder, new_softmax)
    # The text is prepared even if the model is complete: that refuses a folder that was fine-tuned on other text.
    if is_finetuned(model, folder):
        return True
    training = from_mapping(PretrainingConfig, default_settings(model, new_softmax), "training")
    training = replace(training, batch_size=default_batch_size(corpus, training.unroll_steps))
    heldout = [line.split() for line in lines_of(config.dev)]
    result = finetune(model, corpus, folder, training, new_softmax=new_softmax, heldout=heldout, device=config.device)
    if result is None:
        return False
    figures = f"perplexity {result.before.mean:,.2f} before, {result.after.mean:,.2f} after, on the dev set"
    click.echo(f"elmo: {folder}: {figures}", err=True)
    return True
