"""`elmo embed`: write the contextual vectors of a text to a file."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import (
    choose_reading,
    count_bytes,
    device_option,
    examples,
    is_given,
    json_option,
    parse_layers,
    precision_option,
    print_result,
    text_options,
)
from elmo.errors import ElmoError
from elmo.wording import counted

if TYPE_CHECKING:
    from elmo.embed.engine import Precision
    from elmo.embed.layers import Layers
    from elmo.embed.sentence_embedder import SentenceEmbedder
    from elmo.embed.writers import Written
    from elmo.text.choice import Choice
    from elmo.text.reading import Reading


@click.command(
    epilog=examples(
        "elmo embed model corpus.txt vectors.h5",
        "elmo embed en corpus.txt vectors.h5                 (the package's own English model)",
        "elmo embed model corpus.txt vectors.h5              (if interrupted, run it again to continue)",
        "elmo embed model corpus.txt vectors.h5 --layers mean --dtype float16 --precision auto",
        "elmo embed model corpus.txt vectors.h5 --devices cuda:0,cuda:1",
        "elmo embed model reviews.txt reviews.npz --tokenizer ptb --pool mean",
        "elmo embed en 'letters/*.txt' letters.parquet       (with file, sentence, and places of tokens)",
        "cat *.txt | elmo embed model - vectors.parquet --layers 0.2,0.3,0.5",
    )
)
@click.argument("model")
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--layers",
    default="all",
    show_default=True,
    callback=parse_layers,
    metavar="LAYERS",
    help="all (every layer by itself; embed in Python gives their mean by default), top, mean, token (layer 0), the "
    "number of a layer, or weights such as 0.2,0.3,0.5.",
)
@click.option("--all", "all_layers", is_flag=True, help="The same as --layers all, for scripts written for AllenNLP.")
@click.option("--top", "top_layer", is_flag=True, help="The same as --layers top.")
@click.option("--average", "mean_of_layers", is_flag=True, help="The same as --layers mean.")
@click.option(
    "--pool",
    type=click.Choice(["mean", "max", "first-last"]),
    help="Write one vector for each sentence and layer. first-last joins the forward half of the last token and the "
    "backward half of the first.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="Type of the numbers in the file; float16 halves its size.",
)
@precision_option
@device_option
@click.option(
    "--devices", metavar="LIST", help="Several devices at once, such as cuda:0,cuda:1 or cpu,cpu; all means all GPUs."
)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Number of cores to use. Default: all.")
@click.option(
    "--state",
    type=click.Choice(["zero", "carry", "warm"]),
    default="zero",
    show_default=True,
    help="Where the LSTMs start. zero: from zeros. carry: from the state that the previous batch left, as in the first "
    "ELMo toolkits. warm: from the state that elmo warm stored.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Sentences in a batch. Default: as many as fit, or 64 with --state carry.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace OUTPUT if it exists, and discard the unfinished work of another command."
)
@text_options
@click.option(
    "--ids", is_flag=True, help="Each line begins with an id and a tab. OUTPUT, a .parquet file, keeps the ids."
)
@json_option
def command(
    model: str,
    texts: tuple[str, ...],
    output: Path,
    layers: Layers,
    all_layers: bool,
    top_layer: bool,
    mean_of_layers: bool,
    precision: Precision,
    device: str,
    devices: str | None,
    threads: int | None,
    overwrite: bool,
    tokenizer: str | None,
    text: str | None,
    encoding: str,
    lowercase: bool | None,
    language: str | None,
    ids: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the vectors of all tokens of TEXT (files, globs, or - for standard input) to OUTPUT.

    The ending of OUTPUT decides its format: .h5 (data sets "0", "1", ..., as AllenNLP writes them), .npz or .parquet.
    Entry i is sentence i of the text, counted from 0. A blank line is an entry without tokens. A .parquet file has the
    file of each sentence, too, its id (from CoNLL-U, or --ids), and the place of each token in the file.

    Raw text is cut as the model's training text was. Text counts as tokenized if its commas, periods and other marks
    stand between spaces, and then a line is a sentence.

    If the command is interrupted, the same command continues where it stopped. Standard input has to be given again
    from its start, and with --state carry the work starts again.
    """
    from elmo.embed.writers import ENDINGS, require_vector_target
    from elmo.text.opening import can_be_read_again
    from elmo.text.reading import expand

    # Everything that can be refused without the model is refused before it is loaded.
    other_names: list[tuple[Layers, bool]] = [("all", all_layers), ("top", top_layer), ("mean", mean_of_layers)]
    named: list[Layers] = [value for value, is_named in other_names if is_named]
    if len(named) + is_given("layers") > 1:
        raise ElmoError("--all, --top and --average are other names for values of --layers; pass only one of them")
    if named:
        layers = named[0]
    if output.is_file() and output.suffix.lower() not in ENDINGS:
        raise ElmoError(f"{output}: is no file of vectors; after the text, name the file to be written")
    require_vector_target(output, overwrite)
    is_parquet = output.suffix.lower() == ".parquet"
    if ids and not is_parquet:
        raise ElmoError(f"--ids: {output} can't keep them; name a .parquet file")
    paths = expand(texts)
    if any(output.exists() and path != "-" and output.samefile(path) for path in paths):
        raise ElmoError(f"{output}: is one of the text files; name another file for the vectors")
    if output.exists() and Path(model).exists() and output.samefile(model):
        raise ElmoError(f"{output}: is the model itself; name another file for the vectors")
    given = {"tokenizer": tokenizer, "text": text, "lowercase": lowercase, "language": language}
    with _saying_what_is_kept(output), _open(model, device, devices, precision, threads) as embedder:
        choice = choose_reading(embedder, paths, encoding=encoding, ids=ids, **given)
        sentences = _Text(paths, choice.reading, ids if is_parquet else None)
        if (note := _note_on_size(embedder, paths, choice.reading, layers, options)) is not None:
            click.echo(f"elmo: {output}: {note}", err=True)
        written = embedder.write(
            output,
            # A run that continues, or starts over, reads the text a second time, unless it comes from a pipe.
            sentences if all(map(can_be_read_again, paths)) else iter(sentences),
            layers=layers,
            overwrite=overwrite,
            total_bytes=count_bytes(paths),
            located=is_parquet,
            facts=choice.facts,
            **options,
        )
    _report(written, choice, as_json)


