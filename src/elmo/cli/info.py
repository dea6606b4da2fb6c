"""`elmo info`: show what a model file or folder contains."""

from pathlib import Path

import click

from elmo.cli.shared import examples, json_option, print_result


@click.command(
    epilog=examples("elmo info en", "elmo info run/", "elmo info lm_weights.hdf5", "elmo info owner/name --json")
)
@click.argument("model")
@json_option
def command(model: str, as_json: bool) -> None:
    """Show the card of MODEL if it has one, how its format was recognised, and its sizes.

    MODEL is a folder, file or archive in any supported format (docs/formats.md), a repository on the Hugging Face Hub,
    en (the model that comes with the package), or a run folder of elmo task.
    """
    from elmo.formats import load
    from elmo.formats.card import describe_model, without_head
    from elmo.formats.native import CONFIG, is_native
    from elmo.schema import to_mapping

    # A run folder of a task contains a biLM too, in a folder of its own, but what people ask about is the task. Tasks
    # import torch, which takes longer than everything else here, so other models are told without it.
    if (Path(model) / CONFIG).is_file() and not is_native(Path(model)):
        from elmo.tasks.run_folder import is_run

        if is_run(Path(model)):
            _tell_run(Path(model), as_json)
            return
    loaded = load(model)
    if loaded.card and not as_json:
        click.echo(f"{without_head(loaded.card).strip()}\n")
    words = None if loaded.vocabulary is None else len(loaded.vocabulary)
    print_result(
        f"{model}: {loaded.origin}.\n{describe_model(loaded)}\nVectors: {loaded.config.num_layers} layers, "
        f"{loaded.config.width} wide{', and a warm state' if loaded.warm_arrays else ''}"
        f"{f'; those of {len(loaded.types):,} words are stored' if loaded.types else ''}."
        f"{f'{chr(10)}Training text: {loaded.text}.' if loaded.text else ''}",
        {
            "model": model,
            "origin": loaded.origin,
            "description": describe_model(loaded),
            "width": loaded.config.width,
            "num_layers": loaded.config.num_layers,
            "num_parameters": sum(array.size for array in loaded.weights.values()),
            "has_softmax": loaded.stored_softmax is not None,
            "vocabulary_size": words,
            "has_warm_state": loaded.warm_arrays is not None,
            "num_types": 0 if loaded.types is None else len(loaded.types),
            "num_mixes": loaded.num_mixes,
            "num_token_vectors": None if loaded.token_vectors is None else len(loaded.token_vectors.words),
            "text": None if loaded.text is None else to_mapping(loaded.text),
            "card": loaded.card,
            "config": to_mapping(loaded.config),
        },
        as_json,
    )


def _tell_run(folder: Path, as_json: bool) -> None:
    """Print what the run folder of a task holds, and its scores."""
    from elmo.formats.card import without_head
    from elmo.tasks import get_task
    from elmo.tasks.card import describe_scores
    from elmo.tasks.run_folder import CARD, read_config, read_results

    (config, recipe), results = read_config(folder), read_results(folder)
    metric, card = get_task(config.task).metric, folder / CARD
    if card.exists() and not as_json:
        click.echo(f"{without_head(card.read_text(encoding='utf-8', errors='replace')).strip()}\n")
    elmo = "without ELMo" if config.bilm is None else f"with ELMo ({config.bilm})"
    scores = describe_scores(results, metric) or "not finished; run the same elmo task train again to continue"
    seeds = f", seeds {', '.join(str(result.seed) for result in results)}" if results else ""
    print_result(
        f"{folder}: a model for the task {config.task}, {elmo}{seeds}; {scores}.",
        {
            "run": str(folder),
            "task": config.task,
            "metric": metric,
            "bilm": config.bilm,
            "done": bool(results),
            "runs": [result.as_json() for result in results],
            "recipe": recipe,
        },
        as_json,
    )
