"""What several verbs share: options with the same meaning, the result at the end, and the length of a text."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from elmo.errors import ElmoError
from elmo.wording import counted

if TYPE_CHECKING:
    from elmo.embed.layers import Layers
    from elmo.embed.sentence_embedder import SentenceEmbedder
    from elmo.formats.model import Model
    from elmo.text.choice import Choice
    from elmo.text.corpus import Corpus

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")

device_option = click.option(
    "--device", default="auto", show_default=True, metavar="DEVICE", help="auto, cpu, cuda, or one GPU such as cuda:1."
)


LAYER_NAMES = ("all", "top", "mean", "token")
"""The names in `elmo.embed.layers`, repeated here because importing that module would slow down the help."""

LAYOUTS = ("sentences", "paragraphs", "wrapped", "conllu")
"""The layouts of text, `TEXTS` in `elmo.text.reading`, repeated here for the same reason."""


def parse_layers(ctx: click.Context, param: click.Parameter, value: str) -> Layers:
    """Parse the name of a choice of layers, the number of a layer, or weights separated by commas.

    Whether a model has that layer, or that many layers, is checked later, when it is loaded.

    Raises:
        click.BadParameter: If the value is none of these.
    """
    if value in LAYER_NAMES:
        return cast("Layers", value)
    try:
        return [float(weight) for weight in value.split(",")] if "," in value else int(value)
    except ValueError:
        names = ", ".join(LAYER_NAMES if param.name == "layers" else (name for name in LAYER_NAMES if name != "all"))
        raise click.BadParameter(
            f"{value!r} is none of {names}, a layer's number, or weights such as 0.2,0.3,0.5.", ctx, param
        ) from None


layer_option = click.option(
    "--layer",
    default="top",
    show_default=True,
    callback=parse_layers,
    metavar="LAYER",
    help="top, mean, token, the number of a layer, or weights such as 0.2,0.3,0.5.",
)

precision_option = click.option(
    "--precision",
    type=click.Choice(["float32", "bf16", "float16", "int8", "auto"]),
    default="float32",
    show_default=True,
    help="Precision of the computation. bf16, int8 (CPUs only) and float16 (GPUs only) are less exact, and faster on "
    "many devices, but not on all. auto: bf16 where that is faster, and float32 elsewhere.",
)


def set_option(help: str, metavar: str = "KEY=VALUE") -> Callable[[Command], Command]:
    """Return the option `--set`, which may be repeated. Its parameter is `overrides`, for `parse_override`."""
    return click.option("--set", "overrides", multiple=True, metavar=metavar, help=help)


def examples(*lines: str) -> str:
    """Return the epilog of a help text that shows `lines` as examples, each on its own line."""
    # click wraps paragraphs, except for those that begin with \b.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


_OPTIONS = {
    "kind": "--vectors",
    "layout": "--text",
    "start": "--from",
    "with_bilm": "--no-bilm",
}
"""The options whose names differ from those of the arguments that they set in the library."""

_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ARGUMENT = re.compile(rf"`(\w+)(?:=(?:({_STRING})|([^`]*)))?`")
"""An argument in backticks: its name, and its value if that is a string of Python, or if it is anything else."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def as_typed(message: str) -> str:
    """Return a message of the library for people who type, with options in place of the arguments that it names.

    ``overwrite=True`` in backticks becomes `--overwrite`, ``tokenizer='ptb'`` becomes `--tokenizer ptb`, and
    ``min_count`` becomes `--min-count`. Strings are quoted for the shell, since they may come from a stranger's file.
    """

    def option(argument: re.Match[str]) -> str:
        name, string, value = argument.groups()
        typed = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if string:
            try:
                return f"{typed} {shlex.quote(ast.literal_eval(string))}"
            except (SyntaxError, ValueError):  # not ours, but quoted from a file: no string of Python
                return argument[0]
        return typed if value in (None, "True", "False", "...") else f"{typed} {value}"

    return _ARGUMENT.sub(option, message)


