"""`elmo convert`."""

from pathlib import Path

import click

from elmo.cli.shared import examples, json_option, print_result
from elmo.errors import ElmoError


@click.command(
    epilog=examples(
        "elmo convert elmo_2x4096_512_weights.hdf5 my-model/",
        "elmo convert 193.zip norwegian/",
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
@json_option
def command(source: str, target: Path, kind: str, as_json: bool) -> None:
    """Read the model SOURCE, in any format we know (docs/formats.md), and write it to the new folder TARGET."""
    from elmo.formats import load, save_bilm, save_native

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ElmoError(f"{target}: exists already; choose a new folder")
    model = load(source)
    (save_native if kind == "native" else save_bilm)(model, target)
    print_result(
        f"{target}: {kind} model, from {model.origin}",
        {"source": source, "origin": model.origin, "target": str(target), "format": kind},
        as_json,
    )
