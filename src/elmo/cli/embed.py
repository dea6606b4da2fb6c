"""`elmo embed`: the contextual vectors of a text, into a file."""

from pathlib import Path
from typing import cast

import click
import torch

from elmo.cli.progress import count_sentences
from elmo.cli.shared import examples, json_option, print_result, reading_options
from elmo.embed.embedder import State, load
from elmo.embed.engine import PRECISIONS, Precision
from elmo.embed.layers import NAMES, Layers
from elmo.embed.pooling import POOLS, Pool
from elmo.embed.writers import DTYPES, DType, Written, check_target
from elmo.errors import ElmoError
from elmo.text.reading import expand, read_sentences


def parse_layers(ctx: click.Context, param: click.Parameter, value: str) -> Layers:
    """A name, a layer's number or weights between commas; which of them a model allows is its own matter."""
    if value in NAMES:
        return cast(Layers, value)
    try:
        return [float(weight) for weight in value.split(",")] if "," in value else int(value)
    except ValueError:
        names = ", ".join(NAMES)
        raise click.BadParameter(
            f"{value!r} is none of {names}, a layer's number, or weights such as 0.2,0.3,0.5.", ctx, param
        ) from None


@click.command(
    epilog=examples(
        "elmo embed model corpus.txt vectors.h5",
        "elmo embed model corpus.txt vectors.h5 --layers mean --dtype float16 --precision auto",
        "elmo embed model reviews.txt reviews.npz --tokenizer ptb --pool mean",
        "cat *.txt | elmo embed model - vectors.parquet --layers 0.2,0.3,0.5",
    )
)
@click.argument("model")
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--layers",
    default="all",
    show_default=True,
    callback=parse_layers,
    metavar="LAYERS",
    help="all (kept apart), top, mean, token (layer 0), a layer's number, or weights such as 0.2,0.3,0.5.",
)
@click.option(
    "--pool",
    type=click.Choice(POOLS),
    help="One vector a sentence. first-last: the last token's forward half beside the first one's backward half.",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Of the file.")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="float32",
    show_default=True,
    help="Of the computation: bf16 and int8 are faster and less exact. auto: bf16 where the machine has it.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Cores to compute on, instead of all.")
@click.option(
    "--state",
    type=click.Choice(["zero", "carry"]),
    default="zero",
    show_default=True,
    help="carry: a batch starts from the state that the one before left, as in the first ELMo toolkits.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Sentences at a time, instead of as many as fit.")
@click.option("--overwrite", is_flag=True, help="Replace OUTPUT if it exists.")
@reading_options
@json_option
def command(
    model: str,
    texts: tuple[str, ...],
    output: Path,
    layers: Layers,
    pool: Pool | None,
    dtype: DType,
    precision: Precision,
    threads: int | None,
    state: State,
    batch_size: int | None,
    overwrite: bool,
    tokenizer: str,
    text: str,
    encoding: str,
    lowercase: bool,
    as_json: bool,
) -> None:
    """Write the vectors of all tokens of TEXT (files, globs, or - for standard input) to OUTPUT.

    OUTPUT's ending decides on its format: .h5 (data sets "0", "1", ..., as AllenNLP writes them), .npz or .parquet.
    Entry i is sentence i of the text, counted from 0; a blank line is an entry without tokens.
    """
    check_target(output, overwrite)
    paths = expand(texts)
    if any(output.exists() and path != "-" and output.samefile(path) for path in paths):
        raise ElmoError(f"{output}: is the text itself; name another file for the vectors")
    if threads is not None:
        torch.set_num_threads(threads)
    written = load(model, precision=precision).write(
        output,
        read_sentences(paths, tokenizer=tokenizer, text=text, encoding=encoding, lowercase=lowercase),
        layers=layers,
        pool=pool,
        dtype=dtype,
        state=state,
        batch_size=batch_size,
        overwrite=overwrite,
        total=count_sentences(paths, text),
    )
    _report(written, as_json)


def _report(written: Written, as_json: bool) -> None:
    for note in written.notes:
        click.echo(f"elmo: {note}", err=True)
    print_result(
        f"{written.path}: {written.num_sentences:,} sentences, {written.num_tokens:,} tokens in "
        f"{written.seconds:.1f} s ({written.tokens_per_second:,.0f} tokens/s)",
        {
            "file": str(written.path),
            "num_sentences": written.num_sentences,
            "num_tokens": written.num_tokens,
            "seconds": round(written.seconds, 3),
            "tokens_per_second": round(written.tokens_per_second, 1),
            "notes": list(written.notes),
        },
        as_json,
    )
