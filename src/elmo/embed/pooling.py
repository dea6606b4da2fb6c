"""One vector for a sentence from the vectors of its tokens."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pool = Literal["mean", "max", "first-last"]

POOLS = ("mean", "max", "first-last")


def pool_tokens(vectors: NDArray[np.float32], pool: Pool, *, bidirectional: bool = True) -> NDArray[np.float32]:
    """Pool the tokens of one sentence: (…, T, D) to (…, D). There is no padding to count: arrays hold tokens only.

    `"mean"` and `"max"` go over the tokens. `"first-last"` puts the forward half of the last token beside the
    backward half of the first one: what each direction knows once it has read the whole sentence. With one
    direction it is the last token. A sentence without tokens gives zeros.
    """
    num_tokens, width = vectors.shape[-2:]
    if num_tokens == 0:
        return np.zeros((*vectors.shape[:-2], width), dtype=np.float32)
    if pool == "mean":
        # float64, so that a sentence of thousands of tokens loses nothing
        return vectors.mean(axis=-2, dtype=np.float64).astype(np.float32)
    if pool == "max":
        return vectors.max(axis=-2)
    half = width // 2 if bidirectional else width
    return np.concatenate([vectors[..., -1, :half], vectors[..., 0, half:]], axis=-1)
