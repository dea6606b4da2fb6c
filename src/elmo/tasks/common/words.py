"""Token vectors without context: one for each word, and one computed from its characters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import CharCNNConfig, CharEmbeddingConfig
from elmo.nn.char_encoder import CharEncoder, word_lengths
from elmo.tasks.common.batches import number_distinct_words, spread_out
from elmo.text.characters import encode_words

Sentences = Sequence[Sequence[str]]
UNKNOWN = 0

TOKENS_AT_ONCE = 512
"""The number of tokens that are convolved together.

They are sorted by length, so that short ones are not padded to the length of long ones.
"""


class WordEmbedding(nn.Module):
    """A vector for each of `words`, and one for all other words, which is zeros at first.

    A word that is not among them is looked up in lower case before it counts as unknown.

    Args:
        words: The words.
        dim: The width of a vector.
        trainable: Whether vectors are trained.
    """

    def __init__(self, words: Sequence[str], dim: int, *, trainable: bool = True) -> None:
        super().__init__()
        self.places = {word: place for place, word in enumerate(words, 1)}
        weight = torch.randn(len(words) + 1, dim) / dim**0.5
        weight[UNKNOWN] = 0  # neutral, because it is never trained if the training set has no unknown word
        self.weight = nn.Parameter(weight, requires_grad=trainable)

    @property
    def width(self) -> int:
        """The width of a vector."""
        return self.weight.shape[1]

    def place(self, word: str) -> int:
        """Return the row of a word's vector."""
        return self.places.get(word) or self.places.get(word.lower(), UNKNOWN)

    def forward(self, sentences: Sentences) -> Tensor:
        """Return the vectors of the tokens (B, T, D), zeros at padding."""
        types, tokens = number_distinct_words(sentences, self.weight.device)
        rows = torch.tensor([self.place(word) for word in types], device=self.weight.device)
        return F.embedding(rows[tokens], self.weight) * (tokens > 0).unsqueeze(2)


class CharacterEmbedding(nn.Module):
    """Convolutions over the characters (bytes) of each word, followed by the maximum over all positions.

    Args:
        dim: The width of a character's vector.
        filters: The number of filters of each width.
        widths: The widths of the convolutions.
        dropout: Dropout of the characters' vectors, before the convolutions. Each token has its own mask.
    """

    def __init__(self, dim: int, filters: int, *widths: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.dropout = filters * len(widths), dropout
        sizes = tuple((width, filters) for width in widths)
        self.encoder = CharEncoder(CharCNNConfig(CharEmbeddingConfig(dim), sizes), self.width)

    def forward(self, sentences: Sentences) -> Tensor:
        """Return the vectors of the tokens (B, T, `width`), zeros at padding."""
        device = self.encoder.embedding.weight.device
        types, tokens = number_distinct_words(sentences, device)
        characters = torch.from_numpy(encode_words(types)).to(device)
        is_token = tokens > 0
        if self.training and self.dropout and is_token.any():
            return spread_out(self._encode_with_dropout(characters[tokens[is_token]]), is_token)
        return F.embedding(tokens, self.encoder(characters)) * is_token.unsqueeze(2)

    def _encode_with_dropout(self, characters: Tensor) -> Tensor:
        """Encode the characters of tokens (N, C) as vectors (N, `width`).

        The encoder looks up the product of each character with each filter. With dropout that product differs from
        token to token, so it has to be computed.
        """
        lengths = word_lengths(characters)
        order = lengths.argsort(stable=True)
        parts = [self._convolve(characters[rows], lengths[rows]) for rows in order.split(TOKENS_AT_ONCE)]
        return torch.cat(parts)[order.argsort()]

    def _convolve(self, characters: Tensor, lengths: Tensor) -> Tensor:
        """Do the work of `_encode_with_dropout` for tokens of about the same length.

        Of the windows behind the end of a token only the first counts, so that longer tokens in the batch make no
        difference.
        """
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
