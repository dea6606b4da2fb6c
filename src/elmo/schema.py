"""Settings as dataclasses: built from the plain values of a JSON or YAML file, with every key and type checked.

A dataclass checks its own values with the `require_*` functions in `__post_init__`. Their errors name the key; the
functions here add the file.
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from elmo.errors import ElmoError

T = TypeVar("T")

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 80, 80, 80

_LEFT_OUT_IF_NONE = ("char_cnn", "n_tokens_vocab")
"""A biLM has one of these two keys. The other is left out of what is written, as in published options."""


def from_mapping(kind: type[T], values: object, where: str, *, ignore_unknown: bool = False) -> T:
    """Build the dataclass `kind` from nested plain values, checking every key and type.

    `where` names the source ("options.json") in errors. Unknown keys are refused, or left out where
    `ignore_unknown` says that the source may hold more than we need.
    """
    if not isinstance(values, Mapping):
        raise ElmoError(f"{where}: expected a mapping of keys, found {type(values).__name__}")
    values = typing.cast("Mapping[str, object]", values)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, kind))}
    unknown = sorted(str(key) for key in values if key not in fields)
    if unknown and not ignore_unknown:
        raise ElmoError(f"{where}: unknown key {shown(unknown[0])}; known keys are {', '.join(fields)}")
    arguments: dict[str, object] = {}
    for name, field in fields.items():
        if name in values:
            arguments[name] = _convert(hints[name], values[name], f"{where}: {name}", ignore_unknown)
        elif field.default is dataclasses.MISSING:
            raise ElmoError(f"{where}: key {name!r} is missing")
    try:
        return kind(**arguments)
    except ElmoError as error:
        raise ElmoError(f"{where}: {error}") from None


def to_mapping(config: object) -> dict[str, Any]:
    """The nested plain values of a config, ready for JSON or YAML; `from_mapping` reads them back."""
    return dataclasses.asdict(
        typing.cast(Any, config),
        dict_factory=lambda items: {k: _plain(v) for k, v in items if v is not None or k not in _LEFT_OUT_IF_NONE},
    )


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in typing.cast("tuple[object, ...]", value)]
    return value


def _convert(hint: Any, value: object, where: str, ignore_unknown: bool) -> object:
    """`value` as the annotated type `hint`, or one sentence that says why not."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if value is None:
            return None
        hint = _choose(hint, value)
    if dataclasses.is_dataclass(hint):
        return from_mapping(typing.cast("type[object]", hint), value, where, ignore_unknown=ignore_unknown)
    if typing.get_origin(hint) is tuple:
        return _convert_tuple(hint, value, where, ignore_unknown)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ElmoError(f"{where}: a number of {len(str(value))} digits") from None
    if type(value) is not hint:
        raise ElmoError(f"{where}: expected {hint.__name__}, found {shown(value)}")
    return value


def _choose(union: Any, value: object) -> Any:
    """The type of a union that `value` is to become: of several, the tuple for a list, and the first one otherwise."""
    options = [option for option in typing.get_args(union) if option is not type(None)]
    lists = [option for option in options if typing.get_origin(option) is tuple]
    return lists[0] if lists and isinstance(value, list | tuple) else options[0]


def _convert_tuple(hint: Any, value: object, where: str, ignore_unknown: bool) -> tuple[object, ...]:
    options = typing.get_args(hint)
    repeated = len(options) == 2 and options[1] is Ellipsis
    items: list[object] = list(typing.cast("list[object]", value)) if isinstance(value, list | tuple) else []
    if not isinstance(value, list | tuple) or (not repeated and len(items) != len(options)):
        raise ElmoError(f"{where}: expected a list{'' if repeated else f' of {len(options)}'}, found {shown(value)}")
    hints = [options[0]] * len(items) if repeated else list(options)
    return tuple(_convert(h, item, where, ignore_unknown) for h, item in zip(hints, items, strict=True))


def shown(value: object) -> str:
    """A value in an error, cut short: a file may give any, and in YAML one that is endless when written out."""
    return _SHORT.repr(value)


def require_positive(name: str, value: float | None) -> None:
    """Refuse zero and what is below or endless, by the name of its key; None is no value."""
    if value is not None and not 0 < value < math.inf:
        raise ElmoError(f"{name}: {value} is not positive{'' if value <= 0 else ' and finite'}")


def require_not_negative(name: str, value: float) -> None:
    """Refuse what is below zero or endless."""
    if not 0 <= value < math.inf:
        raise ElmoError(f"{name}: {value} is not zero or a positive number")


def require_seed(name: str, value: int) -> None:
    """Refuse what isn't a seed of all that draws by chance."""
    if not 0 <= value < 1 << 32:
        raise ElmoError(f"{name}: {value} is not between 0 and {(1 << 32) - 1}")


def require_share(name: str, value: float) -> None:
    """Refuse what is no share of a whole that leaves something of it."""
    if not 0 <= value < 1:
        raise ElmoError(f"{name}: {value} is not in [0, 1)")


def require_choice(name: str, value: object, known: Collection[str]) -> None:
    """Refuse what is none of the `known` names."""
    if value not in known:
        raise ElmoError(f"{name}: {shown(value)} is none of {', '.join(known)}")
