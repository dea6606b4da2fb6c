"""`elmo change`: how words of an index change their meaning between periods."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmo.cli.neighbors import marked
from elmo.cli.shared import examples, is_given, json_option, print_result, without_controls
from elmo.cli.table import print_table
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from elmo.analysis.change import ChangeIndex, WordChange


@click.command(
    epilog=examples(
        "elmo index en 'letters/*.txt' letters.index --tokenizer ptb --metadata dates.tsv",
        "elmo change letters.index --by decade",
        "elmo change letters.index --by decade --word gay --picture gay.png",
        "elmo change letters.index --by century --dates written --between 1700–1799 1800–1899 --min-count 100",
    )
)
@click.argument("index", type=click.Path(path_type=Path))
@click.option(
    "--by",
    required=True,
    metavar="COLUMN",
    help="What divides the text into periods: a column of its metadata; year, decade or century, taken from the "
    "column of dates; or file: each file is a period, without any metadata.",
)
@click.option("--dates", metavar="COLUMN", help="The column of dates; by default the one named year or date.")
@click.option("--word", metavar="WORD", help="Look at the uses of this word; without it, all words are ranked.")
@click.option(
    "--between",
    nargs=2,
    metavar="PERIOD PERIOD",
    help="Rank words by their change between these two periods, by default the first and the last. A hyphen may "
    "stand for the dash of 1700–1799.",
)
@click.option(
    "--min-count",
    default=50,
    show_default=True,
    metavar="N",
    help="Rank only words that occur at least this often in each of the two periods.",
)
@click.option(
    "--measure",
    type=click.Choice(["excess", "apd", "prt"]),
    default="excess",
    show_default=True,
    help="What to rank by. apd: the mean distance of a use in one period to a use in the other. excess: apd minus the "
    "mean distance within the periods. prt: the distance between the mean vectors of the periods.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of words to show (default 20) or, with --word, of uses from each period (default 3).",
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --word: draw its uses in each period; a .png or .svg file. Needs matplotlib.",
)
@json_option
def command(
    index: Path,
    by: str,
    dates: str | None,
    word: str | None,
    between: tuple[str, str] | None,
    min_count: int,
    measure: str,
    top: int | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Show how words changed their meaning between periods of the text of INDEX.

    INDEX is built by elmo index with --metadata, a table that says when each file was written. Without --word, all
    words that are frequent enough in two periods are ranked by their change. With --word, the uses of that word are
    compared between all periods, and those nearest to the mean of each period are shown.

    The measures are taken from the vectors of all uses, in the layer of the index. No model is loaded.
    """
    from elmo.analysis.change import ChangeIndex
    from elmo.analysis.pictures import new_figure, require_picture
    from elmo.targets import require_new_file
    from elmo.wording import counted

    if word is None and picture is not None:
        raise ElmoError("--picture shows the uses of one word; name it with --word")
    if word is not None and (told := [name for name in ("between", "min_count", "measure") if is_given(name)]):
        raise ElmoError(f"--{told[0].replace('_', '-')} is for the ranking of all words; leave out --word")
    if picture is not None:
        require_picture(picture)
        require_new_file(picture)
        new_figure()  # says now if matplotlib is missing
    uses = ChangeIndex(index, by, dates)
    if uses.periods.num_undated:
        number = uses.periods.num_undated
        verbs = "belongs to no period and is" if number == 1 else "belong to no period and are"
        click.echo(f"elmo: {counted(number, 'sentence')} {verbs} left out", err=True)
    if word is None:
        _show_ranking(uses, between, min_count, measure, top or 20, as_json)
    else:
        _show_word(uses, word, top or 3, picture, as_json)


def _show_ranking(
    uses: ChangeIndex, between: tuple[str, str] | None, min_count: int, measure: str, top: int, as_json: bool
) -> None:
    ranked = uses.rank(between, min_count=min_count, measure=measure)
    first, second = (uses.periods.names[period] for period in uses.periods.pair(between))
    shown = min(top, len(ranked))
    if not as_json:
        print_table(
            ("word", "excess", "apd", "prt", first, second),
            [
                (one.word, *map(_distance, (one.excess, one.apd, one.prt)), *(f"{number:,}" for number in one.num_uses))
                for one in ranked[:top]
            ],
        )
    print_result(
        f"{shown} of {len(ranked):,} words with {min_count} uses or more both in {first} and in {second}",
        {
            "between": [first, second],
            "measure": measure,
            "num_undated": uses.periods.num_undated,
            "num_words": len(ranked),
            "words": [dataclasses.asdict(one) for one in ranked[:top]],
        },
        as_json,
    )


def _show_word(uses: ChangeIndex, word: str, top: int, picture: Path | None, as_json: bool) -> None:
    from elmo.analysis.change import plot_change

    found = uses.word(word, top=top)
    if picture is not None:
        plot_change(picture, found)
    if not as_json:
        _print_word(found)
    apd, prt, excess = (float(matrix[0, -1]) for matrix in found.distances)
    names = [period.name for period in found.periods]
    drawn = "" if picture is None else f"; {picture} written"
    unknown = " (it takes two uses in each period)" if math.isnan(excess) else ""
    print_result(
        f"{word}: from {names[0]} to {names[-1]}, excess {_distance(excess)}{unknown}, apd {apd:.4f}, prt {prt:.4f}"
        f"{drawn}",
        {
            "word": word,
            "num_undated": uses.periods.num_undated,
            "periods": [dataclasses.asdict(period) for period in found.periods],
            **{name: matrix.tolist() for name, matrix in found.distances._asdict().items()},
        },
        as_json,
    )


def _print_word(found: WordChange) -> None:
    """Print the distances of each period from the previous one and from the first, then the uses of each period."""
    apd, prt, excess = found.distances
    rows: list[tuple[str, ...]] = []
    for number, period in enumerate(found.periods):
        others = dict.fromkeys((number - 1, 0)) if number else ()  # only one before the second
        distances = [
            (found.periods[other].name, *(_distance(matrix[other, number]) for matrix in (excess, apd, prt)))
            for other in others
        ]
        first, *rest = distances or [("", "", "", "")]
        rows += [(period.name, f"{period.num_uses:,}", *first), *(("", "", *each) for each in rest)]
    print_table(("period", "uses", "compared with", "excess", "apd", "prt"), rows)
    for period in found.periods:
        click.echo(f"\nNearest to the mean of {without_controls(period.name)}:")
        for use in period.uses:
            click.echo(
                f"  {use.similarity:.3f}  {marked(use.tokens, use.position)}  ({without_controls(str(use.origin))})"
            )
    click.echo()


def _distance(value: float) -> str:
    """Write a distance. Excess is not a number if one of the periods has a single use."""
    return "–" if math.isnan(value) else f"{value:.4f}"
