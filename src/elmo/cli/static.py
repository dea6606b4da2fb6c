"""`elmo static`: train static word vectors (skip-gram) on a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from elmo.cli.shared import examples, is_given, json_option, print_result, reading_options
from elmo.errors import ElmoError


@click.command(
    epilog=examples(
        "elmo static corpus/ vectors.txt",
        "elmo static corpus/ small.txt --dim 50 --min-count 10 --epochs 3",
        "elmo static 'news/*.txt.gz' vectors.txt --tokenizer ptb --text paragraphs --workers 4",
    )
)
@click.argument("source", metavar="CORPUS|TEXT")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--dim", default=300, show_default=True, metavar="N", help="Width of the vectors.")
@click.option(
    "--min-count",
    default=5,
    show_default=True,
    metavar="N",
    help="A word needs to occur at least this often to get a vector.",
)
@click.option(
    "--window", default=5, show_default=True, metavar="N", help="Most words on either side that count as neighbors."
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
@reading_options
@json_option
def command(
    source: str,
    out: Path,
    dim: int,
    min_count: int,
    window: int,
    epochs: int,
    workers: int,
    seed: int,
    as_json: bool,
    **reading: Any,
) -> None:
    """Train static word vectors on a text and write them to OUT, in word2vec's text format.

    The baseline of a task can start from them (words.vectors in its recipe). Name a corpus folder of elmo prepare to
    train them on the text of the biLM. A text file, a glob or - is first prepared in a temporary folder next to OUT.
    The method is skip-gram with negative sampling, by gensim. Memory use depends on the number of words, not on the
    length of the text.
    """
    import time
    from tempfile import TemporaryDirectory

    from elmo.pretrain.skipgram import SkipGramConfig, train_static
    from elmo.targets import require_new_file
    from elmo.text.corpus import Corpus
    from elmo.text.prepare import prepare

    config = SkipGramConfig(dim, min_count, window, epochs, workers, seed)
    if Path(source).is_dir() and (told := [name for name in reading if is_given(name)]):
        raise ElmoError(f"{source}: is a corpus, whose text is already tokenized; leave out --{told[0]}")
    require_new_file(out)
    started = time.monotonic()
    with TemporaryDirectory(dir=out.absolute().parent, prefix=f".{out.name}.") as work:
        is_corpus = Path(source).is_dir()
        # min_count=1 keeps all words of the text: which of them get vectors is decided in training, by --min-count.
        corpus = Corpus.open(source) if is_corpus else prepare([source], Path(work) / "corpus", min_count=1, **reading)
        if is_corpus:  # a corpus that was made a moment ago need not be read once more
            corpus.verify()
        num_words = train_static(corpus, out, config)
        num_tokens = corpus.num_tokens
        del corpus  # Windows cannot delete files that are still mapped into memory
    seconds = time.monotonic() - started
    print_result(
        f"{out}: vectors of {num_words:,} words, {dim} wide, from {num_tokens:,} tokens, {seconds / 60:.1f} minutes",
        {"file": str(out), "num_words": num_words, "dim": dim, "num_tokens": num_tokens, "seconds": seconds},
        as_json,
    )
