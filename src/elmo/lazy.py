"""Public names of a package that are imported only when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy_names(
    package: str, homes: Mapping[str, str], *others: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the functions `__getattr__` and `__dir__` of a package (PEP 562).

    Type checkers know the names only from imports under `TYPE_CHECKING` in the package itself.

    Args:
        package: The name of the package, for the message about a name that it does not have.
        homes: Each public name, and the module that it is imported from.
        others: Further names for `dir`, which the package has from the start.
    """

    def getattr_(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return getattr_, lambda: [*homes, *others]
