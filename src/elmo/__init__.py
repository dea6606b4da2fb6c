"""Deep contextualized word vectors (ELMo, Peters et al. 2018).

import elmo

model = elmo.load("path/to/model")
vectors = model.embed([["They", "saw", "a", "new", "play", "."]])
"""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING

from elmo.lazy import lazy_names

if TYPE_CHECKING:
    from elmo.embed import Embedder, load
    from elmo.embed.parallel import ParallelEmbedder
    from elmo.errors import ElmoError
    from elmo.formats.elmo import Elmo, batch_to_ids
    from elmo.nn.scalar_mix import ScalarMix
    from elmo.text.rules import split_sentences
    from elmo.text.tokenizers import get_tokenizer

__version__ = "0.2.0"

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
    "split_sentences": "elmo.text.rules",
}


def _end_kernels() -> None:
    if (kernel := sys.modules.get("elmo._native._kernel")) is not None:
        kernel.end()


# When Python ends, threads of the kernels must not go back to it, because its memory is being freed: they wait for the
# end of the process. Exit functions run in the reverse order of registration. So those that a program registers after
# it imported elmo may still wait for a thread that computes. Earlier ones must not: the thread would not come back.
atexit.register(_end_kernels)

# So the help of the command needn't wait for torch.
__getattr__, __dir__ = lazy_names(__name__, _HOME, "__version__")
