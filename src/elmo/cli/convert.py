"""`elmo convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmo.cli.shared import examples, json_option, print_result
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from elmo.formats.native import Storage


@click.command(
    epilog=examples(
        "elmo convert elmo_2x4096_512_weights.hdf5 my-model/",
        "elmo convert 193.zip norwegian/",
        "elmo convert run/ half-the-size/ --storage float16",
        "elmo convert my-model/ for-allennlp/ --to bilm",
    )
)
@click.argument("source")
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "kind",
    type=click.Choice(["native", "bilm"]),
    default="native",
    show_default=True,
    help="native: config.json and safetensors. bilm: lm_weights.hdf5 and options.json, as AllenNLP reads.",
)
@click.option(
    "--storage",
    type=click.Choice(["float32", "float16", "bf16"]),
    default="float32",
    show_default=True,
    help="What a native model's weights are rounded to: float16 and bf16 take half the space.",
)
@json_option
def command(source: str, target: Path, kind: str, storage: Storage, as_json: bool) -> None:
    """Read the model SOURCE, in any format we know (docs/formats.md), and write it to the new folder TARGET.

    Whatever the storage, models compute with float32 once they are loaded.
    """
    from elmo.formats import load, save_bilm, save_native

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ElmoError(f"{target}: exists already; choose a new folder")
    if kind == "bilm" and storage != "float32":
        raise ElmoError(f"--storage {storage}: the published format holds float32; leave out --storage or --to bilm")
    model = load(source)
    if kind == "native":
        save_native(model, target, storage=storage)
    else:
        save_bilm(model, target)
    print_result(
        f"{target}: {kind} model, from {model.origin}",
        {"source": source, "origin": model.origin, "target": str(target), "format": kind, "storage": storage},
        as_json,
    )
