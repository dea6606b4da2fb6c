"""Reads, changes and writes recipes: the YAML files with the settings of a training, of biLMs and of task models."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from elmo.errors import ElmoError
from elmo.schema import from_mapping, shown, to_mapping
from elmo.targets import is_there

T = TypeVar("T")

_LARGEST = 1 << 20
"""The largest file that is read, in bytes: far more than any recipe has."""

_MOST_MERGED = 10_000
"""The most keys that the mappings of a file may take over from others by `<<`, far more than any recipe has.

Merges of merges multiply, so that a few lines could ask for billions of keys.
"""

_MOST_BITS = 4_096
"""The longest whole number of a recipe. Python can't write those of more than 4,300 digits, so no message could show
one, and a hexadecimal one can be read all the same."""

_MERGE = "tag:yaml.org,2002:merge"


class _KeyTwiceError(yaml.YAMLError):
    """A mapping has a key twice, for the second time in `line`, which is counted from 1."""

    def __init__(self, key: str, line: int) -> None:
        super().__init__(f"key {key!r} is there twice")
        self.line = line


class _Loader(yaml.SafeLoader):
    """A YAML loader that reads numbers such as 1e-3 as numbers, and refuses a key that is there twice.

    PyYAML takes such numbers for text. Of a key that is there twice, it drops the first value without a word. Whole
    numbers of more than `_MOST_BITS` are refused, too.
    """

    _can_merge = _MOST_MERGED  # how many more keys mappings may take over

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse a mapping with a key that is there twice."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        known: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in known:
                    raise _KeyTwiceError(key.value, key.start_mark.line + 1)
                known.add((key.tag, key.value))
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge other mappings into one (`<<`), unless they are too many."""
        for key, value in node.value:
            for part in _merged_by(key, value):
                self.flatten_mapping(part)  # so that its keys are all there, and count
                self._can_merge -= len(part.value)
                if self._can_merge < 0:
                    raise yaml.YAMLError("it merges more keys than any recipe has")
        super().flatten_mapping(node)


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    number: int = loader.construct_yaml_int(node)
    if number.bit_length() > _MOST_BITS:
        raise yaml.YAMLError("it has a number with more digits than any recipe needs")
    return number


def _merged_by(key: yaml.Node, value: yaml.Node) -> list[yaml.MappingNode]:
    """Return the mappings that an entry merges into the mapping that it is in: none, unless its key is `<<`."""
    if key.tag != _MERGE:
        return []
    parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return [part for part in parts if isinstance(part, yaml.MappingNode)]


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _parse(text: str) -> Any:
    """Parse YAML.

    Raises:
        yaml.YAMLError, ValueError, RecursionError: If it is not valid.
    """
    try:
        return yaml.load(text, _Loader)
    except (AttributeError, IndexError, KeyError):  # PyYAML's errors for a value that its tag does not allow
        raise yaml.YAMLError("a value is not of the type that its tag says") from None


def read_recipe(kind: type[T], name: str, names: Sequence[str], settings: Mapping[str, object] | None = None) -> T:
    """Read a recipe of the package, or a YAML file.

    Args:
        kind: The dataclass to return.
        name: A name in `names`, or the path of a YAML file.
        names: The names of the package's recipes.
        settings: Values that replace those of the recipe, by dotted keys such as `training.batch_size`.

    Raises:
        ElmoError: If there is no such recipe, if it is not valid YAML, or if it has keys or values that `kind` refuses.
    """
    if name in names:
        text, where = files("elmo").joinpath("recipes", f"{name}.yaml").read_text(encoding="utf-8"), f"recipe {name}"
    elif is_there(name) and Path(name).is_file():
        text, where = _read(Path(name)), name
    else:
        raise ElmoError(f"recipe {name}: is neither a file nor one of {', '.join(names)}")
    try:
        values = _parse(text)
    except _KeyTwiceError as error:
        raise ElmoError(f"{where}, line {error.line}: {error}; remove one, or join the two") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError for an impossible date, such as 2024-13-45
        raise ElmoError(f"{where}: is not valid YAML ({' '.join(str(error).split())})") from None
    except RecursionError:
        raise ElmoError(f"{where}: is nested too deeply; a recipe is a mapping of a few keys") from None
    changed = deepcopy(values)
    given = ", ".join(f"{key}={shown(value)}" for key, value in (settings or {}).items())
    try:
        for key, value in (settings or {}).items():
            _set(changed, key, value)
        return from_mapping(kind, changed, f"{where} with {given}" if given else where)
    except ElmoError:
        from_mapping(kind, values, where)  # what is wrong in the recipe itself is said of it alone
        raise