def without_controls(text: str) -> str:
    """Return a text with escapes in place of control characters other than tabs and ends of lines.

    Names and facts from a stranger's files are printed, and control characters can move a terminal's cursor or do
    worse.
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def on_one_line(message: str) -> str:
    """Return a message of the library for a terminal: for people who type, on one line, without control characters."""
    return without_controls(" ".join(as_typed(message).splitlines()))


def is_given(option: str) -> bool:
    """Return whether the user passed an option of the running command, even if with its default value.

    Commands refuse options that would have no effect, because whoever passes one expects it to change something.
    """
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def refuse_given(options: Sequence[str], reason: str) -> None:
    """Refuse options of the running command that would have no effect.

    Args:
        options: The names of their parameters.
        reason: Why they would have none, the end of the message.

    Raises:
        ElmoError: If the user passed one of them.
    """
    for option in filter(is_given, options):
        raise ElmoError(f"--{option.replace('_', '-')} has no effect {reason}; leave it out")


STOPPED = 75
"""The exit code of a training that was stopped and can be continued: EX_TEMPFAIL of sysexits.h, "try again later".

With 0, `elmo pretrain … && elmo embed …` would go on with an unfinished model, and a cluster would not start it again.
"""


def print_result(sentence: str, figures: dict[str, Any], as_json: bool, *, to_stderr: bool = False) -> None:
    """Print the result of a command: one line for people, or one JSON object for programs.

    Args:
        sentence: The line for people.
        figures: The content of the JSON object. JSON has no NaN and no infinity: null stands for them.
        as_json: Whether to print the object instead of the line.
        to_stderr: Whether to print to stderr, because stdout holds a table.
    """
    if as_json:  # JSON has to be UTF-8, but file names may contain other bytes
        sentence = json.dumps(_finite(figures), ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    else:
        sentence = without_controls(sentence)
    click.echo(sentence, err=to_stderr)


def _finite(value: Any) -> Any:
    """Return plain values with None in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def corpus_sizes(corpus: Corpus) -> tuple[str, dict[str, Any]]:
    """Return the sizes of a corpus, in words and as figures."""
    sizes = (
        f"{counted(corpus.num_tokens, 'token')} in {counted(corpus.num_sentences, 'sentence')}, "
        f"{counted(corpus.num_types, 'type')}, of which {corpus.vocabulary_size:,} are the vocabulary "
        f"({corpus.oov_rate:.2%} of the tokens are not in it)"
    )
    names = ("num_tokens", "num_sentences", "num_types", "vocabulary_size", "oov_rate")
    return sizes, {name: getattr(corpus, name) for name in names}


def add_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in the given order."""

    def add(command: Command) -> Command:
        for option in reversed(options):  # as decorators below each other, of which the last is applied first
            command = option(command)
        return command

    return add


encoding_option = click.option(
    "--encoding", default="utf-8", show_default=True, metavar="NAME", help="Encoding of the text, for example latin-1."
)

reading_options = add_options(
    click.option(
        "--tokenizer",
        default="whitespace",
        show_default=True,
        metavar="NAME",
        help="whitespace (for tokenized text), ptb (for raw English), words, chars, spacy:LANGUAGE (such as "
        "spacy:de), stanza:LANGUAGE, icu:LANGUAGE, MODULE:FUNCTION, or the name of one that another package adds.",
    ),
    click.option(
        "--text",
        type=click.Choice(LAYOUTS),
        help="What a line holds: a sentence, a paragraph, or a part of a paragraph that is wrapped over several "
        "lines and ends at a blank line; or CoNLL-U, a word a line. Default: conllu for files named so (x.conllu, "
        "x.conllu.xz), and sentences for others.",
    ),
    encoding_option,
    click.option("--lowercase", is_flag=True, help="Convert the text to lower case. The published models keep case."),
)
"""Add the options `--tokenizer`, `--text`, `--encoding` and `--lowercase`, which are fields of `Reading`.

