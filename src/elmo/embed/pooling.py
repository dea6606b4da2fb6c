"""Pools the vectors of a sentence's tokens into one vector."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmo.schema import require_choice

Pool = Literal["mean", "max", "first-last"]
"""How to reduce a sentence to one vector; see `pool_tokens`."""

POOLS: tuple[str, ...] = get_args(Pool)


def pool_tokens(vectors: NDArray[np.float32], pool: Pool, *, bidirectional: bool = True) -> NDArray[np.float32]:
    """Pool the token vectors of one sentence into a single vector.

    Args:
        vectors: (…, T, D) vectors of the tokens of one sentence, without padding.
        pool: `"mean"` and `"max"` are taken over the tokens. `"first-last"` joins the forward half of the last token
            to the backward half of the first token: the outputs of each direction after it has read the whole
            sentence.
        bidirectional: Whether a vector has two halves. Without them, `"first-last"` is the last token.

    Returns:
        (…, D) vectors; zeros if the sentence has no tokens.

    Raises:
        ElmoError: If there is no such pool.
    """
    require_choice("`pool`", pool, POOLS)
    num_tokens, width = vectors.shape[-2:]
    if num_tokens == 0:
        return np.zeros((*vectors.shape[:-2], width), dtype=np.float32)
    if pool == "mean":
        # Sum in float64, so that a sentence of thousands of tokens loses no digits.
        return vectors.mean(axis=-2, dtype=np.float64).astype(np.float32)
    if pool == "max":
        return vectors.max(axis=-2)
    half = width // 2 if bidirectional else width
    return np.concatenate([vectors[..., -1, :half], vectors[..., 0, half:]], axis=-1)
