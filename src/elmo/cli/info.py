"""`elmo info`."""

import click

from elmo.cli.shared import examples, json_option, print_result


@click.command(
    epilog=examples("elmo info run/", "elmo info lm_weights.hdf5", "elmo info 193.zip", "elmo info owner/name --json")
)
@click.argument("model")
@json_option
def command(model: str, as_json: bool) -> None:
    """Say what MODEL is, by which signs that was recognised, and its sizes.

    MODEL is a folder, file or archive in any format we know (docs/formats.md), or a repository on the Hugging Face Hub.
    """
    from elmo.config import to_mapping
    from elmo.formats import load
    from elmo.formats.card import describe

    loaded = load(model)
    words = None if loaded.vocabulary is None else len(loaded.vocabulary)
    print_result(
        f"{model}: {loaded.origin}.\n{describe(loaded)}\nVectors: {loaded.config.num_layers} layers, "
        f"{loaded.config.width} wide{', and a warm state' if loaded.warm_state else ''}.",
        {
            "model": model,
            "origin": loaded.origin,
            "description": describe(loaded),
            "width": loaded.config.width,
            "num_layers": loaded.config.num_layers,
            "num_parameters": sum(parameter.numel() for parameter in loaded.bilm.parameters()),
            "has_softmax": loaded.softmax is not None,
            "vocabulary_size": words,
            "has_warm_state": loaded.warm_state is not None,
            "num_mixes": len(loaded.mixes),
            "num_token_vectors": None if loaded.token_vectors is None else len(loaded.token_vectors.words),
            "config": to_mapping(loaded.config),
        },
        as_json,
    )
