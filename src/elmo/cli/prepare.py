"""`elmo prepare`: turn text files into a corpus folder."""

from collections import Counter
from pathlib import Path

import click

from elmo.cli.shared import (
    corpus_sizes,
    examples,
    is_given,
    json_option,
    print_note,
    print_note_on_text,
    print_result,
    reading_options,
)
from elmo.errors import ElmoError

NOTED_SHARE = 0.001
"""The share of tokens that may be cut without a note. Addresses of the web are about as many."""


@click.command(
    epilog=examples(
        "elmo prepare corpus/ text.txt",
        "elmo prepare corpus/ 'news/*.txt.gz' more.txt --tokenizer ptb --text paragraphs",
        "zcat big.gz | elmo prepare corpus/ - --min-count 5 --max-vocabulary 100000",
    )
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@reading_options
@click.option(
    "--min-count", default=3, show_default=True, metavar="N", help="Predict only words that occur at least this often."
)
@click.option(
    "--max-vocabulary",
    type=int,
    metavar="N",
    help="Predict at most N words, the most frequent ones. <S>, </S> and <UNK> count among them.",
)
@click.option(
    "--vocabulary",
    "vocabulary_file",
    type=click.Path(),
    metavar="FILE",
    help="Predict the words of this file instead of counting: one on each line, after <S>, </S> and <UNK>, from the "
    "most frequent to the rarest. Use it to continue training a model with its own vocabulary.",
)
@click.option(
    "--max-characters",
    default=50,
    show_default=True,
    metavar="N",
    help="How many bytes of a word are read at most, including two marks for its boundaries.",
)
@click.option("--workers", type=int, metavar="N", help="Processes that tokenize. Default: one for each core.")
@click.option(
    "--language",
    metavar="CODE",
    help="Language of the text, such as de, by whose rules paragraphs are split into sentences; for the model card, "
    "too. Default: that of the tokenizer, as in spacy:de.",
)
@click.option("--license", metavar="NAME", help="License of the text, such as cc-by-sa-4.0, for the model card.")
@json_option
def command(
    folder: Path,
    inputs: tuple[str, ...],
    tokenizer: str,
    text: str | None,
    encoding: str,
    lowercase: bool,
    min_count: int,
    max_vocabulary: int | None,
    vocabulary_file: str | None,
    max_characters: int,
    workers: int | None,
    language: str | None,
    license: str | None,
    as_json: bool,
) -> None:
    """Turn text into a corpus FOLDER for pretraining.

    An INPUT is a file (plain, .gz, .xz or .zst), a glob such as 'news/*.txt', or - for standard input. Memory use
    depends only on the number of distinct words and on the longest line. If the same command has already made FOLDER,
    there is nothing to do; any other existing FOLDER is refused.
    """
    from elmo.text.choice import note_on_sentences
    from elmo.text.conllu import layout_by_name
    from elmo.text.prepare import prepare, require_corpus_or_nothing
    from elmo.text.reading import expand
    from elmo.text.tokenizers import language_of
    from elmo.text.vocabulary import Vocabulary

    if vocabulary_file and is_given("min_count"):
        raise ElmoError("--min-count: has no effect when --vocabulary names the words; leave one of them out")
    vocabulary = Vocabulary.read(vocabulary_file) if vocabulary_file else None
    words = vocabulary.words if vocabulary else ()
    strange = next((word for word in words if not word.strip() or " " in word or "\t" in word), None)
    if strange is not None:
        raise ElmoError(f"{vocabulary_file}: {strange!r} is not a word; give one on each line, without its count")
    require_corpus_or_nothing(folder)
    paths = expand(inputs)
    text = text or layout_by_name(paths)
    if (note := note_on_sentences(text, language or language_of(tokenizer))) is not None:
        click.echo(f"elmo: {note}", err=True)
    print_note_on_text(paths, text, encoding)
    for path in (path for path, number in Counter(paths).items() if number > 1):
        print_note(path, "is named more than once, and is read each time")
    was_there = folder.exists()  # `prepare` opens it if it is the same corpus, and refuses it otherwise
    corpus = prepare(
        paths,
        folder,
        tokenizer=tokenizer,
        text=text,
        encoding=encoding,
        lowercase=lowercase,
        min_count=min_count,
        max_vocabulary=max_vocabulary,
        vocabulary=vocabulary,
        max_characters=max_characters,
        workers=workers,
        language=language,
        license=license,
    )
    if was_there:
        click.echo(f"elmo: {folder}: is already complete, from the same text with the same settings", err=True)
    if (share := corpus.count_longest() / corpus.num_tokens) >= NOTED_SHARE:
        click.echo(
            f"elmo: {share:.1%} of the tokens have {max_characters - 2} bytes or more in UTF-8, of which a model sees "
            f"the first {max_characters - 2}; to keep more, pass --max-characters here, and the same number to "
            "pretrain (--set char_cnn.max_characters_per_token=…)",
            err=True,
        )
    sizes, figures = corpus_sizes(corpus)
    print_result(f"{folder}: {sizes}", {"folder": str(folder), **figures}, as_json)
