"""`elmo pretrain`: train a biLM on a corpus folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmo.cli.shared import (
    STOPPED,
    device_option,
    examples,
    json_option,
    print_note,
    print_note_on_text,
    print_result,
    set_option,
)
from elmo.errors import ElmoError
from elmo.wording import perplexity_text

if TYPE_CHECKING:
    from elmo.pretrain.loop import Pretrainer
    from elmo.text.corpus import Corpus


@click.command(
    epilog=examples(
        "elmo prepare corpus/ text/*.txt.gz",
        "elmo pretrain corpus/ run/",
        "elmo pretrain corpus/ run/                          (again: continues the run)",
        "elmo pretrain corpus/ run/ --max-minutes 30 --heldout valid.txt",
        "elmo pretrain corpus/ run/ --recipe mini",
        "elmo pretrain corpus/ run/ --recipe small --set training.batch_size=256",
        "elmo pretrain more/ longer/ --recipe en --from model/",
        "torchrun --nproc-per-node 4 -m elmo pretrain corpus/ run/ --recipe small",
    )
)
@click.argument("corpus", type=click.Path(path_type=Path))
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--recipe",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="paper, small, en, mini, little, tiny, a YAML file, or auto: chosen by the length of the text. A run that has "
    "a checkpoint continues with its own recipe.",
)
@click.option(
    "--from",
    "start",
    metavar="MODEL",
    help="Start from the weights of MODEL instead of random ones. Name the recipe that it was trained with, too. "
    "CORPUS must have its vocabulary.",
)
@set_option("Change one key of the recipe. May be repeated. Options such as --max-steps take precedence.")
@click.option("--max-steps", type=click.IntRange(1), metavar="N", help="Stop after this many steps.")
@click.option(
    "--max-minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="MINUTES",
    help="Stop after this many minutes of training.",
)
@click.option(
    "--heldout",
    type=click.Path(),
    metavar="FILE",
    help="Text to measure perplexity on, read with the settings of the corpus, or as CoNLL-U if it is named so "
    "(x.conllu). For a corpus of CoNLL-U, it may also be plain text, a sentence on each line.",
)
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="Tokenizer of the held-out text. Default: that of the corpus. If that is a function of yours "
    "(MODULE:FUNCTION), name it here again: a corpus may come from a stranger, so it is not run unasked.",
)
@click.option("--encoding", metavar="NAME", help="Encoding of the held-out text. Default: that of the corpus.")
@click.option(
    "--evaluate-every",
    type=click.IntRange(1),
    metavar="N",
    help="Steps between two held-out measurements. Default: measure only at the end.",
)
@click.option("--tensorboard", is_flag=True, help="Also write logs for TensorBoard.")
@device_option
@json_option
def command(
    corpus: Path,
    run: Path,
    recipe: str,
    start: str | None,
    overrides: tuple[str, ...],
    max_steps: int | None,
    max_minutes: float | None,
    heldout: str | None,
    tokenizer: str | None,
    encoding: str | None,
    evaluate_every: int | None,
    tensorboard: bool,
    device: str,
    as_json: bool,
) -> None:
    """Pretrain a biLM on the corpus folder CORPUS and write it to the folder RUN.

    From its first checkpoint on, RUN is a model folder that every command can use. Ctrl-C saves a checkpoint and stops
    with exit code 75; the same command, started again, continues at the exact step. Under torchrun, the processes split
    each batch among themselves: the recipe's batch_size is the total of all processes.
    """
    from elmo import formats
    from elmo.nn.devices import find_device
    from elmo.nn.precision import device_gains_by_bf16
    from elmo.pretrain.checkpoint import has_checkpoint
    from elmo.pretrain.choice import AUTO, choose_recipe
    from elmo.pretrain.loop import Pretrainer
    from elmo.pretrain.recipe import load_pretraining_recipe
    from elmo.pretrain.run_folder import CHECKPOINTS
    from elmo.text.corpus import Corpus
    from elmo.training.recipes import parse_override

    # Options of the command are overrides of the recipe like any other, and win over --set.
    settings = dict(parse_override(text) for text in overrides)
    flags = {"max_steps": max_steps, "max_minutes": max_minutes, "evaluate_every_steps": evaluate_every}
    settings |= {f"training.{key}": value for key, value in flags.items() if value is not None}
    if heldout is None and settings.get("training.evaluate_every_steps") is not None:
        raise ElmoError("--evaluate-every: there is no text to measure on; name one with --heldout")
    if heldout is None and tokenizer is not None:
        raise ElmoError("--tokenizer: there is no held-out text to cut; name one with --heldout")
    if heldout is None and encoding is not None:
        raise ElmoError("--encoding: there is no held-out text to read; name one with --heldout")
    is_new = not has_checkpoint(run / CHECKPOINTS)
    if is_new and start is not None and recipe == AUTO:
        raise ElmoError("--from: the recipe has to be the one that MODEL was trained with; name it with --recipe")
    opened = Corpus.open(corpus)
    sentences = [] if heldout is None else _read_heldout(heldout, opened, tokenizer, encoding)
    model = None if start is None else formats.load(start)
    gains_by_bf16 = device_gains_by_bf16(find_device(device))
    note: str | None = None
    if recipe == AUTO:
        chosen, note = choose_recipe(
            opened.num_tokens, run, settings, num_sentences=opened.num_sentences, gains_by_bf16=gains_by_bf16
        )
    else:
        chosen = load_pretraining_recipe(recipe, settings)
        if is_new and chosen.training.precision == "bf16" and not gains_by_bf16:
            note = (
                f"elmo: recipe {recipe} trains in bf16, for which this device has no fast instructions; pass --set "
                "training.precision=float32"
            )
    training = Pretrainer(opened, run, chosen, start=model, heldout=sentences, device=device, tensorboard=tensorboard)
    if note is not None and training.processes.is_first:
        click.echo(note, err=True)
    training.train()
    training.processes.leave()
    if training.processes.is_first:  # one line, however many processes there are
        _report(run, training, as_json)


def _read_heldout(path: str, corpus: Corpus, tokenizer: str | None, encoding: str | None) -> list[list[str]]:
    """Read held-out text as the corpus was read, but run no code that only the corpus names."""
    from elmo.text.choice import sample_of
    from elmo.text.conllu import layout_by_name, refuse_tokenizer
    from elmo.text.prepare import is_made_of
    from elmo.text.reading import WITH_WORDS, expand, read_all
    from elmo.text.tokenizers import refuse_function

    reading, paths = replace(corpus.reading, encoding=encoding or corpus.reading.encoding), expand(path)
    is_named = layout_by_name(paths) == "conllu"
    if reading.text in WITH_WORDS and not is_named:
        # How the corpus of a treebank was read says nothing about plain text, which has no tabs between columns.
        sample = sample_of(paths, reading.encoding)
        if sample is not None and "\t" not in sample.text:
            reading = replace(reading, text="sentences")
    if is_named or reading.text in WITH_WORDS:
        refuse_tokenizer(tokenizer)
        tokenizer = "whitespace"
    elif tokenizer is None:
        tokenizer = reading.tokenizer
        refuse_function(tokenizer, f"{corpus.folder}:")
        if tokenizer == "whitespace":
            print_note_on_text(paths, reading.text, reading.encoding)
    if any(is_made_of(corpus.folder, Path(each)) for each in paths):
        note = "is part of the text that the corpus was made from, so perplexity on it says little; hold out other text"
        print_note(path, note)
    return read_all(path, replace(reading, tokenizer=tokenizer))


def _report(run: Path, training: Pretrainer, as_json: bool) -> None:
    progress, num_processes = training.progress, training.processes.size
    batch_size = training.recipe.training.batch_size
    spread = "" if num_processes == 1 else f" on {num_processes} processes, batch {batch_size}"
    is_measured = progress.heldout_step == progress.step
    is_complete = training.is_done and (is_measured or not training.heldout)
    end = ""
    if not training.is_done:
        end = "; run the same command again to continue"
    elif not is_complete:
        end = "; held-out text was not measured after the last step: run the same command again"
    elif training.is_out_of_time:
        end = f"; training.max_minutes ({training.recipe.training.max_minutes:g}) ended it"
    # An older measurement says nothing about the weights that were saved.
    score = progress.heldout_perplexity if is_measured else None
    if training.best is not None and progress.best_perplexity is not None:
        score = progress.best_perplexity
        score_text = f", weights of step {progress.best_step:,}, held-out perplexity {perplexity_text(score)}"
    else:
        score_text = "" if score is None else f", held-out perplexity {perplexity_text(score)}"
    losses = _last_losses(run)
    if score is None and losses:
        # The loss of a part of the vocabulary says nothing about perplexity.
        is_part = training.batches.samples_negatives
        ways = "/".join(perplexity_text(value) for key, value in losses.items() if key != "loss")
        score_text = f", training loss {losses['loss']:.3f}{' (sampled)' if is_part else f', perplexity {ways}'}"
    # There may be more steps than the end that was named later, and minutes or the patience may end a run before it.
    has_end = not training.is_done or progress.step == training.total_steps
    of_all = f" of {training.total_steps:,}" if has_end and progress.step <= training.total_steps else ""
    print_result(
        f"{run}: {progress.step:,}{of_all} steps, {progress.seconds / 60:.1f} minutes{spread}{score_text}{end}",
        {
            "run": str(run),
            "step": progress.step,
            "total_steps": training.total_steps,
            "seconds": progress.seconds,
            **losses,
            "heldout_perplexity": score,
            "best_step": progress.best_step,
            "batch_size": batch_size,
            "num_processes": num_processes,
            "done": is_complete,
        },
        as_json,
    )
    if not is_complete:
        sys.exit(STOPPED)


def _last_losses(run: Path) -> dict[str, float]:
    """Return the loss, and the perplexity of each direction, of the last row of metrics; nothing if there is none."""
    from elmo.training.metrics import METRICS, read_rows

    row = next((row for row in reversed(read_rows(run / METRICS)) if "loss" in row), {})
    return {key: value for key, value in row.items() if key in ("loss", "forward_perplexity", "backward_perplexity")}
