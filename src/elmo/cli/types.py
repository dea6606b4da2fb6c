"""`elmo types`: write one vector for each word, the mean of its uses in a text."""

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
from elmo.cli.word_vectors import (
    names_corpus,
    num_left_out,
    opened_corpus,
    require_word_tests,
    run_word_tests,
    word_test_options,
    words_left_out,
)
from elmo.errors import ElmoError
from elmo.wording import counted

if TYPE_CHECKING:
    from elmo.embed.engine import Precision
    from elmo.embed.layers import Layers


def parse_senses(ctx: click.Context, param: click.Parameter, value: str) -> Any:
    """Parse a number of senses, or "auto".

    Raises:
        click.BadParameter: If the value is neither.
    """
    if value == "auto":
        return value
    if value.isdecimal() and int(value) > 0:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither auto nor a number from 1 on.", ctx, param)


@click.command(
    epilog=examples(
        "elmo types run/ corpus/ words.kv --layer 1 --min-count 20",
        "elmo types en 'wiki/*.txt.gz' words.txt --similarity wordsim353.tsv",
        "elmo types en corpus/ senses.txt --senses auto",
    )
)
@click.argument("model")
@click.argument("source", metavar="CORPUS|TEXT")
@click.argument("output", type=click.Path(path_type=Path))
@layer_option
@click.option(
    "--min-count",
    default=20,
    show_default=True,
    metavar="N",
    help="A word needs to occur at least this often to get a vector.",
)
@click.option(
    "--senses",
    default="1",
    show_default=True,
    callback=parse_senses,
    metavar="NUMBER",
    help="How many vectors each word gets, by clustering its uses: a number, or auto for the number from 1 to 5 that "
    "separates them best. Clusters need not be meanings. They are written as word#1, word#2, ...",
)
@word_test_options
@precision_option
@device_option
@text_options
@json_option
def command(
    model: str,
    source: str,
    output: Path,
    layer: Layers,
    min_count: int,
    senses: Any,
    similarity: tuple[Path, ...],
    analogies: tuple[Path, ...],
    precision: Precision,
    device: str,
    as_json: bool,
    **reading: Any,
) -> None:
    """Write a vector for each word to OUTPUT: the mean of the contextual vectors of its uses in a text.

    Programs that read the vectors of word2vec can read these. If OUTPUT ends in .kv, it is a file for gensim's
    KeyedVectors.load; otherwise it is in word2vec's text format. The source is a corpus folder made by elmo prepare, or
    a text file, a glob or -, which is first prepared in a temporary folder next to OUTPUT; raw text is cut as the
    model's training text was. Memory use depends on the number of words, not on the length of the text.
    """
    import time

    from elmo.analysis.word_vectors import type_vectors
    from elmo.embed.embedder import load
    from elmo.formats.word_vectors import require_word_vector_target, write_word_vectors
    from elmo.nn.processor import prepare_device
    from elmo.targets import work_folder_of
    from elmo.text.reading import expand

    if senses != 1 and (similarity or analogies):
        raise ElmoError(
            "--similarity and --analogies compare words, and --senses writes a word as word#1, word#2, ...; leave out "
            "one or the other"
        )
    require_word_vector_target(output)
    require_word_tests(similarity, analogies)
    started = time.perf_counter()
    embedder = load(model, device=prepare_device(device), precision=precision)
    suffix, used = "", None
    # A corpus was cut when it was prepared. `opened_corpus` refuses options about it.
    if not names_corpus(source):
        choice = choose_reading(embedder, expand([source]), **reading)
        reading = used = asdict(choice.reading)
        suffix = str(choice)
    with opened_corpus(source, output, reading) as corpus:
        found = type_vectors(
            embedder, corpus, layer=layer, min_count=min_count, senses=senses, work=work_folder_of(output.absolute())
        )
        num_tokens = corpus.num_tokens
        num_rare = num_left_out(len(found.names), corpus) if senses == 1 else None
        del corpus  # Windows cannot delete files that are still mapped into memory
        write_word_vectors(output, found.names, found.vectors, found.counts)
    seconds = time.perf_counter() - started
    figures = {
        "file": str(output),
        "num_vectors": len(found.names),
        "num_left_out": num_rare,
        "dim": embedder.width,
        "num_tokens": num_tokens,
        "seconds": round(seconds, 3),
        "reading": used,
    }
    what = counted(len(found.names), "word") if senses == 1 else f"{len(found.names):,} words and senses"
    figures |= run_word_tests(output, similarity, analogies, as_json)
    print_result(
        f"{output}: vectors of {what}, {embedder.width} wide, from {counted(num_tokens, 'token')}, "
        f"{seconds / 60:.1f} minutes{suffix}{words_left_out(num_rare or 0, min_count)}",
        figures,
        as_json,
    )
