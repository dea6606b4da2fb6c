"""`elmo static`: train static word vectors (skip-gram) on a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from elmo.cli.shared import (
    examples,
    json_option,
    print_note_on_text,
    print_result,
    reading_options,
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
from elmo.wording import counted


@click.command(
    epilog=examples(
        "elmo static corpus/ vectors.txt",
        "elmo static corpus/ small.txt --dim 50 --min-count 10 --epochs 3",
        "elmo static 'news/*.txt.gz' vectors.txt --tokenizer ptb --text paragraphs --workers 4",
    )
)
@click.argument("source", metavar="CORPUS|TEXT")
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--dim", default=300, show_default=True, metavar="N", help="Width of the vectors.")
@click.option(
    "--min-count",
    default=5,
    show_default=True,
    metavar="N",
    help="A word needs to occur at least this often to get a vector.",
)
@click.option(
    "--window",
    default=5,
    show_default=True,
    metavar="N",
    help="The neighbors of a word are at most this many words away.",
)
@click.option("--epochs", default=5, show_default=True, metavar="N", help="How many times to read the text.")
@click.option(
    "--workers",
    default=1,
    show_default=True,
    metavar="N",
    help="Number of threads. With more than one, results differ from run to run.",
)
@click.option("--seed", default=1, show_default=True, metavar="N", help="Seed of the random numbers.")
@word_test_options
@reading_options
@json_option
def command(
    source: str,
    output: Path,
    dim: int,
    min_count: int,
    window: int,
    epochs: int,
    workers: int,
    seed: int,
    similarity: tuple[Path, ...],
    analogies: tuple[Path, ...],
    as_json: bool,
    **reading: Any,
) -> None:
    """Train static word vectors on a text and write them to OUTPUT.

    OUTPUT is in word2vec's text format or, if it ends in .kv, for gensim's KeyedVectors.load. The baseline of a task
    can start from the text format (words.vectors in its recipe). Name a corpus folder of elmo prepare to train on the
    text of the biLM. A text file, a glob or - is first prepared in a temporary folder next to OUTPUT. The method is
    skip-gram with negative sampling, by gensim. Memory use depends on the number of words, not on the length of the
    text.
    """
    import time

    from elmo.extras import import_extra
    from elmo.formats.word_vectors import require_word_vector_target
    from elmo.pretrain.skipgram import SkipGramConfig, train_static
    from elmo.text.conllu import layout_by_name
    from elmo.text.reading import expand

    config = SkipGramConfig(dim, min_count, window, epochs, workers, seed)
    require_word_vector_target(output)
    import_extra("gensim", "elmo static")  # now and not after the text is prepared
    require_word_tests(similarity, analogies)
    if not names_corpus(source):
        paths = expand([source])
        print_note_on_text(paths, reading["text"] or layout_by_name(paths), reading["encoding"])
    started = time.perf_counter()
    with opened_corpus(source, output, reading) as corpus:
        num_words, num_tokens = train_static(corpus, output, config), corpus.num_tokens
        num_rare = num_left_out(num_words, corpus)
        del corpus  # Windows cannot delete files that are still mapped into memory
    seconds = time.perf_counter() - started
    figures = {"file": str(output), "num_words": num_words, "num_left_out": num_rare, "dim": dim}
    figures |= {"num_tokens": num_tokens, "seconds": seconds}
    figures |= run_word_tests(output, similarity, analogies, as_json)
    print_result(
        f"{output}: vectors of {counted(num_words, 'word')}, {dim} wide, from {counted(num_tokens, 'token')}, "
        f"{seconds / 60:.1f} minutes{words_left_out(num_rare, min_count)}",
        figures,
        as_json,
    )
