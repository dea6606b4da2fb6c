"""From characters to token vectors (Peters et al. 2018, sec. 3.4; Kim et al. 2015; Jozefowicz et al. 2016)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import PADDING, CharCNNConfig

TYPES_AT_ONCE = 512
"""Types that are convolved together, sorted by length so that short words don't wait for long ones."""

_ACTIVATIONS = {"relu": F.relu, "tanh": torch.tanh}


class Highway(nn.Module):
    """`g * relu(W_t x + b_t) + (1 - g) * x` with `g = sigmoid(W_c x + b_c)` (Srivastava et al. 2015).

    `gate` is what published files call *carry*: it lets the transformed part through, not the input.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) to (N, F)."""
        return torch.lerp(x, F.relu(self.transform(x)), torch.sigmoid(self.gate(x)))


class CharEncoder(nn.Module):
    """Character vectors, 1-d convolutions of several widths, max over positions, highways, projection.

    A word's vector depends on its characters alone, so callers pass each distinct word (type) once.
    """

    def __init__(self, config: CharCNNConfig, out_dim: int) -> None:
        super().__init__()
        dim, features = config.embedding.dim, config.num_filters
        self.activation = _ACTIVATIONS[config.activation]
        self.max_width = max(width for width, _ in config.filters)
        self.embedding = nn.Embedding(config.n_characters, dim, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(dim, count, width) for width, count in config.filters)
        self.highways = nn.ModuleList(Highway(features) for _ in range(config.n_highway))
        self.projection = nn.Linear(features, out_dim) if features != out_dim else None
        self._initialize(config)

    @torch.no_grad()
    def _initialize(self, config: CharCNNConfig) -> None:
        """Initial values of the published training."""
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
            nn.init.constant_(highway.gate.bias, -2.0)
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=1 / math.sqrt(config.num_filters))
        for name, parameter in self.named_parameters():
            if name.endswith("bias") and "gate" not in name:
                nn.init.zeros_(parameter)

    def forward(self, characters: Tensor) -> Tensor:
        """Encode types.

        `characters` is (N, C) of any integer type, ids as in `elmo.text.characters`, 0 for a masked token's
        (which gets a vector like any other: callers leave it out). Returns (N, P).
        """
        lengths = ((characters != PADDING + 1) & (characters != 0)).sum(dim=1)
        order = lengths.argsort(stable=True)
        blocks = zip(characters[order].split(TYPES_AT_ONCE), lengths[order].split(TYPES_AT_ONCE), strict=True)
        x = torch.cat([self._convolve(block, int(length[-1])) for block, length in blocks])
        for highway in self.highways:
            x = highway(x)
        x = x if self.projection is None else self.projection(x)
        return F.embedding(order.argsort(), x)

    def _convolve(self, characters: Tensor, longest: int) -> Tensor:
        """The features of types of at most `longest` characters: (N, C) to (N, F).

        A window wholly inside the padding has one value per filter, wherever it lies. As many padding columns as
        the widest filter keep one such window for each word that had one, and all that overlap the word; the
        columns beyond change no maximum and are left out.
        """
        x = self.embedding(characters[:, : longest + self.max_width].long()).transpose(1, 2)
        return self.activation(torch.cat([convolution(x).amax(dim=2) for convolution in self.convolutions], dim=1))
