"""`elmo perplexity`: measure the perplexity of a text under a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import choose_reading, device_option, examples, json_option, print_result, text_options
from elmo.progress import show_progress
from elmo.wording import counted, perplexity_text

if TYPE_CHECKING:
    from elmo.formats.model import State
    from elmo.pretrain.perplexity import SentenceScore


@click.command(
    epilog=examples(
        "elmo perplexity run/ valid.txt",
        "elmo perplexity run/ raw.txt --tokenizer ptb --text paragraphs",
        "elmo perplexity run/ valid.txt --sentences --state zero > scores.tsv",
    )
)
@click.argument("model")
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@click.option(
    "--sentences", is_flag=True, help="Print one line for each sentence: its scores and its tokens, separated by tabs."
)
@click.option(
    "--state",
    type=click.Choice(["carry", "zero", "warm"]),
    default="carry",
    show_default=True,
    help="State in which a sentence starts. carry: that in which the sentence at its place in the previous batch "
    "ended, as in training. zero: zeros. warm: the state that elmo warm stored.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 1 << 20),
    default=32,
    show_default=True,
    metavar="N",
    help="Number of sentences in a batch. With the state carry, the perplexity depends on it.",
)
@device_option
@text_options
@json_option
def command(
    model: str,
    texts: tuple[str, ...],
    sentences: bool,
    state: State,
    batch_size: int,
    device: str,
    as_json: bool,
    **reading: Any,
) -> None:
    """Measure the perplexity of TEXT under MODEL, over the whole vocabulary, in each direction and as their mean.

    A sentence of n tokens counts as n + 1 predictions in each direction. Words outside the vocabulary count as <UNK>.
    The columns of --sentences are the number of tokens, the number of tokens outside the vocabulary, the log
    probability (base e) in each direction, the perplexity, and the tokens.
    """
    from elmo.config import DIRECTIONS
    from elmo.formats import load
    from elmo.nn.devices import use_device
    from elmo.pretrain.perplexity import Perplexity, score_sentences
    from elmo.text.reading import expand, read_sentences

    paths, loaded = expand(texts), load(model)
    choice = choose_reading(loaded, paths, **reading)
    text = read_sentences(paths, choice.reading)
    scores: Iterable[SentenceScore] = score_sentences(loaded.to(use_device(device)), text, state, batch_size)
    # Sentences stream through: they are scored, printed and added up one batch at a time.
    result = Perplexity.of(
        _print_scores(show_progress("scoring", "sentences", None, scores), sentences), ", ".join(map(str, paths))
    )
    of_directions = dict(zip(DIRECTIONS, result.directions, strict=False))
    each = ", ".join(f"{name} {perplexity_text(value)}" for name, value in of_directions.items())
    print_result(
        f"perplexity {perplexity_text(result.mean)} ({each}) on {counted(result.num_tokens, 'token')} in "
        f"{counted(result.num_sentences, 'sentence')}, {result.oov_rate:.2%} outside of the vocabulary{choice}",
        {
            "perplexity": result.mean,
            **{f"{name}_perplexity": value for name, value in of_directions.items()},
            "num_sentences": result.num_sentences,
            "num_tokens": result.num_tokens,
            "oov_rate": result.oov_rate,
            "reading": asdict(choice.reading),
        },
        as_json,
        to_stderr=sentences,  # stdout is a table for other programs, which should not end in a line of another kind
    )


def _print_scores(scores: Iterable[SentenceScore], wanted: bool) -> Iterator[SentenceScore]:
    """Pass the scores on, and print each of them if `wanted`."""
    for score in scores:
        if wanted:
            logs = "\t".join(f"{value:.4f}" for value in score.log_probabilities)
            tokens = " ".join(score.tokens)
            click.echo(f"{len(score.tokens)}\t{score.num_oov}\t{logs}\t{score.perplexity:.4f}\t{tokens}")
        yield score
