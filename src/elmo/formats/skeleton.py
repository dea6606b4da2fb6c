"""Makes modules on the meta device, without memory, to be filled from a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from elmo.config import BiLMConfig
from elmo.errors import ElmoError
from elmo.nn.bilm import BiLM

M = TypeVar("M", bound=nn.Module)

MOST_LAYERS, WIDEST, MOST_WORDS = 256, 1 << 20, 1 << 28
"""Far beyond any real model. Options that ask for more would cost time and memory before any tensor is looked at."""


class _NoRandomNumbers(TorchFunctionMode):
    """Skips random initial values. They have no effect on the meta device, but make torch import its compiler (1 s)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", None) in ("uniform_", "normal_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def skeleton(make: Callable[[], M]) -> M:
    """Return the module that `make` makes, with its tensors on the meta device: shapes without values."""
    with torch.device("meta"), _NoRandomNumbers():
        return make()


def bilm_skeleton(config: BiLMConfig, where: Path) -> BiLM:
    """Make a biLM on the meta device.

    Args:
        config: Its sizes.
        where: The file that the sizes come from, for messages.

    Raises:
        ElmoError: If a size is beyond any real model.
    """
    cnn, lstm = config.char_cnn, config.lstm
    sizes = [("lstm.n_layers", lstm.n_layers, MOST_LAYERS), ("lstm.dim", lstm.dim, WIDEST)]
    if cnn is not None:
        sizes += [
            ("char_cnn.n_highway", cnn.n_highway, MOST_LAYERS),
            ("number of char_cnn.filters", len(cnn.filters), MOST_LAYERS),
            ("char_cnn.embedding.dim", cnn.embedding.dim, WIDEST),
            ("sum of char_cnn.filters", cnn.num_filters, WIDEST),
        ]
    if config.n_tokens_vocab is not None:
        sizes.append(("n_tokens_vocab", config.n_tokens_vocab, MOST_WORDS))
    for name, size, most in sizes:
        if size > most:
            raise ElmoError(f"{where}: {name}: {size} is beyond any real model (at most {most})")
    return skeleton(lambda: BiLM(config))