LARGE = 2e9
"""Files larger than this many bytes are announced before they are written."""


def _note_on_size(
    embedder: SentenceEmbedder,
    paths: list[str],
    reading: Reading,
    layers: Layers,
    options: Mapping[str, Any],
) -> str | None:
    """Return a sentence about the size of the file if it will be large, by the number of tokens in a sample."""
    from elmo.text.choice import sample_of
    from elmo.text.reading import TextBlock, tokenize_block

    num_bytes = count_bytes(paths)
    if num_bytes is None or num_bytes < LARGE / 1e5 or options["pool"]:
        return None  # unknown, or too short a text: no token of a byte has a hundred thousand bytes of vectors
    sample = sample_of(paths, reading.encoding)
    if sample is None or not sample.text:
        return None
    sentences, _ = tokenize_block(TextBlock(sample.text, sample.path), reading)
    num_tokens = num_bytes * sum(map(len, sentences)) / len(sample.text.encode(reading.encoding, "replace"))
    num_layers = embedder.num_layers if layers == "all" else 1
    is_half = options["dtype"] == "float16"
    size = num_tokens * num_layers * embedder.width * (2 if is_half else 4)
    if size < LARGE:
        return None
    ways = [] if layers != "all" else [f"--layers mean takes 1/{num_layers} of the space"]
    ways += [] if is_half else ["--dtype float16 half"]
    advice = f"; {', '.join(ways)}" if ways else ""
    return f"about {num_tokens:,.0f} tokens will take {size / 1e9:,.1f} GB{advice}"


class _Text:
    """The sentences of files, which can be iterated over more than once unless one of the files is a pipe.

    With `ids`, true or false, they know where they are from (see `read_located`); None leaves that out.
    """

    def __init__(self, paths: list[str], reading: Reading, ids: bool | None) -> None:
        self._paths, self._reading, self._ids = paths, reading, ids

    def __iter__(self) -> Iterator[Sequence[str]]:
        from elmo.text.located import read_located
        from elmo.text.reading import read_sentences

        if self._ids is None:
            return read_sentences(self._paths, self._reading)
        return read_located(self._paths, self._reading, ids=self._ids)


@contextmanager
def _open(
    model: str, device: str, devices: str | None, precision: Precision, threads: int | None
) -> Generator[SentenceEmbedder]:
    from elmo.nn.processor import prepare_device, use_threads

    if devices is not None and device != "auto":
        raise ElmoError("--devices already says where to compute; leave out --device")
    if threads is not None:
        use_threads(threads)
    if devices is None:
        from elmo.embed.embedder import load

        yield load(model, device=prepare_device(device), precision=precision)
    else:
        from elmo.embed.parallel import ParallelEmbedder
        from elmo.nn.devices import parse_devices

        with ParallelEmbedder(model, parse_devices(devices), precision=precision) as embedder:
            yield embedder


@contextmanager
def _saying_what_is_kept(output: Path) -> Generator[None]:
    """Tell a user who stops the command that the finished part is kept."""
    from elmo.targets import work_folder_of

    try:
        yield
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, and the signals that `main` turns into an exit
        if work_folder_of(output).exists():
            click.echo(f"elmo: {output}: what was written is kept; run the same command again to continue", err=True)
        raise


def _report(written: Written, choice: Choice, as_json: bool) -> None:
    for note in written.notes:
        click.echo(f"elmo: {note}", err=True)
    num_bytes = written.path.stat().st_size
    sizes = f"{counted(written.num_sentences, 'sentence')}, {counted(written.num_tokens, 'token')}"
    print_result(
        f"{written.path}: {sizes}, {num_bytes / 1e6:,.1f} MB in "
        f"{written.seconds:.1f} s ({written.tokens_per_second:,.0f} tokens/s){choice}",
        {
            "file": str(written.path),
            "num_sentences": written.num_sentences,
            "num_tokens": written.num_tokens,
            "num_bytes": num_bytes,
            "seconds": round(written.seconds, 3),
            "tokens_per_second": round(written.tokens_per_second, 1),
            "reading": asdict(choice.reading),
            "notes": list(written.notes),
        },
        as_json,
    )
