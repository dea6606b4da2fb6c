"""`elmo warm`: store a warm state or the token vectors of frequent words in the folder of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import (
    choose_reading,
    device_option,
    examples,
    is_given,
    json_option,
    print_result,
    refuse_given,
    text_options,
)
from elmo.errors import ElmoError
from elmo.progress import show_progress
from elmo.wording import counted

if TYPE_CHECKING:
    from elmo.formats.model import Model
    from elmo.formats.stored_types import TypeStorage


@click.command(
    epilog=examples(
        "elmo warm run/ train.txt",
        "elmo warm run/ raw.txt --tokenizer ptb --text paragraphs --max-sentences 20000",
        "elmo embed run/ corpus.txt vectors.h5 --state warm",
        "elmo warm run/ --types                              (the words of its vocabulary)",
        "elmo warm my-model/ corpus.txt --types float32      (the words of a text)",
        "elmo warm run/ --no-types",
    )
)
@click.argument("model")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--types",
    "storage",
    is_flag=False,
    flag_value="float16",
    type=click.Choice(["float16", "float32"]),
    help="Instead of a warm state, store the token vectors of frequent words. float16, the default, rounds them by "
    "up to 1 in 2,000; float32 keeps them exactly and takes twice the space.",
)
@click.option("--no-types", is_flag=True, help="Remove the stored token vectors.")
@click.option(
    "--max-types",
    type=click.IntRange(1),
    default=50_000,
    show_default=True,
    metavar="N",
    help="With --types: store at most this many words.",
)
@click.option(
    "--max-sentences",
    type=click.IntRange(1),
    default=5000,
    show_default=True,
    metavar="N",
    help="Read at most this many sentences for a warm state. More of them hardly change the mean.",
)
@device_option
@text_options
@json_option
def command(
    model: str,
    texts: tuple[str, ...],
    storage: TypeStorage | None,
    no_types: bool,
    max_types: int,
    max_sentences: int,
    device: str,
    as_json: bool,
    **reading: Any,
) -> None:
    """Store a warm state, or the vectors of frequent words, in the model folder MODEL.

    The warm state is where elmo embed --state warm starts each sentence: the mean of the states in which the sentences
    of TEXT end. Text like that of the training works best. Vectors still depend only on their own sentence, but the
    LSTMs no longer read its first tokens with an empty memory.

    With --types, the token vectors (layer 0) of words are computed now, so that embedding looks them up when it first
    meets a word. The words are those of TEXT, the most frequent first, or, without TEXT, those of the model's
    vocabulary. The model uses these vectors until its weights change. They do not touch the warm state.
    """
    from elmo.text.reading import expand

    if storage and no_types:
        raise ElmoError("--types and --no-types can't be used together; leave one out")
    if is_given("max_types") and not storage:
        raise ElmoError("--max-types says how many words --types stores; pass --types, too")
    if no_types:
        if texts:
            raise ElmoError("--no-types reads no text; leave out TEXT")
        refuse_given(["max_sentences", "device", *reading], "with --no-types")
        _remove_types(model, as_json)
    elif storage:
        refuse_given(["max_sentences", "device"], "with --types")
        if not texts:
            refuse_given([*reading], "without a TEXT")
        _store_types(model, expand(texts), storage, max_types, reading, as_json)
    elif texts:
        _store_state(model, expand(texts), max_sentences, device, reading, as_json)
    else:
        raise ElmoError("a warm state is a mean over a text; name the text, or pass --types for the vectors of words")


def _store_state(
    model: str, paths: list[str], max_sentences: int, device: str, reading: dict[str, Any], as_json: bool
) -> None:
    from elmo.embed.warm import mean_state
    from elmo.formats.native import save_warm_state
    from elmo.formats.native_files import WARM
    from elmo.nn.devices import use_device
    from elmo.text.characters import without_boundaries
    from elmo.text.reading import read_sentences

    with _opened(model, "the state", "given a warm state") as (loaded, folder):
        loaded.to(use_device(device))
        choice = choose_reading(loaded, paths, **reading)
        sentences = map(without_boundaries, read_sentences(paths, choice.reading))
        chosen = islice(filter(None, sentences), max_sentences)
        lengths: list[int] = []

        def passing() -> Iterator[list[str]]:
            for sentence in chosen:
                lengths.append(len(sentence))
                yield sentence

        state = mean_state(loaded, show_progress("reading", "sentences", None, passing()))
        save_warm_state(state, folder, loaded.bilm)
    print_result(
        f"{folder / WARM}: warm state of {counted(len(lengths), 'sentence')}, {counted(sum(lengths), 'token')}{choice}",
        {
            "file": str(folder / WARM),
            "num_sentences": len(lengths),
            "num_tokens": sum(lengths),
            "reading": asdict(choice.reading),
        },
        as_json,
    )


def _store_types(
    model: str, paths: list[str], storage: TypeStorage, max_types: int, reading: dict[str, Any], as_json: bool
) -> None:
    from elmo.config import BOS, EOS
    from elmo.embed.type_encoder import encode_types
    from elmo.formats.model import require_characters
    from elmo.formats.native import save_types
    from elmo.formats.native_files import TYPES
    from elmo.text.reading import read_sentences

    with _opened(model, "the vectors", "given token vectors") as (loaded, folder):
        require_characters(loaded, "given token vectors")
        choice = None
        if paths:
            choice = choose_reading(loaded, paths, **reading)
            sentences = show_progress("reading", "sentences", None, read_sentences(paths, choice.reading))
            counts = Counter(chain.from_iterable(sentences))
            if not counts:
                raise ElmoError(f"{', '.join(paths)}: has no tokens")
            # Every sentence has its boundaries.
            words = list(dict.fromkeys([BOS, EOS, *(word for word, _ in counts.most_common(max_types))]))
        elif loaded.vocabulary is not None:
            words = list(loaded.vocabulary.words)
        else:
            raise ElmoError(f"{model}: has no vocabulary; name a text whose words are to be stored")
        types = encode_types(loaded, words[:max_types], storage)
        save_types(types, folder)
    path = folder / TYPES
    num_bytes = path.stat().st_size
    print_result(
        f"{path}: {storage} vectors of {counted(len(types), 'word')}, {num_bytes / 1e6:.1f} MB{choice or ''}",
        {
            "file": str(path),
            "num_types": len(types),
            "storage": storage,
            "num_bytes": num_bytes,
            "reading": None if choice is None else asdict(choice.reading),
        },
        as_json,
    )


def _remove_types(model: str, as_json: bool) -> None:
    from elmo.formats.native_files import TYPES
    from elmo.formats.sources import is_bundled
    from elmo.targets import alone_in

    # The model itself is not read, so that a damaged file can be removed, too.
    folder = _place_of(model)
    if folder is None:
        kind = "the package's own model" if is_bundled(model) else "not a native model folder"
        raise ElmoError(f"{model}: is {kind}, so it has no stored vectors that could be removed")
    path = folder / TYPES
    with alone_in(folder):
        was_there = path.exists()
        path.unlink(missing_ok=True)
    print_result(
        f"{path}: {'removed' if was_there else 'was not there'}", {"file": str(path), "removed": was_there}, as_json
    )


@contextmanager
def _opened(model: str, what: str, done: str) -> Generator[tuple[Model, Path]]:
    """Load a model in whose folder `what` is to be stored, and keep others from writing there meanwhile.

    `done` says for an error what was to be done to the model.
    """
    from elmo.formats import load
    from elmo.formats.model import refuse_lexicon
    from elmo.formats.native import load_native
    from elmo.formats.sources import is_bundled
    from elmo.targets import alone_in

    if is_bundled(model):
        raise ElmoError(f"{model}: is the package's own model; make a copy with 'elmo convert {model} FOLDER'")
    folder = _place_of(model)
    with alone_in(folder) if folder else nullcontext():  # so that no training replaces the weights meanwhile
        # What is stored now is not read: it may be damaged, and Windows cannot replace a file that is mapped.
        loaded = load_native(folder, with_types=False) if folder else load(model)
        refuse_lexicon(loaded, done)  # such a model can't be converted either, as the next sentence advises
        if folder is None:
            raise ElmoError(
                f"{model}: is not a native model folder, so {what} cannot be stored in it ({loaded.origin}); "
                f"make one with 'elmo convert {model} FOLDER'"
            )
        yield loaded, folder


def _place_of(model: str) -> Path | None:
    """Return the native model folder that `model` names, or None if it is anything else or is in the package."""
    from elmo.formats.native import is_native
    from elmo.formats.sources import is_bundled, local_path

    if is_bundled(model):
        return None
    path = local_path(model)
    return path if is_native(path) else None
