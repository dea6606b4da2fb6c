"""Inference: turns sentences into contextual vectors, in memory or in a file."""

from elmo.embed.embedder import Embedder, load
from elmo.embed.layers import Layers
from elmo.embed.pooling import Pool, pool_tokens
from elmo.embed.writers import Written

__all__ = ["Embedder", "Layers", "Pool", "Written", "load", "pool_tokens"]
