"""`elmo pretrain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmo.cli.shared import device_option, examples, json_option, print_result
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from elmo.pretrain.loop import Pretrainer


@click.command(
    epilog=examples(
        "elmo prepare corpus/ text/*.txt.gz",
        "elmo pretrain corpus/ run/ --recipe mini",
        "elmo pretrain corpus/ run/ --recipe mini            (again: goes on where it was)",
        "elmo pretrain corpus/ run/ --recipe mini --max-minutes 30 --heldout valid.txt",
        "elmo pretrain corpus/ run/ --recipe small --set training.batch_size=256",
        "elmo pretrain more/ longer/ --recipe en --from model/",
        "torchrun --nproc-per-node 4 -m elmo pretrain corpus/ run/ --recipe small",
    )
)
@click.argument("corpus", type=click.Path(path_type=Path))
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--recipe", default="mini", show_default=True, help="paper, small, en, mini, tiny, or a YAML file.")
@click.option(
    "--from",
    "start",
    metavar="MODEL",
    help="Begin with the weights of MODEL, of the recipe's sizes and CORPUS's vocabulary, instead of from chance.",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one key of the recipe.")
@click.option("--max-steps", type=click.IntRange(1), help="End after this many steps.")
@click.option("--max-minutes", type=click.FloatRange(0), help="End after this much training time.")
@click.option("--heldout", type=click.Path(), help="Text to measure perplexity on, read like that of the corpus.")
@click.option(
    "--evaluate-every", type=click.IntRange(1), help="Steps between two held-out measurements; default: at the end."
)
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
    evaluate_every: int | None,
    device: str,
    as_json: bool,
) -> None:
    """Pretrain a biLM on the corpus folder CORPUS and write it to the folder RUN.

    RUN is a model folder at any time after the first checkpoint. The same command started again goes on at the
    exact step. Ctrl-C saves and ends. Under torchrun, processes share the batch out among them; the recipe's
    batch_size is that of all together.
    """
    from elmo import formats
    from elmo.pretrain.loop import Pretrainer
    from elmo.pretrain.recipe import load_pretraining_recipe
    from elmo.text.corpus import Corpus
    from elmo.text.reading import read_some
    from elmo.training.recipes import parse_override

    settings = dict(parse_override(text) for text in overrides)
    flags = {"max_steps": max_steps, "max_minutes": max_minutes, "evaluate_every_steps": evaluate_every}
    settings |= {f"training.{key}": value for key, value in flags.items() if value is not None}
    if heldout is None and settings.get("training.evaluate_every_steps") is not None:
        raise ElmoError("--evaluate-every: there is no text to measure on; name one (--heldout)")
    opened = Corpus.open(corpus)
    sentences = read_some(heldout, **opened.reading) if heldout else []
    model = None if start is None else formats.load(start)
    training = Pretrainer(
        opened, run, load_pretraining_recipe(recipe, settings), start=model, heldout=sentences, device=device
    )
    training.train()
    training.processes.leave()
    if training.processes.is_first:
        _report(run, training, as_json)


def _report(run: Path, training: Pretrainer, as_json: bool) -> None:
    progress, num_processes = training.progress, training.processes.size
    batch_size = training.recipe.training.batch_size
    spread = "" if num_processes == 1 else f" on {num_processes} processes, batch {batch_size}"
    again = "" if training.is_done else "; the same command goes on"
    score = progress.heldout_perplexity if progress.heldout_step == progress.step else None
    heldout_score = "" if score is None else f", held-out perplexity {score:,.2f}"
    print_result(
        f"{run}: {progress.step:,} of {training.total_steps:,} steps, {progress.seconds / 60:.1f} minutes"
        f"{spread}{heldout_score}{again}",
        {
            "run": str(run),
            "step": progress.step,
            "total_steps": training.total_steps,
            "seconds": progress.seconds,
            "heldout_perplexity": score,
            "batch_size": batch_size,
            "num_processes": num_processes,
            "done": training.is_done,
        },
        as_json,
    )
