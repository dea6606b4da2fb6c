"""Recipes: the YAML files that say how to train, whatever is trained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from elmo.errors import ElmoError
from elmo.schema import from_mapping, to_mapping

T = TypeVar("T")

_LARGEST = 1 << 20
"""Far more than any recipe, in bytes."""


class _Loader(yaml.SafeLoader):
    """YAML that knows numbers like 1e-3, too, which PyYAML takes for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_recipe(kind: type[T], name: str, names: Sequence[str], overrides: Mapping[str, object] | None = None) -> T:
    """The recipe `name`, one of the `names` that the package brings or a YAML file, as the dataclass `kind`.

    `overrides` are dotted keys, as `training.batch_size`. Raises ElmoError for what is no such file, and for keys and
    values that `kind` doesn't take.
    """
    if name in names:
        text, where = files("elmo").joinpath("recipes", f"{name}.yaml").read_text(encoding="utf-8"), f"recipe {name}"
    elif Path(name).is_file():
        text, where = _read(Path(name)), name
    else:
        raise ElmoError(f"recipe {name}: neither a file nor one of {', '.join(names)}")
    try:
        values: Any = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:  # the latter for a date that is none
        raise ElmoError(f"{where}: not valid YAML ({' '.join(str(error).split())})") from None
    except RecursionError:
        raise ElmoError(f"{where}: nested too deeply; a recipe is a mapping of a few keys") from None
    for key, value in (overrides or {}).items():
        _set(values, key, value)
    return from_mapping(kind, values, where)


def _read(path: Path) -> str:
    if path.stat().st_size > _LARGEST:
        raise ElmoError(f"{path}: too large for a recipe ({path.stat().st_size:,} bytes)")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ElmoError(f"{path}: not UTF-8 text") from None


def override(recipe: T, overrides: Mapping[str, object]) -> T:
    """A recipe with other values for some keys."""
    values = to_mapping(recipe)
    for key, value in overrides.items():
        _set(values, key, value)
    return from_mapping(type(recipe), values, "--set")


def without(recipe: T, keys: Iterable[str]) -> T:
    """A recipe that says nothing of some keys of its training."""
    values: Any = recipe
    return replace(values, training=replace(values.training, **dict.fromkeys(keys)))


def parse_override(text: str) -> tuple[str, object]:
    """`key=value` from the command line, the value in YAML."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ElmoError(f"--set {text}: expected KEY=VALUE, as training.batch_size=64")
    try:
        return key, yaml.load(value, _Loader)
    except (yaml.YAMLError, ValueError):
        raise ElmoError(f"--set {text}: {value!r} is not valid YAML") from None
    except RecursionError:
        raise ElmoError(f"--set {key}: the value is nested too deeply for a recipe") from None


def write_recipe(recipe: object, path: Path) -> None:
    """Write a recipe that `read_recipe` reads back."""
    path.write_text(yaml.safe_dump(to_mapping(recipe), sort_keys=False, default_flow_style=None), encoding="utf-8")


def _set(values: Any, key: str, value: object) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        if not isinstance(values, dict) or parent not in values:
            raise ElmoError(f"recipe key {key!r}: there is no {parent!r}")
        values = values[parent]
    if not isinstance(values, dict):
        raise ElmoError(f"recipe key {key!r}: {'.'.join(parents) or 'the recipe'} holds no keys")
    values[last] = value
