"""`elmo models`: list the published models, and show or remove those in the cache of downloads."""

from dataclasses import asdict

import click

from elmo.cli.shared import examples, is_given, json_option, print_result
from elmo.cli.table import print_table
from elmo.errors import ElmoError


@click.command(
    epilog=examples(
        "elmo models --language la", "elmo models --json", "elmo models --cached", "elmo models --remove nlpl:162"
    )
)
@click.option("--language", metavar="LANGUAGE", help="Only models for a language: a code such as la, or a name.")
@click.option("--cached", "is_cached", is_flag=True, help="Show the models that were downloaded instead of the list.")
@click.option("--remove", metavar="NAME", help="Remove a downloaded model, by the name that --cached shows.")
@json_option
def command(language: str | None, is_cached: bool, remove: str | None, as_json: bool) -> None:
    """List published models: name, language, size, tokens, license, when the address last worked, and the address.

    elmo.load and all commands take such a name as a MODEL. They download the model on first use, and then find it in
    the cache, also offline. The facts are those that the publishers state (see Published models in the documentation).
    """
    if sum(map(bool, (is_given("language"), is_cached, is_given("remove")))) > 1:
        raise ElmoError("--language, --cached and --remove: pass only one of them")
    if remove is not None:
        _remove(remove, as_json)
    elif is_cached:
        _list_cached(as_json)
    else:
        _list_published(language, as_json)


def _list_published(language: str | None, as_json: bool) -> None:
    from elmo.formats.model_cache import cached_models
    from elmo.formats.published import in_language, published_models

    models = list(published_models().values())
    if language is not None:
        models = in_language(models, language)
    cached = {model.name for model in cached_models() if model.is_complete}
    rows = [
        (
            model.name,
            f"{model.language} ({model.code})",
            model.size,
            model.tokens,
            model.license,
            model.alive.partition(" (")[0],
            model.files[-1],
        )
        for model in models
    ]
    if not as_json:
        print_table(("name", "language", "size", "tokens", "license", "alive", "address"), rows)
    num_cached = sum(model.name in cached for model in models)
    print_result(
        f"Published models: {len(models)}, of which {num_cached} in the cache. alive is the day on which an address "
        "last worked; unknown: not tried yet.",
        {"models": [asdict(model) | {"is_cached": model.name in cached} for model in models]},
        as_json,
        to_stderr=not as_json,
    )


def _list_cached(as_json: bool) -> None:
    from elmo.formats.model_cache import cache_folder, cached_models

    models = cached_models()
    if not as_json:
        print_table(
            (),
            [
                (
                    model.name,
                    f"{model.num_bytes / 1e6:,.1f} MB",
                    "complete" if model.is_complete else "in part",
                    str(model.folder),
                )
                for model in models
            ],
        )
    print_result(
        f"{cache_folder()}: {sum(model.num_bytes for model in models) / 1e6:,.1f} MB; models: {len(models)}.",
        {
            "folder": str(cache_folder()),
            "models": [asdict(model) | {"folder": str(model.folder)} for model in models],
        },
        as_json,
        to_stderr=not as_json,
    )


def _remove(name: str, as_json: bool) -> None:
    from elmo.formats.model_cache import remove_cached

    model = remove_cached(name)
    print_result(
        f"{name}: removed {model.num_bytes / 1e6:,.1f} MB from {model.folder}; the checksums are kept.",
        {"removed": name, "folder": str(model.folder), "num_bytes": model.num_bytes},
        as_json,
    )
