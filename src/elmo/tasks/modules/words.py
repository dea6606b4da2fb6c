"""Token vectors that know no context: of whole words, and of their characters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import CharCNNConfig, CharEmbeddingConfig
from elmo.nn.char_encoder import CharEncoder
from elmo.tasks.modules.padding import number_types
from elmo.text.characters import encode_words

Sentences = Sequence[Sequence[str]]
UNKNOWN = 0


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
        types, tokens = number_types(sentences, self.weight.device)
        rows = torch.tensor([self.place(word) for word in types], device=self.weight.device)
        return F.embedding(rows[tokens], self.weight) * (tokens > 0).unsqueeze(2)


class CharacterEmbedding(nn.Module):
    """Convolutions of `widths` over the characters (bytes) of each word, and the maximum over their places."""

    def __init__(self, dim: int, filters: int, *widths: int) -> None:
        super().__init__()
        self.width = filters * len(widths)
        sizes = tuple((width, filters) for width in widths)
        self.encoder = CharEncoder(CharCNNConfig(CharEmbeddingConfig(dim), sizes), self.width)

    def forward(self, sentences: Sentences) -> Tensor:
        """(B, T, `width`), zeros at padding."""
        device = self.encoder.embedding.weight.device
        types, tokens = number_types(sentences, device)
        vectors = self.encoder(torch.from_numpy(encode_words(types)).to(device))
        return F.embedding(tokens, vectors) * (tokens > 0).unsqueeze(2)
