"""Modules without memory, to be filled from a file."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

M = TypeVar("M", bound=nn.Module)


class _NoRandomNumbers(TorchFunctionMode):
    """Leaves random initial values out. Without memory they are nothing, yet make torch import its compiler (1 s)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", None) in ("uniform_", "normal_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def skeleton(make: Callable[[], M]) -> M:
    """What `make` makes, its tensors on the meta device: shapes without values."""
    with torch.device("meta"), _NoRandomNumbers():
        return make()
