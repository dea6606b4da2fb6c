"""Encodes words from their characters (Peters et al. 2018, sec. 3.4; Kim et al. 2015; Jozefowicz et al. 2016).

A word of C characters with vectors e becomes a vector in four steps:

    windows    v[f, t] = sum_i  w[f, i] . e[t + i]          (for filters f of each width, at each place t)
    maxima     x[f] = activation(max_t v[f, t] + b[f])
    highways   x = g * relu(W_t x + b_t) + (1 - g) * x,     g = sigmoid(W_g x + b_g)
    projection y = W_p x + b_p                              (N, P)

The ids of characters are those of the published models, all higher by 1, so that id 0 is left for the mask of padded
tokens (`elmo.text.characters`). Row 0 of the character vectors is zero and stays so in training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo._native import training_kernels
from elmo.config import CharCNNConfig
from elmo.errors import ElmoError
from elmo.nn.highway import Highway
from elmo.nn.memory import LayerMemory
from elmo.nn.precision import as_arrays, uses_native

TYPES_AT_ONCE, TYPES_AT_ONCE_ON_GPU = 128, 1024
"""How many types are convolved at a time, on a CPU and on a GPU.

Types are sorted by length, so that short words in a block of their own are not padded to the length of long ones. On a
CPU, a block is small enough that all its windows stay in the cache of a core; on a GPU, large enough to keep it busy.
"""

ACTIVATIONS = {"relu": F.relu, "tanh": torch.tanh}
"""The functions after the maxima, by their names in `CharCNNConfig`."""


class CharEncoder(nn.Module):
    """Encodes words by character vectors, convolutions, a maximum over positions, highways and a projection.

    The vector of a word depends on its characters alone, so callers pass each distinct word (type) once.

    Args:
        config: The sizes of the encoder.
        out_dim: The width of the vectors, P. There is no projection if the filters already give this width.

    Source:
        Peters et al. 2018, sec. 3.4; Kim et al. 2015; Jozefowicz et al. 2016.
    """

    def __init__(self, config: CharCNNConfig, out_dim: int) -> None:
        super().__init__()
        dim, features = config.embedding.dim, config.num_filters
        self.activation = config.activation
        self.max_characters = config.max_characters_per_token
        self.embedding = nn.Embedding(config.n_characters, dim, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(dim, count, width) for width, count in config.filters)
        self.highways = nn.ModuleList(Highway(features) for _ in range(config.n_highway))
        self.projection = nn.Linear(features, out_dim) if features != out_dim else None
        self._initialize(config)

    @torch.no_grad()
    def _initialize(self, config: CharCNNConfig) -> None:
        """Set the initial values of the published training."""
        # A seed gives the same weights only as long as the order of these draws stays the same.
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        self.embedding.weight[0] = 0.0
        for convolution, (width, _) in zip(self.convolutions, config.filters, strict=True):
            assert isinstance(convolution, nn.Conv1d)
            if config.activation == "relu":
                nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                nn.init.normal_(convolution.weight, std=1 / math.sqrt(width * config.embedding.dim))
        for highway in self.highways:
            assert isinstance(highway, Highway)
            nn.init.normal_(highway.transform.weight, std=1 / math.sqrt(config.num_filters))
            nn.init.normal_(highway.gate.weight, std=1 / math.sqrt(config.num_filters))
            # Gates begin almost closed (sigmoid(-2) is 0.12), so that a new network passes its features on unchanged.
            nn.init.constant_(highway.gate.bias, -2.0)
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=1 / math.sqrt(config.num_filters))
        for name, parameter in self.named_parameters():
            if name.endswith("bias") and "gate" not in name:
                nn.init.zeros_(parameter)

    def forward(self, characters: Tensor, memory: Sequence[LayerMemory] = ()) -> Tensor:
        """Encode N types as vectors (N, P).

        Args:
            characters: Character ids as in `elmo.text.characters`, (N, C), of any integer type. The ids of a masked
                token are 0; it gets a vector like any other, which callers must leave out.
            memory: The memory that the caller keeps from one batch to the next, if any: first that of the convolutions,
                then that of each highway. Without it, each call takes fresh memory.

        Raises:
            ElmoError: If C is not the model's, as long words would then be cut at another place than in training; or,
                on the CPU, if an id is not one of the model's characters.
        """
        if characters.shape[1] != self.max_characters:
            raise ElmoError(
                f"`inputs`: {characters.shape[1]} characters per word, but the model reads {self.max_characters}; make "
                f"them with elmo.batch_to_ids(sentences, {self.max_characters})"
            )
        if characters.is_cpu and characters.numel():  # on a GPU, looking at numbers would wait for it
            low, high = (int(bound) for bound in characters.aminmax())
            if low < 0 or high >= self.embedding.num_embeddings:
                raise ElmoError(
                    f"`inputs`: contain the id {low if low < 0 else high}, but the model's characters have the ids 0 "
                    f"to {self.embedding.num_embeddings - 1}; make them with elmo.batch_to_ids"
                )
        # Types are sorted by length, so that those of a block need about the same number of windows.
        lengths = word_lengths(characters)
        order = lengths.argsort(stable=True)
        first, *others = memory or [None] * (1 + len(self.highways))
        x = self.filters().convolve(characters[order].long(), lengths[order], first)
        for highway, part in zip(self.highways, others, strict=True):
            x = highway(x, part)
        x = x if self.projection is None else self.projection(x).type_as(x)
        # Back into the given order, by a look-up: the backward pass of indexing adds in any order, so a resumed run
        # would not be bit-equal.
        return F.embedding(order.argsort(), x)

    def filters(self) -> Filters:
        """Compute the tables of the convolutions from the current weights."""
        # Calling the module, unlike using its weight, keeps row 0 (the mask's) without gradient by its `padding_idx`.
        alphabet = self.embedding(torch.arange(self.embedding.num_embeddings, device=self.embedding.weight.device))
        tables: list[Tensor] = []
        biases: list[Tensor] = []
        # Without autocast, because a window's value is the sum of several rows of a table, and sums stay float32.
        with torch.autocast(alphabet.device.type, enabled=False):
            for convolution in self.convolutions:
                assert isinstance(convolution, nn.Conv1d)
                assert convolution.bias is not None
                tables.append(torch.einsum("ad,fdi->iaf", alphabet, convolution.weight).contiguous())
                biases.append(convolution.bias)
        return Filters(tables, biases, self.activation)


class Filters(NamedTuple):
    """Convolutions as look-ups: the product of each filter with each character at each place of its window.

    Attributes:
        tables: For each width the products, (width, A, F) for A characters and F filters.
        biases: For each width the filters' biases, (F,).
        activation: The name of the function that is applied to the maxima, of `ACTIVATIONS`.
    """

    tables: list[Tensor]
    biases: list[Tensor]
    activation: str

    def convolve(self, characters: Tensor, lengths: Tensor, memory: LayerMemory | None = None) -> Tensor:
        """Compute the features of types.

        All windows that lie wholly inside the padding of a word have the same value. Therefore only as many columns of
        padding are read as the widest filter has: they keep all windows that overlap the word, and one inside the
        padding if there was one. The columns after them cannot change the maximum.

        Args:
            characters: The character ids of the types, sorted by length, (N, C).
            lengths: The length of each type without padding, (N,), rising.
            memory: The memory that the caller keeps from one batch to the next, if any.

        Returns:
            The features of all widths side by side, (N, F) for F filters in all.
        """
        if not len(characters):
            return self.tables[0].new_zeros(0, sum(map(len, self.biases)))
        if uses_native(self.tables[0], self.tables[0].dtype):
            arguments = characters.int(), lengths.int(), self.activation, memory or LayerMemory()
            return _NativeFeatures.apply(*arguments, *self.tables, *self.biases)  # pyright: ignore[reportReturnType]
        widest = max(map(len, self.tables))
        # The lengths are fetched from the device all at once: each fetch waits for the device.
        blocks = lengths.split(TYPES_AT_ONCE if lengths.is_cpu else TYPES_AT_ONCE_ON_GPU)
        longest = torch.stack([block[-1] for block in blocks]).tolist()
        sizes = [(len(block), length + widest) for block, length in zip(blocks, longest, strict=True)]
        maxima: list[Tensor] = []
        for table, bias in zip(self.tables, self.biases, strict=True):
            # Bias and activation come after the maximum. They never fall as their input rises, so the maximum stays in
            # the same window, and they can be computed once per filter instead of once per window.
            found = _WindowMaximum.apply(table, characters, lengths, sizes)
            maxima.append(found + bias)  # pyright: ignore[reportOperatorIssue]
        return ACTIVATIONS[self.activation](torch.cat(maxima, dim=1))


def word_lengths(characters: Tensor) -> Tensor:
    """Return the length (N,) of each word (N, C) without its padding, the equal ids at its end.

    The padding may be any id, because some callers pad with zeros; it may also occur inside of a word.
    """
    places = torch.arange(1, characters.shape[1] + 1, device=characters.device)
    return ((characters != characters[:, -1:]) * places).amax(dim=1)


class _WindowMaximum(torch.autograd.Function):
    """The convolutions of one filter width over each word, and the maximum of each filter over the word's windows.

    There are only A characters, so a convolution is a sum of look-ups: the product of the filters with character a at
    place i of a window is one of the `width * A` rows of a table. Only the window with the maximum has a gradient, so
    the backward pass touches `width` rows per word and filter, however long the word is. With 1,400 types and one
    thread, this takes torch 40 ms where convolutions and their gradients take 170 (`mini`).
    """

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, characters: Tensor, lengths: Tensor, sizes: Sequence[tuple[int, int]]
    ) -> Tensor:
        """Return the maxima (N, F).

        Arguments are `table` (width, A, F), `characters` (N, C) and their `lengths` (N,), and the `sizes` of blocks.
        """
        width, alphabet, num_filters = table.shape
        rows_of_table = table.flatten(0, 1)
        shift = alphabet * torch.arange(width, device=table.device)
        maxima = table.new_empty(len(characters), num_filters)
        wanted = ctx.needs_input_grad[0]
        places = torch.empty(maxima.shape if wanted else (0, 0), dtype=torch.uint8, device=table.device)
        for rows, columns in _blocks(sizes):
            # A window is a bag of `width` rows: character a at place i has row i * A + a.
            windows = characters[rows, :columns].unfold(1, width, 1) + shift
            values = F.embedding_bag(windows.flatten(0, 1), rows_of_table, mode="sum").unflatten(0, windows.shape[:2])
            torch.amax(values, dim=1, out=maxima[rows])
            if wanted:
                places[rows] = _first_equal(values, maxima[rows])
        ctx.save_for_backward(table, characters, places)
        ctx.sizes = sizes
        return maxima

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Return the gradient of the table."""
        table, characters, places = ctx.saved_tensors
        d_table = torch.zeros_like(table)
        for rows, _ in _blocks(ctx.sizes):
            # The window that begins at `place` read `place + offset` as its character at `offset`.
            gradient, place = grad_outputs[0][rows], places[rows].long()
            for offset, d_rows in enumerate(d_table):
                d_rows.scatter_add_(0, characters[rows].gather(1, place + offset), gradient)
        return d_table, None, None, None


