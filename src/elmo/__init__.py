"""Deep contextualized word vectors (ELMo, Peters et al. 2018).

import elmo

model = elmo.load("path/to/model")
vectors = model.embed([["They", "saw", "a", "new", "play", "."]])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmo.embed import Embedder, load
    from elmo.embed.parallel import ParallelEmbedder
    from elmo.errors import ElmoError
    from elmo.formats.elmo import Elmo, batch_to_ids
    from elmo.nn.scalar_mix import ScalarMix
    from elmo.text.tokenizers import get_tokenizer, split_sentences

__version__ = "0.1.0"

__all__ = [
    "Elmo",
    "ElmoError",
    "Embedder",
    "ParallelEmbedder",
    "ScalarMix",
    "batch_to_ids",
    "get_tokenizer",
    "load",
    "split_sentences",
]

_HOME = {
    "Elmo": "elmo.formats.elmo",
    "ElmoError": "elmo.errors",
    "Embedder": "elmo.embed",
    "ParallelEmbedder": "elmo.embed.parallel",
    "ScalarMix": "elmo.nn.scalar_mix",
    "batch_to_ids": "elmo.formats.elmo",
    "get_tokenizer": "elmo.text.tokenizers",
    "load": "elmo.embed",
    "split_sentences": "elmo.text.tokenizers",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that the command's help needn't wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'elmo' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
