"""`elmo prepare`: text files in, a corpus folder out."""

from pathlib import Path

import click

from elmo.cli.shared import examples, is_given, json_option, print_result, reading_options
from elmo.errors import ElmoError


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
    "--min-count", default=3, show_default=True, help="How often a word must stand in the text to be predicted."
)
@click.option(
    "--max-vocabulary",
    type=int,
    metavar="N",
    help="Predict the N most frequent words at most, <S>, </S> and <UNK> among them.",
)
@click.option(
    "--vocabulary",
    "vocabulary_file",
    type=click.Path(),
    metavar="FILE",
    help="Predict these words, one a line after <S>, </S> and <UNK>, instead of counting; to go on training a model "
    "with its vocabulary.",
)
@click.option("--max-characters", default=50, show_default=True, help="Bytes of a word that are read, plus two.")
@click.option("--workers", type=int, metavar="N", help="Processes that tokenize; default: one a core.")
@click.option("--language", metavar="CODE", help="Of the text, such as en; for the model card.")
@click.option("--license", metavar="NAME", help="Of the text, such as cc-by-sa-4.0; for the model card.")
@json_option
def command(
    folder: Path,
    inputs: tuple[str, ...],
    tokenizer: str,
    text: str,
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

    An INPUT is a file, plain or .gz, .xz, .zst; a glob such as 'news/*.txt'; or - for standard input. Memory grows
    with the distinct words alone. The same command for a FOLDER that it has made before is done at once.
    Any other FOLDER that exists is refused.
    """
    from elmo.text.prepare import prepare
    from elmo.text.vocabulary import Vocabulary

    if vocabulary_file and is_given("min_count"):
        raise ElmoError("--min-count: counts nothing where --vocabulary names the words; leave one out")
    was_there = folder.exists()
    corpus = prepare(
        inputs,
        folder,
        tokenizer=tokenizer,
        text=text,
        encoding=encoding,
        lowercase=lowercase,
        min_count=min_count,
        max_vocabulary=max_vocabulary,
        vocabulary=Vocabulary.read(vocabulary_file) if vocabulary_file else None,
        max_characters=max_characters,
        workers=workers,
        language=language,
        license=license,
    )
    if was_there:
        click.echo(f"elmo: {folder}: already done, from the same text with the same settings", err=True)
    figures = {
        "folder": str(folder),
        "num_tokens": corpus.num_tokens,
        "num_sentences": corpus.num_sentences,
        "num_types": corpus.num_types,
        "vocabulary_size": corpus.vocabulary_size,
        "oov_rate": corpus.oov_rate,
    }
    sentence = (
        f"{folder}: {corpus.num_tokens:,} tokens in {corpus.num_sentences:,} sentences, {corpus.num_types:,} types, "
        f"of which {corpus.vocabulary_size:,} are the vocabulary ({corpus.oov_rate:.2%} of the tokens are not in it)"
    )
    print_result(sentence, figures, as_json)
