"""`elmo convert`."""

from __future__ import annotations

import filecmp
import shutil
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

    Whatever the storage, models compute with float32 once they are loaded. Where TARGET holds the same model already,
    nothing is done; one that holds anything else is refused.
    """
    from elmo.formats import load, save_bilm, save_native
    from elmo.formats.native import CARD
    from elmo.targets import unfinished_folder

    if kind == "bilm" and storage != "float32":
        raise ElmoError(f"--storage {storage}: the published format holds float32; leave out --storage or --to bilm")
    _require_new_or_model(target, kind)
    model = load(source)
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    # The folder appears as a whole, or not at all: what is being written, and what a kill left, is in another one.
    work = target.absolute().with_name(f".{target.absolute().name}.unfinished")
    with unfinished_folder(work, target, lambda: False):
        made = work / "model"
        if made.exists():
            shutil.rmtree(made)
        save_native(model, made, storage=storage) if kind == "native" else save_bilm(model, made)
        _require_new_or_model(target, kind)
        is_done = target.exists() and any(target.iterdir())
        if is_done:
            written = [path for path in made.iterdir() if path.name != CARD]  # which people may have edited
            if not all(_is_same(path, target / path.name) for path in written):
                raise ElmoError(f"{target}: exists already, and holds something else; choose a new folder")
        else:
            if target.exists():
                target.absolute().rmdir()
            made.replace(target.absolute())
    done = f"{target}: {kind} model, from {model.origin}"
    print_result(
        f"{done}; it was there already" if is_done else done,
        {
            **{"source": source, "origin": model.origin, "target": str(target), "format": kind, "storage": storage},
            "already_done": is_done,
        },
        as_json,
    )


def _require_new_or_model(target: Path, kind: str) -> None:
    """Refuse a path where there is something else than an empty folder or a model of this kind."""
    from elmo.formats import bilm_hdf5
    from elmo.formats.native import is_native

    if not target.exists():
        return
    is_model = is_native(target) if kind == "native" else (target / bilm_hdf5.WEIGHTS).is_file()
    if not target.is_dir() or (any(target.iterdir()) and not is_model):
        raise ElmoError(f"{target}: exists already; choose a new folder")


def _is_same(one: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(one, other, shallow=False)
