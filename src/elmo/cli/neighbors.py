"""`elmo neighbors`: find the nearest uses of a word in context."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.concordance import print_csv, print_kwic
from elmo.cli.shared import (
    choose_reading,
    count_sentences,
    device_option,
    examples,
    is_given,
    json_option,
    layer_option,
    print_result,
    refuse_given,
    text_options,
    without_controls,
)
from elmo.cli.table import isolated
from elmo.errors import ElmoError
from elmo.progress import show_progress
from elmo.wording import counted

if TYPE_CHECKING:
    from elmo.analysis.neighbors import Neighbors
    from elmo.embed.layers import Layers


SHOWN_TOKENS = 15
"""Tokens printed on either side of a use."""


@click.command(
    epilog=examples(
        'elmo neighbors model corpus.txt --word play --in "They saw a new play on Broadway ."',
        'elmo neighbors model "corpus/*.txt" --word bank --in "We sat on the bank ." --layer 1 --top 20',
        'elmo neighbors model corpus.txt --word play --in "A new play !" --any-word --json',
        "elmo neighbors model corpus.txt --word play",
        'elmo neighbors model ud.index --word play --in "A new play !" --any-word --tag NOUN --tag PROPN',
        'elmo neighbors model corpus.index --word play --in "A new play !" --among drama --among game',
        'elmo neighbors model letters.index --word play --in "A new play !" --where year=1840..1849',
        'elmo neighbors model corpus.txt --word play --in "A new play !" --top 100 --format csv > play.csv',
        'elmo neighbors model corpus.txt --word "New York" --in "He moved to New York in May ."',
    )
)
@click.argument("model")
@click.argument("texts", metavar="TEXT...|INDEX", nargs=-1, required=True)
@click.option("--word", required=True, metavar="WORD", help="The word to look for, or several that follow one another.")
@click.option(
    "--in",
    "sentence",
    metavar="SENTENCE",
    help="A sentence that uses WORD in the meaning to look for. Default: the mean of all uses of WORD, to which its "
    "most typical uses are nearest.",
)
@click.option(
    "--occurrence",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Which occurrence of WORD in SENTENCE, counted from 1.",
)
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Number of neighbors to show."
)
@layer_option
@click.option("--ignore-case", is_flag=True, help="Ignore case: Play matches play.")
@click.option(
    "--any-word",
    is_flag=True,
    help="Search the uses of all words, not only those of WORD. For several words: all sequences of that many "
    "words, which needs a TEXT.",
)
@click.option(
    "--among",
    multiple=True,
    metavar="WORD",
    help="With an INDEX: search the uses of this word instead of WORD. May be repeated.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="With an INDEX: search only tokens with this part of speech. VB* matches VB, VBD, ... May be repeated.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="With an INDEX: search only files with this value of metadata, such as author=Austen, year=18* or "
    "year=1800..1849; file=NAME names a file. May be repeated.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "kwic", "csv"]),
    default="text",
    show_default=True,
    help="text; kwic (keyword in context), a line for each use, with WORD in the middle; or csv, a table with the "
    "whole sentence of each use and, with an INDEX, its file, line and metadata.",
)
@device_option
@text_options
@json_option
def command(
    model: str,
    texts: tuple[str, ...],
    word: str,
    sentence: str | None,
    occurrence: int,
    top: int,
    layer: Layers,
    ignore_case: bool,
    any_word: bool,
    among: tuple[str, ...],
    tags: tuple[str, ...],
    where: tuple[str, ...],
    form: str,
    device: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Find the uses of a word in TEXT (files, globs, or - for standard input) that are nearest to its use in SENTENCE.

    Without SENTENCE, they are the uses nearest to the mean of all its uses, which are the most typical ones.

    Nearness is the cosine of contextual vectors. The nearest words without context (layer 0), which do not depend on
    SENTENCE, are shown for comparison. Sentences are counted from 0, as in the files of elmo embed. The vector of
    several words is the mean of theirs, each scaled to length 1.

    A TEXT is read from beginning to end, and the search is exact. An INDEX built by elmo index is searched in a moment,
    but a near use may be missed. It has its own layer and tokenizer, which is also used for SENTENCE, and its blank
    lines are not counted. A SENTENCE that is tokenized already, with spaces around its marks, stays as it is. WORD is
    tokenized like SENTENCE or TEXT if it is not a token there.
    """
    from elmo.analysis.neighbors import find_neighbors
    from elmo.analysis.origins import parse_wanted
    from elmo.analysis.search import ContextIndex, is_index
    from elmo.embed.embedder import load
    from elmo.nn.processor import prepare_device
    from elmo.text.query import cut_query
    from elmo.text.reading import expand, read_sentences

    if as_json and is_given("form"):
        raise ElmoError("--format and --json can't be used together; leave one out")
    if any_word and among:
        raise ElmoError("--any-word and --among can't be used together; leave one out")
    if sentence is None and is_given("occurrence"):
        raise ElmoError("--occurrence is for a sentence; name one with --in")
    wanted = parse_wanted(where)
    if is_index(model):
        raise ElmoError(f"{model}: is an index; name its model before it")
    folder = next(filter(is_index, texts), None)
    if folder is not None and len(texts) > 1:
        raise ElmoError(f"{folder}: is an index, which can't be searched together with text; search it alone")
    embedder = load(model, device=prepare_device(device))
    index = None if folder is None else ContextIndex(folder, embedder)
    paths: list[str] = []
    if index is not None:
        if is_given("layer"):
            raise ElmoError(f"{folder}: an index has only one layer; leave out --layer, or build another index")
        refuse_given(["text", "encoding", "language"], f"on {folder}, whose text was read when it was built")
        # An index has settings of its own, which decide how the query has to be read, or its words would not be found.
        reading = index.text.corpus.reading
    elif among or tags or where:
        raise ElmoError("--among, --tag and --where need an index; build one with elmo index")
    else:
        paths = expand(texts)
        reading = choose_reading(embedder, paths, **given).reading
    # Without a SENTENCE, the words have to be cut as the text is, not as the model's training text was. Those that are
    # tokens of an index are not cut at all.
    own = None if sentence is None and index is None else embedder.text
    (word, *others), tokens = cut_query(
        (word, *among),
        sentence,
        reading.tokenizer,
        own,
        tokenizer=given["tokenizer"],
        lowercase=reading.lowercase if given["lowercase"] is None else given["lowercase"],
        known=index.text.types if index else (),
    )
    choice: dict[str, Any] = {"occurrence": occurrence, "top": top, "ignore_case": ignore_case, "any_word": any_word}
    if index is not None:
        found = index.find_neighbors(word, tokens, among=others, tags=tags, where=wanted, **choice)
    else:
        total = count_sentences(paths, reading.text)
        progress = show_progress("searching", "sentences", total, read_sentences(paths, reading))
        found = find_neighbors(embedder, progress, word, tokens, layer=layer, **choice)
    if form == "kwic":
        print_kwic(found.uses)
    elif form == "csv":
        print_csv(found.uses, index.text.origins if index else None)
    elif not as_json:
        _print_lists(found)
    what = counted(found.num_uses, "use")
    if any_word:
        one = "word" if found.length == 1 else "sequence"
        what = counted(found.num_uses, one) + ("" if found.length == 1 else f" of {found.length} words")
    mean = f", compared with the {_mean_of(found)}" if found.num_averaged else ""
    print_result(
        f"{len(found.uses)} nearest of {what} in {counted(found.num_sentences, 'sentence')}{mean}",
        dataclasses.asdict(found),
        as_json,
        to_stderr=form != "text",
    )


def _print_lists(found: Neighbors) -> None:
    """Print the nearest uses with their sentences, then the nearest words."""
    query = f"The {_mean_of(found)}" if found.num_averaged else marked(found.query, found.position, found.length)
    click.echo(f"{query}\n\nNearest in context:")
    for use in found.uses:
        where = f"sentence {use.sentence}" if use.origin is None else use.origin
        uses = marked(use.tokens, use.position, use.length)
        click.echo(f"  {use.similarity:.3f}  {uses}  ({without_controls(str(where))})")
    words = ", ".join(f"{isolated(neighbor.word)} {neighbor.similarity:.3f}" for neighbor in found.words)
    click.echo(f"\nNearest words without context (layer 0, the same in every sentence):\n  {words or 'none'}\n")


def _mean_of(found: Neighbors) -> str:
    return f"mean of {counted(found.num_averaged, 'use')} of {isolated(found.word)}"


def marked(tokens: tuple[str, ...], position: int, length: int = 1) -> str:
    """Return the part of a sentence around the `length` tokens from `position` on, which are put in brackets."""
    from elmo.analysis.neighbors import excerpt

    before, token, after = excerpt(tokens, position, SHOWN_TOKENS, length)
    return isolated(f"{before} [{token}] {after}".strip())
