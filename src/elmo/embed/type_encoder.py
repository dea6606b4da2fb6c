"""Turns words into token vectors for inference. On a processor, the weights of char encoders are packed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo.embed.kernels import Kernels, PackedLinear, kernels_for
from elmo.formats.model import ToIds
from elmo.nn.bilm import TokenEncoder
from elmo.nn.char_encoder import CharEncoder, Highway, word_lengths

Array = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Array]
"""Computes the vectors (N, P) of N words."""

TYPES_AT_ONCE = 512
"""Number of words that are encoded together: enough for products at full speed, few enough for any memory."""

TYPES_AT_ONCE_BY_MODULE = 4096
"""The same number if a module runs unpacked: higher, since it rebuilds its tables each time, and may be on a GPU."""


def make_encode(encoder: TokenEncoder, to_ids: ToIds, precision: str) -> Encode:
    """Make a function that encodes words on a processor.

    Args:
        encoder: The biLM's encoder. Only an exact `CharEncoder` is packed; any other runs unpacked, in float32.
        to_ids: Converts words to the ids that the encoder takes.
        precision: The precision of a packed encoder's products.
    """
    if isinstance(encoder, CharEncoder) and type(encoder) is CharEncoder:
        run = TypeEncoder(encoder, precision).encode
    else:
        run = partial(run_module, encoder)
    return lambda words: run(to_ids(words))


@torch.inference_mode()
def run_module(encoder: TokenEncoder, ids: NDArray[Any]) -> Array:
    """Compute the vectors (N, P) of ids (N, C) with the module, on the device where it is."""
    device = encoder.embedding.weight.device
    blocks = [encoder(block.to(device)) for block in torch.from_numpy(ids).split(TYPES_AT_ONCE_BY_MODULE)]
    return torch.cat(blocks).float().cpu().numpy()


class TypeEncoder:
    """Encodes as `CharEncoder` does, with tables and packed weights that are made once.

    A table holds what each filter computes from each character at each position of its window, so a convolution is a
    sum of look-ups. The two products of a highway layer are computed as one.
    """

    @torch.inference_mode()
    def __init__(self, encoder: CharEncoder, precision: str) -> None:
        kernels = kernels_for(precision)
        filters = encoder.filters()
        self._filters = filters._replace(biases=[bias.clone() for bias in filters.biases])
        self._highways = [_pack_highway(highway, kernels, precision) for highway in encoder.highways]
        self._projection: PackedLinear | None = None
        if encoder.projection is not None:
            weight, bias = numbers(encoder.projection.weight), numbers(encoder.projection.bias)
            self._projection = kernels.linear(weight, bias, precision)
            self._width = len(bias)

    @torch.inference_mode()
    def encode(self, ids: NDArray[Any]) -> Array:
        """Compute the vectors (N, P) of ids (N, C)."""
        return np.concatenate([self._encode(block) for block in torch.from_numpy(ids).split(TYPES_AT_ONCE)])

    def _encode(self, characters: Tensor) -> Array:
        lengths = word_lengths(characters)
        order = lengths.argsort(stable=True)
        x = self._filters.convolve(characters[order].long(), lengths[order]).float()
        num_threads = torch.get_num_threads()
        for highway in self._highways:
            both = np.empty((len(x), 2 * x.shape[1]), np.float32)
            highway.run(x.numpy(), both, num_threads)
            transformed, gate = torch.from_numpy(both).chunk(2, dim=1)
            x = torch.lerp(x, transformed.relu_(), gate.sigmoid_())
        encoded = x.numpy()
        if self._projection is not None:
            encoded = np.empty((len(x), self._width), np.float32)
            self._projection.run(x.numpy(), encoded, num_threads)
        vectors = np.empty_like(encoded)
        vectors[order.numpy()] = encoded
        return vectors


def _pack_highway(highway: torch.nn.Module, kernels: Kernels, precision: str) -> PackedLinear:
    assert isinstance(highway, Highway)
    parts = (highway.transform, highway.gate)
    weight, bias = (torch.cat([getattr(part, name) for part in parts]) for name in ("weight", "bias"))
    return kernels.linear(numbers(weight), numbers(bias), precision)


def numbers(x: Tensor) -> Array:
    """Convert a tensor to a contiguous float32 array."""
    return x.detach().float().contiguous().numpy()
