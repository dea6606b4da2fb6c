"""Token vectors that know no context: of whole words, and of their characters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import CharCNNConfig, CharEmbeddingConfig
from elmo.nn.char_encoder import CharEncoder, word_lengths
from elmo.tasks.common.padding import number_distinct_words, spread_out
from elmo.text.characters import encode_words

Sentences = Sequence[Sequence[str]]
UNKNOWN = 0

TOKENS_AT_ONCE = 512
"""Tokens that are convolved together, sorted by length so that short ones don't wait for long ones."""


class WordEmbedding(nn.Module):
    """A vector for each of `words`, and one for all others, zeros at first.

    A word that isn't there is looked up in lower case before it counts as unknown.
    """

    def __init__(self, words: Sequence[str], dim: int, *, trainable: bool = True) -> None:
        super().__init__()
        self.places = {word: place for place, word in enumerate(words, 1)}
        weight = torch.randn(len(words) + 1, dim) / dim**0.5
        weight[UNKNOWN] = 0  # of no direction, should no word of the training set be unknown
        self.weight = nn.Parameter(weight, requires_grad=trainable)

    @property
    def width(self) -> int:
        """Width of a vector."""
        return self.weight.shape[1]

    def place(self, word: str) -> int:
        """The row of a word's vector."""
        return self.places.get(word) or self.places.get(word.lower(), UNKNOWN)

    def forward(self, sentences: Sentences) -> Tensor:
        """(B, T, D), zeros at padding."""
        types, tokens = number_distinct_words(sentences, self.weight.device)
        rows = torch.tensor([self.place(word) for word in types], device=self.weight.device)
        return F.embedding(rows[tokens], self.weight) * (tokens > 0).unsqueeze(2)


class CharacterEmbedding(nn.Module):
    """Convolutions of `widths` over the characters (bytes) of each word, and the maximum over their places.

    `dropout` is on the vectors of the characters, before the convolutions, in training; each token has its own.
    """

    def __init__(self, dim: int, filters: int, *widths: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.dropout = filters * len(widths), dropout
        sizes = tuple((width, filters) for width in widths)
        self.encoder = CharEncoder(CharCNNConfig(CharEmbeddingConfig(dim), sizes), self.width)

    def forward(self, sentences: Sentences) -> Tensor:
        """(B, T, `width`), zeros at padding."""
        device = self.encoder.embedding.weight.device
        types, tokens = number_distinct_words(sentences, device)
        characters = torch.from_numpy(encode_words(types)).to(device)
        is_token = tokens > 0
        if self.training and self.dropout and is_token.any():
            return spread_out(self._encode_with_dropout(characters[tokens[is_token]]), is_token)
        return F.embedding(tokens, self.encoder(characters)) * is_token.unsqueeze(2)

    def _encode_with_dropout(self, characters: Tensor) -> Tensor:
        """Characters of tokens (N, C) to their vectors (N, `width`).

        The encoder looks up the product of each character with each filter, which with dropout is another one for each
        token and has to be computed.
        """
        lengths = word_lengths(characters)
        order = lengths.argsort(stable=True)
        parts = [self._convolve(characters[rows], lengths[rows]) for rows in order.split(TOKENS_AT_ONCE)]
        return torch.cat(parts)[order.argsort()]

    def _convolve(self, characters: Tensor, lengths: Tensor) -> Tensor:
        """As `_encode_with_dropout`, for tokens of about the same length. Of the windows that lie behind a token, only
        the first counts: a longer token next to it makes no difference."""
        convolutions = [module for module in self.encoder.convolutions if isinstance(module, nn.Conv1d)]
        widest = max(convolution.kernel_size[0] for convolution in convolutions)
        vectors = self.encoder.embedding(characters[:, : int(lengths.max()) + widest].long()).transpose(1, 2)
        vectors = F.dropout(vectors, self.dropout, self.training)
        maxima: list[Tensor] = []
        for convolution in convolutions:
            windows = convolution(vectors)
            is_behind = torch.arange(windows.shape[2], device=windows.device) > lengths.unsqueeze(1)
            maxima.append(windows.masked_fill(is_behind.unsqueeze(1), -torch.inf).amax(dim=2))
        return self.encoder.activation(torch.cat(maxima, dim=1))
