"""What several verbs share: options of the same meaning, and the line of result at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from elmo.embed.layers import Layers

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")

device_option = click.option(
    "--device", default="auto", show_default=True, metavar="DEVICE", help="auto, cpu, cuda, or one GPU as cuda:1."
)


LAYERS = ("all", "top", "mean", "token")
"""As in `elmo.embed.layers`, which the help doesn't wait for."""


def parse_layers(ctx: click.Context, param: click.Parameter, value: str) -> Layers:
    """A name, a layer's number or weights between commas; which of them a model allows is its own matter."""
    if value in LAYERS:
        return cast("Layers", value)
    try:
        return [float(weight) for weight in value.split(",")] if "," in value else int(value)
    except ValueError:
        names = ", ".join(LAYERS)
        raise click.BadParameter(
            f"{value!r} is none of {names}, a layer's number, or weights such as 0.2,0.3,0.5.", ctx, param
        ) from None


layer_option = click.option(
    "--layer",
    default="top",
    show_default=True,
    callback=parse_layers,
    metavar="LAYER",
    help="top, mean, a layer's number, or weights such as 0.2,0.3,0.5.",
)

precision_option = click.option(
    "--precision",
    type=click.Choice(["float32", "bf16", "float16", "int8", "auto"]),
    default="float32",
    show_default=True,
    help="Of the computation: bf16, int8 (processors) and float16 (GPUs) are faster and less exact. "
    "auto: bf16 where that is faster.",
)


def examples(*lines: str) -> str:
    """An epilog that shows `lines` as examples, each on a line of its own."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def is_given(option: str) -> bool:
    """Whether an option of the command that runs was passed, be it with its default."""
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def print_result(sentence: str, figures: dict[str, Any], as_json: bool, *, beside: bool = False) -> None:
    """End a command: one line for people, or one JSON object for machines; on stderr where stdout is a table."""
    if as_json:  # names of files may be no UTF-8, which JSON is
        sentence = json.dumps(figures, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    click.echo(sentence, err=beside)


def reading_options(command: Command) -> Command:
    """Add `--tokenizer`, `--text`, `--encoding` and `--lowercase`: keywords of `read_sentences`."""
    options = (
        click.option(
            "--tokenizer",
            default="whitespace",
            show_default=True,
            metavar="NAME",
            help="whitespace (for tokenized text), ptb (for raw English), or spacy:LANGUAGE (as spacy:de).",
        ),
        click.option(
            "--text",
            type=click.Choice(["sentences", "paragraphs", "wrapped"]),
            default="sentences",
            show_default=True,
            help="A sentence a line; a paragraph a line; or paragraphs wrapped over lines and ended by a blank one.",
        ),
        click.option("--encoding", default="utf-8", show_default=True, help="Of the text; for example latin-1."),
        click.option("--lowercase", is_flag=True, help="Lower-case the text. The published models keep case."),
    )
    for option in reversed(options):
        command = option(command)
    return command
