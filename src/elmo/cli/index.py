"""`elmo index`: build an index of a text, in which nearest uses are found quickly."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import (
    choose_reading,
    device_option,
    examples,
    json_option,
    layer_option,
    precision_option,
    print_result,
    text_options,
)
from elmo.wording import counted

if TYPE_CHECKING:
    from elmo.analysis.search.vectors import Kind
    from elmo.analysis.tagged import Columns
    from elmo.embed.engine import Precision
    from elmo.embed.layers import Layers


@click.command(
    epilog=examples(
        "elmo index model corpus.txt corpus.index",
        "elmo index model corpus.txt corpus.index            (if interrupted, run it again to continue)",
        "elmo index model 'wiki/*.txt.gz' wiki.index --tokenizer ptb --text paragraphs --vectors pq --precision auto",
        "elmo index model 'ud/*.conllu' ud.index --tagged upos --layer 1",
        "elmo index model 'letters/*.txt' letters.index --metadata dates.tsv",
        'elmo neighbors model corpus.index --word play --in "They saw a new play on Broadway ."',
    )
)
@click.argument("model")
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@click.argument("output", metavar="INDEX", type=click.Path(path_type=Path))
@layer_option
@click.option(
    "--vectors",
    type=click.Choice(["float16", "pq"]),
    default="float16",
    show_default=True,
    help="How vectors are stored: as float16, or product-quantized (pq) in an eighth of that space.",
)
@click.option(
    "--tagged",
    type=click.Choice(["upos", "xpos", "columns"]),
    help="Each line of TEXT holds a word and its part of speech. upos and xpos: CoNLL-U, with its universal or its "
    "language-specific tags. columns: a word, a tab and its tag.",
)
@click.option(
    "--metadata",
    type=click.Path(path_type=Path),
    metavar="TABLE",
    help="A table with tabs (or .csv) about the files: a column named file, and others that searches can choose by, "
    "such as year. For an index that is complete, it replaces the metadata.",
)
@precision_option
@device_option
@click.option(
    "--overwrite", is_flag=True, help="Replace INDEX if it exists, and discard the unfinished work of another command."
)
@text_options
@json_option
def command(
    model: str,
    texts: tuple[str, ...],
    output: Path,
    layer: Layers,
    vectors: Kind,
    tagged: Columns | None,
    metadata: Path | None,
    precision: Precision,
    device: str,
    overwrite: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Build an index of all tokens of TEXT (files, globs, or - for standard input) by their vectors in one layer.

    With the same model, elmo neighbors and elmo explore then search millions of uses in a moment. The index contains
    the text and can be moved. Memory use depends on the number of distinct words, plus a few bytes for each sentence.

    The index knows the file and line of every sentence and, with --metadata, what a table says about the file.

    If the command is interrupted, the same command continues where it stopped. If the index is already complete,
    nothing is embedded again.
    """
    from elmo.analysis.search import build_index
    from elmo.analysis.search.build import require_target
    from elmo.embed.embedder import load
    from elmo.nn.processor import prepare_device
    from elmo.text.choice import is_lower_case
    from elmo.text.reading import expand

    # What can be refused without the model is refused before it is loaded.
    require_target(output)
    paths = expand(texts)
    embedder = load(model, device=prepare_device(device), precision=precision)
    if tagged is None:
        choice = choose_reading(embedder, paths, **reading)
        reading, suffix = asdict(choice.reading), str(choice)
    else:  # its words are given, so `build_index` refuses a tokenizer
        if reading["lowercase"] is None:
            reading["lowercase"] = is_lower_case(embedder.text)
        reading, suffix = {key: value for key, value in reading.items() if value is not None}, ""
    built = build_index(
        embedder,
        paths,
        output,
        layer=layer,
        kind=vectors,
        tagged=tagged,
        metadata=metadata,
        overwrite=overwrite,
        **reading,
    )
    if built.num_kept_tokens and not built.was_there:
        click.echo(f"elmo: continued after {built.num_kept_tokens:,} tokens of an interrupted run", err=True)
    # Tokens of an earlier run took none of this run's time.
    rate = (built.num_tokens - built.num_kept_tokens) / built.seconds
    sizes = f"{counted(built.num_sentences, 'sentence')}, {counted(built.num_tokens, 'token')}"
    done = f"{output}: {sizes}, {built.num_bytes / 1e6:,.1f} MB"
    print_result(
        f"{done}; already complete"
        if built.was_there
        else f"{done} in {built.seconds:.1f} s ({rate:,.0f} tokens/s){suffix}",
        {
            "folder": str(output),
            "num_sentences": built.num_sentences,
            "num_tokens": built.num_tokens,
            "num_bytes": built.num_bytes,
            "bytes_per_token": round(built.num_bytes / built.num_tokens, 1),
            "seconds": round(built.seconds, 3),
            "tokens_per_second": round(rate, 1),
            "already_done": built.was_there,
            "reading": reading,
        },
        as_json,
    )
