"""`elmo info`: show what a model contains, and what a file of vectors, a corpus or an index holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import corpus_sizes, examples, json_option, print_result, without_controls
from elmo.wording import counted, file_names

if TYPE_CHECKING:
    from elmo.embed.description import VectorFile


@click.command(
    epilog=examples(
        "elmo info en",
        "elmo info run/",
        "elmo info lm_weights.hdf5",
        "elmo info vectors.h5",
        "elmo info owner/name --json",
    )
)
@click.argument("model")
@json_option
def command(model: str, as_json: bool) -> None:
    """Show the card of MODEL if it has one, how its format was recognized, and its sizes.

    MODEL is a folder, file or archive in any supported format (see File formats in the documentation), a repository on
    the Hugging Face Hub, en (the model that comes with the package), or a run folder of elmo task. For a file of
    vectors, a corpus folder or an index, it shows what is in it and what made it.
    """
    from elmo.formats.sources import is_bundled
    from elmo.targets import with_home

    # The name of a model of the package is never that of a folder here. An empty name is refused by `load`.
    may_be_path = bool(model) and not is_bundled(model)
    if may_be_path and (found := _describe_result(Path(with_home(model)))) is not None:
        sentence, figures = found
        print_result(f"{model}: {sentence}", {"path": model, **figures}, as_json)
        return
    from elmo.formats import load
    from elmo.formats.card import describe_model, without_head
    from elmo.formats.native import is_native
    from elmo.formats.native_files import CONFIG
    from elmo.schema import to_mapping

    # A run folder of a task contains a biLM too, in a folder of its own, but what people ask about is the task. Tasks
    # import torch, which takes longer than everything else here, so other models are described without it.
    folder = Path(with_home(model))
    if may_be_path and not is_native(folder) and ((folder / CONFIG).is_file() or any(folder.glob(f"seed-*/{CONFIG}"))):
        from elmo.tasks.run_folder import is_run, seed_folder, started_seeds

        # A folder of several seeds becomes a run folder itself when all of them are trained.
        if runs := [folder] if is_run(folder) else [seed_folder(folder, seed) for seed in started_seeds(folder)]:
            _tell_run(folder, runs, as_json)
            return
    loaded = load(model)
    if loaded.card and not as_json:
        click.echo(f"{without_controls(without_head(loaded.card)).strip()}\n")
    words = None if loaded.vocabulary is None else len(loaded.vocabulary)
    warm = ", and a warm state" if loaded.warm_arrays else ""
    stored = f"; those of {len(loaded.types):,} words are stored" if loaded.types else ""
    lines = [
        f"{model}: {loaded.origin}.",
        describe_model(loaded),
        f"Vectors: {loaded.config.num_layers} layers, {loaded.config.width} wide{warm}{stored}.",
    ]
    if loaded.text:
        lines.append(f"Training text: {loaded.text}.")
    print_result(
        "\n".join(lines),
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


def _describe_result(path: Path) -> tuple[str, dict[str, Any]] | None:
    """Describe what a command made, in words and as figures; None if that is neither vectors, a corpus nor an index."""
    if path.is_file():
        from elmo.embed.description import find_vectors

        vectors = find_vectors(path)
        return None if vectors is None else (_tell_vectors(vectors), {"kind": "vectors", **asdict(vectors)})
    if (path / "corpus.json").is_file():
        from elmo.text.corpus import Corpus

        corpus = Corpus.open(path)
        sizes, figures = corpus_sizes(corpus)
        return (
            f"corpus for pretraining: {sizes}.\nMade by elmo prepare from {_inputs(corpus.source)}: {corpus.cut}.",
            {"kind": "corpus", **figures, "source": corpus.source, "settings": asdict(corpus.settings)},
        )
    if (path / "index.json").is_file():
        from elmo.analysis.search import describe_index
        from elmo.config import TextConfig

        facts = describe_index(path)
        tags = f", parts of speech {', '.join(facts['tags'])}" if facts["tags"] else ""
        metadata = f", metadata {', '.join(facts['metadata'])}" if facts["metadata"] else ""
        return (
            f"index of {counted(facts['num_tokens'], 'token')} in {counted(facts['num_sentences'], 'sentence')}, "
            f"{counted(facts['num_types'], 'type')}, vectors in {facts['vectors']}{tags}{metadata}.\n"
            f"Made by elmo index from {_inputs(facts['source'])} with model {facts['model'] or 'unknown'} "
            f"({facts['layer']}, checksum {facts['model_checksum']}): {TextConfig(**facts['text'])}.",
            {"kind": "index", **facts},
        )
    return None


def _tell_vectors(vectors: VectorFile) -> str:
    """Tell what a file of vectors holds, and what made it."""
    num_tokens = vectors.facts.get("num_tokens")  # of any type, in a file of another program
    tokens = f" and {counted(num_tokens, 'token')}" if isinstance(num_tokens, int) else ""
    layers = "" if vectors.num_layers is None else f", {counted(vectors.num_layers, 'layer')}"
    numbers = "" if vectors.width is None else f"{layers}, {vectors.width} wide, {vectors.dtype}"
    kind = "sentences" if vectors.pooled else "tokens"
    held = f"vectors of {kind}: {counted(vectors.num_sentences, 'sentence')}{tokens}{numbers}."
    facts = {
        key: value for key, value in vectors.facts.items() if key not in ("made_by", "num_tokens", "num_sentences")
    }
    if not facts:
        return f"{held}\nThe file does not say what made it."
    by = vectors.facts.get("made_by", "another program")
    told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in facts.items())
    return f"{held}\nMade by {by}: {told}."


def _inputs(source: Mapping[str, Any]) -> str:
    """Name the files of a text."""
    return file_names([str(name) for name in source.get("inputs", ())]) or "a text"


def _tell_run(folder: Path, runs: Sequence[Path], as_json: bool) -> None:
    """Print what the run folder of a task holds, and its scores.

    `runs` is this folder alone, or the folders of its seeds if not all of them are trained.
    """
    from elmo.formats.card import without_head
    from elmo.tasks import get_task
    from elmo.tasks.results import describe_scores
    from elmo.tasks.run_folder import CARD, read_config, read_results

    (config, recipe), results = read_config(runs[0]), [result for run in runs for result in read_results(run)]
    done = bool(results) and runs[0] == folder
    metric, card = get_task(config.task).metric, folder / CARD
    if card.exists() and not as_json:
        text = card.read_text(encoding="utf-8", errors="replace")
        click.echo(f"{without_controls(without_head(text)).strip()}\n")
    elmo = "without ELMo" if config.bilm is None else f"with ELMo ({config.bilm})"
    unfinished = "" if done else "not finished; run the same elmo task train again to continue"
    scores = "; ".join(filter(None, (describe_scores(results, metric), unfinished)))
    seeds = f", seeds {', '.join(str(result.seed) for result in results)}" if results else ""
    print_result(
        f"{folder}: a model for the task {config.task}, {elmo}{seeds}; {scores}.",
        {
            "run": str(folder),
            "task": config.task,
            "metric": metric,
            "bilm": config.bilm,
            "done": done,
            "runs": [result.as_json() for result in results],
            "recipe": recipe,
        },
        as_json,
    )
