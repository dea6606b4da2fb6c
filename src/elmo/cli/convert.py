"""`elmo convert`: convert a model between formats."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmo.cli.shared import examples, json_option, print_result
from elmo.errors import ElmoError, renaming

if TYPE_CHECKING:
    from elmo.formats.native import Storage


@click.command(
    epilog=examples(
        "elmo convert elmo_2x4096_512_weights.hdf5 my-model/",
        "elmo convert 218.zip norwegian/",
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
    help="native: config.json and safetensors. bilm: lm_weights.hdf5 and options.json, which bilm-tf and simple_elmo "
    "read, and AllenNLP if the model has two directions, projections and residual connections.",
)
@click.option(
    "--storage",
    type=click.Choice(["float32", "float16", "bf16"]),
    default="float32",
    show_default=True,
    help="Type of the weights in a native model. float16 and bf16 round them and take half the space.",
)
@json_option
def command(source: str, target: Path, kind: str, storage: Storage, as_json: bool) -> None:
    """Read the model SOURCE, in any supported format, and write it to the new folder TARGET.

    The documentation lists the formats (see File formats).

    Models compute in float32 once they are loaded, whatever the storage. If TARGET already holds the same model,
    nothing is done; a TARGET that holds anything else is refused.
    """
    from elmo.formats import load, save_bilm, save_native
    from elmo.formats.card import CARD
    from elmo.formats.model import refuse_lexicon
    from elmo.targets import unfinished_folder, work_folder_of

    if kind == "bilm" and storage != "float32":
        raise ElmoError(
            f"--storage {storage}: the published format holds float32 only; leave out --storage or --to bilm"
        )
    _require_new_or_model(target, kind)  # before a long download or conversion
    model = load(source)
    refuse_lexicon(model, "converted")  # before a folder is made
    place = target.resolve()  # a folder can't take the place of a link
    place.parent.mkdir(parents=True, exist_ok=True)
    # TARGET appears complete or not at all: files are written to another folder, where a killed run also leaves them.
    work = work_folder_of(place)
    with unfinished_folder(work, target):
        made = work / "model"
        if made.exists():
            shutil.rmtree(made)
        with renaming(made, target):
            save_native(model, made, storage=storage) if kind == "native" else save_bilm(model, made)
        _require_new_or_model(target, kind)  # again: someone may have made it meanwhile
        # Whether TARGET is the same model is decided by its files, once there is something to compare them with. A
        # script that was stopped between two commands can then be started again.
        is_done = target.exists() and any(target.iterdir())
        if is_done:
            written = [path for path in made.iterdir() if path.name != CARD]  # users may edit it
            if not all(_is_same(path, target / path.name) for path in written):
                raise ElmoError(f"{target}: exists already and holds something else; choose a new folder")
        else:
            if target.exists():  # an empty folder, which Windows would not replace
                place.rmdir()
            made.replace(place)
    done = f"{target}: {kind} model, from {model.origin}"
    print_result(
        f"{done}; it was already there" if is_done else done,
        {
            **{"source": source, "origin": model.origin, "target": str(target), "format": kind, "storage": storage},
            "already_done": is_done,
        },
        as_json,
    )


def _require_new_or_model(target: Path, kind: str) -> None:
    """Raise an ElmoError if `target` exists and is neither an empty folder nor a model of this kind."""
    from elmo.formats import bilm_hdf5
    from elmo.formats.native import is_native
    from elmo.targets import require_folder

    require_folder(target.parent)
    if not target.exists():
        return
    is_model = is_native(target) if kind == "native" else (target / bilm_hdf5.WEIGHTS).is_file()
    if not target.is_dir() or (any(target.iterdir()) and not is_model):
        raise ElmoError(f"{target}: exists already; choose a new folder")


def _is_same(one: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(one, other, shallow=False)