Without `--text`, the value is None, and `layout_by_name` chooses the layout.
"""


text_options = add_options(
    click.option(
        "--tokenizer",
        metavar="NAME",
        help="How to cut the text: whitespace (for tokenized text), ptb (for raw English), words, chars, "
        "spacy:LANGUAGE, stanza:LANGUAGE, icu:LANGUAGE, MODULE:FUNCTION, or the name of one that another package "
        "adds. Default: that of the model's training text for raw text, and whitespace for tokenized text.",
    ),
    click.option(
        "--text",
        type=click.Choice(LAYOUTS),
        help="What a line holds: a sentence, a paragraph, or a part of a paragraph that is wrapped over several "
        "lines and ends at a blank line; or CoNLL-U, a word a line. Default: conllu for files named so "
        "(x.conllu, x.conllu.xz). For raw text without --tokenizer: that of the model's training text. Otherwise: "
        "sentences.",
    ),
    encoding_option,
    click.option(
        "--lowercase/--no-lowercase",
        default=None,
        help="Whether to convert the text to lower case. Default: as the model's training text.",
    ),
    click.option(
        "--language",
        metavar="CODE",
        help="Language of the text, such as de, by whose rules paragraphs are split into sentences. Default: the "
        "model's.",
    ),
)
"""Add the options of `reading_options`, and `--language`, to a command with a model, which knows its own."""


def print_note(path: str, note: str) -> None:
    """Tell the user what is strange about a text, on stderr."""
    from elmo.text.decoding import shown_name

    click.echo(f"elmo: {on_one_line(f'{shown_name(path)}: {note}')}", err=True)


def choose_reading(
    model: Model | SentenceEmbedder, paths: Sequence[str], *, encoding: str, ids: bool = False, **given: Any
) -> Choice:
    """Decide how the text in `paths` is cut for a model, and tell the user what is strange about it.

    Args:
        model: The model.
        paths: The files, whose beginning is looked at.
        encoding: Their encoding.
        ids: Whether each line begins with an id and a tab, which are no part of the text.
        **given: The other values of `text_options`.
    """
    from elmo.text.choice import choose_for_files

    choice, path = choose_for_files(model.text, model.vocabulary_file, paths, encoding=encoding, ids=ids, **given)
    for note in choice.notes:
        print_note(path, note)
    return choice


def print_note_on_text(paths: Sequence[str], text: str, encoding: str) -> None:
    """Tell the user if a text has another layout than it is read with, or is raw and cut at its spaces by default.

    Args:
        paths: The files, whose beginning is looked at.
        text: Their layout.
        encoding: Their encoding.
    """
    from elmo.text.choice import looks_tokenized, sample_of, strange_file
    from elmo.text.reading import WITH_WORDS

    if text in WITH_WORDS or (sample := sample_of(paths, encoding)) is None:
        return
    # `elmo pretrain` has no option for the layout, which is that of its corpus.
    has_layout = "text" in click.get_current_context().params
    found = strange_file(sample, paths, text, encoding) if has_layout else None
    path, note = found or (sample.path, None)
    if note is None and looks_tokenized(sample.text) is False and not is_given("tokenizer"):
        note = (
            "this looks like raw text, and is cut at spaces only; pass --tokenizer (ptb for English, words for other "
            "languages), or --tokenizer whitespace if spaces are right"
        )
    if note is not None:
        print_note(path, note)


def count_sentences(paths: Sequence[str], text: str) -> int | None:
    """Count the sentences in `paths`.

    Returns:
        The number of sentences, or None if counting is not worth reading the text twice: if stderr is not a terminal,
        if a line is not a sentence, or if a file is compressed or standard input.
    """
    plain = all(map(_is_plain, paths))
    if not (plain and text == "sentences" and sys.stderr.isatty()):
        return None
    num_lines = 0
    for path in paths:
        with Path(path).open("rb") as file:
            num_lines += sum(1 for _ in file)
    return num_lines


def count_bytes(paths: Sequence[str]) -> int | None:
    """Return the size of the text in `paths` in bytes, or None if it is unknown (compressed files, standard input)."""
    if not all(map(_is_plain, paths)):
        return None
    return sum(Path(path).stat().st_size for path in paths)


def _is_plain(path: str) -> bool:
    """Return whether a text is a file that can be read again, and is not compressed."""
    from elmo.text.opening import COMPRESSED, can_be_read_again

    return can_be_read_again(path) and Path(path).suffix.lower() not in COMPRESSED