def _read(path: Path) -> str:
    if path.stat().st_size > _LARGEST:
        raise ElmoError(f"{path}: is too large for a recipe ({path.stat().st_size:,} bytes)")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ElmoError(f"{path}: is not UTF-8 text") from None


def override(recipe: T, settings: Mapping[str, object]) -> T:
    """Return a copy of a recipe with other values for some dotted keys, such as `training.batch_size`.

    Raises:
        ElmoError: If a key or value is not one that the recipe can have; the message refers to `--set`.
    """
    values = to_mapping(recipe)
    for key, value in settings.items():
        _set(values, key, value)
    return from_mapping(type(recipe), values, "--set")


def changed_key(before: object, now: object, changeable: Collection[str]) -> str | None:
    """Describe the first difference between two recipes: "training.batch_size: 4, not 8"; None if there is none.

    Args:
        before: The recipe that a run was started with.
        now: The recipe that it is started with again.
        changeable: The keys of the section `training` that may be different.
    """
    ignored = {f"training.{key}" for key in changeable}
    values, others = (dict(_dotted(to_mapping(recipe))) for recipe in (before, now))
    for key in dict.fromkeys([*values, *others]):
        if key not in ignored and values.get(key) != others.get(key):
            had, has = (json.dumps(each.get(key), ensure_ascii=False) for each in (values, others))
            return f"{key}: {had}, not {has}"
    return None


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a recipe with their sections, as in `training.batch_size`, and their values."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _dotted(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def parse_override(text: str) -> tuple[str, object]:
    """Split a `KEY=VALUE` of the command line, whose value is YAML.

    Raises:
        ElmoError: If there is no equals sign, or if the value is not valid YAML.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ElmoError(f"--set {text}: expected KEY=VALUE, such as training.batch_size=64")
    try:
        return key, _parse(value)
    except _KeyTwiceError as error:
        raise ElmoError(f"--set {text}: {error}; remove one") from None
    except (yaml.YAMLError, ValueError):
        raise ElmoError(f"--set {text}: {value!r} is not valid YAML") from None
    except RecursionError:
        raise ElmoError(f"--set {key}: the value is nested too deeply for a recipe") from None


def write_recipe(path: Path, recipe: object) -> None:
    """Write a recipe as a YAML file that `read_recipe` reads back."""
    text = yaml.safe_dump(to_mapping(recipe), sort_keys=False, default_flow_style=None)
    path.write_text(text, encoding="utf-8", newline="\n")


def _set(values: Any, key: str, value: object, within: str = "") -> None:
    """Set a key with dots in the values of a recipe, or of its section `within`, which messages name."""
    *parents, last = key.split(".")
    for parent in parents:
        if not isinstance(values, dict) or parent not in values:
            raise ElmoError(f"recipe key {within + key!r}: there is no {parent!r}")
        values = values[parent]
    if not isinstance(values, dict):
        raise ElmoError(f"recipe key {within + key!r}: {'.'.join(parents) or 'the recipe'} has no keys")
    section = values.get(last)
    if isinstance(section, dict) and isinstance(value, Mapping):  # the section's other keys stay
        for name, own in cast("Mapping[object, object]", value).items():  # in YAML, a name can be a number
            _set(section, str(name), own, f"{within}{key}.")
    else:
        values[last] = value