class _NativeFeatures(torch.autograd.Function):
    """What `_WindowMaximum`, the biases and the activation compute, of all filter widths, by native kernels.

    They keep a word's sums in registers, and take a third of the time of `_WindowMaximum` alone.
    """

    @staticmethod
    def forward(
        ctx: Any,
        characters: Tensor,
        lengths: Tensor,
        activation: str,
        memory: LayerMemory,
        *weights: Tensor,
    ) -> Tensor:
        """Return the features (N, F) of `characters` (N, C), given the tables of all widths and then their biases."""
        tables, biases = weights[: len(weights) // 2], weights[len(weights) // 2 :]
        ctx.activation = activation
        out = memory.take("out", (len(characters), sum(map(len, biases))), tables[0])
        ctx.offsets = [0, *accumulate(map(len, biases))]
        places: list[Tensor] = []
        for number, (table, bias, offset) in enumerate(zip(tables, biases, ctx.offsets, strict=False)):
            places.append(memory.take(f"places_{number}", (len(characters), len(bias)), table, torch.uint8))
            arrays = as_arrays(table=table, bias=bias, ids=characters, lengths=lengths, out=out, places=places[-1])
            training_kernels.find_maxima(
                **arrays, offset=offset, activation=ctx.activation, num_threads=torch.get_num_threads()
            )
        ctx.save_for_backward(characters, out, *tables, *places)
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the tables and of the biases."""
        characters, out, *rest = ctx.saved_tensors
        d_out, tables, places = grad_outputs[0].contiguous(), rest[: len(rest) // 2], rest[len(rest) // 2 :]
        d_tables = [torch.zeros_like(table) for table in tables]
        d_biases = [table.new_zeros(table.shape[2]) for table in tables]
        for d_table, d_bias, where, offset in zip(d_tables, d_biases, places, ctx.offsets, strict=False):
            arrays = as_arrays(out=out, d_out=d_out, ids=characters, places=where, d_table=d_table, d_bias=d_bias)
            training_kernels.add_to_table(
                **arrays, offset=offset, activation=ctx.activation, num_threads=torch.get_num_threads()
            )
        return *(None,) * 4, *d_tables, *d_biases


def _blocks(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[slice, int]]:
    """Yield the rows of each block and how many of its columns are read."""
    start = 0
    for rows, columns in sizes:
        yield slice(start, start + rows), columns
        start += rows


def _first_equal(values: Tensor, maxima: Tensor) -> Tensor:
    """Return where along dimension 1 `values` (N, W, F) first reach their `maxima` (N, F), as uint8.

    This equals `values.max(dim=1).indices`, which takes several times as long. For NaN it is the last place.
    """
    # The places are numbered backwards, in bytes: where several windows have the maximum, the first has the highest
    # number. A byte is enough, because no model reads more than 255 characters (`config.MAX_CHARACTERS`).
    num = values.shape[1]
    backwards = torch.arange(num, 0, -1, dtype=torch.uint8, device=values.device).unsqueeze(1)
    return num - ((values == maxima.unsqueeze(1)).view(torch.uint8) * backwards).amax(dim=1).clamp(min=1)


class WordCharEncoder(CharEncoder):
    """Encodes a word by its own vector and the features of its characters, concatenated and projected together.

    This is the token encoder of ELMoForManyLangs, whose characters are those of Unicode instead of bytes. A lexicon
    (`elmo.text.vocabulary.Lexicon`) numbers its characters and the words that have a vector.

    Args:
        config: The sizes of the char encoder. Its `n_characters`, the number of byte ids, is not used.
        num_characters: The number of rows of the character embedding.
        num_words: The number of words that have a vector.
        word_dim: The width of those vectors; 0 if words have none.
        out_dim: The width of the result, P.

    Source:
        Che et al. 2018.
    """

    def __init__(self, config: CharCNNConfig, num_characters: int, num_words: int, word_dim: int, out_dim: int) -> None:
        # Given the width of its filters, the base class makes no projection: `joint_projection` maps both parts.
        super().__init__(config, config.num_filters)
        self.embedding = nn.Embedding(num_characters, config.embedding.dim, padding_idx=0)
        self.words = nn.Embedding(num_words, word_dim) if word_dim else None
        self.joint_projection = nn.Linear(word_dim + config.num_filters, out_dim)

    def forward(self, characters: Tensor, memory: Sequence[LayerMemory] = ()) -> Tensor:
        """Encode N types as vectors (N, P).

        Args:
            characters: The id of each word and then the ids of its characters, (N, 1+C), as `Lexicon.encode` gives
                them.
            memory: As for `CharEncoder`.

        Raises:
            ElmoError: If these are the ids of bytes (N, C), which other models read.
        """
        if characters.shape[1] != 1 + self.max_characters:
            raise ElmoError(
                "a model of ELMoForManyLangs reads ids from its own lexicon, not the ids of bytes from batch_to_ids"
            )
        features = super().forward(characters[:, 1:], memory)
        if self.words is not None:
            features = torch.cat([self.words(characters[:, 0].long()).type_as(features), features], dim=1)
        return self.joint_projection(features)
