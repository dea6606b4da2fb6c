"""The layers of the coreference model: a biLSTM, and scorers of mentions and of pairs of them (Lee et al. 2017).

The first layer of both scorers reads a concatenation. It is applied to each part separately, to words or to spans,
whichever are fewer, before the parts are added. So memory grows with the numbers of spans and pairs, but not with the
width of their vectors.

A word is in many spans, and is looked up for each by `F.embedding`. The backward pass of indexing would add in any
order, so a resumed run would not be bit-equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo.nn.packing import Packing
from elmo.nn.precision import product_dtype
from elmo.tasks.common.modules import glorot_linear

DISTANCES = (1, 2, 3, 4, 5, 8, 16, 32, 64)
"""The smallest distances of the buckets, after the bucket of distance 0."""

ROWS = {"cpu": 8, "cuda": 32}
"""The number of mentions whose antecedents are scored together, by the type of the device.

It is large enough to keep the device busy, and small enough for its memory. On a CPU, the products of 8 mentions with
all weights (about 6 MB) still fit its cache: a training step takes a fifth less time than with 32.
"""


class CoupledLSTM(nn.Module):
    """One direction: c = (1 - i) * c_prev + i * tanh(j), h = sigmoid(o) * tanh(c), with a learned initial state.

    `dropout` is on the state that the gates see, with the same mask at all words of a sentence. The weights of each
    gate start orthonormal, separately for the input and the state; biases start at zero.

    Source: Lee et al. 2017, sec. 4 and 7 ("the LSTM weights were initialized with random orthonormal matrices"). Their
    code of 2017 does so for the state only, and initializes the weights of the input as Glorot and Bengio 2010 do.
    Their code of 2018 has one orthonormal matrix for each gate, over input and state together.
    """

    def __init__(self, in_dim: int, size: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.input = nn.Linear(in_dim, 3 * size)
        self.recurrent = nn.Parameter(torch.cat([nn.init.orthogonal_(torch.empty(size, size)) for _ in range(3)], 1))
        self.hidden, self.cell = (nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, size))) for _ in range(2))
        with torch.no_grad():
            for gate in self.input.weight.split(size):
                nn.init.orthogonal_(gate)
        nn.init.zeros_(self.input.bias)

    def forward(self, x: Tensor, batch_sizes: Sequence[int]) -> Tensor:
        """Return packed outputs (N, H) of packed words (N, D), see `elmo.nn.lstm`."""
        mask = F.dropout(self.hidden.new_ones(batch_sizes[0], self.hidden.shape[1]), self.dropout, self.training)
        hidden, cell = self.hidden.expand_as(mask), self.cell.expand_as(mask)
        dtype, outputs = product_dtype(x), list[Tensor]()
        from_words = F.linear(x.to(dtype), self.input.weight.to(dtype)).to(x.dtype) + self.input.bias
        for gates in from_words.split(batch_sizes):
            rows = len(gates)
            gates = gates + (hidden[:rows] * mask[:rows]).to(dtype) @ self.recurrent.to(dtype)
            i, j, o = gates.chunk(3, dim=1)
            cell = torch.lerp(cell[:rows], j.tanh(), i.sigmoid())  # (1 - i) * cell + i * j
            hidden = o.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.cat(outputs)


class CoupledBiLSTM(nn.Module):
    """A forward and a backward `CoupledLSTM` of `size` units each, over the sentences of a document."""

    def __init__(self, in_dim: int, size: int, dropout: float) -> None:
        super().__init__()
        self.directions = nn.ModuleList(CoupledLSTM(in_dim, size, dropout) for _ in range(2))
        self.width = 2 * size

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (N, 2H) for the words of all sentences.

        Args:
            x: The words (N, D), sentence after sentence.
            lengths: The lengths of the sentences, a tensor on the CPU.
        """
        longest = int(lengths.max())
        packing = Packing.of(lengths, longest, x.device)
        starts = (lengths.cumsum(0) - lengths).to(x.device)
        halves: list[Tensor] = []
        for direction, order in zip(self.directions, packing.orders, strict=True):
            words = starts[order // longest] + order % longest
            outputs = direction(x[words], packing.batch_sizes)
            halves.append(outputs.new_zeros(outputs.shape).index_copy(0, words, outputs))
        return torch.cat(halves, dim=1)


class SpanParts(NamedTuple):
    """What N spans of up to W words are made of.

    Attributes:
        first: The index of the first word (N,).
        last: The index of the last word (N,).
        widths: The vectors of the spans' widths (N, F).
        words: The indices of the spans' words (N, W).
        weights: The attention weights of these words in the span's head (N, W), 0 after its last word.
    """

    first: Tensor
    last: Tensor
    widths: Tensor
    words: Tensor
    weights: Tensor

    def select(self, places: Tensor) -> SpanParts:
        """Return some of the spans."""
        return SpanParts(*(part[places] for part in self))


class MentionScorer(nn.Module):
    """Scores spans as mentions.

    A span is its first and last word in context, a vector of its width, and an attention-weighted mean of its words.

    Args:
        word_dim: The width D of the words' vectors.
        context_dim: The width C of the vectors of words in context.
        max_width: The largest number of words in a span.
        features: The width of the vector of a span's width.
        hidden: The widths of the hidden layers.
        dropout: The dropout of these layers and of the features.
    """

    def __init__(
        self,
        word_dim: int,
        context_dim: int,
        max_width: int,
        *,
        features: int,
        hidden: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        self.widths = make_embedding(max_width, features)
        self.head = nn.Linear(context_dim, 1)
        self.dropout = nn.Dropout(dropout)
        self.parts = [context_dim, context_dim, features, word_dim]
        self.width = sum(self.parts)
        self.first, self.rest = feed_forward(self.width, hidden, dropout)

    def split(self, context: Tensor, starts: Tensor, ends: Tensor) -> SpanParts:
        """Return the parts of spans from `starts` (N,) to `ends` (N,), exclusive, of words in context (V, C)."""
        steps = torch.arange(self.widths.num_embeddings, device=context.device)
        words = starts.unsqueeze(1) + steps
        is_inside = words < ends.unsqueeze(1)
        words = words.clamp(max=len(context) - 1)  # places after the last word of the text get a weight of 0 below
        scores = F.embedding(words, self.head(context)).squeeze(2)
        weights = scores.masked_fill(~is_inside, -torch.inf).softmax(dim=1)
        return SpanParts(starts, ends - 1, self.dropout(self.widths(ends - starts - 1)), words, weights)

    def forward(self, words: Tensor, context: Tensor, spans: SpanParts) -> Tensor:
        """Return the scores (N,) of spans as mentions, given `words` (V, D) and the same in `context` (V, C)."""
        first, last, width, head = self.first.weight.split(self.parts, dim=1)
        hidden = F.embedding(spans.first, context @ first.t()) + F.embedding(spans.last, context @ last.t())
        hidden = hidden + F.linear(spans.widths, width, self.first.bias) + _heads(words @ head.t(), spans)
        return self.rest(hidden).squeeze(1)

    def vectors(self, words: Tensor, context: Tensor, spans: SpanParts) -> Tensor:
        """Return the vectors of spans (N, `width`)."""
        ends = [F.embedding(places, context) for places in (spans.first, spans.last)]
        return torch.cat([*ends, spans.widths, _heads(words, spans)], dim=1)


class Antecedents(NamedTuple):
    """A block of the scores of pairs of mentions.

    Attributes:
        row: The index of the first mention.
        column: The index of the first antecedent.
        scores: The scores (R, C) of R mentions and C antecedents; minus infinity for pairs that are impossible.
    """

    row: int
    column: int
    scores: Tensor


class AntecedentScorer(nn.Module):
    """Scores pairs of mentions, from both vectors, their product, and the features distance, same speaker, and genre.

    Distance is counted in mentions. Only the last `max_antecedents` before a mention are scored. The score of a pair is
    the sum of both scores as mentions and of a score of the pair. Genre 0 stands for an unknown genre, and its vector
    is zero at first.

    Args:
        width: The width D of the mentions' vectors.
        num_genres: The number of genres, with the unknown one.
        max_antecedents: The largest number of antecedents that are scored for a mention.
        features: The width of the vector of each feature.
        hidden: The widths of the hidden layers.
        dropout: The dropout of these layers and of the features.
    """

    def __init__(
        self,
        width: int,
        num_genres: int,
        *,
        max_antecedents: int,
        features: int,
        hidden: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        self.max_antecedents = max_antecedents
        self.distances = make_embedding(len(DISTANCES) + 1, features)
        self.speakers = make_embedding(2, features)
        self.genres = make_embedding(num_genres, features)
        nn.init.zeros_(self.genres.weight[0])
        self.dropout = nn.Dropout(dropout)
        self.parts = [width, width, width, 3 * features]
        self.first, self.rest = feed_forward(sum(self.parts), hidden, dropout)

    def forward(self, vectors: Tensor, scores: Tensor, speakers: Tensor, genre: Tensor) -> Iterator[Antecedents]:
        """Yield the scores of all M mentions in blocks of rows.

        Args:
            vectors: The vectors of the mentions (M, D), in the order of the text.
            scores: Their scores as mentions (M,).
            speakers: The number of each mention's speaker (M,).
            genre: The number of the document's genre, a scalar.
        """
        own, other, product, features = self.first.weight.split(self.parts, dim=1)
        of_own, of_other = F.linear(vectors, own, self.first.bias), vectors @ other.t()
        places = torch.arange(len(vectors), device=vectors.device)
        rows = ROWS[vectors.device.type]
        for row in range(0, len(vectors), rows):
            column, end = max(0, row - self.max_antecedents), min(row + rows, len(vectors))
            mine, others = slice(row, end), slice(column, end)
            distances = places[mine, None] - places[others]
            found = self._features(distances, speakers[mine, None] == speakers[others], genre)
            hidden = _Products.apply(vectors[mine], product, vectors[others])
            hidden = hidden + of_own[mine, None] + of_other[others] + found @ features.t()
            pairs = self.rest(hidden).squeeze(2) + scores[mine, None] + scores[others]
            is_before = (distances > 0) & (distances <= self.max_antecedents)
            yield Antecedents(row, column, pairs.masked_fill(~is_before, -torch.inf))

    def _features(self, distances: Tensor, is_same: Tensor, genre: Tensor) -> Tensor:
        """Return the features (R, C, 3F) of pairs.

        `distances` and `is_same`, whether both mentions have the same speaker, are (R, C).
        """
        buckets = torch.bucketize(distances, torch.tensor(DISTANCES, device=distances.device), right=True)
        parts = [self.speakers(is_same.long()), self.genres(genre.expand_as(distances)), self.distances(buckets)]
        return self.dropout(torch.cat(parts, dim=2))


class _Products(torch.autograd.Function):
    """A layer w over the products of all pairs: `out[i, j, h]` is the sum over d of `x[i, d] * w[h, d] * y[j, d]`.

    Autograd would keep the products of x or y with w, or with each other, in memory. Here the backward pass computes
    them again. The matrix products are computed in the type that `elmo.nn.precision` says, sums in that of `x`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        """Return (R, C, H) for `x` (R, D), `w` (H, D) and `y` (C, D)."""
        ctx.save_for_backward(x, w, y)
        ctx.dtype = product_dtype(x)
        out = (x.unsqueeze(1) * w).to(ctx.dtype).matmul(y.to(ctx.dtype).t())
        return out.transpose(1, 2).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of `x`, `w` and `y`."""
        x, w, y = ctx.saved_tensors
        d_out = grad_outputs[0].transpose(1, 2).flatten(0, 1).to(ctx.dtype)
        d_y = d_out.t() @ (x.unsqueeze(1) * w).flatten(0, 1).to(ctx.dtype)
        d_xw = (d_out @ y.to(ctx.dtype)).to(x.dtype).unflatten(0, (len(x), len(w)))
        return (d_xw * w).sum(dim=1), d_xw.mul_(x.unsqueeze(1)).sum(dim=0), d_y.to(y.dtype)


def make_embedding(num_values: int, width: int) -> nn.Embedding:
    """Make vectors (num_values, width) of a feature, with Glorot's random initialization as published."""
    return nn.Embedding.from_pretrained(nn.init.xavier_uniform_(torch.empty(num_values, width)), freeze=False)


def feed_forward(width: int, hidden: Sequence[int], dropout: float) -> tuple[nn.Linear, nn.Sequential]:
    """Make a feed-forward network with one output: its first linear layer, and everything after it."""
    layers: list[nn.Module] = []
    for before, after in zip([width, *hidden], [*hidden, 1], strict=True):
        layers += [glorot_linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
    first, *rest = layers[:-2]
    assert isinstance(first, nn.Linear)
    return first, nn.Sequential(*rest)


def _heads(words: Tensor, spans: SpanParts) -> Tensor:
    """Return the weighted sums (N, D) of the spans' `words` (V, D), without a tensor of all words of all spans."""
    return F.embedding_bag(spans.words, words, per_sample_weights=spans.weights, mode="sum")
