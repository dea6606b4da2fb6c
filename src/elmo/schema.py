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
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeVar

from elmo.errors import ElmoError

T = TypeVar("T")

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 80, 80, 80

_LEFT_OUT_IF_NONE = ("char_cnn", "n_tokens_vocab")
"""A biLM has one of these two keys. The other is left out of what is written, as in published options."""


def from_mapping(kind: type[T], values: object, where: str, *, ignore_unknown: bool = False) -> T:
    """Build a dataclass from nested plain values, and check every key and type.

    Args:
        kind: The dataclass.
        values: A mapping with a value for each field, as JSON and YAML files have it. Fields with a default may be
            missing.
        where: The name of the source, such as "options.json", with which error messages begin.
        ignore_unknown: Whether to leave out keys that `kind` does not have, instead of refusing them.

    Raises:
        ElmoError: If `values` is not a mapping, or a key or value is not one that `kind` can have.

    Example:
        ```python
        from_mapping(LSTMConfig, {"dim": 4096, "projection_dim": 512}, "options.json")
        ```
    """
    if not isinstance(values, Mapping):
        raise ElmoError(f"{where}: expected a mapping of keys, found {type(values).__name__}")
    values = typing.cast("Mapping[str, object]", values)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, kind))}
    unknown = sorted(str(key) for key in values if key not in fields)
    if unknown and not ignore_unknown:
        near = _nearest_key(unknown[0], hints)
        hint = f"; did you mean {near}?" if near else ""
        raise ElmoError(f"{where}: unknown key {shown(unknown[0])}; known keys are {', '.join(fields)}{hint}")
    arguments: dict[str, object] = {}
    for name, field in fields.items():
        if name in values:
            arguments[name] = _convert(hints[name], values[name], f"{where}: {name}", ignore_unknown)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ElmoError(f"{where}: key {name!r} is missing")
    try:
        return kind(**arguments)
    except ElmoError as error:
        # The error may name the section itself, as in "training.max_steps: 0 is not positive".
        source, _, section = where.rpartition(": ")
        known = source if str(error).startswith(f"{section}.") else where
        raise ElmoError(f"{known}: {error}" if known else str(error)) from None


def _nearest_key(key: str, hints: Mapping[str, Any]) -> str | None:
    """Return the key that was probably meant, among those of a dataclass and of its parts; None if there is none."""
    names = {name: name for name in hints}
    for part, hint in hints.items():
        if dataclasses.is_dataclass(hint):
            names |= {
                field.name: f"{part}.{field.name}" for field in dataclasses.fields(hint) if field.name not in names
            }
    found = get_close_matches(key, names, 1, 0.75)
    return names[found[0]] if found else None


def to_mapping(config: object) -> dict[str, Any]:
    """Return a dataclass as nested plain values for JSON or YAML. `from_mapping` reads them back."""
    return dataclasses.asdict(
        typing.cast(Any, config),
        dict_factory=lambda items: {k: _plain(v) for k, v in items if v is not None or k not in _LEFT_OUT_IF_NONE},
    )


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in typing.cast("tuple[object, ...]", value)]
    return value


def _convert(hint: Any, value: object, where: str, ignore_unknown: bool) -> object:
    """Convert a plain value to the annotated type of its field, or raise an ElmoError that says why it does not fit."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if value is None:
            return None
        hint = _choose(hint, value)
    if dataclasses.is_dataclass(hint):
        return from_mapping(typing.cast("type[object]", hint), value, where, ignore_unknown=ignore_unknown)
    if typing.get_origin(hint) is tuple:
        return _convert_tuple(hint, value, where, ignore_unknown)
    if typing.get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise ElmoError(f"{where}: expected a mapping of keys, found {shown(value)}")
        items = typing.cast("dict[str, object]", value).items()
        return {key: _convert(typing.get_args(hint)[1], item, f"{where}: {key}", ignore_unknown) for key, item in items}
    # JSON and YAML write 1.0 as 1. To Python a bool is an int, but `true` is not a number in these files.
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ElmoError(f"{where}: a number of {len(str(value))} digits is too large") from None
    if type(value) is not hint:  # the exact type: `isinstance` would let true and false pass as integers
        unquoted = "; in YAML, put yes, no, on, off, true and false into quotes to have them as text"
        then = unquoted if hint is str and isinstance(value, bool) else ""
        raise ElmoError(f"{where}: expected {hint.__name__}, found {shown(value)}{then}")
    return value


def _choose(union: Any, value: object) -> Any:
    """Return the type of a union that a value is converted to: the tuple for a list, and else the first one."""
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


def require_types(config: object, section: str) -> None:
    """Raise an ElmoError unless the fields of a dataclass have the types that `from_mapping` would have given them.

    Args:
        config: The dataclass. None of its fields is a dataclass.
        section: The section of a recipe that it is, with which the message begins.
    """
    for name, hint in typing.get_type_hints(type(config)).items():
        _convert(hint, getattr(config, name), f"{section}.{name}", ignore_unknown=False)


def shown(value: object) -> str:
    """Return a short form of a value for error messages.

    A value from a file may be of any size. A few lines of YAML can even refer to each other so that the whole would not
    fit into memory.
    """
    return _SHORT.repr(value)


def require_positive(name: str, value: float | None) -> None:
    """Raise an ElmoError with the name of the key unless a value is a finite number above zero. None passes."""
    if value is None:
        return
    _require_number(name, value)
    if not 0 < value < math.inf:
        raise ElmoError(f"{name}: {value} is not positive{'' if value <= 0 else ' and finite'}")


def require_count(name: str, value: int | None) -> None:
    """Raise an ElmoError unless a value is a whole number above zero. None passes."""
    if value is None:
        return
    require_whole(name, value)
    require_positive(name, value)


def require_whole(name: str, value: object) -> None:
    """Raise an ElmoError unless a value is a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ElmoError(f"{name}: expected a whole number, found {shown(value)}")


def _require_number(name: str, value: object) -> None:
    # Python takes True and False as numbers.
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ElmoError(f"{name}: expected a number, found {shown(value)}")


def require_not_negative(name: str, value: float) -> None:
    """Raise an ElmoError unless a value is zero or above, and finite."""
    _require_number(name, value)
    if not 0 <= value < math.inf:
        raise ElmoError(f"{name}: {value} is not zero or a positive number")


def require_seed(name: str, value: int) -> None:
    """Raise an ElmoError unless a value can be a seed: NumPy and PyTorch both take 32 bits."""
    require_whole(name, value)
    if not 0 <= value < 1 << 32:
        raise ElmoError(f"{name}: {value} is not between 0 and {(1 << 32) - 1}")


def require_share(name: str, value: float) -> None:
    """Raise an ElmoError unless a value is at least 0 and below 1, such as a dropout rate: 1 would drop everything."""
    _require_number(name, value)
    if not 0 <= value < 1:
        raise ElmoError(f"{name}: {value} is not in [0, 1)")


def require_text(name: str, value: object) -> None:
    """Raise an ElmoError unless a value is a string, for instance if it is a list of texts."""
    if not isinstance(value, str):
        raise ElmoError(f"{name}: expected a string, found {type(value).__name__}")


def require_choice(name: str, value: object, known: Collection[str]) -> None:
    """Raise an ElmoError unless a value is one of the `known` names."""
    if not isinstance(value, str) or value not in known:  # a list has no hash, which a mapping asks for
        raise ElmoError(f"{name}: {shown(value)} is none of {', '.join(known)}")
