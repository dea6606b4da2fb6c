"""The list of published models: their names, facts and addresses, as `published.yaml` has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from elmo.errors import ElmoError
from elmo.text.languages import short_code

DEFAULT = "allennlp:original"
"""The model that AllenNLP's embedders load if no files are given."""

_NAME = re.compile(r"(?P<family>[a-z]{2,}):(?P<model>[\w.-]+)", re.ASCII)
_NLPL = "http://vectors.nlpl.eu/repository/20/{}.zip"
"""The address of a model in the NLPL repository, which never gives a number twice."""


@dataclass(frozen=True)
class PublishedModel:
    """A model that somebody published, and what its publisher says of it.

    Attributes:
        name: What `elmo.load` takes, such as `nlpl:162`.
        title: The collection that the model belongs to.
        code: The code of its language, such as `la`.
        language: The name of its language.
        size: Its size, in words.
        tokens: How its text was tokenized.
        license: Its license, or "not stated".
        alive: Whether its address is known to work.
        files: The address of its archive, or those of its options and its weights.
        sources: Where this is from.
    """

    name: str
    title: str
    code: str
    language: str
    size: str
    tokens: str
    license: str
    alive: str
    files: tuple[str, ...]
    sources: tuple[str, ...]


@cache
def published_models() -> dict[str, PublishedModel]:
    """Read the list: the models by their names."""
    import yaml

    text = files("elmo").joinpath("formats", "published.yaml").read_text(encoding="utf-8")
    groups: list[dict[str, Any]] = yaml.safe_load(text)
    found: dict[str, PublishedModel] = {}
    for group in groups:
        for model, own in group["models"].items():
            facts = group | own
            name, part = f"{facts.pop('family')}:{model}", facts.pop("in_address", str(model))
            facts["files"] = tuple(each.replace("{}", part) for each in facts["files"])
            facts["sources"] = tuple(facts["sources"])
            del facts["models"]
            found[name] = PublishedModel(name=name, **facts)
    return found


def find_published(name: str) -> PublishedModel | None:
    """Find a model by its name.

    The NLPL repository has more models than the list. They too are found by their numbers, without any facts.

    Args:
        name: A name such as `nlpl:162`.

    Returns:
        The model, or None if this is not the name of a family and a model.

    Raises:
        ElmoError: If there is such a family, but no such model in it.
    """
    if not (parts := _NAME.fullmatch(name)):
        return None
    models = published_models()
    if name in models:
        return models[name]
    siblings = [each.removeprefix(f"{parts['family']}:") for each in models if each.startswith(f"{parts['family']}:")]
    if not siblings:
        return None
    if parts["family"] == "nlpl" and parts["model"].isdigit():
        unknown = dict.fromkeys(("code", "language", "size", "tokens", "license"), "not stated")
        archive = _NLPL.format(parts["model"])
        return PublishedModel(name, "the NLPL repository", **unknown, alive="unknown", files=(archive,), sources=())
    known = "models go by their numbers" if parts["family"] == "nlpl" else f"there are {', '.join(siblings)}"
    raise ElmoError(f"{name}: no such published model; in {parts['family']} {known} (elmo models lists all)")


def find_by_address(address: str) -> PublishedModel | None:
    """Find the model of the list that has a file at this address."""
    return next((model for model in published_models().values() if address in model.files), None)


def in_language(models: Iterable[PublishedModel], language: str) -> list[PublishedModel]:
    """Return the models for a language.

    Args:
        models: The models to choose from.
        language: A code such as `la` or `lat`, or the beginning of a word of a name, such as `Norwegian`.

    Raises:
        ElmoError: If there is none.
    """
    models, name = list(models), language.casefold()
    found = [model for model in models if model.code == short_code(language)]
    if len(name) > 3:  # shorter ones are codes, and begin names of other languages
        found = found or [model for model in models if f" {name}" in f" {model.language.casefold()}"]
    if not found:
        codes = ", ".join(sorted({model.code for model in models}))
        raise ElmoError(f"language {language}: no published model is listed for it; the list has {codes}")
    return found
