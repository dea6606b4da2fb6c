"""A linear-chain conditional random field over tag sequences (Lafferty et al. 2001; Lample et al. 2016)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Allowed(NamedTuple):
    """Which tag sequences are allowed, for K tags. At least one sequence of every length must be allowed.

    Attributes:
        start: Bool (K,), the tags that may begin a sequence.
        transitions: Bool (K, K), the pairs in which the column's tag may follow the row's tag.
        end: Bool (K,), the tags that may end a sequence.
    """

    start: Tensor
    transitions: Tensor
    end: Tensor


class CRF(nn.Module):
    """Scores a tag sequence by the sum of its emissions, its transitions, and those into its start and out of its end.

    Likelihoods are over all sequences, including those that are not allowed. Decoding chooses among the allowed ones
    only (Peters et al. 2018, appendix A.7: "at test time").

    Shapes: `emissions` are (B, T, K). `tags` are (B, T), with any valid tag at padding. `mask` is bool (B, T), true at
    tokens; these are at the beginning of each row, and there is at least one (`decode` also takes rows without tokens).
    Padding has no effect on the results.
    """

    def __init__(self, allowed: Allowed) -> None:
        super().__init__()
        self.start, self.transitions, self.end = (nn.Parameter(torch.zeros(part.shape)) for part in allowed)
        nn.init.xavier_normal_(self.transitions)
        self._decoder = Decoder(allowed)

    def forward(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the log-likelihood (B,) of the `tags` of each row, in nats."""
        return self._score(emissions, tags, mask) - self.log_partition(emissions, mask)

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return the log of the summed exponentiated scores of all tag sequences (B,), by the forward algorithm."""
        # Taken apart once: the gradient of an index at each step would be a tensor of the whole batch each time.
        first, *rest = emissions.unbind(1)
        # `scores` (B, K) are the log of the summed scores of all beginnings that end in each tag.
        scores = self.start + first
        for emission, is_token in zip(rest, mask.unbind(1)[1:], strict=True):
            longer = torch.logsumexp(scores.unsqueeze(2) + self.transitions, dim=1) + emission
            scores = torch.where(is_token.unsqueeze(1), longer, scores)
        return torch.logsumexp(scores + self.end, dim=1)

    def decode(self, emissions: Tensor, mask: Tensor) -> list[list[int]]:
        """Return the best allowed tag sequence of each row. A row without tokens gives `[]`."""
        return self._decoder(emissions, mask, self.start, self.transitions, self.end)

    def _score(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the score of the `tags` of each row (B,)."""
        chosen = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
        moves = _look_up(self.transitions, tags[:, :-1] * len(self.transitions) + tags[:, 1:])
        # A sequence ends with the tag of its own last token, which in shorter rows is not in the last column.
        last = tags.gather(1, mask.sum(dim=1, keepdim=True) - 1).squeeze(1)
        inner = torch.where(mask, chosen, 0).sum(dim=1) + torch.where(mask[:, 1:], moves, 0).sum(dim=1)
        return _look_up(self.start, tags[:, 0]) + inner + _look_up(self.end, last)


def _look_up(scores: Tensor, places: Tensor) -> Tensor:
    """Return the scores at some places, counted row by row."""
    # Not by indexing, whose backward pass adds in any order in a large batch: a resumed run would not be bit-equal.
    return F.embedding(places, scores.reshape(-1, 1)).squeeze(-1)


class Decoder(nn.Module):
    """Finds the best tag sequence among the allowed ones, by the Viterbi algorithm.

    A CRF decodes with its weights; a model whose tags have independent likelihoods decodes with emissions alone.
    """

    def __init__(self, allowed: Allowed) -> None:
        super().__init__()
        # Not parameters and not saved: they follow from the tags, which a model's vocabularies have.
        for name, possible in allowed._asdict().items():
            penalty = torch.zeros(possible.shape).masked_fill(~possible, -torch.inf)
            self.register_buffer(name, penalty, persistent=False)

    @torch.no_grad()
    def forward(
        self,
        emissions: Tensor,
        mask: Tensor,
        start: Tensor | float = 0,
        transitions: Tensor | float = 0,
        end: Tensor | float = 0,
    ) -> list[list[int]]:
        """Return the allowed tags of each row with the highest sum of these scores.

        A row without tokens gives `[]`. Shapes are as in `CRF`.
        """
        lengths = mask.sum(dim=1).tolist()
        if not emissions.shape[1]:
            return [[] for _ in lengths]
        start, transitions, end = (
            score + self.get_buffer(name)
            for score, name in zip((start, transitions, end), Allowed._fields, strict=True)
        )

        # Forward: the best score of a sequence that ends in each tag (B, K), and for each step the tag before it.
        # Padding keeps the scores and points from each tag to itself, so that short rows just wait for the longest one.
        first, *rest = emissions.unbind(1)
        scores, same = start + first, torch.arange(len(end), device=emissions.device)
        origins: list[Tensor] = []
        for emission, is_token in zip(rest, mask.unbind(1)[1:], strict=True):
            best, origin = (scores.unsqueeze(2) + transitions).max(dim=1)
            scores = torch.where(is_token.unsqueeze(1), best + emission, scores)
            origins.append(torch.where(is_token.unsqueeze(1), origin, same))

        # Backward: follow the pointers from the best last tag. All rows start at the last step, whatever their length.
        path = [(scores + end).argmax(dim=1)]
        for origin in reversed(origins):
            path.append(origin.gather(1, path[-1].unsqueeze(1)).squeeze(1))
        rows = torch.stack(path[::-1], dim=1).tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]
