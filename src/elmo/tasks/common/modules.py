"""The modules that several task models are built from: word and character vectors, biLSTMs, pooling, attention."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import CharCNNConfig, CharEmbeddingConfig, LSTMConfig
from elmo.nn.char_encoder import ACTIVATIONS, CharEncoder, word_lengths
from elmo.nn.lstm import LSTMLayer
from elmo.nn.packing import Packing
from elmo.tasks.common.batches import number_distinct_words, spread_out
from elmo.tasks.recipe import CharactersConfig, CharacterWidthsConfig, WordsConfig
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
        config: Their width, and whether they are trained.
        dropout: The share of tokens whose word counts as unknown in training, which trains the vector of unknown words.
    """

    def __init__(self, words: Sequence[str], config: WordsConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.places = {word: place for place, word in enumerate(words, 1)}
        # Vectors have a length of about 1, however wide they are. The one of unknown words is zeros, which are neutral:
        # it is never trained if the training set has no unknown word.
        weight = torch.randn(len(words) + 1, config.dim) / config.dim**0.5
        weight[UNKNOWN] = 0
        self.weight = nn.Parameter(weight, requires_grad=config.are_trained)

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
        # Padding is looked up as the empty word, whose vector may be that of unknown words: the mask sets it to zeros.
        places = rows[tokens]
        if self.training and self.dropout:
            places = places.masked_fill(torch.rand(places.shape, device=places.device) < self.dropout, UNKNOWN)
        return F.embedding(places, self.weight) * (tokens > 0).unsqueeze(2)


class CharacterEmbedding(nn.Module):
    """Convolutions over the characters (bytes) of each word, followed by the maximum over all positions.

    Args:
        config: The sizes of the convolutions.
        dropout: Dropout of the characters' vectors, before the convolutions. Each token has its own mask.
    """

    def __init__(self, config: CharactersConfig | CharacterWidthsConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.dropout = config.filters * len(config.widths), dropout
        sizes = tuple((width, config.filters) for width in config.widths)
        self.encoder = CharEncoder(CharCNNConfig(CharEmbeddingConfig(config.dim), sizes), self.width)

    def forward(self, sentences: Sentences) -> Tensor:
        """Return the vectors of the tokens (B, T, `width`), zeros at padding."""
        device = self.encoder.embedding.weight.device
        types, tokens = number_distinct_words(sentences, device)
        characters = torch.from_numpy(encode_words(types)).to(device)
        is_token = tokens > 0
        if self.training and self.dropout and is_token.any():
            # Each token has its own dropout, so that two tokens of the same word can't share a vector.
            return spread_out(self._encode_with_dropout(characters[tokens[is_token]]), is_token)
        return F.embedding(tokens, self.encoder(characters)) * is_token.unsqueeze(2)

    def _encode_with_dropout(self, characters: Tensor) -> Tensor:
        """Encode the characters of tokens (N, C) as vectors (N, `width`).

        The encoder looks up the product of each character with each filter. With dropout that product differs from
        token to token, so it has to be computed.
        """
        convolutions = [module for module in self.encoder.convolutions if isinstance(module, nn.Conv1d)]
        widest = max(convolution.kernel_size[0] for convolution in convolutions)
        lengths = word_lengths(characters)
        order = lengths.argsort(stable=True)
        parts: list[Tensor] = []
        for rows in order.split(TOKENS_AT_ONCE):
            own = lengths[rows]
            vectors = self.encoder.embedding(characters[rows][:, : int(own.max()) + widest].long()).transpose(1, 2)
            vectors = F.dropout(vectors, self.dropout, self.training)
            maxima: list[Tensor] = []
            for convolution in convolutions:
                windows = convolution(vectors)
                # Next to a long token, a short one has many windows that hold only padding. Dropout makes these differ,
                # so their maximum would grow with their number: only the first of them counts.
                is_behind = torch.arange(windows.shape[2], device=windows.device) > own.unsqueeze(1)
                maxima.append(windows.masked_fill(is_behind.unsqueeze(1), -torch.inf).amax(dim=2))
            parts.append(ACTIVATIONS[self.encoder.activation](torch.cat(maxima, dim=1)))
        return torch.cat(parts)[order.argsort()]


class BiLSTM(nn.Module):
    """A forward and a backward LSTM of `size` hidden units each.

    Both are layers of the same class as the biLM's (`LSTMLayer`), without projection and clipping. On a CPU they also
    run as the biLM's do: a training step takes a third less time than with PyTorch's LSTM, which fills a gradient of
    the whole batch at each step of packed sentences. On a GPU, torch's LSTM (cuDNN) runs both directions at once, in
    float32 for every `training.precision` of a recipe. Launching each step from Python would take most of the time
    there. cuDNN rounds the operands of products to the ten bits of TF32, unless `torch.backends.cudnn.allow_tf32` is
    False.
    """

    def __init__(self, in_dim: int, size: int) -> None:
        super().__init__()
        self.directions = nn.ModuleList(LSTMLayer(in_dim, LSTMConfig(size, size)) for _ in range(2))
        self.size, self.width = size, 2 * size

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Return the outputs (B, T, 2H) for `x` (B, T, D), zeros at padding."""
        if x.is_cuda and packing.batch_sizes:  # cuDNN can't run a batch without any token
            return packing.unpack(self._run_in_torch(packing.pack(x, 0), packing.batch_sizes), 0)
        # Without projection, outputs are as wide as cells: one tensor of zeros serves as the initial state of both.
        state = x.new_zeros(len(packing.rows), self.size)
        halves: list[Tensor] = []
        for number, direction in enumerate(self.directions):
            outputs, _ = direction(packing.pack(x, number), packing.batch_sizes, state, state)
            halves.append(packing.unpack(outputs, number))
        return torch.cat(halves, dim=2)

    def _run_in_torch(self, packed: Tensor, batch_sizes: Sequence[int]) -> Tensor:
        """Return the outputs (N, 2H) of both directions, packed in forward order like `packed` (N, D)."""
        forward, backward = (cast("LSTMLayer", layer).torch_weights() for layer in self.directions)
        state = packed.new_zeros(2, batch_sizes[0], self.size)
        with scattered_weights():
            outputs, _, _ = torch.lstm(
                packed,
                torch.tensor(batch_sizes, device="cpu"),  # whatever torch's default device is: it is read on the host
                (state, state),
                [*forward, *backward],
                has_biases=True,
                num_layers=1,
                dropout=0.0,
                train=torch.is_grad_enabled(),
                bidirectional=True,
            )
        return outputs


@contextmanager
def scattered_weights() -> Generator[None]:
    """Don't warn about an RNN whose weights are not in one piece of memory. cuDNN copies them into one at each call."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        yield


class BiLSTMs(nn.Module):
    """A stack of bidirectional LSTMs, with `sizes` hidden units in each direction.

    Variational `dropout` is applied to the input of each.
    """

    def __init__(self, in_dim: int, sizes: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        widths = [in_dim, *(2 * size for size in sizes)]
        self.layers = nn.ModuleList(BiLSTM(width, size) for width, size in zip(widths, sizes, strict=False))
        self.width = widths[-1]

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (B, T, 2H) of the last layer, zeros at padding.

        Args:
            x: The input (B, T, D).
            lengths: The lengths (B,), a tensor on the CPU. Zero is allowed, even for all of them.
        """
        packing = Packing.of(lengths, x.shape[1], x.device)
        for layer in self.layers:
            x = layer(variational_dropout(x, self.dropout, self.training), packing)
        return x


def glorot_linear(in_dim: int, out_dim: int) -> nn.Linear:
    """Make a linear layer with the initialization of Glorot and Bengio 2010, and a bias of zero."""
    layer = nn.Linear(in_dim, out_dim)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def variational_dropout(x: Tensor, share: float, training: bool) -> Tensor:
    """Drop the same elements at all tokens of a sentence (Gal and Ghahramani 2016, sec. 4). `x` is (B, T, D)."""
    return x * F.dropout(torch.ones_like(x[:, :1]), share, training) if training and share else x


def pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean and the maximum over the tokens of each row, concatenated: (B, 2D).

    Args:
        x: The tokens (B, T, D).
        mask: Bool (B, T), true at tokens; at least one in each row.
    """
    # Zeros at padding would do for the sum, but not for the maximum, since all values of a sentence may be negative.
    is_token = mask.unsqueeze(2)
    mean = (x * is_token).sum(dim=1) / is_token.sum(dim=1)
    return torch.cat([mean, x.masked_fill(~is_token, -torch.inf).amax(dim=1)], dim=1)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the last axis where `mask` (bool, broadcast to `scores`) is true, and 0 elsewhere.

    Where the mask is false along the whole axis, the weights are equal.
    """
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)


class AttentivePooling(nn.Module):
    """The mean, maximum and minimum over the tokens, and a mean weighted by a learned score of each token.

    Source: McCann et al. 2017, sec. 5.
    """

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        self.width = 4 * in_dim
        self.score = nn.Linear(in_dim, 1, bias=False)  # the softmax cancels the bias that the paper has

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool `x` (B, T, D) to (B, 4D). `mask` is bool (B, T), true at tokens; at least one in each row."""
        least = x.masked_fill(~mask.unsqueeze(2), torch.inf).amin(dim=1)
        weights = masked_softmax(self.score(x).squeeze(2), mask)
        attended = (weights.unsqueeze(1) @ x).squeeze(1)
        return torch.cat([pool(x, mask), least, attended], dim=1)
