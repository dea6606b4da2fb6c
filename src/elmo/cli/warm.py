"""`elmo warm`: store a starting state for sentences with a model."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import click

from elmo.cli.shared import device_option, examples, json_option, print_result, reading_options
from elmo.errors import ElmoError


@click.command(
    epilog=examples(
        "elmo warm run/ train.txt",
        "elmo warm run/ raw.txt --tokenizer ptb --text paragraphs --max-sentences 20000",
        "elmo embed run/ corpus.txt vectors.h5 --state warm",
    )
)
@click.argument("model")
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@click.option(
    "--max-sentences",
    type=click.IntRange(1),
    default=5000,
    show_default=True,
    help="Most sentences to read. More of them hardly change the mean.",
)
@device_option
@reading_options
@json_option
def command(model: str, texts: tuple[str, ...], max_sentences: int, device: str, as_json: bool, **reading: Any) -> None:
    """Store a warm state in the model folder MODEL, from which elmo embed --state warm starts each sentence.

    It is the mean of the states in which the sentences of TEXT end. Text like that of the training works best. Vectors
    still depend only on their own sentence, but the LSTMs no longer read its first tokens with an empty memory.
    """
    from tqdm import tqdm

    from elmo.embed.warm import mean_state
    from elmo.formats import load
    from elmo.formats.model import require_bytes
    from elmo.formats.native import WARM, is_native, save_warm_state
    from elmo.formats.sources import is_bundled
    from elmo.nn.devices import use_device
    from elmo.targets import alone_in
    from elmo.text.reading import expand, read_sentences

    paths, folder = expand(texts), Path(model)
    has_place = is_native(folder) and not is_bundled(model)
    with alone_in(folder) if has_place else nullcontext():  # so that no training replaces the weights meanwhile
        loaded = load(model).to(use_device(device))
        require_bytes(loaded, "given a warm state")
        if not has_place:
            raise ElmoError(
                f"{model}: is not a native model folder, so the state cannot be stored in it ({loaded.origin}); "
                f"make one with 'elmo convert {model} FOLDER'"
            )
        lengths: list[int] = []
        chosen = islice(filter(None, read_sentences(paths, **reading)), max_sentences)
        # The sentences are counted as they pass, so that they need not be kept.
        counted = (lengths.append(len(sentence)) or sentence for sentence in chosen)
        state = mean_state(loaded, tqdm(counted, unit="sentence", disable=None))
        save_warm_state(state, folder, loaded.bilm)
    print_result(
        f"{folder / WARM}: warm state of {len(lengths):,} sentences, {sum(lengths):,} tokens",
        {"file": str(folder / WARM), "num_sentences": len(lengths), "num_tokens": sum(lengths)},
        as_json,
    )
